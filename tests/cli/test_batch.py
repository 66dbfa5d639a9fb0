"""`edison run --batch`: submitted durably, paused, collected by `edison resume`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.providers.batches import AnthropicBatches, OpenAIBatches
from tests import forked
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened
from tests.timing import poll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 6
EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks: [chars: {min: 1}]
gates:
  - {metric: pass_rate, at_least: 10%}
"""
VENDORS = {
    "openai_compatible": ("openai_compatible", "m"),
    "openai": ("openai", "gpt-4o-mini"),
    "responses": ("openai", "gpt-5.2-pro"),
    "anthropic": ("anthropic", "claude-sonnet-4-5"),
}


@pytest.fixture
def server(tmp_path: Any) -> Iterator[LoopbackServer]:
    with LoopbackServer(ledger=tmp_path / "ledger.jsonl") as server:
        yield server


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(
    mini: Folder, server: LoopbackServer, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> Folder:
    """A project whose model has a price for batches: half of the other."""
    monkeypatch.setenv("OWN_KEY", "k-123456789012")
    provider, model = VENDORS[vendor]
    url = server.url if vendor == "anthropic" else server.openai_url
    rows = (f'{{"id": "c{i}", "input": {{"name": "P{i}."}}}}\n' for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(rows))
    mini.write("experiments/hello.yaml", EXPERIMENT)
    mini.write(
        "models.yaml",
        f"small: {{provider: {provider}, base_url: '{url}', model: {model}, key_env: OWN_KEY, "
        "params: {max_tokens: 40}, price: {in: 1, out: 2, batch: {in: 0.5, out: 1}}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    keys = f"version: 1\nkeys:\n  - {{env: OWN_KEY, hosts: ['{server.url}']}}\n"
    mini.write(".edison/trust.yaml", keys)
    return mini


def rows(project: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(project.path / ".edison" / "results.db") as connection:
        return connection.execute(sql).fetchall()


def submitted(edison: Edison, project: Folder) -> str:
    ended = edison(project, "run", "--batch")
    assert ended.code == 0, ended.err
    return ended.out


def resumed(edison: Edison, project: Folder, *more: str) -> dict[str, Any]:
    ended = edison(project, "resume", *more, "--json")
    found: dict[str, Any] = json.loads(ended.out)
    return {**found["runs"][0], "exit_code": ended.code, "said": ended.err}


def test_a_run_in_a_batch_is_paused_and_undecided(
    edison: Edison, project: Folder, server: LoopbackServer, vendor: str
) -> None:
    said = submitted(edison, project)
    assert f"{CASES} requests to small in batch" in said
    assert "less than single calls" in said
    assert re.search(r"reserved for batches +\$0\.\d+\n", said), "and not called judging"
    assert re.search(r"0 calls made, 0 reused; ~?\$0, \$0\.\d+ reserved for batches", said)
    (row,) = rows(project, "select status, stopped_by, verdict, complete from run")
    assert row == ("PAUSED", "batch", "inconclusive", 0)
    assert server.chats == 0
    assert server.ledger_total() == 0
    (batch,) = server.batches.made.values()
    assert len(batch.requests) == CASES
    assert batch.protocol == {"responses": vendor, "anthropic": vendor}.get(vendor, "openai")
    states = rows(project, "select state, count(*), min(owner like 'batch:%') from attempt")
    assert states == [("reserved", CASES, 1)]
    status = edison(project, "status", "latest")
    assert f"{CASES} requests to small in batch {batch.id}" in status.out
    assert "edison resume" in status.err


def test_a_batch_that_has_not_ended_is_reported_and_kept(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    submitted(edison, project)
    refused = edison(project, "resume", "--on", "local:1")
    said = "--on and a run with --batch exclude each other"
    assert (refused.code, said in refused.err) == (2, True), refused.all
    again = resumed(edison, project)
    assert (again["status"], again["verdict"], again["exit_code"]) == ("PAUSED", "inconclusive", 0)
    assert "in_progress" in again["said"]
    assert again["batches"][0]["status"].startswith("in_progress")
    assert len(server.batches.made) == 1
    assert rows(project, "select distinct state from attempt") == [("reserved",)]


def test_answers_are_collected_graded_and_cost_the_price_of_a_batch(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    submitted(edison, project)
    server.batches.ends = True
    found = resumed(edison, project)
    assert (found["status"], found["verdict"], found["exit_code"]) == ("COMPLETED", "pass", 0)
    assert found["batches"] == []
    assert found["cells"]["ok"] == CASES
    assert server.chats == 0
    generated = rows(
        project, "select sum(cost_microusd), count(*) from attempt where phase = 'generate'"
    )
    assert generated == [(server.ledger_total(), CASES)]
    assert rows(project, "select distinct cost_kind from answer") == [("billed",)]
    assert edison(project, "admin", "db", "check").code == 0
    secret = (project.path / ".edison" / "results.db").read_bytes()
    assert b"k-123456789012" not in secret


def test_resume_waits_for_a_batch(
    edison: Edison, project: Folder, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(edison, project)
    monkeypatch.setattr("edison_ci.execute.batches.POLL_S", 0.01)
    server.batches.ends_after = 3
    assert resumed(edison, project, "--wait")["status"] == "COMPLETED"
    assert server.batches.ends_after == 0


def test_a_refused_request_is_an_error_and_not_charged(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    submitted(edison, project)
    server.batches.ends, server.batches.fates = True, {"P3.": "error", "P4.": "garbage"}
    found = resumed(edison, project)
    assert found["cells"]["error"] == 2
    assert found["cells"]["ok"] == CASES - 2
    states = dict(rows(project, "select state, count(*) from attempt group by 1"))
    assert (states["released"], states["unknown"]) == (1, 1)
    assert len(server.batches.made) == 1


@pytest.mark.parametrize("fate", ["expired", "cancelled"])
def test_what_was_not_answered_goes_into_a_new_batch(
    edison: Edison, project: Folder, server: LoopbackServer, fate: str
) -> None:
    submitted(edison, project)
    server.batches.ends, server.batches.fates = True, {"P3.": fate, "P4.": fate}
    server.batches.status = fate
    assert resumed(edison, project)["stopped_by"] == "batch"
    first, second = server.batches.made.values()
    assert (len(first.requests), len(second.requests)) == (CASES, 2)
    server.batches.fates, server.batches.status = {}, "completed"
    found = resumed(edison, project)
    assert (found["status"], found["cells"]["ok"]) == ("COMPLETED", CASES)
    paid = rows(project, "select sum(cost_microusd) from attempt where phase = 'generate'")
    assert paid == [(server.ledger_total(),)]


def test_what_was_not_answered_is_asked_at_once_without_a_batch(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    submitted(edison, project)
    server.batches.ends, server.batches.fates = True, {"P3.": "expired"}
    found = resumed(edison, project, "--no-batch")
    assert (found["status"], found["cells"]["ok"]) == ("COMPLETED", CASES)
    assert (server.chats, len(server.batches.made)) == (1, 1)
    paid = rows(project, "select sum(cost_microusd) from attempt where phase = 'generate'")
    assert paid == [(server.ledger_total(),)]


def test_results_of_a_stranger_are_ignored_and_named(
    edison: Edison, project: Folder, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.providers.batches.MAX_REPLY_BYTES", 5_000)
    submitted(edison, project)
    (batch,) = server.batches.made.values()
    strange = {"custom_id": "somebody-1", "result": {"type": "expired"}, "error": {"code": "x"}}
    own = {**strange, "custom_id": batch.requests[0][0]}
    server.batches.extra = [
        json.dumps(strange).encode(),
        b"not json",
        b'{"a": "' + b"x" * 20_000 + b'"}',
        b"[" * 3_000,
        json.dumps({**own, "error": {"code": "batch_expired"}}).encode(),
    ]
    server.batches.ends = True
    found = resumed(edison, project, "--no-batch")
    assert "'somebody-1'" in found["said"]
    assert batch.requests[0][0] in found["said"]
    assert "3 lines ignored" in found["said"]
    assert found["cells"]["ok"] == CASES


def test_a_call_without_a_result_counts_as_perhaps_charged(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    submitted(edison, project)
    server.batches.ends, server.batches.fates = True, {"P3.": "missing"}
    found = resumed(edison, project)
    assert found["cells"]["error"] == 1
    assert found["calls"]["unknown"] == 1


@pytest.mark.nightly
def test_a_batch_is_found_again_after_a_kill(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    server.batches.silent = True
    command = [sys.executable, "-P", "-m", "edison_ci", "run", "--batch"]
    process = forked.Popen(command, cwd=project.path)
    try:
        poll("the batch is at the provider", lambda: server.batches.made)
    finally:
        process.kill()
        process.wait()
    server.batches.silent = False
    (row,) = rows(project, "select state, remote_id from batch")
    assert row == ("sending", None)
    server.batches.ends = True
    found = resumed(edison, project)
    assert (found["status"], found["cells"]["ok"]) == ("COMPLETED", CASES)
    assert len(server.batches.made) == 1
    paid = rows(project, "select sum(cost_microusd) from attempt where phase = 'generate'")
    assert paid == [(server.ledger_total(),)]


def die_before_submitting(edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a run that ends when its batch is about to be sent."""

    async def die(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        for service in (OpenAIBatches, AnthropicBatches):
            patched.setattr(service, "create", die)
        edison(project, "run", "--batch")


def test_a_batch_that_never_arrived_is_lost_and_asked_again(
    edison: Edison, project: Folder, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_before_submitting(edison, project, monkeypatch)
    assert resumed(edison, project)["stopped_by"] == "batch"
    assert len(server.batches.made) == 1
    assert dict(rows(project, "select state, count(*) from attempt group by 1")) == {
        "unknown": CASES,
        "reserved": CASES,
    }


def test_another_run_does_not_buy_what_waits_in_a_batch(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    submitted(edison, project)
    ended = edison(project, "run", "--json")
    assert json.loads(ended.out)["runs"][0]["stopped_by"] == "batch"
    assert server.chats == 0
    server.batches.ends = True
    ended = edison(project, "run", "--json")
    assert json.loads(ended.out)["runs"][0]["status"] == "COMPLETED"
    assert server.chats == 0


def test_a_batch_that_is_gone_is_given_up_only_when_asked_to(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    submitted(edison, project)
    server.batches.gone = True
    assert resumed(edison, project)["stopped_by"] == "batch"
    found = resumed(edison, project, "--no-batch")
    assert (found["status"], found["calls"]["unknown"]) == ("COMPLETED", CASES)


def test_a_budget_limits_a_batch(edison: Edison, project: Folder, server: LoopbackServer) -> None:
    ended = edison(project, "run", "--batch", "--budget", "0.0002")
    assert ended.code == 4
    (batch,) = server.batches.made.values()
    assert 0 < len(batch.requests) < CASES


def test_the_plan_shows_what_a_batch_saves(edison: Edison, project: Folder) -> None:
    usual = json.loads(edison(project, "plan", "--json").out)["experiments"][0]
    batch = json.loads(edison(project, "plan", "--batch", "--json").out)["experiments"][0]
    costs = [one["by_phase"]["generate"]["cost_microusd"]["high"] for one in (usual, batch)]
    assert costs[1] == pytest.approx(costs[0] / 2, abs=1)
    assert batch["batch_saves_microusd"]["high"] == pytest.approx(costs[0] / 2, abs=1)
    assert usual["batch_saves_microusd"] is None
    assert "Batches save $" in edison(project, "plan", "--batch").out


JUDGED = "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge]}\ngates:"


def test_judges_are_tried_before_a_batch_is_paid_for(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    project.write("experiments/hello.yaml", EXPERIMENT.replace("gates:", JUDGED))
    submitted(edison, project)
    (batch,) = server.batches.made.values()
    assert (server.chats, len(batch.requests)) == (2, CASES - 2)
    assert rows(project, "select count(*) from judgment") == [(2,)]
    server.batches.ends = True
    assert resumed(edison, project)["cells"]["ok"] == CASES


def test_a_judge_that_cannot_answer_stops_before_a_batch(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    judge = f"{{provider: openai_compatible, base_url: '{server.openai_url}', model: j, "
    judge += "key_env: OWN_KEY, price: {in: 1, out: 1}}"
    models = (project.path / "models.yaml").read_text("utf-8")
    project.write("models.yaml", models.replace("{provider: sim, model: judge}", judge))
    server.script.append(rule(model="j", status=404))
    project.write("experiments/hello.yaml", EXPERIMENT.replace("gates:", JUDGED))
    ended = edison(project, "run", "--batch")
    assert ended.code == 3, ended.all
    assert server.batches.made == {}


def test_a_model_without_a_price_for_batches_is_called_as_usual(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    models = (project.path / "models.yaml").read_text("utf-8")
    project.write("models.yaml", models.replace(", batch: {in: 0.5, out: 1}", ""))
    ended = edison(project, "run", "--batch")
    assert "no model has a price for batches" in ended.err
    assert (server.chats, server.batches.made) == (CASES, {})


@pytest.mark.parametrize("vendor", ["openai_compatible"], indirect=True)
class TestOpenAI:
    def test_a_batch_that_is_refused_as_a_whole_fails_the_run(
        self, edison: Edison, project: Folder, server: LoopbackServer
    ) -> None:
        submitted(edison, project)
        server.batches.ends, server.batches.status = True, "failed"
        found = resumed(edison, project)
        assert (found["status"], found["cells"]["error"]) == ("FAILED", CASES)
        assert rows(project, "select distinct state from attempt") == [("released",)]

    def test_a_batch_does_not_go_with_shards_or_recordings(
        self, edison: Edison, project: Folder
    ) -> None:
        ended = edison(project, "run", "--batch", "--shard", "1/2")
        assert ended.code == 2
        assert "--batch and --shard exclude each other" in ended.err
