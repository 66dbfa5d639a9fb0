"""Attacks by a worker on a live run: it is dropped, and the run goes on with the honest workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("distributed")

from distributed.core import Status

from edison_ci import __version__
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents import secrets
from edison_ci.features.cluster import nodes
from edison_ci.features.cluster.dask_executor import DaskExecutor
from edison_ci.features.cluster.nodes import PlainScheduler
from edison_ci.features.cluster.preparation import PYTHON
from edison_ci.features.cluster.tls import ClusterAddress, read_address
from edison_ci.features.cluster.wire import MOST_TEXT, Hello, WireError, read_hello
from edison_ci.features.cluster.worker import MOST_LEASES, MOST_RUNS, WorkerService
from edison_ci.records import Completion, Request
from tests.features.cluster.test_executor import NO_CODE, Odd, ask, cluster, completion, honest
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed.comm.core import Comm

pytestmark = pytest.mark.daily

KEY = "sk-0123456789abcdef-of-a-worker"


def message(packed: bytes) -> bytes:
    """Return the bytes of a message of one frame."""
    body = struct.pack("QQ", 1, len(packed)) + packed
    return struct.pack("Q", len(body)) + body


FRAMES: dict[str, tuple[bytes, str]] = {
    "a length without end": (struct.pack("Q", 2**62), "it sent a message of 4,611,686,018"),
    "a little more than is read": (struct.pack("Q", nodes.MOST_BYTES + 1), "it sent a message of"),
    "a frame without end": (struct.pack("QQQ", 16, 1, 2**40), "it sent a message of 1,099,511"),
    "many frames": (
        struct.pack("QQ", 8_008, 1_000) + b"\0" * 8_000,
        "it sent a message that is not of one frame",
    ),
    "no frame": (struct.pack("QQ", 8, 0), "not of one frame"),
    "nothing": (struct.pack("Q", 0), "not of one frame"),
    "a cut list of frames": (struct.pack("Q", 4) + b"\1\0\0\0", "not of one frame"),
    "a frame that is cut": (struct.pack("QQQ", 20, 1, 100) + b"abcd", "an invalid message"),
    "mappings of a byte each": (
        message(b"\xdd" + struct.pack(">I", 2_000_000) + b"\x80" * 2_000_000),
        "it sent a message of more than 1,000,000 values",
    ),
    "lists within lists": (
        message((b"\xdc\x10\x00" + b"\x90" * 4_096) * 300),
        "an invalid message",
    ),
    "pairs that do not follow": (message(b"\xdf\xff\xff\xff\xff"), "more than 1,000,000 values"),
    "a deep list": (message(b"\x91" * 100_000 + b"\xc0"), "an invalid message"),
    "a type of a library": (message(b"\xc7\x01\x05a"), "it sent a value of the unknown type 0xc7"),
    "a time": (message(b"\xd6\xff\0\0\0\0"), "unknown type 0xd6"),
    "more after the end": (message(b"\xc0\xc0"), "an invalid message"),
    "no text": (message(b"\xa2\xff\xff"), "an invalid message"),
    "a page": (b"HTTP/1.1 200 OK\r\n\r\nhello", "it sent a message of"),
}


class Raw(WorkerService):
    """A worker that answers the first call with bytes of its own, or leaves."""

    def __init__(self, reply: bytes | None) -> None:
        super().__init__(lambda _: None, NO_CODE, name="raw", version=__version__)  # type: ignore[arg-type, return-value]
        self._reply = reply
        self.met = 0

    async def serve(self, comm: Comm, hello: str) -> Status:
        read_hello(hello)
        self.met += 1
        told = {"version": __version__, "name": self.name, "now": 0.0, "unready": {}, "unable": {}}
        await comm.write({"welcome": json.dumps({**told, "places": 1})})
        stream: Any = comm
        with contextlib.suppress(OSError):
            await comm.read()
            if self._reply is not None:
                await stream.stream.write(self._reply)
                while True:  # it stays until it is dropped: the reply is long, and more calls come
                    await comm.read()
        comm.abort()
        return Status.dont_reply


async def answered(found: DaskExecutor, text: str) -> Completion:
    """Return the answer of a call that is asked again where its worker is lost."""
    (model,) = found._models
    provider = found.provider_for(model)
    assert provider is not None
    for _ in range(5):
        try:
            return await provider.complete(ask(text))
        except CallError as error:
            assert error.lost_worker and error.charged, error
    raise AssertionError("no worker answers")


async def held(found: DaskExecutor, said: list[str], name: str, why: str) -> None:
    """Check that a run has dropped a worker for good, and has all its answers from another."""
    answers = await asyncio.gather(*(answered(found, str(number)) for number in range(4)))
    assert [answer.text for answer in answers] == [f"to {number}" for number in range(4)]
    dropped = [line for line in said if line.startswith(f"worker {name} was dropped: ")]
    assert len(dropped) == 1 and why in dropped[0], said
    assert [state.name for state in found.states()] == ["honest"]
    await found._look()
    assert [state.name for state in found.states()] == ["honest"], "it does not come again"


@pytest.mark.parametrize("attack", FRAMES)
async def test_a_run_goes_on_without_a_worker_that_sends_no_messages(
    attack: str, tmp_path: Path
) -> None:
    reply, why = FRAMES[attack]
    services = Raw(reply), honest()
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, *services) as (found, said, _):
        await found.open(0)
        await held(found, said, "raw", why)
        assert services[0].met == 1


async def test_a_worker_that_takes_calls_and_leaves_gets_no_more(tmp_path: Path) -> None:
    """Each of its calls may have been made, and stays booked: it could spend a whole budget."""
    leaving = Raw(None)
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(tmp_path, leaving, honest()) as (found, said, _),
    ):
        await found.open(0)
        for _round in range(6):
            await asyncio.gather(*(answered(found, str(number)) for number in range(4)))
            await found._look()
        assert leaving.met == 3
        assert sum("raw is gone" in line for line in said) == 3, said
        assert [state.name for state in found.states()] == ["honest"]


def failure(lease: int, **changed: Any) -> str:
    told = {"kind": "NETWORK", "message": "", "status": None, "retry_after_s": None,
            "charged": True, "garbled": False, **changed}  # fmt: skip
    return json.dumps({"id": lease, "error": told})


HUGE = 10**399
WELCOMES: dict[str, dict[str, Any]] = {
    "another version": {"version": "0.0.1"},
    "a version without end": {"version": "x" * 301},
    "no name": {"name": ""},
    "a name with colours": {"name": "\x1b[31mred"},
    "a name of lines": {"name": "a\nb"},
    "a name without end": {"name": "x" * 101},
    "a name that reads backwards": {"name": "\u202eabc"},
    "a path as name": {"name": "../../x"},
    "a time that is none": {"now": float("nan")},
    "a negative time": {"now": -1},
    "a huge time": {"now": HUGE},
    "no places": {"places": 0},
    "places without end": {"places": 10**6},
    "places as a text": {"places": "8"},
    "places by a list": {"unready": ["x"]},
    "places by name": {"unready": {"-1": "x"}},
    "a reason that is no text": {"unready": {"0": 7}},
    "no reasons": {"unable": None},
    "a key": {"api_key": KEY},
    "another run": {"run": "run-2"},
}


class Greeting(Odd):
    """A worker that introduces itself in its own way."""

    told: dict[str, Any]

    async def serve(self, comm: Comm, hello: str) -> Status:
        right = {"version": __version__, "name": "odd", "now": time.time(), "unready": {}}
        await comm.write({"welcome": json.dumps({**right, "unable": {}, "places": 1, **self.told})})
        return Status.dont_reply


async def test_a_worker_that_introduces_itself_wrongly_is_not_used(tmp_path: Path) -> None:
    service = Greeting(lambda _: [])
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(tmp_path, service, honest()) as (found, said, (worker, _)),
    ):
        await found.open(0)
        await found.aclose()
        for attack, told in WELCOMES.items():
            service.told = told
            said.clear()
            found._refused.clear()
            await found._look()
            refused = [line for line in said if f"worker {worker.address} is not used: " in line]
            assert len(refused) == 1 and KEY not in refused[0], (attack, said)
            await found._look()
            assert [state.name for state in found.states()] == ["honest"], attack
        assert (await answered(found, "x")).text == "to x"


MESSAGES: dict[str, tuple[Callable[[int], list[Any]], str]] = {
    "welcome again": (lambda _: [{"welcome": "{}"}], "unknown message"),
    "an operation of Dask": (lambda _: [{"op": "close"}], "unknown message"),
    "answers by name": (lambda _: [{"answers": {"a": 1}}], "unknown message"),
    "draining as a number": (lambda _: [{"draining": 1}], "unknown message"),
    "a call of another worker": (lambda lease: [completion(lease - 1)], "that it was not given"),
    "no number as id": (lambda lease: [completion(float(lease))], "id is not a whole"),  # type: ignore[arg-type]
    "true as id": (lambda _: [completion(True)], "id is not a whole"),
    "a negative id": (lambda lease: [completion(-lease)], "id is not a whole"),
    "a huge id": (lambda _: [completion(HUGE)], "id is not a whole"),
    "an id of too many digits": (lambda _: [f'{{"id": {"9" * 5_000}}}'], "not JSON"),
    "an id twice": (
        lambda lease: [completion(lease).replace("{", f'{{"id": {lease}, ', 1)],
        "not JSON",
    ),
    "an answer and an error": (
        lambda lease: [failure(lease).replace("{", '{"completion": {"text": ""}, ', 1)],
        "either a completion or an error",
    ),
    "neither": (lambda lease: [json.dumps({"id": lease})], "either a completion or an error"),
    "huge tokens": (lambda lease: [completion(lease, tokens_out=HUGE)], "tokens_out is not"),
    "tokens as text": (lambda lease: [completion(lease, tokens_in="5")], "tokens_in is not"),
    "tokens as a fraction": (lambda lease: [completion(lease, tokens_in=1e3)], "tokens_in is not"),
    "true as tokens": (lambda lease: [completion(lease, cached_in=True)], "cached_in is not"),
    "negative writes": (lambda lease: [completion(lease, written_in=-5)], "written_in is not"),
    "a negative time": (lambda lease: [completion(lease, latency_ms=-1)], "latency_ms is not"),
    "infinity": (lambda lease: [completion(lease, latency_ms=float("inf"))], "not JSON"),
    "a negative cost": (lambda lease: [completion(lease, cost_microusd=-9)], "names a cost"),
    "an unknown end": (lambda lease: [completion(lease, finish_reason="won")], "finish reason"),
    "a long model": (lambda lease: [completion(lease, served_model="m" * 301)], "served_model"),
    "a list as model": (lambda lease: [completion(lease, served_model=["m"])], "served_model"),
    "no text": (lambda lease: [completion(lease, text=None)], "text is not a text"),
    "a text without end": (lambda lease: [completion(lease, text="x" * (MOST_TEXT + 1))], "text"),
    "many names": (lambda lease: [completion(lease, left_out=["x"] * 101)], "left_out is not"),
    "long names": (lambda lease: [completion(lease, left_out=["x" * 301])], "left_out is not"),
    "deep calls": (
        lambda lease: [completion(lease, tool_calls=json.loads("[" * 60 + "]" * 60))],
        "not JSON",
    ),
    "calls without end": (
        lambda lease: [completion(lease, tool_calls=["x" * MOST_TEXT])],
        "tool_calls and details have more than",
    ),
    "a key of a model": (lambda lease: [completion(lease, api_key=KEY)], "unknown fields"),
    "another run": (lambda lease: [completion(lease, run_id="run-2")], "unknown fields"),
    "an odd status": (lambda lease: [failure(lease, status=10**6)], "status is not a whole"),
    "a pause of years": (lambda lease: [failure(lease, retry_after_s=10**9)], "retry_after_s"),
    "a negative pause": (lambda lease: [failure(lease, retry_after_s=-1)], "retry_after_s"),
    "charged by a word": (lambda lease: [failure(lease, charged="no")], "charged is neither"),
    "an error as a list": (
        lambda lease: [json.dumps({"id": lease, "error": ["NETWORK"]})],
        "unknown fields",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("attack", MESSAGES)
async def test_a_run_goes_on_without_a_worker_that_lies(attack: str, tmp_path: Path) -> None:
    answers, why = MESSAGES[attack]
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(tmp_path, Odd(answers), honest()) as (found, said, _),
    ):
        await found.open(0)
        await held(found, said, "odd", why)


async def test_no_key_of_a_worker_is_in_what_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator without the key could not take it out of an answer that repeats it."""

    class Echo:
        async def complete(self, request: Request) -> Completion:
            text = request.messages[0].content
            if text == "error":
                raise CallError(ErrorKind.BAD_REQUEST, f"wrong: {KEY}", status=400, charged=False)
            calls: Any = [{"arguments": {"a": [KEY]}}]
            return Completion(f"Bearer {KEY}, \\{KEY}", served_model=KEY, tool_calls=calls)

    monkeypatch.setattr(secrets, "_KNOWN", secrets._KnownSecrets())
    secrets.remember([KEY])
    sent: list[str] = []
    service = WorkerService(lambda _: Echo(), NO_CODE, name="echo", version=__version__)
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, service) as (found, _, _workers):
        await found.open(0)
        (link,) = found._links.values()
        read = link.read

        def noted(text: object) -> Any:
            sent.append(str(text))
            return read(text)

        monkeypatch.setattr(link, "read", noted)
        answer = await answered(found, "x")
        assert answer.text == "Bearer [key], \\[key]"
        with pytest.raises(CallError, match=r"wrong: \[key\]"):
            (model,) = found._models
            provider = found.provider_for(model)
            assert provider is not None
            await provider.complete(ask("error"))
    assert len(sent) == 2 and not any(KEY in text for text in sent)


