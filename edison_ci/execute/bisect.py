"""Bisection: the commit that broke a case, found with few answers.

Prompts and models are taken from each commit that is tried, the eval suite from today's files, so
that only the variant changes. The search goes along the first-parent history: a merge counts as one
step. It halves the range at each step, and requests that two commits have in common are sent once:
answers are stored under the hash of the request.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.contracts import CallError
from edison_ci.documents.text_diff import unified_diff
from edison_ci.errors import UsageError
from edison_ci.execute.standalone import standalone_client
from edison_ci.execute.tasks import Task, request_for
from edison_ci.git.command import decode, run_git
from edison_ci.plan.baseline import base_of
from edison_ci.providers.resilience import ClientClosed
from edison_ci.records import CellStatus
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.run_options import RunContext
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
    """A prompt with a model, for the case that is searched."""

    prompt: str
    model: str


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Result of the case at a commit."""

    commit: Commit
    outcome: Literal["good", "bad", "skip"]
    why: str
    failing: frozenset[Cell] = frozenset()


@dataclass(frozen=True, slots=True)
class BisectResult:
    """Result of a bisection."""

    kind: Literal["found", "passes", "always", "between"]
    """`found`: one commit; `passes`: nothing is broken; `always`: it never passed; `between`: one
    of several, of which the inner ones cannot be tried."""
    commits: tuple[Commit, ...]
    """The commit that broke the case, or those among which it is, newest first."""
    failing: frozenset[Cell]
    results: tuple[CommitResult, ...]


@dataclass(slots=True)
class Bisection:
    """Searches for the commit that broke a case."""

    project: Project
    experiment: Experiment
    case: Case
    context: RunContext
    repository: Repository
    models: tuple[str, ...] = ()
    """Models that count; all when empty."""
    on_result: Callable[[CommitResult], None] = lambda _: None
    results: dict[str, CommitResult] = field(default_factory=dict)
    """By commit id, in the order in which they were tried."""
    _wanted: frozenset[Cell] = frozenset()

    async def run(
        self, good: str | None, bad: str, *, newer_than: str, budget_microusd: int | None
    ) -> BisectResult:
        """Return what broke the case; raises BudgetExhausted. Answers bought so far stay stored."""
        history = first_parents(self.repository, bad)
        opened = standalone_client(
            self.project, self.experiment, self.context, purpose="bisect", newer_than=newer_than
        )
        async with opened as clients:
            clients.budget.limit(budget_microusd)
            return await self._search(_CommitRunner(self, clients), history, good)

    async def _search(
        self, runner: _CommitRunner, history: list[Commit], good: str | None
    ) -> BisectResult:
        newest = await runner.try_at(history[0])
        if newest.outcome == "skip":
            raise UsageError(
                f"the case cannot be tried at {history[0].id[:8]}: {newest.why}",
                hint="choose another commit with --bad",
            )
        if newest.outcome == "good":
            return self._result("passes", history[:1])
        self._wanted = newest.failing
        if good is None:
            bad_at, good_at = await self._gallop(runner, history)
        else:
            bad_at, good_at = 0, await self._check_good(runner, history, good)
        if good_at is None:
            return self._result("always", history[bad_at : bad_at + 1])
        while good_at - bad_at > 1:
            for index in _from_the_middle(bad_at, good_at):
                result = await runner.try_at(history[index])
                if result.outcome != "skip":
                    break
            else:
                return self._result("between", history[bad_at:good_at])
            bad_at, good_at = (index, good_at) if result.outcome == "bad" else (bad_at, index)
        return self._result("found", history[bad_at : bad_at + 1])

    async def _gallop(self, runner: _CommitRunner, history: list[Commit]) -> tuple[int, int | None]:
        """Return the oldest bad commit found and the first good one before it."""
        bad_at, at, step = 0, 0, 1
        while at < len(history) - 1:
            at, step = min(at + step, len(history) - 1), 2 * step
            result = await runner.try_at(history[at])
            if result.outcome == "good":
                return bad_at, at
            if result.outcome == "bad":
                bad_at = at
        return bad_at, None

    async def _check_good(self, runner: _CommitRunner, history: list[Commit], good: str) -> int:
        commit = self.repository.resolve(good)
        at = next((i for i, step in enumerate(history) if step.id == commit), None)
        if not at:
            raise UsageError(
                f"{good!r} is not before {history[0].id[:8]} in its first-parent history",
                hint="choose a commit of the same branch with --good",
            )
        result = await runner.try_at(history[at])
        if result.outcome != "good":
            raise UsageError(
                f"the case does not pass at {good!r} either: {result.why}",
                hint="choose an older commit with --good, or none",
            )
        return at

    def wants(self, cell: Cell) -> bool:
        """Whether a cell counts: all at first, then those that fail at the newest commit."""
        return not self._wanted or cell in self._wanted

    def _result(
        self, kind: Literal["found", "passes", "always", "between"], commits: list[Commit]
    ) -> BisectResult:
        return BisectResult(kind, tuple(commits), self._wanted, tuple(self.results.values()))


