"""edison runs merge: shards of several machines become the run that one machine would have made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.execute import clients
from edison_ci.plan.selection import shard_of
from tests import forked
from tests.conftest import ROOT, Folder
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cli.conftest import Edison

pytestmark = pytest.mark.daily

CASES = 12
COUNT = 3
HELLO = "experiments/hello.yaml"
MODELS = (
    "small: {provider: sim, model: small, price: {in: 1, out: 2}}\n"
    "big: {provider: sim, model: large, price: {in: 3, out: 9}}\n"
    "judge: {provider: sim, model: judge, price: {in: 1, out: 1}}\n"
)
GATES = (
    "gates:\n"
    "  - {metric: composite, no_worse_than: base, margin: 10pp}\n"
    "  - {metric: pass_rate, at_least: 20%}\n"
    "  - {metric: errors, at_most: 5%}\n"
    "  - {metric: cost_usd.mean, no_worse_than: base, margin: 10%}\n"
)
FICKLE = frozenset({"run_id", "wall_s", "created_at", "finished_at"})
"""Keys of a run that two machines never agree on."""


@pytest.fixture
def project(mini: Folder) -> Folder:
    """Two models, a rubric, a judge that compares them, two repeats, tags; in a repository."""
    rows = (
        {
            "id": f"c{i:02}",
            "input": {"name": f"Person {i:02}"},
            "expected": f"Person {i:02}" if i % 3 else "nobody",
            "tags": [f"t{i % 2}"],
            "cluster": f"k{i // 2}",
        }
        for i in range(CASES)
    )
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write("models.yaml", MODELS)
    mini.edit(HELLO, "models: [small]", "models: [small, big]\nrepeats: 2")
    mini.edit(HELLO, "pointwise: [judge]", "pointwise: [judge], pairwise: {by: judge}")
    mini.edit(HELLO, "gates:\n  - {metric: composite, no_worse_than: base, margin: 10pp}\n", GATES)
    mini.write(".gitignore", ".edison/*\nshards/\n*.db\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    return mini


def sharded(edison: Edison, folder: Folder, *flags: str, count: int = COUNT) -> list[str]:
    """Run every shard on a machine of its own; return where copies of their results are."""
    (folder.path / "shards").mkdir(exist_ok=True)
    for index in range(1, count + 1):
        done = edison(folder, "run", "--shard", f"{index}/{count}", "--json", *flags)
        assert done.code == 0, done.all
        keep(folder, f"shards/{index}.db")
    return [f"shards/{index}.db" for index in range(1, count + 1)]


def keep(folder: Folder, name: str) -> None:
    """Take a copy of the results elsewhere, as `VACUUM INTO` makes it, and remove them."""
    results = folder.path / ".edison/results.db"
    target = folder.path / name
    target.unlink(missing_ok=True)
    with opened(results) as connection:
        connection.execute("vacuum into ?", (str(target),))
    connection.close()
    remove_results(folder)


def remove_results(folder: Folder) -> None:
    for path in (folder.path / ".edison").glob("results.db*"):
        path.unlink()


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def told(edison: Edison, folder: Folder, *args: str, code: int = 0) -> list[dict[str, Any]]:
    done = edison(folder, *args, "--json")
    assert done.code == code, done.all
    found = json.loads(done.out)["runs"]
    assert isinstance(found, list)
    return found


def lasting(value: Any) -> Any:
    """Return a document without what two machines never agree on."""
    if isinstance(value, dict):
        return {k: lasting(v) for k, v in value.items() if k not in FICKLE}
    if isinstance(value, float):
        return round(value, 9)  # sums of the same numbers in another order
    return [lasting(item) for item in value] if isinstance(value, list) else value


_NUMBERS = {
    "cell": "side, prompt, version, model, case_id, repeat, status, composite, passed",
    "rollup_run": "*",
    "rollup_model": "*",
    "rollup_case": "*",
    "rollup_mark": "*",
    "rollup_marked": "*",
    "rollup_component": "*",
    "rollup_component_total": "*",
    "rollup_reliability": "*",
    "rollup_slice": "*",
    "rollup_spending": "*",
    "rollup_calls": "*",
    "rollup_paid": "*",
    "decision": "metric, prompt, model, verdict, sentence, estimate, low, high, n, p, p_holm",
    "booked": "scope, microusd, tokens",
    "run_case": "case_id, tags, difficulty, kind, words",
    "attempt": "request_hash, model, phase, state, est_microusd, cost_microusd, est_tokens",
    "answer": "request_hash, answer_no, finish_reason, tokens_in, tokens_out, cost_microusd",
    "answer_text": "request_hash, answer_no, text, tool_calls, sha256",
}


def nameless(value: Any, run: str) -> Any:
    if isinstance(value, float):
        return round(value, 9)
    return "RUN" if value in (run, f"run:{run}") else value


def stored(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return everything that a file says about its one run, but for names and times."""
    (run,) = rows(path, "select id from run")[0]
    found = {}
    for table, columns in _NUMBERS.items():
        picked = rows(path, f"select {columns} from {table}")
        plain = [tuple(nameless(v, run) for v in row) for row in picked]
        found[table] = sorted(plain, key=repr)
    pairs = (
        "select a.side, a.model, a.case_id, a.repeat, b.side, b.model, x.ab_winner, x.ba_winner, "
        "x.ab_reason, x.chars_a, x.chars_b, x.asked from comparison x "
        "join cell a on a.id = x.a_cell join cell b on b.id = x.b_cell"
    )
    of_cells = (
        "select c.side, c.model, c.case_id, c.repeat, {} from {} x join cell c on c.id = x.cell_id"
    )
    found["comparison"] = sorted(rows(path, pairs), key=repr)
    for table, columns in {
        "component": "x.name, x.kind, x.score, x.passed, x.weight, x.status, x.reason",
        "judge_score": "x.judge, x.criterion, x.raw, x.score, x.missing, x.reason",
        "judgment": "x.model, x.request_hash, x.answer_no",
    }.items():
        found[table] = sorted(rows(path, of_cells.format(columns, table)), key=repr)
    return found


