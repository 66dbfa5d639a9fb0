"""Sessions: how a run starts, goes on after a crash, and ends.

A session holds the experiment, so that no second run of it starts on the same database, and a lock
of its own, by which others see that it lives. It opens the lanes, lets the runner fill the cells,
and writes how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import logging
import shutil
import signal
import uuid
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import Price
from edison_ci.config.prices import PriceTable
from edison_ci.decide.conclusion import Question, conclude
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute.budgets import caps_of, shared
from edison_ci.execute.clients import Lanes, LaneSettings
from edison_ci.execute.interim import Desk, Looks, Rules
from edison_ci.execute.pairwise import HeadToHead
from edison_ci.execute.progress_events import Bulletin, go_on, progress_of
from edison_ci.execute.regrade import KeptAnswers
from edison_ci.execute.run_options import Against, Ended, RunOptions, Tools, allowing_code
from edison_ci.execute.runner import THE_RUN, Pairing, Runner
from edison_ci.execute.work import BASE, HEAD, Work
from edison_ci.git.repository import Repository
from edison_ci.judges.licensing import RunLicence
from edison_ci.plan.fingerprint import describe
from edison_ci.plan.looks import kind_of_looks
from edison_ci.plan.plan import bare_plan, joined, ranged
from edison_ci.plan.versions import label_of
from edison_ci.providers.budgeting import Purse
from edison_ci.results.judged import last_error_of_judges, no_judge_answered, why_nothing_is_graded
from edison_ci.results.rollups import rollups_of
from edison_ci.results.snapshot import kept_snapshot
from edison_ci.results.spending import reused_answers, stored_reuse
from edison_ci.rounding import exceeds, fixed
from edison_ci.safety.redaction import redaction
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import reclaim
from edison_ci.store.owners import Owner, before_any_call, only_one, wanted
from edison_ci.store.runs import NewRun, find_run, move_run, start_run
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Coroutine

    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.decide.conclusion import Conclusion
    from edison_ci.execute.runner import Answer, Progress
    from edison_ci.plan.baseline import Doubt
    from edison_ci.plan.looks import Kind, Look
    from edison_ci.plan.plan import Plan
    from edison_ci.store.runs import Run

    Ask = Callable[[Look | None], Conclusion | None]
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from edison_ci.documents.files import Tree


# A run goes on with what it was planned on and nothing else. Prices are the exception: what they
# change is what the next call costs, not what it says.
_PRICE = "the price of "


def planned_on(
    project: Project,
    sides: Mapping[str, Experiment],
    options: RunOptions,
    against: Against | None,
) -> str:
    """Return everything that a run depends on, as it is kept with it."""
    told: dict[str, Any] = {}
    for side, experiment in sides.items():
        mark = "" if side == "head" else f"{side}: "
        found = describe(project, options.selection.narrow(experiment))
        told.update({f"{mark}{place}": value for place, value in found.items()})
    chosen = {
        "selection": options.selection.as_json(),
        "reuse": options.reuse,
        "allow_code": options.allow_code,
        "regrade": options.regrade,
        "budget_microusd": options.budget_microusd,
        "against": against.as_json() if against is not None else None,
        "doubts": [[*doubt] for doubt in options.doubts],
    }
    return json.dumps({**told, "command line": chosen}, sort_keys=True, default=str)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the places whose content is not what it was."""
    return [key for key in {**now, **before} if before.get(key) != now.get(key)]


def repriced(changed: Iterable[str]) -> list[str]:
    """Return the models whose price changed; none if anything else changed as well."""
    names = list(changed)
    only = all(name.startswith(_PRICE) for name in names)
    return [name.removeprefix(_PRICE) for name in names] if only else []


@dataclass(frozen=True, slots=True)
class KeptPrices(PriceTable):
    """The prices with which a run was planned."""

    snapshot: Mapping[str, Any] = field(default_factory=dict)

    def price_of(self, model: Model) -> Price | None:
        """Return what the model cost then."""
        kept = self.snapshot.get(f"{_PRICE}{model.name}")
        if not isinstance(kept, dict):
            return None
        fields = {"in": "tokens_in", "out": "tokens_out", "cached_in": "cached_in"}
        told = {name: kept.get(field) for name, field in fields.items()}
        return Price.model_validate(
            {name: value for name, value in told.items() if value is not None}
        )


