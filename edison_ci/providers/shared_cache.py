"""The shared cache: answers by request hash, on any HTTP server that takes GET and PUT.

An object is named by the hash of its request and has two lines. The first is `edison-answer 1`, and
`ed25519 KEY SIGNATURE`, or `unsigned SHA256`; the second is the answer as JSON, with the hash of
its request, its tokens, cost and time. What does not fit its signature, its checksum or its name is
refused, and the model is asked. An answer that is signed with a key of `trust.yaml` counts like one
that was bought here; any other counts as a replay, and makes its run inconclusive at best.

The cache never fails a run: what it does not deliver in time is bought, what it does not take stays
here, and after a few failures it is left alone.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.signatures import signer_of
from edison_ci.errors import UsageError
from edison_ci.numeric import counted, fixed
from edison_ci.providers.budget import store_unpaid
from edison_ci.providers.openai_compatible import token_count
from edison_ci.providers.transport import Transport
from edison_ci.records import Completion, FinishReason, canonical_json
from edison_ci.safety.redaction import redact_completion
from edison_ci.store.answers import Settlement
from edison_ci.store.runs import add_doubt

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from edison_ci.documents.signatures import Signer
    from edison_ci.providers.budget import RunBudget, StoredAnswer
    from edison_ci.providers.transport import Service
    from edison_ci.records import Json, Request

FOREIGN = "Answers come from the shared cache without a signature that is trusted here."
"""Why a run with such answers is inconclusive at best."""


_ABOUT = b"edison-ci answer 1\n"
"""Prefix of the digest, so that signatures of other things are not valid."""
_FIRST = b"edison-answer 1 "
_LONGEST_HEAD = 300
MOST_BYTES = 4_000_000
_LARGEST = 10**12
"""Of a cost in micro-dollars: sums of a million such answers can still be computed."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_HASH = re.compile(r"[0-9a-f]{64}")


class NotAnObject(Exception):
    """The server returned something else than an object of this cache."""


class RefusedObject(Exception):
    """An object was changed, cut off, renamed, or cannot be read."""


@dataclass(frozen=True, slots=True)
class SharedAnswer:
    """An answer in the shared cache."""

    completion: Completion
    cost_microusd: int
    cost_kind: Literal["billed", "estimated"]
    created_at: str
    trusted: bool
    """Whether it is signed with a trusted key."""


def write_object(request_hash: str, settlement: Settlement, signer: Signer) -> bytes:
    """Return the object of an answer that was bought."""
    completion = settlement.completion
    value = {
        "request_hash": request_hash,
        "text": completion.text,
        "tool_calls": completion.tool_calls,
        "details": completion.details,
        "finish_reason": str(completion.finish_reason),
        "tokens_in": completion.tokens_in,
        "tokens_out": completion.tokens_out,
        "cached_in": completion.cached_in,
        "latency_ms": completion.latency_ms,
        "served_model": completion.served_model,
        "left_out": list(completion.left_out),
        "cost_microusd": settlement.cost_microusd,
        "cost_kind": settlement.cost_kind,
        "created_at": settlement.now,
    }
    body = canonical_json(value).encode()
    signed = signer.sign(_ABOUT, hashlib.sha256(body).digest())
    head = f"ed25519 {signed.public} {signed.signature}\n"
    return _FIRST + head.encode("ascii") + body


def read_object(data: bytes, request_hash: str, keys: tuple[str, ...]) -> SharedAnswer:
    """Return the answer in an object; raises NotAnObject or RefusedObject."""
    head, _, body = data.partition(b"\n")
    if not data.startswith(_FIRST):
        if data and _FIRST.startswith(data[: len(_FIRST)]):
            raise RefusedObject("is cut off")
        raise NotAnObject
    try:
        parts = head[len(_FIRST) : _LONGEST_HEAD].decode("ascii").split(" ")
        trusted = _check(parts, body, keys)
        value: Any = parse_json(body.decode())
    except (UnicodeDecodeError, Fault):
        raise RefusedObject("cannot be read") from None
    if not isinstance(value, dict) or not _is_answer(value):
        raise RefusedObject("is not an answer")
    if value["request_hash"] != request_hash:
        raise RefusedObject("answers another request than its name says")
    return SharedAnswer(
        _completion(value),
        value["cost_microusd"],
        value["cost_kind"],
        value["created_at"],
        trusted,
    )


