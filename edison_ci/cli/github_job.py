"""What a job on GitHub leaves behind: summary, outputs, annotations, reports, results."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.cli.reading import results_of
from edison_ci.cli.reporting import Asked, changed_in, run_as_seen, sources_of
from edison_ci.cli.terminal import folder_in_checkout
from edison_ci.documents.secrets import hidden
from edison_ci.errors import EdisonError, StoreError, UsageError
from edison_ci.forge.marker import State as Stage
from edison_ci.operate.own_results import is_trusted, note, set_aside
from edison_ci.operate.proposal_terms import is_proposed
from edison_ci.operate.signatures import is_signed, signature_beside
from edison_ci.report.annotations import Annotation, annotated, annotation_commands
from edison_ci.report.markdown import job_summary
from edison_ci.report.workflow import outputs
from edison_ci.report.writing import Sources
from edison_ci.results.report import Report, report_of
from edison_ci.rounding import fixed
from edison_ci.store.copies import copy_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Project

_FILES = {"junit": "junit.xml", "md": "report.md", "sarif": "edison.sarif", "json": "report.json"}
CANCELLED = "## ⛔ edison: cancelled\n\nNothing was decided.\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended, and all there is to tell of it."""

    report: Report | None
    """None when it was cancelled before there was anything to report on."""
    code: int = 0
    stage: Stage = Stage.FINAL
    annotations: Sequence[Annotation] = ()
    complete: bool = True
    """Whether every report could be written."""

    @property
    def verdict(self) -> str | None:
        """What was decided; None if nothing was."""
        return self.report.verdict if self.report is not None else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job puts its files: beside the checkout, where no change can have put any."""

    folder: Path

    @classmethod
    def of(cls, given: Path | None) -> Place:
        """Return the folder that was named, or the one that the runner empties after each job."""
        kept = os.environ.get("RUNNER_TEMP")
        if given is None and not kept:
            raise UsageError(
                "there is no folder for the reports: RUNNER_TEMP is not set", hint="name one: --out"
            )
        folder = given or Path(kept or "") / "edison"
        try:
            (folder / "report").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror}", hint="name another folder: --out"
            ) from None
        return cls(folder.absolute())

    @property
    def report(self) -> Path:
        """The folder of the reports."""
        return self.folder / "report"

    @property
    def results(self) -> Path:
        """The copy of the results, of this job or of the one before it."""
        return self.folder / "results.db"

    @property
    def asked(self) -> Asked:
        """The reports that every job writes."""
        return Asked({kind: self.report / name for kind, name in _FILES.items()})

    # --- results of an earlier job ----------------------------------------------------------------

    def take_up(self, terminal: Terminal, project: Project) -> None:
        """Start from the results that an earlier job left, if the workflow has restored them.

        In a job for a proposal, and wherever public keys are listed, they must be signed. Those
        that are not are kept aside, where only a replay looks, which they let decide nothing.
        """
        own = project.root / project.file.results
        if own.exists() or not self.results.exists():
            return
        proposed = is_proposed(project.root)
        keys = project.trust.results.public_keys
        try:
            own.parent.mkdir(parents=True, exist_ok=True)
            if proposed and not is_trusted(project.root, self.results):
                terminal.note("the results of an earlier job are not signed: they prove nothing")
                shutil.copyfile(self.results, set_aside(own))
                return
            if not proposed and keys and not is_signed(self.results, keys):
                terminal.note("the results of an earlier job are not signed, so they are left")
                return
            copy_whole(self.results, own)
            if proposed:
                note(own)
        except (EdisonError, OSError) as error:
            # They would have saved money; what is measured does not depend on them.
            terminal.note(f"the results of an earlier job cannot be used: {error}")
        else:
            terminal.note("starting from the results of an earlier job")

    def hand_on(self, terminal: Terminal, project: Project | None) -> str:
        """Copy the results for later jobs; return where, or nothing if texts must not leave."""
        if project is None or not (project.root / project.file.results).exists():
            return ""
        if project.file.settings.private:
            terminal.note("the project is private: its results are not handed on")
            return ""
        try:
            signature_beside(self.results).unlink(missing_ok=True)  # of what was there before
            copy_whole(project.root / project.file.results, self.results)
        except StoreError as error:
            terminal.complaint(error)
            return ""
        return str(self.results)


def outcome_of(
    terminal: Terminal, project: Project, run_ids: Sequence[str], place: Place, **about: Any
) -> Outcome:
    """Report on runs in every format; `about` is what a report says besides its runs."""
    with results_of(project) if run_ids else contextlib.nullcontext() as connection:
        report, sources = Report(), Sources()
        if connection is not None:
            runs = [run_as_seen(connection, project, run_id) for run_id in run_ids]
            report = report_of(connection, runs)
            sources = sources_of(connection, project, report)
        report = Report(report.runs, **about)
        complete = place.asked.write_report(terminal, report, sources)
    found = annotated(report, changed_in(project, report))
    return Outcome(report, annotations=found, complete=complete)


def summarize_job(outcome: Outcome) -> None:
    """Add the report to the summary of the job."""
    if target := os.environ.get("GITHUB_STEP_SUMMARY"):
        used = Path(target).stat().st_size if Path(target).exists() else 0
        report = outcome.report
        append(Path(target), CANCELLED if report is None else job_summary(report, used=used))


def annotate(terminal: Terminal, outcome: Outcome, project: Project | None) -> None:
    """Show remarks beside the lines that they are about."""
    folder = folder_in_checkout(project.root) if project is not None else ""
    terminal.commands(annotation_commands(outcome.annotations, folder))


def write_outputs(values: Mapping[str, str]) -> None:
    """Give values to the steps after this one."""
    if place := os.environ.get("GITHUB_OUTPUT"):
        append(Path(place), outputs(values, secrets.token_hex(16)))


def output_values(report: Report | None) -> dict[str, str]:
    """Return the outputs of the step; with several runs, scores are those of the first."""
    verdict = report.verdict if report is not None else None
    report = report or Report()
    first = report.measured[0] if report.measured else None
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


def append(path: Path, text: str) -> None:
    """Add to a file of the runner, in one write."""
    try:
        with path.open("ab") as stream:
            stream.write(hidden(text).encode("utf-8", errors="backslashreplace"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="GITHUB_STEP_SUMMARY and GITHUB_OUTPUT name files that the runner makes",
        ) from None