# Everything else is in memory once a project is loaded; datasets are read case by case, once for
# each model. So a run reads copies of them, made before it plans.
@dataclass(frozen=True, slots=True)
class _Kept:
    """A tree some of whose files are read from copies."""

    tree: Tree
    copies: dict[str, Path]

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Open the copy of a file, if there is one."""
        copy = self.copies.get(path)
        return self.tree.open(path, max_bytes=max_bytes) if copy is None else copy.open("rb")

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return self.tree.names(folder)

    def exists(self, path: str) -> bool:
        """Whether a path stands for something."""
        return self.tree.exists(path)


@contextlib.contextmanager
def kept_data(project: Project, experiment: Experiment, folder: Path) -> Iterator[Project]:
    """Yield the project with the experiment's datasets as they are now, whatever happens to them.

    What a killed process left in the folder is removed first: nobody else uses it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        copies: dict[str, Path] = {}
        with before_any_call(folder):
            folder.mkdir(parents=True)
            for number, entry in enumerate(experiment.file.data):
                copy = copies[entry.path] = folder / f"{number}-{entry.path.rpartition('/')[2]}"
                with project.tree.open(entry.path) as source, copy.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        yield dataclasses.replace(project, tree=_Kept(project.tree, copies))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_SHARED = ("edison.yaml", "quarantine.yaml", ".edison/prices.json")
"""Files of a project that every experiment depends on, beside its models."""


def commit_of(project: Project, experiment: Experiment) -> str | None:
    """Return HEAD if no file that the experiment depends on differs from it, else None."""
    repository = Repository.find(project.root)
    head = repository.head() if repository is not None else None
    if repository is None or head is None:
        return None
    folder = project.root.resolve().relative_to(repository.root).as_posix()
    prefix = "" if folder == "." else f"{folder}/"
    named = {*project.files_of(experiment), *_SHARED, project.file.paths.models}
    return None if repository.changed_paths(head) & {prefix + path for path in named} else head


