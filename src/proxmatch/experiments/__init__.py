"""The paper's experiment: reproduced, questioned with controls, told in tables and figures."""

from proxmatch.experiments.reproduce import Reproduction, reproduce
from proxmatch.experiments.scales import SCALES, FamilyScale, Row, Scale

__all__ = ["SCALES", "FamilyScale", "Reproduction", "Row", "Scale", "reproduce"]
