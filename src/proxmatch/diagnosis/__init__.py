"""Is a denoiser mismatched here, and what does it cost?"""

from proxmatch.diagnosis.mismatch import LOSSES, Diagnosis, Grade, diagnose, judge

__all__ = ["LOSSES", "Diagnosis", "Grade", "diagnose", "judge"]
