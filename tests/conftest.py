"""What every test may rely on: a scrubbed environment, sockets shut, projects on disk."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from edison_ci import utc
from edison_ci.checks.child import WITHOUT_SANDBOX, has_sandbox
from edison_ci.cli.app import run
from tests import forked, tiers
from tests.ports import held_port
from tests.timing import PATIENCE_S, rest_of_day_s

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long an example takes says more of the machine than of the code. The examples are the same
# each time, so that a change fails for what it changes; `make faults` looks for new ones.
for name, examples in (("quick", 10), ("usual", 50), ("long", 300)):
    settings.register_profile(
        name,
        deadline=None,
        derandomize=name != "long",
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3
FOREIGN = ("EDISON_", "GITHUB_", "GIT_", "RUNNER_", "ACTIONS_", "XDG_", "OTEL_")
"""Variables that say what the user, or a job, has set up."""


def pytest_configure(config: pytest.Config) -> None:
    """Choose how much is tried, and keep what tests write in memory: they make 100,000 files."""
    forked.begin()
    often = "quick" if config.getoption("--tier") == "check" else "usual"
    settings.load_profile("long" if "FAULTS" in os.environ else often)
    if "TMPDIR" in os.environ or "FAULTS" in os.environ or not MEMORY.is_dir():
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # it was asked for before


def pytest_collectstart() -> None:
    """Look for no garbage while tests are collected: there is next to none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over the tests themselves, which stay to the end."""
    # Hypothesis collects garbage, and asks all that is not frozen who refers to its generator.
    _first_property()
    gc.freeze()
    gc.enable()


@settings(derandomize=True, max_examples=1, database=None)
@given(strategies.none())
def _first_property(nothing: None) -> None:
    assert nothing is None


@dataclass
class Homes:
    """Gives out empty home folders: one that stayed empty is given out again."""

    factory: pytest.TempPathFactory
    last: Path | None = None

    def empty(self) -> Path:
        if self.last is None or any(self.last.iterdir()):
            self.last = self.factory.mktemp("home")
        return self.last


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=tiers.TIERS, default="nightly", help="which tests to run (tests/tiers.py)"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of a later tier."""
    tier = config.getoption("--tier")
    if tier == "nightly" or collection_path.suffix != ".py":
        return None
    later = tiers.TIERS.index(tiers.module_tier(collection_path)) > tiers.TIERS.index(tier)
    return True if later else None


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Leave out the tests of later tiers, and begin with the long ones."""
    tier = config.getoption("--tier")
    later = [item for item in items if not tiers.is_in(item, tier)]
    if later:
        config.hook.pytest_deselected(items=later)
        left_out = {*later}
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("nightly") is None)


def seed_of(nodeid: str) -> int:
    """Return the seed of a test: another one for each, and the same one each time."""
    return zlib.crc32(nodeid.encode())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed the generators that all of a process share, and let no day end during a test."""
    time.sleep(rest_of_day_s(utc.now()))
    random.seed(seed_of(item.nodeid))
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed_of(item.nodeid))


def pytest_unconfigure() -> None:
    forked.close()


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    return Homes(tmp_path_factory)


