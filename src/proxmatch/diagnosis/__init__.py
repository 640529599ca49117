"""Is a denoiser mismatched here, and what does it cost?"""

from proxmatch.diagnosis.mismatch import Diagnosis, Grade, diagnose, judge

__all__ = ["Diagnosis", "Grade", "diagnose", "judge"]