# --- the same as one run --------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--against", "main"]], ids=["alone", "against"])
def test_merged_shards_say_what_one_run_says(
    edison: Edison, project: Folder, flags: list[str]
) -> None:
    project.edit("prompts/hello.md", "friendly sentence", "long and friendly letter")
    shards = sharded(edison, project, *flags)
    (merged,) = told(edison, project, "runs", "merge", *shards, "--into", "merged.db")
    (whole,) = told(edison, project, "run", *flags)
    assert merged["gates"]
    assert merged["shard"] is None
    assert merged["partial"] is False
    assert lasting(merged) == lasting(whole)
    a, b = stored(project.path / "merged.db"), stored(project.path / ".edison/results.db")
    for table, expected in b.items():
        assert expected, f"the test says nothing of {table}"
        assert a[table] == expected, table


@pytest.mark.nightly
def test_changed_material_makes_two_merged_runs_and_the_worse_verdict_counts(
    edison: Edison, project: Folder
) -> None:
    project.edit(HELLO, "- contains", "- icontains")
    shards = sharded(edison, project, "--against", "main", count=2)
    merged = told(edison, project, "runs", "merge", *shards, "--into", "merged.db")
    whole = told(edison, project, "run", "--against", "main")
    assert [run["against"]["eval_suite"] for run in merged] == ["base", "head"]
    assert lasting(merged) == lasting(whole)


def test_a_limit_is_of_the_whole_run(edison: Edison, project: Folder) -> None:
    shards = sharded(edison, project, "--limit", "7", "--model", "small", count=2)
    (merged,) = told(edison, project, "runs", "merge", *shards)
    assert merged["cells"]["ok"] == 7 * 2
    assert merged["partial"] is True


@pytest.mark.nightly
def test_a_shard_with_too_many_errors_counts_with_the_others(
    edison: Edison, project: Folder
) -> None:
    """What is too much in a part need not be too much in the whole."""
    failing = [f"c{i:02}" for i in range(CASES) if shard_of(f"c{i:02}", 2) == 1][:2]
    pattern = "|".join(case[1:] for case in failing)
    lines = [
        {"match": f"/Person ({pattern})/", "error": "CONTENT_FILTER", "text": "no"},
        {"match": "", "text": "Hello"},
    ]
    script(project, lines)
    codes = []
    for index in (1, 2):
        codes.append(edison(project, "run", "--shard", f"{index}/2", "-q").code)
        keep(project, f"{index}.db")
    (merged,) = told(
        edison, project, "runs", "merge", "1.db", "2.db", "--into", "merged.db", code=1
    )
    (whole,) = told(edison, project, "run", code=1)
    assert codes == [3, 0], "the first has more errors than max_errors allows"
    assert (merged["status"], merged["cells"]["error"]) == ("COMPLETED", len(failing))
    assert lasting(merged) == lasting(whole)


