"""A program of the repository answers as a model, and its failures are errors of single calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edison_ci.checks.child import PROGRAM_LIMITS
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.execute.session import run_in_loop
from edison_ci.providers.command import MOST_BYTES, CommandProvider, Program
from edison_ci.records import FinishReason
from tests.providers.kitchen import ask
from tests.sandboxes import namespaces, sandbox
from tests.timing import PATIENCE_S, poll

__all__ = ["sandbox"]

ANSWER = """
import json, os, sys, time
def say(**reply):
    print(json.dumps({"id": asked["id"], **reply}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    text = asked["messages"][-1]["content"]
"""


def program(folder: Path, body: str, **more: Any) -> CommandProvider:
    """Return the provider of a program that does this with each request."""
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "app.py").write_text(ANSWER + indented)
    run = more.pop("run", [sys.executable, "app.py"])
    own = more.pop("files", folder)
    more.setdefault("timeout_s", PATIENCE_S)
    return CommandProvider(Program(run, folder, partial(copy_files, own), **more))


def copy_files(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


async def closing(provider: CommandProvider, *texts: str, at_once: bool = False) -> list[Any]:
    """Return the answer or the error of each request."""
    try:
        calls = [provider.complete(ask(text)) for text in texts]
        if at_once:
            return await asyncio.gather(*calls, return_exceptions=True)
        found: list[Any] = []
        for call in calls:
            found += await asyncio.gather(call, return_exceptions=True)
        return found
    finally:
        await provider.aclose()


def answers(provider: CommandProvider, *texts: str, at_once: bool = False) -> list[Any]:
    return asyncio.run(closing(provider, *texts, at_once=at_once))


def failure(provider: CommandProvider) -> CallError:
    (error,) = answers(provider, "hello")
    assert isinstance(error, CallError), error
    return error


def test_everything_that_a_program_tells_is_read(tmp_path: Path) -> None:
    body = """say(text=text.upper(), usage={"in": 12, "out": 3}, cost_usd=0.0000015, model="mine",
    context=["a page"], steps=[{"name": "search", "ms": 7}],
    tool_calls=[{"name": "find", "arguments": {"q": text}}])"""
    (found,) = answers(program(tmp_path, body), "hello ü")
    assert found.text == "HELLO Ü"
    assert (found.tokens_in, found.tokens_out, found.cost_microusd) == (12, 3, 2)
    assert found.served_model == "mine"
    assert found.tool_calls == [{"tool": "find", "arguments": {"q": "hello ü"}}]
    assert found.finish_reason is FinishReason.TOOL_CALLS
    assert found.details == {"context": ["a page"], "steps": [{"name": "search", "ms": 7}]}


def test_a_process_stays_for_the_next_request_and_ends_with_the_run(tmp_path: Path) -> None:
    found = answers(program(tmp_path, "say(text=str(os.getpid()))"), *["hello"] * 5)
    (pid,) = {answer.text for answer in found}
    assert not Path(f"/proc/{pid}").exists()


def test_concurrent_calls_have_processes_of_their_own(tmp_path: Path) -> None:
    body = "time.sleep(0.2)\nsay(text=str(os.getpid()))"
    found = answers(program(tmp_path, body), *["hello"] * 4, at_once=True)
    assert len({answer.text for answer in found}) == 4


FAILURES = {
    "a crash": (
        "print('lost the index', file=sys.stderr); sys.exit(3)",
        "ended with 3",
        "lost the",
    ),
    "a signal": ("os.kill(os.getpid(), 9)", "ended with -9", "no error output"),
    "an exception": (
        "raise ValueError('no such page')",
        "ended with 1",
        "ValueError: no such page",
    ),
    "a line of a log": ("print('starting up', flush=True)", "'starting up'", "standard error"),
    "another request": ("asked['id'] += 1\nsay(text='late')", "did not answer request 1", ""),
    "no object": ("print('[1]', flush=True)", "did not answer request 1", ""),
    "no text": ("say(answer='x')", "neither text nor tool_calls", ""),
    "an error": ("say(error='no credit left')", "no credit left", ""),
    "an impossible cost": ("say(text='x', cost_usd=float('nan'))", "cost_usd", ""),
    "a negative cost": ("say(text='x', cost_usd=-1)", "cost_usd", ""),
    "a cost in words": ("say(text='x', cost_usd='much')", "cost_usd", ""),
    "too much context": ("say(text='x', context=['y' * 2000000])", "at most 1,000,000", ""),
    "deep nesting": ("print('[' * 100000, flush=True)", "not JSON", ""),
    "a flood": (f"sys.stdout.write('x' * {3 * MOST_BYTES})\nsys.stdout.flush()", "4,000,000", ""),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_an_error_of_its_call_and_the_next_one_is_answered(
    tmp_path: Path, kind: str
) -> None:
    body, *said = FAILURES[kind]
    indented = body.replace("\n", "\n    ")
    provider = program(tmp_path, f"if text == 'bad':\n    {indented}\nelse:\n    say(text='good')")
    bad, good = answers(provider, "bad", "fine")
    assert isinstance(bad, CallError)
    assert bad.kind is ErrorKind.BAD_RESPONSE
    for words in said:
        assert words in str(bad)
    assert good.text == "good"


def test_a_program_that_ended_after_its_answer_is_an_error_of_the_next_call(tmp_path: Path) -> None:
    provider = program(tmp_path, "say(text='last')\nsys.exit(3)")

    async def ask_twice() -> list[Any]:
        first = await provider.complete(ask("one"))
        (process,) = provider._idle
        await process.process.wait()
        await asyncio.sleep(0.2)  # the loop notices that nobody reads any more
        second = await asyncio.gather(provider.complete(ask("two")), return_exceptions=True)
        third = await provider.complete(ask("three"))
        await provider.aclose()
        return [first.text, *second, third.text]

    first, error, third = run_in_loop(ask_twice())
    assert (first, third) == ("last", "last")
    assert isinstance(error, CallError)
    assert error.kind is ErrorKind.BAD_RESPONSE
    assert "ended with 3 before it answered" in str(error)


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    body = f"""if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(tmp_path / "stray")!r}, "w").write(str(os.getpid()))
        time.sleep(600)
