"""Attacks on forgetting: what belongs to others, to another project, or is no text, stays."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.site import open_site
from edison_ci.errors import BusyError
from edison_ci.features.upkeep import forget
from edison_ci.features.upkeep.forgetting import Selection
from edison_ci.store.liveness import ProcessLock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

PERSON = "Zephyrine Quillfeather"
PREFACE = "A customer of the shop with the red door, called "
RESULTS = ".edison/results.db"


@pytest.fixture
def ran(mini: Folder, edison: Edison) -> Folder:
    """A project with answers about three people, a recording and a backup."""
    mini.edit("models.yaml", "model: small}", "model: echo}")
    people = {"ada": PERSON, "bo": "Bo Nightingale", "cy": "Cy Nightingale"}
    rows = [
        {"id": name, "input": {"name": PREFACE + text}, "expected": text}
        for name, text in people.items()
    ]
    mini.write("datasets/names.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    done = edison(mini, "run", "--quiet", "--record", "answers.jsonl")
    assert done.code in (0, 1, 5), done.err
    assert edison(mini, "admin", "db", "backup").code == 0
    return mini


def content(path: Path) -> list[str]:
    """Return all that a results file has."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return sorted(line for line in connection.iterdump() if 'INTO "audit"' not in line)


def answers(folder: Folder) -> dict[str, int]:
    """Return how many answers each case still has."""
    with closing(sqlite3.connect(folder.path / RESULTS)) as connection:
        return dict(
            connection.execute(
                "select c.case_id, count(t.text) from cell c left join answer_text t "
                "using (request_hash, answer_no) group by 1"
            ).fetchall()
        )


PATTERNS = (
    *(
        "%da%",
        "_da",
        "...",
        ".*.",
        "[A-Z][a-z]+",
        "A|B|C",
        "\\w+",
        "*.*",
        "Zeph%",
        "Zeph*",
        "^Zeph",
    ),
    *("' or 1=1 --", '" or "a"="a', "%s%s", "{0}", "--case", "\\x41da", "Zephyrine.Quillfeather"),
)


@pytest.mark.nightly
def test_names_are_no_patterns(edison: Edison, ran: Folder) -> None:
    before = content(ran.path / RESULTS)
    for pattern in PATTERNS:
        done = edison(ran, "admin", "forget", f"--person={pattern}", "--yes")
        assert (done.code, done.out) == (0, "there is nothing to remove\n"), pattern
    for case in ("%", "*", "a%", "ad_", "ADA", "../ada", "ada' or '1'='1", "", " ada", "ada\n"):
        done = edison(ran, "admin", "forget", f"--case={case}", "--yes")
        assert done.code == 2 and "no dataset and no result has a case" in done.err, case
    for experiment in ("%", "*", "hell_", "HELLO"):
        words = ("--case", "ada", f"--experiment={experiment}", "--yes")
        assert edison(ran, "admin", "forget", *words).code == 2, experiment
    for short in ("", "  ", "a", "%", "*", ".*", "\t\n\r\v"):
        assert edison(ran, "admin", "forget", f"--person={short}", "--yes").code == 2
    assert content(ran.path / RESULTS) == before


def test_what_a_case_has_in_common_with_others_does_not_take_theirs_away(
    edison: Edison, ran: Folder
) -> None:
    before = answers(ran)
    assert len(set(before.values())) == 1
    ran.write(".edison/loops/1/ours.md", f"> {PREFACE}{PERSON}\n")
    ran.write(".edison/loops/1/theirs.md", f"> {PREFACE}Bo Nightingale\n")
    assert edison(ran, "admin", "forget", "--case", "ada", "--yes").code == 0
    assert answers(ran) == {**before, "ada": 0}
    assert [path.name for path in (ran.path / ".edison/loops/1").iterdir()] == ["theirs.md"]
    assert PERSON not in ran.read("answers.jsonl")
    assert "Bo Nightingale" in ran.read("answers.jsonl")
    assert PERSON.encode() not in (ran.path / RESULTS).read_bytes()


def test_keys_settings_and_money_are_no_drafts(edison: Edison, ran: Folder) -> None:
    """To remove the file of leases would count all money of the month as unspent."""
    kept = (
        *("leases.db", "leases.db-wal", "auth.db", "auth.db-wal", "auth.db-journal", "notes.txt"),
        *("leases/0123456789abcdef0123456789abcdef.json", "secrets.yaml", "trust.yaml.bundled"),
        *("locks/x.lock", "schemas/x.json", "results.unsigned.db", "loops.yaml"),
    )
    for name in kept:
        ran.write(f".edison/{name}", f"# {PERSON}\n")
    drafts = ("loops/1/report.md", "suggestions/1.patch", "transfer/1.part", "cache/1.json")
    for name in drafts:
        ran.write(f".edison/{name}", f"# {PERSON}\n")
    done = edison(ran, "admin", "forget", "--person", PERSON, "--yes")
    assert done.code == 0, done.err
    for name in kept:
        assert ran.read(f".edison/{name}") == f"# {PERSON}\n", name
    assert not any((ran.path / ".edison" / name).exists() for name in drafts)
    assert ".edison/secrets.yaml:1" in done.err, "its owner is told where it stands"
    assert "results.unsigned.db; delete it by hand" in " ".join(done.err.split())