def test_too_many_errors_in_the_whole_are_an_error(edison: Edison, project: Folder) -> None:
    script(project, [{"match": "", "error": "CONTENT_FILTER", "text": "no"}])
    for index in (1, 2):
        edison(project, "run", "--shard", f"{index}/2", "-q")
        keep(project, f"{index}.db")
    done = edison(project, "runs", "merge", "1.db", "2.db", "--json")
    found = json.loads(done.out)
    assert (done.code, found["verdict"], found["runs"][0]["status"]) == (3, "error", "FAILED")


def script(folder: Folder, lines: Sequence[dict[str, str]]) -> None:
    """Let one model answer from a script, and only checks grade."""
    folder.write("script.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    scripted = "{provider: sim, model: script, options: {file: script.jsonl}}"
    folder.write("models.yaml", f"small: {scripted}\nbig: {scripted}\njudge: {scripted}\n")
    folder.edit(HELLO, "models: [small, big]\nrepeats: 2", "models: [small]\nmax_errors: 20%")
    folder.edit(HELLO, "rubric: rubrics/tone.yaml\n", "")
    folder.edit(HELLO, "judges: {pointwise: [judge], pairwise: {by: judge}}\n", "")


# --- a shard alone --------------------------------------------------------------------------------


def test_a_shard_says_that_it_is_a_part_and_decides_nothing(
    edison: Edison, project: Folder
) -> None:
    done = edison(project, "run", "--shard", "1/2", "--markdown", "report.md", "--junit", "j.xml")
    assert done.code == 0
    assert "  shard 1/2" in done.out.splitlines()[0]
    said = "Its gates do not decide; merge all shards: `edison runs merge SHARD.db...`"
    assert said in done.out
    report = project.read("report.md")
    assert "Shard 1 of 2: this is a part of a run. Its gates do not decide" in report
    assert "no gates" not in report
    assert "shard 1/2" in project.read("j.xml")
    assert rows(project.path / ".edison/results.db", "select count(*) from decision") == [(0,)]
    (run,) = told(edison, project, "status", "latest")
    assert (run["verdict"], run["gates"], run["shard"]) == ("skipped", [], "1/2")
    done = edison(project, "compare", "--gates")
    assert (done.code, "gates decide on all shards together" in done.err) == (2, True)


def test_a_shard_has_its_share_of_every_budget(edison: Edison, project: Folder) -> None:
    """No machine knows what the others spend."""
    budget = 0.02
    spent = 0
    for index in (1, 2):
        flags = ["--no-cache", "--budget", str(budget), "--shard", f"{index}/2"]
        assert edison(project, "run", "-q", *flags).code == 4, "half of it is not enough"
        path = project.path / ".edison/results.db"
        ((booked,),) = rows(path, "select sum(microusd) from booked where scope like 'run:%'")
        assert booked <= budget * 1e6 / 2
        spent += booked
        remove_results(project)
    assert 0 < spent <= budget * 1e6


def test_a_shard_asks_at_its_part_of_the_rate(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int | None, int | None]] = []
    real = clients.build_client  # type: ignore[attr-defined]  # what the module uses itself

    def noted(budgeted: Any, limits: Any, *more: Any) -> Any:
        seen.append((limits.rpm, limits.tpm))
        return real(budgeted, limits, *more)

    monkeypatch.setattr(clients, "build_client", noted)
    rates = "{provider: sim, model: small, limits: {rpm: 90, tpm: 3}}"
    mini.write("models.yaml", f"small: {rates}\njudge: {{provider: sim, model: judge}}\n")
    assert edison(mini, "run", "-q", "--shard", f"{shard_of('ada', 4)}/4").code == 0
    assert set(seen) == {(22, 1), (None, None)}


def test_a_shard_without_cases_is_skipped_and_not_missed(edison: Edison, project: Folder) -> None:
    project.write(
        "datasets/names.jsonl", '{"id": "ada", "input": {"name": "A"}, "expected": "A"}\n'
    )
    here = shard_of("ada", 2)
    matrix = json.loads(edison(project, "plan", "--shards", "2").out)["include"]
    assert [row["shard"] for row in matrix] == [f"{here}/2"]
    done = edison(project, "run", "--shard", f"{3 - here}/2")
    assert (done.code, "skipped: shard" in done.err) == (0, True)
    assert edison(project, "run", "-q", "--shard", f"{here}/2").code == 0
    keep(project, "one.db")
    (merged,) = told(edison, project, "runs", "merge", "one.db")
    assert merged["cells"]["ok"] == 4


