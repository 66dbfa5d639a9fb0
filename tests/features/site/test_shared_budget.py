"""What a site that leases money may answer: no reply lifts the shared cap, or asks for ever."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.load import load_project
from edison_ci.features.site import shared_budget
from edison_ci.features.site.client import SiteRefusal
from edison_ci.features.site.shared_budget import MoneyLease, limits_there
from edison_ci.store.database import open_database, open_reader
from edison_ci.store.liveness import ProcessLock
from tests.features.monitor.receiver import receiving
from tests.ports import held_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from tests.conftest import Folder
    from tests.features.monitor.receiver import Receiver

pytestmark = pytest.mark.daily

NEEDS = 1_000
OF_A_SITE = {"granted_microusd": 5_000, "expires_in_s": 600, "returned": False}


@pytest.fixture
def results(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a project that shares a budget and goes on without its site."""
    monkeypatch.setattr(shared_budget, "PATIENCE_S", 0.0)
    monkeypatch.setattr(shared_budget, "_ASK_AGAIN_S", 0.0)
    monkeypatch.setenv("SITE_TOKEN", "edison_token_of_a_machine")
    shared = "{url_env: SITE_URL, token_env: SITE_TOKEN, if_unreachable: continue}"
    mini.write("edison.yaml", f"version: 1\nproject: mini\nshared_budget: {shared}\n")
    path = mini.path / ".edison" / "results.db"
    open_database(path).close()
    return path


@pytest.fixture
def make_lease(
    results: Path, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], MoneyLease]]:
    """Make leases of the budget at a site."""
    owner = ProcessLock(mini.path / ".edison" / "locks")
    with closing(open_reader(results)) as reader:

        def make(url: str) -> MoneyLease:
            monkeypatch.setenv("SITE_URL", url)
            project = load_project(mini.path)
            assert project.file.shared_budget is not None
            return MoneyLease(project, project.file.shared_budget, reader, owner)

        yield make
    owner.close()


@pytest.fixture
def site() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> bool:
    handler.send_response(status)
    for name, value in {**headers, "content-length": str(len(body))}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)
    return True


def lend(handler: BaseHTTPRequestHandler, change: Mapping[str, Any]) -> bool:
    """Answer as a site does, with one thing changed."""
    told = {"lease": handler.path.rpartition("/")[2], **OF_A_SITE, **change}
    return answer(handler, 200, json.dumps(told).encode())


def error(status: int, code: str, **more: str) -> Callable[[BaseHTTPRequestHandler], bool]:
    body = json.dumps({"error": {"code": code, "message": code, "hint": "", **more}}).encode()
    return lambda handler: answer(handler, status, body)


