"""Pairwise comparison of answers of a run, once both are there.

Whichever cell of a pair is finished last finds the other one, in the outbox or on the disk, and has
the two compared before its worker goes on. So nothing is held that grows with the number of cases,
and a run that is resumed compares what is left: its judge's replies are stored like all answers.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.execute.grading import asking, hearing
from edison_ci.execute.runner import Task, id_of_cell
from edison_ci.execute.work import BASE, HEAD
from edison_ci.judges.judging import comparing
from edison_ci.judges.pairwise import Comparison, Preference
from edison_ci.judges.replies import Failure, Missing
from edison_ci.store.answers import answer_at
from edison_ci.store.comparisons import ComparisonRow, is_compared
from edison_ci.store.runs import CellRow, CellState, cell_state

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.config.models import Configuration, Model
    from edison_ci.execute.cell_buffer import Outbox
    from edison_ci.execute.clients import Lanes
    from edison_ci.execute.work import Work
    from edison_ci.judges.judging import Ask
    from edison_ci.judges.pairwise import Pairwise, Winner


# With a base, head against base: the same prompt, model, case and draw. Otherwise every model
# against the first that is listed, or all against all, with the same prompt, case and draw.
class Pair(NamedTuple):
    """Two cells: what is asked about, and what it is held against."""

    a: Task
    """Head, or the model that is listed later."""
    b: Task
    """Base, or the model that is listed first."""


def couples(
    listed: Sequence[Configuration], *, all_pairs: bool
) -> list[tuple[Configuration, Configuration]]:
    """Return which models are set against each other, the one that is listed first as second."""
    found = [(later, earlier) for earlier, later in combinations(listed, 2)]
    return [(a, b) for a, b in found if all_pairs or b is listed[0]]


@dataclass(frozen=True, slots=True)
class Rivals:
    """Knows the other side of every cell."""

    against_base: bool
    couples: dict[str, list[tuple[Configuration, Configuration]]]
    """By prompt; empty with a base."""

    @classmethod
    def of(cls, work: Work) -> Rivals:
        """Return the rivals in the cells of a run."""
        if BASE in work.sides:
            return cls(True, {})
        experiment = work.selection.narrow(work.sides[HEAD])
        pairwise = experiment.file.judges.pairwise
        all_pairs = pairwise is not None and pairwise.all_pairs
        return cls(
            False,
            {
                prompt.id: couples(experiment.configurations(prompt), all_pairs=all_pairs)
                for prompt in experiment.prompts
            },
        )

    def pairs(self, task: Task) -> Iterator[Pair]:
        """Yield every pair that a cell belongs to."""
        if self.against_base:
            if task.twin is not None:
                prompt, configuration = task.twin
                side = BASE if task.side == HEAD else HEAD
                other = Task(prompt, configuration, task.case, task.draw, side)
                yield Pair(task, other) if task.side == HEAD else Pair(other, task)
            return
        for a, b in self.couples.get(task.prompt.id, ()):
            if task.configuration.name in (a.name, b.name):
                yield Pair(replace(task, configuration=a), replace(task, configuration=b))


ANSWERED = ("ok", "malformed")
"""Cells that are compared; those in error, blocked or skipped are missing."""


_Cell: TypeAlias = CellRow | CellState
"""A finished cell, on its way to the disk or there."""


class HeadToHead:
    """Has the answers of a run compared."""

    def __init__(
        self, run_id: str, judge: Pairwise, rivals: Rivals, ask: Ask, reader: sqlite3.Connection
    ) -> None:
        self._run_id, self._judge, self._rivals = run_id, judge, rivals
        self._ask, self._reader = ask, reader
        self._open: set[tuple[str, str]] = set()

    @classmethod
    def of(
        cls, run_id: str, work: Work, lanes: Lanes, reader: sqlite3.Connection
    ) -> HeadToHead | None:
        """Return what compares the answers of a run; None if its experiment asks for nothing."""
        judge = comparing(work.project, work.sides[HEAD])
        if judge is None:
            return None
        ask = asking(work.project, lanes, phase="pairwise")
        return cls(run_id, judge, Rivals.of(work), ask, reader)

    async def see(self, task: Task, outbox: Outbox) -> None:
        """Compare a finished cell with every rival that is finished too."""
        for pair in self._rivals.pairs(task):
            ids = (id_of_cell(self._run_id, pair.a), id_of_cell(self._run_id, pair.b))
            if ids in self._open or outbox.find(":".join(ids)) or is_compared(self._reader, *ids):
                continue
            a, b = (self._cell(cell_id, outbox) for cell_id in ids)
            if a is None or b is None:
                continue  # the other one is on its way, and will find this one
            if a.status not in ANSWERED or b.status not in ANSWERED:
                continue
            self._open.add(ids)
            try:
                row = await self._compared(pair, ids, (a, b))
            finally:
                self._open.discard(ids)
            await outbox.put(row)

    def _cell(self, cell_id: str, outbox: Outbox) -> _Cell | None:
        waiting = outbox.find(cell_id)
        return waiting if isinstance(waiting, CellRow) else cell_state(self._reader, cell_id)

    async def _compared(
        self, pair: Pair, ids: tuple[str, str], cells: tuple[_Cell, _Cell]
    ) -> ComparisonRow:
        heard = hearing()
        texts = [self._text(task, cell) for task, cell in zip(pair, cells, strict=True)]
        a, b = texts
        if a is None or b is None:
            gone = Failure(Missing.JUDGE_ERROR, "the text of an answer is no longer stored")
            found = self._without_asking(Preference(None, gone.reason, gone), texts)
        elif "malformed" in (cells[0].status, cells[1].status):
            found = self._without_asking(_by_form(cells), texts)
        elif stands_in_the_other_place(pair):
            found = (await self._judge.compare(pair.a.case, b, a, self._ask)).turned()
        else:
            found = await self._judge.compare(pair.a.case, a, b, self._ask)
        return ComparisonRow(
            *ids,
            run_id=self._run_id,
            judge=found.judge,
            judge_hash=found.hash,
            ab_winner=found.ab.winner,
            ba_winner=found.ba.winner,
            ab_reason=found.ab.reason,
            ba_reason=found.ba.reason,
            chars_a=found.chars_a,
            chars_b=found.chars_b,
            asked=found.asked,
            own=self._own(pair),
            judgments=tuple(heard),
        )

    def _text(self, task: Task, cell: _Cell) -> str | None:
        stored = answer_at(self._reader, cell.address, cell.take)
        if stored is None:
            return None
        return parse_output(stored.completion.text, task.prompt.expect).text

    def _without_asking(self, said: Preference, texts: list[str | None]) -> Comparison:
        a, b = (len(text or "") for text in texts)
        judge = self._judge
        return Comparison(judge.judge.name, judge.hash, said, said, a, b, asked=False)

    def _own(self, pair: Pair) -> str | None:
        """Return whose answers the judge's own model wrote."""
        mine = _identity(self._judge.judge.model)
        a, b = (_identity(task.configuration.model) == mine for task in pair)
        if a and b:
            return "both"
        return "a" if a else "b" if b else None


def _by_form(cells: tuple[_Cell, _Cell]) -> Preference:
    """Decide a pair of which an answer is malformed: it is worth nothing, and is not judged."""
    a, b = (cell.status == "malformed" for cell in cells)
    winner: Winner = "tie" if a and b else "b" if a else "a"
    said = "both answers are malformed" if a and b else "the other answer is malformed"
    return Preference(winner, said)


def stands_in_the_other_place(pair: Pair) -> bool:
    """Whether a stands in the place of b: at random for each case, and always the same way."""
    names = (task.side + "\0" + task.configuration.name for task in pair)
    told = "\0".join((pair.a.case.id, str(pair.a.draw), pair.a.prompt.id, *names))
    return bool(hashlib.sha256(told.encode()).digest()[0] & 1)


def _identity(model: Model) -> tuple[str, str, str]:
    return (model.provider, model.endpoint, model.model)
