"""A real HTTP server on loopback that speaks the chat protocols, charges, and misbehaves as told.

In a test, in a thread of this process:

    script = [rule(number=2, status=429, headers={"retry-after": "1"})]
    with LoopbackServer(script) as server:
        base_url = server.openai_url     # http://127.0.0.1:PORT/v1; anthropic: server.url
        ...
        server.requests[0].headers, server.requests[0].json    # everything that arrived
        server.ledger_total()            # micro-dollars charged: the independent truth

As a process of its own, which prints its port and serves until it is killed:

    python -m tests.loopback.server --port 0 --ledger FILE --script FILE

Every charged request appends one line to the ledger, flushed and synced BEFORE the reply leaves:
`{"time", "number", "model", "fingerprint", "tokens_in", "tokens_out", "cost_microusd"}`. Prices are
dollars per million tokens (`price_in` 1.0, `price_out` 2.0). What can be scripted: `script.py`.
Answers are deterministic: `protocols.py`. `GET /-/requests` tells a child's requests as JSON.

Any path that ends in `/chat/completions` speaks OpenAI (Azure's paths too), in `/embeddings` its
embeddings, in `/moderations` its moderation, in `/messages` Anthropic; `/files` and `/batches` are
about batches (`batches.py`);
everything else is 404.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.loopback.batches import Batches
from tests.loopback.deeds import Wire, perform, send
from tests.loopback.protocols import Chat, Reply, reply_to
from tests.loopback.script import Rule, rule
from tests.loopback.strict import refusal
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def chat(self) -> Chat | None:
        """The request as a chat, if it is one."""
        path = self.path.partition("?")[0]
        if self.method != "POST":
            return None
        if path.endswith("/chat/completions"):
            return Chat("openai", self.json)
        if path.endswith("/responses"):
            return Chat("responses", self.json)
        if path.endswith("/embeddings"):
            return Chat("embeddings", self.json)
        if path.endswith("/moderations"):
            return Chat("moderations", self.json)
        return Chat("anthropic", self.json) if path.endswith("/messages") else None


class LoopbackServer:
    """The server in a thread; a context manager."""

    def __init__(
        self,
        script: Sequence[Rule] = (),
        *,
        ledger: Path | None = None,
        price_in: float = 1.0,
        price_out: float = 2.0,
        port: int = 0,
        strict: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.strict = strict
        """Whether it refuses what the real service would refuse."""
        self.script: list[Rule] = list(script)
        """May be changed while the server runs."""
        self.requests: list[Seen] = []
        """Every request, chat or not, in the order of arrival."""
        self.chats = 0
        self.in_flight = 0
        self.peak = 0
        """Most chat requests at once."""
        self.connections = 0
        self._made = tempfile.TemporaryDirectory() if ledger is None else None
        self.ledger = ledger or Path(self._made.name if self._made else "") / "ledger.jsonl"
        self._prices, self._port, self._tls = (price_in, price_out), port, tls
        self._first_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._released = asyncio.Event()
        self.batches = Batches(self._charge_in_batch)

    # --- what tests look at -----------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self._tls else 'http'}://{HOST}:{self._port}"

    @property
    def openai_url(self) -> str:
        """The base_url of an OpenAI-compatible model."""
        return f"{self.url}/v1"

    def ledger_rows(self) -> list[dict[str, Any]]:
        """Return what was charged, call by call."""
        if not self.ledger.exists():
            return []
        whole, _, _ = self.ledger.read_bytes().rpartition(b"\n")  # the rest is being written
        return [json.loads(line) for line in whole.splitlines()]

    def ledger_total(self) -> int:
        """Return all that was charged, in micro-dollars."""
        return sum(int(row["cost_microusd"]) for row in self.ledger_rows())

    # --- life -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True, name="loopback")
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the loopback server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(PATIENCE_S)
        if self._made is not None:
            self._made.cleanup()

    def release(self) -> None:
        """Let held requests go on, and all that come after."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._released.set)

    def _run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Serve until stopped."""
        self._loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        self._stop = stopping.set
        open_ones: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.current_task()
            assert task is not None
            open_ones.add(task)
            try:
                await self._connection(Wire(reader, writer))
            except asyncio.CancelledError:
                pass  # the server stops
            finally:
                open_ones.discard(task)
                writer.close()

        server = await asyncio.start_server(
            connected, HOST, self._port, ssl=self._tls, limit=1 << 22, backlog=1024
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await stopping.wait()
        server.close()
        for _ in range(5):
            await asyncio.sleep(0)  # a connection that was just accepted becomes an open one
        for task in list(open_ones):
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    async def _connection(self, wire: Wire) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            while (request := await _read(wire.reader)) is not None:
                self.requests.append(request)
                if not await self._respond(wire, request):
                    return

    # --- requests ---------------------------------------------------------------------------------

    async def _respond(self, wire: Wire, request: Seen) -> bool:
        """Answer one request; False ends the connection."""
        if request.path == "/-/requests":
            told = [{**asdict(seen), "body": seen.body.decode()} for seen in self.requests]
            await send(wire, 200, {}, json.dumps(told).encode())
            return True
        about_batch = self.batches.respond(request.method, request.path, request.body)
        if about_batch is not None and not about_batch[0]:
            await self._released.wait()
            return False
        if about_batch is not None:
            await send(wire, about_batch[0], {}, about_batch[1])
            return True
        try:
            chat = request.chat
        except ValueError:
            await send(wire, 400, {}, b'{"error": {"message": "the body is not JSON"}}')
            return True
        if chat is None:
            await send(wire, 404, {}, b'{"error": {"message": "no such path"}}')
            return True
        if self.strict and (why := refusal(chat)) is not None:
            error = {"type": "invalid_request_error", "message": why}
            await send(wire, 400, {}, json.dumps({"error": error}).encode())
            return True
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._chat(wire, chat)
        finally:
            self.in_flight -= 1

    async def _chat(self, wire: Wire, chat: Chat) -> bool:
        self.chats += 1
        number = self.chats
        now = time.monotonic()
        self._first_at = self._first_at if self._first_at is not None else now
        chosen = self._rule(number, chat, now - self._first_at)
        chosen.applied += 1
        if chosen.latency_s:
            await asyncio.sleep(chosen.latency_s)
        if chosen.held:
            await self._released.wait()
        # An event of asyncio could not be set by the thread of a test.
        while chosen.until is not None and not chosen.until.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        reply = reply_to(chat, chosen)
        if chosen.is_charged:
            self._charge(number, chat, reply)
        return await perform(wire, chosen, reply)

    def _rule(self, number: int, chat: Chat, elapsed_s: float) -> Rule:
        for candidate in self.script:
            if candidate.fits(number, chat.model, chat.said, elapsed_s):
                return candidate
        return Rule()

    def _charge_in_batch(self, chat: Chat, reply: Reply) -> None:
        self._charge(0, chat, reply, share=0.5)

    def _charge(self, number: int, chat: Chat, reply: Reply, share: float = 1.0) -> None:
        row = {
            "time": time.time(),
            "number": number,
            "model": chat.model,
            "fingerprint": chat.fingerprint,
            "tokens_in": reply.tokens_in,
            "tokens_out": reply.tokens_out,
            "cost_microusd": reply.cost_microusd(*(share * price for price in self._prices)),
        }
        line = (json.dumps(row) + "\n").encode()
        descriptor = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


async def _read(reader: asyncio.StreamReader) -> Seen | None:
    """Return the next request of a connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Seen(method, path, headers, await _chunks(reader))
    return Seen(
        method, path, headers, await reader.readexactly(int(headers.get("content-length", 0)))
    )


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def main() -> None:
    """Serve in this process, and print the port."""
    parser = argparse.ArgumentParser(prog="tests.loopback.server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--price-in", type=float, default=1.0)
    parser.add_argument("--price-out", type=float, default=2.0)
    given = parser.parse_args()
    rules = json.loads(given.script.read_text("utf-8")) if given.script else []
    server = LoopbackServer(
        [rule(**values) for values in rules],
        ledger=given.ledger,
        price_in=given.price_in,
        price_out=given.price_out,
        port=given.port,
    )

    with server:
        sys.stdout.write(f"{server.url.rpartition(':')[2]}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