GRACE_S = 5.0
"""How long calls in flight may take after the first signal. GitHub kills 10 s after cancelling."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Ends a run early: drains first, aborts on the second signal or when draining takes long."""

    def __init__(
        self, runner: Runner, work: asyncio.Task[None], tell: Callable[[], None] = lambda: None
    ) -> None:
        self._runner, self._work, self._tell = runner, work, tell
        self._loop = asyncio.get_running_loop()
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):  # signals reach the main thread only
                self._loop.add_signal_handler(number, self._signalled, number.name)

    def drain(self, reason: str) -> None:
        """Take no more cells, and give those in flight a little time."""
        self._tell()
        self._runner.stop(reason)
        self._loop.call_later(GRACE_S, self._work.cancel)

    def forget(self) -> None:
        """Leave signals to whoever had them before."""
        for number, handler in self._before.items():
            with suppress(ValueError, RuntimeError):
                if self._loop.remove_signal_handler(number):
                    signal.signal(number, handler)

    def _signalled(self, name: str) -> None:
        if self._runner.progress.stopped_by is None:
            self.drain(name)
        else:
            self._work.cancel()


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of an experiment, or of what it is compared with."""

    experiment: Experiment
    against: Against | None
    tools: Tools

    @property
    def all(self) -> tuple[Gate, ...]:
        """The gates that count: those of the base where it has any to offer."""
        given = self.against.gates if self.against is not None else None
        return self.experiment.file.gates if given is None else given

    def doubts(self, options: RunOptions) -> tuple[Doubt, ...]:
        """Return why a run is inconclusive at best; without gates there is nothing to doubt."""
        own = self.against.doubts if self.against is not None else ()
        return (*own, *options.doubts) if self.all else ()

    def looks(self, work: Work) -> Kind | None:
        """Return how the run is looked at; None if once, at the end.

        A shard sees too little to stop at, and whoever only grades again has nothing to add.
        """
        apart = work.only is not None or work.selection.shard is not None
        if apart or not self.tools.gated or BASE not in work.sides:
            return None
        return kind_of_looks(self.all, self.experiment.file.stop)

    def foreseen(self, plan: Plan, work: Work) -> Plan:
        """Return the plan from least to most, where the run stops when it is clear."""
        kind = self.looks(work)
        return replace(plan, looks=None) if kind is None else ranged(plan, kind)

    def ask(self, held: Held, work: Work, *, now: Callable[[], str]) -> Ask:
        """Return what asks the gates at a look, or in the end; None if nobody decides."""
        aside = work.project.quarantine.cases
        quarantined = frozenset(e.case for e in aside if e.experiment == self.experiment.id)
        licence = RunLicence.of(work.project, self.experiment)

        def asked(look: Look | None = None) -> Conclusion | None:
            if not self.tools.gated or not self.all or work.selection.shard is not None:
                return None  # what is true of a part need not be true of the whole
            question = Question(
                held.run_id,
                self.all,
                work.clusters,
                quarantined,
                BASE in work.sides,
                now(),
                look,
                licence.unlicensed(self.all),
                self.doubts(held.options),
            )
            return conclude(work.project, held.reader, question)

        return asked


# uvloop takes a fifth of a millisecond less for each call than Python's own loop, and is loaded in
# five. It does not exist for Windows, where Python's own serves.
T = TypeVar("T")


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine comes to, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def ending(
    reader: sqlite3.Connection, run_id: str, progress: Progress, *, max_errors: float
) -> tuple[str, ExitCode]:
    """Return the status in which a run ends, and the exit code before gates decide."""
    if progress.stopped_by == "cancel":
        return "CANCELLED", ExitCode.PAUSED
    if progress.stopped_by is not None:
        by_budget = progress.stopped_by.startswith("budget")
        return "PAUSED", ExitCode.BUDGET if by_budget else ExitCode.PAUSED
    errors = progress.cells["error"]
    unfinished = progress.done < progress.total
    if unfinished or exceeds(errors, max_errors * progress.total):
        if not unfinished:
            told = f"{errors:,} of {progress.total:,} cells in error"
            progress.closed[THE_RUN] = f"{told}, max_errors is {fixed(100 * max_errors)}%"
        return "FAILED", ExitCode.NOT_MEASURED
    if no_judge_answered(reader, run_id):
        why = last_error_of_judges(reader, run_id)
        progress.closed["judges"] = f"none answered; {why}" if why else "none answered"
        return "FAILED", ExitCode.NOT_MEASURED
    if why := why_nothing_is_graded(reader, run_id):
        progress.closed[THE_RUN] = f"no answer could be graded; {why}"
        return "FAILED", ExitCode.NOT_MEASURED
    return "COMPLETED", ExitCode.DONE


def verdict_without_gates(status: str, progress: Progress) -> str | None:
    """Return the verdict on a run that no gate decides."""
    if status == "FAILED":
        return "error"
    graded = progress.done - progress.cells["skipped"] - progress.cells["error"]
    return "skipped" if status == "COMPLETED" and graded == 0 else None


def steps(current: str, status: str) -> list[str]:
    """Return the moves from where a run is to where it ends."""
    if status == "COMPLETED":
        return [status] if current == "AGGREGATING" else ["JUDGING", "AGGREGATING", status]
    if current == "AGGREGATING" and status != "FAILED":
        return ["EXECUTING", status]
    return [status]


logger = logging.getLogger(__name__)

LISTEN_S = 0.5
"""How often a run looks whether it was asked to pause."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a session holds while it runs."""

    run_id: str
    writer: Writer
    reader: sqlite3.Connection
    owner: Owner
    project: Project
    """With its datasets as they were when the run was planned."""
    plan: Plan
    options: RunOptions
    newer_than: str
    resumed: Run | None
    kept: KeptAnswers | None
    """The answers that are graded again, if none are asked for."""


