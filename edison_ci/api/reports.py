"""Reports on stored runs: which runs, what a pull request shows of them, and files to write."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.api.change_coverage import coverage_of_job
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
from edison_ci.results.stored_runs import open_runs
from edison_ci.sanitize import folder_in_checkout, in_actions

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.records import Case
    from edison_ci.report.annotations import Changed
    from edison_ci.results.cells import FailingCells
    from edison_ci.results.run_result import RunResult
    from edison_ci.store.runs import Run

_MOST_BYTES = 1_000_000


def sources_of(
    connection: sqlite3.Connection,
    project: Project,
    report: result_report.Report,
    *,
    quotes: bool = True,
) -> report_files.Sources:
    """Return what reports need besides the results; with `quotes` Markdown may quote answers."""
    private = project.file.settings.private
    return report_files.Sources(
        cases=partial(result_cells.cases_of, connection),
        changed=changed_in(project, report),
        folder=folder_in_checkout(project.root),
        reasons=not private,
        cells=(cells := result_cells.Cells(connection, texts=not private)),
        inputs=partial(_inputs, project),
        known=partial(explanation.known_cases, project, cells),
        details=partial(details_of, project, report, quotes=quotes),
    )


def _inputs(project: Project, view: RunResult, failing: FailingCells) -> dict[str, Case]:
    """Return the inputs of failed answers, if the case is unchanged."""
    experiment = project.experiments.get(view.run.experiment)
    hashes = {cell.case: cell.case_hash for cell in failing.cells}
    return explanation.unchanged_cases(project, experiment, hashes)


def report_on(project: Project, names: Sequence[str], folder: Path) -> DetailedReport:
    """Return the report on runs, or on the newest run and those of the same change.

    In a job for a pull request it lists what the change no longer measures. `folder` is the working
    folder.
    """
    report, details = _report_on(project, names)
    if not names:
        report = replace(report, dropped=coverage_of_job(project, folder).dropped)
    return DetailedReport(report, details)


class DetailedReport(NamedTuple):
    """A report with what a pull request shows beside it."""

    report: result_report.Report
    details: ChangeDetails = ChangeDetails()


def _report_on(project: Project, names: Sequence[str]) -> DetailedReport:
    if not names and in_actions() and not (project.root / project.file.results).exists():
        return DetailedReport(result_report.Report())  # nothing was affected, so nothing was run
    with open_runs(project) as stored:
        runs: Sequence[Run] = ()
        if names:
            runs = [stored.current(name) for name in dict.fromkeys(names)]
        elif _of_this_job(project, newest := stored.current()):
            runs = snapshot.runs_of_change(stored.connection, newest)
        report = result_report.report_of(stored.connection, runs)
        return DetailedReport(report, details_of(project, report))


def _of_this_job(project: Project, newest: Run) -> bool:
    """Whether a run may be of this job; results may come from a cache of another commit."""
    if not in_actions() or newest.commit_id is None:
        return True
    repository = git.Repository.find(project.root)
    return repository is None or repository.head() == newest.commit_id


def changed_in(project: Project, report: result_report.Report) -> Changed:
    """Return the lines of prompts, experiments and models that differ from the base."""
    changed = {
        file.path: report_annotations.changed_lines(file.before, file.after)
        for file in _changed_files(project, report.head_runs, prompts_only=False)
    }
    return {path: lines for path, lines in changed.items() if lines}


def details_of(
    project: Project, report: result_report.Report, *, quotes: bool = True
) -> ChangeDetails:
    """Return the diffs of prompts, and the cases that changed most; nothing without `quotes`.

    Reads the results file of the report, which must be open.
    """
    if not quotes:
        return ChangeDetails()
    cases = {
        view.run.id: view.changed_cases(most=CANDIDATES)
        for view in report.head_runs
        if view.ended and not project.file.settings.private
    }
    return ChangeDetails(prompt_diffs(project, report.head_runs), cases)


def prompt_diffs(project: Project, views: Sequence[RunResult]) -> tuple[FileDiff, ...]:
    """Return the diffs of the prompts of runs since their base; none of one that changed since."""
    versions = {str(prompt.id): prompt.version for prompt in project.prompts.values()}
    diffs: dict[str, FileDiff] = {}
    for view in views:
        measured = dict(view.prompts)
        since = {
            path
            for name, path in view.files.prompts.items()
            if measured.get(name, versions.get(name)) != versions.get(name)
        }
        for diff in _changed_files(project, [view], prompts_only=True):
            if diff.path not in since and diff.before != diff.after:
                diffs.setdefault(diff.path, diff)
    return tuple(diffs.values())


def _changed_files(
    project: Project, views: Sequence[RunResult], *, prompts_only: bool
) -> list[FileDiff]:
    """Return the files of experiments, as they are at the base and now."""
    diffs: dict[str, FileDiff | None] = {}
    repository = None
    for view in views:
        if view.run.base_commit is None:
            continue
        repository = repository or git.Repository.find(project.root)
        if repository is None:
            break
        files = view.files
        others = () if prompts_only else (files.experiment, files.models)
        for path in (*files.prompts.values(), *others):
            if path and path not in diffs:
                diffs[path] = _both_sides(project, repository, view, path)
    return [diff for diff in diffs.values() if diff is not None]


def _both_sides(
    project: Project, repository: git.Repository, view: RunResult, path: str
) -> FileDiff | None:
    there = repository.prefix_of(project.root) + path
    try:
        with project.tree.open(path, max_bytes=_MOST_BYTES) as stream:
            after = stream.read()
        before = repository.read(str(view.run.base_commit), there, max_bytes=_MOST_BYTES) or b""
    except (marks.Fault, UsageError, OSError):
        return None  # a report without line numbers is better than none
    return FileDiff(path, before.decode(errors="replace"), after.decode(errors="replace"))


def failure_text(error: EdisonError) -> str:
    """Return what went wrong, where, and what to do about it, for readers of a report."""
    message = f"{error.where}: {error.message}" if error.where else error.message
    return f"{message}. {error.hint[0].upper()}{error.hint[1:]}." if error.hint else message


class WrittenReport(NamedTuple):
    """A report that was to be written to a file."""

    path: Path
    problem: UsageError | None = None
    """Why the file was not written."""


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The files to write reports to, by format."""

    files: Mapping[str, Path]

    @classmethod
    def requested(cls, files: Mapping[str, Path | None]) -> ReportFiles:
        """Return the files that are named; raises UsageError for one that cannot be written."""
        named = {kind: path for kind, path in files.items() if path is not None}
        for path in named.values():
            report_files.refuse_unwritable(path)
        if len({path.absolute() for path in named.values()}) < len(named):
            raise UsageError("two reports have the same file", hint="name two files")
        return cls(named)

    def write(
        self,
        project: Project,
        run_ids: Sequence[str],
        dropped: tuple[str, ...] = (),
        failure: EdisonError | None = None,
    ) -> list[WrittenReport]:
        """Write the report on runs in every format, with what failed after them."""
        if not self.files:
            return []
        with _report_with_sources(project, run_ids) as (report, sources):
            text = "" if failure is None else failure_text(failure)
            return self.write_report(replace(report, dropped=dropped, failure=text), sources)

    def write_failure(self, error: EdisonError) -> list[WrittenReport]:
        """Write reports on a run that failed to start, so that no older report is taken for it."""
        return self.write_report(result_report.Report(failure=failure_text(error)))

    def write_report(
        self, report: result_report.Report, sources: report_files.Sources | None = None
    ) -> list[WrittenReport]:
        """Write a report in every format; an error about one file does not keep the others back."""
        written = []
        for kind, path in self.files.items():
            problem = None
            try:
                content = reporters.rendered(report, kind, sources or report_files.Sources())
                report_files.write_whole(path, content)
            except UsageError as error:
                problem = error
            written.append(WrittenReport(path, problem))
        return written


