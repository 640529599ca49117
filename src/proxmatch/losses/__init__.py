"""What training and adaptation minimize: MSE, L1, proximal matching, the contractivity penalty."""

from proxmatch.losses.contractivity import contractivity_penalty, curvature, top_direction
from proxmatch.losses.matching import (
    absolute_error,
    gradient_field_matching,
    proximal_matching,
    saturation,
    scaled_squared_error,
    squared_error,
)
from proxmatch.losses.named import LOSSES, NamedLoss, loss_named, register_loss
from proxmatch.losses.schedules import Constant, FromData, GammaSchedule, Geometric, Staged
from proxmatch.losses.trainer import ContractivityLoss, ProximalMatchingLoss

__all__ = [
    "LOSSES",
    "Constant",
    "ContractivityLoss",
    "FromData",
    "GammaSchedule",
    "Geometric",
    "NamedLoss",
    "ProximalMatchingLoss",
    "Staged",
    "absolute_error",
    "contractivity_penalty",
    "curvature",
    "gradient_field_matching",
    "loss_named",
    "proximal_matching",
    "register_loss",
    "saturation",
    "scaled_squared_error",
    "squared_error",
    "top_direction",
]