def test_a_project_beside_or_below_is_left_alone(
    edison: Edison, ran: Folder, tmp_path: Path
) -> None:
    below = ran.path / "teams" / "other"
    texts = {
        "edison.yaml": "version: 1\nproject: other\n",
        "answers.jsonl": ran.read("answers.jsonl"),
        ".edison/loops/report.md": PERSON,
        "datasets/names.jsonl": PERSON,
    }
    for name, text in texts.items():
        (below / name).parent.mkdir(parents=True, exist_ok=True)
        (below / name).write_text(text)
    beside = tmp_path / "beside"
    beside.mkdir()
    for name in ("linked.db", "results-20261116T090000Z.db"):
        (beside / name).write_bytes((ran.path / RESULTS).read_bytes())
    (beside / "answers.jsonl").write_text(texts["answers.jsonl"])
    (beside / "report.md").write_text(PERSON)
    before = {path.name: path.read_bytes() for path in beside.iterdir()}
    (ran.path / ".edison/backups/theirs.db").symlink_to(beside / "linked.db")
    (ran.path / "theirs.jsonl").symlink_to(beside / "answers.jsonl")
    (ran.path / "folder").symlink_to(beside)
    (ran.path / ".edison/loops").mkdir()
    (ran.path / ".edison/loops/theirs.md").symlink_to(beside / "report.md")
    done = edison(ran, "admin", "forget", "--person", PERSON, "--yes")
    assert done.code == 0, done.err
    told = " ".join(done.err.split())
    assert "another project, which was not searched: teams/other" in told
    for name in ("theirs.db", "theirs.jsonl"):
        assert (
            f"a link, unreadable, or of a feature that does not forget: {name}; delete it" in told
        )
    assert {path.name: path.read_bytes() for path in beside.iterdir()} == before
    assert {name: (below / name).read_text() for name in texts} == texts
    assert PERSON not in ran.read("answers.jsonl")
    (beside / ".results.db.0.forgetting").write_text("of another command")
    before[".results.db.0.forgetting"] = b"of another command"
    (ran.path / ".edison/backups").rename(tmp_path / "moved")
    (ran.path / ".edison/backups").symlink_to(beside)
    assert edison(ran, "admin", "forget", "--case", "bo", "--yes").code == 0
    assert {path.name: path.read_bytes() for path in beside.iterdir()} == before


def test_nothing_is_forgotten_while_a_run_works(edison: Edison, ran: Folder) -> None:
    (backup,) = (ran.path / ".edison/backups").glob("*.db")
    files = (ran.path / RESULTS, backup)
    before = [content(path) for path in files], ran.read("answers.jsonl")
    lock = ProcessLock(ran.path / ".edison/locks")
    try:
        done = edison(ran, "admin", "forget", "--person", PERSON, "--yes")
        assert (done.code, "an experiment is running here" in done.err) == (
            BusyError.exit_code,
            True,
        )
        assert edison(ran, "admin", "forget", "--person", PERSON, "--dry-run").code == 0
    finally:
        lock.close()
    assert ([content(path) for path in files], ran.read("answers.jsonl")) == before
    assert edison(ran, "admin", "forget", "--person", PERSON, "--yes").code == 0
    assert not any(PERSON in line for path in files for line in content(path))


@pytest.mark.nightly
def test_bundles_of_before_are_named_and_those_of_after_are_without_it(
    edison: Edison, ran: Folder, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.zip", tmp_path / "new.zip"
    assert edison(ran, "admin", "bundle", "create", str(old)).code == 0
    done = edison(ran, "admin", "forget", "--person", PERSON, "--yes")
    assert "exported before; look there too:" in done.err and "old.zip" in done.err
    ran.write("datasets/names.jsonl", '{"id": "bo", "input": {"name": "Bo"}, "expected": "B"}\n')
    assert edison(ran, "admin", "bundle", "create", str(new)).code == 0
    for path, texts in ((old, True), (new, False)):
        there = tmp_path / path.stem
        assert edison(ran, "admin", "bundle", "restore", str(path), str(there)).code == 0
        held = [file for file in there.rglob("*") if file.is_file()]
        assert any(PERSON.encode() in file.read_bytes() for file in held) is texts


def test_no_text_stops_the_search_in_the_history(ran: Folder) -> None:
    """Answers of models may have any character; those of a blank line are in every commit."""
    ran.git("init", "--quiet")
    ran.git("add", "edison.yaml")
    ran.git("commit", "--quiet", "--message", "first")
    site = open_site(ran.path)
    for text, count in (
        ("proj\0ct: mini", 0),
        ("project: \x01ini", 0),
        ("\n" * 40, 0),
        ("  \n" * 20, 0),
        ("\n\nversion: 1", 1),
        ("(" * 40, 0),
        ("--output=x", 0),
        ("[" + "a" * 39, 0),
        ("\\", 0),
        ("version: 1", 1),
    ):
        found = [*forget._commits(site, Selection((text,)))]
        assert len(found) == count or "\0" in text or "\x01" in text, text
    assert not os.path.lexists(ran.path / "x")


def test_a_text_of_several_lines_is_found_where_it_begins(edison: Edison, ran: Folder) -> None:
    """An answer may begin with a blank line, or break one within its first 40 characters."""
    person = "Zephyrine\nQuillfeather\n\nof Elsewhere"
    texts: dict[str, tuple[str, tuple[int, ...] | None]] = {
        ".edison/loops/1/report.md": (f"said:\n{person}\n", None),
        ".edison/loops/2/report.md": ("Zephyrine\nQuillfeather\nof Elsewhere\n", ()),
        "notes.md": (f"one\ntwo\n{person.upper()} and others\n{person}\n", (3, 7)),
        "windows.md": ("one\r\n" + person.replace("\n", "\r\n"), (2,)),
    }
    for name, (text, _) in texts.items():
        ran.write(name, text)
    done = edison(ran, "admin", "forget", "--person", person, "--yes", "--json")
    assert done.code == 0, done.err
    places = json.loads(done.out)["places"]
    for name, (_, lines) in texts.items():
        assert (ran.path / name).exists() is (lines is not None), name
        found = [place["line"] for place in places if place["file"] == name]
        assert found == [*(lines or ())], name
