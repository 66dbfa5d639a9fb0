"""Files of the runner: the job summary, and the outputs of the step."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.documents import secrets as document_secrets
from edison_ci.errors import UsageError
from edison_ci.numeric import fixed
from edison_ci.report import annotations as report_annotations
from edison_ci.report import markdown_report
from edison_ci.results import report as result_report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.report.change_details import ChangeDetails
    from edison_ci.results.report import Report

CANCELLED = "## ⛔ edison: cancelled\n\nNothing was decided.\n"


def summarize(report: Report | None, details: ChangeDetails) -> str:
    """Append a report to the job summary; return its path, or '' outside of a job.

    Without a report the job was cancelled before there was one.
    """
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return ""
    text = CANCELLED
    if report is not None:
        used = Path(target).stat().st_size if Path(target).exists() else 0
        text = markdown_report.job_summary(report, used=used, details=details)
    _append(Path(target), text)
    return target


def write_outputs(values: Mapping[str, str]) -> None:
    """Write the outputs of the step."""
    if place := os.environ.get("GITHUB_OUTPUT"):
        _append(Path(place), report_annotations.outputs(values, secrets.token_hex(16)))


def output_values(report: Report | None) -> dict[str, str]:
    """Return the outputs of the step; with several runs, the scores of the first."""
    verdict = report.verdict if report is not None else None
    report = report or result_report.Report()
    first = report.head_runs[0] if report.head_runs else None
    composite = first.overall.composite if first is not None else None
    change = first.against.estimate if first is not None and first.against is not None else None
    return {
        "verdict": verdict or "",
        "composite": "" if composite is None else fixed(composite.estimate, 4),
        "delta": "" if change is None else fixed(change, 4),
        "cost-usd": fixed(report.cost_microusd / 1e6, 6),
        "cells": str(sum(view.cells["total"] for view in report.runs)),
        "regressions": str(report.regressions),
    }


def _append(path: Path, text: str) -> None:
    """Append to a file of the runner, in one write."""
    try:
        with path.open("ab") as stream:
            stream.write(document_secrets.hidden(text).encode("utf-8", errors="backslashreplace"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="GITHUB_STEP_SUMMARY and GITHUB_OUTPUT must name files of the runner",
        ) from None