# --- a scheduler, and a coordinator ---------------------------------------------------------------

LISTS: dict[str, tuple[Callable[[int], Any], str]] = {
    "nothing": (lambda _: None, "it said"),
    "a list of texts": (lambda port: [f"tcp://127.0.0.1:{port}"], "it said"),
    "a text": (lambda port: f"tcp://127.0.0.1:{port}", "it said"),
    "workers without end": (
        lambda port: {f"tcp://127.0.0.1:{port}/{n}": {} for n in range(10_001)},
        "more workers",
    ),
    "an address without end": (lambda port: {f"tcp://127.0.0.1:{port}{' ' * 300}": {}}, "more w"),
    "another machine": (lambda _: {"tcp://192.0.2.7:1": {}}, "is not encrypted"),
    "every address": (lambda port: {f"tcp://0.0.0.0:{port}": {}}, "is not encrypted"),
    "a page": (lambda port: {f"http://127.0.0.1:{port}/": {}}, "is not the address"),
    "a socket of the web": (lambda port: {f"ws://127.0.0.1:{port}": {}}, "is not the address"),
    "a process": (lambda port: {f"inproc://127.0.0.1/{port}/1": {}}, "is not the address"),
    "a user": (lambda port: {f"tcp://a:b@127.0.0.1:{port}": {}}, "is not the address"),
    "control characters": (lambda port: {f"tcp://127.0.0.1:{port}/\x1b[2J": {}}, "is not the addr"),
    "no port": (lambda _: {"tcp://127.0.0.1:99999": {}}, "is not the address"),
    "a number": (lambda port: {port: {}}, "is not the address"),
}


