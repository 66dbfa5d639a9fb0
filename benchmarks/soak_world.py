"""The world of a soak: a clock that leaps, a model and a webhook that fail for spells.

Importing this module gives `edison_ci.utc` the clock of the soak, before anything that keeps it as
a default is imported; so the whole program, in this process and in its forks, lives by it. Until it
is set it tells the true time. The pauses of the client of models, of up to a quarter of an hour,
are shortened too. The product has no option for this.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import enum
import hashlib
import http.server
import json
import mmap
import os
import random
import re
import signal
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, NoReturn

from edison_ci import utc
from edison_ci.providers import resilience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FASTER = 200.0
"""How much shorter the pauses of the client of models are."""
ANSWER_CHARS = 600


class Way(enum.IntEnum):
    """How an endpoint behaves."""

    WELL = 0
    ERROR = 1
    """503 of the model, 500 of the webhook."""
    HANG = 2
    REFUSE = 3
    """Nobody listens."""
    FLOOD = 4
    REDIRECT = 5


class Shared:
    """Numbers in memory that the processes of a soak share."""

    NAMES = ("offset", "looked", "model", "hook", "wrong")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8 * len(self.NAMES))

    def __getitem__(self, name: str) -> float:
        """Return a number."""
        place = 8 * self.NAMES.index(name)
        return float(struct.unpack("d", self._memory[place : place + 8])[0])

    def __setitem__(self, name: str, value: float) -> None:
        """Set a number."""
        place = 8 * self.NAMES.index(name)
        self._memory[place : place + 8] = struct.pack("d", value)


SHARED = Shared()


def now() -> dt.datetime:
    """Return the time: it passes as it does everywhere, from the time to which it was set last."""
    offset = SHARED["offset"]
    return dt.datetime.fromtimestamp(offset + (time.monotonic() if offset else time.time()), dt.UTC)


def set_clock(to: dt.datetime) -> None:
    """Let the clock of all processes leap."""
    SHARED["offset"] = to.timestamp() - time.monotonic()


def _quick_clock() -> resilience.Clock:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / FASTER)

    return resilience.Clock(lambda: FASTER * time.monotonic(), sleep, random.Random(1))


utc.now = now
resilience.Clock.real = _quick_clock  # type: ignore[method-assign]


# --- endpoints ------------------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    """What both endpoints have in common."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """Read the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply(self, status: int, value: Any = None, **headers: str) -> None:
        """Answer with JSON."""
        text = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, content in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(text)

    def hang(self) -> None:
        """Say nothing until the client has gone."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.settimeout(60)
            self.connection.recv(1)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class ModelHandler(_Handler):
    """A model that greets people; some answers have a wrong name, by chance."""

    def do_POST(self) -> None:
        """Answer one call."""
        prompt = json.loads(self.body())["messages"][-1]["content"]
        way = Way(int(SHARED["model"]))
        if way is Way.HANG:
            return self.hang()
        if way is Way.ERROR:
            return self.reply(503, {"error": {"message": "overloaded"}})
        name = re.findall(r"P\d+", prompt)[0]
        hour = f"{now():%Y-%m-%dT%H}"
        lost = random.Random(f"{name} {hour}").random() < SHARED["wrong"]
        text = f"Hello {'you' if lost else name}! " + _filling(f"{name} {hour}")
        message = {"role": "assistant", "content": text}
        return self.reply(
            200,
            {
                "id": "1",
                "object": "chat.completion",
                "model": "greeter-1",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 20, "completion_tokens": 150},
            },
        )


def _filling(seed: str) -> str:
    """Return text that does not repeat, as answers have it."""
    words = (hashlib.sha256(f"{seed} {n}".encode()).hexdigest() for n in range(ANSWER_CHARS // 64))
    return " ".join(words)


class HookHandler(_Handler):
    """A webhook that notes what it gets, and how it answered."""

    log: Path

    def do_POST(self) -> None:
        """Take one message."""
        self.body()
        way = Way(int(SHARED["hook"]))
        status = {Way.ERROR: 500, Way.REDIRECT: 302, Way.HANG: 0}.get(way, 200)
        note = {
            "at": now().timestamp(),
            "id": self.headers["webhook-id"],
            "way": way.name.lower(),
            "status": status,
            "path": self.path,
        }
        with self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(note) + "\n")
        if way is Way.HANG:
            self.hang()
        elif way is Way.FLOOD:
            self._flood()
        elif way is Way.REDIRECT:
            self.reply(302, Location="/elsewhere")
        else:
            self.reply(status)

    do_GET = do_POST

    def _flood(self) -> None:
        """Send a gigabyte, as far as it is taken."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Length", str(10**9))
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(1_000):
                self.wfile.write(b"x" * 10**6)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients are killed: a broken connection is no news."""


class Endpoint:
    """A server in a process of its own, at a port that stays the same."""

    def __init__(self, handler: type[_Handler]) -> None:
        self._handler = handler
        # Bound, and without listening, so that no other process is given the port meanwhile.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port = int(self._holder.getsockname()[1])
        self.pid = 0

    def start(self) -> None:
        """Listen, unless it does."""
        if self.pid:
            return
        ready, tell = os.pipe()
        self.pid = fork_to(lambda: self._serve(tell))
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)

    def stop(self) -> None:
        """Listen no more: the next client is refused."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def _serve(self, tell: int) -> NoReturn:
        server = _Server(("127.0.0.1", self.port), self._handler)
        os.write(tell, b"1")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        os._exit(0)


def fork_to(work: Callable[[], NoReturn]) -> int:
    """Start a process that does some work, without a terminal; it ends with this one."""
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        end_with(parent)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        work()
    finally:
        os._exit(70)


def end_with(parent: int) -> None:
    """Let the kernel end this process when its parent ends, even by SIGKILL."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)
