"""A bundle of a project restores it elsewhere; what a stranger made of one is refused."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import stat
import zipfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import open_site
from edison_ci.errors import UsageError
from edison_ci.features.upkeep.project_bundles import restore_project_bundle, write_project_bundle
from edison_ci.store.integrity import check_database
from tests.conftest import Folder
from tests.fixed_keys import signing_keys
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Edison

pytestmark = pytest.mark.daily

KEYS = signing_keys("ours")
TRUST = "version: 1\nkeys:\n  - {env: SHOP_LLM, hosts: ['https://llm.example']}\n"


OF_A_MACHINE = (
    ".edison/auth.db", ".EDISON/auth.db", ".edi\u200bson/auth.db", "sub/.edison/auth.db",
    ".edison/loops/.edison/auth.db", ".edison", ".edison/auth.db-wal", ".edison/results.db-wal",
    ".edison/leases.db", ".edison/secrets.yaml", ".edison/trust.yaml.bundled", ".edison/locks/x",
    ".edison/cache/x", ".env", "deep/.ENV.local", "deep/id_ed25519", "deep/server.key",
)  # fmt: skip
"""Files that are of one machine, or that hold keys."""


@pytest.fixture
def made(edison: Edison, mini: Folder, tmp_path: Path) -> Path:
    """The bundle of a project with a run."""
    assert edison(mini, "run", "-q", "--record", "answers.jsonl").code in (0, 1, 5)
    mini.write(".edison/trust.yaml", TRUST)
    mini.write(".edison/auth.db", "hashes")
    mini.write(".edison/locks/x.lock", "")
    mini.write(".env", "A=b\n")
    (mini.path / "link").symlink_to("/etc/passwd")
    target = tmp_path / "project.zip"
    done = edison(mini, "admin", "bundle", "create", str(target))
    assert done.code == 0, done.err
    assert "left out, as it is a link or may hold a key: .env" in done.err
    assert "may hold a key: link" in done.err
    return target


def numbers(folder: Path, *, answers: bool) -> list[Any]:
    with closing(sqlite3.connect(folder / ".edison/results.db")) as connection:
        return [
            *connection.execute("select id, composite, passed, status from cell order by id"),
            *connection.execute("select * from rollup_run"),
            *(connection.execute("select * from answer order by 1, 2") if answers else ()),
            *connection.execute("select request_hash, answer_no, text from answer_text order by 1"),
            *connection.execute("select seq, sha256 from audit where action = 'run'"),
        ]


@pytest.mark.parametrize("own", [True, False])
def test_a_project_is_restored_on_another_machine(
    edison: Edison,
    mini: Folder,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
) -> None:
    there = Folder(tmp_path / "there")
    if own:
        monkeypatch.setenv("EDISON_SIGNING_KEY", KEYS.private)
        assert edison(mini, "admin", "bundle", "create", str(made)).code == 0
    done = edison(mini, "admin", "bundle", "restore", str(made), str(there.path))
    assert done.code == 0, done.err
    assert ("the runs are shown and decide nothing here" in done.err) == (not own)
    assert "no host is trusted yet: look at .edison/trust.yaml.bundled" in done.err
    assert numbers(there.path, answers=own) == numbers(mini.path, answers=own)
    assert there.read("answers.jsonl") == mini.read("answers.jsonl")
    names = {p.relative_to(there.path).as_posix() for p in there.path.rglob("*") if p.is_file()}
    assert names & {".edison/auth.db", ".edison/trust.yaml", ".env", "link"} == set()
    assert there.read(".edison/trust.yaml.bundled") == TRUST
    runs = [json.loads(edison(each, "status", "--json").out)["runs"] for each in (there, mini)]
    for shown in (*runs[0], *runs[1]):
        shown.update(dict.fromkeys(() if own else ("labels", "trigger", "reproduce")))
    assert runs[0] == runs[1]
    assert edison(there, "admin", "audit", "--verify").code == 0
    newest = json.loads(edison(there, "admin", "audit", "--json").out)["rows"][0]
    assert newest["action"] == "bundle restore"
    assert newest["after"]["sha256"] == hashlib.sha256(made.read_bytes()).hexdigest()
    run = json.loads(edison(there, "run", "--json").out)["runs"][0]
    assert (run["calls"]["made"] == 0) == own, "only one's own answers are used again"
    exported = json.loads(edison(mini, "admin", "audit", "--json").out)["rows"][0]
    assert exported["entity"] == "the whole project as a bundle to project.zip"


def test_results_of_a_stranger_are_shown_and_decide_nothing(
    edison: Edison, mini: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle with a passed run, grades, suggestions, budgets and alerts that somebody made up."""
    assert edison(mini, "run", "-q").code in (0, 1, 5)
    with opened(mini.path / ".edison/results.db") as connection:
        for sql in MADE_UP:
            connection.execute(sql)
    monkeypatch.setenv("EDISON_SIGNING_KEY", signing_keys("stranger").private)
    assert edison(mini, "admin", "bundle", "create", str(tmp_path / "x.zip")).code == 0
    monkeypatch.setenv("EDISON_SIGNING_KEY", KEYS.private)
    there = Folder(tmp_path / "there")
    restored = edison(mini, "admin", "bundle", "restore", str(tmp_path / "x.zip"), str(there.path))
    assert restored.code == 0, restored.err
    with opened(there.path / ".edison/results.db") as connection:

        def ask(sql: str) -> list[Any]:
            return connection.execute(sql).fetchall()

        (run,) = ask("select id, trigger, verdict from run")
        assert run[1:] == ("import", "pass"), "it is shown"
        assert ask("select run_id, way, signed_by, trusted from run_origin") == [
            (run[0], "restore", signing_keys("stranger").public, 0)
        ]
        assert ask("select distinct cost_kind from answer") == [("imported",)]
        assert ask("select distinct origin from attempt") == [(run[0],)]
        assert {scope for (scope,) in ask("select scope from booked")} == {f"run:{run[0]}"}
        assert ask("select count(*) from manual_grade")[0][0] > 0
        for table in ("counted_grade", "own_attempt", "suggestion", "alert_mute", "schedule_watch"):
            assert ask(f"select count(*) from {table}") == [(0,)], table
        assert [text for one in check_database(connection) for text in one.problems] == []
    made_calls = json.loads(edison(there, "run", "--json").out)["runs"][0]["calls"]
    assert (made_calls["made"] > 0, made_calls["reused"]) == (True, 0)


