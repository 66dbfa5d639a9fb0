"""The report as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.report.layout import Limit, fitted
from edison_ci.report.sections import sections_of

if TYPE_CHECKING:
    from edison_ci.results.report import Report

MOST_BYTES = 900_000
"""GitHub drops the whole summary of a step that is larger than 1 MiB."""


def markdown(report: Report) -> str:
    """Return the whole report as Markdown."""
    return fitted(list(sections_of(report))).rstrip("\n") + "\n"


def job_summary(report: Report, *, used: int = 0) -> str:
    """Return the report for GITHUB_STEP_SUMMARY, of which so many bytes are used already."""
    limit = Limit(max(MOST_BYTES - used, 0), _bytes, "the artifacts of this run")
    return fitted(list(sections_of(report)), limit).rstrip("\n") + "\n"


def _bytes(text: str) -> int:
    return len(text.encode())
