r"""Losses of a denoised image, one number per image.

With d = |D(y) - x|, the distance of the denoised from the clean image over all its n pixels:

    squared error        d^2                              posterior mean      (equation 35)
    proximal matching    1 - exp(-d^2 / (2 gamma^2))      posterior mode      (equation 29)

gamma has the units of d. It is handled as gamma = rms sqrt(n), with ``rms`` in units of one pixel,
so that settings do not depend on the size of the images.
"""

from __future__ import annotations

from torch import Tensor

from proxmatch.denoisers import GradientStep
from proxmatch.errors import InputError
from proxmatch.losses.named import register_loss


@register_loss("mse", "squared error")
def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """d^2, ``(B,)``: its mean over a batch is the MSE adaptation loss.

    Example:
        >>> import torch
        >>> squared_error(torch.ones(2, 1, 2, 2), torch.zeros(2, 1, 2, 2))
        tensor([4., 4.])
    """
    return (output - target).square().flatten(1).sum(1)


@register_loss("l1", "absolute error")
def absolute_error(output: Tensor, target: Tensor) -> Tensor:
    """|D(y) - x|_1, ``(B,)``.

    Example:
        >>> import torch
        >>> absolute_error(torch.full((1, 1, 2, 2), 2.0), torch.zeros(1, 1, 2, 2))
        tensor([8.])
    """
    return (output - target).abs().flatten(1).sum(1)


@register_loss("pm", "proximal matching", scaled=True)
def proximal_matching(output: Tensor, target: Tensor, rms: float) -> Tensor:
    """rho_gamma(D(y), x) = 1 - exp(-d^2 / (2 gamma^2)), ``(B,)``, in [0, 1].

    There is no square root on the way, so that it can be differentiated at d = 0.

    Args:
        output: D(y), ``(B, C, H, W)``.
        target: x, the same shape.
        rms: gamma per pixel: gamma = rms sqrt(n).

    Example:
        >>> import torch
        >>> x = torch.zeros(1, 1, 2, 2)
        >>> proximal_matching(x, x, 0.1), proximal_matching(x + 1, x, 0.1)
        (tensor([0.]), tensor([1.]))
    """
    return -(-_exponent(output, target, rms)).expm1()


@register_loss("scaled-mse", "squared error at the scale of proximal matching", scaled=True)
def scaled_squared_error(output: Tensor, target: Tensor, rms: float) -> Tensor:
    """d^2 / (2 gamma^2), ``(B,)``: the scale of proximal matching without its exponential.

    It is the control that separates the effect of the exponential from that of a gradient scale
    that grows as gamma shrinks. To first order in d^2 / (2 gamma^2) the two losses are the same.

    Example:
        >>> import torch
        >>> scaled_squared_error(torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2), 0.5)
        tensor([2.])
    """
    return _exponent(output, target, rms)


def gradient_field_matching(
    denoiser: GradientStep,
    noisy: Tensor,
    clean: Tensor,
    rms: float,
    sigma: float | Tensor | None = None,
) -> Tensor:
    """rho_gamma(grad g(y), y - x), ``(B,)``: equal to :func:`proximal_matching` of D(y) and x.

    It matches the gradient field of a gradient-step denoiser to the corruption (equation 41).

    Args:
        denoiser: D = Id - grad g.
        noisy: y, ``(B, C, H, W)``.
        clean: x, the same shape.
        rms: gamma per pixel.
        sigma: noise level, as in the denoiser's ``forward``.

    Example:
        >>> import torch
        >>> from proxmatch.denoisers import GradientStepConfig
        >>> denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 4), sigma=0.1))
        >>> x = torch.rand(1, 1, 8, 8)
        >>> same = proximal_matching(denoiser(x), x, 0.1)
        >>> torch.allclose(gradient_field_matching(denoiser, x, x, 0.1), same, atol=1e-5)
        True
    """
    return proximal_matching(noisy - denoiser(noisy, sigma), noisy - clean, rms)


def saturation(output: Tensor, target: Tensor, rms: float) -> Tensor:
    """How far proximal matching has lost its gradient, ``(B,)``: 0 at d = 0, 1 where it is gone.

    The gradient of rho_gamma is exp(-d^2 / (2 gamma^2)) times that of d^2 / (2 gamma^2): what is
    missing from the factor is rho_gamma itself.

    Example:
        >>> import torch
        >>> x = torch.zeros(1, 1, 2, 2)
        >>> saturation(x + 1, x, 0.01)
        tensor([1.])
    """
    return proximal_matching(output.detach(), target.detach(), rms)


def _exponent(output: Tensor, target: Tensor, rms: float) -> Tensor:
    if not rms > 0:
        raise InputError(f"gamma must be positive, got {rms} per pixel")
    return squared_error(output, target) / (2 * rms**2 * output[0].numel())
