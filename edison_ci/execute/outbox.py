"""How do finished cells reach the disk without anybody waiting for them?

The answers they rest on are there already: a cell that is lost is graded again, not bought again.
So cells are gathered and written many at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edison_ci.store.runs import finish_cells

if TYPE_CHECKING:
    from edison_ci.store.runs import CellRow
    from edison_ci.store.writer import Writer

_BATCH = 64
_LONGEST_WAIT_S = 0.02
_MOST_BATCHES = 8


class Outbox:
    """Cells on their way to the writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._cells: list[CellRow] = []
        self._batches: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None

    async def put(self, cell: CellRow) -> None:
        """Take a cell; waits only while too many are on their way, and raises if one failed."""
        if self._failure is not None:
            raise self._failure
        self._cells.append(cell)
        if len(self._cells) >= _BATCH:
            self._send()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LONGEST_WAIT_S, self._send)
        while len(self._batches) >= _MOST_BATCHES:
            await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Wait until everything is on the disk; raises if something could not be written."""
        self._send()
        if self._batches:
            await asyncio.wait(self._batches)
        if self._failure is not None:
            raise self._failure

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._cells:
            return
        cells, self._cells = self._cells, []
        batch = self._writer.begin(finish_cells(cells))
        self._batches.add(batch)
        batch.add_done_callback(self._sent)

    def _sent(self, batch: asyncio.Future[None]) -> None:
        self._batches.discard(batch)
        if not batch.cancelled() and batch.exception() is not None:
            self._failure = batch.exception()