MADE_UP = (
    "update run set verdict = 'pass', plan_hash = plan_hash",
    "insert into manual_grade (cell_id, experiment, case_id, request_hash, answer_no, actor, "
    "scale, score, passed, flagged, seed, graded_at) select id, 'hello', case_id, request_hash, "
    "answer_no, 'ann', '0-1', 1.0, 1, 0, 0, '2026-11-19T05:00:00Z' from cell",
    "insert into suggestion (id, hash, experiment, prompt, path, base_hash, diff, note, targets, "
    "guardrails, evidence, status, simulated, cost_microusd, created_at) values ('0123456789ab', "
    "'x', 'hello', 'hello', 'prompts/hello.md', 'x', '', '', '[]', '[]', '{}', 'approved', 0, 0, "
    "'2026-11-19T05:00:00Z')",
    "insert into alert_mute (experiment, condition, until, actor, made_at) values ('', '', "
    "'2099-01-01T00:00:00Z', 'ann', '2026-11-19T05:00:00Z')",
    "insert into schedule_watch values ('hello', 'nightly', '', '2099-01-01T00:00:00Z')",
)


def test_a_folder_of_the_project_has_its_own_list_of_trusted_hosts_set_aside(
    made: Path, tmp_path: Path
) -> None:
    restore_project_bundle(again(made, with_file("sub/.edison/trust.yaml")), tmp_path / "there")
    left = [path.name for path in (tmp_path / "there/sub/.edison").iterdir()]
    assert left == ["trust.yaml.bundled"]


