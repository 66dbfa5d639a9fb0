"""edison run and resume: evaluate, and go on after whatever stopped it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.api.evaluation import RunRequest, chosen, evaluate, go_on
from edison_ci.cli import spending
from edison_ci.cli.asking import Asking
from edison_ci.cli.coverage import Coverage, coverage_since
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import results_of
from edison_ci.cli.sessions import session_factory, tell_comparison
from edison_ci.cli.summary import document, show_run
from edison_ci.cli.terminal import Terminal, counted
from edison_ci.config.load import Experiment, Project, find_root, load_project
from edison_ci.errors import ConfigError, EdisonError, ExitCode, Location, Problem, UsageError
from edison_ci.execute.run_options import Ended, RunOptions
from edison_ci.operate.provenance import doubted_recordings
from edison_ci.operate.sessions import require_editor
from edison_ci.plan.selection import Selection, Shard, parse_shard
from edison_ci.plugins import later
from edison_ci.providers.recording import refuse_unwritable, write_recording
from edison_ci.providers.replay import open_recording
from edison_ci.results.run_result import RunResult
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.cli.reporting import Asked
    from edison_ci.config.project import ProjectFile
    from edison_ci.plan.baseline import Doubt
    from edison_ci.providers.replay import ReplayProvider

    Stamps = dict[Path, tuple[int, int]]


_POLL_S = 0.3


def stamps(root: Path, file: ProjectFile) -> Stamps:
    """Return time and size of every file that a run may depend on."""
    paths = file.paths
    folders = (paths.experiments, paths.prompts, paths.rubrics, paths.datasets, "judges", "checks")
    files = [root / n for n in ("edison.yaml", paths.models, "quarantine.yaml")]
    files.append(root / ".edison" / "trust.yaml")
    for folder in folders:
        files += (root / folder).rglob("*")
    found: Stamps = {}
    for path in files:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def wait_for_a_change(root: Path, file: ProjectFile, seen: Stamps) -> None:
    """Return when a file differs from what was seen, and has stayed so for a moment."""
    while stamps(root, file) == seen:
        time.sleep(_POLL_S)
    last = stamps(root, file)
    while True:
        time.sleep(_POLL_S)
        now = stamps(root, file)
        if now == last:
            return
        last = now


_PRECEDENCE = (70, 2, 130, 4, 3, 1, 5, 0)
# Loaded late: reports need more of the statistics than a run does.
_asked = later("edison_ci.cli.reporting:asked")


_FILE = click.Path(dir_okay=False, path_type=Path)


class _ShardType(click.ParamType[Shard]):
    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> Shard:
        try:
            return value if isinstance(value, Shard) else parse_shard(value)
        except UsageError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


@click.command(cls=EdisonCommand)
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--against", metavar="REF", help="Compare with the prompts and models of REF.")
@click.option("--changed-since", metavar="REF", help="Only experiments that a change touches.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this model; again.")
@click.option("--case", "cases", multiple=True, metavar="ID", help="Only this case; again.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="A stable sample of cases.")
@click.option("--draws", type=click.IntRange(1, 100), metavar="N", help="Answers to each case.")
@click.option("--shard", type=_ShardType(), metavar="I/N", help="One of several parts.")
@click.option("--no-cache", is_flag=True, help="Buy new answers even where some are stored.")
@click.option("--record", type=_FILE, metavar="FILE", help="Keep the answers in a recording.")
@click.option("--replay", type=_FILE, metavar="FILE", help="Answer from a recording only.")
@spending.budget
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the results as JUnit.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write the results as Markdown.")
@click.option("--sarif", type=_FILE, metavar="FILE", help="Write findings as SARIF.")
@spending.yes
@click.option("--strict", is_flag=True, help="Refuse to leave out cases that lack a variable.")
@spending.allow_code
@click.option("--wait", is_flag=True, help="Wait while the experiment is being run already.")
@click.option("--watch", is_flag=True, help="Run again whenever a file changes.")
@click.pass_obj
def run(state: State, /, experiments: tuple[str, ...], **given: Any) -> None:
    """Evaluate, and store every answer.

    Answers that are stored already are reused, so only what changed costs anything. Stop it with
    Ctrl-C and go on with `edison resume`: what was paid for is not asked again. On a terminal a run
    that may cost more than $1 asks first. With --watch it runs again whenever a file changes.
    --junit, --markdown and --sarif write reports, however the run ends; a report that cannot be
    written is said after the result, and ends in 2 only where the run would have ended in 0.

    Examples:
      edison run
      edison run support-reply --budget 2
      edison run --limit 10 --model small
      edison run --against main
      edison run --changed-since origin/main --json
      edison run --against main --junit junit.xml --markdown report.md
      edison run support-reply --record answers.jsonl
      edison run support-reply --replay answers.jsonl
    """
    terminal = Terminal(state)
    if not given["watch"]:
        _evaluate(state, terminal, experiments, given)
        return
    project = load_project(state.entered(find_root(state.folder)))
    while True:
        seen = stamps(project.root, project.file)
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
        wait_for_a_change(project.root, project.file, seen)


def _evaluate(
    state: State, terminal: Terminal, experiments: tuple[str, ...], given: dict[str, Any]
) -> None:
    """Run what the command line asks for, once, and write the reports that it asks for."""
    asked = _asked(given) if any(given[name] for name in ("junit", "markdown", "sarif")) else None
    try:
        project = load_project(state.entered(find_root(state.folder)))
        coverage = coverage_of(state, terminal, project, experiments, given)
        picked = chosen_of(state, terminal, project, experiments, given["changed_since"])
        recording = open_recording(given["replay"]) if given["replay"] else None
        require_editor(project, "run")
        files = [given["replay"]] if given["replay"] else []
        order = Order(picked, given, recording, doubted_recordings(project.root, files))
        ended = evaluated(state, terminal, project, order)
    except EdisonError as error:
        if asked is not None:
            asked.write_failure(terminal, error)
        raise
    finish(terminal, project, ended, asked, coverage)


def coverage_of(
    state: State,
    terminal: Terminal,
    project: Project,
    names: tuple[str, ...],
    given: Mapping[str, Any],
) -> Coverage:
    """Say and return what is no longer measured; who names experiments asks for no others."""
    ref = None if names else given["against"] or given["changed_since"]
    coverage = coverage_since(project, state.folder, ref)
    coverage.tell(terminal)
    return coverage


def chosen_of(
    state: State, terminal: Terminal, project: Project, names: tuple[str, ...], since: str | None
) -> list[Experiment]:
    """Return the experiments that are named, or all; of these, those that a change touches."""
    found = chosen(project, names, since=since, offline=state.offline)
    if since and not found:
        terminal.note("skipped: nothing affected")
    return found


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run, with the options of the command."""

    experiments: list[Experiment]
    given: Mapping[str, Any]
    recording: ReplayProvider | None = None
    """Where answers come from instead of models."""
    doubts: tuple[Doubt, ...] = ()
    """Why these prove nothing."""

    def options(self) -> RunOptions:
        """Return what the options ask of a run."""
        given, replayed = self.given, self.recording is not None
        names = ("models", "cases", "tags", "limit", "draws", "shard")
        budget = given["budget"]
        return RunOptions(
            trigger="replay" if replayed else os.environ.get("GITHUB_EVENT_NAME") or "cli",
            selection=Selection(*(given[name] for name in names)),
            budget_microusd=spending.microusd(budget),
            reuse=not given["no_cache"] and not replayed,
            allow_code=given["allow_code"],
            wait=given["wait"],
        )


