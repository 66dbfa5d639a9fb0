"""Models of today, on a server that refuses what their vendors refuse."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.store.database import open_reader
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

SCORES = json.dumps(
    {
        "scores": {
            "Warmth": {"reason": "Warm.", "score": 4},
            "Brevity": {"reason": "Short.", "score": 5},
        },
        "flags": [],
    }
)


@pytest.fixture
def server(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    """A strict server, for every model of the project."""
    monkeypatch.setenv("VENDOR_KEY", "k-123456789012")
    judged = rule(contains="Warmth", text=SCORES)
    with LoopbackServer([judged, rule(text="Hello Ada and Bo!")], strict=True) as server:
        origin = "/".join(server.url.split("/")[:3])
        trusted = f"version: 1\nkeys:\n  - {{env: VENDOR_KEY, hosts: ['{origin}']}}\n"
        mini.write(".edison/trust.yaml", trusted)
        yield server


def entry(server: LoopbackServer, provider: str, model: str, more: str = "") -> str:
    url = server.url if provider == "anthropic" else server.openai_url
    return f"{{provider: {provider}, model: {model}, base_url: '{url}', key_env: VENDOR_KEY{more}}}"


def left_out(folder: Folder) -> list[str]:
    """Return what was left out of the calls of a generator."""
    with contextlib.closing(open_reader(folder.path / ".edison/results.db")) as reader:
        rows = reader.execute("select left_out from answer where served_model like 'claude%'")
        return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("generator", "judge"),
    [
        (("openai", "gpt-5.6"), ("anthropic", "claude-opus-4-7")),
        (("anthropic", "claude-fable-5"), ("openai", "gpt-5.6")),
        (("openai", "o3-pro"), ("anthropic", "claude-opus-4-5")),
        (("openai", "gpt-4.1"), ("openai", "o3-pro")),
    ],
)
def test_generators_and_judges_of_today_answer_at_once(
    edison: Edison,
    mini: Folder,
    server: LoopbackServer,
    generator: tuple[str, str],
    judge: tuple[str, str],
) -> None:
    small = entry(server, *generator, ", params: {temperature: 0.2}")
    mini.write("models.yaml", f"small: {small}\njudge: {entry(server, *judge)}\n")
    done = edison(mini, "run", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["status"]) == (0, "COMPLETED"), done.all
    assert run["composite"]["estimate"] is not None
    assert len(server.requests) == server.chats == 4, "nothing was refused"


def test_a_parameter_that_is_not_sent_is_said_and_stored(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    small = entry(server, "anthropic", "claude-opus-4-7", ", params: {temperature: 0.2}")
    mini.write("models.yaml", f"small: {small}\njudge: {{provider: sim, model: judge}}\n")
    said = "claude-opus-4-7 takes no temperature; it is not sent"
    assert said in edison(mini, "validate").all
    assert said in edison(mini, "plan").all
    edison(mini, "run", "-q")
    assert left_out(mini) == ["temperature"] * 2


def test_a_model_that_is_newer_than_the_table_is_asked_again_without_it(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    words = "`temperature` is deprecated for this model."
    body = {"error": {"type": "invalid_request_error", "message": words}}
    server.strict = False
    server.script.insert(0, rule(model="claude-next", do="status", status=400, body=body, times=1))
    small = entry(
        server, "anthropic", "claude-next", ", price: {in: 1, out: 2}, limits: {concurrency: 1}"
    )
    mini.write("models.yaml", f"small: {small}\njudge: {{provider: sim, model: judge}}\n")
    done = edison(mini, "run")
    assert done.code == 0, done.all
    assert "the model refuses a parameter" in done.err
    asked = [seen.json for seen in server.requests]
    assert ["temperature" in body for body in asked] == [True, False, False]
    assert left_out(mini) == ["temperature"] * 2


def judged_by(server: LoopbackServer, *names: str) -> str:
    more = ", price: {in: 1, out: 2}, limits: {attempts: 1}"
    judges = [f"{name}: {entry(server, 'anthropic', name, more)}" for name in names]
    return "\n".join([f"small: {entry(server, 'openai', 'gpt-4.1')}", *judges, ""])


def with_many_cases(folder: Folder, judges: str) -> None:
    row = '{{"id": "c{0}", "input": {{"name": "N{0}"}}, "expected": "Hello"}}\n'
    folder.write("datasets/names.jsonl", "".join(row.format(n) for n in range(40)))
    folder.edit("experiments/hello.yaml", "[judge]", judges)


def test_a_judge_that_cannot_answer_stops_the_run_before_the_rest_is_paid(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    server.strict = False
    error = {"error": {"message": "messages: this model takes no text"}}
    server.script.insert(0, rule(model="deaf", do="status", status=400, body=error))
    mini.write("models.yaml", judged_by(server, "fine", "deaf"))
    with_many_cases(mini, "[fine, deaf]")
    done = edison(mini, "run")
    assert done.code == 3, done.all
    assert "deaf (judge) stopped: BAD_REQUEST: messages: this model takes no text" in done.all
    paid = [row["model"] for row in server.ledger_rows()]
    assert len(paid) <= 4, "two answers and their judgments, of 40 cases"


def test_a_judge_that_never_scores_is_named_and_nothing_passes(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    server.strict = False
    server.script.insert(0, rule(model="vague", text="It is rather good."))
    mini.write("models.yaml", judged_by(server, "fine", "vague"))
    with_many_cases(mini, "[fine, vague]")
    mini.edit("experiments/hello.yaml", "no_worse_than: base, margin: 10pp", "at_least: 0.1")
    done = edison(mini, "run", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["status"], run["verdict"]) == (3, "FAILED", "error")
    assert "gave no score" in run["clients"]["stopped"]["judge vague"]


def test_a_judge_that_comes_back_within_three_cells_is_not_given_up(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    server.strict = False
    busy = {"error": {"message": "overloaded"}}
    server.script.insert(0, rule(model="fine", do="status", status=500, body=busy, times=2))
    mini.write("models.yaml", judged_by(server, "fine"))
    with_many_cases(mini, "[fine]")
    done = edison(mini, "run", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert run["status"] == "COMPLETED", done.all


def test_a_test_sends_what_a_run_sends(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    small = entry(server, "openai", "o3-pro")
    judge = entry(server, "anthropic", "claude-opus-4-7")
    mini.write("models.yaml", f"small: {small}\njudge: {judge}\n")
    done = edison(mini, "models", "test")
    assert done.code == 0, done.all
    sent = {seen.path: seen.json for seen in server.requests}
    assert sent.keys() == {"/v1/responses", "/v1/messages"}
    assert sent["/v1/messages"]["max_tokens"] == 4096
    assert sent["/v1/messages"]["output_config"]["format"]["type"] == "json_schema"


def test_a_refiner_is_tested_as_a_refiner(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    entries = {name: entry(server, "openai", "gpt-4.1") for name in ("small", "judge", "refiner")}
    mini.write("models.yaml", "".join(f"{name}: {one}\n" for name, one in entries.items()))
    mini.edit("experiments/hello.yaml", "gates:", "refine: {by: refiner}\ngates:")
    sent = {}
    for name in entries:
        assert edison(mini, "models", "test", name).code == 0
        body = server.requests[-1].json
        sent[name] = (body["temperature"], body.get("response_format", {}).get("type"))
    assert sent == {
        "small": (1.0, None),
        "judge": (0.3, "json_schema"),
        "refiner": (1.0, "json_object"),
    }


def test_a_service_that_was_retired_is_refused_with_the_way_out(
    edison: Edison, mini: Folder
) -> None:
    mini.edit(
        "models.yaml",
        "{provider: sim, model: small}",
        "{provider: openai_compatible, model: openai/gpt-4.1, "
        "base_url: 'https://models.github.ai/inference', key_env: GITHUB_TOKEN}",
    )
    done = edison(mini, "validate")
    assert done.code == 2
    assert "GitHub Models was retired on 2026-07-30" in done.all
    assert "{provider: openai, model: gpt-4.1}" in done.all


@pytest.mark.parametrize(
    ("text", "status", "graded"),
    [
        ('{"greeting": "Hello Ada"}', "ok", (1.0, "the schema accepts the answer")),
        (
            "Hello Ada!",
            "malformed",
            (0.0, "not valid JSON: expecting value (line 1, column 1)"),
        ),
        ('{"hello": 1}', "ok", (0.0, "$: 'greeting' is a required property")),
    ],
)
def test_a_declared_output_is_checked_on_every_answer(
    edison: Edison,
    mini: Folder,
    server: LoopbackServer,
    text: str,
    status: str,
    graded: tuple[float, str],
) -> None:
    schema = "{type: object, properties: {greeting: {type: string}}, required: [greeting]}"
    mini.edit("prompts/hello.md", "id: hello\n", f"id: hello\noutput: {schema}\n")
    mini.edit("experiments/hello.yaml", 'contains: "{{ expected }}"', "chars: {min: 1}")
    small = entry(server, "openai", "gpt-4.1")
    mini.write("models.yaml", f"small: {small}\njudge: {{provider: sim, model: judge}}\n")
    server.script[:] = [rule(text=text)]
    edison(mini, "run", "-q")
    with contextlib.closing(open_reader(mini.path / ".edison/results.db")) as reader:
        found = reader.execute(
            "select c.status, p.score, p.reason, p.weight from cell c left join component p "
            "on p.cell_id = c.id and p.name = 'output schema'"
        ).fetchall()
    # Beside a rubric a check decides whether an answer passes, not its score.
    assert found == [(status, *graded, 0.0)] * 2
