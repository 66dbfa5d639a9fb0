"""Bundles: a run travels whole, and what was changed on the way is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import zipfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import MINIMAL, Folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Edison

pytestmark = pytest.mark.daily


def project(path: Path) -> Folder:
    path.mkdir()
    folder = Folder(path)
    for name, text in MINIMAL.items():
        folder.write(name, text)
    return folder


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with a run and its bundle."""
    folder = project(tmp_path_factory.mktemp("origin") / "there")
    assert folder.edison("run", "-q").code == 0
    assert folder.edison("report", "--out", "run.zip").code == 0
    return folder


@pytest.fixture
def there(origin: Folder, tmp_path: Path) -> Folder:
    """Another machine, with a run and its bundle."""
    shutil.copytree(origin.path, tmp_path / "there")
    return Folder(tmp_path / "there")


@pytest.fixture
def here(tmp_path: Path) -> Folder:
    """A project that has no results yet."""
    return project(tmp_path / "here")


def database(folder: Folder) -> Path:
    return folder.path / ".edison/results.db"


def contents(folder: Folder, *tables: str) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(database(folder))) as connection:
        return {
            table: sorted(connection.execute(f"select * from {table}").fetchall(), key=repr)
            for table in tables
        }


def repacked(
    there: Folder,
    change: Callable[[sqlite3.Connection], object] | None = None,
    manifest: Callable[[dict[str, Any]], object] | None = None,
) -> Path:
    """Change the results of a bundle or its manifest, and make the checksums right again."""
    path, made = there.path / "run.zip", there.path / "changed.zip"
    with zipfile.ZipFile(path) as archive:
        told = json.loads(archive.read("manifest.json"))
        raw = archive.read("results.db")
    if change is not None:
        inner = there.path / "inner.db"
        inner.write_bytes(raw)
        with closing(sqlite3.connect(inner)) as connection:
            change(connection)
            connection.commit()
        raw = inner.read_bytes()
        inner.unlink()
    told["files"][0] |= {"size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    if manifest is not None:
        manifest(told)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(told))
        archive.writestr("results.db", raw)
    return made


def sql(text: str) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.executescript(text)


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_arrives_with_everything(edison: Edison, there: Folder, here: Folder) -> None:
    done = edison(here, "import", "bundle", str(there.path / "run.zip"))
    assert done.code == 0
    assert "imported  " in done.out
    assert "simulated" in done.out
    (run,) = contents(here, "run")["run"]
    (as_it_was,) = contents(there, "run")["run"]
    assert (run[2], as_it_was[2]) == ("import", "cli")
    assert run[:2] + run[3:] == as_it_was[:2] + as_it_was[3:]
    tables = ("component", "judge_score", "decision", "rollup_run", "rollup_model")
    assert contents(here, *tables) == contents(there, *tables)
    booked = [row for row in contents(there, "booked")["booked"] if row[0] == f"run:{run[0]}"]
    assert contents(here, "booked")["booked"] == booked, "it is in no other total"
    assert edison(here, "admin", "db", "check").code == 0
    mine, theirs = (
        json.loads(edison(folder, "report", "--json").out)["runs"][0] for folder in (here, there)
    )
    for key in ("composite", "pass_rate", "gates", "cost_microusd", "cells", "simulated"):
        assert mine[key] == theirs[key]
    assert mine["labels"] == ["simulated", "imported"]


def test_the_same_bundle_again_changes_nothing(edison: Edison, there: Folder, here: Folder) -> None:
    bundle = str(there.path / "run.zip")
    edison(here, "import", "bundle", bundle)
    before = contents(here, "run", "cell", "answer", "attempt", "booked", "audit")
    done = edison(here, "import", "bundle", bundle, "--json")
    assert [run["new"] for run in json.loads(done.out)["runs"]] == [False]
    assert contents(here, "run", "cell", "answer", "attempt", "booked", "audit") == before
    assert edison(there, "import", "bundle", "run.zip").out.startswith("exists")


def test_nothing_is_changed_by_looking(edison: Edison, there: Folder, here: Folder) -> None:
    done = edison(here, "import", "bundle", str(there.path / "run.zip"), "--dry-run")
    assert (done.code, "would import" in done.out) == (0, True)
    assert not database(here).exists()


def test_answers_from_elsewhere_are_never_used_again(
    edison: Edison, there: Folder, here: Folder
) -> None:
    edison(here, "import", "bundle", str(there.path / "run.zip"))
    assert {row[9] for row in contents(here, "answer")["answer"]} == {"imported"}
    run = json.loads(edison(here, "run", "--json").out)["runs"][0]
    assert (run["calls"]["made"], run["calls"]["reused"]) == (4, 0)
    own = json.loads(edison(there, "run", "--json").out)["runs"][0]
    assert own["calls"]["made"] == 0, "one's own are"


def test_an_import_is_audited_and_needs_an_editor(
    edison: Edison, there: Folder, here: Folder
) -> None:
    bundle = str(there.path / "run.zip")
    edison(here, "import", "bundle", bundle)
    (row,) = json.loads(edison(here, "admin", "audit", "--json").out)["rows"]
    assert (row["action"], row["entity"]) == ("import bundle", "run.zip")
    here.write(
        "edison.yaml", "version: 1\nproject: mini\nmembers: [{email: a@b.example, role: owner}]\n"
    )
    done = edison(here, "import", "bundle", bundle)
    assert (done.code, "import bundle needs an editor" in done.err) == (2, True)