@pytest.fixture(autouse=True)
def scrubbed(monkeypatch: pytest.MonkeyPatch, homes: Homes) -> None:
    """Take away keys, the user's Git configuration and what else differs between machines."""
    for name in list(os.environ):
        if name.startswith(FOREIGN) or name.lower().endswith(("_api_key", "_token", "_proxy")):
            monkeypatch.delenv(name)
    # Processes that may not write what they compiled compile it again each time.
    for name in ("CI", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("HOME", str(homes.empty()))
    monkeypatch.delenv(WITHOUT_SANDBOX, raising=False)
    if not has_sandbox():  # what code checks do is tested there too, and what keeps them in is not
        monkeypatch.setenv(WITHOUT_SANDBOX, "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Test")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "test@example.com")


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail every connection that leaves this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if self.family != socket.AF_UNIX and not str(host).startswith(("127.", "::1", "localhost")):
            raise AssertionError(f"a test tried to reach {address!r}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def heard_ctrl_c() -> Iterator[None]:
    """Let processes that tests start hear Ctrl-C, though `nohup make test &` ignores it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def port() -> Iterator[int]:
    """A port that refuses connections until the test starts a server on it."""
    with held_port() as port:
        yield port


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class Folder:
    """A project on disk, with a way to change it and to run commands in it."""

    path: Path

    def write(self, name: str, text: str | bytes) -> Path:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def read(self, name: str) -> str:
        return (self.path / name).read_text(encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = self.read(name)
        assert old in text, f"{old!r} is not in {name}"
        self.write(name, text.replace(old, new, 1))

    def edison(self, *args: str, env: dict[str, str] | None = None) -> Result:
        """Run the real command in a process of its own."""
        done = forked.run(
            [sys.executable, "-P", "-m", "edison_ci", *args],
            cwd=self.path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def git(self, *args: str) -> str:
        return self.git_bytes(*args).decode().strip()

    def git_bytes(self, *args: str) -> bytes:
        done = subprocess.run(
            ["git", *args], cwd=self.path, capture_output=True, check=True, timeout=PATIENCE_S
        )
        return done.stdout


class Edison(Protocol):
    """Runs a command in a folder, in this process: starting one takes half a second."""

    def __call__(self, folder: Folder, *args: str, encoding: str = "utf-8") -> Result: ...


@pytest.fixture
def edison(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edison]:
    """Run commands in this process, and put back what a process of its own would take along."""
    before, logger = signal.getsignal(signal.SIGTERM), logging.getLogger("edison_ci")

    def invoke(folder: Folder, *args: str, encoding: str = "utf-8") -> Result:
        monkeypatch.chdir(folder.path)
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        err = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        code = -1
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run(list(args))
            except SystemExit as ended:
                assert isinstance(ended.code, int)
                code = ended.code
            sys.stdout.flush()
        return Result(code, _text(out), _text(err))

    yield invoke
    signal.signal(signal.SIGTERM, before)
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(stream.encoding)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder."""
    path = tmp_path / "project"
    path.mkdir()
    return Folder(path)


@pytest.fixture
def support(tmp_path: Path) -> Folder:
    """The customer-support project, with its schemas."""
    path = tmp_path / "support"
    shutil.copytree(EXAMPLES / "customer-support", path)
    shutil.copytree(ROOT / "schemas", path / ".edison" / "schemas")
    return Folder(path)


MINIMAL = {
    "edison.yaml": "version: 1\nproject: mini\n",
    "models.yaml": "small: {provider: sim, model: small}\njudge: {provider: sim, model: judge}\n",
    "prompts/hello.md": (
        "---\nid: hello\n---\n# user\n"
        "Say hello to {{ name }} in one friendly sentence, and nothing else.\n"
    ),
    "datasets/names.jsonl": '{"id": "ada", "input": {"name": "Ada"}, "expected": "Ada"}\n'
    '{"id": "bo", "input": {"name": "Bo"}, "expected": "Bo"}\n',
    "rubrics/tone.yaml": (
        "rubric: tone\ncriteria:\n"
        "  - {name: Warmth, description: Sounds friendly and warm., weight: 0.5}\n"
        "  - {name: Brevity, description: One short sentence only., weight: 0.5}\n"
    ),
    "experiments/hello.yaml": (
        "experiment: hello\n"
        "objective: Greet people by their name in a friendly way.\n"
        "prompts: [prompts/hello.md]\n"
        "models: [small]\n"
        "dataset: datasets/names.jsonl\n"
        'checks:\n  - contains: "{{ expected }}"\n'
        "rubric: rubrics/tone.yaml\n"
        "judges: {pointwise: [judge]}\n"
        "gates:\n  - {metric: composite, no_worse_than: base, margin: 10pp}\n"
    ),
}
"""A small valid project, file by file."""


@pytest.fixture
def mini(folder: Folder) -> Folder:
    """A small valid project."""
    for name, text in MINIMAL.items():
        folder.write(name, text)
    return folder
