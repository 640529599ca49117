"""Studies: small experiments beside the paper's, each a set of cells and the tables they make.

A study is registered by its name in :data:`STUDIES` and run by
``proxmatch reproduce --study NAME``.
"""

from proxmatch.experiments.studies.adapted import ADAPTATION
from proxmatch.experiments.studies.ceiling import CEILING
from proxmatch.experiments.studies.certified import CERTIFICATES
from proxmatch.experiments.studies.denoised import DENOISING
from proxmatch.experiments.studies.detector import DETECTOR
from proxmatch.experiments.studies.margins import PROXIMAL
from proxmatch.experiments.studies.modalities import MODALITIES
from proxmatch.experiments.studies.reconstructed import RECONSTRUCTION
from proxmatch.experiments.studies.solver import SOLVER
from proxmatch.experiments.studies.study import Study, Work, run_study
from proxmatch.experiments.studies.whole import WHOLE

#: The studies by name.
STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        DENOISING,
        RECONSTRUCTION,
        CEILING,
        PROXIMAL,
        SOLVER,
        WHOLE,
        CERTIFICATES,
        ADAPTATION,
        DETECTOR,
        MODALITIES,
    )
}

__all__ = ["STUDIES", "Study", "Work", "run_study"]
