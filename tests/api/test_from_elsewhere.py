"""What comes from elsewhere is shown and decides nothing: grades, answers, costs and verdicts."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zipfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import Actor, Identity, Role, open_site
from edison_ci.api.bundles import Arrival, import_bundle
from edison_ci.documents.signatures import Signer
from edison_ci.results.trends import points_of
from edison_ci.store.integrity import check_database
from edison_ci.store.runs import find_run, newest_comparisons, newest_complete, newest_run
from tests.conftest import Folder
from tests.fixed_keys import signing_keys
from tests.opened import opened

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison

pytestmark = pytest.mark.daily

KEYS, STRANGER = signing_keys("team"), signing_keys("stranger")
CASES = 20
FORGED = "20260101T000000-abcdef"
ANN = "ann@example.com"
GATE = "gates:\n  - {metric: pass_rate, at_least: 60%, use: human}\n"
MILLION = 1_000_000_000_000
"""A million dollars."""


@pytest.fixture
def here(edison: Edison, mini: Folder) -> Folder:
    """A project whose answers ann found bad, so that its gate fails."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    text = mini.read("experiments/hello.yaml")
    mini.write("experiments/hello.yaml", text[: text.index("gates:")] + GATE)
    mini.git("init", "-q")
    mini.git("config", "user.email", ANN)
    assert edison(mini, "run", "-q").code == 0
    graded(mini, 0.0, ANN)
    assert edison(mini, "report", "--out", "run.zip").code == 0
    return mini


def graded(folder: Folder, score: float, actor: str) -> None:
    with opened(folder.path / ".edison/results.db") as connection:
        connection.execute(GRADES, {"score": score, "actor": actor})


GRADES = (
    "insert into manual_grade (cell_id, experiment, case_id, request_hash, answer_no, actor, "
    "scale, score, passed, flagged, seed, graded_at) select id, 'hello', case_id, request_hash, "
    "answer_no, :actor, '0-1', :score, :score >= 0.5, :score >= 0.5, 0, '2026-11-19T05:00:00Z' "
    "from cell"
)
"""A grade of every answer by a person; good ones are flagged too."""


