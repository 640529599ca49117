"""Deblurring with a kernel that was measured or estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from torch import Tensor

from proxmatch.problems.from_pictures import as_tensor, kernel_picture
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.kernels import blur
from proxmatch.problems.registration import Design, Noise, gaussian_noise, register


@register("kernel-deblurring", "a kernel that is given as a picture")
def kernel_deblurring(
    img_size: ImageSize,
    *,
    kernel: Annotated[
        Tensor | np.ndarray[Any, Any] | str | Path,
        "a picture of it, whose brightness is scaled to sum to one, or a tensor or array (h, w), "
        "which is used as it is",
        kernel_picture,
    ],
    noise: Noise = 0.02,
) -> Design:
    """Images convolved with a kernel, circular borders, and noise added; x_0 = A^T y.

    The center of the kernel is its pixel (h // 2, w // 2).

    Example:
        >>> import torch
        >>> problem = kernel_deblurring(16, kernel=torch.ones(3, 3))
        >>> problem.name
        'kernel-deblurring'
    """
    if isinstance(kernel, np.ndarray):
        kernel = as_tensor(kernel)
    elif not isinstance(kernel, Tensor):
        kernel = kernel_picture(kernel)
    return Design(blur(kernel, img_size), gaussian_noise(noise))