class Session:
    """One run of one experiment, new or resumed."""

    def __init__(
        self,
        project: Project,
        experiment: Experiment,
        tools: Tools,
        *,
        against: Against | None = None,
    ) -> None:
        self._project, self._experiment, self._tools = project, experiment, tools
        self._against = against
        self._gates = Gates(experiment, against, tools)
        self._sides = {HEAD: experiment}
        if against is not None and against.subject is not None:
            self._sides[BASE] = against.subject
        self._path = project.root / project.file.results
        self._folder = project.root / ".edison"

    def run(self, options: RunOptions) -> Ended:
        """Run the experiment anew."""
        run_id = f"{self._tools.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
        return self._hold(run_id, options, resumed=None)

    def resume(self, run: Run, options: RunOptions) -> Ended:
        """Go on with a run that was paused, failed or killed; its plan must be the same."""
        if run.status in ("COMPLETED", "CANCELLED"):
            raise UsageError(f"run {run.id} is {run.status}", hint="start a new run: edison run")
        return self._hold(run.id, options, resumed=run)

    # --- before the first call --------------------------------------------------------------------

    def _hold(self, run_id: str, options: RunOptions, *, resumed: Run | None) -> Ended:
        experiment = self._experiment
        with ExitStack() as stack:
            locks = self._folder / "locks"
            wait = self._tools.on_wait if options.wait else None
            stack.enter_context(only_one(locks, experiment.id, run_id, wait=wait))
            data = self._folder / "snapshots" / experiment.id
            allowed = allowing_code(self._project) if options.allow_code else self._project
            project = stack.enter_context(kept_data(allowed, experiment, data))
            plan = self._planned(project, options)
            self._refuse_changed(plan, options, resumed)
            kept = self._kept(project, options, stack)
            if kept is not None:
                plan = kept.plan(project, plan)
            only = None if kept is None else kept.has
            work = Work(project, self._sides, options.selection, only=only)
            self._tools.on_plan(self._gates.foreseen(plan, work))
            owner = Owner(locks)
            stack.callback(owner.close)
            writer = stack.enter_context(Writer(self._path))
            reader = open_reader(self._path)
            stack.callback(reader.close)
            writer.submit(reclaim(owner.is_alive, now=self._now())).result()
            if resumed is None:
                new = self._new(run_id, plan, options, owner.id)
                if kept is not None:
                    new = kept.marked(new)
                writer.submit(start_run(new)).result()
            newer = self._newer_than(options, resumed)
            held = Held(run_id, writer, reader, owner, project, plan, options, newer, resumed, kept)
            return run_in_loop(self._execute(held))

    def _kept(self, project: Project, options: RunOptions, stack: ExitStack) -> KeptAnswers | None:
        if options.regrade is None:
            return None
        reader = open_reader(self._path)
        stack.callback(reader.close)
        kept = KeptAnswers(reader, options.regrade)
        kept.survey(Work(project, self._sides, options.selection).tasks())
        return kept

    def _refuse_changed(self, plan: Plan, options: RunOptions, resumed: Run | None) -> None:
        if resumed is None or resumed.plan_hash == plan.hash:
            return
        before = kept_snapshot(resumed)
        changed = changes(before, json.loads(self.snapshot(options)))
        models = repriced(changed)
        if models and self._plan_at(before, options).hash == resumed.plan_hash:
            # What is booked stays as it is; new calls cost the new price.
            logger.warning("prices changed since", extra={"models": ", ".join(models)})
            return
        raise UsageError(
            f"the plan of {resumed.id} has changed: {', '.join(changed) or 'cases'}",
            hint="put the files back, or start a new run: edison run",
        )

    def _plan_at(self, snapshot: dict[str, Any], options: RunOptions) -> Plan:
        """Return the plan at the prices of a snapshot."""
        table = self._project.prices
        kept = KeptPrices(table.date, table.source, table.models, table.origin, snapshot)
        return self._planned(replace(self._project, prices=kept), options)

    def _planned(self, project: Project, options: RunOptions) -> Plan:
        """Return the plan of all sides together."""
        head, base = self._experiment, self._sides.get(BASE)
        if base is None:
            return bare_plan(project, head, selection=options.selection)
        plan = partial(bare_plan, project, selection=options.selection)
        return joined(plan(head, of="head"), plan(base, of="base"))

    def snapshot(self, options: RunOptions) -> str:
        """Return everything that the run depends on, to be kept with it."""
        return planned_on(self._project, self._sides, options, self._against)

    def _new(self, run_id: str, plan: Plan, options: RunOptions, owner: str) -> NewRun:
        return NewRun(
            id=run_id,
            experiment=self._experiment.id,
            trigger=options.trigger,
            plan_hash=plan.hash,
            snapshot=self.snapshot(options),
            labels={p.id: label_of(p, self._project.root) for p in self._experiment.prompts},
            cells_planned=plan.cells + plan.skipped,
            simulated=plan.simulated,
            partial=plan.partial,
            owner=owner,
            base_ref=self._against.ref if self._against is not None else None,
            base_commit=self._against.commit if self._against is not None else None,
            commit_id=None if options.nowhere else commit_of(self._project, self._experiment),
            shard=str(options.selection.shard) if options.selection.shard else None,
            loop=self._tools.loop_id,
            now=self._now(),
        )

    def _newer_than(self, options: RunOptions, resumed: Run | None) -> str:
        """Return the time from which stored answers count."""
        if not options.reuse:
            # Answers that this very run bought are its own, however often they are needed.
            return resumed.created_at if resumed is not None else self._now()
        if resumed is not None or options.regrade is not None:
            return ""
        reuse = dt.timedelta(days=self._project.file.settings.reuse_days)
        return formatting.stamp(self._tools.now() - reuse)

    def _now(self) -> str:
        return formatting.stamp(self._tools.now())

    # --- inside the event loop --------------------------------------------------------------------

    async def _execute(self, held: Held) -> Ended:
        await self._begin(held)
        async with AsyncExitStack() as stack:
            lanes, cells = self._lanes(held), self._work(held)
            progress = progress_of(held.plan, cells, lanes, held.kept)
            if held.resumed is not None:
                go_on(progress, cells, held.reader, held.run_id)
            stack.push_async_callback(lanes.close)
            grader = self._tools.grading(held.project, self._experiment, lanes)
            runner = Runner(held.run_id, held.writer, grader, progress)
            alert_at = self._experiment.file.stop.alert_at
            bulletin = Bulletin(self._tools, lanes.purse, held.reader, alert_at=alert_at)
            runner.on_progress, runner.on_stop = bulletin.progress, lanes.drain
            if held.resumed is not None:
                runner.done_before = held.reader
            if BASE in self._sides:
                runner.pairing = self._pairing(held)
            runner.head_to_head = HeadToHead.of(held.run_id, cells, lanes, held.reader)
            answers = partial(self._answers, held, lanes)
            ask = self._gates.ask(held, cells, now=self._now)
            looks = self._looks(held, runner, cells, ask)
            filling = runner.run(cells.lanes(answers)) if looks is None else looks.run(answers)
            self._tools.on_start(progress)
            work = asyncio.create_task(filling)
            stop = Stop(runner, work, lambda: self._tools.on_stop(lanes.purse.in_flight))
            listening = asyncio.create_task(self._listen(held, stop))
            try:
                await work
                await runner.finish()
            except ExceptionGroup as group:
                # Workers fail together; the first cause is the one to tell.
                raise group.exceptions[0] from None
            except asyncio.CancelledError:
                await held.writer.write(lambda _: None)  # what was booked and not sent is released
                # What was in flight may have been charged, and stays booked.
                lost = reclaim(lambda owner: owner != held.owner.id, now=self._now())
                await held.writer.write(lost)
                await runner.finish()
            finally:
                listening.cancel()
                stop.forget()
                progress.closed.update(lanes.given_up())
                progress.waiting = lanes.waiting()
        known = looks.conclusion if looks is not None else None
        return await self._conclude(held, bulletin, progress, lambda: known or ask(None))

    async def _begin(self, held: Held) -> None:
        resumed, still = held.resumed, ("PENDING", "AGGREGATING")
        if resumed is not None and resumed.moving and resumed.status not in still:
            died = move_run(held.run_id, "PAUSED", self._now(), stopped_by="killed")
            await held.writer.write(died)
        fresh = {"owner": held.owner.id, "stopped_by": None, "verdict": None}
        await held.writer.write(move_run(held.run_id, "EXECUTING", self._now(), **fresh))

    async def _listen(self, held: Held, stop: Stop) -> None:
        """Do what another process asks of the run."""
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(LISTEN_S)
                asked = wanted(held.reader, held.run_id)
                if asked is not None:
                    stop.drain(asked)
                    return

    def _pairing(self, held: Held) -> Pairing:
        begun = held.resumed.created_at if held.resumed is not None else self._now()
        day_ago = formatting.stamp(self._tools.now() - dt.timedelta(days=1))
        return Pairing(held.reader, begun, day_ago, held.newer_than)

    def _work(self, held: Held) -> Work:
        only = held.kept.has if held.kept is not None else None
        return Work(held.project, self._sides, held.options.selection, only=only)

    def _answers(self, held: Held, lanes: Lanes, model: Model) -> Answer:
        """Return where the answers of a model come from."""
        if held.kept is not None:
            return partial(held.kept.answer, tally=lanes.tally)
        lane = lanes.of(model, "generate")
        return lambda _, request: lane.answer(request)

    def _lanes(self, held: Held) -> Lanes:
        experiment, shard = self._experiment, held.options.selection.shard
        parts = shard.count if shard is not None else 1
        limits = caps_of(held.project, experiment, held.run_id, held.options.budget_microusd)
        limits += self._tools.caps
        caps = shared(held.reader, limits, parts, held.run_id, self._now())
        purse = Purse(
            writer=held.writer,
            run_id=held.run_id,
            owner=held.owner.id,
            scopes=self._tools.scopes(held.run_id, experiment),
            caps=caps,
            now=self._now,
            is_alive=held.owner.is_alive,
            redact=redaction(held.project.file.settings),
        )
        settings = LaneSettings(
            held.project,
            self._tools.provider_for,
            self._tools.clock,
            held.newer_than,
            parts,
            self._tools.advice,
        )
        return Lanes(settings, purse, held.reader)

    # --- after the last call ----------------------------------------------------------------------

    async def _conclude(
        self,
        held: Held,
        bulletin: Bulletin,
        progress: Progress,
        decided: Callable[[], Conclusion | None],
    ) -> Ended:
        status, code = self._ending(held, progress)
        bulletin.last(progress)
        for step in steps(find_run(held.reader, held.run_id).status, status):
            change: dict[str, Any] = {}
            if step == status:
                summed = status in ("COMPLETED", "FAILED")
                if summed:
                    await held.writer.write(rollups_of(held.reader, held.run_id))
                verdict = verdict_without_gates(status, progress)
                if status == "COMPLETED":
                    licence = RunLicence.of(held.project, self._experiment)
                    await held.writer.write(licence.note(held.run_id))
                    change["cells_planned"] = progress.total
                    found = decided() if verdict is None else None
                    if found is not None:
                        verdict, code = found.verdict, found.exit_code
                        await held.writer.write(found.write)
                    if verdict in (None, "skipped"):
                        verdict = "inconclusive" if self._gates.doubts(held.options) else "skipped"
                change |= {"stopped_by": progress.stopped_by, "complete": status == "COMPLETED"}
                change["verdict"] = verdict
                reused = stored_reuse if summed else reused_answers
                change["reused"] = reused(held.reader, held.run_id)
            if step == "COMPLETED" and held.options.refines:
                step = "REFINING"  # whoever runs the loop completes it
            await held.writer.write(move_run(held.run_id, step, self._now(), **change))
        await bulletin.end(status, progress)
        return Ended(held.run_id, status, code, progress, held.kept)

    def _ending(self, held: Held, progress: Progress) -> tuple[str, ExitCode]:
        most = self._experiment.file.max_errors
        return ending(held.reader, held.run_id, progress, max_errors=most)

    def _looks(self, held: Held, runner: Runner, cells: Work, ask: Ask) -> Looks | None:
        """Return the looks that were declared; None if the gates look once, at the end."""
        kind = self._gates.looks(cells)
        if kind is None:
            return None
        first = held.resumed.plan_hash if held.resumed is not None else held.plan.hash
        desk = Desk(
            held.run_id,
            ask,
            lambda: self._ending(held, runner.progress)[0] == "COMPLETED",
            held.writer.write,
            self._now,
            self._tools.on_look,
        )
        return Looks(Rules(kind, held.plan.cases, first), cells, runner, desk)