def forged(folder: Folder, *changes: str, key: str | None = None) -> Path:
    """Return the bundle of the project as a stranger changes it: another run of the same calls."""
    inner, target = folder.path / "inner.db", folder.path / "forged.zip"
    with zipfile.ZipFile(folder.path / "run.zip") as archive:
        manifest = json.loads(archive.read("manifest.json"))
        inner.write_bytes(archive.read("results.db"))
    with closing(sqlite3.connect(inner)) as connection:
        named = connection.execute(
            "select t.name from sqlite_schema t, pragma_table_info(t.name) c where "
            "t.type = 'table' and c.name = 'run_id' and t.name not in ('attempt', 'audit')"
        ).fetchall()
        triggers = connection.execute(
            "select name, sql from sqlite_schema where type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"drop trigger {name}")
        for (table,) in named:
            connection.execute(f"update {table} set run_id = ?", (FORGED,))
        connection.execute("update run set id = ?", (FORGED,))
        connection.execute("delete from manual_grade")
        connection.execute(GRADES, {"score": 1.0, "actor": ANN})
        for change in changes:
            connection.execute(change)
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()
    raw = inner.read_bytes()
    inner.unlink()
    manifest["runs"][0]["id"] = FORGED
    manifest["files"][0] |= {"size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    signer = Signer(key) if key is not None else None
    if signer is not None:
        manifest["public_key"] = signer.public
    text = json.dumps(manifest).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", text)
        archive.writestr("results.db", raw)
        if signer is not None:
            signed = signer.sign(b"edison-ci bundle 1\n", hashlib.sha256(text).digest())
            archive.writestr("manifest.json.sig", signed.signature)
    return target


CLAIMED = (
    f"update attempt set cost_microusd = {MILLION}, est_microusd = {MILLION}, "
    "request_hash = substr(request_hash, 1, 60) || 'beef', loop = 'mine'",
    f"update answer set request_hash = substr(request_hash, 1, 60) || 'beef', "
    f"cost_microusd = {MILLION}",
    "update answer_text set request_hash = substr(request_hash, 1, 60) || 'beef'",
    "update cell set request_hash = substr(request_hash, 1, 60) || 'beef'",
    "update judgment set request_hash = substr(request_hash, 1, 60) || 'beef'",
    "update manual_grade set request_hash = substr(request_hash, 1, 60) || 'beef'",
    "delete from booked",
    "insert into booked select 'project', substr(sent_at, 1, 10), sum(cost_microusd), 0 "
    "from attempt group by 2 union all select 'run:' || run_id, substr(sent_at, 1, 10), "
    "sum(cost_microusd), 0 from attempt group by 1, 2 union all select 'experiment:hello', "
    "substr(sent_at, 1, 10), sum(cost_microusd), 0 from attempt group by 2 union all select "
    "'loop:mine', substr(sent_at, 1, 10), sum(cost_microusd), 0 from attempt group by 2",
    "update booked set tokens = (select sum(coalesce(a.tokens_in + a.tokens_out, t.est_tokens)) "
    "from attempt t join answer a on a.attempt = t.id)",
)
"""Changes by which a file has other calls, at a million dollars each."""


def gate(edison: Edison, folder: Folder) -> tuple[int, str, float | None]:
    """Return exit code and verdict of the gate that goes by people, on one's own run."""
    done = edison(folder, "compare", ran(folder), "--gates", "--json")
    (row,) = json.loads(done.out)["gates"]
    return done.code, row["verdict"], row["estimate"]


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def problems(folder: Folder) -> list[str]:
    with opened(folder.path / ".edison/results.db") as connection:
        return [text for one in check_database(connection) for text in one.problems]


# --- human grades ---------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["import", "push", "pull"])
@pytest.mark.parametrize("key", [None, STRANGER.private])
def test_grades_in_the_name_of_a_member_turn_no_gate(
    edison: Edison, here: Folder, way: str, key: str | None
) -> None:
    here.write(".edison/trust.yaml", f"version: 1\nresults: {{public_keys: ['{KEYS.public}']}}\n")
    before = gate(edison, here)
    assert before == (1, "fail", 0.0)
    site, eve = open_site(here.path), Actor(Identity("token", login="eve"), Role.EDITOR)
    arrival = Arrival(way, "a bundle", eve, (KEYS.public,))
    assert import_bundle(site, forged(here, key=key), arrival=arrival).new
    assert gate(edison, here) == before
    done = edison(here, "run", "-q")
    assert (done.code, gate(edison, here)) == (1, before)
    (shown,) = json.loads(edison(here, "status", ran(here), "--json").out)["runs"]
    assert shown["human"]["people"] == 1
    assert shown["human"]["models"][0]["pass_rate"]["estimate"] == 0.0
    assert shown["human"]["flagged"] == 0
    assert ask(here, "select avg(score), max(flagged) from human_grades") == [(0.0, 0)]
    listed = json.loads(edison(here, "grade", ran(here), "--list", "--json").out)["cells"]
    assert listed == [], "all of them are graded, and by ann"
    # They are shown beside those from here, with the run that they came with.
    people = json.loads(edison(here, "explain", "c0@small", "--run", ran(here), "--json").out)
    assert [(p["by"], p["score"], p["came_with"]) for p in people["people"]] == [
        (ANN, 0.0, None), (ANN, 1.0, FORGED)
    ]  # fmt: skip
    assert problems(here) == []


def ran(folder: Folder) -> str:
    return str(ask(folder, "select id from run where trigger = 'cli'")[0][0])


@pytest.mark.nightly
def test_grades_with_a_trusted_signature_count_until_the_key_is_removed(
    edison: Edison, here: Folder
) -> None:
    here.write(".edison/trust.yaml", f"version: 1\nresults: {{public_keys: ['{KEYS.public}']}}\n")
    bundle = forged(here, key=KEYS.private)
    assert edison(here, "import", "bundle", str(bundle)).code == 0
    assert gate(edison, here) == (0, "pass", 1.0)
    here.write(".edison/trust.yaml", "version: 1\n")
    assert gate(edison, here) == (1, "fail", 0.0), "at once"
    assert edison(here, "run", "-q").code == 1
    here.write(".edison/trust.yaml", f"version: 1\nresults: {{public_keys: ['{KEYS.public}']}}\n")
    assert gate(edison, here) == (0, "pass", 1.0)
    here.write(".edison/trust.yaml", f"results: {{public_keys: ['{STRANGER.public}']}}\n")
    assert gate(edison, here) == (1, "fail", 0.0)


def test_a_file_has_no_say_in_where_its_rows_come_from(edison: Edison, here: Folder) -> None:
    """Origins in the file itself, also with a trusted key, are not taken over."""
    own = f"insert into run_origin values ('{FORGED}', '', '', 'cli', 'push', '', '', '', "
    own += f"'{KEYS.public}', 1)"
    marked = f"update attempt set origin = '{FORGED}'"
    booked = "delete from booked where scope not like 'run:%'"
    looped = "update run set loop = 'mine'"
    bundle = forged(
        here, own, marked, booked, looped, f"update manual_grade set origin = '{FORGED}'"
    )
    assert edison(here, "import", "bundle", str(bundle)).code == 0
    assert ask(here, "select run_id, way, signed_by, trusted from run_origin") == [
        (FORGED, "import", None, 0)
    ]
    assert ask(here, "select loop from run where trigger = 'import'") == [(None,)]
    assert ask(here, "select count(*), count(origin) from manual_grade") == [(2 * CASES, CASES)]


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, STRANGER.private, KEYS.private])
def test_a_run_of_a_stranger_is_in_no_trend_and_closes_no_alert(
    edison: Edison, here: Folder, key: str | None
) -> None:
    here.write(".edison/trust.yaml", f"version: 1\nresults: {{public_keys: ['{KEYS.public}']}}\n")
    newest, later = ran(here), "2099-01-01T00:00:00Z"
    compared = "base_commit = 'b', partial = 0"
    bundle = forged(
        here, f"update run set created_at = '{later}', finished_at = '{later}', {compared}", key=key
    )
    assert edison(here, "import", "bundle", str(bundle)).code == 0
    counts = key == KEYS.private
    with opened(here.path / ".edison/results.db") as connection:
        points = [point.run.id for point in points_of(connection, "hello")]
        assert points == ([newest, FORGED] if counts else [newest])
        last = newest_run(connection, "hello")
        assert last is not None
        assert last.id == points[-1]
        assert (newest_complete(connection, "hello") == later) == counts
        simulated = newest_comparisons(connection, "hello", simulated=True)
        assert simulated == ([FORGED] if counts else [])
        assert find_run(connection, "latest").id == FORGED, "it is shown"


