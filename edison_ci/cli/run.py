"""edison run and resume: commands that evaluate an experiment and store a run."""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci import feature, ranges
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import change_coverage, decisions, evaluation, recordings
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions, summary
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import ODD, StyledText, Terminal
from edison_ci.errors import EdisonError, ExitCode, UsageError
from edison_ci.numeric import counted, rate
from edison_ci.plan.selection import Selection, Shard, parse_shard
from edison_ci.results import stored_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.api.change_coverage import ChangeCoverage
    from edison_ci.api.decisions import GateFlips
    from edison_ci.api.reports import ReportFiles, WrittenReport
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.project import ProjectFile
    from edison_ci.execute.run_options import RunOutcome

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
    stamps: Stamps = {}
    for path in files:
        with contextlib.suppress(OSError):
            status = path.stat()
            stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps


def _wait_for_change(root: Path, file: ProjectFile, stamps: Stamps) -> None:
    """Return when a file has changed and then stayed the same for a moment."""
    while _file_stamps(root, file) == stamps:
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


class _ShardType(click.ParamType[Shard]):
    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> Shard:
        try:
            return value if isinstance(value, Shard) else parse_shard(value)
        except UsageError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


class _FireType(click.ParamType[tuple[str, str]]):
    name = "SCHEDULE@TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        schedule, _, due_at = str(value).rpartition("@")
        return value if isinstance(value, tuple) else (schedule, due_at)


@dataclass(frozen=True, slots=True)
class RunCommand:
    """What `edison run` was asked for."""

    experiments: tuple[str, ...]
    against: str | None
    changed_since: str | None
    models: tuple[str, ...]
    cases: tuple[str, ...]
    tags: tuple[str, ...]
    limit: int | None
    repeats: int | None
    shard: Shard | None
    batch: bool
    no_cache: bool
    record: Path | None
    replay: Path | None
    aa: bool
    budget: float | None
    junit: Path | None
    markdown: Path | None
    sarif: Path | None
    yes: bool
    strict: bool
    allow_code: bool
    on: str | None
    tls: Path | None
    wait: bool
    watch: bool
    fire: tuple[str, str] | None
    run_id: str | None
    if_plan: str | None
    started_by: str | None

    def order(self, project: Project, experiments: Sequence[Experiment]) -> evaluation.RunOrder:
        """Return the order for these experiments."""
        recording = None
        if self.replay is not None:
            recording = recordings.Recording.open(project, self.replay)
        return evaluation.RunOrder(
            tuple(experiments),
            self.against,
            Selection(self.models, self.cases, self.tags, self.limit, self.repeats, self.shard),
            sessions.microusd(self.budget),
            fresh=self.no_cache,
            allow_code=self.allow_code,
            wait=self.wait,
            batch=self.batch,
            recording=recording,
            started_by=self.started_by,
            fire=self.fire,
            run_id=self.run_id,
        )


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
    "--repeats",
    type=click.IntRange(*ranges.REPEATS),
    metavar="N",
    help="Number of answers for each case.",
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
@takes(RunCommand)
def run(state: CliState, request: RunCommand) -> None:
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

    --on makes the calls at workers, each with the concurrency of models.yaml and its own keys;
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
    if not request.watch:
        _evaluate(state, terminal, request)
        return
    project = lookup.open_project(state)
    while True:
        stamps = _file_stamps(project.root, project.file)
        try:
            _evaluate(state, terminal, request)
        except EdisonError as error:
            terminal.error(error)
        except click.exceptions.Exit as ended:
            if ended.exit_code == ExitCode.PAUSED:
                raise
        terminal.note("waiting for a change; stop with Ctrl-C")
        _wait_for_change(project.root, project.file, stamps)


def _requested_reports(request: RunCommand) -> ReportFiles | None:
    files = {"junit": request.junit, "md": request.markdown, "sarif": request.sarif}
    if not any(files.values()):
        return None
    # Reports are slow to import, and most runs write none.
    from edison_ci.api.reports import ReportFiles

    return ReportFiles.requested(files)


def _evaluate(state: CliState, terminal: Terminal, request: RunCommand) -> None:
    """Run the requested experiments once and write the requested reports."""
    reports = _requested_reports(request)
    ended: list[RunOutcome] = []
    coverage, failure = None, None
    try:
        project = lookup.open_project(state, *request.experiments)
        coverage = _coverage(state, terminal, project, request)
        experiments = evaluation.select_experiments(
            project, request.experiments, since=request.changed_since, offline=state.offline
        )
        if request.changed_since and not experiments:
            terminal.note("skipped: nothing affected")
        if request.aa:
            request = _for_flips(state, project, experiments, request)
        run_sessions.require_editor(project, "run")
        for outcome in _runs(state, terminal, project, request, experiments):
            ended.append(outcome)
        if request.fire is not None:
            _sample_production(state, terminal, project, request, experiments)
    except EdisonError as error:
        if not ended:
            if reports is not None:
                show_written(terminal, reports.write_failure(error))
            raise
        failure = error
    except BaseException:
        if not terminal.json:
            show_ended(terminal, project, ended)
        raise
    decided = request.aa and ended[-1].exit_code in _DECIDED
    flips = decisions.gate_flips(project, ended[-1].run_id) if decided else ()
    finish(terminal, project, ended, RunNotes(reports, coverage, flips, failure))