def evaluated(state: State, terminal: Terminal, project: Project, order: Order) -> list[Ended]:
    """Run what was ordered, one after the other; return how each run ended."""
    given = order.given
    if given["record"]:
        refuse_unwritable(given["record"])
        if len(order.experiments) > 1:
            hint = f"name one: {', '.join(e.id for e in order.experiments)}"
            raise UsageError("--record keeps the answers of one experiment", hint=hint)
    replayed = order.recording is not None
    asking = Asking(terminal, yes=given["yes"], strict=given["strict"], replay=replayed)
    request = RunRequest(
        tuple(order.experiments),
        given["against"],
        order.options(),
        session_factory(state, asking, order.recording),
        order.doubts,
        on_skip=lambda why: terminal.note(f"skipped: {why}"),
    )
    agenda = request.targets(project)
    for found in agenda:
        tell_comparison(terminal, found)
    ended = []
    for end in evaluate(project, request, agenda):
        ended.append(end)
        if given["record"]:
            _record(terminal, project, end.run_id, given["record"])
    return ended


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@spending.budget
@click.option("--wait", is_flag=True, help="Wait while the experiment is being run already.")
@click.pass_obj
def resume(state: State, wanted: str, budget: float | None, wait: bool) -> None:
    """Go on with a run that stopped.

    It may have been paused, have failed or have been killed. RUN is an id, `latest` or the name of
    an experiment. Stored answers are used whatever their age; cells in error are asked again.
    Refused when the files changed since. `--budget` is for the whole run, what it has spent before
    included; without it the one that the run was started with stays.

    Examples:
      edison resume
      edison resume support-reply --budget 5
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    reader = open_reader(project.root / project.file.results)
    try:
        stored = find_run(reader, wanted)
    finally:
        reader.close()
    factory = session_factory(state, Asking(terminal))
    ended = go_on(project, stored, spending.microusd(budget), factory, wait=wait)
    finish(terminal, project, [ended])


def _record(terminal: Terminal, project: Project, run_id: str, path: Path) -> None:
    reader = open_reader(project.root / project.file.results)
    try:
        count = write_recording(reader, run_id, path)
    finally:
        reader.close()
    terminal.note(f"{counted(count, 'answer')} recorded in {path}")


def finish(
    terminal: Terminal,
    project: Project,
    ended: list[Ended],
    asked: Asked | None = None,
    coverage: Coverage | None = None,
) -> None:
    """Show how runs ended, write their reports, and end with the exit code that matters most."""
    coverage = coverage or Coverage()
    code = most_important(int(code) for code in (coverage.exit_code, *(e.exit_code for e in ended)))
    ids, dropped = [end.run_id for end in ended], coverage.dropped
    if not terminal.json:
        show_ended(terminal, project, ended)
    with results_of(project) if ended else contextlib.nullcontext() as reader:
        if asked is not None and not asked.write(terminal, project, ids, dropped):
            code = code or int(ExitCode.INVALID)  # what is missing never hides a verdict
        if terminal.json:
            found = [] if reader is None else [RunResult(reader, find_run(reader, i)) for i in ids]
            terminal.document(document(found, code, [end.progress for end in ended], dropped))
    if code:
        raise click.exceptions.Exit(code)


def show_ended(terminal: Terminal, project: Project, ended: list[Ended]) -> None:
    """Show how runs ended."""
    for end in ended:
        with results_of(project) as reader:
            show_run(terminal, RunResult(reader, find_run(reader, end.run_id)), end.progress)


def most_important(codes: Any) -> int:
    """Return the exit code that goes before the others."""
    found = set(codes) or {0}
    return next(code for code in _PRECEDENCE if code in found)