time.sleep(600)"""
    error = failure(program(tmp_path, body, timeout_s=2.0))
    assert error.kind is ErrorKind.TIMEOUT
    assert "no answer within 2 s" in str(error)
    stray = (tmp_path / "stray").read_text()
    poll("the stray is gone", lambda: not alive(stray))


def alive(pid: str) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_flood_of_errors_blocks_nothing(tmp_path: Path) -> None:
    body = "sys.stderr.write('e' * 5000000)\nsay(text='here')"
    assert [found.text for found in answers(program(tmp_path, body), "a", "b")] == ["here", "here"]


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    error = failure(program(tmp_path, "pass", run=["no-such-program"]))
    assert error.kind is ErrorKind.MODEL_NOT_FOUND
    assert "no-such-program cannot be started" in str(error)


def test_a_program_gets_named_variables_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")
    body = """seen = dict(os.environ)
try:
    seen["parent"] = open(f"/proc/{os.getppid()}/environ").read()
except OSError as error:
    seen["parent"] = str(error)
say(text=json.dumps(seen))"""
    (found,) = answers(program(tmp_path, body, environment={"MY_KEY": "mine"}), "hello")
    seen = json.loads(found.text)
    assert seen["MY_KEY"] == "mine"
    assert "sk-other" not in found.text
    assert set(seen) <= {"PATH", "LANG", "HOME", "TMPDIR", "PYTHONUNBUFFERED", "MY_KEY",
                         "EDISON_PROGRAM", "LC_CTYPE", "parent"}  # fmt: skip


@pytest.mark.usefixtures("sandbox")
def test_a_confined_program_reaches_no_network_and_writes_nothing(tmp_path: Path) -> None:
    body = """import socket
