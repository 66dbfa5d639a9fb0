"""edison admin forget: texts go from every file that edison knows, numbers stay."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.feature import WITHOUT, features
from edison_ci.store.audit import AuditEntry, add_audit
from edison_ci.store.database import open_database
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

PERSON = "Zephyrine Quillfeather"
FREE = (
    "insert into suggestion (id, hash, experiment, prompt, path, base_hash, diff, note, targets, "
    "guardrails, evidence, status, simulated, cost_microusd, created_at) values ('s', 'h', "
    "'hello', 'hello', 'prompts/hello.md', 'b', '-', 'greets {0} badly', '[]', '[]', '{{}}', "
    "'proposed', 1, 0, '2026-11-16T09:00:00Z')",
    "insert into suggestion_comment (suggestion, actor, text, made_at) "
    "values ('s', 'ada', 'ask {0}', '2026-11-16T09:00:00Z')",
    "insert into notification (id, recipient, occasion, message, state, created_at, due_at) values "
    "('n', 'team', 'alert', '{{\"text\": \"{0}\"}}', 'waiting', '2026-11-16T09:00:00Z', "
    "'2026-11-16T09:00:00Z')",
    "insert into event (time, run_id, type, data) values ('2026-11-16T09:00:00Z', 'r', 'x', "
    '\'{{"said": "{0}"}}\')',
)


@pytest.fixture
def ran(repo: Folder, edison: Edison) -> Folder:
    """A project that knows a person: in a dataset, answers, a recording, a backup and notes."""
    repo.edit("models.yaml", "model: small}", "model: echo}")
    path = "datasets/names.jsonl"
    repo.edit(path, '"name": "Ada"}, "expected": "Ada"', f'"name": "{PERSON}"}}, "expected": "Z"')
    repo.git("commit", "--quiet", "--all", "--message", "a person")
    done = edison(repo, "run", "--quiet", "--record", "answers.jsonl")
    assert done.code in (0, 1, 5), done.err
    grade = ("grade", "latest", "--cell", "ada@small", "--grade", "up", "--note", "not kind")
    assert edison(repo, *grade).code == 0
    with closing(open_database(repo.path / ".edison/results.db")) as connection:
        for sql in FREE:
            connection.execute(sql.format(PERSON))
        said = {"note": f"{PERSON} called"}
        add_audit(connection, AuditEntry("2026-11-16T09:00:00Z", "ada", "git", "gc", after=said))
    (repo.path / ".edison/loops").mkdir()
    repo.write(".edison/loops/report.md", f"{PERSON} was greeted")
    assert edison(repo, "admin", "db", "backup").code == 0
    return repo


def holding(folder: Folder, text: str = PERSON) -> set[str]:
    """Return the files of a project, Git aside, that have a text anywhere in their bytes."""
    return {
        path.relative_to(folder.path).as_posix()
        for path in folder.path.rglob("*")
        if path.is_file() and ".git/" not in str(path) and text.encode() in path.read_bytes()
    }


def numbers(path: Path) -> list[tuple[object, ...]]:
    """Return the numbers of a results file."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            *connection.execute(
                "select id, status, composite, passed, request_hash from cell order by id"
            ),
            *connection.execute("select cell_id, name, score, passed from component order by 1, 2"),
            *connection.execute("select * from answer order by 1, 2"),
            *connection.execute("select * from rollup_run"),
            *connection.execute("select actor, score, passed from manual_grade"),
            *connection.execute("select run_id, sentence, estimate from decision"),
        ]


@pytest.mark.nightly
def test_a_person_is_forgotten_in_every_file_and_the_numbers_stay(
    edison: Edison, ran: Folder
) -> None:
    results = ran.path / ".edison/results.db"
    (backup,) = (ran.path / ".edison/backups").glob("*.db")
    theirs = {"answers.jsonl", ".edison/loops/report.md", backup.relative_to(ran.path).as_posix()}
    assert theirs | {"datasets/names.jsonl", ".edison/results.db"} <= holding(ran)
    before = numbers(results)
    shown = edison(ran, "admin", "forget", "--person", PERSON.upper(), "--dry-run")
    assert "would remove from the results: 2 answers, " in shown.out, shown.err
    assert "datasets/names.jsonl:1" in shown.err
    assert "a person" in shown.err  # the commit
    assert numbers(results) == before
    assert theirs <= holding(ran)
    assert edison(ran, "admin", "forget", "--person", PERSON).code == 2  # there is nobody to ask
    done = edison(ran, "admin", "forget", "--person", PERSON, "--yes")
    assert done.code == 0, done.err
    assert holding(ran) == {"datasets/names.jsonl"}
    assert numbers(results) == before
    assert numbers(backup) == before
    for command in (("audit", "--verify"), ("db", "check")):
        assert edison(ran, "admin", *command).code == 0
    assert edison(ran, "admin", "forget", "--person", PERSON, "--yes").out.startswith(
        "there is nothing to remove"
    )
    other = edison(ran, "explain", "bo@small")
    assert "Bo" in other.out, other.err
    assert edison(ran, "admin", "db", "restore", str(backup), "--yes").code == 0
    assert edison(ran, "admin", "audit", "--verify").code == 0
    assert edison(ran, "notifications", "list").code == 0


