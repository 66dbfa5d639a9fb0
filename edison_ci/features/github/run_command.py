"""edison github run: a GitHub Actions job that evaluates a change, with its files."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.access.events import Event, Situation, read_event
from edison_ci.api import change, reports
from edison_ci.cli import lookup, run, sessions
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import ODD, StyledText, Terminal
from edison_ci.errors import EdisonError, ExitCode, ForgeError, StoreError, UsageError
from edison_ci.features.github import comment_command as github_comment
from edison_ci.features.github import missing_keys as github_keys
from edison_ci.features.github import step_files
from edison_ci.features.github.forge import WORKFLOW_BOT, Author
from edison_ci.features.github.sticky_comment import ReportState as Stage
from edison_ci.records import Verdict
from edison_ci.report import annotations as report_annotations
from edison_ci.report.change_details import ChangeDetails
from edison_ci.results import report as result_report
from edison_ci.sanitize import folder_in_checkout, in_actions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.api.change import ChangeResult, Comparison, FailOn
    from edison_ci.api.change_coverage import ChangeCoverage
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.targets import RunTarget
    from edison_ci.results.report import Report


_FILES = {
    "html": "report.html",
    "junit": "junit.xml",
    "md": "report.md",
    "sarif": "edison.sarif",
    "json": "report.json",
}
_RUNNING_S, _FINAL_S, _CANCELLED_S = 30.0, 330.0, 4.0
"""How long a comment may take. GitHub kills a job 10 seconds after cancelling it."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The options of a job."""

    experiments: tuple[str, ...]
    mode: str
    budget: float | None
    fail_on: FailOn
    batch: bool
    wait: bool
    if_plan: str | None
    comment: bool
    key: str
    author: str
    out: Path | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job, with its report."""

    report: Report | None
    """None if the job was cancelled before there was anything to report on."""
    code: int = 0
    stage: Stage = Stage.FINAL
    details: ChangeDetails = ChangeDetails()
    """Diffs and cases that the pull request shows."""
    annotations: Sequence[report_annotations.Annotation] = ()
    waiting: bool = False
    """Whether answers are on their way in a batch, so that nothing is decided."""

    @property
    def verdict(self) -> str | None:
        """The verdict; None if there is none."""
        return self.report.verdict if self.report is not None else None


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of a job, outside the checkout, where a change cannot have put any."""

    folder: Path

    @classmethod
    def of(cls, chosen: Path | None) -> JobFiles:
        """Return the chosen folder, or the one that the runner empties after each job."""
        emptied = os.environ.get("RUNNER_TEMP")
        if chosen is None and not emptied:
            raise UsageError(
                "no folder for the reports: RUNNER_TEMP is not set", hint="set --out DIR"
            )
        folder = chosen or Path(emptied or "") / "edison"
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
    def reports(self) -> reports.ReportFiles:
        """The reports that every job writes."""
        return reports.ReportFiles({kind: self.report / name for kind, name in _FILES.items()})


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
@takes(JobRequest)
def run_job(state: CliState, request: JobRequest) -> None:
    """Evaluate the experiments that a change affects, and report on them.

    This is what the action runs. It reads the event that started the job, compares base and head on
    the same cases, and writes a job summary, annotations, one comment on the pull request, reports,
    a copy of the results, and the outputs verdict, composite, delta, cost-usd, cells, regressions,
    report, db and comment-url. Pull requests from forks and Dependabot get no keys: they are
    replayed from recordings/*.jsonl and from results of earlier jobs, and are inconclusive at best.
    If no experiment is affected, the verdict is `skipped`, which passes.

    Batches that an earlier job submitted with --batch are collected, if the job starts from its
    results. While answers are on their way in a batch, the verdict is inconclusive and the exit
    code 5, regardless of --fail-on: the job that collects them decides.

    Every option has an environment variable, such as EDISON_GITHUB_RUN_FAIL_ON; the experiments are
    in EDISON_GITHUB_RUN_EXPERIMENTS, separated by blanks or line breaks.

    Examples:
      edison github run
      edison github run support-reply --budget 2 --fail-on inconclusive
      edison github run --mode replay --no-comment
    """
    job = _Job(state, Terminal(state), JobFiles.of(request.out), request)
    try:
        with _commands_stopped(job.terminal):
            outcome = job.outcome()
    except KeyboardInterrupt:
        job.end(Outcome(None, int(ExitCode.PAUSED), Stage.CANCELLED))
        raise
    except EdisonError as error:
        job.end(job.failed(reports.failure_text(error), error.exit_code))
        raise
    except Exception as error:
        failure = f"a bug in edison ({type(error).__name__}), see the log"
        job.end(job.failed(failure, ExitCode.BUG))
        raise
    job.end(outcome)
    if code := job.exit_code(outcome):
        raise click.exceptions.Exit(code)


