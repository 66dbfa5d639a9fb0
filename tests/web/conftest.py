"""Results with something of everything, and servers of both lines of Datasette on them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import async_playwright

from edison_ci.access.site import open_site
from edison_ci.api.duties import duties_of
from edison_ci.store.liveness import try_lock
from tests import forked, showcase
from tests.conftest import ROOT
from tests.timing import PATIENCE_S
from tests.web.review_site import ReviewSite, build

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from playwright.async_api import Browser

LINES = ("0.65", "1.0")
IN_TURN = (LINES[0], pytest.param(LINES[1], marks=pytest.mark.nightly))
"""The lines as parameters: the next one of Datasette is tested at night."""
NEXT_LINE = ROOT / ".tools" / "datasette-1"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A project with results, made once for all processes of the tests."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder if worker_id == "master" else folder.parent
    target = shared / "showcase"
    with (shared / "showcase.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            showcase.build(aside := shared / "showcase.part")
            aside.rename(target)
    return target


def chromium() -> str:
    """Return Chromium as the machine has it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    assert path is not None, "make browser installs Chromium"
    return path


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """One browser for all tests of a process, in which each has a context of its own.

    Starting one takes two seconds. Tests that use it run in the loop of the session.
    """
    environ: dict[str, str | float | bool] = {
        **os.environ,
        "HOME": str(tmp_path_factory.mktemp("browser")),
    }
    async with async_playwright() as play:
        found = await play.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"], env=environ
        )
        yield found
        await found.close()


in_browser = pytest.mark.asyncio(loop_scope="session")
"""Marks a test that uses the browser."""


@pytest.fixture(scope="session")
def worker_id(request: pytest.FixtureRequest) -> str:
    """The process of the tests, also without xdist."""
    return str(getattr(request.config, "workerinput", {}).get("workerid", "master"))


@dataclass(frozen=True)
class Stored:
    """Asks the results of a project."""

    project: Path

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.project / ".edison" / "results.db")) as connection:
            return connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> Any:
        return self.rows(sql, *values)[0][0]

    @property
    def against(self) -> str:
        """The run that has a base."""
        return str(self.one("select id from run where base_commit is not null"))

    def cell(self, case: str = "return-how", where: str = "1") -> str:
        """A cell of that run, as people see its id."""
        found = self.one(
            f"select id from cell where run_id = ? and case_id = ? and side = 'head' and {where} "
            "order by prompt, model, repeat",
            self.against,
            case,
        )
        return str(found)[:12]

    def pages(self) -> list[str]:
        """The address of every page, with something to see on each."""
        run, prefix = self.against, "/-/edison"
        unreliable, paused = (
            self.one("select id from run where experiment = 'unreliable'"),
            self.one("select id from run where status = 'PAUSED'"),
        )
        hostile = showcase.HOSTILE[0]["id"]
        filters = urlencode({"tag": "hostile", "failed": "1", "sort": "cost"})
        found = ["", "/help", f"/experiment/{showcase.EXPERIMENT}", "/experiment/unreliable"]
        found += [f"/run/{run}", f"/run/{unreliable}", f"/run/{paused}", f"/run/{run}?{filters}"]
        found += [f"/cell/{self.cell()}", f"/cell/{self.cell(hostile)}?tag=hostile&page=1"]
        found += [f"/run/{run}/case?{urlencode({'case': hostile, 'diff': '1'})}"]
        found += [
            f"/run/{run}/{tab}" for tab in ("decisions", "criteria", "slices", "judges", "log")
        ]
        found += [f"/run/{paused}/decisions", f"/run/{paused}/criteria", f"/run/{paused}/slices"]
        found += ["/compare", f"/compare?b={run}", f"/compare?b={run}&move=fixed&full=1&page=2"]
        found += [f"/compare?a=nowhere&b={run}", f"/run/{run}?changed=all"]
        found += ["/leaderboard", f"/leaderboard?experiment={showcase.EXPERIMENT}", "/costs"]
        found += [f"/experiment/{showcase.EXPERIMENT}?days=all", "?q=support&status=paused"]
        found += ["/leaderboard?experiment=*", "/datasets?q=returns"]
        found += [f"/dataset/{showcase.EXPERIMENT}?q=return"]
        found += [f"/dataset/{showcase.EXPERIMENT}/history?case=return-how"]
        found += ["/models", "/search", "/search?q=re", "/search?q=%3Cscript"]
        found += ["/prompts", "/prompt/support-reply", "/datasets"]
        found += [f"/dataset/{showcase.EXPERIMENT}", "/suggestions", "/suggestions?status=refused"]
        found += [f"/suggestion/{each}" for (each,) in self.rows("select id from suggestion")]
        found += [f"/run/{run}/grade", f"/run/{run}/grade?scale=thumbs&only=flagged&agreement=1"]
        found += [f"/run/{run}/grade?scale=0-1&only=all", "/loops"]
        found += [f"/loop/{each}" for (each,) in self.rows("select id from loop")]
        found += ["/alerts", "/audit"]
        return [prefix + each for each in found]

    def forms(self) -> list[str]:
        """The address of every page that is only there for somebody who may act."""
        proposed = self.one("select id from suggestion where status = 'proposed'")
        return [f"/-/edison/suggestion/{proposed}/edit", "/-/edison/prompt/support-reply/edit"]


