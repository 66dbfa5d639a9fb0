"""What a run, a refinement and a pull request tell people, and the commands that show it."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft7Validator

from edison_ci.resources import resource_folder
from tests.cli.test_trusting import commit, proposal
from tests.features.monitor.receiver import Receiver, receiving
from tests.features.refine.test_loop_command import NAME, shop
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

__all__ = ["proposal", "shop"]

ALL = "alert, budget, run_failed, run_completed, suggestion, review_needed, schedule_missed"
RECIPIENT = f"notifications:\n  - {{name: ops, on: [{ALL}], webhook_env: OPS_URL}}\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as found:
        monkeypatch.setenv("OPS_URL", found.url)
        yield found


@pytest.fixture
def told(mini: Folder, server: Receiver) -> Folder:
    """A project whose recipient wants to know everything."""
    mini.write("edison.yaml", mini.read("edison.yaml") + RECIPIENT)
    return mini


@cache
def validator() -> Draft7Validator:
    path = resource_folder("schemas") / "notification.schema.json"
    return Draft7Validator(json.loads(path.read_text(encoding="utf-8")))


def messages(server: Receiver) -> list[dict[str, Any]]:
    """Return what arrived, each of it by the published schema."""
    for message in server.messages:
        assert [error.message for error in validator().iter_errors(message)] == []
    return server.messages


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_tells_how_it_ended(edison: Edison, told: Folder, server: Receiver) -> None:
    done = edison(told, "run")
    assert done.code == 0, done.all
    [message] = messages(server)
    assert message["occasion"] == "run_completed"
    assert message["title"] == "hello: done (simulated)"
    assert message["sentences"][0].startswith("hello scores ")
    assert message["texts"] == []
    with opened(told.path / ".edison/results.db") as connection:
        (run_id,) = connection.execute("select id from run").fetchone()
    assert message["run_id"] == run_id


def test_a_failed_gate_is_told_once(edison: Edison, told: Folder, server: Receiver) -> None:
    told.edit("experiments/hello.yaml", '"{{ expected }}"', "never said")
    gate = "{metric: composite, no_worse_than: base, margin: 10pp}"
    told.edit("experiments/hello.yaml", gate, "{metric: pass_rate, at_least: 90%}")
    assert edison(told, "run").code == 1
    [message] = messages(server)
    assert (message["occasion"], message["level"]) == ("run_failed", "warn")
    assert message["title"] == "hello: a gate failed (simulated)"
    assert "Failed gates: pass_rate." in message["sentences"][0]


def test_a_server_that_is_down_changes_nothing_about_a_run(
    edison: Edison, told: Folder, server: Receiver
) -> None:
    server.status = 500
    done = edison(told, "run")
    assert done.code == 0
    assert "ops: not delivered yet: the server answered 500: ok" in done.err
    document = json.loads(edison(told, "notifications", "list", "--json").out)
    [row] = document["recipients"]
    assert (row["waiting"], row["sent"], row["failed"]) == (1, 0, 0)
    assert row["last_error"] == "the server answered 500: ok"
    assert row["by"] == "webhook at 127.0.0.1 (OPS_URL)"
    listed = edison(told, "notifications", "list")
    said = listed.out.splitlines()
    assert said[0] == "ops: webhook at 127.0.0.1 (OPS_URL)"
    assert said[-3:-1] == ["  1 waiting, 0 sent, 0 failed", "  the server answered 500: ok"]
    assert "very-secret-path" not in listed.all + done.all


def test_a_run_without_the_variable_says_nothing_about_it(
    edison: Edison, told: Folder, server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPS_URL")
    assert "OPS_URL" not in edison(told, "run").all
    sent = edison(told, "notifications", "send")
    assert sent.code == 3
    assert "ops: OPS_URL is not set" in sent.err
    assert "ops: webhook, OPS_URL is not set" in edison(told, "notifications", "list").out
    assert server.requests == []


def test_a_run_without_network_tells_later(edison: Edison, told: Folder, server: Receiver) -> None:
    assert edison(told, "run", "--offline").code == 0
    assert server.requests == []
    assert edison(told, "notifications", "send", "--offline").code == 2
    sent = edison(told, "notifications", "send")
    assert (sent.code, sent.out) == (0, "1 notification sent\n")
    assert len(messages(server)) == 1
    assert edison(told, "notifications", "send").out == "0 notifications sent\n"


def test_a_budget_that_stops_a_run_is_told(edison: Edison, told: Folder, server: Receiver) -> None:
    told.edit("models.yaml", "provider: sim", "price: {in: 1000, out: 1000}, provider: sim")
    done = edison(told, "run", "--budget", "0.01", "--yes")
    assert done.code == 4, done.all
    said = {message["occasion"] for message in messages(server)}
    assert said == {"budget"}
    assert any("stopped by a budget" in title for title in server.titles)


@pytest.mark.parametrize("texts", [False, True])
def test_a_suggestion_is_told_with_texts_where_they_are_asked_for(
    edison: Edison, shop: Folder, server: Receiver, texts: bool
) -> None:
    more = RECIPIENT.replace("OPS_URL", f"OPS_URL, texts: {str(texts).lower()}")
    shop.write("edison.yaml", shop.read("edison.yaml") + more)
    done = edison(shop, "refine", NAME, "--json", "--yes")
    assert done.code == 0, done.all
    [one] = json.loads(done.out)["suggestions"]
    assert one["status"] == "proposed"
    [message] = messages(server)
    assert message["occasion"] == "suggestion", "trials are not told"
    assert message["sentences"][-1] == f"Look at it and decide: edison review show {one['id']}"
    assert message["texts"] == ([one["note"], one["diff"]] if texts else [])


@pytest.mark.nightly
def test_a_loop_that_waits_for_a_person_says_so(
    edison: Edison, shop: Folder, server: Receiver
) -> None:
    shop.write("edison.yaml", shop.read("edison.yaml") + RECIPIENT)
    done = edison(shop, "loop", NAME, "--iterations", "2", "--json")
    assert json.loads(done.out)["status"] == "waiting", done.all
    assert [message["occasion"] for message in messages(server)] == ["review_needed"]


# --- commands -------------------------------------------------------------------------------------


def test_a_test_says_what_the_server_answered(
    edison: Edison, told: Folder, server: Receiver
) -> None:
    done = edison(told, "notifications", "test")
    assert (done.code, done.out) == (0, "ops, webhook at 127.0.0.1 (OPS_URL): accepted (200 ok)\n")
    [message] = messages(server)
    assert (message["occasion"], message["title"]) == ("test", "Test from mini")
    server.status, server.body = 404, b"no_service"
    done = edison(told, "notifications", "test", "ops", "--json")
    assert done.code == 3
    [found] = json.loads(done.out)["tests"]
    assert found["error"] == "the server answered 404: no_service"
    assert found["hint"] == "there is no such webhook (any more): check the URL in OPS_URL"


@pytest.mark.usefixtures("server")
def test_a_test_needs_a_recipient_and_a_role(edison: Edison, told: Folder, mini: Folder) -> None:
    done = edison(told, "notifications", "test", "opps")
    assert done.code == 2
    assert "there is no recipient 'opps'" in done.err
    members = "members: [{github: ada, role: owner}]\n"
    told.write("edison.yaml", told.read("edison.yaml") + members)
    for command in ("test", "send"):
        done = edison(told, "notifications", command)
        assert done.code == 2
        assert f"notifications {command} needs an editor" in done.err


def test_a_project_without_recipients_is_told_how_to_add_one(edison: Edison, mini: Folder) -> None:
    assert "docs/watching.md shows how to add one" in edison(mini, "notifications", "list").err
    assert edison(mini, "notifications", "test").code == 2


# --- pull requests --------------------------------------------------------------------------------


def test_a_pull_request_that_adds_a_recipient_sends_nothing(
    edison: Edison, proposal: Folder, server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal.write("models.yaml", "small: {provider: sim, model: small}\n")
    proposal.write("edison.yaml", proposal.read("edison.yaml") + RECIPIENT)
    commit(proposal, "tell me everything")
    done = edison(proposal, "run", "--yes")
    assert done.code == 0, done.all
    for names in ([], ["ops"]):
        refused = edison(proposal, "notifications", "test", *names)
        assert refused.code == 2
        assert "ops: not notified in this job, which is for a proposal: the base" in refused.err
    assert server.requests == []
    monkeypatch.delenv("GITHUB_EVENT_NAME")  # after the merge
    assert edison(proposal, "run", "--yes").code == 0
    assert len(messages(server)) == 1


def test_a_pull_request_cannot_change_what_a_recipient_of_the_base_gets(
    edison: Edison, proposal: Folder, server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal.git("checkout", "--quiet", "main")
    proposal.write("models.yaml", "small: {provider: sim, model: small}\n")
    proposal.write("edison.yaml", proposal.read("edison.yaml") + RECIPIENT)
    commit(proposal, "recipient")
    base = proposal.git("rev-parse", "HEAD")
    proposal.git("checkout", "--quiet", "-B", "change")
    proposal.write("note.md", "harmless\n")
    commit(proposal, "harmless")
    event = proposal.path.parent / "event.json"
    for path in (event, *proposal.path.parent.glob("*/event.json")):
        if path.exists():
            payload = json.loads(path.read_text())
            payload["pull_request"]["base"]["sha"] = base
            path.write_text(json.dumps(payload))
    assert edison(proposal, "run", "--yes").code == 0
    assert len(messages(server)) == 1, "the base has it"
    proposal.edit("edison.yaml", "webhook_env: OPS_URL", "webhook_env: OPS_URL, texts: true")
    commit(proposal, "with texts")
    assert edison(proposal, "run", "--yes", "--no-cache").code == 0
    assert [message["texts"] for message in messages(server)] == [[], []], "as the base says"
