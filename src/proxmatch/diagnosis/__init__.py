"""Is a denoiser mismatched here, and what does it cost?"""

from proxmatch.diagnosis.calibration import predictable
from proxmatch.diagnosis.mismatch import Diagnosis, Grade, diagnose

__all__ = ["Diagnosis", "Grade", "diagnose", "predictable"]