@pytest.fixture(scope="session")
def stored(project: Path) -> Stored:
    return Stored(project)


@dataclass(frozen=True)
class Server:
    """A running `edison serve`."""

    address: str
    line: str
    client: httpx.Client

    def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return self.client.get(path, **kwargs)


def environment(line: str) -> dict[str, str]:
    """Return the environment in which Datasette is of a line."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EDISON_", "GITHUB_"))}
    return kept if line == LINES[0] else {**kept, "PYTHONPATH": str(NEXT_LINE)}


def started(
    project: Path, line: str, *options: str, environ: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Yield a server of this line, and end it."""
    command = ("-P", "-m", "edison_ci", "serve", "--port", "0", "--json", *options)
    yield from asked(project, line, *command, environ=environ)


def asked(
    project: Path, line: str, *command: str, environ: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Yield the server that a command of Python starts; what it complains of goes to a file."""
    with (project / "serve.log").open("a") as log:
        process = forked.Popen(
            [sys.executable, *command],
            cwd=project,
            env={**environment(line), **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    told = ""
    for text in process.stdout:
        told += text
        if text.startswith("}"):
            break
    address = f"http://127.0.0.1:{json.loads(told)['port']}"
    try:
        with httpx.Client(
            base_url=address, timeout=PATIENCE_S, trust_env=False, verify=False
        ) as client:
            yield Server(address, line, client)
    finally:
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 0
        process.stdout.close()


@pytest.fixture(scope="session", params=IN_TURN)
def server(request: pytest.FixtureRequest, project: Path) -> Iterator[Server]:
    """A server of each line."""
    yield from started(project, request.param)


@pytest.fixture(scope="module", params=IN_TURN)
def one_desk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReviewSite]:
    """A server of each line on a project of its own, in which people grade and decide."""
    yield from review_desk(tmp_path_factory, request.param)


def review_desk(places: pytest.TempPathFactory, line: str) -> Iterator[ReviewSite]:
    folder = build(places.mktemp("desk"))
    with left_alone(folder.path):
        for server in started(folder.path, line, "--offline"):
            yield ReviewSite(folder, server)


@contextmanager
def left_alone(project: Path) -> Iterator[None]:
    """Let no server do a duty meanwhile: it would close an alert that a test makes up."""
    site = open_site(project)
    with ExitStack() as stack:
        for duty in duties_of(site):
            assert stack.enter_context(try_lock(site.locks, f"duty-{duty.name}"))
        yield


@pytest.fixture
def desk(one_desk: ReviewSite) -> ReviewSite:
    """That server, as if nothing had happened yet."""
    one_desk.begin()
    return one_desk
