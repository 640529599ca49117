"""Checks of images, measurements and physics: errors, and warnings for what is only doubtful."""

from __future__ import annotations

import math
import warnings

import torch
from deepinv.optim import L2
from deepinv.optim.data_fidelity import DataFidelity
from deepinv.physics import LinearPhysics, PoissonGaussianNoise, PoissonNoise, StackedPhysics
from torch import Tensor

from proxmatch.data.any_form import BRIGHTEST, check_real
from proxmatch.errors import InputError, MismatchedPhysicsWarning

#: Relative error of <Ax, y> = <x, A^T y> beyond which A^T is another operator.
ADJOINT = 1e-3
SAMPLES = 4


def check_tensor(x: object, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of numbers of the given precision on the given device, or an InputError."""
    if not isinstance(x, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if x.numel() == 0:
        raise InputError(f"{name} is empty: its shape is {tuple(x.shape)}")
    check_real(x)
    if not x.is_floating_point():
        raise InputError(
            f"{name} must be floating point, got {x.dtype}; scale 8-bit images to [0, 1] by "
            "dividing by 255"
        )
    if x.dtype != dtype or x.device.type != device.type:
        raise InputError(
            f"{name} is {x.dtype} on {x.device}, the problem {dtype} on {device}; "
            "convert one of them, e.g. with problem.to(dtype) and problem.to(device)"
        )
    return x


def check_finite(x: Tensor, name: str) -> None:
    """Raise an InputError that names the images with NaN or infinity."""
    bad = (~x.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
    if bad:
        raise InputError(f"{name} holds NaN or infinity in the images {bad}; remove them")


def check_range(y: Tensor, squared_norm: float, pixels: int) -> None:
    """Raise an InputError for measurements that no image in [-10, 10] has.

    y = Ax with |x| <= 10 in every pixel has a norm of at most 10 ||A|| sqrt(pixels).

    Args:
        y: measurements, ``(B, ...)``.
        squared_norm: ||A||^2, or a bound of it.
        pixels: of an image, all channels.
    """
    limit = BRIGHTEST * math.sqrt(squared_norm * pixels)
    size = torch.linalg.vector_norm(y.flatten(1), dim=1)
    bad = (size > limit).nonzero().flatten().tolist()
    if bad:
        raise InputError(
            f"y is far too large in {bad}: its norm is {float(size.max()):.4g}, and that of the "
            f"measurements of images in [0, 1] at most {limit / BRIGHTEST:.4g}. Scale y to the "
            "units of problem.measure(x) with x in [0, 1], e.g. divide 8-bit pictures by 255"
        )


def check_linear(physics: object) -> None:
    """Raise an InputError unless physics is one linear operator."""
    if not isinstance(physics, LinearPhysics):
        raise InputError(
            f"{type(physics).__name__} is not a deepinv LinearPhysics; the step size rule and the "
            "theory need a linear operator"
        )
    if isinstance(physics, StackedPhysics):
        raise InputError(
            "a stacked physics measures a list of tensors; write it as one LinearPhysics whose "
            "A concatenates them"
        )


@torch.no_grad()
def check_physics(physics: LinearPhysics, zeros: Tensor) -> None:
    """Refuse a physics that does not take the images it is meant for.

    Args:
        physics: A.
        zeros: an image, ``(1, C, H, W)``.

    Raises:
        InputError: saying what is wrong.

    Warns:
        MismatchedPhysicsWarning: ``A_adjoint`` is not the adjoint of A.
    """
    kind = type(physics).__name__
    try:
        back = physics.A_adjoint(physics.A(zeros))
    except Exception as error:
        raise InputError(
            f"{kind} cannot be applied to images of {tuple(zeros.shape[1:])}, "
            f"{zeros.dtype}: {error}"
        ) from error
    if back.shape[1:] != zeros.shape[1:]:
        raise InputError(
            f"the adjoint of {kind} makes {tuple(back.shape[1:])} of images of "
            f"{tuple(zeros.shape[1:])}; give the img_size it was built for"
        )
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        wrong = float(physics.adjointness_test(zeros, num_samples=SAMPLES))
    if wrong > ADJOINT:
        warnings.warn(
            f"A_adjoint of {kind} is not the adjoint of its A (relative error {wrong:.2g}): what "
            "is taken for the gradient of f is wrong, and the theory does not hold. Build it with "
            "an exact adjoint (adjoint_via_backprop=True for deepinv's Tomography)",
            MismatchedPhysicsWarning,
            stacklevel=4,
        )


def check_noise(physics: LinearPhysics, data_fidelity: DataFidelity) -> None:
    """Warn about a Gaussian data term for noise that is not Gaussian.

    Warns:
        MismatchedPhysicsWarning: Poisson noise and 1/2 ||Ax - y||^2.
    """
    noise = physics.noise_model
    if isinstance(noise, PoissonNoise | PoissonGaussianNoise) and isinstance(data_fidelity, L2):
        warnings.warn(
            f"{type(noise).__name__} varies with the brightness, but the data term 1/2 |Ax - y|^2 "
            "weighs all measurements alike. Use make_problem('poisson-denoising', ...) or "
            "'poisson-deblurring', or PhotonNoise and data_fidelity=PhotonFidelity(gain, "
            "background) of proxmatch.problems",
            MismatchedPhysicsWarning,
            stacklevel=3,
        )
