"""Who ran, resumed or graded again is in the audit, in the transaction that begins the run."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.api.sessions import run_context
from edison_ci.config.load import load_project
from edison_ci.errors import TrustError
from edison_ci.results.history_words import audit_sentence
from edison_ci.store.audit import read_audit, verify_audit
from edison_ci.store.database import open_reader
from tests.loopback.fixture import loopback
from tests.opened import opened

if TYPE_CHECKING:
    from edison_ci.store.audit import AuditEntry
    from tests.conftest import Edison, Folder
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["loopback"]


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


# --- keys, budgets, screens, exports --------------------------------------------------------------

KEY = "canary-0123456789abcdef"


@pytest.fixture
def shop(mini: Folder, loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A project whose model has a key."""
    model = f"provider: openai_compatible, base_url: '{loopback.openai_url}', model: m-1"
    mini.write(
        "models.yaml",
        f"small: {{{model}, key_env: SHOP_LLM, price: {{in: 1, out: 1}}}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    trust = f"version: 1\nkeys:\n  - {{env: SHOP_LLM, hosts: ['{loopback.url}']}}\n"
    mini.write(".edison/trust.yaml", trust)
    monkeypatch.setenv("SHOP_LLM", KEY)
    return mini


def test_the_use_of_a_key_is_in_the_audit_once_a_run_by_name(
    edison: Edison, shop: Folder, loopback: LoopbackServer
) -> None:
    done = edison(shop, "run", "-q")
    assert done.code in (0, 1, 5), done.err
    run, used = entries(shop)
    assert (run.action, used.action, used.entity) == ("run", "use key", "SHOP_LLM")
    host = loopback.url.removeprefix("http://")
    assert used.after == {"host": host, "model": "small"}
    assert used.run_id == run.run_id
    assert audit_sentence(used).endswith(f" used the key SHOP_LLM for {host}.")
    assert KEY.encode() not in (shop.path / ".edison/results.db").read_bytes()


def test_a_replayed_run_uses_no_key(edison: Edison, shop: Folder) -> None:
    edison(shop, "run", "-q", "--record", "answers.jsonl")
    (shop.path / ".edison/results.db").unlink()
    assert edison(shop, "run", "-q", "--replay", "answers.jsonl").code in (0, 1, 5)
    assert [entry.action for entry in entries(shop)] == ["run"]


def test_files_that_would_send_a_key_elsewhere_are_in_the_audit_once(
    edison: Edison, shop: Folder
) -> None:
    assert edison(shop, "run", "-q").code in (0, 1, 5)
    before = len(entries(shop))
    shop.write(".edison/trust.yaml", "version: 1\n")
    for command in (("validate",), ("validate",), ("run", "-q"), ("plan",)):
        assert edison(shop, *command).code == 2
    (row,) = entries(shop)[before:]
    assert (row.action, row.entity) == ("refused: send a key", "models.yaml")
    assert row.after.startswith("model 'small' would send SHOP_LLM to http://127.0.0.1:")
    assert "was refused send a key on models.yaml: model 'small'" in audit_sentence(row)


def test_a_key_that_is_not_sent_is_in_the_audit(
    edison: Edison, shop: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert edison(shop, "run", "-q").code in (0, 1, 5)
    shop.write(
        "models.yaml",
        "small: {provider: openai_compatible, base_url_env: SHOP_URL, model: m-1, "
        "key_env: SHOP_LLM, price: {in: 1, out: 1}}\njudge: {provider: sim, model: judge}\n",
    )
    monkeypatch.setenv("SHOP_URL", "https://elsewhere.example/v1")
    done = edison(shop, "run", "-q")
    assert (done.code, "may not go to the host" in done.err) == (2, True)
    refused = entries(shop)[-1]
    assert (refused.action, refused.entity) == ("refused: run", "hello")
    assert refused.after == "SHOP_LLM may not go to the host in SHOP_URL"
    said = " was refused run on hello: SHOP_LLM may not go to the host in SHOP_URL."
    assert audit_sentence(refused).endswith(said)
    project = load_project(shop.path)
    with pytest.raises(TrustError):  # a caller without a plan
        run_context(project).provider_for(project.models["small"])
    last = entries(shop)[-1]
    assert (last.action, last.entity) == ("refused: send a key", "small")
    assert "SHOP_LLM to https://elsewhere.example:443, which is not trusted" in last.after


def test_a_budget_that_stops_a_run_is_in_the_audit(edison: Edison, shop: Folder) -> None:
    done = edison(shop, "run", "-q", "--budget", "0.000001")
    assert done.code == 4, done.err
    refused = entries(shop)[-1]
    assert (refused.action, refused.entity) == ("refused: further calls", "hello")
    assert refused.after == "--budget is used up"
    assert refused.run_id == runs(shop)[-1]


def test_answers_that_a_screen_keeps_back_are_counted_in_the_audit(
    edison: Edison, mini: Folder
) -> None:
    mini.edit("models.yaml", "model: small}", "model: echo}")
    mini.edit("datasets/names.jsonl", '"name": "Ada"', '"name": "Ada, card 4111 1111 1111 1111"')
    mini.write(
        "experiments/hello.yaml",
        mini.read("experiments/hello.yaml") + "safety: {pii: block}\n",
    )
    done = edison(mini, "run", "-q")
    assert done.code in (0, 1, 3, 5), done.err
    blocked = entries(mini)[-1]
    assert (blocked.action, blocked.after) == ("block answers", {"cells": 1})
    assert audit_sentence(blocked).endswith(" had 1 answer of hello kept back by a screen.")


def test_exports_are_in_the_audit(edison: Edison, mini: Folder) -> None:
    edison(mini, "run", "-q")
    (run,) = runs(mini)
    edison(mini, "report", "--format", "csv", "--out", "cells.csv")
    edison(mini, "report", "--out", "run.zip")
    edison(mini, "report", "--format", "junit")  # has scores, and goes nowhere
    edison(mini, "admin", "cache", "export", "all.jsonl")
    edison(mini, "run", "-q", "--record", "again.jsonl")
    found = [entry.entity for entry in entries(mini) if entry.action == "export"]
    assert found == [
        f"run {run} as csv to cells.csv",
        f"run {run} as bundle to run.zip",
        "the newest answers as a recording to all.jsonl",
        f"run {runs(mini)[1]} as a recording to again.jsonl",
    ]