def _coverage(
    state: CliState, terminal: Terminal, project: Project, request: RunCommand
) -> ChangeCoverage | None:
    """Print and return what the base measures and the head no longer does; None without a base.

    With named experiments nothing is compared, since the others are left out on purpose.
    """
    ref = None if request.experiments else request.against or request.changed_since
    if ref is None:
        return None
    coverage = change_coverage.coverage_since(project, state.folder, ref)
    show_coverage(terminal, coverage)
    return coverage


def show_coverage(terminal: Terminal, coverage: ChangeCoverage) -> None:
    """Print what is no longer measured."""
    for sentence in coverage.dropped:
        terminal.note(StyledText("in doubt: ", ODD), sentence)


_EXCLUDED_BY_FLIPS = ("shard", "batch", "replay", "watch")


def _for_flips(
    state: CliState, project: Project, experiments: Sequence[Experiment], request: RunCommand
) -> RunCommand:
    """Return the request with twice the answers of each case, and without a base."""
    if request.against is None:
        raise UsageError("--aa needs --against", hint="edison run --against HEAD --aa")
    if len(experiments) != 1:
        names = ", ".join(experiment.id for experiment in experiments)
        raise UsageError("--aa takes one experiment", hint=f"name one: {names}")
    if other := next((name for name in _EXCLUDED_BY_FLIPS if getattr(request, name)), None):
        raise UsageError(f"--aa and --{other} exclude each other", hint="leave one of them out")
    (experiment,) = experiments
    decisions.refuse_flips(project, experiment, request.against, offline=state.offline)
    repeats = 2 * (request.repeats or experiment.file.repeats)
    if repeats > 100:
        raise UsageError(
            f"--aa needs {repeats} answers for each case, and 100 are the most",
            hint="use --repeats 50, or fewer",
        )
    return replace(request, against=None, repeats=repeats)


def _runs(
    state: CliState,
    terminal: Terminal,
    project: Project,
    request: RunCommand,
    experiments: Sequence[Experiment],
) -> Iterator[RunOutcome]:
    """Run the experiments one after the other; yield the outcome of each run as it ends."""
    gc.collect()  # each record with slots was made of a class without them: 0.7 MB
    gc.freeze()  # what is loaded by now stays until the end
    if request.record is not None:
        recordings.refuse_recording(request.record, experiments)
    replayed = request.replay is not None
    if request.batch and (replayed or request.shard):
        other = "--replay" if replayed else "--shard"
        raise UsageError(f"--batch and {other} exclude each other", hint="leave one of them out")
    sessions.refuse_on(request.on, {"--batch": request.batch, "--replay": replayed})
    confirmation = sessions.PlanConfirmation(
        terminal,
        yes=request.yes,
        strict=request.strict,
        replay=replayed,
        plan_hash=request.if_plan,
        keys_elsewhere=sessions.keys_elsewhere(request.on),
    )
    run_request = request.order(project, experiments).request(
        sessions.session_factory(state, confirmation),
        lambda why: terminal.note(f"skipped: {why}"),
    )
    agenda = run_request.targets(project)
    for targets in agenda:
        sessions.show_targets(terminal, targets)
    own = run_request.factory
    with sessions.on_workers_of(state, project, own, request.on, request.tls) as factory:
        for outcome in evaluation.evaluate(project, replace(run_request, factory=factory), agenda):
            yield outcome
            if outcome.exit_code is ExitCode.NOT_MEASURED:
                _notify(terminal, project)  # the runs that follow may take hours
            if request.record is not None:
                count = recordings.record_answers(project, outcome.run_id, request.record)
                terminal.note(f"{counted(count, 'answer')} recorded in {request.record}")


def _notify(terminal: Terminal, project: Project) -> None:
    if project.file.notifications:
        feature.call("command_ended", terminal, sites.Site(project.root, project.file))


def _sample_production(
    state: CliState,
    terminal: Terminal,
    project: Project,
    request: RunCommand,
    experiments: Sequence[Experiment],
) -> None:
    """Grade a sample of production after a scheduled run; what is wrong with it stops nothing."""
    grading = evaluation.GradingRequest(sessions.microusd(request.budget))
    factory = sessions.session_factory(state, sessions.PlanConfirmation(terminal))
    for experiment in experiments:
        if experiment.file.production is None:
            continue
        try:
            feature.call("scheduled_run", terminal, project, experiment, grading, factory)
        except EdisonError as error:
            terminal.complaint(error)


