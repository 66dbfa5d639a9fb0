"""edison github run: a GitHub Actions job that evaluates a change, with its files."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
import signal
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access import own_results, proposal_terms, provenance
from edison_ci.access import site as sites
from edison_ci.access.events import Event, Situation, find_base, read_event
from edison_ci.api import bundles
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, reporting, run, sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import ODD, StyledText, Terminal, folder_in_checkout
from edison_ci.documents import secrets as document_secrets
from edison_ci.errors import EdisonError, ExitCode, ForgeError, StoreError, UsageError
from edison_ci.execute import run_end
from edison_ci.features.github import comment_command as github_comment
from edison_ci.features.github import missing_keys as github_keys
from edison_ci.features.github.forge import WORKFLOW_BOT, Author
from edison_ci.features.github.sticky_comment import ReportState as Stage
from edison_ci.git import host
from edison_ci.git import repository as git
from edison_ci.numeric import counted, fixed
from edison_ci.plan import plan as planning
from edison_ci.providers import replay
from edison_ci.records import Verdict
from edison_ci.report import annotations as report_annotations
from edison_ci.report import files as report_files
from edison_ci.report import markdown_report
from edison_ci.report.change_details import ChangeDetails
from edison_ci.results import report as result_report
from edison_ci.sanitize import in_actions
from edison_ci.store import backup, database, import_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.access.events import Mode
    from edison_ci.cli.coverage import Coverage
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.providers.replay import RecordedAnswer
    from edison_ci.records import BaselineDoubt


_FILES = {
    **{"html": "report.html", "junit": "junit.xml", "md": "report.md"},
    **{"sarif": "edison.sarif", "json": "report.json"},
}
CANCELLED = "## ⛔ edison: cancelled\n\nNothing was decided.\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job, with its report."""

    report: result_report.Report | None
    """None if the job was cancelled before there was anything to report on."""
    code: int = 0
    stage: Stage = Stage.FINAL
    annotations: Sequence[report_annotations.Annotation] = ()
    complete: bool = True
    """Whether every report could be written."""
    waiting: bool = False
    """Whether answers are on their way in a batch, so that nothing is decided."""
    details: ChangeDetails = ChangeDetails()
    """Diffs and cases that the pull request shows."""

    @property
    def verdict(self) -> str | None:
        """The verdict; None if there is none."""
        return self.report.verdict if self.report is not None else None


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of a job, outside the checkout, where a change cannot have put any."""

    folder: Path

    @classmethod
    def of(cls, given: Path | None) -> JobFiles:
        """Return the given folder, or the one that the runner empties after each job."""
        kept = os.environ.get("RUNNER_TEMP")
        if given is None and not kept:
            raise UsageError(
                "no folder for the reports: RUNNER_TEMP is not set", hint="set --out DIR"
            )
        folder = given or Path(kept or "") / "edison"
        try:
            (folder / "report").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be created: {error.strerror}",
                hint="set another folder: --out DIR",
            ) from None
        return cls(folder.absolute())

    @property
    def report(self) -> Path:
        """The folder of the reports."""
        return self.folder / "report"

    @property
    def results(self) -> Path:
        """The copy of the results file, from this job or an earlier one."""
        return self.folder / "results.db"

    @property
    def reports(self) -> reporting.RequestedReports:
        """The reports that every job writes."""
        return reporting.RequestedReports(
            {kind: self.report / name for kind, name in _FILES.items()}
        )

    # --- results of an earlier job ----------------------------------------------------------------

    def restore(self, terminal: Terminal, project: Project) -> None:
        """Start from the results of an earlier job, if the workflow has restored them.

        In a job for a pull request, and wherever public keys are listed, they must be signed.
        Unsigned results of a pull request are set aside: a replay may read them, but what it finds
        is inconclusive at best.
        """
        own = project.root / project.file.results
        if own.exists() or not self.results.exists():
            return
        proposed = proposal_terms.is_proposed(project.root)
        keys = project.trust.results.public_keys
        try:
            own.parent.mkdir(parents=True, exist_ok=True)
            if proposed and not own_results.is_trusted(project.root, self.results):
                terminal.note(
                    "the results of an earlier job are not signed: they do not count as evidence"
                )
                shutil.copyfile(self.results, own_results.unsigned_path(own))
                return
            if not proposed and keys and not own_results.is_signed(self.results, keys):
                terminal.note("the results of an earlier job are not signed: not used")
                return
            backup.copy_whole(self.results, own)
            if proposed:
                own_results.claim_file(own)
        except (EdisonError, OSError) as error:
            # They only save money; what is measured does not depend on them.
            terminal.note(f"the results of an earlier job cannot be used: {error}")
        else:
            terminal.note("starting from the results of an earlier job")

    def keep_results(self, terminal: Terminal, project: Project | None) -> str:
        """Copy the results for later jobs; return the path, or '' if there is no copy."""
        if project is None or not (project.root / project.file.results).exists():
            return ""
        if project.file.settings.private:
            terminal.note("the project is private: its results are not copied for later jobs")
            return ""
        try:
            own_results.signature_path(self.results).unlink(
                missing_ok=True
            )  # it belongs to the earlier results
            backup.copy_whole(project.root / project.file.results, self.results)
        except StoreError as error:
            terminal.complaint(error)
            return ""
        return str(self.results)


def outcome_of(
    terminal: Terminal, project: Project, run_ids: Sequence[str], place: JobFiles, **about: Any
) -> Outcome:
    """Write the report on runs in every format; `about` holds its further fields."""
    details = ChangeDetails()
    with lookup.results_of(project) if run_ids else contextlib.nullcontext() as connection:
        report, sources = result_report.Report(), report_files.Sources()
        if connection is not None:
            runs = [reporting.run_as_seen(connection, project, run_id) for run_id in run_ids]
            report = result_report.report_of(connection, runs)
            sources = reporting.sources_of(connection, project, report)
            details = reporting.details_of(project, report)
        report = result_report.Report(report.runs, **about)
        complete = place.reports.write_report(terminal, report, sources)
    found = report_annotations.annotations_of(report, reporting.changed_in(project, report))
    return Outcome(report, annotations=found, complete=complete, details=details)


def summarize_job(outcome: Outcome) -> None:
    """Append the report to the job summary."""
    if target := os.environ.get("GITHUB_STEP_SUMMARY"):
        used = Path(target).stat().st_size if Path(target).exists() else 0
        append(Path(target), _summary(outcome, used))


def _summary(outcome: Outcome, used: int) -> str:
    if outcome.report is None:
        return CANCELLED
    return markdown_report.job_summary(outcome.report, used=used, details=outcome.details)


def annotate(terminal: Terminal, outcome: Outcome, project: Project | None) -> None:
    """Print the annotations as workflow commands."""
    folder = folder_in_checkout(project.root) if project is not None else ""
    terminal.commands(report_annotations.annotation_commands(outcome.annotations, folder))


def write_outputs(values: Mapping[str, str]) -> None:
    """Write the outputs of the step."""
    if place := os.environ.get("GITHUB_OUTPUT"):
        append(Path(place), report_annotations.outputs(values, secrets.token_hex(16)))


def output_values(report: result_report.Report | None) -> dict[str, str]:
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


def append(path: Path, text: str) -> None:
    """Append to a file of the runner, in one write."""
    try:
        with path.open("ab") as stream:
            stream.write(document_secrets.hidden(text).encode("utf-8", errors="backslashreplace"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="GITHUB_STEP_SUMMARY and GITHUB_OUTPUT must name files of the runner",
        ) from None


FOLDER = "recordings"
_WHOSE = {
    Situation.FORK: "a pull request from a fork",
    Situation.DEPENDABOT: "a change by Dependabot",
    Situation.AFTER_WORKFLOW: "a job after another workflow",
}
_BY_HAND = "A maintainer who has read the change can evaluate it with a manually started workflow."


def recorded_answers(
    project: Project,
) -> tuple[replay.ReplayProvider | None, tuple[BaselineDoubt, ...]]:
    """Return all recorded and stored answers, and the reasons to doubt them."""
    names = [name for name in project.tree.names(FOLDER) if name.endswith(".jsonl")]
    files = (replay.read_project_recording(f"{FOLDER}/{name}", project.tree) for name in names)
    foreign = [*_unsigned(project)]
    found = replay.ReplayProvider(itertools.chain(foreign, _stored(project), *files))
    if not len(found):
        return None, ()
    doubts = provenance.recording_doubts(
        project.root, [project.root / FOLDER / name for name in names]
    )
    return found, (*doubts, *([provenance.STORED] if foreign else []))


def _stored(project: Project) -> Iterator[RecordedAnswer]:
    results = project.root / project.file.results
    if results.exists():
        with closing(database.open_reader(results)) as connection:
            yield from bundles.stored_answers(connection)


def _unsigned(project: Project) -> Iterator[RecordedAnswer]:
    """Yield the answers of results that were set aside, if they can be read."""
    aside = own_results.unsigned_path(project.root / project.file.results)
    if not proposal_terms.is_proposed(project.root) or not aside.exists():
        return
    try:
        connection = import_check.open_foreign(aside, hint="run without it")
    except EdisonError:
        return  # an earlier job left them; this one can do without
    with closing(connection):
        yield from bundles.stored_answers(connection)


def undecided_reason(event: Event, recording: replay.ReplayProvider | None) -> str:
    """Return why a replay cannot reach a verdict; '' if it can."""
    if event.trusted:
        return ""
    whose = _WHOSE.get(event.situation, f"an event {event.name!r}")
    found = "There are no recorded answers either, so nothing was evaluated."
    if recording is not None:
        answers = counted(len(recording), "answer")
        found = f"The results come from {answers} recorded before."
    return f"No model was called: this is {whose}, which gets no keys. {found} {_BY_HAND}"


def plan_summaries(
    project: Project, experiments: Iterable[Experiment]
) -> Iterator[result_report.PlannedRun]:
    """Yield the size and cost of evaluating each experiment."""
    for experiment in experiments:
        made = planning.plan_run(project, experiment)
        cost = made.cost_microusd
        span = None if cost is None else (round(cost.low), round(cost.high))
        yield result_report.PlannedRun(experiment.id, made.cases, made.cells, made.calls, span)


FailOn = Literal["fail", "inconclusive", "never"]
_DECIDED = {int(ExitCode.DONE), int(ExitCode.GATE_FAILED), int(ExitCode.UNCLEAR)}
_RUNNING_S, _FINAL_S, _CANCELLED_S = 30.0, 330.0, 4.0
"""How long a comment may take. GitHub kills a job 10 seconds after cancelling it."""
_OTHER_OPTIONS: dict[str, Any] = {
    **{"models": (), "cases": (), "tags": (), "limit": None, "repeats": None, "shard": None},
    **{"record": None, "allow_code": False, "yes": True, "strict": False},
}
"""Values of the options of `edison run` that a job does not have."""


@click.command("run", cls=EdisonCommand)
@click.argument(
    "experiments",
    nargs=-1,
    envvar="EDISON_GITHUB_RUN_EXPERIMENTS",
    metavar="[EXPERIMENT]...",
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "live", "replay"]),
    default="auto",
    show_default=True,
    help="Whether models are called; auto: if GitHub provides secrets.",
)
@sessions.budget
@click.option(
    "--fail-on",
    type=click.Choice(["fail", "inconclusive", "never"]),
    default="fail",
    show_default=True,
    help="Verdict that fails the job; an error always does.",
)
@click.option("--batch", is_flag=True, help="Submit answers in batches; the job then fails with 5.")
@click.option("--wait", is_flag=True, help="Wait until batches of earlier jobs have ended.")
@click.option("--if-plan", metavar="HASH", hidden=True, help="Run only if this is the plan.")
@click.option("--comment/--no-comment", default=True, help="Comment on the pull request.")
@click.option(
    "--key",
    default="edison",
    show_default=True,
    help="Name of the comment, if a pull request has several.",
)
@click.option(
    "--author",
    default=WORKFLOW_BOT,
    show_default=True,
    metavar="LOGIN",
    help="Account that the token belongs to.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for reports and results; default RUNNER_TEMP/edison.",
)
@click.pass_obj
def run_job(state: CliState, /, experiments: tuple[str, ...], **given: Any) -> None:
    """Evaluate the experiments that a change affects, and report on them.

    This is what the action runs. It reads the event that started the job, compares base and head on
    the same cases, and writes a job summary, annotations, one comment on the pull request, reports,
    a copy of the results, and the outputs verdict, composite, delta, cost-usd, cells, regressions,
    report, db and comment-url. Pull requests from forks and Dependabot get no keys: they are
    replayed from recordings/*.jsonl and from results of earlier jobs, and are inconclusive at best.
    If no experiment is affected, the verdict is `skipped`, which passes.

    Batches that an earlier job submitted with --batch are collected, if the job starts from its
    results. While answers are on their way in a batch, the verdict is inconclusive and the exit
    code 5, whatever --fail-on says: the job that collects them decides.

    Every option has an environment variable, such as EDISON_GITHUB_RUN_FAIL_ON; the experiments are
    in EDISON_GITHUB_RUN_EXPERIMENTS, separated by blanks or line breaks.

    Examples:
      edison github run
      edison github run support-reply --budget 2 --fail-on inconclusive
      edison github run --mode replay --no-comment
    """
    job = _Job(state, Terminal(state), JobFiles.of(given["out"]), experiments, given)
    try:
        with _commands_stopped(job.terminal):
            outcome = job.outcome()
    except KeyboardInterrupt:
        job.end(Outcome(None, int(ExitCode.PAUSED), Stage.CANCELLED))
        raise
    except EdisonError as error:
        job.end(job.failed(reporting.failure_text(error), error.exit_code))
        raise
    except Exception as error:
        said = f"a bug in edison ({type(error).__name__}), see the log"
        job.end(job.failed(said, ExitCode.BUG))
        raise
    job.end(outcome)
    if code := job.exit_code(outcome):
        raise click.exceptions.Exit(code)


def waits(ended: RunOutcome) -> bool:
    """Whether answers of a run are on their way in a batch."""
    return ended.progress.stopped_by == run_end.BATCH


def exit_code(outcome: Outcome, fail_on: FailOn) -> int:
    """Return the exit code of the job; `fail_on` applies to verdicts, not to other failures."""
    code, report = outcome.code, outcome.report
    if code not in _DECIDED or outcome.waiting:
        return code
    if code == ExitCode.UNCLEAR and report is not None and report.undecided:
        code = 0  # a replay without keys cannot do better
    if fail_on == "never":
        code = 0
    elif fail_on == "inconclusive" and outcome.verdict == Verdict.INCONCLUSIVE:
        code = code or int(ExitCode.UNCLEAR)
    return code


@dataclass(slots=True)
class _Job:
    state: CliState
    terminal: Terminal
    place: JobFiles
    names: tuple[str, ...]
    given: dict[str, Any]
    event: Event | None = None
    project: Project | None = None
    comment: github_comment.CommentResult | None = None
    silent: str = ""
    """Why there is no comment."""
    push: int | None = 1
    """Which push of its pull request is evaluated; None if that is unknown."""
    complete: bool = True
    """Whether summary and outputs could be written."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Event, mode and base of the job, for the JSON document."""

    # --- evaluating -------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """Evaluate what the change affects."""
        event = self.event = read_event(os.environ)
        mode = mode_of(event, self.given["mode"])
        project = self.project = lookup.open_project(self.state)
        base = self._base(event, project)
        self.facts = {"situation": str(event.situation), "mode": mode, "base": base}
        self.terminal.note(f"{event.situation}: {mode}, compared with {(base or 'nothing')[:8]}")
        given = {"against": base, "changed_since": None}
        coverage = run.coverage_of(self.state, self.terminal, project, self.names, given)
        coverage = replace(
            coverage, dropped=(*coverage.dropped, *(doubt.sentence for doubt in project.doubts))
        )
        if project.overruled:
            places = ", ".join(project.overruled)
            self.terminal.note(f"as on the base until it is merged: {places}")
        chosen = run.affected_experiments(self.state, self.terminal, project, self.names, base)
        if not chosen:
            found = outcome_of(self.terminal, project, (), self.place, dropped=coverage.dropped)
            return replace(found, code=int(coverage.exit_code))
        self.push = self._push_number(event)
        self.comment_on(Outcome(result_report.Report(), stage=Stage.RUNNING), _RUNNING_S)
        self.place.restore(self.terminal, project)
        return self._evaluate(event, mode, base, chosen, coverage)

    def _push_number(self, event: Event) -> int | None:
        """Return which push of the pull request this is; None if that cannot be known.

        The comment lists the commits that it has reported on, so without comments none are counted.
        """
        if event.number is None:
            return 1
        listed = self.given["comment"] and not self.state.offline
        if event.head_sha is None or event.situation is Situation.FORK or not listed:
            return None
        try:
            address = host.repository_address(
                os.environ, remote=github_comment.origin_of(self.state.folder)
            )
            asking = github_comment.pushes(
                address, Author(self.given["author"]), self.given["key"], event
            )
            return asyncio.run(asyncio.wait_for(asking, _RUNNING_S))
        except (ForgeError, UsageError, TimeoutError):
            return None

    def _base(self, event: Event, project: Project) -> str | None:
        repository = git.Repository.find(project.root)
        if repository is None:
            raise UsageError(
                "this project is not in a Git repository", hint="check it out with actions/checkout"
            )
        return find_base(event, repository).commit

    def _evaluate(
        self,
        event: Event,
        mode: Mode,
        base: str | None,
        chosen: list[Experiment],
        coverage: Coverage,
    ) -> Outcome:
        project, terminal = self._known, self.terminal
        recording, doubts = recorded_answers(project) if mode == "replay" else (None, ())
        why = undecided_reason(event, recording) if mode == "replay" else ""
        about: dict[str, Any] = {"undecided": why, "dropped": coverage.dropped}
        if mode == "replay" and recording is None:
            if not why:
                raise UsageError(
                    "there are no recorded answers to replay",
                    hint="record some: edison run --record recordings/NAME.jsonl",
                )
            plans = tuple(plan_summaries(project, chosen))
            return outcome_of(terminal, project, (), self.place, **about, plans=plans)
        if self.given["batch"] and project.file.settings.private:
            raise UsageError(
                "a private project keeps no results, so no later job could collect a batch",
                hint="leave out --batch",
            )
        if mode == "live":
            # A replay spends nothing, and the author of a fork has no role.
            run_sessions.require_editor(project, "run")
            github_keys.require_keys(project, chosen)
        fresh = event.situation is Situation.SCHEDULE
        given = {
            **_OTHER_OPTIONS,
            "no_cache": fresh,
            "against": base,
            "budget": self.given["budget"],
            "batch": self.given["batch"] and mode == "live",
            "wait": self.given["wait"],
            "if_plan": self.given["if_plan"],
        }
        ended = run.evaluate_order(
            self.state, terminal, project, run.RunOrder(chosen, given, recording, doubts, self.push)
        )
        if not terminal.json:
            run.show_ended(terminal, project, ended)
        ids = [end.run_id for end in ended]
        if event.on_default:
            # The runs of a proposal are no part of the history that alerts are about.
            feature.call("runs_ended", terminal, project, ids)
        feature.call("command_ended", terminal, sites.Site(project.root, project.file))
        found = outcome_of(terminal, project, ids, self.place, **about)
        codes = [int(ExitCode.UNCLEAR if waits(end) else end.exit_code) for end in ended]
        code = run.most_important([int(coverage.exit_code), *codes])
        stage = Stage.CANCELLED if code == ExitCode.PAUSED else Stage.FINAL
        waiting = any(waits(end) for end in ended)
        return replace(found, code=code, stage=stage, waiting=waiting)

    @property
    def _known(self) -> Project:
        assert self.project is not None
        return self.project

    def failed(self, said: str, code: int) -> Outcome:
        """Return the outcome of a job that failed before it could evaluate anything."""
        report = result_report.Report(failure=said)
        complete = self.place.reports.write_report(self.terminal, report, report_files.Sources())
        return Outcome(report, code, complete=complete)

    # --- reporting --------------------------------------------------------------------------------

    def end(self, outcome: Outcome) -> None:
        """Write summary, annotations, comment and outputs of the job."""
        if outcome.stage is Stage.CANCELLED:
            with _signals_ignored():
                self._publish(outcome, _CANCELLED_S)
            return
        try:
            self._publish(outcome, _FINAL_S)
        except KeyboardInterrupt:  # cancelled after the verdict, which stands
            with _signals_ignored():
                self.comment_on(outcome, _CANCELLED_S)
            raise

    def _publish(self, outcome: Outcome, seconds: float) -> None:
        report = outcome.report
        # Time is short after a cancellation, and more people read the comment than the summary.
        first = outcome.stage is Stage.CANCELLED
        if first:
            self.comment_on(outcome, seconds)
        with self._reporting_errors():
            summarize_job(outcome)
        if not self.terminal.json:
            annotate(self.terminal, outcome, self.project)
        if not first:
            self.comment_on(outcome, seconds)
        values = output_values(report)
        values["report"] = str(self.place.report)
        values["db"] = self.place.keep_results(self.terminal, self.project)
        posted = self.comment.posted if self.comment is not None else None
        values["comment-url"] = posted.comment.url if posted is not None else ""
        with self._reporting_errors():
            write_outputs(values)
        if self.terminal.json and not (report is not None and report.failure):
            self._document(outcome, values)

    @contextlib.contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Print an error of writing and go on: a missing file never hides a verdict."""
        try:
            yield
        except UsageError as error:
            self.terminal.complaint(error)
            self.complete = False

    def exit_code(self, outcome: Outcome) -> int:
        """Return the exit code; a missing report fails a job that would have passed."""
        complete = self.complete and outcome.complete
        return exit_code(outcome, self.given["fail_on"]) or (0 if complete else ExitCode.INVALID)

    def _document(self, outcome: Outcome, values: dict[str, str]) -> None:
        comment = self.comment
        document = {
            "verdict": outcome.verdict,
            "exit_code": int(self.exit_code(outcome)),
            **self.facts,
            "outputs": values,
            "comment": github_comment.as_json(
                comment or github_comment.CommentResult(None, None), self.silent or None
            ),
            "annotations": [one.as_json() for one in outcome.annotations],
        }
        self.terminal.document(document)

    def comment_on(self, outcome: Outcome, seconds: float) -> None:
        """Comment on the pull request, if there is one; a failure is only printed."""
        event, report, stage = self.event, outcome.report, outcome.stage
        if event is None or event.number is None or not self.given["comment"]:
            return
        if event.situation is Situation.FORK or self.state.offline:
            self.silent = "--offline" if self.state.offline else "the token of a fork is read-only"
            return
        empty = stage is Stage.FINAL and report is not None and report.verdict == Verdict.SKIPPED
        request = github_comment.Request(
            None, report, stage, None, self.given["key"], quiet=empty, details=outcome.details
        )
        if self.project is not None:
            site = sites.Site(self.project.root, self.project.file)
            request = request._replace(audit=github_comment.newest_audit(site))
        self._post(event, request, seconds)

    def _post(self, event: Event, request: github_comment.Request, seconds: float) -> None:
        terminal = self.terminal
        try:
            address = host.repository_address(
                os.environ, remote=github_comment.origin_of(self.state.folder)
            )
            author = Author(self.given["author"])
            posting = github_comment.post(address, author, request, event)
            self.comment = asyncio.run(asyncio.wait_for(posting, seconds))
        except ForgeError as error:
            self.silent = error.message
            github_comment.show_failure(terminal, error, event)
        except (UsageError, TimeoutError) as error:
            self.silent = str(error) or f"GitHub took more than {seconds:g} seconds"
            terminal.note(StyledText("warning:", ODD), f" no comment was posted: {self.silent}")
        else:
            github_comment.show_comment(terminal, self.comment, event)
            if self.project is not None:
                github_comment.audit(sites.Site(self.project.root, self.project.file), self.comment)


def mode_of(event: Event, wanted: str) -> Mode:
    """Return whether models are called; refuse `live` where it could only fail or do harm."""
    if wanted == "live" and event.situation in {Situation.FORK, Situation.AFTER_WORKFLOW}:
        raise UsageError(
            f"mode live is not allowed for this event ({event.situation!s}): {event.why}",
            hint="use mode auto",
        )
    if wanted == "live":
        return "live"
    return "replay" if wanted == "replay" else event.mode


@contextlib.contextmanager
def _commands_stopped(terminal: Terminal) -> Iterator[None]:
    """Keep the runner from acting on workflow commands in texts of files and models."""
    if terminal.json or not in_actions():
        yield
        return
    token = secrets.token_hex(16)
    terminal.commands([f"::stop-commands::{token}"])
    try:
        yield
    finally:
        terminal.commands([f"::{token}::"])


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore further signals while the outcome is published."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