class Lying(PlainScheduler):
    """A scheduler that names what a test says."""

    listed: Any = None

    def __init__(self) -> None:
        super().__init__(ClusterAddress("127.0.0.1", 0, tls=False), None, lambda _: None)
        self.handlers["identity"] = lambda **_: {"workers": self.listed}


async def test_a_scheduler_sends_a_run_to_no_other_place(tmp_path: Path) -> None:
    connected: list[str] = []

    def note(_reader: Any, writer: asyncio.StreamWriter) -> None:
        connected.append("somebody")
        writer.close()

    async with (
        asyncio.timeout(PATIENCE_S),
        await asyncio.start_server(note, "127.0.0.1") as server,
        cluster(tmp_path, honest()) as (own, _, (worker,)),
        Lying() as scheduler,
    ):
        port = server.sockets[0].getsockname()[1]
        said: list[str] = []
        found = DaskExecutor(scheduler.address, None, "run-2", own._models, said.append)
        for attack, (listed, why) in LISTS.items():
            scheduler.listed = listed(port)
            said.clear()
            await found._look()
            found._scheduler_seen = True
            assert len(said) == 1 and why in said[0], (attack, said)
        assert connected == []
        scheduler.listed = {worker.address: {}}
        await found._look()
        assert (await answered(found, "x")).text == "to x"
        await found.aclose()