FORGED: dict[str, Callable[[BaseHTTPRequestHandler], bool]] = {
    "too many requests": error(429, "rate"),
    "too many, by a proxy": lambda handler: answer(handler, 429, b"slow down"),
    "busy": error(503, "store"),
    "no gateway, as the site says it": error(502, "dispatch"),
    "broken": lambda handler: answer(handler, 500, b"Internal Server Error"),
    "timeout": lambda handler: answer(handler, 408, b""),
    "no member": error(401, "token"),
    "no editor": error(403, "role"),
    "not there": error(404, "not_found"),
    "spent": error(409, "budget", limit="limits.monthly_usd"),
    "spent, with orders": error(409, "budget", limit="\x1b[2Jall\n::error::x" * 999),
    "another month, for ever": error(409, "month"),
    "returned, for ever": error(409, "returned"),
    "a code that is no text": lambda handler: answer(
        handler, 409, b'{"error": {"code": ["month"], "message": {"a": 1}, "limit": [1]}}'
    ),
    "elsewhere": lambda handler: answer(handler, 302, b"", location="http://127.0.0.1:9/"),
    "moved, with a lease": lambda handler: answer(
        handler, 307, json.dumps(OF_A_SITE).encode(), location="http://127.0.0.1:9/"
    ),
    "a page": lambda handler: answer(handler, 200, b"<title>Sign in to the network</title>"),
    "nothing": lambda handler: answer(handler, 200, b""),
    "null": lambda handler: answer(handler, 200, b"null"),
    "a list": lambda handler: answer(handler, 200, b"[]"),
    "no lease": lambda handler: answer(handler, 200, b"{}"),
    "very deep": lambda handler: answer(handler, 200, b"[" * 200_000),
    "a long number": lambda handler: answer(
        handler, 200, b'{"granted_microusd": ' + b"9" * 9_000 + b"}"
    ),
    "too long": lambda handler: answer(handler, 200, b" " * 1_000_001),
    "packed": lambda handler: answer(
        handler, 200, gzip.compress(b" " * 90_000_000), content_encoding="gzip"
    ),
    **{
        f"{name} {value!r}": partial(lend, change={name: value})
        for name, values in {
            "granted_microusd": (True, 5e3, "5000", None, NEEDS - 1, 0, -1, 10**12 + 1, 10**40),
            "expires_in_s": (True, 600.0, None, 0, -600, 10**13),
            "lease": ("a" * 32, None),
        }.items()
        for value in values
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
async def test_no_reply_of_a_site_lifts_the_shared_cap(
    make_lease: Callable[[str], MoneyLease], site: Receiver, name: str
) -> None:
    """Although the project goes on without its site: a site that answers is there."""
    site.behave = FORGED[name]
    lease = make_lease(site.url)
    for _ in range(2):
        without_room = await lease.extend(NEEDS)
        assert without_room.startswith("the shared budget (")
        assert without_room.isprintable()
        assert len(without_room) < 400
        assert lease.cap.microusd == 0
    assert len(site.requests) <= 4
    assert all(body for _, body in site.requests), "nothing was asked for elsewhere"


async def test_a_lease_is_what_the_site_grants(
    make_lease: Callable[[str], MoneyLease], site: Receiver
) -> None:
    site.behave = partial(lend, change={})
    lease = make_lease(site.url)
    assert await lease.extend(NEEDS) == ""
    assert lease.cap.microusd == 5_000
    site.behave = partial(lend, change={"granted_microusd": 9_000, "expires_in_s": 10**9})
    assert await lease.extend(8_000) == ""
    assert lease.cap.microusd == 9_000


def cut(handler: BaseHTTPRequestHandler) -> bool:
    """Break the connection within a reply."""
    handler.send_response(200)
    handler.send_header("content-length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"granted_')
    handler.close_connection = True
    return True


@pytest.mark.parametrize("status", [502, 503, 504, 0])
async def test_only_a_site_that_is_not_there_is_done_without(
    make_lease: Callable[[str], MoneyLease], site: Receiver, status: int
) -> None:
    site.behave = partial(answer, status=status, body=b"<h1>Bad Gateway</h1>") if status else cut
    lease = make_lease(site.url)
    assert await lease.extend(NEEDS) == ""
    assert lease.cap.microusd is None
    with held_port() as port:
        lease = make_lease(f"http://127.0.0.1:{port}")
        assert await lease.extend(NEEDS) == ""
        assert lease.cap.microusd is None


async def test_a_site_that_is_back_limits_again(
    make_lease: Callable[[str], MoneyLease], site: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that was cut once does not lift the shared limit for the rest of a run."""
    now = [1_000.0]
    monkeypatch.setattr(shared_budget, "time", SimpleNamespace(monotonic=lambda: now[0]))
    site.behave = cut
    lease = make_lease(site.url)
    assert (await lease.extend(NEEDS), lease.cap.microusd) == ("", None)
    now[0] += 601
    assert lease.cap.microusd == 0
    site.behave = FORGED["spent"]
    assert "limits.monthly_usd" in await lease.extend(NEEDS)
    assert lease.cap.microusd == 0
    site.behave = partial(lend, change={})
    assert (await lease.extend(NEEDS), lease.cap.microusd) == ("", 5_000)


@pytest.mark.parametrize(
    "change",
    [
        {"used_microusd": float("inf")},
        {"used_microusd": -1},
        {"limit_microusd": True},
        {"limit_microusd": "1"},
        {"of": ["x"]},
        {"scope": {}},
    ],
)
def test_limits_that_no_site_has_are_not_shown(
    mini: Folder,
    make_lease: Callable[[str], MoneyLease],
    site: Receiver,
    change: dict[str, Any],
) -> None:
    limit = {"name": "x", "scope": "all", "of": "", "used_microusd": 1, "limit_microusd": 2}
    make_lease(site.url)
    file = load_project(mini.path).file
    assert file.shared_budget is not None

    def state(handler: BaseHTTPRequestHandler, change: Mapping[str, Any]) -> bool:
        told = {"month": "\x1b[31m2026-11", "limits": [{**limit, **change}]}
        return answer(handler, 200, json.dumps(told).encode())

    site.on_get = partial(state, change={})
    (use,) = limits_there(file.shared_budget, file)
    assert (use.used_microusd, use.limit_microusd, use.of.isprintable()) == (1, 2, True)
    site.on_get = partial(state, change=change)
    with pytest.raises(SiteRefusal, match="its reply is not that of a site"):
        limits_there(file.shared_budget, file)
