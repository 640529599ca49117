"""The theory of PnP-PGD under proximal mismatch, checked on real runs.

``certify`` measures a run against a reference and checks every inequality; ``known`` holds targets
with known answers; ``population`` shows what the two training losses converge to.
"""

from proxmatch.theory.certificate import Certificate, Run, certify
from proxmatch.theory.exact import ExactDenoiser
from proxmatch.theory.figure import draw
from proxmatch.theory.inequalities import Constants, Row, Verdict, check
from proxmatch.theory.perturbation import Perturbed, power_law
from proxmatch.theory.trajectory import Trajectory, measure, trace
from proxmatch.theory.whatif import Outlook

__all__ = [
    "Certificate",
    "Constants",
    "ExactDenoiser",
    "Outlook",
    "Perturbed",
    "Row",
    "Run",
    "Trajectory",
    "Verdict",
    "certify",
    "check",
    "draw",
    "measure",
    "power_law",
    "trace",
]
