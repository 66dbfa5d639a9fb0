"""Several machines share the monthly limit of a site; it holds whoever dies or is not there."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from edison_ci import utc
from edison_ci.access.accounts import Accounts
from edison_ci.access.site import open_site
from tests.conftest import Folder
from tests.faults.stage import Running, Stage, copied
from tests.features.monitor.receiver import receiving
from tests.loopback.script import rule
from tests.timing import poll

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.conftest import MakeStage

pytestmark = pytest.mark.daily

MEMBERS = "members: [{email: ed@example.org, role: owner}, {email: bo@example.org, role: editor}]\n"
SHARED = "shared_budget: {url_env: SITE_URL, token_env: SITE_TOKEN%s}\n"


@dataclass
class Lender:
    """A site that shares a budget, as a process that can be killed."""

    stage: Stage
    port: int = 0
    running: Running | None = None
    token: str = ""

    @classmethod
    def beside(cls, stage: Stage, place: Path, usd: float, port: int = 0) -> Lender:
        place.mkdir()
        beside = Stage(Folder(place), stage.server, stage.stable, stage.shape, place / "logs")
        made = cls(beside, port)
        made.limit(usd)
        made.stage.folder.git("config", "--global", "user.email", "ed@example.org")
        accounts = Accounts(open_site(place), cost=(2**4, 8, 1))
        made.token = accounts.new_token("bo@example.org", label="ci", days=None)[1]
        return made

    def limit(self, usd: float) -> None:
        text = f"version: 1\nproject: place\nlimits: {{monthly_usd: {usd}}}\n{MEMBERS}"
        self.stage.folder.write("edison.yaml", text)

    def start(self) -> None:
        running = self.stage.start("serve", "--port", str(self.port), "--json")
        out = running.out
        poll("it is served", lambda: out.exists() and out.read_text("utf-8").endswith("\n}\n"))
        self.running, self.port = running, json.loads(out.read_text("utf-8"))["port"]

    def kill(self) -> None:
        assert self.running is not None
        self.running.send(signal.SIGKILL)
        self.running.wait()
        self.running = None

    @property
    def variables(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self.port}/-/edison"
        return {"SITE_URL": url, "SITE_TOKEN": self.token}

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        path = self.stage.folder.path / ".edison" / "leases.db"
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql).fetchall()

    def state(self) -> dict[str, Any]:
        reply = httpx.get(
            f"http://127.0.0.1:{self.port}/-/edison/api/v1/budget",
            headers={"authorization": f"Bearer {self.token}"},
        )
        (limit,) = reply.json()["limits"]
        assert isinstance(limit, dict)
        return limit


def machine(stage: Stage, place: Path, more: str = "") -> Stage:
    """Return a machine with the project and results of its own."""
    made = copied(stage, place)
    made.folder.write("edison.yaml", f"version: 1\nproject: mini\n{SHARED % more}")
    return made


@pytest.mark.nightly
def test_machines_never_spend_more_than_their_site_allows(
    make_stage: MakeStage, tmp_path: Path, port: int
) -> None:
    stage = make_stage(cases=24, judged=False, dollars_in=100, concurrency=1)
    stage.script(rule(held=True))
    lender = Lender.beside(stage, tmp_path / "site", 0.07, port)
    lender.start()
    machines = [machine(stage, tmp_path / f"machine-{n}") for n in range(3)]
    runs = [each.start("run", env=lender.variables) for each in machines]
    poll("all have called", lambda: len(stage.server.requests) == 3)
    runs[0].send(signal.SIGKILL)
    lender.kill()
    lender.start()
    stage.server.release()
    ends = [each.wait() for each in runs]
    total = stage.server.ledger_total()
    assert total <= 70_000
    assert len(stage.server.ledger_rows()) > 10
    assert [each.code for each in ends[1:]] == [4, 4], [each.all for each in ends]
    for end in ends[1:]:
        assert f"limits.monthly_usd of 127.0.0.1:{lender.port}" in end.all
        assert "Continue when it has room with: edison resume" in end.all
    assert lender.state()["used_microusd"] <= 70_000
    assert lender.state()["used_microusd"] >= total
    opened = lender.rows("select count(*) from lease where returned_at is null")
    assert opened == [(1,)], "that of the machine that was killed"

    lender.limit(5)
    for each in machines:
        done = each.edison("resume", env=lender.variables)
        assert done.code == 0, done.all
        assert not list((each.folder.path / ".edison" / "leases").iterdir())
    assert lender.rows("select count(*) from lease where returned_at is null") == [(0,)]
    booked = sum(each.booked() for each in machines)
    assert lender.state()["used_microusd"] == booked >= stage.server.ledger_total()


@pytest.mark.nightly
def test_without_its_site_a_machine_spends_nothing_unless_its_project_says_so(
    make_stage: MakeStage, tmp_path: Path, port: int
) -> None:
    stage = make_stage(cases=3, judged=False, dollars_in=100)
    lender = Lender.beside(stage, tmp_path / "site", 5, port)
    lender.start()
    lender.kill()
    strict = machine(stage, tmp_path / "strict")
    lax = machine(stage, tmp_path / "lax", ", if_unreachable: continue")
    waiting = strict.start("run", env=lender.variables)
    going = lax.start("run", env=lender.variables).wait()
    stopped = waiting.wait()
    assert stopped.code == 4, stopped.all
    host = f"127.0.0.1:{lender.port}"
    said = f"budget: the leased part of the shared budget ({host} cannot be reached)"
    assert said in stopped.out
    assert "Continue when it can be reached with: edison resume" in stopped.err
    assert strict.count("attempt") == 0
    assert going.code == 0, going.all
    assert "calls continue without it" in going.err
    assert stage.server.ledger_total() == lax.booked() > 0

    lender.start()
    assert strict.edison("resume", env=lender.variables).code == 0
    # What was spent without the site is reported by the next process.
    lax.dataset("hello", range(50, 52))
    assert lax.edison("run", env=lender.variables).code == 0
    assert lender.state()["used_microusd"] == strict.booked() + lax.booked()
    month = f"all machines in {utc.now():%Y-%m} (limits.monthly_usd)"
    assert month in strict.edison("costs", env=lender.variables).out
    assert month in lender.stage.edison("costs").out
    lender.kill()
    without = strict.edison("costs", env=lender.variables)
    assert (without.code, month in without.out) == (0, False)
    assert "the use of the shared budget is not known" in without.err


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (429, b'{"error": {"code": "rate", "message": "more than 120 requests a minute"}}', "120"),
        (200, b"<title>Sign in to the network</title>", "its reply is not that of a site"),
    ],
)
def test_a_site_that_refuses_lifts_no_limit(
    make_stage: MakeStage, tmp_path: Path, status: int, body: bytes, said: str
) -> None:
    """A run goes on without a site that is not there, and not without one that refuses."""
    stage = make_stage(cases=2, judged=False, dollars_in=100)
    lax = machine(stage, tmp_path / "lax", ", if_unreachable: continue")
    with receiving() as site:
        site.status, site.body = status, body
        variables = {"SITE_URL": site.url, "SITE_TOKEN": "edison_token_x"}
        done = lax.edison("run", env=variables)
    assert (done.code, lax.booked(), stage.server.ledger_rows()) == (4, 0, []), done.all
    assert said in done.out
    assert site.requests


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"SITE_TOKEN": ""}, "SITE_TOKEN is not set"),
        ({"SITE_TOKEN": "sk-another-secret"}, "SITE_TOKEN does not hold a token of a site"),
        ({"SITE_URL": "http://example.com"}, "SITE_URL is not encrypted"),
        ({"SITE_URL": "ftp://127.0.0.1"}, "SITE_URL is not the address of a site"),
    ],
)
def test_a_site_that_is_not_set_up_stops_a_run_and_says_why(
    make_stage: MakeStage, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    stage = machine(make_stage(cases=1, judged=False), tmp_path / "machine")
    variables = {"SITE_URL": "https://site.example.com", "SITE_TOKEN": "edison_token_x"}
    done = stage.edison("run", env=variables | change)
    assert (done.code, stage.server.ledger_rows()) == (4, [])
    assert f"budget: the shared budget ({said})" in done.out
    assert "another-secret" not in done.all


@pytest.mark.nightly
def test_a_batch_keeps_its_lease_until_it_is_collected(
    make_stage: MakeStage, tmp_path: Path
) -> None:
    stage = make_stage(cases=6, judged=False, dollars_in=100)
    stage.models(price="{in: 100, out: 200, batch: {in: 50, out: 100}}")
    lender = Lender.beside(stage, tmp_path / "site", 5)
    lender.start()
    first, second = (machine(stage, tmp_path / name) for name in ("first", "second"))
    sent = first.edison("run", "--batch", env=lender.variables)
    assert (sent.code, len(stage.server.batches.made)) == (0, 1), sent.all
    opened = "select count(*) from lease where returned_at is null"
    assert lender.rows(opened) == [(1,)], "the process that leased it has ended"
    held = lender.state()["used_microusd"]
    assert held >= first.booked() > 0 == stage.server.ledger_total()

    lender.limit(held / 1_000_000)
    refused = second.edison("run", env=lender.variables)
    assert refused.code == 4, refused.all
    assert stage.server.ledger_total() == 0

    stage.server.batches.ends = True
    done = first.edison("resume", env=lender.variables)
    assert done.code == 0, done.all
    assert lender.rows(opened) == [(0,)]
    cost = first.rows("select sum(cost_microusd) from attempt where phase = 'generate'")
    assert cost == [(lender.state()["used_microusd"],)]
    assert not list((first.folder.path / ".edison" / "leases").iterdir())
