"""Workers that are not what they should be: each is dropped, and its calls are asked elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("distributed")

from distributed.core import Status
from distributed.protocol.serialize import Serialized, to_serialize

from edison_ci import __version__
from edison_ci.config.load import load_project
from edison_ci.contracts import CallError, CheckOutcome, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.execute.check_grading import check_programs
from edison_ci.execute.run_options import allow_code
from edison_ci.features.cluster.dask_executor import DaskExecutor
from edison_ci.features.cluster.nodes import PlainScheduler, carry_plain_data
from edison_ci.features.cluster.preparation import CodeChecks
from edison_ci.features.cluster.tls import ClusterAddress, read_address
from edison_ci.features.cluster.wire import HANDLER, Hello, WireError, read_hello, write_hello
from edison_ci.features.cluster.worker import PlainWorker, WorkerService
from edison_ci.records import Completion, Message, Request
from tests.conftest import MINIMAL
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from distributed.comm.core import Comm

    from edison_ci.config.models import Model

GOOD = {
    "text": "fine", "finish_reason": "stop", "tokens_in": 3, "tokens_out": 1, "cached_in": 0,
    "latency_ms": 5, "served_model": "m", "tool_calls": None, "written_in": 0,
    "written_hour_in": 0, "left_out": [], "cost_microusd": None, "details": None,
}  # fmt: skip


NO_CODE = CodeChecks(cast("Any", SimpleNamespace(experiments={})), None)


class Honest:
    """A provider that answers at once."""

    async def complete(self, request: Request) -> Completion:
        if "refuse" in request.messages[0].content:
            raise CallError(ErrorKind.CONTENT_FILTER, "no", status=400, charged=False)
        return Completion(f"to {request.messages[0].content}", tokens_in=2, tokens_out=3)


class Odd(WorkerService):
    """A worker that answers the calls it is given in its own way."""

    def __init__(self, answers: Callable[[int], list[Any]], version: str = __version__) -> None:
        super().__init__(lambda _: Honest(), NO_CODE, name="odd", version=version)
        self._odd = answers
        self.unready: dict[str, str] = {}

    async def serve(self, comm: Comm, hello: str) -> Status:
        read_hello(hello)
        welcome = {"version": self._version, "name": self.name, "now": 0.0, "unready": self.unready}
        await comm.write({"welcome": json.dumps({**welcome, "unable": {}, "places": 1})})
        with contextlib.suppress(OSError):
            while True:
                message = await comm.read()
                for text in (*message["leases"], *message["checks"]):
                    for answer in self._odd(json.loads(text)["id"]):
                        said = answer if isinstance(answer, dict) else {"answers": [answer]}
                        nothing: dict[str, Any] = {"answers": [], "outcomes": []}
                        await comm.write({"draining": False, **nothing, **said})
        return Status.dont_reply


def model(tmp_path: Path) -> Model:
    for name, text in MINIMAL.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return next(iter(load_project(tmp_path).models.values()))


def ask(text: str) -> Request:
    return Request("openai", "", "small", (Message("user", text),), {"max_tokens": 5})


@contextlib.asynccontextmanager
async def cluster(
    tmp_path: Path, *services: WorkerService
) -> AsyncIterator[tuple[DaskExecutor, list[str], list[PlainWorker]]]:
    """Yield the executor of a run at these workers, and what it says."""
    carry_plain_data()
    said: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        plain = PlainScheduler(ClusterAddress("127.0.0.1", 0, tls=False), None, lambda _: None)
        scheduler = await stack.enter_async_context(plain)
        address = read_address(scheduler.address)
        workers = []
        for number, service in enumerate(services):
            folder = tmp_path / f"worker-{number}"
            worker = PlainWorker(address, folder, service, None)
            workers.append(await stack.enter_async_context(worker))
        found = DaskExecutor(scheduler.address, None, "run-1", [model(tmp_path)], said.append)
        stack.push_async_callback(found.aclose)
        yield found, said, workers


def honest(name: str = "honest") -> WorkerService:
    return WorkerService(lambda _: Honest(), NO_CODE, name=name, version=__version__)


def completion(lease: int, **changed: Any) -> str:
    return json.dumps({"id": lease, "completion": {**GOOD, **changed}})


BOMB = Serialized(
    {"serializer": "msgpack", "compression": ("zlib",)},
    [zlib.compress(b"\xc0" * 1_000_000)],
)
ODD: dict[str, tuple[Callable[[int], list[Any]], str]] = {
    "unasked": (lambda lease: [completion(lease + 500)], "a call that it was not given"),
    "twice": (lambda lease: [completion(lease)] * 2, "a call that it was not given"),
    "negative": (lambda lease: [completion(lease, tokens_out=-1)], "tokens_out is not a whole"),
    "absurd": (lambda lease: [completion(lease, tokens_in=10**12)], "tokens_in is not a whole"),
    "costly": (lambda lease: [completion(lease, cost_microusd=5)], "names a cost"),
    "no number": (lambda lease: [completion(lease, latency_ms=float("nan"))], "not JSON"),
    "no text to store": (lambda lease: [completion(lease, text="\ud800")], "not JSON that can"),
    "no calls": (lambda lease: [completion(lease, tool_calls="x")], "tool_calls is not a list"),
    "details": (lambda lease: [completion(lease, details={"a": 1})], "names a cost or details"),
    "bomb": (lambda _: [{"answers": BOMB}], "not of one frame"),
    "code": (lambda _: [{"answers": to_serialize(Honest())}], "not of one frame"),
    "other fields": (lambda lease: [completion(lease, code="x")], "unknown fields"),
    "no JSON": (lambda _: ["[" * 100_000], "not JSON"),
    "no text": (lambda _: [{"answers": [17]}], "not a text"),
    "odd error": (lambda lease: [json.dumps({"id": lease, "error": {"kind": "X"}})], "kind"),
    "odd message": (lambda _: [{"hello": 1}], "unknown message"),
    "flood": (lambda _: [{"answers": []}] * 100, "without end"),
}


@pytest.mark.parametrize("case", ODD)
async def test_a_worker_that_breaks_the_protocol_is_dropped(case: str, tmp_path: Path) -> None:
    answers, why = ODD[case]
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, Odd(answers)) as (found, said, _):
        await found.open(0)
        (provider,) = [found.provider_for(each) for each in found._models]
        assert provider is not None
        calls = [asyncio.create_task(provider.complete(ask(str(i)))) for i in range(2)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        lost = [each for each in results if isinstance(each, CallError)]
        assert lost and all(each.lost_worker and each.charged and each.retried for each in lost)
        assert any("was dropped" in each and why in each for each in said), said
        assert found.states() == [] and found.stranded_s > 0
        with pytest.raises(CallError, match="no worker is left") as refused:
            await provider.complete(ask("more"))
        assert not refused.value.charged


async def test_odd_answers_of_a_model_are_no_fault_of_the_worker(tmp_path: Path) -> None:
    class Model:
        async def complete(self, request: Request) -> Completion:
            match request.messages[0].content:
                case "bug":
                    raise LookupError("a bug of a plugin")
                case "negative":
                    return Completion("x", tokens_in=-1, tokens_out=1)
                case "nan":
                    return Completion("x", details=float("nan"))
                case "set":
                    return Completion("x", tool_calls={1})  # type: ignore[arg-type]
                case "error":
                    raise CallError(ErrorKind.BAD_REQUEST, "\ud800", status=400, charged=False)
            return Completion("fine", tokens_in=0, tokens_out=0)

    service = WorkerService(lambda _: Model(), NO_CODE, name="relay", version=__version__)
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, service) as (found, said, _):
        await found.open(0)
        (this,) = found._models
        provider = found.provider_for(this)
        assert provider is not None
        for odd, why in {
            "bug": "BAD_RESPONSE: at the worker: LookupError: a bug of a plugin",
            "negative": "BAD_RESPONSE: at the worker: WireError: tokens_in",
            "nan": "BAD_RESPONSE: at the worker: WireError: a message is not JSON",
            "set": "BAD_RESPONSE: at the worker: TypeError",
            "error": "BAD_REQUEST",
        }.items():
            with pytest.raises(CallError, match=why) as refused:
                await provider.complete(ask(odd))
            assert not refused.value.lost_worker
        assert (await provider.complete(ask("x"))).text == "fine"
        assert [state.answered for state in found.states()] == [6] and len(said) == 1


async def test_calls_go_to_workers_that_can_make_them(tmp_path: Path) -> None:
    def without_key(_: Model) -> Any:
        raise UsageError("needs a key in SOME_KEY, which is not set")

    bare = WorkerService(without_key, NO_CODE, name="bare", version=__version__)
    wrong = Odd(lambda lease: [json.dumps({"id": lease, "error": {
        "kind": "INVALID_KEY", "message": "401", "status": 401, "retry_after_s": None,
        "charged": False, "garbled": False}})])  # fmt: skip
    lost = Odd(lambda _: [])
    lost.unready = {"9" * 5_000: "x"}
    services = (honest(), bare, wrong, Odd(lambda _: [], version="0.0.1"), lost)
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, *services) as (found, said, _):
        await found.open(0)
        (this,) = found._models
        provider = found.provider_for(this)
        assert provider is not None and found.workers(this) == 2
        results = await asyncio.gather(
            *(provider.complete(ask(str(i))) for i in range(4)), return_exceptions=True
        )
        texts = {each.text for each in results if isinstance(each, Completion)}
        moved = [each for each in results if isinstance(each, CallError)]
        assert texts <= {"to 0", "to 1", "to 2", "to 3"} and texts
        assert moved and all(each.lost_worker and not each.charged for each in moved)
        assert found.workers(this) == 1 and found.stranded_s == 0
        with pytest.raises(CallError, match="CONTENT_FILTER"):
            await provider.complete(ask("refuse"))
        assert any("bare cannot call" in each and "SOME_KEY" in each for each in said)
        assert any("it has edison" in each and "0.0.1" in each for each in said), said
        assert any("is not used: unready is not a mapping" in each for each in said), said
        assert any("clock of worker odd" in each and "behind" in each for each in said)
        by_itself = replace(this, provider="command")
        assert found.provider_for(by_itself) is None


async def test_a_worker_serves_one_coordinator_of_a_run_and_finishes_its_calls(
    tmp_path: Path,
) -> None:
    started, release, leaves, over = (asyncio.Event() for _ in range(4))

    class Slow:
        async def complete(self, request: Request) -> Completion:
            started.set()
            await release.wait()
            return Completion("late")

    def tell(said: str) -> None:
        if said.startswith("run run-2: over"):
            over.set()

    service = WorkerService(lambda _: Slow(), NO_CODE, name="slow", version=__version__, tell=tell)
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, service) as (found, said, _):
        await found.open(0)
        second = DaskExecutor(found._scheduler, None, "run-1", found._models, said.append)
        with pytest.raises(UsageError, match="another coordinator runs run-1 already"):
            await second.open(0)
        other = DaskExecutor(found._scheduler, None, "run-2", found._models, said.append)
        await other.open(0)
        again = DaskExecutor(found._scheduler, None, "run-2", found._models, said.append)
        again._name = other._name  # it lost the connection, which the worker does not know yet
        await again.open(0)
        await other.aclose()
        await over.wait()
        assert service.runs == 2
        await again.aclose()
        (this,) = found._models
        provider = found.provider_for(this)
        assert provider is not None
        call = asyncio.create_task(provider.complete(ask("x")))
        await started.wait()
        found.on_change = leaves.set
        draining = asyncio.create_task(service.drain())
        await leaves.wait()
        assert not found.workers(this)
        assert found.stranded_s > 0 and not draining.done()
        release.set()
        assert (await call).text == "late"
        await draining


def test_a_coordinator_is_not_believed_either(tmp_path: Path) -> None:
    this = model(tmp_path)
    told = json.loads(write_hello(Hello(__version__, "r", "c", "3.11", 0.0, (this,))))
    assert read_hello(json.dumps(told)).models[0].key == this.key
    for changed in (
        {"protocol": 2},
        {"models": 7},
        {"models": [{**told["models"][0], "base_url": "ftp://host"}]},
        {"models": [{**told["models"][0], "api_key": "sk-1"}]},
        {"models": [{**told["models"][0], "limits": {"concurrency": 0}}]},
        {"programs": [["python a.py:f"]]},
        {"programs": [["python a.py:f", 7]]},
        {"programs": [["x" * 20_000, ""]]},
        {"more": 1},
    ):
        with pytest.raises(WireError):
            read_hello(json.dumps({**told, **changed}))
    assert HANDLER == "edison"


# --- checks ---------------------------------------------------------------------------------------

TONE = """
from checks.words import LONG

