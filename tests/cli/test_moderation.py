"""A vendor's moderation endpoint screens answers where a chat model could."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

EXPERIMENT = """experiment: hello
objective: Greet people by their name in a friendly way.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks:
  - contains: Hello
safety: {moderation: {by: mod, action: block, threshold: 0.7}, toxicity: {by: mod}}
gates:
  - {metric: safety.moderation, at_most: 0}
"""
SCORES = json.dumps({"violence": 0.92, "hate": 0.1, "brand/new": 0.35})


def test_an_answer_that_the_endpoint_scores_high_is_blocked_and_counted(
    edison: Edison, mini: Folder
) -> None:
    rows = [{"id": name.lower(), "input": {"name": name}} for name in ("Ada", "Bea", "Cid")]
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write("experiments/hello.yaml", EXPERIMENT)
    rules = [
        rule(model="omni-moderation-latest", contains="fight", text=SCORES),
        rule(model="omni-moderation-latest"),
        rule(model="m-1", contains="Bea", text="Hello Bea, let us fight."),
        rule(model="m-1", text="Hello."),
    ]
    with LoopbackServer(rules, strict=True) as server:
        at = f"provider: openai_compatible, base_url: '{server.openai_url}', price: free"
        models = f"small: {{{at}, model: m-1}}\nmod: {{{at}, model: omni-moderation-latest}}\n"
        mini.write("models.yaml", models)
        ran = edison(mini, "run", "--json")
        asked = [seen.json for seen in server.requests if seen.path.endswith("/moderations")]
        assert edison(mini, "models", "test", "mod").code == 0
    assert ran.code == 1, ran.all
    assert {frozenset(body) for body in asked} == {frozenset({"model", "input"})}
    # Both screens ask the same of the same text, which is asked once.
    assert sorted({body["input"] for body in asked}) == ["Hello Bea, let us fight.", "Hello."]
    assert len(asked) == 2
    (run,) = json.loads(ran.out)["runs"]
    assert run["cells"]["blocked"] == 1
    (gate,) = run["gates"]
    assert (gate["metric"], gate["verdict"]) == ("safety.moderation", "fail")
    with opened(mini.path / ".edison/results.db") as connection:
        (reason,) = connection.execute(
            "select reason from component where kind = 'safety' and name = 'moderation'"
        ).fetchone()
        texts = connection.execute("select text from answer_text").fetchall()
    assert reason == "block: violence 0.92, brand/new 0.35, hate 0.10"
    assert any("brand/new" in text for (text,) in texts)


def test_a_moderation_model_is_not_named_as_one_that_answers(edison: Edison, mini: Folder) -> None:
    mini.write("experiments/hello.yaml", EXPERIMENT.replace("[small]", "[mod]"))
    entry = "{provider: openai, model: omni-moderation-latest}"
    mini.write("models.yaml", f"mod: {entry}\n")
    (found,) = [
        problem["message"]
        for problem in json.loads(edison(mini, "validate", "--json").out)["problems"]
        if problem["code"] == "moderation"
    ]
    assert found == "model 'mod': omni-moderation-latest moderates, it does not answer"