# --- what leaves ----------------------------------------------------------------------------------


def test_only_the_run_that_was_asked_for_leaves(edison: Edison, there: Folder) -> None:
    first = contents(there, "run")["run"][0][0]
    there.edit("prompts/hello.md", "friendly", "warm")
    edison(there, "run", "-q")
    edison(there, "report", first, "--out", "first.zip")
    with zipfile.ZipFile(there.path / "first.zip") as archive:
        told = json.loads(archive.read("manifest.json"))
        raw = archive.read("results.db")
    assert [run["id"] for run in told["runs"]] == [first]
    other = next(row[0] for row in contents(there, "run")["run"] if row[0] != first)
    assert other.encode() not in raw
    assert told["files"][0]["sha256"] == hashlib.sha256(raw).hexdigest()
    assert raw[18] == 1, "it writes no log beside it"


def test_a_private_project_and_strangers_make_no_bundle(edison: Edison, there: Folder) -> None:
    assert edison(there, "report", "--format", "bundle").code == 2
    there.write("edison.yaml", "version: 1\nproject: mini\nsettings: {private: true}\n")
    done = edison(there, "report", "--out", "x.zip")
    assert (done.code, "this project is private" in done.err) == (2, True)
    there.write(
        "edison.yaml", "version: 1\nproject: mini\nmembers: [{email: a@b.example, role: owner}]\n"
    )
    assert "needs a viewer" in edison(there, "report", "--out", "x.zip").err
    assert not (there.path / "x.zip").exists()


# --- what is refused ------------------------------------------------------------------------------


def refused(edison: Edison, here: Folder, bundle: Path) -> str:
    done = edison(here, "import", "bundle", str(bundle))
    assert done.code in (2, 3)
    assert "Traceback" not in done.err
    assert not database(here).exists(), "nothing was made"
    return done.err


def test_a_wrong_checksum_is_refused(edison: Edison, there: Folder, here: Folder) -> None:
    wrong = repacked(there, manifest=lambda m: m["files"][0].update(sha256="0" * 64))
    assert "the checksum of results.db differs from the manifest" in refused(edison, here, wrong)


ODD = {
    "another program's": "pragma application_id = 7",
    "by a newer edison": "pragma user_version = 99",
    "are not those of this edison": "create table extra (x)",
    "tables of": "create trigger t after insert on run begin select 1; end",
    "an amount is negative": "update attempt set cost_microusd = -5",
    "a run has not ended": "update run set status = 'EXECUTING'",
    "a run id is not valid": "pragma foreign_keys = 0; update run set id = '../../evil'",
    "a score is not between 0 and 1": "update cell set composite = 7.5",
    "a time is not valid": "update attempt set sent_at = 'yesterday'",
    "a JSON value is not valid": "update run set snapshot = '{'",
    "ledger": "update booked set microusd = 1000000",
    "texts": "update answer_text set text = 'other'",
    "references": "pragma foreign_keys = 0; delete from cell",
    "differ from the manifest": "update run set experiment = 'other'",
}


@pytest.mark.parametrize("said", sorted(ODD))
def test_results_that_cannot_be_are_refused(
    edison: Edison, there: Folder, here: Folder, said: str
) -> None:
    assert said in refused(edison, here, repacked(there, sql(ODD[said])))


def test_damaged_results_are_refused(edison: Edison, there: Folder, here: Folder) -> None:
    with zipfile.ZipFile(there.path / "run.zip") as archive:
        told, raw = json.loads(archive.read("manifest.json")), bytearray(archive.read("results.db"))
    raw[5_000:9_000] = bytes(4_000)
    told["files"][0]["sha256"] = hashlib.sha256(raw).hexdigest()
    with zipfile.ZipFile(there.path / "bad.zip", "w") as archive:
        archive.writestr("manifest.json", json.dumps(told))
        archive.writestr("results.db", bytes(raw))
    refused(edison, here, there.path / "bad.zip")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("edison_bundle"),
        lambda m: m.update(edison_bundle=2),
        lambda m: m.update(results_version=99),
        lambda m: m.update(files=[]),
        lambda m: m["files"][0].update(name="../results.db"),
        lambda m: m["files"][0].pop("sha256"),
        lambda m: m.update(runs=[]),
        lambda m: m["runs"][0].update(verdict="pass"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    edison: Edison, there: Folder, here: Folder, change: Callable[[dict[str, Any]], object]
) -> None:
    refused(edison, here, repacked(there, manifest=change))


@pytest.mark.parametrize("text", [b"[", b'{"a": 1, "a": 2}', b"\xff", b"[1]", b"null"])
def test_a_manifest_that_is_no_manifest_is_refused(
    edison: Edison, there: Folder, here: Folder, text: bytes
) -> None:
    with zipfile.ZipFile(there.path / "bad.zip", "w") as archive:
        archive.writestr("manifest.json", text)
        archive.writestr("results.db", b"x")
    assert "manifest.json" in refused(edison, here, there.path / "bad.zip")


def test_another_run_of_the_same_name_is_refused(
    edison: Edison, there: Folder, here: Folder
) -> None:
    edison(here, "import", "bundle", str(there.path / "run.zip"))
    before = contents(here, "run", "cell", "answer")
    changed = repacked(there, sql("update run set plan_hash = 'other'"))
    done = edison(here, "import", "bundle", str(changed))
    assert (done.code, "exists already" in done.err) == (2, True)
    assert contents(here, "run", "cell", "answer") == before