@dataclass(frozen=True, slots=True)
class _CommitRunner:
    """Tries the case at commits."""

    search: Bisection
    clients: ClientPool

    async def try_at(self, commit: Commit) -> CommitResult:
        """Return the result of the case with the prompts and models of a commit."""
        search = self.search
        if commit.id not in search.results:
            search.results[commit.id] = await self._try(commit)
            search.on_result(search.results[commit.id])
        return search.results[commit.id]

    async def _try(self, commit: Commit) -> CommitResult:
        search = self.search
        base = base_of(search.project, search.experiment, commit.id, commit=commit.id)
        variant = base.variant_on(search.experiment)
        if variant is None:
            return CommitResult(
                commit, "skip", "the experiment, its prompts or its models are not there"
            )
        grader = search.context.grading(search.project, search.experiment, self.clients)
        failing: dict[Cell, str] = {}
        seen = 0
        for cell, tasks in self._cells(variant):
            seen += 1
            try:
                passes = [await self._passes(task, grader) for task in tasks]
            except (CallError, ClientClosed, MissingValueError, RenderError) as error:
                return CommitResult(commit, "skip", f"{cell.prompt} with {cell.model}: {error}")
            marks = [passed for passed, _ in passes if passed is not None]
            if not marks:
                return CommitResult(
                    commit, "skip", f"{cell.prompt} with {cell.model}: {passes[0][1]}"
                )
            if 2 * sum(marks) <= len(marks):
                failing[cell] = next(why for passed, why in passes if passed is False)
        if not seen:
            return CommitResult(commit, "skip", "none of the prompts and models that fail is there")
        if not failing:
            return CommitResult(commit, "good", "passes")
        why = "; ".join(f"{cell.prompt} with {cell.model}: {why}" for cell, why in failing.items())
        return CommitResult(commit, "bad", why, frozenset(failing))

    def _cells(self, variant: Experiment) -> Iterator[tuple[Cell, list[Task]]]:
        search = self.search
        repeats = search.experiment.file.repeats
        for prompt in variant.prompts:
            for configuration in variant.configurations(prompt):
                cell = Cell(prompt.id, configuration.name)
                chosen = not search.models or {cell.model, configuration.model.name} & {
                    *search.models
                }
                if chosen and search.wants(cell):
                    yield (
                        cell,
                        [
                            Task(prompt, configuration, search.case, repeat)
                            for repeat in range(repeats)
                        ],
                    )

    async def _passes(self, task: Task, grader: Grading) -> tuple[bool | None, str]:
        client = self.clients.of(task.configuration.model, "generate")
        answer = await client.answer(request_for(task))
        output = parse_output(answer.completion.text, task.prompt.expect, task.prompt.output)
        grade = await grader.grade(task.case, output, answer)
        failed = [
            component
            for component in grade.components
            if component.passed is False or component.status is CellStatus.ERROR
        ]
        why = "; ".join(f"{component.name}: {component.reason}" for component in failed)
        return grade.passed, grade.reason or why or grade.status


def _from_the_middle(bad_at: int, good_at: int) -> list[int]:
    """Return the indexes between two, the middle first."""
    middle = (bad_at + good_at) / 2
    return sorted(range(bad_at + 1, good_at), key=lambda index: (abs(index - middle), index))


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
    return [Commit(*entry.split("\x1f")) for entry in decode(answer.out).split("\0") if entry]


def prompt_diff(project: Project, repository: Repository, commit: str, path: str) -> str:
    """Return the change of a prompt in a commit as a unified diff; '' if there is none."""
    place = repository.prefix_of(project.root) + path
    parent = run_git("rev-parse", "--verify", "--quiet", f"{commit}^1", cwd=repository.root).line
    before, after = (
        (repository.read(at, place) or b"").decode("utf-8", "replace").splitlines() if at else []
        for at in (parent, commit)
    )
    lines = unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "\n".join(lines)