REQUESTS: dict[str, Any] = {
    "leases as a number": {"leases": 7},
    "checks as a text": {"checks": "abc"},
    "a lease that is no text": {"leases": [{"id": 1}]},
    "a mapping given up": {"given_up": [{}]},
    "a list": [],
    "a model that is not there": {"leases": ['{"id": 1, "model": 9999, "request": {}}']},
    "a program without end": {"checks": ['{"id": 1, "program": 10000, "request": ""}']},
    "no request": {"leases": ['{"id": 1, "model": 0, "request": null}']},
    "the same call twice": "twice",
    "calls without end": "flood",
}


@pytest.mark.nightly
async def test_a_worker_goes_on_after_a_coordinator_that_lies(tmp_path: Path) -> None:
    made, over = 0, asyncio.Semaphore(0)

    def tell(said: str) -> None:
        if ": over, " in said:
            over.release()

    class Slow:
        async def complete(self, request: Request) -> Completion:
            nonlocal made
            made += 1
            if request.messages[0].content == "wait":
                await asyncio.Event().wait()
            return Completion("fine")

    service = WorkerService(lambda _: Slow(), NO_CODE, name="slow", version=__version__, tell=tell)
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, service) as (found, _, (worker,)):
        await found.open(0)
        for attack, said in REQUESTS.items():
            hostile = DaskExecutor(found._scheduler, None, f"run {attack}", found._models, print)
            link = await hostile._greet(worker.address)
            lease = json.dumps({
                "id": 1, "model": 0, "request": {
                    "provider": "openai", "endpoint": "", "model": "m",
                    "messages": [["user", "wait"]], "params": {}, "tools": None,
                    "response_format": None, "repeat": 0, "left_out": [], "embedding": False},
            })  # fmt: skip
            if said == "twice":
                said = {"leases": [lease, lease]}
            if said == "flood":
                more = [lease.replace('"id": 1', f'"id": {n}', 1) for n in range(MOST_LEASES + 9)]
                said = {"leases": more}
            await link._comm.write(said)
            with contextlib.suppress(OSError):  # it is cut off
                while True:
                    await link._comm.read()
            link._comm.abort()
            await over.acquire()
        assert service.in_flight == 0, "what they asked for is given up"
        assert made <= MOST_LEASES + 2
        assert (await answered(found, "x")).text == "fine"


async def test_a_scheduler_and_a_worker_go_on_after_bytes_that_are_no_message(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, honest()) as (found, _, (worker,)):
        await found.open(0)
        for address in (found._scheduler, worker.address):
            for packed, _why in FRAMES.values():
                comm: Any = await found._open(address)
                await comm.stream.write(packed)
                with contextlib.suppress(OSError):  # it is cut off, or told that it is wrong
                    await comm.read()
                comm.abort()
            place = read_address(address)
            _, writer = await asyncio.open_connection(place.host, place.port)
            writer.write(b"\0" * 100_000)  # without a greeting
            writer.close()
        assert await found._listed() == [worker.address]
        assert (await answered(found, "x")).text == "to x"


def test_a_worker_serves_a_limited_number_of_runs() -> None:
    service = honest()
    service._sessions = {str(number): cast("Any", None) for number in range(MOST_RUNS)}
    hello = Hello(__version__, "run", "coordinator", PYTHON, time.time(), ())
    with pytest.raises(WireError, match="it serves 100 runs already"):
        service._refuse(hello)