found = {}
try:
    socket.create_connection(("127.0.0.1", 9), 2)
except OSError as error:
    found["network"] = error.errno
try:
    open("written", "w")
except OSError as error:
    found["write"] = error.errno
open(os.path.expanduser("~/fine"), "w")
say(text=json.dumps(found))"""
    (found,) = answers(program(tmp_path, body, confined=True), "hello")
    assert json.loads(found.text)["network"] in (1, 101)  # not permitted, or no route
    assert "write" in json.loads(found.text)
    assert not (tmp_path / "written").exists()


@pytest.mark.usefixtures("sandbox")
def test_a_confined_program_cannot_reach_a_server_of_this_machine(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        body = f"""import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 2)
    say(text="reached")
except OSError:
    say(text="not reached")"""
        (open_one,) = answers(program(tmp_path, body), "hello")
        (confined,) = answers(program(tmp_path, body, confined=True), "hello")
    assert (open_one.text, confined.text) == ("reached", "not reached")


WALK = """
seen = set()
for top in ("/", os.getcwd(), text):
    for where, folders, names in os.walk(top):
        folders[:] = [f for f in folders if f not in ("usr", "proc") and
                      os.path.join(where, f) not in (sys.prefix, sys.base_prefix)]
        seen.update(os.path.join(where, name) for name in names)
"""


@pytest.mark.usefixtures("sandbox")
def test_a_confined_program_sees_its_own_files_and_named_folders_only(tmp_path: Path) -> None:
    root, named = tmp_path / "project", tmp_path / "models"
    for path in (
        root / ".git/config",
        root / "app/.hidden",
        root / "beside.txt",
        root / "app/node_modules/left/index.js",
        named / "weights.bin",
        named / ".git/config",
        Path.home() / ".netrc",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("canary-word")
    body = f"""{WALK.strip()}
for path in ({str(root / ".git/config")!r}, os.path.expanduser("~/.netrc"),
             {str(Path.home() / ".netrc")!r}, {str(root / "beside.txt")!r},
             {str(named / ".git/config")!r}, {str(named / "weights.bin")!r}):
    try:
        open(path)
        seen.add(path)
    except OSError:
        pass
try:
    open({str(named / "new")!r}, "w")
    seen.add("written")
except OSError:
    pass
own = os.getcwd()
seen = [name.removeprefix(own) for name in seen]
system = ("/etc/", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
          "/dev/fd", "/dev/std")
say(text=json.dumps([name for name in seen if not name.startswith(system)]))"""
    provider = program(root / "app", body, files=root / "app", confined=True, readable=[named])
    (answer,) = answers(provider, str(named))
    visible = sorted(json.loads(answer.text))
    assert visible == sorted([
        *("/app.py", "/.hidden", "/node_modules/left/index.js"), str(named / "weights.bin"),
    ])  # fmt: skip
    assert not (named / "new").exists()


@pytest.mark.usefixtures("sandbox")
def test_a_confined_set_up_builds_what_the_program_reads(tmp_path: Path) -> None:
    (tmp_path / "build.py").write_text("open('built', 'w').write('fine')")
    body = """try:
    open("built", "w")
