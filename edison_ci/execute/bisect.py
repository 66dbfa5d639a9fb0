"""The commit that broke a case, found with as few answers as it takes.

Prompts and models are taken from each commit that is tried, everything they are measured with from
today's files, so that only the subject changes on the way. The walk is the first-parent history: a
merge counts as one step. Halving finds the commit in few steps, and what two commits send alike is
asked once: answers are stored under what was sent, not under when.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.contracts import CallError
from edison_ci.errors import UsageError
from edison_ci.execute.runner import Task, request_for
from edison_ci.execute.standalone import desk
from edison_ci.git.command import run_git, text
from edison_ci.names import unified_diff
from edison_ci.plan.baseline import base_of
from edison_ci.providers.resilience import LaneClosed
from edison_ci.store.ledger import Cap
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import Lanes
    from edison_ci.execute.run_options import Tools
    from edison_ci.execute.runner import Grading
    from edison_ci.git.repository import Repository
    from edison_ci.records import Case

_MOST_COMMITS = 10_000
_FIELDS = "%H%x1f%aI%x1f%an%x1f%s"


class Commit(NamedTuple):
    """A step of the history."""

    id: str
    date: str
    """When its author wrote it, ISO-8601."""
    author: str
    subject: str


class Cell(NamedTuple):
    """A prompt with a model, for the case at hand."""

    prompt: str
    model: str


@dataclass(frozen=True, slots=True)
class Tried:
    """How the case did at a commit."""

    commit: Commit
    outcome: Literal["good", "bad", "skip"]
    why: str
    failing: frozenset[Cell] = frozenset()


@dataclass(frozen=True, slots=True)
class Culprit:
    """What a search found."""

    kind: Literal["found", "passes", "always", "between"]
    """The commit; or nothing is broken; or it always was; or one of several that none can try."""
    commits: tuple[Commit, ...]
    """The commit that broke the case, or those among which it is, newest first."""
    failing: frozenset[Cell]
    tried: tuple[Tried, ...]


@dataclass(slots=True)
class Search:
    """Looks for the commit that broke a case."""

    project: Project
    experiment: Experiment
    case: Case
    tools: Tools
    repository: Repository
    models: tuple[str, ...] = ()
    """Models that count; all when empty."""
    on_tried: Callable[[Tried], None] = lambda _: None
    tried: dict[str, Tried] = field(default_factory=dict)
    _wanted: frozenset[Cell] = frozenset()

    async def run(
        self, good: str | None, bad: str, *, newer_than: str, budget_microusd: int | None
    ) -> Culprit:
        """Return what broke the case; raises BudgetExhausted, with what was asked kept."""
        history = first_parents(self.repository, bad)
        opened = desk(
            self.project, self.experiment, self.tools, purpose="bisect", newer_than=newer_than
        )
        async with opened as lanes:
            if budget_microusd is not None:
                scope = f"run:{lanes.purse.run_id}"
                cap = Cap(scope, None, microusd=budget_microusd, name="--budget")
                lanes.purse.caps = (*lanes.purse.caps, cap)
            return await self._search(_Bench(self, lanes), history, good)

    async def _search(self, bench: _Bench, history: list[Commit], good: str | None) -> Culprit:
        newest = await bench.try_at(history[0])
        if newest.outcome == "skip":
            raise UsageError(
                f"the case cannot be tried at {history[0].id[:8]}: {newest.why}",
                hint="choose another commit with --bad",
            )
        if newest.outcome == "good":
            return self._found("passes", history[:1])
        self._wanted = newest.failing
        if good is None:
            bad_at, good_at = await self._gallop(bench, history)
        else:
            bad_at, good_at = 0, await self._given(bench, history, good)
        if good_at is None:
            return self._found("always", history[bad_at : bad_at + 1])
        while good_at - bad_at > 1:
            for index in _from_the_middle(bad_at, good_at):
                found = await bench.try_at(history[index])
                if found.outcome != "skip":
                    break
            else:
                return self._found("between", history[bad_at:good_at])
            bad_at, good_at = (index, good_at) if found.outcome == "bad" else (bad_at, index)
        return self._found("found", history[bad_at : bad_at + 1])

    async def _gallop(self, bench: _Bench, history: list[Commit]) -> tuple[int, int | None]:
        """Return the oldest bad commit that was met and the first good one before it."""
        bad_at, at, step = 0, 0, 1
        while at < len(history) - 1:
            at, step = min(at + step, len(history) - 1), 2 * step
            found = await bench.try_at(history[at])
            if found.outcome == "good":
                return bad_at, at
            if found.outcome == "bad":
                bad_at = at
        return bad_at, None

    async def _given(self, bench: _Bench, history: list[Commit], good: str) -> int:
        commit = self.repository.resolve(good)
        at = next((i for i, each in enumerate(history) if each.id == commit), None)
        if not at:
            raise UsageError(
                f"{good!r} is not before {history[0].id[:8]} in its first-parent history",
                hint="choose a commit of the same branch with --good",
            )
        found = await bench.try_at(history[at])
        if found.outcome != "good":
            raise UsageError(
                f"the case does not pass at {good!r} either: {found.why}",
                hint="choose an older commit with --good, or none",
            )
        return at

    def wants(self, cell: Cell) -> bool:
        """Whether a cell counts: all at first, then those that fail at the newest commit."""
        return not self._wanted or cell in self._wanted

    def _found(
        self, kind: Literal["found", "passes", "always", "between"], commits: list[Commit]
    ) -> Culprit:
        return Culprit(kind, tuple(commits), self._wanted, tuple(self.tried.values()))


@dataclass(frozen=True, slots=True)
class _Bench:
    """Tries the case at commits."""

    search: Search
    lanes: Lanes

    async def try_at(self, commit: Commit) -> Tried:
        """Return how the case does with the prompts and models of a commit."""
        search = self.search
        if commit.id not in search.tried:
            search.tried[commit.id] = await self._try(commit)
            search.on_tried(search.tried[commit.id])
        return search.tried[commit.id]

    async def _try(self, commit: Commit) -> Tried:
        search = self.search
        base = base_of(search.project, search.experiment, commit.id, commit=commit.id)
        subject = base.subject_on(search.experiment)
        if subject is None:
            return Tried(commit, "skip", "the experiment, its prompts or its models are not there")
        grader = search.tools.grading(search.project, search.experiment, self.lanes)
        failing: dict[Cell, str] = {}
        seen = 0
        for cell, tasks in self._cells(subject):
            seen += 1
            try:
                passes = [await self._passes(task, grader) for task in tasks]
            except (CallError, LaneClosed, MissingValueError, RenderError) as error:
                return Tried(commit, "skip", f"{cell.prompt} with {cell.model}: {error}")
            marks = [passed for passed, _ in passes if passed is not None]
            if not marks:
                return Tried(commit, "skip", f"{cell.prompt} with {cell.model}: {passes[0][1]}")
            if 2 * sum(marks) <= len(marks):
                failing[cell] = next(why for passed, why in passes if passed is False)
        if not seen:
            return Tried(commit, "skip", "none of the prompts and models that fail is there")
        if not failing:
            return Tried(commit, "good", "passes")
        told = "; ".join(f"{cell.prompt} with {cell.model}: {why}" for cell, why in failing.items())
        return Tried(commit, "bad", told, frozenset(failing))

    def _cells(self, subject: Experiment) -> Iterator[tuple[Cell, list[Task]]]:
        search = self.search
        draws = search.experiment.file.draws
        for prompt in subject.prompts:
            for configuration in subject.configurations(prompt):
                cell = Cell(prompt.id, configuration.name)
                chosen = not search.models or {cell.model, configuration.model.name} & {
                    *search.models
                }
                if chosen and search.wants(cell):
                    yield (
                        cell,
                        [Task(prompt, configuration, search.case, draw) for draw in range(draws)],
                    )

    async def _passes(self, task: Task, grader: Grading) -> tuple[bool | None, str]:
        lane = self.lanes.of(task.configuration.model, "generate")
        paid = await lane.answer(request_for(task))
        output = parse_output(paid.completion.text, task.prompt.expect)
        grade = await grader.grade(task.case, output, paid)
        failed = [part for part in grade.parts if part.passed is False or part.status == "error"]
        why = "; ".join(f"{part.name}: {part.reason}" for part in failed)
        return grade.passed, grade.reason or why or grade.status


def _from_the_middle(bad_at: int, good_at: int) -> list[int]:
    """Return the places between two, the middle first."""
    middle = (bad_at + good_at) / 2
    return sorted(range(bad_at + 1, good_at), key=lambda index: (abs(index - middle), index))


# --- the history ----------------------------------------------------------------------------------


def first_parents(repository: Repository, ref: str) -> list[Commit]:
    """Return a commit and its first-parent history, newest first."""
    start = repository.resolve(ref)
    answer = run_git(
        *("log", "--first-parent", "-z", f"--format={_FIELDS}", f"--max-count={_MOST_COMMITS}"),
        *(start, "--"),
        cwd=repository.root,
    )
    if answer.code:
        raise UsageError(f"git log failed: {answer.reason!r}", hint="see what `git log` says")
    return [Commit(*entry.split("\x1f")) for entry in text(answer.out).split("\0") if entry]


def prompt_diff(project: Project, repository: Repository, commit: str, path: str) -> str:
    """Return how a commit changed a prompt, as a unified diff; '' if it did not."""
    folder = project.root.resolve().relative_to(repository.root).as_posix()
    place = path if folder == "." else f"{folder}/{path}"
    parent = run_git("rev-parse", "--verify", "--quiet", f"{commit}^1", cwd=repository.root).line
    before, after = (
        (repository.read(at, place) or b"").decode("utf-8", "replace").splitlines() if at else []
        for at in (parent, commit)
    )
    lines = unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "\n".join(lines)
