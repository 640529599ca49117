"""||A||_2^2 of a linear operator: the Lipschitz constant L_f of grad f, f = 1/2 ||Ax - y||^2.

Exact, in float64, wherever A has a known decomposition:

- A = U diag(s) V^T (``DecomposablePhysics``: FFT blur, inpainting, denoising, MRI): max |s|^2;
- circular convolution with h (``Blur``): max |Fh|^2;
- circular convolution, then every f-th pixel (``Downsampling``): A A^T is a circular convolution
  whose spectrum is the mean of |Fh|^2 over the f x f frequencies that alias onto one.

Otherwise an upper bound:

- coils of sensitivities s_n, then frequencies by a mask m (``MultiCoilMRI``): the Fourier transform
  is unitary, so ||A||^2 <= max m^2 max sum_n |s_n|^2, with equality where all m are alike.
- A without negative entries (``Tomography``; ``Blur``, ``SpaceVaryingBlur`` and ``Downsampling``
  with nonnegative kernels and any borders): for every v > 0, ||A||^2 <= max_i (A^T A v)_i / v_i
  (Collatz and Wielandt). The power method started at v = 1 makes this tight: the smallest of these
  ratios is a lower bound, and it stops once both agree to 1e-4.
- Anything else: the power method approaches ||A||^2 from below. After k products from a random unit
  vector of R^n its value v misses by more than a factor 1 - eps, v < (1 - eps) ||A||^2, with a
  probability of at most sqrt(n) (1 - eps)^(k - 1/2) (Kuczynski and Wozniakowski, SIAM J. Matrix
  Anal. Appl. 13, 1992). The bound is v / (1 - eps), with eps such that this probability is 1e-6:
  6 % above v for 300 products and 3 x 64 x 64 images.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from deepinv.physics import (
    Blur,
    BlurFFT,
    DecomposablePhysics,
    Downsampling,
    LinearPhysics,
    MultiCoilMRI,
    SpaceVaryingBlur,
    Tomography,
)
from deepinv.physics.blur import DownsamplingMatlab, Upsampling
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.placement import placement

PRODUCTS = 300
FAILURE = 1e-6
TIGHT = 1e-4
FLOOR = 1e-6


@dataclass(frozen=True)
class SquaredNorm:
    """||A||_2^2, or the constant L_f that it is a factor of.

    Attributes:
        value: the number, or an upper bound of it.
        exact: False for a bound.
    """

    value: float
    exact: bool


def squared_norm(physics: LinearPhysics, img_size: ImageSize) -> SquaredNorm:
    """||A||_2^2 of a linear physics, exactly or bounded from above; see the module docstring.

    Args:
        physics: the operator.
        img_size: (C, H, W) of the images it acts on.

    Raises:
        InputError: the operator is zero, or not finite.

    Example:
        >>> from deepinv.physics import Denoising
        >>> squared_norm(Denoising(), (3, 8, 8))
        SquaredNorm(value=1.0, exact=True)
    """
    spectrum = _squared_spectrum(physics, img_size)
    if spectrum is not None:
        found = SquaredNorm(float(spectrum.max()), exact=True)
    elif type(physics).A is MultiCoilMRI.A:
        found = _of_coils(physics)
    elif _nonnegative(physics):
        found = SquaredNorm(_collatz_wielandt(physics, img_size), exact=False)
    else:
        found = SquaredNorm(_likely_bound(physics, img_size), exact=False)
    if not 0.0 < found.value < math.inf:
        raise InputError(
            f"the squared norm of {type(physics).__name__} is {found.value}: the operator is zero "
            "or not finite, and nothing can be reconstructed from it"
        )
    return found


def _squared_spectrum(physics: LinearPhysics, img_size: ImageSize) -> Tensor | None:
    """The eigenvalues of A A^T in float64, or None where they are not known."""
    if isinstance(physics, DecomposablePhysics):
        # A subclass with an A of its own may do more than its singular values say.
        if type(physics).A not in (DecomposablePhysics.A, BlurFFT.A):
            return None
        return _square(physics.mask)
    if isinstance(physics, Blur) and physics.padding == "circular":
        return _squared_transform(physics.filter, img_size)
    if (
        isinstance(physics, Downsampling)
        and not isinstance(physics, Upsampling | DownsamplingMatlab)
        and physics.padding == "circular"
    ):
        (h, w), f = img_size[-2:], physics.factor
        if h % f or w % f:
            return None
        spectrum = _squared_transform(physics.filter, img_size)
        if spectrum is None:
            return None
        return spectrum.reshape(-1, f, h // f, f, w // f).mean((1, 3))
    return None


def _squared_transform(kernel: Tensor | None, img_size: ImageSize) -> Tensor | None:
    size = img_size[-2:]
    if kernel is None or any(k > n for k, n in zip(kernel.shape[-2:], size, strict=True)):
        return None
    return _square(torch.fft.fft2(kernel.double(), s=size))


def _square(x: Tensor) -> Tensor:
    return x.abs().double().square()


def _of_coils(physics: MultiCoilMRI) -> SquaredNorm:
    together = _square(physics.coil_maps).sum(1).max()
    sampled = _square(physics.mask)
    alike = bool(sampled.min() == sampled.max())
    return SquaredNorm(float(together * sampled.max()), exact=alike)


def _nonnegative(physics: LinearPhysics) -> bool:
    """Whether A is known to have no negative entry, and A^T to be its transpose."""
    if type(physics).A is Tomography.A:  # sums of linear interpolations
        return bool(physics.fan_beam or physics.adjoint_via_backprop)
    if type(physics).A is SpaceVaryingBlur.A:
        parts = (physics.filters, physics.multipliers)
        return all(part is not None and bool((part >= 0).all()) for part in parts)
    plain = type(physics).A in (Blur.A, Downsampling.A)
    return plain and physics.filter is not None and bool((physics.filter >= 0).all())


@torch.no_grad()
def _collatz_wielandt(physics: LinearPhysics, img_size: ImageSize) -> float:
    device, dtype = placement(physics)
    v = torch.ones(1, *img_size, device=device, dtype=dtype)
    best = math.inf
    for _ in range(PRODUCTS):
        product = physics.A_adjoint_A(v)
        ratios = product / v
        best = min(best, float(ratios.max()))
        if not best > (1 + TIGHT) * float(ratios.min()):
            break
        v = product / product.max() + FLOOR  # every v > 0 gives a bound
    return best * (1 + 100 * torch.finfo(dtype).eps)


def _likely_bound(physics: LinearPhysics, img_size: ImageSize) -> float:
    device, dtype = placement(physics)
    start = torch.zeros(1, *img_size, device=device, dtype=dtype)
    with (
        torch.no_grad(),
        torch.random.fork_rng(devices=range(torch.cuda.device_count())),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Power iteration: convergence not reached")
        torch.manual_seed(0)
        value = physics.compute_sqnorm(start, max_iter=PRODUCTS, tol=0.0, verbose=False)
    log_kept = math.log(FAILURE / math.sqrt(start.numel())) / (PRODUCTS - 0.5)  # of 1 - eps
    return float(value) * math.exp(-log_kept)
