"""The buffer through which finished cells and comparisons reach the disk.

The answers they rest on are there already: a cell that is lost is graded again, not bought again.
So they are gathered and written many at a time, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edison_ci.store.comparisons import ComparisonRow, store_comparisons
from edison_ci.store.runs import CellRow, finish_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.store.writer import Operation, Writer

_BATCH = 64
_LONGEST_WAIT_S = 0.02
_MOST_BATCHES = 8


class Outbox:
    """Cells and comparisons on their way to the writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rows: list[CellRow | ComparisonRow] = []
        self._unwritten: dict[str, CellRow | ComparisonRow] = {}
        self._batches: dict[asyncio.Future[None], list[str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None

    async def put(self, row: CellRow | ComparisonRow) -> None:
        """Take a row; waits only while too many are on their way, and raises if one failed."""
        if self._failure is not None:
            raise self._failure
        self._rows.append(row)
        self._unwritten[row.id] = row
        if len(self._rows) >= _BATCH:
            self._send()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LONGEST_WAIT_S, self._send)
        while len(self._batches) >= _MOST_BATCHES:
            await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)

    def find(self, row_id: str) -> CellRow | ComparisonRow | None:
        """Return a row that is not on the disk yet."""
        return self._unwritten.get(row_id)

    async def close(self) -> None:
        """Wait until everything is on the disk; raises if something could not be written."""
        self._send(within_s=0.0)
        if self._batches:
            await asyncio.wait(self._batches)
        if self._failure is not None:
            raise self._failure

    def _send(self, *, within_s: float = _LONGEST_WAIT_S) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows, self._rows = self._rows, []
        # Cells first: a comparison names them.
        if cells := [row for row in rows if isinstance(row, CellRow)]:
            self._begin(finish_cells(cells), cells, within_s)
        if compared := [row for row in rows if isinstance(row, ComparisonRow)]:
            self._begin(store_comparisons(compared), compared, within_s)

    def _begin(
        self,
        operation: Operation[None],
        rows: Sequence[CellRow | ComparisonRow],
        within_s: float,
    ) -> None:
        # Nobody waits for them, so they go with the next answers; alone they would cost a commit.
        batch = self._writer.begin(operation, within_s=within_s)
        self._batches[batch] = [row.id for row in rows]
        batch.add_done_callback(self._sent)

    def _sent(self, batch: asyncio.Future[None]) -> None:
        written = self._batches.pop(batch)
        if not batch.cancelled() and batch.exception() is not None:
            self._failure = batch.exception()
            return
        for row_id in written:
            self._unwritten.pop(row_id, None)
