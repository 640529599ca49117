"""The page: an experiment's folder as one HTML file that opens anywhere, offline."""

from proxmatch.report.page import write_report

__all__ = ["write_report"]
