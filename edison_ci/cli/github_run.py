"""edison github run: a change evaluated by a job, from its event to its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli import spending
from edison_ci.cli.github_comment import Request, Shown, as_json, audit, origin_of, post
from edison_ci.cli.github_comment import tell as tell_comment
from edison_ci.cli.github_comment import tell_failure as tell_no_comment
from edison_ci.cli.github_job import (
    Outcome,
    Place,
    annotate,
    outcome_of,
    output_values,
    summarize_job,
    write_outputs,
)
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.run import Order, chosen_of, coverage_of, evaluated, most_important, show_ended
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.config.load import find_root, load_project
from edison_ci.errors import EdisonError, ExitCode, ForgeError, UsageError
from edison_ci.forge.address import address_from
from edison_ci.forge.changed import base_of
from edison_ci.forge.events import Event, Situation, read_event
from edison_ci.forge.github import WORKFLOW_BOT, Author
from edison_ci.forge.marker import State as Stage
from edison_ci.git.repository import Repository
from edison_ci.operate.exporting import stored_answers
from edison_ci.operate.own_results import set_aside
from edison_ci.operate.proposal_terms import is_proposed, on_terms_of_base
from edison_ci.operate.provenance import STORED, doubted_recordings
from edison_ci.operate.sessions import require_editor
from edison_ci.operate.site import Site
from edison_ci.plan.plan import plan_run
from edison_ci.providers.replay import ReplayProvider, recorded_in
from edison_ci.report.writing import Sources
from edison_ci.results.report import Planned, Report
from edison_ci.sanitize import in_actions
from edison_ci.store.database import open_reader
from edison_ci.store.foreign import open_foreign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.cli.coverage import Coverage
    from edison_ci.config.load import Experiment, Project
    from edison_ci.forge.events import Mode
    from edison_ci.plan.baseline import Doubt
    from edison_ci.providers.recording import Recorded


FOLDER = "recordings"
_WHOSE = {
    Situation.FORK: "a pull request from a fork",
    Situation.DEPENDABOT: "a change by Dependabot",
    Situation.AFTER_WORKFLOW: "a job after another workflow",
}
_BY_HAND = (
    "A maintainer who has read the change can evaluate it with a workflow that is started by hand."
)


def recorded(project: Project) -> tuple[ReplayProvider | None, tuple[Doubt, ...]]:
    """Return the answers that are there, of recordings and stored ones, and what they lack."""
    names = [name for name in project.tree.names(FOLDER) if name.endswith(".jsonl")]
    files = (recorded_in(f"{FOLDER}/{name}", project.tree) for name in names)
    foreign = [*_unsigned(project)]
    found = ReplayProvider(itertools.chain(foreign, _stored(project), *files))
    if not len(found):
        return None, ()
    doubts = doubted_recordings(project.root, [project.root / FOLDER / name for name in names])
    return found, (*doubts, *([STORED] if foreign else []))


def _stored(project: Project) -> Iterator[Recorded]:
    results = project.root / project.file.results
    if results.exists():
        with closing(open_reader(results)) as connection:
            yield from stored_answers(connection)


def _unsigned(project: Project) -> Iterator[Recorded]:
    """Yield the answers of results that were set aside, as far as they can be read."""
    aside = set_aside(project.root / project.file.results)
    if not is_proposed(project.root) or not aside.exists():
        return
    try:
        connection = open_foreign(aside, hint="run without it")
    except EdisonError:
        return  # of no use, and nobody's fault here
    with closing(connection):
        yield from stored_answers(connection)


def undecided(event: Event, recording: ReplayProvider | None) -> str:
    """Return why a replay cannot decide anything; nothing where it can."""
    if event.trusted:
        return ""
    whose = _WHOSE.get(event.situation, f"an event {event.name!r}")
    found = "There are no recorded answers either, so nothing was evaluated."
    if recording is not None:
        answers = counted(len(recording), "answer")
        found = f"What is said here comes from {answers} that were recorded before."
    return f"No model was asked, because this is {whose}, which gets no keys. {found} {_BY_HAND}"


def planned(project: Project, experiments: Iterable[Experiment]) -> Iterator[Planned]:
    """Yield what evaluating experiments would take."""
    for experiment in experiments:
        made = plan_run(project, experiment)
        cost = made.cost_microusd
        span = None if cost is None else (round(cost.low), round(cost.high))
        yield Planned(experiment.id, made.cases, made.cells, made.calls, span)


FailOn = Literal["fail", "inconclusive", "never"]
_DECIDED = {int(ExitCode.DONE), int(ExitCode.GATE_FAILED), int(ExitCode.UNCLEAR)}
_RUNNING_S, _FINAL_S, _CANCELLED_S = 30.0, 330.0, 4.0
"""How long a comment may take. GitHub kills a job 10 seconds after cancelling it."""
_UNASKED: dict[str, Any] = {
    **{"models": (), "cases": (), "tags": (), "limit": None, "draws": None, "shard": None},
    **{"record": None, "allow_code": False, "wait": False, "yes": True, "strict": False},
}
"""The options of `edison run` that a job does not have."""


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
    help="Whether models are asked; auto: where GitHub gives secrets.",
)
@spending.budget
@click.option(
    "--fail-on",
    type=click.Choice(["fail", "inconclusive", "never"]),
    default="fail",
    show_default=True,
    help="Which verdict fails the job; an error always does.",
)
@click.option("--comment/--no-comment", default=True, help="Comment on the pull request.")
@click.option("--key", default="edison", show_default=True, help="Tells apart several comments.")
@click.option(
    "--author",
    default=WORKFLOW_BOT,
    show_default=True,
    metavar="LOGIN",
    help="The account that the token belongs to.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where reports and results go; by default RUNNER_TEMP/edison.",
)
@click.pass_obj
def run_job(state: State, /, experiments: tuple[str, ...], **given: Any) -> None:
    """Evaluate what a change touches, and report on it.

    What the action does, in one command: it reads what started the job, compares base and head on
    the same cases, and leaves a job summary, annotations, one comment on the pull request, reports,
    a copy of the results, and the outputs verdict, composite, delta, cost-usd, cells, regressions,
    report, db and comment-url. Pull requests from forks and Dependabot get no keys: they are
    replayed from recordings/*.jsonl and from results that an earlier job left, and are
    inconclusive at best. Nothing affected is `skipped`, which passes.

    Every option has a variable, such as EDISON_GITHUB_RUN_FAIL_ON; the experiments are in
    EDISON_GITHUB_RUN_EXPERIMENTS, separated by blanks or lines.

    Examples:
      edison github run
      edison github run support-reply --budget 2 --fail-on inconclusive
      edison github run --mode replay --no-comment
    """
    job = _Job(state, Terminal(state), Place.of(given["out"]), experiments, given)
    try:
        with _hushed(job.terminal):
            outcome = job.outcome()
    except KeyboardInterrupt:
        job.end(Outcome(None, int(ExitCode.PAUSED), Stage.CANCELLED))
        raise
    except EdisonError as error:
        said = f"{error.where}: {error.message}" if error.where else error.message
        job.end(job.failed(said, error.exit_code))
        raise
    except Exception as error:
        said = f"a bug in edison ({type(error).__name__}), see the log"
        job.end(job.failed(said, ExitCode.BUG))
        raise
    job.end(outcome)
    if code := job.exit_code(outcome):
        raise click.exceptions.Exit(code)


def exit_code(outcome: Outcome, fail_on: FailOn) -> int:
    """Return how the job ends: a verdict fails it as asked for, whatever is no verdict always."""
    code, report = outcome.code, outcome.report
    if code not in _DECIDED:
        return code
    if code == ExitCode.UNCLEAR and report is not None and report.undecided:
        code = 0  # nothing better could have come out, which is nobody's fault
    if fail_on == "never":
        code = 0
    elif fail_on == "inconclusive" and outcome.verdict == "inconclusive":
        code = code or int(ExitCode.UNCLEAR)
    return code


@dataclass(slots=True)
class _Job:
    state: State
    terminal: Terminal
    place: Place
    names: tuple[str, ...]
    given: dict[str, Any]
    event: Event | None = None
    project: Project | None = None
    comment: Shown | None = None
    silent: str = ""
    """Why there is no comment."""
    complete: bool = True
    """Whether summary and outputs could be written."""
    told: dict[str, Any] = field(default_factory=dict)

    # --- evaluating -------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """Evaluate what the change touches."""
        event = self.event = read_event(os.environ)
        mode = mode_of(event, self.given["mode"])
        project = self.project = load_project(self.state.entered(find_root(self.state.folder)))
        base = self._base(event, project)
        self.told = {"situation": str(event.situation), "mode": mode, "base": base}
        self.terminal.note(f"{event.situation}: {mode}, compared with {(base or 'nothing')[:8]}")
        given = {"against": base, "changed_since": None}
        coverage = coverage_of(self.state, self.terminal, project, self.names, given)
        chosen = chosen_of(self.state, self.terminal, project, self.names, base)
        if not chosen:
            found = outcome_of(self.terminal, project, (), self.place, dropped=coverage.dropped)
            return replace(found, code=int(coverage.exit_code))
        on_terms_of_base(project)  # refuses results that came along, before any are read or written
        self.say(Stage.RUNNING, Report(), _RUNNING_S)
        self.place.take_up(self.terminal, project)
        return self._evaluated(event, mode, base, chosen, coverage)

    def _base(self, event: Event, project: Project) -> str | None:
        repository = Repository.find(project.root)
        if repository is None:
            raise UsageError(
                "this project is not in a Git repository", hint="check it out with actions/checkout"
            )
        return base_of(event, repository).commit

    def _evaluated(
        self,
        event: Event,
        mode: Mode,
        base: str | None,
        chosen: list[Experiment],
        coverage: Coverage,
    ) -> Outcome:
        project, terminal = self._known, self.terminal
        recording, doubts = recorded(project) if mode == "replay" else (None, ())
        why = undecided(event, recording) if mode == "replay" else ""
        about: dict[str, Any] = {"undecided": why, "dropped": coverage.dropped}
        if mode == "replay" and recording is None:
            if not why:
                raise UsageError(
                    "there is nothing to replay", hint="commit recordings/NAME.jsonl: run --record"
                )
            plans = tuple(planned(project, chosen))
            return outcome_of(terminal, project, (), self.place, **about, planned=plans)
        if mode == "live":
            require_editor(
                project, "run"
            )  # a replay spends nothing, and a fork's author has no role
        afresh = event.situation is Situation.SCHEDULE
        given = {**_UNASKED, "no_cache": afresh, "against": base, "budget": self.given["budget"]}
        ended = evaluated(self.state, terminal, project, Order(chosen, given, recording, doubts))
        if not terminal.json:
            show_ended(terminal, project, ended)
        ids = [end.run_id for end in ended]
        found = outcome_of(terminal, project, ids, self.place, **about)
        code = most_important([int(coverage.exit_code), *(int(end.exit_code) for end in ended)])
        stage = Stage.CANCELLED if code == ExitCode.PAUSED else Stage.FINAL
        return Outcome(found.report, code, stage, found.annotations, found.complete)

    @property
    def _known(self) -> Project:
        assert self.project is not None
        return self.project

    def failed(self, said: str, code: int) -> Outcome:
        """Return the outcome of a job that could not evaluate anything."""
        report = Report(failure=said)
        complete = self.place.asked.write_report(self.terminal, report, Sources())
        return Outcome(report, code, complete=complete)

    # --- telling ----------------------------------------------------------------------------------

    def end(self, outcome: Outcome) -> None:
        """Leave everything behind that tells how the job ended."""
        if outcome.stage is Stage.CANCELLED:
            with _deaf():
                self._leave(outcome, _CANCELLED_S)
            return
        try:
            self._leave(outcome, _FINAL_S)
        except KeyboardInterrupt:  # cancelled, but what was decided is decided
            with _deaf():
                self.say(outcome.stage, outcome.report, _CANCELLED_S)
            raise

    def _leave(self, outcome: Outcome, seconds: float) -> None:
        report = outcome.report
        # There is little time after a cancellation, and the summary is seen by fewer.
        first = outcome.stage is Stage.CANCELLED
        if first:
            self.say(outcome.stage, report, seconds)
        with self._tried():
            summarize_job(outcome)
        if not self.terminal.json:
            annotate(self.terminal, outcome, self.project)
        if not first:
            self.say(outcome.stage, report, seconds)
        values = output_values(report)
        values["report"] = str(self.place.report)
        values["db"] = self.place.hand_on(self.terminal, self.project)
        posted = self.comment.posted if self.comment is not None else None
        values["comment-url"] = posted.comment.url if posted is not None else ""
        with self._tried():
            write_outputs(values)
        if self.terminal.json and not (report is not None and report.failure):
            self._document(outcome, values)

    @contextlib.contextmanager
    def _tried(self) -> Iterator[None]:
        """Tell what cannot be written, and go on: what is missing never hides a verdict."""
        try:
            yield
        except UsageError as error:
            self.terminal.complaint(error)
            self.complete = False

    def exit_code(self, outcome: Outcome) -> int:
        """Return how the process ends; a report that is missing fails what would have passed."""
        complete = self.complete and outcome.complete
        return exit_code(outcome, self.given["fail_on"]) or (0 if complete else ExitCode.INVALID)

    def _document(self, outcome: Outcome, values: dict[str, str]) -> None:
        comment = self.comment
        told = {
            "verdict": outcome.verdict,
            "exit_code": int(self.exit_code(outcome)),
            **self.told,
            "outputs": values,
            "comment": as_json(comment or Shown(None, None), self.silent or None),
            "annotations": [one.as_json() for one in outcome.annotations],
        }
        self.terminal.document(told)

    def say(self, stage: Stage, report: Report | None, seconds: float) -> None:
        """Show a report on the pull request, if there is one; whatever happens is only told."""
        event = self.event
        if event is None or event.number is None or not self.given["comment"]:
            return
        if event.situation is Situation.FORK or self.state.offline:
            self.silent = "--offline" if self.state.offline else "the token of a fork may only read"
            return
        empty = stage is Stage.FINAL and report is not None and report.verdict == "skipped"
        request = Request(None, report, stage, None, self.given["key"], quiet=empty)
        self._post(event, request, seconds)

    def _post(self, event: Event, request: Request, seconds: float) -> None:
        terminal = self.terminal
        try:
            address = address_from(os.environ, remote=origin_of(self.state.folder))
            author = Author(self.given["author"])
            posting = post(address, author, request, event)
            self.comment = asyncio.run(asyncio.wait_for(posting, seconds))
        except ForgeError as error:
            self.silent = error.message
            tell_no_comment(terminal, error, event)
        except (UsageError, TimeoutError) as error:
            self.silent = str(error) or f"GitHub took more than {seconds:g} seconds"
            terminal.note(Ink("warning:", ODD), f" there is no comment: {self.silent}")
        else:
            tell_comment(terminal, self.comment, event)
            if self.project is not None:
                audit(Site(self.project.root, self.project.file), self.comment)


def mode_of(event: Event, wanted: str) -> Mode:
    """Return whether models are asked; refuses to where it could only fail or do harm."""
    if wanted == "live" and event.situation in {Situation.FORK, Situation.AFTER_WORKFLOW}:
        raise UsageError(
            f"no model may be asked here, this is {event.situation!s}: {event.why}",
            hint="use `mode: auto`",
        )
    if wanted == "live":
        return "live"
    return "replay" if wanted == "replay" else event.mode


@contextlib.contextmanager
def _hushed(terminal: Terminal) -> Iterator[None]:
    """Make the runner obey nothing that a file or a model says meanwhile."""
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
def _deaf() -> Iterator[None]:
    """Let no further signal keep us from telling how it ended."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