def _check(parts: list[str], body: bytes, keys: tuple[str, ...]) -> bool:
    """Return whether a body is signed with one of some keys; raises RefusedObject."""
    digest = hashlib.sha256(body)
    if len(parts) == 3 and parts[0] == "ed25519":
        if signer_of(_ABOUT, digest.digest(), parts[2], [parts[1]]) is None:
            raise RefusedObject("does not fit its signature")
        return parts[1] in keys
    if parts == ["unsigned", digest.hexdigest()]:
        return False
    raise RefusedObject("has no signature, or was cut off")


def _completion(value: dict[str, Any]) -> Completion:
    return Completion(
        text=value["text"],
        finish_reason=FinishReason(value["finish_reason"]),
        tokens_in=value["tokens_in"],
        tokens_out=value["tokens_out"],
        cached_in=value["cached_in"],
        latency_ms=value["latency_ms"],
        served_model=value["served_model"],
        tool_calls=value["tool_calls"],
        left_out=tuple(value["left_out"]),
        details=value["details"],
    )


def _is_count(value: Json) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_tokens(value: Json) -> bool:
    return value is None or token_count(value) is not None


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_words(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) and v.split() == [v] for v in value)


def _is_calls(value: Json) -> bool:
    calls = value if isinstance(value, list) else []
    return value is None or (calls == value and all(isinstance(call, dict) for call in calls))


def _is_time(value: Json) -> bool:
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        return False
    try:
        return bool(dt.datetime.fromisoformat(value))
    except ValueError:
        return False


def _fits(pattern: re.Pattern[str]) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


_KEYS: dict[str, Callable[[Json], bool]] = {
    "request_hash": _fits(_HASH),
    "text": _is_text,
    "tool_calls": _is_calls,
    "details": lambda _: True,
    "finish_reason": lambda value: value in list(FinishReason),
    "tokens_in": _is_tokens,
    "tokens_out": _is_tokens,
    "cached_in": _is_count,
    "latency_ms": _is_count,
    "served_model": _is_text,
    "left_out": _is_words,
    "cost_microusd": _is_count,
    "cost_kind": lambda value: value in ("billed", "estimated"),
    "created_at": _is_time,
}


def _is_answer(value: dict[str, Json]) -> bool:
    return value.keys() == _KEYS.keys() and all(fits(value[key]) for key, fits in _KEYS.items())


READ_S = 1.5
"""How long a lookup may take."""
WRITE_S = 5.0
_AT_ONCE = 16
"""Lookups at the same time."""
_WRITERS = 8
_QUEUE = 1_000
"""Answers that wait to be written; more are left out."""
_FAILURES = 3
"""Failures in a row after which the cache is left alone."""
FLUSH_S, _STOPPED_S = 5.0, 1.0
"""How long the end of a run waits for what is still to be written; of one that was stopped."""
_MISSES = 4_096
"""Misses that are remembered, so that the two sides of a pair do not ask twice."""
_GONE = (404, 410)
_SKEW = dt.timedelta(minutes=5)
"""How much the clocks of two machines may differ."""


