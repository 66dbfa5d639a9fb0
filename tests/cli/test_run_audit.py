"""Who ran, resumed or graded again is in the audit, in the transaction that begins the run."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.results.history_words import audit_sentence
from edison_ci.store.audit import read_audit, verify_audit
from edison_ci.store.database import open_reader
from tests.opened import opened

if TYPE_CHECKING:
    from edison_ci.store.audit import AuditEntry
    from tests.conftest import Edison, Folder


def entries(folder: Folder) -> list[AuditEntry]:
    with closing(open_reader(folder.path / ".edison/results.db")) as connection:
        assert verify_audit(connection).broken is None
        return [row.entry for row in reversed(read_audit(connection))]


def runs(folder: Folder) -> list[str]:
    with opened(folder.path / ".edison/results.db") as connection:
        return [run for (run,) in connection.execute("select id from run order by rowid")]


def test_a_run_is_in_the_audit_with_its_actor(edison: Edison, mini: Folder) -> None:
    mini.git("init", "-q")
    mini.git("config", "user.email", "ada@example.com")
    assert edison(mini, "run", "-q").code == 0
    (entry,) = entries(mini)
    assert (entry.actor, entry.known_by, entry.action, entry.entity) == (
        "ada@example.com", "git", "run", "hello",
    )  # fmt: skip
    assert [entry.run_id] == runs(mini)
    assert audit_sentence(entry) == "ada@example.com ran hello."


def test_resuming_is_in_the_audit_too(edison: Edison, mini: Folder) -> None:
    edison(mini, "run", "-q")
    with opened(mini.path / ".edison/results.db") as connection:
        connection.execute("update run set status = 'PAUSED', complete = 0, stopped_by = 'pause'")
        connection.execute("delete from component where cell_id like '%'")
        connection.execute("delete from judgment")
        connection.execute("delete from judge_score")
        connection.execute("delete from cell")
    assert edison(mini, "resume", "-q").code == 0
    run, resumed = entries(mini)
    assert (run.action, resumed.action) == ("run", "resume")
    assert run.run_id == resumed.run_id
    assert audit_sentence(resumed).endswith(" resumed a run of hello.")


def test_grading_again_names_the_run_that_is_graded(edison: Edison, mini: Folder) -> None:
    edison(mini, "run", "-q")
    (first,) = runs(mini)
    assert edison(mini, "regrade", first, "-q").code == 0
    run, again = entries(mini)
    assert again.action == "regrade"
    assert [run.run_id, again.run_id] == runs(mini)
    assert audit_sentence(again).endswith(f" graded run {first} of hello again.")


def test_asking_for_another_answer_is_in_the_audit(edison: Edison, mini: Folder) -> None:
    edison(mini, "run", "-q")
    assert edison(mini, "rerun", "--cell", "ada@small#0").code == 0
    _, again = entries(mini)
    assert (again.action, [again.run_id]) == ("rerun", runs(mini))
    assert audit_sentence(again).endswith(f" requested another answer for {again.entity}.")


def test_a_run_that_is_refused_leaves_no_row_of_a_run(edison: Edison, mini: Folder) -> None:
    mini.edit("prompts/hello.md", "{{ name }}", "{{ nobody }}")
    assert edison(mini, "run", "-q").code != 0
    assert not (mini.path / ".edison/results.db").exists() or entries(mini) == []