def check(output, expected, case):
    if output == "odd":
        raise ValueError("no such tone")
    first = next(iter(case["inputs"]))
    return {"score": len(output) / LONG, "pass": True, "reason": f"{first} at {LONG}"}
"""
PYTHON_CHECK = "python checks/tone.py:check"
PROGRAM = "command python3 checks/grade.py"


def checkout(folder: Path, *, long: int = 7) -> CodeChecks:
    """Return the code checks of a project."""
    model(folder)
    text = MINIMAL["experiments/hello.yaml"]
    added = "\n".join([
        "checks:", "  - python: checks/tone.py:check",
        "  - any_of: [{contains: x}, {command: [python3, checks/grade.py]}]", ""])  # fmt: skip
    assert "checks:\n" in text
    (folder / "experiments/hello.yaml").write_text(text.replace("checks:\n", added))
    (folder / "checks").mkdir()
    (folder / "checks/tone.py").write_text(TONE)
    (folder / "checks/words.py").write_text(f"LONG = {long}\n")
    (folder / "checks/grade.py").write_text("print(7)\n")
    return CodeChecks(load_project(folder), folder)


def request_of(output: str) -> str:
    case = {"id": "one", "inputs": {"zebra": 1, "ape": 2}}
    return json.dumps({"output": output, "expected": None, "case": case})


class Broken(CodeChecks):
    """A worker that offers code, and cannot start it."""

    def run(self, program: str, digest: str, request: str) -> CheckOutcome | str:
        raise OSError("disk full")


async def test_code_is_run_by_workers_that_have_the_same(tmp_path: Path) -> None:
    same, folder = checkout(tmp_path / "same"), tmp_path / "same"
    project = allow_code(load_project(folder))
    programs = check_programs(project, project.experiments["hello"])
    assert [*programs] == [PROGRAM, PYTHON_CHECK]
    model(tmp_path / "bare")
    known = {
        "same": same,
        "broken": Broken(project, folder),
        "other": checkout(tmp_path / "other", long=9),
        "shut": CodeChecks(project, None),
        "bare": CodeChecks(load_project(tmp_path / "bare"), tmp_path / "bare"),
    }
    services = [
        WorkerService(lambda _: Honest(), checks, name=name, version=__version__)
        for name, checks in known.items()
    ]
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, *services) as (found, said, _):
        await found.open(0, programs)
        assert {state.name: state.unable for state in found.states()} == {
            "same": "",
            "broken": "",
            "other": f"{PROGRAM}: its files are not those of the run (and 1 more)",
            "shut": f"{PROGRAM}: code is not allowed at this worker (and 1 more)",
            "bare": f"{PROGRAM}: no check of its checkout runs that (and 1 more)",
        }
        why = "code is not allowed at this worker"
        assert f"worker shut does not run {PYTHON_CHECK}: {why}" in said
        results = await asyncio.gather(
            found.check(PYTHON_CHECK, request_of("fine")),
            found.check(PYTHON_CHECK, request_of("odd")),
            found.check(PROGRAM, request_of("fine")),
            found.check(PYTHON_CHECK, request_of("fine")),
        )
        failed = "checks/tone.py:check ended with exit code 1: 'ValueError: no such tone'"
        assert [*results] == [
            CheckOutcome(4 / 7, "zebra at 7", True),
            CheckOutcome(None, failed, None),
            CheckOutcome(None, "the result is '7', not a score from 0 to 1", None),
            CheckOutcome(4 / 7, "zebra at 7", True),
        ]
        assert {state.name for state in found.states() if state.checked} == {"same"}
        assert f"worker broken does not run {PYTHON_CHECK}: OSError: disk full" in said
        assert await found.check("python checks/other.py:check", request_of("fine")) is None
        assert await found.check(PYTHON_CHECK, request_of("x" * 2_000_000)) is None
        # Nor does one whose files have changed meanwhile.
        (folder / "checks/words.py").write_text("LONG = 4\n")
        assert await found.check(PYTHON_CHECK, request_of("fine")) is None
        why = "its files are not those of the run"
        assert f"worker same does not run {PYTHON_CHECK}: {why}" in said
        (folder / "checks/words.py").write_text("LONG = 7\n")
        # What a worker has not offered it does not run, whatever it is sent.
        for link in found._links.values():
            link.unable.clear()
            link.leaving = link.name == "same"
        assert await found.check(PYTHON_CHECK, request_of("fine")) is None
        assert sum(state.checked for state in found.states()) == 4


def outcome(lease: int, **changed: Any) -> dict[str, Any]:
    told = {"score": 1.0, "reason": "", "passed": None, **changed}
    return {"outcomes": [json.dumps({"id": lease, "outcome": told})]}


LIES: dict[str, tuple[Callable[[int], list[Any]], str]] = {
    "not-given": (lambda lease: [outcome(lease + 500)], "a check that it was not given"),
    "twice": (lambda lease: [outcome(lease)] * 2, "a check that it was not given"),
    "nan": (lambda lease: [outcome(lease, score=float("nan"))], "not JSON that can be stored"),
    "high": (lambda lease: [outcome(lease, score=1.5)], "score is not a number from 0 to 1"),
    "negative": (lambda lease: [outcome(lease, score=-0.1)], "score is not a number from 0 to 1"),
    "bool": (lambda lease: [outcome(lease, score=True)], "score is not a number from 0 to 1"),
    "long": (lambda lease: [outcome(lease, reason="x" * 9_000)], "reason is not a text of at most"),
    "passed": (lambda lease: [outcome(lease, passed=1)], "passed is neither true nor false"),
    "silent": (lambda lease: [outcome(lease, score=None)], "a check without a score has a reason"),
    "more": (lambda lease: [outcome(lease, code="x")], "unknown fields"),
    "answer": (lambda lease: [completion(lease)], "a call that it was not given"),
    "no-list": (lambda _: [{"outcomes": "x"}], "unknown message"),
}


async def test_a_worker_that_lies_about_a_check_is_dropped(tmp_path: Path) -> None:
    services = []
    for name, (answers, _) in LIES.items():
        service = Odd(answers)
        service.name = name
        services.append(service)
    async with asyncio.timeout(PATIENCE_S), cluster(tmp_path, *services) as (found, said, _):
        await found.open(0, {PYTHON_CHECK: "0" * 64})
        while found.states():
            told = await found.check(PYTHON_CHECK, request_of("fine"))
            assert told is None or told == CheckOutcome(1.0, "", None)  # before it came twice
        for name, (_, why) in LIES.items():
            lines = [line for line in said if line.startswith(f"worker {name} was dropped: ")]
            assert len(lines) == 1 and why in lines[0], (name, said)
        assert await found.check(PYTHON_CHECK, request_of("fine")) is None