# --- what is refused ------------------------------------------------------------------------------


_PAIR: list[Path] = []
"""Where the project of `pair` is kept once it is made."""


@pytest.fixture
def pair(
    edison: Edison, project: Folder, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Folder:
    """Two shards of a cheap run, in shards/."""
    if not _PAIR:
        _PAIR.append(tmp_path_factory.mktemp("pair") / "project")
        shutil.copytree(make_pair(edison, project).path, _PAIR[0])
    shutil.copytree(_PAIR[0], tmp_path / "pair")
    return Folder(tmp_path / "pair")


def make_pair(edison: Edison, project: Folder) -> Folder:
    project.edit(HELLO, "models: [small, big]\nrepeats: 2", "models: [small]")
    project.edit(HELLO, "rubric: rubrics/tone.yaml\n", "")
    project.edit(HELLO, "judges: {pointwise: [judge], pairwise: {by: judge}}\n", "")
    sharded(edison, project, count=2)
    return project


def refused(edison: Edison, folder: Folder, *files: str, code: int = 2) -> str:
    """Merge in vain; nothing is left behind. Returns what was said."""
    before = sorted(path.name for path in (folder.path / ".edison").glob("*.db*"))
    done = edison(folder, "runs", "merge", *files, "--json", "--junit", "junit.xml")
    found = json.loads(done.out)
    assert (done.code, found["exit_code"], found["verdict"]) == (code, code, "error"), done.all
    assert "<error" in folder.read("junit.xml"), "no older report is taken for this one"
    assert sorted(path.name for path in (folder.path / ".edison").glob("*.db*")) == before
    assert not [*(folder.path / ".edison").glob(".*stage*")]
    return f"{found['error']['message']} ({found['error']['hint']})"


def test_a_missing_shard_is_an_error_and_never_a_verdict(edison: Edison, pair: Folder) -> None:
    said = refused(edison, pair, "shards/1.db", code=3)
    assert "1 of 2 shards of hello are missing: 2/2" in said


def test_a_shard_that_stopped_is_an_error(edison: Edison, pair: Folder) -> None:
    connection = sqlite3.connect(pair.path / "shards/2.db")
    connection.execute("update run set status = 'PAUSED'")
    connection.commit()
    connection.close()
    assert "shards/2.db) of hello is PAUSED" in refused(
        edison, pair, "shards/1.db", "shards/2.db", code=3
    )


def test_a_shard_that_lacks_a_cell_is_an_error(edison: Edison, pair: Folder) -> None:
    connection = sqlite3.connect(pair.path / "shards/2.db")
    connection.execute("delete from component where cell_id = (select min(id) from cell)")
    connection.execute("delete from cell where id = (select min(id) from cell)")
    connection.execute("update run set cells_planned = cells_planned - 1")
    connection.commit()
    connection.close()
    assert "cells of hello are missing: c" in refused(
        edison, pair, "shards/1.db", "shards/2.db", code=3
    )


def test_two_runs_of_one_shard_are_refused(edison: Edison, pair: Folder) -> None:
    assert edison(pair, "run", "-q", "--shard", "2/2").code == 0
    keep(pair, "shards/again.db")
    said = refused(edison, pair, "shards/1.db", "shards/2.db", "shards/again.db")
    assert "shard 2/2 is given twice" in said


def test_a_shard_of_another_plan_is_refused(edison: Edison, pair: Folder) -> None:
    pair.edit("prompts/hello.md", "friendly", "formal")
    assert edison(pair, "run", "-q", "--shard", "2/2").code == 0
    keep(pair, "shards/2.db")
    said = refused(edison, pair, "shards/1.db", "shards/2.db")
    assert "has another plan than" in said
    assert "prompts/hello.md changed" in said


def test_other_files_than_those_that_were_run_are_refused(edison: Edison, pair: Folder) -> None:
    pair.edit(HELLO, "at_least: 20%", "at_least: 1%")
    said = refused(edison, pair, "shards/1.db", "shards/2.db")
    assert "experiments/hello.yaml changed" in said, "a gate is not chosen after the fact"


def test_shards_of_another_split_are_refused(edison: Edison, pair: Folder) -> None:
    assert edison(pair, "run", "-q", "--shard", "2/3").code == 0
    keep(pair, "shards/other.db")
    assert "are not of one run" in refused(edison, pair, "shards/1.db", "shards/other.db")


def test_shards_against_different_commits_are_refused(edison: Edison, pair: Folder) -> None:
    for index, ref in ((1, "HEAD"), (2, "HEAD~1")):
        if index == 2:
            pair.git("commit", "--quiet", "--allow-empty", "--message", "nothing")
            pair.git("commit", "--quiet", "--allow-empty", "--message", "nothing more")
        assert edison(pair, "run", "-q", "--shard", f"{index}/2", "--against", ref).code == 0
        keep(pair, f"shards/{index}.db")
    said = refused(edison, pair, "shards/1.db", "shards/2.db")
    assert "is compared with" in said


def test_a_run_of_everything_is_no_shard(edison: Edison, pair: Folder) -> None:
    assert edison(pair, "run", "-q").code == 0
    keep(pair, "whole.db")
    assert "has no run of a shard" in refused(edison, pair, "shards/1.db", "whole.db")


def test_cases_of_another_shard_are_refused(edison: Edison, pair: Folder) -> None:
    connection = sqlite3.connect(pair.path / "shards/2.db")
    (other,) = rows(pair.path / "shards/1.db", "select case_id from cell limit 1")[0]
    connection.execute(
        "update cell set case_id = ? where id = (select min(id) from cell)", (other,)
    )
    connection.commit()
    connection.close()
    said = refused(edison, pair, "shards/1.db", "shards/2.db")
    assert f"has cases of another shard: {other}" in said


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    match how:
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "empty":
            path.write_bytes(b"")
        case "garbled":
            middle = len(content) // 2
            path.write_bytes(content[:middle] + b"\xff" * 4096 + content[middle + 4096 :])
        case "text":
            path.write_text("shard\n", encoding="utf-8")
        case "gone":
            path.unlink()
        case _:
            connection = sqlite3.connect(path)
            connection.execute(how)
            connection.commit()
            connection.close()


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("truncated", 3, "is cut off"),
        ("empty", 2, "is empty"),
        ("garbled", 3, "damaged"),
        ("text", 2, "is not a database"),
        ("gone", 2, "there is no file"),
        ("pragma user_version = 99", 2, "was made by a newer edison"),
        ("pragma application_id = 1", 2, "another program's database"),
        ("create trigger t after insert on cell begin select 1; end", 2, "are not those of this"),
        ("create view more as select 1", 2, "are not those of this edison"),
        ("update answer_text set text = 'better'", 3, "is not what was stored"),
        ("update booked set microusd = 0", 0, ""),
    ],
)
def test_a_file_that_is_not_what_a_run_wrote_is_refused(
    edison: Edison, pair: Folder, how: str, code: int, said: str
) -> None:
    damage(pair.path / "shards/2.db", how)
    if code:
        assert said in refused(edison, pair, "shards/1.db", "shards/2.db", code=code)
    else:  # totals are counted anew, whatever the shard says they are
        told(edison, pair, "runs", "merge", "shards/1.db", "shards/2.db")
        assert edison(pair, "admin", "db", "check").code == 0