def test_the_tables_of_features_that_are_off_are_treated_too(
    edison: Edison, ran: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = [each.name for each in features() if each.name != "upkeep"]
    monkeypatch.setenv(WITHOUT, ",".join(off))
    done = edison(ran, "admin", "forget", "--person", PERSON, "--yes", "--json")
    removed = json.loads(done.out)["results"]
    assert removed["notification.message"] == removed["suggestion_comment.text"] == 1
    assert holding(ran) == {"datasets/names.jsonl"}


def test_the_audit_has_counts_and_a_hash(edison: Edison, ran: Folder) -> None:
    edison(ran, "admin", "forget", "--person", PERSON, "--yes")
    document = json.loads(edison(ran, "admin", "audit", "--verify", "--json").out)
    newest, forgotten = document["rows"][0], document["rows"][1]
    assert (newest["action"], newest["entity"]) == ("forget", "a person")
    assert newest["after"]["removed"]["answer_text"] == 2
    assert newest["after"]["audit_rows"] == [forgotten["seq"] - 1, forgotten["seq"]]  # the grade
    assert (forgotten["action"], forgotten["after"], forgotten["nonce"]) == ("gc", None, None)
    assert document["chain"]["forgotten"] == 2
    assert "(forgotten)" in edison(ran, "admin", "audit").out


def test_a_case_is_forgotten_with_quotes_of_it(edison: Edison, ran: Folder) -> None:
    quote = f"Say hello to {PERSON} in one friendly sentence"
    with closing(open_database(ran.path / ".edison/results.db")) as connection:
        connection.execute("update suggestion set note = ?", (f"cut: {quote}",))
    done = edison(ran, "admin", "forget", "--case", "ada", "--yes")
    assert done.code == 0, done.err
    assert "case ada" in edison(ran, "admin", "audit").out
    assert holding(ran, quote) == set()
    assert "answers.jsonl" not in holding(ran)
    unknown = edison(ran, "admin", "forget", "--case", "nobody")
    assert (unknown.code, "no dataset and no result has a case" in unknown.err) == (2, True)


@pytest.mark.nightly
def test_a_process_that_is_killed_is_finished_by_the_same_command(
    edison: Edison, ran: Folder
) -> None:
    (backup,) = (ran.path / ".edison/backups").glob("*.db")
    script = (
        "import os, sys; from edison_ci.features.upkeep import forgetting; "
        "from edison_ci.__main__ import main; "
        "forgetting.transaction = lambda connection: os.kill(os.getpid(), 9); "
        f"sys.argv = ['edison', 'admin', 'forget', '--person', '{PERSON}', '--yes']; main()"
    )
    killed = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=ran.path, capture_output=True, timeout=PATIENCE_S
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert ".edison/results.db" not in holding(ran)
    left = [name for name in holding(ran) if name.endswith(".forgetting")]
    assert len(left) == 1
    assert backup.relative_to(ran.path).as_posix() in holding(ran)
    assert edison(ran, "admin", "forget", "--person", PERSON, "--yes").code == 0
    assert holding(ran) == {"datasets/names.jsonl"}


def test_what_cannot_be_rewritten_is_told(edison: Edison, ran: Folder) -> None:
    backups = ran.path / ".edison/backups"
    (backup,) = backups.glob("*.db")
    shutil.copyfile(backup, backups / "before-restore-1.db")
    (backups / "before-restore-1.db").write_bytes(backup.read_bytes()[:3000])
    done = edison(ran, "admin", "forget", "--person", PERSON, "--yes")
    assert done.code == 0
    assert "before-restore-1.db; delete it by hand" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "name what to forget"),
        (("--case", "ada", "--person", PERSON), "name what to forget"),
        (("--person", PERSON, "--experiment", "hello"), "--experiment needs --case"),
        (("--person", " x "), "is too short to find a person by"),
    ],
)
def test_mistakes_are_told(edison: Edison, mini: Folder, args: tuple[str, ...], said: str) -> None:
    done = edison(mini, "admin", "forget", *args)
    assert (done.code, said in done.err) == (2, True)


def test_only_an_owner_forgets(edison: Edison, ran: Folder) -> None:
    members = "members: [{email: boss@example.org, role: owner}, {email: ada@example.org, role: admin}]\n"  # fmt: skip # noqa: E501
    ran.write("edison.yaml", f"version: 1\nproject: mini\n{members}")
    done = edison(ran, "admin", "forget", "--person", PERSON, "--yes")
    assert (done.code, "forget needs an owner" in done.err) == (2, True)
    assert ".edison/results.db" in holding(ran)
