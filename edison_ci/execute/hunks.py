"""Blame of a diff: which of the changed lines of a prompt fixed or broke which cases.

A hunk is a line that was added, removed or rewritten, with the lines that continue it; lines that
were rewritten together in another number are one hunk. Each hunk is taken out of the new prompt
alone, and the cases that flipped are asked again. A hunk without which a case passes or fails as it
did before is the reason for the flip. Answers are stored under the hash of their request, so asking
again costs nothing, and a hunk that does not change what is sent, such as one in a description,
makes no call.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config.prompt import read_prompt
from edison_ci.documents.text_diff import matcher
from edison_ci.execute.standalone import NotAnswered, TrialAnswer, try_all
from edison_ci.execute.tasks import Task
from edison_ci.plan.selection import find_case, find_configuration
from edison_ci.records import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.run_options import RunContext
    from edison_ci.results.run_result import RunResult

Place = tuple[int, int]
"""First line, and the line after the last, from 0."""
FLIPS = (Move.NEWLY_FAILING, Move.FIXED)


class Hunk(NamedTuple):
    """A place that a change touches."""

    old: Place
    new: Place
    removed: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def title(self) -> str:
        """Where it is in the new text."""
        first, last = self.new[0] + 1, max(self.new[1], self.new[0] + 1)
        return f"line {first}" if first == last else f"lines {first} to {last}"


class Flip(NamedTuple):
    """A case that flipped with a model."""

    case: str
    model: str
    move: Move


@dataclass(slots=True)
class HunkBlame:
    """A hunk, and the flips that do not happen without it."""

    hunk: Hunk
    flips: list[Flip] = field(default_factory=list)
    problem: str = ""
    """Why the prompt cannot be used without it; empty if it can."""


@dataclass(slots=True)
class DiffBlame:
    """The hunks of a change, and the flips that none of them explains alone."""

    hunks: list[HunkBlame]
    together: list[Flip] = field(default_factory=list)
    """They happen without any single hunk: several have to come together, or it was chance."""
    unknown: list[Flip] = field(default_factory=list)
    """Not every question about them was answered."""
    calls: int = 0
    cost_microusd: int = 0
    problem: str = ""
    """Why answers are missing, such as a budget; empty if none is."""


def flips_of(result: RunResult) -> dict[str, list[Flip]]:
    """Return the flips of a run against its base, by prompt."""
    flips: dict[str, list[Flip]] = {}
    for change in result.changes:
        for move in FLIPS:
            flips.setdefault(change.prompt, []).extend(
                Flip(case.case, change.model, move) for case in change.comparison.moved[move]
            )
    return flips


def hunks_of(before: str, after: str) -> list[Hunk]:
    """Return the changed places of a text."""
    a, b = before.splitlines(), after.splitlines()
    return [
        Hunk((i1, i2), (j1, j2), tuple(a[i1:i2]), tuple(b[j1:j2]))
        for tag, *place in matcher(a, b).get_opcodes()
        if tag != "equal"
        for (i1, i2), (j1, j2) in _pieces(a, b, (place[0], place[1]), (place[2], place[3]))
    ]


def _pieces(
    a: Sequence[str], b: Sequence[str], old: Place, new: Place
) -> list[tuple[Place, Place]]:
    """Return the places of a changed block that can be taken back one by one."""
    sizes = old[1] - old[0], new[1] - new[0]
    if sizes[0] == 0:
        return [(old, place) for place in _items(b, *new)]
    if sizes[1] == 0:
        return [(place, new) for place in _items(a, *old)]
    if sizes[0] == sizes[1]:
        return [((i, i + 1), (j, j + 1)) for i, j in zip(range(*old), range(*new), strict=True)]
    return [(old, new)]


def _items(lines: Sequence[str], first: int, end: int) -> list[Place]:
    """Return lines, each with the empty and indented ones that continue it; a section is whole."""
    if any(line.startswith("# ") for line in lines[first:end]):
        return [(first, end)]
    starts = [
        at for at in range(first, end)
        if at == first or (lines[at].strip() and not lines[at][0].isspace())
    ]  # fmt: skip
    return [*zip(starts, [*starts[1:], end], strict=True)]


def without(after: str, hunk: Hunk) -> str:
    """Return a text with one of its changes taken back."""
    lines = after.splitlines()
    lines[hunk.new[0] : hunk.new[1]] = hunk.removed
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class HunkSearch:
    """Asks the cases that flipped with each hunk taken out."""

    project: Project
    experiment: Experiment
    prompt: Prompt
    context: RunContext
    budget_microusd: int | None = None
    on_answer: Callable[[int, int], None] = lambda _done, _of: None

    def blame(self, before: str, after: str, flips: Sequence[Flip]) -> DiffBlame:
        """Return which hunk is the reason for which flips."""
        blame = DiffBlame([HunkBlame(hunk) for hunk in hunks_of(before, after)])
        asked: list[tuple[HunkBlame, Flip, Task]] = []
        for hunk_blame in blame.hunks:
            prompt, problems = read_prompt(
                without(after, hunk_blame.hunk).encode(), self.prompt.path
            )
            if prompt is None or prompt.id != self.prompt.id or problems:
                hunk_blame.problem = problems[0].message if problems else "its id is another one"
                continue
            asked += [(hunk_blame, flip, self._task(prompt, flip)) for flip in flips]
        answers: dict[int, TrialAnswer] = {}
        answered = 0

        def take(number: int, result: TrialAnswer | Exception) -> None:
            nonlocal answered
            answered += 1
            if isinstance(result, TrialAnswer):
                answers[number] = result
                blame.calls += result.answer.bought
                blame.cost_microusd += result.answer.cost_microusd if result.answer.bought else 0
            elif isinstance(result, NotAnswered) or not blame.problem:
                blame.problem = str(result)
            self.on_answer(answered, len(asked))

        reuse = dt.timedelta(days=self.project.file.settings.reuse_days)
        try_all(
            self.project,
            [task for _, _, task in asked],
            self.experiment,
            self.context,
            newer_than=utc.timestamp(utc.now() - reuse),
            on_result=take,
            budget_microusd=self.budget_microusd,
        )
        self._assign(blame, [(hunk_blame, flip) for hunk_blame, flip, _ in asked], answers, flips)
        return blame

    def _task(self, prompt: Prompt, flip: Flip) -> Task:
        configuration = find_configuration(self.experiment, prompt, flip.model)
        assert configuration is not None  # it has a name
        return Task(prompt, configuration, find_case(self.project, self.experiment, flip.case), 0)

    def _assign(
        self,
        blame: DiffBlame,
        asked: Sequence[tuple[HunkBlame, Flip]],
        answers: dict[int, TrialAnswer],
        flips: Sequence[Flip],
    ) -> None:
        explained, open_ = set(), set()
        for number, (hunk_blame, flip) in enumerate(asked):
            tried = answers.get(number)
            if tried is None or tried.grade.passed is None:
                open_.add(flip)
            elif tried.grade.passed is (flip.move is Move.NEWLY_FAILING):  # as it was before
                hunk_blame.flips.append(flip)
                explained.add(flip)
        left = [flip for flip in flips if flip not in explained]
        blame.unknown = [flip for flip in left if flip in open_]
        blame.together = [flip for flip in left if flip not in open_]
