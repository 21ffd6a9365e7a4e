"""One HTML page about one fit, for people who did not make it."""

from lvgp.report.findings import Findings, gather
from lvgp.report.page import write_report

__all__ = ["Findings", "gather", "write_report"]
