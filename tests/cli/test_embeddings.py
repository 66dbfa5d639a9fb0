"""The check `similar` with a model that embeds, from the file to the report."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.store.database import open_reader
from tests.loopback.protocols import vector
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def server(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    """A server for the model that embeds; the others are simulated."""
    monkeypatch.setenv("VENDOR_KEY", "k-123456789012")
    with LoopbackServer() as server:
        origin = "/".join(server.url.split("/")[:3])
        trusted = f"version: 1\nkeys:\n  - {{env: VENDOR_KEY, hosts: ['{origin}']}}\n"
        mini.write(".edison/trust.yaml", trusted)
        write_models(mini, server)
        write_experiment(mini, "similar: {by: vectors, threshold: 0.3}")
        yield server


def write_models(folder: Folder, server: LoopbackServer, more: str = "") -> None:
    at = f"base_url: '{server.openai_url}', key_env: VENDOR_KEY, price: {{in: 1, out: 0}}"
    small = "small: {provider: sim, model: echo}\n"
    vectors = f"vectors: {{provider: openai_compatible, model: embed-1, {at}{more}}}\n"
    folder.write("models.yaml", small + vectors)


def write_experiment(folder: Folder, check: str, more: str = "") -> None:
    folder.write(
        "experiments/hello.yaml",
        "experiment: hello\nobjective: Greet people by their name.\n"
        "prompts: [prompts/hello.md]\nmodels: [small]\ndataset: datasets/names.jsonl\n"
        f"checks:\n  - {check}\n{more}",
    )


def rows(folder: Folder, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(open_reader(folder.path / ".edison/results.db")) as reader:
        return reader.execute(query).fetchall()


def components(folder: Folder) -> list[tuple[Any, ...]]:
    return rows(
        folder,
        "select c.case_id, p.score, p.status, p.reason from cell c join component p "
        "on p.cell_id = c.id where c.run_id = (select id from run order by created_at desc, "
        "rowid desc limit 1) order by 1",
    )


def plan_of(edison: Edison, folder: Folder) -> dict[str, Any]:
    (found,) = json.loads(edison(folder, "plan", "--json").out)["experiments"]
    return dict(found)


def cosine(one: str, other: str) -> float:
    a, b = vector(one), vector(other)
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def test_answers_are_compared_by_the_embeddings_of_a_model(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    done = edison(mini, "run", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert run["status"] == "COMPLETED", done.all
    answers = dict(
        rows(
            mini,
            "select c.case_id, t.text from cell c join answer_text t using (request_hash, "
            "answer_no)",
        )
    )
    scores = {case: score for case, score, *_ in components(mini)}
    assert scores == {
        "ada": pytest.approx(cosine(answers["ada"], "Ada"), abs=1e-6),
        "bo": pytest.approx(cosine(answers["bo"], "Bo"), abs=1e-6),
    }
    assert {seen.path for seen in server.requests} == {"/v1/embeddings"}
    assert server.requests[0].json.keys() == {"model", "input"}
    assert server.requests[0].headers["authorization"] == "Bearer k-123456789012"


def test_embeddings_are_booked_in_a_phase_of_their_own_and_never_bought_twice(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    before = plan_of(edison, mini)
    (planned,) = [load for load in before["by_model"] if load["phase"] == "embed"]
    assert planned["calls"] == 4, "two answers and two references"
    edison(mini, "run", "-q")
    assert len(server.requests) == 4
    costs = json.loads(edison(mini, "costs", "--by", "phase", "--json").out)
    spent = {row["key"]: row for row in costs["rows"]}["embed"]
    assert spent["calls"] == 4
    assert spent["cost_microusd"] == server.ledger_total() > 0
    after = plan_of(edison, mini)
    assert after["calls"] == {"to_make": 0, "reused": 6}
    again = edison(mini, "run", "-q")
    assert len(server.requests) == 4, again.all
    assert [status for _, _, status, _ in components(mini)] == ["ok", "ok"]


def test_regrading_with_another_reference_embeds_only_what_is_new(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    edison(mini, "run", "-q")
    write_experiment(mini, "similar: {by: vectors, value: A greeting., threshold: 0.1}")
    done = edison(mini, "regrade", "hello")
    assert done.code == 0, done.all
    assert [seen.json["input"] for seen in server.requests[4:]] == [["A greeting."]]


def test_a_recording_holds_the_embeddings(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    edison(mini, "run", "-q", "--record", "saved.jsonl")
    first = components(mini)
    (mini.path / ".edison/results.db").unlink()
    done = edison(mini, "run", "--replay", "saved.jsonl", "--offline")
    assert len(server.requests) == 4, done.all
    assert components(mini) == first


def test_personal_data_is_not_looked_for_in_a_vector(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    mini.write("edison.yaml", "version: 1\nproject: mini\n"
               "settings: {redact_pii_before_storage: true}\n")  # fmt: skip
    edison(mini, "run", "-q")
    edison(mini, "run", "-q")
    assert len(server.requests) == 4, "what is stored is used"
    assert [status for _, _, status, _ in components(mini)] == ["ok", "ok"]


def test_explain_does_not_print_vectors(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    edison(mini, "run", "-q")
    done = edison(mini, "explain", "ada@small")
    assert "similar" in done.out
    assert "float32" not in done.all


def reply(*vectors: Any, **more: Any) -> dict[str, Any]:
    return {"data": [{"embedding": one} for one in vectors], "model": "embed-1", **more}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (reply(), "the reply has 0 embeddings for 1 text"),
        (reply([1.0], [2.0]), "the reply has 2 embeddings for 1 text"),
        (reply([]), "the reply has a vector of 0 numbers"),
        (reply([1.0, math.nan]), "the reply has a vector with values that are not numbers"),
        (reply([1.0, math.inf]), "the reply has a vector with values that are not numbers"),
        (reply([1.0, "2"]), "the reply has a vector with values that are not numbers"),
        (reply([1.0, True]), "the reply has a vector with values that are not numbers"),
        (reply([1e300]), "the reply has a vector with numbers that are too large"),
        (reply([0.0] * 70_000), "the reply has a vector of 70,000 numbers"),
        (reply("AAAA"), "the reply has no vector in it"),
        ({"data": None}, "the reply has no embeddings for 1 text"),
        ("[]", "the reply is not a JSON object"),
    ],
)
def test_a_reply_without_a_vector_is_an_error_of_the_component(
    edison: Edison, mini: Folder, server: LoopbackServer, body: Any, reason: str
) -> None:
    server.script.append(rule(contains="Ada", body=body))
    done = edison(mini, "run", "-q")
    found = {case: (status, why) for case, _, status, why in components(mini)}
    assert found["ada"] == ("error", f"no embedding of vectors: BAD_RESPONSE: {reason}"), done.all


def test_vectors_of_different_lengths_are_not_compared(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    short = reply([1.0, 2.0], usage={"prompt_tokens": 1})
    server.script.append(rule(contains="Say hello to Bo", body=short))
    edison(mini, "run", "-q")
    found = {case: (status, why) for case, _, status, why in components(mini)}
    assert found["ada"][0] == "ok"
    said = "the embeddings cannot be compared: vectors of 2 and 26 numbers"
    assert found["bo"] == ("error", said)


def test_an_address_without_embeddings_stops_the_run_before_the_rest_is_paid(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    lines = (f'{{"id": "c{n}", "input": {{"name": "N{n}"}}, "expected": "x"}}\n' for n in range(40))
    mini.write("datasets/names.jsonl", "".join(lines))
    server.script.append(rule(do="status", status=404, body={"error": {"message": "no route"}}))
    done = edison(mini, "run")
    assert done.code == 3
    assert "vectors (embed) stopped: MODEL_NOT_FOUND: there are no embeddings at this" in done.all
    assert len(rows(mini, "select * from cell")) <= 2


def test_a_budget_holds_for_embeddings(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    done = edison(mini, "run", "--budget", "0.000010")
    assert "--budget" in done.all
    assert server.ledger_total() <= 10


def test_the_key_goes_to_a_trusted_host_only(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    mini.write(".edison/trust.yaml", "version: 1\nkeys: []\n")
    done = edison(mini, "run")
    assert done.code == 2
    assert "would send VENDOR_KEY" in done.all
    assert server.requests == []


def test_models_test_asks_a_model_that_embeds_for_an_embedding(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    done = edison(mini, "models", "test", "vectors", "--json")
    assert json.loads(done.out)["models"][0]["ok"], done.all
    assert [seen.path for seen in server.requests] == ["/v1/embeddings"]


def test_azure_names_the_deployment_in_the_address(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    more = "options: {deployment: emb, api_version: '2024-10-21'}"
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: echo}\n"
        f"vectors: {{provider: azure, base_url: '{server.url}', key_env: VENDOR_KEY, "
        f"price: {{in: 1, out: 0}}, {more}}}\n",
    )
    done = edison(mini, "run", "-q")
    first = server.requests[0]
    path = "/openai/deployments/emb/embeddings?api-version=2024-10-21"
    assert (first.path, first.json.keys()) == (path, {"input"}), done.all


def problem(edison: Edison, folder: Folder) -> dict[str, Any]:
    (found,) = json.loads(edison(folder, "validate", "--json").out)["problems"]
    return dict(found)


@pytest.mark.parametrize(
    ("models", "experiment", "message", "line"),
    [
        (
            "vectors: {provider: openai, model: gpt-4.1}",
            "similar: {by: vectors}",
            "model 'vectors': gpt-4.1 writes answers, it does not embed texts",
            7,
        ),
        (
            "vectors: {provider: sim, model: small}",
            "any_of: [{similar: {by: vectors}}]",
            "model 'vectors': provider sim has no embeddings here",
            7,
        ),
        (
            "vector: {provider: openai, model: text-embedding-3-small}",
            "similar: {by: vectors}",
            "unknown model 'vectors'",
            7,
        ),
    ],
)
def test_validate_refuses_a_model_that_cannot_embed(
    edison: Edison, mini: Folder, models: str, experiment: str, message: str, line: int
) -> None:
    mini.write("models.yaml", f"small: {{provider: sim, model: small}}\n{models}\n")
    write_experiment(mini, experiment)
    found = problem(edison, mini)
    assert (found["message"], found["line"]) == (message, line)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("models: [small]", "models: [vectors]"),
        ("pointwise: [judge]", "pointwise: [vectors]"),
        ("pointwise: [judge]", "pointwise: [judge], pairwise: {by: vectors}"),
        ("gates:", "refine: {by: vectors}\ngates:"),
        ("gates:", "safety: {toxicity: {by: vectors}}\ngates:"),
    ],
)
def test_validate_refuses_an_embedding_model_where_answers_are_wanted(
    edison: Edison, mini: Folder, before: str, after: str
) -> None:
    mini.edit("models.yaml", "small:",
              "vectors: {provider: openai, model: text-embedding-3-small}\nsmall:")  # fmt: skip
    mini.edit("experiments/hello.yaml", before, after)
    found = problem(edison, mini)
    assert found["code"] == "embedding"
    assert found["message"] == (
        "model 'vectors': text-embedding-3-small embeds texts, it does not answer"
    )


def test_a_model_that_embeds_needs_no_extra(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from edison_ci.checks.options import parse_check
    from edison_ci.config.requirements import _unmet
    from edison_ci.extras import Library

    monkeypatch.setattr(Library, "fault", lambda _: "is not installed")
    assert _unmet(parse_check({"similar": {"by": "vectors"}})) == ("", "")
    assert _unmet(parse_check({"similar": {}}))[0]
