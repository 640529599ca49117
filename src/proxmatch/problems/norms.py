"""||A||_2^2 of a linear operator: the Lipschitz constant L_f of grad f, f = 1/2 ||Ax - y||^2.

Exact, in float64, wherever A has a known decomposition:

- A = U diag(s) V^T (``DecomposablePhysics``: FFT blur, inpainting, denoising, MRI): max |s|^2;
- circular convolution with h (``Blur``): max |Fh|^2;
- circular convolution, then every f-th pixel (``Downsampling``): A A^T is a circular convolution
  whose spectrum is the mean of |Fh|^2 over the f x f frequencies that alias onto one.

Anything else gets an upper bound. The power method on A^T A approaches ||A||^2 from below: after k
products from a random unit vector of R^n its value v misses by more than a factor 1 - eps,
v < (1 - eps) ||A||^2, with a probability of at most sqrt(n) (1 - eps)^(k - 1/2) (Kuczynski and
Wozniakowski, SIAM J. Matrix Anal. Appl. 13, 1992). The bound is v / (1 - eps), with eps such that
this probability is 1e-6: 6 % above v for 300 products and 3 x 64 x 64 images.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from deepinv.physics import Blur, BlurFFT, DecomposablePhysics, Downsampling, LinearPhysics
from deepinv.physics.blur import DownsamplingMatlab, Upsampling
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.placement import placement

PRODUCTS = 300
FAILURE = 1e-6


@dataclass(frozen=True)
class SquaredNorm:
    """||A||_2^2.

    Attributes:
        value: the squared norm, or an upper bound of it.
        exact: False for a bound.
    """

    value: float
    exact: bool


def squared_norm(physics: LinearPhysics, img_size: tuple[int, int, int]) -> SquaredNorm:
    """||A||_2^2 of a linear physics, exactly or bounded from above; see the module's text.

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
    else:
        found = SquaredNorm(_bound(physics, img_size), exact=False)
    if not 0.0 < found.value < math.inf:
        raise InputError(
            f"the squared norm of {type(physics).__name__} is {found.value}: the operator is zero "
            "or not finite, and nothing can be reconstructed from it"
        )
    return found


def _squared_spectrum(physics: LinearPhysics, img_size: tuple[int, int, int]) -> Tensor | None:
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


def _squared_transform(kernel: Tensor | None, img_size: tuple[int, int, int]) -> Tensor | None:
    size = img_size[-2:]
    if kernel is None or any(k > n for k, n in zip(kernel.shape[-2:], size, strict=True)):
        return None
    return _square(torch.fft.fft2(kernel.double(), s=size))


def _square(x: Tensor) -> Tensor:
    return x.abs().double().square()


def _bound(physics: LinearPhysics, img_size: tuple[int, int, int]) -> float:
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