except OSError:
    say(text=open("built").read())"""
    setup = [sys.executable, "build.py"]
    (answer,) = answers(program(tmp_path, body, setup=setup, confined=True), "hello")
    assert answer.text == "fine"
    assert not (tmp_path / "built").exists()


EXCESSES = {
    "memory": ("kept = bytearray(300 << 20)\ntime.sleep(600)", "it used more than 100 MB"),
    "memory of a process that leaves": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        kept = bytearray(300 << 20)\n        time.sleep(600)\ntime.sleep(600)",
        "it used more than 100 MB",
    ),
    "processes": (
        "import threading\nfor _ in range(40):\n"
        "    threading.Thread(target=time.sleep, args=[600]).start()\ntime.sleep(600)",
        "it started more than 20 processes",
    ),
    "files": (
        "for number in range(30):\n    open(str(number), 'wb').write(b'x' * 100_000)\n"
        "time.sleep(600)",
        "it wrote more than 1 MB to files",
    ),
}
SMALL = replace(
    PROGRAM_LIMITS, memory_bytes=100 << 20, processes=20, files_bytes=1 << 20, file_bytes=1 << 20
)


@pytest.mark.parametrize("kind", EXCESSES)
def test_a_program_that_takes_too_much_is_ended_and_the_next_call_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("app", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    body, reason = EXCESSES[kind]
    indented = body.replace("\n", "\n    ")
    body = f"if text == 'bad':\n    {indented}\nelse:\n    say(text='good')"
    provider = program(tmp_path / "app", body, limits=SMALL, timeout_s=30.0)
    bad, good = answers(provider, "bad", "fine")
    assert isinstance(bad, CallError)
    assert reason in str(bad)
    assert good.text == "good"
    poll("all are gone", lambda: not processes_in(tmp_path))


def processes_in(folder: Path) -> list[str]:
    """Return the processes that work below a folder."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if str(folder) in str(entry.readlink()) and alive(entry.parent.name):
                pids.append(entry.parent.name)
    return pids


@namespaces
@pytest.mark.parametrize("sizes", [[3_000_000], [100_000] * 30])
def test_what_a_confined_program_writes_is_limited_by_the_kernel(
    tmp_path: Path, sizes: list[int]
) -> None:
    body = f"""try:
    for number, size in enumerate({sizes}):
        with open(os.path.expanduser(f"~/{{number}}"), "wb") as file:
            file.write(b"x" * size)
    say(text="written")
except OSError as error:
    say(text=error.strerror)"""
    (answer,) = answers(program(tmp_path, body, confined=True, limits=SMALL), "hello")
    assert answer.text in ("File too large", "No space left on device")


def test_a_set_up_that_takes_too_much_is_ended(tmp_path: Path) -> None:
    (tmp_path / "build.py").write_text(
        "import time\nfor n in range(30): open(str(n), 'wb').write(b'x' * 100_000)\ntime.sleep(30)"
    )
    setup = [sys.executable, "build.py"]
    error = failure(program(tmp_path, "say(text='x')", setup=setup, limits=SMALL))
    assert error.kind is ErrorKind.MODEL_NOT_FOUND
    assert "was stopped: it wrote more than 1 MB to files" in str(error)


def test_the_set_up_runs_once_before_the_first_call(tmp_path: Path) -> None:
    (tmp_path / "build.py").write_text("print('noise' * 100000); open('built', 'a').write('x')")
    provider = program(
        tmp_path, "say(text=open('built').read())", setup=[sys.executable, "build.py"]
    )
    found = answers(provider, *["hello"] * 3, at_once=True)
    assert [answer.text for answer in found] == ["x", "x", "x"]


def test_a_set_up_that_fails_is_said_once_and_for_all(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    (tmp_path / "build.py").write_text(
        f"open({str(tried)!r}, 'a').write('x'); raise SystemExit('no lock')"
    )
    provider = program(tmp_path, "say(text='x')", setup=[sys.executable, "build.py"])
    for error in answers(provider, "a", "b"):
        assert isinstance(error, CallError)
        assert error.kind is ErrorKind.MODEL_NOT_FOUND
        assert "the set-up of the program ended with 1: no lock" in str(error)
    assert tried.read_text() == "x"


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = set(Path(os.environ.get("TMPDIR", "/tmp")).glob("edison-program-*"))
    answers(program(tmp_path, "say(text='x')"), "hello")
    assert set(Path(os.environ.get("TMPDIR", "/tmp")).glob("edison-program-*")) <= before