@dataclass(frozen=True, slots=True)
class ResumeCommand:
    """What `edison resume` was asked for."""

    wanted: str | None
    budget: float | None
    wait: bool
    no_batch: bool
    on: str | None
    tls: Path | None


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@sessions.budget
@click.option(
    "--wait", is_flag=True, help="Wait until batches, or another run of the experiment, have ended."
)
@click.option("--no-batch", is_flag=True, help="Ask one by one what no batch has answered.")
@sessions.on_workers
@click.pass_obj
@takes(ResumeCommand)
def resume(state: CliState, request: ResumeCommand) -> None:
    """Resume a run that stopped.

    The run may have been paused, have failed or have been killed. RUN is an id, `latest` or the
    name of an experiment. Stored answers are used at any age; cells with an error are
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
    site = lookup.open_site(state)
    with stored_runs.open_runs(site) as runs:
        stored = lookup.find_run_or_newest(terminal, runs, request.wanted)
        batches = runs.has_open_batches(stored.experiment)
    sessions.refuse_on(request.on, {"a run with --batch": batches})
    project = lookup.open_project(state, stored.experiment)
    confirmation = sessions.PlanConfirmation(
        terminal, keys_elsewhere=sessions.keys_elsewhere(request.on)
    )
    resumed = evaluation.ResumeRequest(
        sessions.microusd(request.budget), request.wait, one_by_one=request.no_batch
    )
    own = sessions.session_factory(state, confirmation)
    with sessions.on_workers_of(state, project, own, request.on, request.tls) as factory:
        ended = evaluation.resume_run(project, stored, resumed, factory)
    finish(terminal, project, [ended])


class RunNotes(NamedTuple):
    """What a command found out beside its runs, and the reports that it writes."""

    reports: ReportFiles | None = None
    coverage: ChangeCoverage | None = None
    flips: Sequence[GateFlips] = ()
    failure: EdisonError | None = None
    """What stopped the command after these runs."""


def finish(
    terminal: Terminal,
    project: Project,
    ended: Sequence[RunOutcome],
    notes: RunNotes | None = None,
) -> None:
    """Show the outcome of runs, write their reports and exit with the most important code."""
    reports, coverage, flips, failure = notes or RunNotes()
    dropped = () if coverage is None else coverage.dropped
    codes = [part.exit_code for part in (coverage, failure) if part is not None]
    code = evaluation.most_important([*codes, *(run.exit_code for run in ended)])
    run_ids = [run.run_id for run in ended]
    if not terminal.json and not terminal.quiet:
        show_ended(terminal, project, ended)
        if flips:
            _show_flips(terminal, flips)
    feature.call("runs_ended", terminal, project, run_ids)
    if reports is not None:
        written = reports.write(project, run_ids, dropped, failure)
        if not show_written(terminal, written):
            code = code or int(ExitCode.INVALID)  # a missing report never hides a verdict
    if terminal.json:
        with stored_runs.open_runs(project) if ended else contextlib.nullcontext() as runs:
            results = [] if runs is None else [runs.result(run_id) for run_id in run_ids]
            progress = [run.progress for run in ended]
            document = summary.document(results, code, progress, dropped)
            document |= {"aa": [gate.as_json() for gate in flips]} if flips else {}
            if failure is not None:
                document |= {"verdict": "error", **terminal.error_fields(failure)}
            terminal.document(document)
    elif failure is not None:
        terminal.error(failure)
    _notify(terminal, project)
    if code:
        raise click.exceptions.Exit(code)


def show_ended(terminal: Terminal, project: Project, ended: Sequence[RunOutcome]) -> None:
    """Show the results of runs that have ended; those with the base's eval suite in brief."""
    if not ended:
        return
    with stored_runs.open_runs(project) as runs:
        results = [runs.result(outcome.run_id) for outcome in ended]
        companions = {result.companion.id for result in results if result.companion is not None}
        for result, outcome in zip(results, ended, strict=True):
            if result.run.id in companions and result.finished:
                summary.show_companion(terminal, result)
            else:
                summary.show_run(terminal, result, outcome.progress)


def _show_flips(terminal: Terminal, flips: Sequence[GateFlips]) -> None:
    """Print how often each gate passes and fails on identical input."""
    terminal.result(
        f"A/A: the answers to each case were split {decisions.SPLITS} times at random into a base "
        "and a head."
    )
    rows: list[tuple[str, ...]] = [("gate", "pass", "inconclusive", "fail", "fail rate")]
    for gate in flips:
        counts = (gate.passes, gate.unclear, gate.fails)
        rows.append((gate.gate or "all gates", *map(str, counts), rate(gate.fail_rate)))
    terminal.table(rows, right=(1, 2, 3), indent=2)


def show_written(terminal: Terminal, written: Sequence[WrittenReport]) -> bool:
    """Print which reports were written and what went wrong; return whether all were written."""
    for path, problem in written:
        if problem is None:
            terminal.note(f"wrote {path}")
        else:
            terminal.complaint(problem)
    return all(report.problem is None for report in written)
