"""edison run and resume: commands that evaluate an experiment and store a run."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access import provenance
from edison_ci.access import site as sites
from edison_ci.api import decisions, evaluation
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import flips as cli_flips
from edison_ci.cli import lookup, sessions, summary
from edison_ci.cli import sessions as cli_sessions
from edison_ci.cli.coverage import Coverage, coverage_since
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.config import load
from edison_ci.errors import ConfigError, EdisonError, ExitCode, Location, Problem, UsageError
from edison_ci.execute import run_options
from edison_ci.numeric import counted
from edison_ci.plan import plan as planning
from edison_ci.plan.selection import Selection, Shard, parse_shard
from edison_ci.providers import replay as provider_replay
from edison_ci.results import run_result
from edison_ci.store import batches as store_batches
from edison_ci.store import database
from edison_ci.store.runs import SCHEDULE, FireTime, find_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.api.decisions import GateFlips
    from edison_ci.cli.reporting import RequestedReports
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.project import ProjectFile
    from edison_ci.providers.replay import ReplayProvider
    from edison_ci.records import BaselineDoubt

    Stamps = dict[Path, tuple[int, int]]


_POLL_S = 0.3


def _file_stamps(root: Path, file: ProjectFile) -> Stamps:
    """Return modification time and size of every file that a run may depend on."""
    paths = file.paths
    folders = (paths.experiments, paths.prompts, paths.rubrics, paths.datasets, "judges", "checks")
    files = [root / n for n in ("edison.yaml", paths.models, "quarantine.yaml")]
    files += [root / ".edison" / n for n in ("trust.yaml", "secrets.yaml")]
    for folder in folders:
        files += (root / folder).rglob("*")
    found: Stamps = {}
    for path in files:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _wait_for_change(root: Path, file: ProjectFile, seen: Stamps) -> None:
    """Return when a file has changed and then stayed the same for a moment."""
    while _file_stamps(root, file) == seen:
        time.sleep(_POLL_S)
    last = _file_stamps(root, file)
    while True:
        time.sleep(_POLL_S)
        now = _file_stamps(root, file)
        if now == last:
            return
        last = now


_FILE = click.Path(dir_okay=False, path_type=Path)
_DECIDED = (ExitCode.DONE, ExitCode.GATE_FAILED, ExitCode.UNCLEAR)
_PRECEDENCE = (70, 2, 130, 4, 3, 1, 5, 0)


class _ShardType(click.ParamType[Shard]):
    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> Shard:
        try:
            return value if isinstance(value, Shard) else parse_shard(value)
        except UsageError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


class _FireType(click.ParamType[FireTime]):
    name = "SCHEDULE@TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> FireTime:
        name, _, due_at = str(value).rpartition("@")
        return value if isinstance(value, FireTime) else FireTime(name, due_at)


@click.command(cls=EdisonCommand)
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option(
    "--against", metavar="REF", help="Compare with the prompts and models at this Git ref."
)
@click.option(
    "--changed-since",
    metavar="REF",
    help="Run only experiments affected by changes since this ref.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Run only this model, of the experiment or of models.yaml; repeatable.",
)
@click.option(
    "--case", "cases", multiple=True, metavar="ID", help="Run only this case; repeatable."
)
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="Run only cases with this tag; repeatable."
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Run a stable sample of N cases."
)
@click.option(
    "--repeats", type=click.IntRange(1, 100), metavar="N", help="Number of answers for each case."
)
@click.option("--shard", type=_ShardType(), metavar="I/N", help="Run one of N shards.")
@click.option(
    "--batch", is_flag=True, help="Buy answers in batches where that costs less; edison resume."
)
@click.option("--no-cache", is_flag=True, help="Request new answers even where some are stored.")
@click.option("--record", type=_FILE, metavar="FILE", help="Write the answers to a recording.")
@click.option("--replay", type=_FILE, metavar="FILE", help="Take all answers from a recording.")
@click.option(
    "--aa", is_flag=True, help="Measure how often the gates flip when nothing has changed."
)
@sessions.budget
@click.option("--junit", type=_FILE, metavar="FILE", help="Write a JUnit report.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write a Markdown report.")
@click.option("--sarif", type=_FILE, metavar="FILE", help="Write a SARIF report.")
@sessions.yes
@click.option(
    "--strict", is_flag=True, help="Fail if a case lacks a variable, instead of skipping it."
)
@sessions.allow_code
@sessions.on_workers
@click.option("--wait", is_flag=True, help="Wait until another run of the experiment has ended.")
@click.option("--watch", is_flag=True, help="Run again whenever a file changes.")
@click.option("--fire", type=_FireType(), hidden=True, help="Given by the scheduler.")
@click.option("--run-id", metavar="ID", hidden=True, help="Id of the run, chosen by its starter.")
@click.option("--if-plan", metavar="HASH", hidden=True, help="Run only if this is the plan.")
@click.option(
    "--started-by", type=click.Choice(["page", "api"]), hidden=True, help="What started the run."
)
@click.pass_obj
def run(state: CliState, /, experiments: tuple[str, ...], **given: Any) -> None:
    """Evaluate experiments and store every answer.

    Without EXPERIMENT all experiments run. Stored answers are reused, so only changes cost money.
    Stop a run with Ctrl-C and continue it with `edison resume`; no answer is paid for twice. On a
    terminal, a run that may cost more than $1 asks for confirmation. --junit, --markdown and
    --sarif write reports even if the run fails. If a report cannot be written, an error follows
    the result, and the exit code is 2 where it would have been 0.

    --model may name any model of models.yaml. One that the experiment does not list is shown like
    the others, and gates do not count it.

    --aa asks for twice the answers of each case, splits them at random into a base and a head,
    again and again, and shows how often each gate passes and fails. Both are the version at
    --against, so that every fail of a comparison is a false alarm.

    --batch submits the requests for answers in batches, which take up to 24 hours and cost about
    half. The run is then PAUSED and its verdict inconclusive; `edison resume` collects the answers,
    grades them and decides. Models without a price for batches are called as usual.

    --on makes the calls at workers, each with the concurrency of models.yaml and keys of its own;
    budgets, rate limits, results and grades stay here. local:4 starts four on this machine.

    Examples:
      edison run
      edison run support-reply --budget 2
      edison run --limit 10 --model small
      edison run support-reply --batch
      edison run --on local:4
      edison run --against main
      edison run --against HEAD --aa
      edison run --changed-since origin/main --json
      edison run --against main --junit junit.xml --markdown report.md
      edison run support-reply --record answers.jsonl
      edison run support-reply --replay answers.jsonl
    """
    terminal = Terminal(state)
    if not given["watch"]:
        _evaluate(state, terminal, experiments, given)
        return
    project = lookup.open_project(state)
    while True:
        seen = _file_stamps(project.root, project.file)
        try:
            _evaluate(state, terminal, experiments, given)
        except ConfigError as error:
            terminal.invalid(error)
        except EdisonError as error:
            where = error.where or Location("")
            problem = Problem(where, error.code, error.message, error.hint)
            terminal.failure(problem, error.exit_code)
        except click.exceptions.Exit as ended:
            if ended.exit_code == ExitCode.PAUSED:
                raise
        terminal.note("waiting for a change; stop with Ctrl-C")
        _wait_for_change(project.root, project.file, seen)


def _requested_reports(given: dict[str, Any]) -> RequestedReports | None:
    if not any(given[name] for name in ("junit", "markdown", "sarif")):
        return None
    # Reports are slow to import, and most runs write none.
    from edison_ci.cli.reporting import requested_reports

    return requested_reports(given)


def _evaluate(
    state: CliState, terminal: Terminal, experiments: tuple[str, ...], given: dict[str, Any]
) -> None:
    """Run the requested experiments once and write the requested reports."""
    asked = _requested_reports(given)
    try:
        scheduled = given["fire"] is not None
        project = (
            lookup.open_scheduled_project(state, experiments[0])
            if scheduled
            else lookup.open_project(state)
        )
        coverage = coverage_of(state, terminal, project, experiments, given)
        picked = affected_experiments(state, terminal, project, experiments, given["changed_since"])
        if given["aa"]:
            given = cli_flips.twice_the_repeats(project, picked, given, offline=state.offline)
        recording = provider_replay.open_recording(given["replay"]) if given["replay"] else None
        run_sessions.require_editor(project, "run")
        replay = given["replay"]
        doubts = provenance.recording_doubts(project.root, [replay]) if replay else ()
        order = RunOrder(picked, given, recording, doubts)
        ended = evaluate_order(state, terminal, project, order)
        if scheduled:
            _sample_production(state, terminal, project, order)
    except EdisonError as error:
        if asked is not None:
            asked.write_failure(terminal, error)
        raise
    decided = given["aa"] and ended[-1].exit_code in _DECIDED
    flips = decisions.gate_flips(project, ended[-1].run_id) if decided else ()
    finish(terminal, project, ended, Surroundings(asked, coverage, flips))


def _sample_production(
    state: CliState, terminal: Terminal, project: Project, order: RunOrder
) -> None:
    """Grade a sample of production after a scheduled run; what is wrong with it stops nothing."""
    for experiment in order.experiments:
        if experiment.file.production is None:
            continue
        factory = cli_sessions.session_factory(
            state, cli_sessions.PlanConfirmation(terminal, yes=True)
        )
        options = run_options.RunOptions(budget_microusd=sessions.microusd(order.given["budget"]))
        try:
            feature.call("scheduled_run", terminal, project, experiment, options, factory)
        except EdisonError as error:
            terminal.complaint(error)


def coverage_of(
    state: CliState,
    terminal: Terminal,
    project: Project,
    names: tuple[str, ...],
    given: Mapping[str, Any],
) -> Coverage:
    """Print and return what the base measures and the head no longer does.

    With named experiments nothing is compared, since the others are left out on purpose.
    """
    ref = None if names else given["against"] or given["changed_since"]
    coverage = coverage_since(project, state.folder, ref)
    coverage.show(terminal)
    return coverage


def affected_experiments(
    state: CliState, terminal: Terminal, project: Project, names: tuple[str, ...], since: str | None
) -> list[Experiment]:
    """Return the named experiments, or all; with `since`, only those that a change affects."""
    found = evaluation.select_experiments(project, names, since=since, offline=state.offline)
    if since and not found:
        terminal.note("skipped: nothing affected")
    return found


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The experiments to run, with the options of the command."""

    experiments: list[Experiment]
    given: Mapping[str, Any]
    recording: ReplayProvider | None = None
    """Source of the answers instead of models."""
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons why the recorded answers do not count as evidence."""
    push: int | None = 1
    """Which push of its pull request it measures; None if that is unknown."""

    def options(self) -> run_options.RunOptions:
        """Return the options of the command as options of a run."""
        given, replayed = self.given, self.recording is not None
        names = ("models", "cases", "tags", "limit", "repeats", "shard")
        budget, fire = given["budget"], given.get("fire")
        started_by = SCHEDULE if fire else os.environ.get("GITHUB_EVENT_NAME") or "cli"
        return run_options.RunOptions(
            trigger="replay" if replayed else given.get("started_by") or started_by,
            run_id=given.get("run_id"),
            selection=Selection(*(given[name] for name in names)),
            budget_microusd=sessions.microusd(budget),
            reuse=not given["no_cache"] and not replayed and not fire,
            allow_code=given["allow_code"],
            wait=given["wait"],
            batch=given["batch"] or None,
            push=self.push,
            fire=fire,
        )


def evaluate_order(
    state: CliState, terminal: Terminal, project: Project, order: RunOrder
) -> list[run_options.RunOutcome]:
    """Run the experiments one after the other; return the outcome of each run."""
    gc.freeze()  # what is loaded by now stays until the end
    given = order.given
    if given["record"]:
        provider_replay.refuse_unwritable(given["record"])
        if len(order.experiments) > 1:
            hint = f"name one: {', '.join(e.id for e in order.experiments)}"
            raise UsageError("--record takes one experiment", hint=hint)
    replayed = order.recording is not None
    if given["batch"] and (replayed or given["shard"]):
        other = "--replay" if replayed else "--shard"
        raise UsageError(f"--batch and {other} exclude each other", hint="leave one of them out")
    on = given.get("on")
    sessions.refuse_on(on, {"--batch": given["batch"], "--replay": replayed})
    confirmation = cli_sessions.PlanConfirmation(
        terminal,
        yes=given["yes"],
        strict=given["strict"],
        replay=replayed,
        plan_hash=given.get("if_plan"),
        keys_elsewhere=sessions.keys_elsewhere(on),
    )
    request = evaluation.RunRequest(
        tuple(order.experiments),
        given["against"],
        order.options(),
        cli_sessions.session_factory(state, confirmation, order.recording),
        order.doubts,
        on_skip=lambda why: terminal.note(f"skipped: {why}"),
    )
    agenda = request.targets(project)
    for found in agenda:
        cli_sessions.show_comparison(terminal, found)
        for said in planning.outside_sentences(found[-1].experiment):
            terminal.note(said)
    ended = []
    with sessions.on_workers_of(state, project, request.factory, given) as factory:
        for end in evaluation.evaluate(project, replace(request, factory=factory), agenda):
            ended.append(end)
            if given["record"]:
                _record(terminal, project, end.run_id, given["record"])
    return ended


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@sessions.budget
@click.option(
    "--wait", is_flag=True, help="Wait until batches, or another run of the experiment, have ended."
)
@click.option("--no-batch", is_flag=True, help="Ask one by one what no batch has answered.")
@sessions.on_workers
@click.pass_obj
def resume(state: CliState, /, wanted: str | None, **given: Any) -> None:
    """Resume a run that stopped.

    The run may have been paused, have failed or have been killed. RUN is an id, `latest` or the
    name of an experiment. Stored answers are used whatever their age; cells with an error are
    retried. A run cannot be resumed after its files changed. --budget applies to the whole run,
    including what it has spent before; by default the budget it had last stays.

    A run with --batch is asked for at its provider. If its batches have ended, their answers are
    stored and graded, and the gates decide; if not, the run stays PAUSED. What expired or was
    cancelled goes into a new batch; with --no-batch it is asked at once, and a batch that the
    provider does not have any more is given up.

    --on resumes it with other workers than before, or with some where it had none.

    Examples:
      edison resume
      edison resume support-reply --wait
      edison resume support-reply --budget 5
      edison resume --on local:4
    """
    terminal = Terminal(state)
    site = sites.open_site(state.enter_project(load.find_root(state.folder)))
    with contextlib.closing(database.open_reader(site.results)) as reader:
        stored = lookup.find_run_or_newest(terminal, reader, wanted)
        batches = bool(store_batches.open_batches(reader, experiment=stored.experiment))
    sessions.refuse_on(given["on"], {"a run with --batch": batches})
    scheduled = stored.trigger == SCHEDULE
    project = (
        lookup.open_scheduled_project(state, stored.experiment)
        if scheduled
        else lookup.open_project(state)
    )
    on, budget = given["on"], sessions.microusd(given["budget"])
    confirmation = cli_sessions.PlanConfirmation(
        terminal, keys_elsewhere=sessions.keys_elsewhere(on)
    )
    left = False if given["no_batch"] else None
    chosen = run_options.RunOptions(budget_microusd=budget, wait=given["wait"], batch=left)
    here = cli_sessions.session_factory(state, confirmation)
    with sessions.on_workers_of(state, project, here, given) as factory:
        ended = evaluation.resume_run(project, stored, chosen, factory)
    finish(terminal, project, [ended])


def _record(terminal: Terminal, project: Project, run_id: str, path: Path) -> None:
    reader = database.open_reader(project.root / project.file.results)
    try:
        count = provider_replay.write_recording(reader, run_id, path)
    finally:
        reader.close()
    site = sites.Site(project.root, project.file)
    site.note_export(f"run {run_id} as a recording", path.name)
    terminal.note(f"{counted(count, 'answer')} recorded in {path}")


class Surroundings(NamedTuple):
    """What a command was asked and found out beside its runs."""

    asked: RequestedReports | None = None
    coverage: Coverage = Coverage()
    flips: Sequence[GateFlips] = ()


def finish(
    terminal: Terminal,
    project: Project,
    ended: list[run_options.RunOutcome],
    around: Surroundings | None = None,
) -> None:
    """Show the outcome of runs, write their reports and exit with the most important code."""
    asked, coverage, flips = around or Surroundings()
    code = most_important(int(code) for code in (coverage.exit_code, *(e.exit_code for e in ended)))
    ids, dropped = [end.run_id for end in ended], coverage.dropped
    if not terminal.json and not terminal.quiet:
        show_ended(terminal, project, ended)
        if flips:
            cli_flips.show_flips(terminal, flips)
    feature.call("runs_ended", terminal, project, ids)
    if asked is not None and not asked.write(terminal, project, ids, dropped):
        code = code or int(ExitCode.INVALID)  # a missing report never hides a verdict
    if terminal.json:
        with lookup.results_of(project) if ended else contextlib.nullcontext() as reader:
            found = (
                []
                if reader is None
                else [run_result.RunResult(reader, find_run(reader, i)) for i in ids]
            )
            told = summary.document(found, code, [end.progress for end in ended], dropped)
            told |= {"aa": [each.as_json() for each in flips]} if flips else {}
            terminal.document(told)
    if project.file.notifications:
        feature.call("command_ended", terminal, sites.Site(project.root, project.file))
    if code:
        raise click.exceptions.Exit(code)


def show_ended(terminal: Terminal, project: Project, ended: list[run_options.RunOutcome]) -> None:
    """Show the results of runs that have ended; those with the base's eval suite in brief."""
    if not ended:
        return
    with lookup.results_of(project) as reader:
        views = [run_result.RunResult(reader, find_run(reader, end.run_id)) for end in ended]
        companions = {view.companion.id for view in views if view.companion is not None}
        for view, end in zip(views, ended, strict=True):
            if view.run.id in companions and view.finished:
                summary.show_companion(terminal, view)
            else:
                summary.show_run(terminal, view, end.progress)


def most_important(codes: Any) -> int:
    """Return the exit code that takes precedence."""
    found = set(codes) or {0}
    return next(code for code in _PRECEDENCE if code in found)
