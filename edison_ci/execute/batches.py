"""Batches of a run: calls are gathered, submitted together, and collected by a later process.

Only answers are bought in batches; judges are called when the answers are there. A call that waits
in a batch is never bought a second time. A batch is stored before it is submitted: after a crash
in between it is looked for at the provider, and only what is not there counts as lost.
"""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from dataclasses import field, replace
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NoReturn

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.numeric import counted
from edison_ci.providers import batches as provider_batches
from edison_ci.providers.budget import AwaitsBatch, sanitize_completion
from edison_ci.store.batches import (
    BatchCall,
    NewBatch,
    all_of,
    known_remotes,
    note_batch,
    open_batches,
    open_calls,
    prepare,
)
from edison_ci.store.ledger import lose, release, settle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterable

    from edison_ci.providers.batches import BatchService, RemoteBatch
    from edison_ci.providers.budget import Budgeted, StoredAnswer
    from edison_ci.providers.client import Cached
    from edison_ci.records import Request
    from edison_ci.store.batches import OpenCall, StoredBatch
    from edison_ci.store.ledger import BudgetRefusal, OnTotals

logger = logging.getLogger(__name__)

POLL_S = 60.0
_WRITTEN = 200
"""Results that are stored in one transaction."""
_MOST_GATHERED = 10_000
_MOST_GATHERED_BYTES = 50_000_000
"""Calls that are held in memory; then they are submitted."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class BatchClient:
    """A model whose answers are bought in batches."""

    service: BatchService
    budgeted: Budgeted
    """Books and settles at the price of a batch."""
    usual: Budgeted
    """Books at the price of single calls."""


@dataclass(slots=True)
class _Gathered:
    """Calls of one model that are to be submitted."""

    requests: dict[str, tuple[Request, str | None]] = field(default_factory=dict)
    size: int = 0


class RunBatches:
    """The batches of a run: what it gathers, and what it collected."""

    def __init__(self, reader: sqlite3.Connection, *, wanted: bool | None) -> None:
        self.reader = reader
        self.wanted = wanted
        """Whether this process puts calls into batches; False also gives up those that are not
        at the provider any more."""
        self.answered: set[str] = set()
        """Calls that a batch answered, as this process has collected it."""
        self.failed: dict[str, CallError] = {}
        """Calls that a batch answered with an error, as this process has collected it."""
        self.refused: BudgetRefusal | None = None
        self.singly = False
        """Whether calls are made at once for now."""
        self.closed: dict[str, str] = {}
        """Models whose batch was refused, and why."""
        self._gathered: dict[str, _Gathered] = {}
        self._clients: dict[str, BatchClient] = {}

    def ask_singly(self, singly: bool) -> None:
        """Make calls at once, or in batches again: judges are tried before a batch is paid for."""
        self.singly = singly

    async def gather(
        self, client: BatchClient, request: Request, newer_than: str | None
    ) -> NoReturn:
        """Add a call to the next batch of its model; always raises AwaitsBatch."""
        name = client.budgeted.model
        self._clients[name] = client
        mine = self._gathered.setdefault(name, _Gathered())
        if request.request_hash not in mine.requests:
            mine.requests[request.request_hash] = (request, newer_than)
            mine.size += sum(len(message.content) for message in request.messages)
            most = min(_MOST_GATHERED, client.service.most_requests)
            if len(mine.requests) >= most or mine.size >= _MOST_GATHERED_BYTES:
                await self._submit(name)
        raise AwaitsBatch("that is submitted next")

    async def submit(self) -> None:
        """Submit what was gathered."""
        for name in list(self._gathered):
            await self._submit(name)

    async def _submit(self, name: str) -> None:
        gathered, client = self._gathered.pop(name, _Gathered()), self._clients[name]
        if not gathered.requests or self.refused is not None or name in self.closed:
            return
        budget = client.budgeted.budget
        batch = NewBatch(f"edison-{uuid.uuid4().hex[:16]}", budget.run_id, name, budget.now())
        lines, calls = [], []
        for number, (request, newer_than) in enumerate(gathered.requests.values()):
            line, formed = client.service.request(f"{batch.id}-{number}", request)
            booking = client.budgeted.booking(request, newer_than)
            usual = client.usual.booking(request, newer_than).est_microusd
            calls.append(BatchCall(booking, usual, formed, request.left_out))
            lines.append(line)
        await budget.lease_more(sum(call.booking.est_microusd for call in calls))
        calls = [replace(call, booking=replace(call.booking, **budget.terms())) for call in calls]
        prepared = await budget.writer.write(prepare(batch, calls))
        self.refused = prepared.refused
        if prepared.numbers:
            await self._create(client, batch, [lines[number] for number in prepared.numbers])

    async def _create(self, client: BatchClient, batch: NewBatch, lines: list[bytes]) -> None:
        budget = client.budgeted.budget
        try:
            remote = await client.service.create(batch.id, lines)
        except CallError as error:
            error.rewrite(budget.redact)
            if error.charged:  # it may be there: a later process looks for it
                logger.warning("a batch may not have arrived", extra={"reason": error.message})
                return
            stored = self._stored(batch.id)
            await self._release(client, stored, open_calls(self.reader, stored), error.message)
            self.closed[batch.model] = f"the batch was refused: {error.message}"
            return
        await budget.writer.write(
            note_batch(
                batch.id,
                state="submitted",
                status=remote.status,
                now=budget.now(),
                remote_id=remote.id,
            )
        )

    def _stored(self, batch_id: str) -> StoredBatch:
        run_id = next(iter(self._clients.values())).budgeted.budget.run_id
        return next(
            batch for batch in open_batches(self.reader, run_id=run_id) if batch.id == batch_id
        )

    async def collect(
        self,
        experiment: str,
        client_of: Callable[[str], BatchClient | None],
        tell: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] | None,
    ) -> None:
        """Collect the ended batches of an experiment; with `sleep`, wait for the others."""
        waiting = open_batches(self.reader, experiment=experiment)
        while waiting:
            still = []
            for batch in waiting:
                client = client_of(batch.model)
                if client is None:
                    tell(f"batch {batch.id}: model {batch.model!r} is not called in batches now")
                elif not await self._collect(batch, client, tell):
                    still.append(batch)
            if sleep is None or not still:
                return
            await sleep(POLL_S)
            waiting = still

    async def _collect(
        self, batch: StoredBatch, client: BatchClient, tell: Callable[[str], None]
    ) -> bool:
        """Collect a batch if it has ended; return whether it needs no more waiting."""
        budget = client.budgeted.budget
        try:
            remote = await self._check(batch, client)
            if remote is None:
                return True
            if not remote.ended:
                tell(f"batch {remote.id} since {batch.created_at[:16]} UTC: {remote.status}")
                return False
            with TemporaryFile() as file:
                await client.service.fetch(remote, file)
                await _Collection(self, batch, client, remote).store(
                    provider_batches.read_lines(file), tell
                )
        except CallError as error:
            error.rewrite(budget.redact)
            notice = f"batch {batch.remote_id or batch.id} cannot be collected: {error.message}"
            if error.status == 404 and self.wanted is False:
                await self._lose(batch, client, "the provider no longer has the batch")
            elif error.status == 404:
                notice += "; give it up with: edison resume --no-batch"
            tell(notice)
            return not error.retried
        tell(f"batch {remote.id} is collected: {remote.status}")
        return True

    async def _check(self, batch: StoredBatch, client: BatchClient) -> RemoteBatch | None:
        """Return the state of a batch at the provider; None if it never got there."""
        service = client.service
        if batch.remote_id is not None:
            remote = await service.check(batch.remote_id)
        else:
            submitted = await service.find(batch.id, batch.requests, known_remotes(self.reader))
            if submitted is None:
                await self._lose(batch, client, "the batch was not submitted as far as is known")
                return None
            remote = submitted
        await self.note(batch, client, "submitted", remote.status, remote.id)
        return remote

    async def note(
        self,
        batch: StoredBatch,
        client: BatchClient,
        state: str,
        status: str,
        remote_id: str | None = None,
    ) -> None:
        """Write the state of a batch."""
        budget = client.budgeted.budget
        noted = note_batch(
            batch.id, state=state, status=status, now=budget.now(), remote_id=remote_id
        )
        await budget.writer.write(noted)

    async def _lose(self, batch: StoredBatch, client: BatchClient, why: str) -> None:
        """Count the calls of a batch as perhaps charged; they are asked again."""
        budget = client.budgeted.budget
        calls = open_calls(self.reader, batch).values()
        lost = [lose(call.attempt, now=budget.now(), error=why) for call in calls]
        await budget.writer.write(all_of(lost))
        await self.note(batch, client, "lost", why)

    async def _release(
        self, client: BatchClient, batch: StoredBatch, calls: dict[str, OpenCall], why: str
    ) -> None:
        budget = client.budgeted.budget
        freed = [
            release(call.booking, call.attempt, now=budget.now(), error=why)
            for call in calls.values()
        ]
        await budget.writer.write(all_of(freed))
        await self.note(batch, client, "lost", why)


class _Collection:
    """Stores the results of one batch."""

    def __init__(
        self, run: RunBatches, batch: StoredBatch, client: BatchClient, remote: RemoteBatch
    ) -> None:
        self._run, self._batch, self._client, self._remote = run, batch, client, remote
        self._now = client.budgeted.budget.now()
        began = dt.datetime.fromisoformat(batch.created_at)
        ended = dt.datetime.fromisoformat(self._now)
        self._latency_ms = max(round((ended - began).total_seconds() * 1000), 0)
        self._operations: list[OnTotals[Any]] = []
        self._strange: list[str] = []
        self._unread = 0

    async def store(
        self, lines: Iterable[dict[str, Any] | None], tell: Callable[[str], None]
    ) -> None:
        """Store what each line says; then close the calls that no line is about."""
        run, service = self._run, self._client.service
        calls = open_calls(run.reader, self._batch)
        for line in lines:
            result = None if line is None else service.result(line)
            call = None if result is None else calls.pop(result.custom_id, None)
            if result is None:
                self._unread += 1
            elif call is None:
                self._strange.append(result.custom_id)
            else:
                self._operations.append(self._close(call, result))
            if len(self._operations) >= _WRITTEN:
                await self._write()
        for name, call in calls.items():
            self._operations.append(self._close(call, self._missing(name)))
        await self._write()
        await run.note(self._batch, self._client, "collected", self._remote.status)
        self._report(tell)

    async def _write(self) -> None:
        operations, self._operations = self._operations, []
        await self._client.budgeted.budget.writer.write(all_of(operations))

    def _missing(self, name: str) -> provider_batches.BatchResult:
        """Return the result of a call that no line is about."""
        if self._remote.failure:
            refused = CallError(ErrorKind.BAD_REQUEST, self._remote.failure, charged=False)
            return provider_batches.BatchResult(name, error=refused)
        if self._remote.cut_short:
            return provider_batches.BatchResult(name)
        message = "the batch has no result for this call"
        return provider_batches.BatchResult(name, error=CallError(ErrorKind.BAD_RESPONSE, message))

    def _close(self, call: OpenCall, result: provider_batches.BatchResult) -> OnTotals[Any]:
        """Return the operation that ends a call: with its answer, or with why it has none."""
        budgeted, error = self._client.budgeted, result.error
        budget, request_hash = budgeted.budget, call.booking.request_hash
        if result.reply is not None:
            try:
                answer = self._client.service.read(
                    result.reply, self._latency_ms, formed=call.formed
                )
            except CallError as unreadable:
                error = unreadable
            else:
                answer = replace(answer, left_out=call.left_out)
                completion = sanitize_completion(answer, budget.redact)
                self._run.answered.add(request_hash)
                settlement = budgeted.settlement(call.booking, completion)
                budget.on_bought(request_hash, settlement)
                return settle(call.booking, call.attempt, settlement)
        if error is None:  # expired or cancelled: it is asked again
            why = "not answered before the batch ended"
            return release(call.booking, call.attempt, now=self._now, error=why)
        error.rewrite(budget.redact)
        self._run.failed[request_hash] = error
        if error.charged:
            return lose(call.attempt, now=self._now, error=str(error))
        return release(call.booking, call.attempt, now=self._now, error=str(error))

    def _report(self, tell: Callable[[str], None]) -> None:
        """Name the lines that are not results of this batch."""
        if self._strange:
            named = ", ".join(repr(name[:80]) for name in self._strange[:_NAMED])
            more = ", ..." if len(self._strange) > _NAMED else ""
            count = counted(len(self._strange), "result")
            tell(f"batch {self._remote.id}: {count} ignored, unknown or twice: {named}{more}")
        if self._unread:
            count = counted(self._unread, "line")
            tell(f"batch {self._remote.id}: {count} ignored, not a result or too long")


class BatchedAnswers:
    """Answers of a model that is called in batches: stored ones, or a place in the next batch."""

    def __init__(
        self,
        run: RunBatches,
        client: BatchClient,
        single: Cached,
        newer_than: str,
    ) -> None:
        self._run, self._client, self._single = run, client, single
        self._newer_than = newer_than

    async def answer(self, request: Request) -> StoredAnswer:
        """Return the stored answer; raises AwaitsBatch while there is none, or CallError."""
        run = self._run
        if not (run.wanted or run.answered or run.failed):
            return await self._single.answer(request)
        stored, asked = self._single.stored(request)
        if stored is not None:
            return replace(stored, bought=request.request_hash in run.answered)
        if (shared := await self._single.shared(asked)) is not None:
            return shared
        if (error := run.failed.get(request.request_hash)) is not None:
            raise error
        if run.singly or not run.wanted:
            return await self._single.answer(asked)
        newer_than = max(self._newer_than, asked.not_before)
        return await run.gather(self._client, asked, newer_than)