@dataclass(slots=True)
class _Job:
    """A job: translates its event into a request, and the result into what GitHub shows."""

    state: CliState
    terminal: Terminal
    files: JobFiles
    request: JobRequest
    event: Event | None = None
    project: Project | None = None
    comment: github_comment.CommentResult | None = None
    silent: str = ""
    """Why there is no comment."""
    complete: bool = True
    """Whether all reports, the summary and the outputs could be written."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Event, mode and base of the job, for the JSON document."""

    def outcome(self) -> Outcome:
        """Evaluate what the change affects."""
        request, event = self.request, read_event(os.environ)
        self.event = event
        mode = change.mode_of(event, request.mode)
        project = self.project = lookup.open_project(self.state)
        confirmation = sessions.PlanConfirmation(
            self.terminal, replay=mode == "replay", plan_hash=request.if_plan
        )
        result = change.evaluate_change(
            project,
            change.ChangeRequest(
                event,
                mode,
                self.state.folder,
                request.experiments,
                sessions.microusd(request.budget),
                request.batch,
                request.wait,
                self.files.results,
                sessions.session_factory(self.state, confirmation),
            ),
            self,
        )
        if result.runs:
            self._runs_ended(project, event, result)
        made = reports.report_on_change(project, result.run_ids, self.files.reports, result.report)
        self.complete = run.show_written(self.terminal, made.written)
        stage = Stage.CANCELLED if result.exit_code == ExitCode.PAUSED else Stage.FINAL
        return Outcome(
            made.report, result.exit_code, stage, made.details, made.annotations, result.waiting
        )

    def compared(self, comparison: Comparison) -> None:
        """Note what is compared."""
        event, mode, base = comparison
        self.facts = {"situation": str(event.situation), "mode": mode, "base": base}
        self.terminal.note(f"{event.situation}: {mode}, compared with {(base or 'nothing')[:8]}")

    def measured(self, coverage: ChangeCoverage, experiments: Sequence[Experiment]) -> None:
        """Print what is not measured as the change has it."""
        run.show_coverage(self.terminal, coverage)
        if self.project is not None and self.project.overruled:
            places = ", ".join(self.project.overruled)
            self.terminal.note(f"as on the base until it is merged: {places}")
        if not experiments and self.facts["base"]:
            self.terminal.note("skipped: nothing affected")

    def starts(self) -> int | None:
        """Comment that the evaluation is running; return which push of the pull request it is."""
        push = self._push_number()
        self.comment_on(Outcome(result_report.Report(), stage=Stage.RUNNING), _RUNNING_S)
        gc.freeze()  # what is loaded by now stays until the end
        return push

    def require_keys(self, experiments: Sequence[Experiment]) -> None:
        """Raise UsageError with the secret and the step, if a key is missing."""
        assert self.project is not None
        github_keys.require_keys(self.project, experiments)

    def compares(self, targets: Sequence[RunTarget]) -> None:
        """Print what an experiment is compared with."""
        sessions.show_targets(self.terminal, targets)

    def note(self, sentence: str) -> None:
        """Print a sentence."""
        self.terminal.note(sentence)

    def _runs_ended(self, project: Project, event: Event, result: ChangeResult) -> None:
        if not self.terminal.json:
            run.show_ended(self.terminal, project, result.runs)
        if event.on_default:
            # The runs of a proposal are no part of the history that alerts are about.
            feature.call("runs_ended", self.terminal, project, result.run_ids)
        feature.call("command_ended", self.terminal, sites.Site(project.root, project.file))

    def _push_number(self) -> int | None:
        """Return which push of the pull request this is; None if that cannot be known.

        The comment lists the commits that it has reported on, so without comments none are counted.
        """
        event = self.event
        if event is None or event.number is None:
            return 1
        comments = self.request.comment and not self.state.offline
        if event.head_sha is None or event.situation is Situation.FORK or not comments:
            return None
        try:
            pushes = github_comment.pushes(
                github_comment.address_of(self.state.folder),
                Author(self.request.author),
                self.request.key,
                event,
            )
            return asyncio.run(asyncio.wait_for(pushes, _RUNNING_S))
        except (ForgeError, UsageError, TimeoutError):
            return None

    def failed(self, failure: str, code: int) -> Outcome:
        """Return the outcome of a job that failed before it could evaluate anything."""
        report = result_report.Report(failure=failure)
        written = self.files.reports.write_report(report)
        self.complete = run.show_written(self.terminal, written)
        return Outcome(report, code)

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
        # Time is short after a cancellation, and more people read the comment than the summary.
        first = outcome.stage is Stage.CANCELLED
        if first:
            self.comment_on(outcome, seconds)
        with self._reporting_errors():
            step_files.summarize(outcome.report, outcome.details)
        if not self.terminal.json:
            folder = folder_in_checkout(self.project.root if self.project is not None else None)
            commands = report_annotations.annotation_commands(outcome.annotations, folder)
            self.terminal.commands(commands)
        if not first:
            self.comment_on(outcome, seconds)
        report = outcome.report
        values = step_files.output_values(report)
        values["report"] = str(self.files.report)
        values["db"] = self._keep_results()
        posted = self.comment.posted if self.comment is not None else None
        values["comment-url"] = posted.comment.url if posted is not None else ""
        with self._reporting_errors():
            step_files.write_outputs(values)
        if self.terminal.json and not (report is not None and report.failure):
            self._document(outcome, values)

    def _keep_results(self) -> str:
        """Copy the results for later jobs; return the path, or '' if there is no copy."""
        if self.project is None:
            return ""
        try:
            copy = change.keep_results(self.project, self.files.results)
        except StoreError as error:
            self.terminal.complaint(error)
            return ""
        if copy.reason:
            self.terminal.note(copy.reason)
        return str(self.files.results) if copy.kept else ""

    @contextlib.contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Print an error of writing and continue: a missing file never hides a verdict."""
        try:
            yield
        except UsageError as error:
            self.terminal.complaint(error)
            self.complete = False

    def exit_code(self, outcome: Outcome) -> int:
        """Return the exit code; a missing report fails a job that would have passed."""
        code = change.exit_code_for(
            outcome.code,
            self.request.fail_on,
            outcome.verdict,
            undecided=outcome.report is not None and bool(outcome.report.undecided),
            waiting=outcome.waiting,
        )
        return code or (0 if self.complete else ExitCode.INVALID)

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
            "annotations": [annotation.as_json() for annotation in outcome.annotations],
        }
        self.terminal.document(document)

    def comment_on(self, outcome: Outcome, seconds: float) -> None:
        """Comment on the pull request, if there is one; a failure is only printed."""
        event, stage = self.event, outcome.stage
        if event is None or event.number is None or not self.request.comment:
            return
        if event.situation is Situation.FORK or self.state.offline:
            self.silent = "--offline" if self.state.offline else "the token of a fork is read-only"
            return
        empty = stage is Stage.FINAL and outcome.verdict == Verdict.SKIPPED
        request = github_comment.Request(
            None,
            outcome.report,
            stage,
            None,
            self.request.key,
            quiet=empty,
            details=outcome.details,
        )
        if self.project is not None:
            site = sites.Site(self.project.root, self.project.file)
            request = request._replace(audit=github_comment.newest_audit(site))
        self._post(event, request, seconds)

    def _post(self, event: Event, request: github_comment.Request, seconds: float) -> None:
        terminal = self.terminal
        try:
            author = Author(self.request.author)
            posting = github_comment.post(
                github_comment.address_of(self.state.folder), author, request, event
            )
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
