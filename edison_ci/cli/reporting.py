"""Reports on stored runs: the runs meant, the report, and the files to write."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.cli import coverage, lookup
from edison_ci.cli.terminal import folder_in_checkout
from edison_ci.documents import marks
from edison_ci.errors import EdisonError, UsageError
from edison_ci.git import repository as git
from edison_ci.report import annotations as report_annotations
from edison_ci.report import files as report_files
from edison_ci.report import reporters
from edison_ci.report.change_details import CANDIDATES, ChangeDetails, FileDiff
from edison_ci.results import cells as result_cells
from edison_ci.results import explanation, snapshot
from edison_ci.results import report as result_report
from edison_ci.sanitize import in_actions
from edison_ci.store import liveness
from edison_ci.store import runs as store_runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Project
    from edison_ci.records import Case
    from edison_ci.report.annotations import Changed
    from edison_ci.results.cells import FailingCells
    from edison_ci.results.run_result import RunResult
    from edison_ci.store.runs import Run

_MOST_BYTES = 1_000_000
FORMATS_OF = {"junit": "junit", "markdown": "md", "sarif": "sarif"}
"""Options of `run` that request a report, and the format of each."""


def sources_of(
    connection: sqlite3.Connection, project: Project, report: result_report.Report
) -> report_files.Sources:
    """Return what reports need besides the results of the runs."""
    private = project.file.settings.private
    return report_files.Sources(
        cases=partial(result_cells.cases_of, connection),
        changed=changed_in(project, report),
        folder=folder_in_checkout(project.root),
        reasons=not private,
        cells=(cells := result_cells.Cells(connection, texts=not private)),
        inputs=partial(_inputs, project),
        known=partial(explanation.known_cases, project, cells),
    )


def _inputs(project: Project, view: RunResult, failing: FailingCells) -> dict[str, Case]:
    """Return the inputs of failed answers, if the case is unchanged."""
    experiment = project.experiments.get(view.run.experiment)
    wanted = {cell.case: cell.case_hash for cell in failing.cells}
    return explanation.unchanged_cases(project, experiment, wanted)


def run_as_seen(connection: sqlite3.Connection, project: Project, wanted: str) -> Run:
    """Return a run by id, `latest` or experiment; a run whose process died is paused."""
    run = store_runs.find_run(connection, wanted)
    locks = project.root / ".edison" / "locks"
    return run.as_seen(alive=run.owner is not None and liveness.is_alive(locks, run.owner))


def report_on(project: Project, wanted: tuple[str, ...], folder: Path) -> DetailedReport:
    """Return the report on runs, or on the newest run and those of the same change.

    In a job for a pull request it lists what the change no longer measures. `folder` is the working
    folder.
    """
    found = _report_on(project, wanted)
    if wanted:
        return found
    dropped = coverage.coverage_of_job(project, folder).dropped
    return DetailedReport(replace(found.report, dropped=dropped), found.details)


class DetailedReport(NamedTuple):
    """A report with what a pull request shows beside it."""

    report: result_report.Report
    details: ChangeDetails = ChangeDetails()


def _report_on(project: Project, wanted: tuple[str, ...]) -> DetailedReport:
    if not wanted and in_actions() and not (project.root / project.file.results).exists():
        return DetailedReport(result_report.Report())  # nothing was affected, so nothing was run
    with lookup.results_of(project) as connection:
        if wanted:
            runs = [run_as_seen(connection, project, each) for each in dict.fromkeys(wanted)]
        else:
            newest = run_as_seen(connection, project, "latest")
            runs = (
                snapshot.runs_of_change(connection, newest) if _of_this_job(project, newest) else []
            )
        report = result_report.report_of(connection, runs)
        return DetailedReport(report, details_of(project, report))


def _of_this_job(project: Project, newest: Run) -> bool:
    """Whether a run may be of this job; results may come from a cache of another commit."""
    if not in_actions() or newest.commit_id is None:
        return True
    repository = git.Repository.find(project.root)
    return repository is None or repository.head() == newest.commit_id


def changed_in(project: Project, report: result_report.Report) -> Changed:
    """Return the lines of prompts, experiments and models that differ from the base."""
    found = {
        each.path: report_annotations.changed_lines(each.before, each.after)
        for each in _changed_files(project, report, prompts_only=False)
    }
    return {path: lines for path, lines in found.items() if lines}


def details_of(project: Project, report: result_report.Report) -> ChangeDetails:
    """Return the diffs of prompts, and the cases that changed most, for a pull request.

    Reads the results file of the report, which must be open.
    """
    diffs = _changed_files(project, report, prompts_only=True)
    cases = {
        view.run.id: view.changed_cases(most=CANDIDATES)
        for view in report.head_runs
        if view.ended and not project.file.settings.private
    }
    return ChangeDetails(tuple(each for each in diffs if each.before != each.after), cases)


def _changed_files(
    project: Project, report: result_report.Report, *, prompts_only: bool
) -> list[FileDiff]:
    """Return the files of experiments, as they are at the base and now."""
    found: dict[str, FileDiff | None] = {}
    repository = None
    for view in report.head_runs:
        if view.run.base_commit is None:
            continue
        repository = repository or git.Repository.find(project.root)
        if repository is None:
            break
        files = view.files
        others = () if prompts_only else (files.experiment, files.models)
        for path in (*files.prompts.values(), *others):
            if path and path not in found:
                found[path] = _both_sides(project, repository, view, path)
    return [each for each in found.values() if each is not None]


def _both_sides(
    project: Project, repository: git.Repository, view: RunResult, path: str
) -> FileDiff | None:
    folder = project.root.resolve().relative_to(repository.root).as_posix()
    there = path if folder == "." else f"{folder}/{path}"
    try:
        with project.tree.open(path, max_bytes=_MOST_BYTES) as stream:
            after = stream.read()
        before = repository.read(str(view.run.base_commit), there, max_bytes=_MOST_BYTES) or b""
    except (marks.Fault, UsageError, OSError):
        return None  # a report without line numbers is better than none
    return FileDiff(path, before.decode(errors="replace"), after.decode(errors="replace"))


def failure_text(error: EdisonError) -> str:
    """Return what went wrong, where, and what to do about it, for readers of a report."""
    said = f"{error.where}: {error.message}" if error.where else error.message
    return f"{said}. {error.hint[0].upper()}{error.hint[1:]}." if error.hint else said


def requested_reports(given: Mapping[str, Any]) -> RequestedReports:
    """Return the reports that the options of a run request; refuse files that cannot be written."""
    files = {kind: given[name] for name, kind in FORMATS_OF.items() if given[name] is not None}
    for path in files.values():
        report_files.refuse_unwritable(path)
    if len({path.absolute() for path in files.values()}) < len(files):
        raise UsageError("two reports have the same file", hint="name two files")
    return RequestedReports(files)


@dataclass(frozen=True, slots=True)
class RequestedReports:
    """The files to write reports to, by format."""

    files: Mapping[str, Path]

    def write(
        self,
        terminal: Terminal,
        project: Project,
        run_ids: Iterable[str],
        dropped: tuple[str, ...] = (),
    ) -> bool:
        """Write all reports on runs, print errors, and return whether all were written."""
        if not self.files:
            return True
        with lookup.results_of(project) if run_ids else contextlib.nullcontext() as connection:
            report, sources = result_report.Report(), report_files.Sources()
            if connection is not None:
                runs = [run_as_seen(connection, project, run_id) for run_id in run_ids]
                report = result_report.report_of(connection, runs)
                sources = sources_of(connection, project, report)
            return self.write_report(terminal, replace(report, dropped=dropped), sources)

    def write_failure(self, terminal: Terminal, error: EdisonError) -> None:
        """Write reports on a run that failed to start, so that no older report is taken for it."""
        self.write_report(
            terminal, result_report.Report(failure=failure_text(error)), report_files.Sources()
        )

    def write_report(
        self, terminal: Terminal, report: result_report.Report, sources: report_files.Sources
    ) -> bool:
        """Write a report in every format, print errors, and return whether all were written."""
        done = True
        for kind, path in self.files.items():
            try:
                report_files.write_whole(path, reporters.rendered(report, kind, sources))
                terminal.note(f"wrote {path}")
            except UsageError as error:
                terminal.complaint(error)
                done = False
        return done
