"""The interface by which machines lease money: rights, limits, and requests that are forged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback.server import LoopbackServer
from tests.web.test_steering import MEMBERS, Site, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Folder

LEASE = "/budget/leases/" + "a" * 32
LIMITS = "limits: {monthly_usd: 1, teams: {support: 0.5}, projects: {faq: 0.2}}\n"
ASKED = {"project": "chat", "team": "sales", "spent_microusd": 0, "needs_microusd": 1_000}


@pytest.fixture
def site(mini: Folder, tmp_path: Path) -> Iterator[Site]:
    mini.git("config", "--global", "user.email", "ada@example.org")
    mini.write("edison.yaml", f"version: 1\nproject: mini\n{LIMITS}{MEMBERS}")
    with (
        LoopbackServer(ledger=tmp_path / "ledger.jsonl") as models,
        served(mini, models, "--sign-in") as found,
    ):
        yield found


def used(site: Site) -> list[int]:
    reply = site.send("vi", "GET", "/budget").json()
    return [limit["used_microusd"] for limit in reply["limits"]]


def refusal(site: Site, status: int, who: str, path: str, **change: Any) -> dict[str, Any]:
    reply = site.send(who, "POST", path, {**ASKED, **change})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.nightly
def test_machines_lease_within_limits_and_forged_requests_get_nothing(site: Site) -> None:
    first = site.send("ed", "POST", LEASE, ASKED)
    assert (first.status_code, first.json()["granted_microusd"]) == (200, 100_000)
    assert 0 < first.json()["expires_in_s"] <= 600
    assert site.send("ed", "POST", LEASE, ASKED).json()["granted_microusd"] == 100_000
    assert used(site) == [100_000, 0, 0]

    # Over-asking is refused whole, with the limit that has no room.
    asked = {"project": "faq", "team": "support", "needs_microusd": 200_001}
    said = refusal(site, 409, "ed", LEASE[:-1] + "b", **asked)
    assert (said["code"], said["limit"]) == ("budget", "limits.projects.faq")
    assert refusal(site, 409, "ed", LEASE, needs_microusd=10**12)["limit"] == "limits.monthly_usd"

    # A viewer leases nothing, and a member does not touch the lease of another.
    assert "lease needs an editor" in refusal(site, 403, "vi", LEASE)["message"]
    assert site.send("", "POST", LEASE, ASKED).status_code == 401
    assert refusal(site, 404, "ada", LEASE, needs_microusd=5)["code"] == "unknown"
    back = site.send("ada", "POST", f"{LEASE}/return", {"project": "chat", "spent_microusd": 0})
    assert back.status_code == 404

    for change in (
        {"needs_microusd": -1},
        {"needs_microusd": True},
        {"needs_microusd": 1.5},
        {"needs_microusd": 10**12 + 1},
        {"spent_microusd": "0"},
        {"project": ""},
        {"project": "x" * 101},
        {"team": ["support"]},
        {"limit": 10},
    ):
        assert refusal(site, 400, "ed", LEASE, **change)["code"] == "invalid", change
    assert refusal(site, 400, "ed", "/budget/leases/..%2f..")["code"] == "invalid"
    assert site.send("ed", "POST", LEASE, b"[1]").status_code == 400
    assert used(site) == [100_000, 0, 0]

    done = site.send("ed", "POST", f"{LEASE}/return", {"project": "chat", "spent_microusd": 40_000})
    assert (done.status_code, done.json()["returned"]) == (200, True)
    assert used(site) == [40_000, 0, 0]
    assert refusal(site, 409, "ed", LEASE)["code"] == "returned"
    (row,) = site.rows("select count(*) from audit where action = 'refused: lease'")
    assert row == (1,)

    text = site.folder.read("edison.yaml").replace(LIMITS, "")
    site.folder.write("edison.yaml", text)
    assert refusal(site, 409, "ed", LEASE)["code"] == "no_limits"
    assert used(site) == []