def test_results_in_which_a_shard_was_run_are_not_merged_into(edison: Edison, pair: Folder) -> None:
    shutil.copy(pair.path / "shards/1.db", pair.path / ".edison/results.db")
    done = edison(pair, "runs", "merge", "shards/1.db", "shards/2.db")
    assert (done.code, "already counts its calls" in done.err) == (2, True)
    done = edison(pair, "runs", "merge", ".edison/results.db", "shards/2.db")
    assert (done.code, "cannot be merged into itself" in done.err) == (2, True)
    files = [".edison/results.db", "shards/2.db"]
    (merged,) = told(edison, pair, "runs", "merge", *files, "--into", "all.db")
    assert merged["cells"]["ok"] == CASES


# --- once and in full -----------------------------------------------------------------------------


def test_merging_again_changes_nothing(edison: Edison, pair: Folder) -> None:
    files = ["shards/1.db", "shards/2.db"]
    (first,) = told(edison, pair, "runs", "merge", *files)
    results = pair.path / ".edison/results.db"
    tables = [
        name for (name,) in rows(results, "select name from sqlite_schema where type='table'")
    ]
    before = {name: rows(results, f"select * from {name}") for name in tables}
    shutil.copy(pair.path / "shards/2.db", pair.path / "shards/copy.db")
    (again,) = told(edison, pair, "runs", "merge", *reversed(files), "shards/copy.db")
    assert again == first
    assert {name: rows(results, f"select * from {name}") for name in tables} == before


