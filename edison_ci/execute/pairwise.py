"""Pairwise comparison of the answers of a run, as soon as both are stored.

The cell of a pair that is finished last finds the other one, in the buffer or on the disk, and the
two are compared before its worker continues. So no memory is used that grows with the number of
cases, and a resumed run compares what is left: the judge's replies are stored like all answers.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.execute.clients import judge_caller, record_judgments
from edison_ci.execute.tasks import Task, id_of_cell
from edison_ci.judges import pairwise as judge_pairwise
from edison_ci.judges import replies
from edison_ci.judges.panel import pairwise_judge
from edison_ci.records import CellStatus, Side
from edison_ci.store.answers import answer_at
from edison_ci.store.cells import CellRow, CellState, cell_state
from edison_ci.store.judgments import ComparisonRow, is_compared

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.config.models import Configuration, Model
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.runner import CellBuffer
    from edison_ci.execute.tasks import RunWork
    from edison_ci.judges.judge import Ask
    from edison_ci.judges.pairwise import Pairwise, Winner


# With a base, head against base: the same prompt, model, case and repeat. Otherwise every model
# against the first that is listed, or all against all, with the same prompt, case and repeat.
class Pair(NamedTuple):
    """Two cells whose answers are compared."""

    a: Task
    """Head, or the model that is listed later."""
    b: Task
    """Base, or the model that is listed first."""


def model_pairs(
    listed: Sequence[Configuration], *, all_pairs: bool
) -> list[tuple[Configuration, Configuration]]:
    """Return the models that are compared, in each pair the one that is listed first as second."""
    pairs = [(later, earlier) for earlier, later in combinations(listed, 2)]
    return [(a, b) for a, b in pairs if all_pairs or b is listed[0]]


@dataclass(frozen=True, slots=True)
class Opponents:
    """The cells that each cell is compared with."""

    against_base: bool
    model_pairs: dict[str, list[tuple[Configuration, Configuration]]]
    """By prompt; empty with a base."""

    @classmethod
    def of(cls, work: RunWork) -> Opponents:
        """Return the opponents in a run: its base, or its models among themselves."""
        if Side.BASE in work.sides:
            return cls(True, {})
        experiment = work.selection.narrow(work.sides[Side.HEAD])
        pairwise = experiment.file.judges.pairwise
        all_pairs = pairwise is not None and pairwise.all_pairs
        return cls(
            False,
            {
                prompt.id: model_pairs(experiment.configurations(prompt), all_pairs=all_pairs)
                for prompt in experiment.prompts
            },
        )

    def pairs(self, task: Task) -> Iterator[Pair]:
        """Yield every pair that a cell belongs to."""
        if self.against_base:
            if task.counterpart is not None:
                prompt, configuration = task.counterpart
                side = Side.BASE if task.side == Side.HEAD else Side.HEAD
                other = Task(prompt, configuration, task.case, task.repeat, side)
                yield Pair(task, other) if task.side == Side.HEAD else Pair(other, task)
            return
        for a, b in self.model_pairs.get(task.prompt.id, ()):
            if task.configuration.name in (a.name, b.name):
                yield Pair(replace(task, configuration=a), replace(task, configuration=b))


ANSWERED = (CellStatus.OK, CellStatus.MALFORMED)
"""Cells that are compared; those in error, blocked or skipped are missing."""


_Cell: TypeAlias = CellRow | CellState
"""A finished cell, on its way to the disk or there."""


class HeadToHead:
    """Compares the answers of a run in pairs."""

    def __init__(
        self,
        run_id: str,
        judge: Pairwise,
        opponents: Opponents,
        ask: Ask,
        reader: sqlite3.Connection,
    ) -> None:
        self._run_id, self._judge, self._opponents = run_id, judge, opponents
        self._ask, self._reader = ask, reader
        self._open: set[tuple[str, str]] = set()

    @classmethod
    def of(
        cls, run_id: str, work: RunWork, clients: ClientPool, reader: sqlite3.Connection
    ) -> HeadToHead | None:
        """Return the comparer of a run; None if its experiment has no pairwise judge."""
        judge = pairwise_judge(work.project, work.sides[Side.HEAD])
        if judge is None:
            return None
        ask = judge_caller(work.project, clients, phase="pairwise")
        return cls(run_id, judge, Opponents.of(work), ask, reader)

    async def compare_cell(self, task: Task, buffer: CellBuffer) -> None:
        """Compare a finished cell with every opponent that is finished too."""
        for pair in self._opponents.pairs(task):
            ids = (id_of_cell(self._run_id, pair.a), id_of_cell(self._run_id, pair.b))
            if ids in self._open or buffer.find(":".join(ids)) or is_compared(self._reader, *ids):
                continue
            a, b = (self._cell(cell_id, buffer) for cell_id in ids)
            if a is None or b is None:
                continue  # the other one will find this one when it is finished
            if a.status not in ANSWERED or b.status not in ANSWERED:
                continue
            self._open.add(ids)
            try:
                row = await self._compare(pair, ids, (a, b))
            finally:
                self._open.discard(ids)
            await buffer.put(row)

    def _cell(self, cell_id: str, buffer: CellBuffer) -> _Cell | None:
        waiting = buffer.find(cell_id)
        return waiting if isinstance(waiting, CellRow) else cell_state(self._reader, cell_id)

    async def _compare(
        self, pair: Pair, ids: tuple[str, str], cells: tuple[_Cell, _Cell]
    ) -> ComparisonRow:
        judgments = record_judgments()
        texts = [self._text(task, cell) for task, cell in zip(pair, cells, strict=True)]
        a, b = texts
        if a is None or b is None:
            failure = replies.Failure(
                replies.Missing.JUDGE_ERROR, "the text of an answer is no longer stored"
            )
            comparison = self._without_asking(
                judge_pairwise.Preference(None, failure.reason, failure), texts
            )
        elif CellStatus.MALFORMED in (cells[0].status, cells[1].status):
            comparison = self._without_asking(_prefer_well_formed(cells), texts)
        elif is_swapped(pair):
            comparison = (await self._judge.compare(pair.a.case, b, a, self._ask)).swap()
        else:
            comparison = await self._judge.compare(pair.a.case, a, b, self._ask)
        return ComparisonRow(
            *ids,
            run_id=self._run_id,
            judge=comparison.judge,
            judge_hash=comparison.hash,
            ab_winner=comparison.ab.winner,
            ba_winner=comparison.ba.winner,
            ab_reason=comparison.ab.reason,
            ba_reason=comparison.ba.reason,
            chars_a=comparison.chars_a,
            chars_b=comparison.chars_b,
            asked=comparison.asked,
            own=self._own(pair),
            judgments=tuple(judgments),
        )

    def _text(self, task: Task, cell: _Cell) -> str | None:
        stored = answer_at(self._reader, cell.request_hash, cell.answer_no)
        if stored is None:
            return None
        return parse_output(stored.completion.text, task.prompt.expect).text

    def _without_asking(
        self, preference: judge_pairwise.Preference, texts: list[str | None]
    ) -> judge_pairwise.Comparison:
        a, b = (len(text or "") for text in texts)
        judge = self._judge
        return judge_pairwise.Comparison(
            judge.judge.name, judge.hash, preference, preference, a, b, asked=False
        )

    def _own(self, pair: Pair) -> str | None:
        """Return whose answers the judge's own model wrote."""
        mine = _identity(self._judge.judge.model)
        a, b = (_identity(task.configuration.model) == mine for task in pair)
        if a and b:
            return "both"
        return "a" if a else "b" if b else None


def _prefer_well_formed(cells: tuple[_Cell, _Cell]) -> judge_pairwise.Preference:
    """Decide a pair with a malformed answer: it loses without being judged."""
    a, b = (cell.status is CellStatus.MALFORMED for cell in cells)
    winner: Winner = "tie" if a and b else "b" if a else "a"
    reason = "both answers are malformed" if a and b else "the other answer is malformed"
    return judge_pairwise.Preference(winner, reason)


def is_swapped(pair: Pair) -> bool:
    """Whether a takes the place of b: at random over cases, and always the same for one pair."""
    names = (task.side + "\0" + task.configuration.name for task in pair)
    key = "\0".join((pair.a.case.id, str(pair.a.repeat), pair.a.prompt.id, *names))
    return bool(hashlib.sha256(key.encode()).digest()[0] & 1)


def _identity(model: Model) -> tuple[str, str, str]:
    return (model.provider, model.address, model.model)