@dataclass(frozen=True, slots=True)
class CacheAccess:
    """Where the shared cache is, and what may be done with it."""

    service: Service | None
    """None if it cannot be used, because of `problem`."""
    query: str = field(default="", repr=False)
    """Query of the URL, such as that of a presigned one."""
    keys: tuple[str, ...] = ()
    """Public keys whose answers count as bought."""
    signer: Signer | None = None
    """Signs what is written; None if nothing is."""
    replays: bool = True
    """Whether answers without a trusted signature are used."""
    problem: str = ""

    def path(self, name: str) -> str:
        """Return the path of an object below the address, with the query."""
        return f"/{name}{f'?{self.query}' if self.query else ''}"


class SharedCache:
    """The shared cache as one run uses it: reads before calls, writes in the background."""

    def __init__(
        self, access: CacheAccess, budget: RunBudget, tell: Callable[[str], None], *, reads: bool
    ) -> None:
        self._access, self._budget, self._tell = access, budget, tell
        self._transport = None if access.service is None else Transport(access.service)
        self._reads = reads and self._transport is not None
        self._writes = access.signer is not None and self._transport is not None
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._missed: dict[str, None] = {}
        self._failed_reads, self._failed_writes = _Failures(), _Failures()
        self._refused: list[str] = []
        self._queue: asyncio.Queue[tuple[str, Settlement]] = asyncio.Queue(_QUEUE)
        self._writers: list[asyncio.Task[None]] = []
        self._unwritten = 0
        if access.problem:
            tell(f"the shared cache is not used: {access.problem}")

    async def find(self, model: str, request: Request, since: str) -> StoredAnswer | None:
        """Return the answer to a request, stored here; None if there is none that may be used."""
        request_hash = request.request_hash
        if not self._reads or self._budget.draining or request_hash in self._missed:
            return None
        shared = await self._fetch(request_hash)
        if shared is None or not self._is_usable(shared, request, since):
            self._missed[request_hash] = None
            if len(self._missed) > _MISSES:
                del self._missed[next(iter(self._missed))]
            return None
        kind = shared.cost_kind if shared.trusted else "replayed"
        bought_at = min(shared.created_at, self._budget.now())
        settlement = Settlement(shared.completion, shared.cost_microusd, kind, bought_at)
        note = None if shared.trusted else self._note_foreign
        return await store_unpaid(self._budget, request, model, settlement, note)

    def _note_foreign(self, connection: sqlite3.Connection) -> None:
        add_doubt(connection, self._budget.run_id, "provenance", FOREIGN)

    def _is_usable(self, shared: SharedAnswer, request: Request, since: str) -> bool:
        latest = dt.datetime.fromisoformat(self._budget.now()) + _SKEW
        if shared.created_at > utc.timestamp(latest):
            self._refused.append("has a time in the future")
            return False
        if shared.created_at < since or not (shared.trusted or self._access.replays):
            return False
        # What redaction here would change was stored without it.
        kept = shared.completion
        return request.embedding or redact_completion(kept, self._budget.redact) is kept

    async def _fetch(self, name: str) -> SharedAnswer | None:
        """Return the answer of an object; None if it is missing, refused or late."""
        async with self._slots:
            if not self._reads or self._transport is None:
                return None
            try:
                async with asyncio.timeout(READ_S):
                    reply = await self._transport.send("GET", self._access.path(name))
                shared = read_object(reply.body, name, self._access.keys)
            except TimeoutError:
                self._fail_read(f"no reply within {fixed(READ_S, 1)} s")
            except CallError as error:
                if error.status not in _GONE:
                    self._fail_read(error.message)
                else:
                    self._failed_reads.row = 0
            except NotAnObject:
                self._fail_read("it returns something else than answers")
            except UsageError as error:  # the library for signatures is not installed
                self._fail_read(error.message)
            except RefusedObject as refused:
                self._refused.append(str(refused))
            else:
                self._failed_reads.row = 0
                return shared
        return None

    def _fail_read(self, why: str) -> None:
        if self._failed_reads.add(why) and self._reads:
            self._reads = self._writes = False
            self._tell(f"the shared cache is no longer used: {why}; the run continues without it")

    def offer(self, request_hash: str, settlement: Settlement) -> None:
        """Write an answer that was bought, in the background."""
        if not self._writes:
            return
        try:
            self._queue.put_nowait((request_hash, settlement))
        except asyncio.QueueFull:
            self._unwritten += 1
            return
        if len(self._writers) < _WRITERS:
            self._writers.append(asyncio.create_task(self._write_queued()))

    async def _write_queued(self) -> None:
        while True:
            request_hash, settlement = await self._queue.get()
            try:
                await self._write(request_hash, settlement)
            finally:
                self._queue.task_done()

    async def _write(self, request_hash: str, settlement: Settlement) -> None:
        transport, signer = self._transport, self._access.signer
        assert transport is not None and signer is not None, "only then answers are queued"
        data = write_object(request_hash, settlement, signer) if self._writes else b""
        if not self._writes or len(data) > MOST_BYTES:
            self._unwritten += 1
            return
        try:
            async with asyncio.timeout(WRITE_S):
                await transport.send("PUT", self._access.path(request_hash), data, kind=_KIND)
        except TimeoutError:
            self._fail_write(f"no reply within {fixed(WRITE_S, 1)} s")
        except CallError as error:
            self._fail_write(error.message)
        except asyncio.CancelledError:
            self._unwritten += 1
            raise
        else:
            self._failed_writes.row = 0

    def _fail_write(self, why: str) -> None:
        self._unwritten += 1
        if self._failed_writes.add(why) and self._writes:
            self._writes = False
            self._tell(f"the shared cache is no longer written to: {why}")

    async def close(self) -> None:
        """Wait a moment for pending writes, report what went wrong, and close."""
        if self._writers:
            try:
                async with asyncio.timeout(_STOPPED_S if self._budget.draining else FLUSH_S):
                    await self._queue.join()
            except TimeoutError:
                self._unwritten += self._queue.qsize()
            for writer in self._writers:
                writer.cancel()
            await asyncio.gather(*self._writers, return_exceptions=True)
        self._tell_problems()
        if self._transport is not None:
            await self._transport.aclose()

    def _tell_problems(self) -> None:
        if self._reads and (failures := self._failed_reads).count:
            lookups = counted(failures.count, "lookup")
            self._tell(f"{lookups} in the shared cache failed: {failures.why}")
        if self._refused:
            objects = counted(len(self._refused), "object")
            self._tell(f"{objects} of the shared cache refused: one {self._refused[0]}")
        if self._writes and self._unwritten:
            answers = counted(self._unwritten, "answer")
            why = self._failed_writes.why or "there was no time for them"
            self._tell(f"{answers} not written to the shared cache: {why}")


_KIND = "application/octet-stream"
_PROBE = "edison-doctor"


async def probe_cache(access: CacheAccess) -> str:
    """Read from the cache, and write to it where that is allowed; return what is wrong, or ''."""
    assert access.service is not None, "a cache with a problem is not tried"
    transport, path = Transport(access.service), access.path(_PROBE)
    try:
        async with asyncio.timeout(WRITE_S):
            if access.signer is None:
                await transport.send("GET", path)
                return ""
            sent = f"written by {access.signer.public}\n".encode()
            await transport.send("PUT", path, sent, kind=_KIND)
            received = (await transport.send("GET", path)).body
            return "" if received == sent else "it does not return what was written"
    except TimeoutError:
        return f"no reply within {fixed(WRITE_S, 1)} s"
    except CallError as error:
        return "" if access.signer is None and error.status in _GONE else error.message
    finally:
        await transport.aclose()


@dataclass(slots=True)
class _Failures:
    """Failures of reading or writing."""

    count: int = 0
    row: int = 0
    """Those in a row, the last one included."""
    why: str = ""

    def add(self, why: str) -> bool:
        """Count a failure; return whether it was one too many."""
        self.count, self.row, self.why = self.count + 1, self.row + 1, why
        return self.row >= _FAILURES