def test_the_merge_keeps_the_heads_of_the_logs_of_its_shards(edison: Edison, pair: Folder) -> None:
    files = ["shards/1.db", "shards/2.db"]
    second = pair.path / files[1]
    assert told(edison, pair, "runs", "merge", *files)
    ((kept,),) = rows(pair.path / ".edison/results.db", "select after from audit")
    (heads,) = json.loads(kept).values()
    newest = "select run.id, seq || ':' || sha256 from run, audit order by seq desc limit 1"
    assert heads == dict(rows(pair.path / name, newest)[0] for name in files)
    assert edison(pair, "runs", "merge", *files).code == 0
    ((stays,),) = rows(second, "select sql from sqlite_schema where name = 'audit_stays'")
    with opened(second) as connection:
        connection.executescript(
            "drop trigger audit_stays; delete from audit where seq = (select max(seq) from audit);"
            f"update sqlite_sequence set seq = seq - 1 where name = 'audit'; {stays}"
        )
    cut = edison(pair, "runs", "merge", *files)
    assert cut.code == 3
    assert (
        "(shards/2.db) was changed: row 1, with which it was merged before, is not there" in cut.err
    )
    with opened(second) as connection:
        connection.executescript(
            "insert into audit (seq, time, actor, known_by, action, entity, host, detail, sha256) "
            "values (1, '2026-11-17T00:00:00Z', 'eve', 'git', 'run', 'hello', 'h', '', '')"
        )
    assert "row 1 was changed" in edison(pair, "runs", "merge", *files).err


def test_answers_that_several_files_have_are_paid_once(edison: Edison, pair: Folder) -> None:
    """Shards that started from the same results bring the same old answers along."""
    remove_results(pair)
    assert edison(pair, "run", "-q").code == 0
    shutil.copy(pair.path / ".edison/results.db", pair.path / "main.db")
    for index in (1, 2):
        shutil.copy(pair.path / "main.db", pair.path / ".edison/results.db")
        assert edison(pair, "run", "-q", "--shard", f"{index}/2").code == 0
        keep(pair, f"shards/{index}.db")
    paid = rows(pair.path / "main.db", "select count(*), sum(cost_microusd) from answer")
    for target in ("main.db", "new.db"):
        files = ["shards/1.db", "shards/2.db"]
        (merged,) = told(edison, pair, "runs", "merge", *files, "--into", target)
        assert (merged["calls"]["made"], merged["calls"]["reused"]) == (0, CASES)
        path = pair.path / target
        assert rows(path, "select count(*), sum(cost_microusd) from answer") == paid
        spent = rows(path, "select sum(microusd) from booked where scope = 'project'")
        assert spent == [paid[0][1:]]


def test_a_shard_that_was_run_again_adds_only_what_it_bought(edison: Edison, pair: Folder) -> None:
    told(edison, pair, "runs", "merge", "shards/1.db", "shards/2.db", "--into", "all.db")
    path = pair.path / "all.db"
    before = rows(path, "select sum(cost_microusd), count(*) from attempt")[0]
    assert edison(pair, "run", "-q", "--no-cache", "--shard", "2/2").code == 0
    bought = rows(
        pair.path / ".edison/results.db", "select sum(cost_microusd), count(*) from attempt"
    )[0]
    keep(pair, "shards/2.db")
    (merged,) = told(
        edison, pair, "runs", "merge", "shards/1.db", "shards/2.db", "--into", "all.db"
    )
    after = rows(path, "select sum(cost_microusd), count(*) from attempt")[0]
    assert after == tuple(a + b for a, b in zip(before, bought, strict=True))
    assert merged["cost_microusd"] == bought[0]
    assert rows(path, "select max(answer_no) from answer") == [(1,)]
    (answer_no,) = rows(
        path, f"select max(answer_no) from cell where run_id = '{merged['run_id']}'"
    )[0]
    assert answer_no == 1, "cells of the new shard point to its own answers"


