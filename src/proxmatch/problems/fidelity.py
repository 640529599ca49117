"""The data term f(x) = d(Ax, y), and the Lipschitz constant L_f of its gradient.

If u -> grad d(u, y) is beta-Lipschitz for every y, then grad f(x) = A^T grad d(Ax, y) is
L_f-Lipschitz with L_f = beta ||A||_2^2. Here beta is called the **curvature** of the data term, the
largest second derivative of d. For f = 1/2 ||Ax - y||^2 it is 1.

Any deepinv ``DataFidelity`` of known curvature can be the data term of a problem. One that has an
attribute ``curvature`` brings it along (:class:`proxmatch.problems.photons.PhotonFidelity`).
"""

from __future__ import annotations

import math
from typing import Any

from deepinv.optim import L2
from deepinv.optim.data_fidelity import DataFidelity
from deepinv.physics import LinearPhysics

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.norms import SquaredNorm, squared_norm


def curvature(data_fidelity: DataFidelity) -> float:
    """Beta: the Lipschitz constant of u -> grad d(u, y), for every y.

    Raises:
        InputError: it is not known.

    Example:
        >>> curvature(L2())
        1.0
    """
    if type(data_fidelity) is L2:
        return float(data_fidelity.norm)
    found = getattr(data_fidelity, "curvature", None)
    if not isinstance(found, float | int) or not 0 < found < math.inf:
        raise InputError(
            f"no Lipschitz constant is known for the gradient of {type(data_fidelity).__name__}; "
            "set its attribute curvature to that of u -> grad d(u, y), or take a data term that "
            "has one"
        )
    return float(found)


def gradient_bound(
    data_fidelity: DataFidelity, physics: LinearPhysics, img_size: ImageSize
) -> SquaredNorm:
    """L_f = curvature * ||A||_2^2, exact where the norm and the curvature are.

    Example:
        >>> from deepinv.physics import Denoising
        >>> gradient_bound(L2(), Denoising(), (1, 8, 8)).value
        1.0
    """
    norm = squared_norm(physics, img_size)
    return SquaredNorm(curvature(data_fidelity) * norm.value, norm.exact)


def parameters(data_fidelity: DataFidelity) -> dict[str, Any]:
    """The numbers that a data term holds, by name.

    Example:
        >>> from proxmatch.problems import PhotonFidelity
        >>> parameters(PhotonFidelity(0.02, 0.1))["gain"]
        0.02
    """
    return {
        name: float(f"{value:.6g}")
        for name, value in sorted(vars(data_fidelity).items())
        if isinstance(value, float | int) and not isinstance(value, bool)
    }