def test_a_run_of_a_stranger_is_ranked_beside_none_from_here(edison: Edison, here: Folder) -> None:
    before = edison(here, "leaderboard", "--json").out
    assert FORGED not in before
    best = "update cell set composite = 1.0, passed = 1, version = 'f00d', model = 'large'"
    bundle = forged(here, best, "update rollup_run set composite = 1.0")
    assert edison(here, "import", "bundle", str(bundle)).code == 0
    assert edison(here, "leaderboard", "--json").out == before
    there = Folder(here.path.with_name("there"))
    for name in ("edison.yaml", "models.yaml", "experiments/hello.yaml", "prompts/hello.md",
                 "datasets/names.jsonl", "rubrics/tone.yaml"):  # fmt: skip
        there.write(name, here.read(name))
    assert edison(there, "import", "bundle", str(bundle)).code == 0
    assert '"large"' in edison(there, "leaderboard", "--json").out, "it is shown"


def test_a_run_from_elsewhere_is_not_resumed(edison: Edison, here: Folder) -> None:
    paused = "update run set status = 'PAUSED', complete = 0, verdict = null"
    with zipfile.ZipFile(forged(here, paused)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["manifest.json"])
    manifest["runs"][0]["verdict"] = None
    with zipfile.ZipFile(here.path / "paused.zip", "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("results.db", files["results.db"])
    assert edison(here, "import", "bundle", "paused.zip").code == 0
    before = ask(here, "select id, status, verdict from run order by 1")
    done = edison(here, "resume", FORGED)
    assert (done.code, "came from elsewhere" in done.err) == (2, True)
    assert ask(here, "select id, status, verdict from run order by 1") == before


# --- costs ----------------------------------------------------------------------------------------


def test_claimed_costs_are_shown_under_their_run_and_in_no_total(
    edison: Edison, here: Folder
) -> None:
    before = {name: edison(here, *COSTS[name]).out for name in COSTS}
    totals = ask(here, "select * from booked order by 1, 2")
    bundle = forged(here, *CLAIMED)
    assert edison(here, "import", "bundle", str(bundle)).code == 0
    assert ask(here, "select sum(cost_microusd) from attempt")[0][0] > CASES * MILLION
    assert {name: edison(here, *COSTS[name]).out for name in COSTS} == before
    # All of it is booked for the run that came, though the calls are said to be of one from here.
    assert ask(here, f"select * from booked where scope <> 'run:{FORGED}' order by 1, 2") == totals
    (booked,) = ask(here, f"select sum(microusd) from booked where scope = 'run:{FORGED}'")
    assert booked[0] >= CASES * MILLION
    (shown,) = json.loads(edison(here, "status", FORGED, "--json").out)["runs"]
    assert shown["cost_microusd"] == booked[0]
    assert problems(here) == []


COSTS = {
    "days": ("costs", "--json"),
    "experiments": ("costs", "--by", "experiment", "--json"),
    "models": ("costs", "--by", "model", "--json"),
}


def test_claimed_costs_leave_the_budget_of_today_alone(edison: Edison, here: Folder) -> None:
    """Calls of the same day at a million dollars each: one's own are still made."""
    here.edit("edison.yaml", "project:", "settings: {monthly_budget_usd: 5}\nproject:")
    today = "update attempt set sent_at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"
    bundle = forged(here, today, *CLAIMED)
    assert edison(here, "import", "bundle", str(bundle)).code == 0
    here.edit("prompts/hello.md", "friendly", "warm")
    done = edison(here, "run", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code != 4, run["calls"]["made"] > 0, run["cells"]["ok"]) == (True, True, CASES)