def test_what_is_written_can_be_restored(mini: Folder, tmp_path: Path) -> None:
    """Writer and reader share one list of paths."""
    for path in OF_A_MACHINE:
        if path != ".edison":
            mini.write(path, "x")
    mini.write(".edison/loops/one.md", "a loop")
    mini.write("data/more.db", "x")
    bundle = tmp_path / "project.zip"
    write_project_bundle(open_site(mini.path), bundle)
    restore_project_bundle(bundle, tmp_path / "there")
    there = Folder(tmp_path / "there")
    assert (there.read(".edison/loops/one.md"), there.read("data/more.db")) == ("a loop", "x")
    assert not [path for path in OF_A_MACHINE if (there.path / path).is_file()]


def test_the_same_project_makes_the_same_bundle(mini: Folder, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_project_bundle(open_site(mini.path), tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_file_with_a_key_stops_it(mini: Folder, tmp_path: Path) -> None:
    mini.write("notes.md", "first\nthe key is sk-ant-" + "a" * 40)
    with pytest.raises(UsageError, match=r"notes.md:2 holds a key"):
        write_project_bundle(open_site(mini.path), tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_a_private_project_is_not_bundled(mini: Folder, tmp_path: Path) -> None:
    mini.write("edison.yaml", "version: 1\nproject: mini\nsettings: {private: true}\n")
    with pytest.raises(UsageError, match="this project is private"):
        write_project_bundle(open_site(mini.path), tmp_path / "x.zip")


def again(made: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Return a bundle like another one, changed."""
    with zipfile.ZipFile(made) as old:
        files = {name: old.read(name) for name in old.namelist()}
    change(files)
    target = made.with_name("changed.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in files.items():
            new.writestr(name, data)
    return target


def with_file(path: str, data: bytes = b"x", size: int | None = None) -> Any:
    """Return a change that adds a file, with its line in the manifest."""

    def change(files: dict[str, bytes]) -> None:
        told = json.loads(files["manifest.json"])
        sha256 = hashlib.sha256(data).hexdigest()
        one = {"path": path, "size_bytes": len(data) if size is None else size, "sha256": sha256}
        told["files"].append(one)
        files["manifest.json"] = json.dumps(told).encode()
        files[f"files/{path}"] = data

    return change


def moved_results(path: str) -> Any:
    """Return a change by which a bundle has its results at another path."""

    def change(files: dict[str, bytes]) -> None:
        told = json.loads(files["manifest.json"])
        told["results"]["path"] = path
        files["manifest.json"] = json.dumps(told).encode()

    return change


def planted_results(files: dict[str, bytes]) -> None:
    """Make the results one of the files, which nothing checks."""
    told, data = json.loads(files["manifest.json"]), files.pop("results.db")
    project = files["files/edison.yaml"] + b"results: data/planted.db\n"
    told["results"] = None
    told["files"] = [one for one in told["files"] if one["path"] != "edison.yaml"]
    files["manifest.json"] = json.dumps(told).encode()
    with_file("edison.yaml", project)(files)
    with_file("data/planted.db", data)(files)


def damaged_audit(files: dict[str, bytes]) -> None:
    told = json.loads(files["manifest.json"])
    data = files["results.db"].replace(b"somebody", b"somebodx")
    assert data != files["results.db"]
    files["results.db"] = data
    told["results"]["sha256"] = hashlib.sha256(data).hexdigest()
    files["manifest.json"] = json.dumps(told).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_file("../outside"), "it contains '../outside'"),
        (with_file("/outside"), "it contains '/outside'"),
        (with_file("a/../../outside"), "it contains"),
        (with_file(".git/hooks/post-checkout"), "it contains '.git/hooks"),
        (with_file("a\\b"), "it contains"),
        (with_file("Edison.yaml"), "two of its files have the same name"),
        (with_file("edison.yaml/x"), "two of its files have the same name"),
        *((with_file(path), f"it contains {path!r}") for path in OF_A_MACHINE),
        (moved_results(".edison/auth.db"), "its results are in '.edison/auth.db'"),
        (planted_results, "it contains 'data/planted.db'"),
        (with_file("big", b"0" * 50_000_000), "too large"),
        (with_file("big", b"x", size=10**10), "too many bytes"),
        (lambda files: files.update({"files/more": b"x"}), "it contains 'files/more'"),
        (lambda files: files.pop("files/edison.yaml"), "edison.yaml is missing"),
        (lambda files: files.update({"files/edison.yaml": b"version: 1"}), "checksum of edison"),
        (lambda files: files.update({"manifest.json": b"[]"}), "not the manifest of a project"),
        (damaged_audit, "audit: row 1 was changed"),
    ],
)  # fmt: skip
def test_what_a_stranger_changed_is_refused_and_leaves_nothing(
    made: Path, tmp_path: Path, change: Any, said: str
) -> None:
    changed, target = again(made, change), tmp_path / "there"
    with pytest.raises(UsageError) as refused:
        restore_project_bundle(changed, target)
    assert said in refused.value.message
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"project", "project.zip", "changed.zip", "home"}, left


def test_a_link_in_the_archive_is_refused(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made) as old:
        files = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(made, "w") as new:
        for name, data in files.items():
            about = zipfile.ZipInfo(name)
            about.external_attr = (stat.S_IFLNK if name.endswith("hello.md") else 0) << 16
            new.writestr(about, data)
    with pytest.raises(UsageError, match=r"hello\.md is not a regular file"):
        restore_project_bundle(made, tmp_path / "there")


def test_a_folder_with_files_is_not_written_to(made: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/mine").write_text("x")
    with pytest.raises(UsageError, match="exists and is not empty"):
        restore_project_bundle(made, tmp_path / "there")


def test_a_bundle_of_runs_is_told_apart(edison: Edison, mini: Folder, tmp_path: Path) -> None:
    edison(mini, "run", "-q")
    edison(mini, "report", "--out", str(tmp_path / "run.zip"))
    with pytest.raises(UsageError) as refused:
        restore_project_bundle(tmp_path / "run.zip", tmp_path / "there")
    assert "edison import bundle" in refused.value.hint


KEY = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


@pytest.mark.parametrize(
    "data",
    [
        f"token: {KEY}\n".encode(),
        b"x" * 10_000_001 + f"\n{KEY}\n".encode(),
        f"token: {KEY}\n".encode("utf-16"),
        f"token: {KEY}\n".encode("utf-16-be"),
        b"\xff\xfe\x00" + KEY.encode() + b"\xff",
    ],
    ids=["text", "large", "utf-16", "utf-16 without mark", "bytes"],
)
def test_a_key_leaves_in_no_file_of_a_bundle(mini: Folder, tmp_path: Path, data: bytes) -> None:
    mini.write("datasets/notes.txt", data)
    with pytest.raises(UsageError, match="holds a key, so no bundle was written"):
        write_project_bundle(open_site(mini.path), tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_what_is_reached_through_a_link_is_not_bundled(
    mini: Folder, made: Path, tmp_path: Path
) -> None:
    beside = tmp_path / "beside"
    for name in ("passwd", "loops/report.md", "prices.json"):
        (beside / name).parent.mkdir(parents=True, exist_ok=True)
        (beside / name).write_text("of another project")
    mini.git("init", "--quiet")
    mini.write("texts/passwd", "of this project")
    mini.git("add", "texts")
    (mini.path / "texts/passwd").unlink()
    (mini.path / "texts").rmdir()
    (mini.path / "texts").symlink_to(beside)  # Git lists what it has below
    (mini.path / ".edison/loops").symlink_to(beside / "loops")
    (mini.path / ".edison/prices.json").symlink_to(beside / "prices.json")
    bundle = tmp_path / "links.zip"
    told = write_project_bundle(open_site(mini.path), bundle)
    with zipfile.ZipFile(bundle) as archive:
        assert not any(b"of another" in archive.read(name) for name in archive.namelist())
    assert {"texts/passwd", ".edison/prices.json"} <= set(told.left_out)
    (tmp_path / "empty").mkdir()
    (tmp_path / "there").symlink_to(tmp_path / "empty")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for target in ("there", "nowhere"):
        with pytest.raises(UsageError, match="exists and is not empty"):
            restore_project_bundle(made, tmp_path / target)
    assert [*(tmp_path / "empty").iterdir()] == []
    assert not (tmp_path / "gone").exists()
