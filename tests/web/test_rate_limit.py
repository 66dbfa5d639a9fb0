"""Requests are counted for each caller, so that nobody uses up what another one may send."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from edison_ci.access.accounts import AUTH_FILE, Accounts
from edison_ci.access.site import Identity, open_site
from edison_ci.web import api
from edison_ci.web.api import API, PER_MINUTE
from edison_ci.web.databases import Actions, ServerAccess, register_settings, settings_of
from edison_ci.web.security import RateLimit
from edison_ci.web.serving import Serving, application
from tests.web.test_sign_in import CHEAP, MEMBERS, PASSWORD, prepared, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.daily

LIMITS = "limits: {monthly_usd: 1}\n"
LEASE = f"{API}/budget/leases/{'a' * 32}"
ASKED = {"project": "chat", "spent_microusd": 0, "needs_microusd": 1_000}
NAMES = ("ada@example.com", "ed", "vi")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = prepared(tmp_path_factory.mktemp("limits") / "project")
    (found / "edison.yaml").write_text(MEMBERS + LIMITS)
    return found


@pytest.fixture(autouse=True)
def fresh(folder: Path) -> Iterator[None]:
    yield
    with closing(sqlite3.connect(folder / AUTH_FILE)) as connection:
        for table in ("attempt", "refusal", "token"):
            connection.execute(f"delete from {table}")
        connection.commit()


@pytest.fixture
def tokens(folder: Path) -> dict[str, dict[str, str]]:
    """The headers with a token of each member."""
    accounts = Accounts(open_site(folder), cost=CHEAP)
    secrets = {name: accounts.new_token(name, label="t", days=1)[1] for name in NAMES}
    return {name: {"authorization": f"Bearer {secret}"} for name, secret in secrets.items()}


async def visitor(folder: Path, per_minute: int, **access: Any) -> httpx.AsyncClient:
    """A client of a server whose clock stands still, at the address that all have."""
    rules = ServerAccess(sign_in=True, per_minute=per_minute, **access)
    acting: dict[str, Any] = {
        "person": Identity("git", email="ada@example.com"),
        "actions": Actions(True),
    }
    results = folder / ".edison" / "results.db"
    serving = Serving(results, folder, "notes", "127.0.0.1", 0, access=rules, **acting)
    datasette = application(serving)
    settings = settings_of(datasette)
    assert settings is not None
    if per_minute:
        limit = RateLimit(per_minute, lambda: 0.0)
        register_settings(datasette, replace(settings, limit=limit))
    await datasette.invoke_startup()
    transport = httpx.ASGITransport(datasette.app(), client=("192.0.2.1", 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


def refusals(folder: Path) -> int:
    with closing(sqlite3.connect(folder / ".edison" / "results.db")) as connection:
        sql = "select count(*) from audit where action = 'refused: sign in'"
        return int(connection.execute(sql).fetchone()[0])


async def test_requests_of_one_caller_take_none_from_another(
    folder: Path, tokens: dict[str, dict[str, str]]
) -> None:
    """All of them are at one address, as in an office."""
    async with await visitor(folder, 5) as client:

        async def statuses(path: str, headers: dict[str, str]) -> list[int]:
            return [(await client.get(path, headers=headers)).status_code for _ in range(8)]

        assert await statuses("/-/edison/metrics", tokens["vi"]) == [200] * 5 + [429] * 3
        assert await statuses(f"{API}/budget", tokens["vi"]) == [429] * 8
        assert await statuses("/-/edison/health", {}) == [200] * 5 + [429] * 3
        before = refusals(folder)
        for headers in (
            {},
            {"authorization": "Bearer edison_token_wrong"},
            {"authorization": "Basic x"},
            {"cookie": "edison_session=wrong"},
            {"x-forwarded-for": "192.0.2.77"},
            {"authorization": tokens["ed"]["authorization"] + "x"},
        ):
            assert await statuses(f"{API}/budget", headers) == [429] * 8, "the same stranger"
        assert refusals(folder) == before, "what is refused for its number is not audited"
        lease = await client.post(LEASE, json=ASKED, headers=tokens["ed"])
        assert (lease.status_code, lease.json()["granted_microusd"]) == (200, 100_000)
        owner = await statuses(f"{API}/budget", tokens["ada@example.com"])
        assert owner == [200] * 5 + [429] * 3


async def test_a_member_is_one_caller_by_token_and_by_session(
    folder: Path, tokens: dict[str, dict[str, str]]
) -> None:
    async with await visitor(folder, 5) as client:
        form = {"name": "vi", "password": PASSWORD}
        form |= token_of((await client.get("/-/edison/sign-in")).text)
        signed = await client.post("/-/edison/sign-in", data=form)
        cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
        headers = [tokens["vi"], cookie] * 4
        client.cookies.clear()
        got = [
            (await client.get("/-/edison/metrics", headers=each)).status_code for each in headers
        ]
        assert got == [200] * 5 + [429] * 3


async def test_an_address_that_a_proxy_does_not_name_is_no_member(
    folder: Path, tokens: dict[str, dict[str, str]]
) -> None:
    """Strangers without an address that can be read share their requests, and with nobody else."""
    async with await visitor(folder, 5, proxy=True) as client:
        named = ("", "unknown", "ed", "member:ed", "ed, member:ed", "x" * 2_000, "1.2.3.4.5")
        got = [
            (await client.get("/-/edison/health", headers={"x-forwarded-for": name})).status_code
            for name in named
        ]
        assert got == [200] * 5 + [429] * 2
        for name in NAMES:
            assert (await client.get(f"{API}/budget", headers=tokens[name])).status_code == 200


@pytest.mark.nightly
async def test_programs_of_one_member_take_nothing_from_those_of_another(
    folder: Path, tokens: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of the interface itself, which holds where the server has none."""
    monkeypatch.setattr(api, "_limit", RateLimit(PER_MINUTE, lambda: 0.0))
    async with await visitor(folder, 0) as client:
        viewer = [
            (await client.get(f"{API}/budget", headers=tokens["vi"])).status_code
            for _ in range(140)
        ]
        assert viewer == [200] * PER_MINUTE + [429] * (140 - PER_MINUTE)
        lease = await client.post(LEASE, json=ASKED, headers=tokens["ed"])
        assert lease.status_code == 200
        owner = await client.get(f"{API}/budget", headers=tokens["ada@example.com"])
        assert owner.status_code == 200