def test_grades_by_people_come_along(edison: Edison, pair: Folder) -> None:
    shutil.copy(pair.path / "shards/1.db", pair.path / ".edison/results.db")
    (case,) = rows(pair.path / "shards/1.db", "select case_id from cell order by 1 limit 1")[0]
    done = edison(pair, "grade", "latest", "--cell", f"{case}@small#0", "--grade", "up")
    assert done.code == 0, done.all
    keep(pair, "shards/1.db")
    told(edison, pair, "runs", "merge", "shards/1.db", "shards/2.db")
    found = rows(
        pair.path / ".edison/results.db",
        "select c.case_id, m.score from manual_grade m join cell c on c.id = m.cell_id",
    )
    assert found == [(case, 1.0)]


def test_events_say_of_which_shard_they_are(edison: Edison, pair: Folder) -> None:
    (merged,) = told(edison, pair, "runs", "merge", "shards/1.db", "shards/2.db")
    path = pair.path / ".edison/results.db"
    events = rows(
        path, "select run_id, json_extract(data, '$.shard'), type from event order by seq"
    )
    assert {run for run, _, _ in events} == {merged["run_id"]}
    assert {shard for _, shard, _ in events} == {"1/2", "2/2", None}
    assert events[-1][1:] == (None, "iteration:completed")
    (entry,) = rows(path, "select action, after from audit")
    assert entry[0] == "merge"
    assert len(json.loads(entry[1])[merged["run_id"]]) == 2


def test_reports_of_the_merged_run_are_written(edison: Edison, pair: Folder) -> None:
    flags = ["--junit", "j.xml", "--markdown", "r.md", "--sarif", "s.json"]
    done = edison(pair, "runs", "merge", "shards/1.db", "shards/2.db", *flags)
    assert done.code == 0
    assert done.out.startswith("hello  COMPLETED")
    assert f'tests="{CASES + 4}"' in pair.read("j.xml")
    assert "`hello`" in pair.read("r.md")
    assert json.loads(pair.read("s.json"))["version"] == "2.1.0"


def test_a_viewer_may_not_merge(edison: Edison, pair: Folder) -> None:
    members = "members:\n  - {email: other@example.com, role: OWNER}\n"
    pair.write("edison.yaml", pair.read("edison.yaml") + members)
    done = edison(pair, "runs", "merge", "shards/1.db", "shards/2.db")
    assert done.code == 2
    assert not (pair.path / ".edison/results.db").exists()


def test_a_file_in_a_folder_that_cannot_be_written_is_read(edison: Edison, pair: Folder) -> None:
    folder = pair.path / "shards"
    for path in folder.iterdir():
        connection = sqlite3.connect(path)
        connection.execute("pragma journal_mode = wal")
        connection.close()
        path.chmod(0o444)
    folder.chmod(0o555)
    try:
        (merged,) = told(edison, pair, "runs", "merge", "shards/1.db", "shards/2.db")
    finally:
        folder.chmod(0o755)
    assert merged["cells"]["ok"] == CASES


KILLED = """
import os, signal, sys
module, name, nth = {place!r}.split(":")
owner = __import__("importlib").import_module(module)
real, seen = getattr(owner, name), []
def dying(*args, **kwargs):
    seen.append(1)
    if len(seen) == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)
setattr(owner, name, dying)
from edison_ci.cli.app import run
run(["runs", "merge", "shards/1.db", "shards/2.db"])
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("place", "there"),
    [
        ("edison_ci.execute.shard_merge:merge_shard:2", False),
        ("edison_ci.execute.shard_merge:cell_statuses:1", False),
        ("edison_ci.store.merge:import_run:1", False),
        ("edison_ci.store.merge:add_audit:1", False),
        ("edison_ci.cli.run:finish:1", True),
    ],
)
def test_killed_in_the_middle_nothing_is_half(
    edison: Edison, pair: Folder, place: str, there: bool
) -> None:
    assert edison(pair, "run", "-q").code == 0, "results that were there before"
    results = pair.path / ".edison/results.db"
    counts = "select (select count(*) from run), (select count(*) from cell), count(*) from attempt"
    before = rows(results, counts)
    done = forked.run(
        [sys.executable, "-c", KILLED.format(place=place)],
        cwd=pair.path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert edison(pair, "admin", "db", "check").code == 0
    assert (rows(results, counts) != before) is there
    (merged,) = told(edison, pair, "runs", "merge", "shards/1.db", "shards/2.db")
    assert merged["verdict"] is not None
    ((runs, cells, attempts),) = rows(results, counts)
    assert (runs, cells, attempts) == (2, 2 * CASES, 2 * CASES)