@contextlib.contextmanager
def _report_with_sources(
    project: Project, run_ids: Sequence[str]
) -> Iterator[tuple[result_report.Report, report_files.Sources]]:
    """Open the results for a report on runs; without runs there need not be any."""
    if not run_ids:
        yield result_report.Report(), report_files.Sources()
        return
    with open_runs(project) as runs:
        listed = [runs.current(run_id) for run_id in run_ids]
        report = result_report.report_of(runs.connection, listed)
        yield report, sources_of(runs.connection, project, report)


class ChangeReport(NamedTuple):
    """The report on a change, as files and as a forge shows it."""

    report: result_report.Report
    details: ChangeDetails = ChangeDetails()
    annotations: Sequence[report_annotations.Annotation] = ()
    written: Sequence[WrittenReport] = ()


def report_on_change(
    project: Project,
    run_ids: Sequence[str],
    files: ReportFiles,
    without_runs: result_report.Report,
) -> ChangeReport:
    """Write the report on the runs of a change in every format, and return it."""
    with _report_with_sources(project, run_ids) as (report, sources):
        details = details_of(project, report) if run_ids else ChangeDetails()
        report = replace(without_runs, runs=report.runs)
        written = files.write_report(report, sources)
    annotations = report_annotations.annotations_of(report, sources.changed)
    return ChangeReport(report, details, annotations, written)
