"""Answers that are lost: a run says so first, and still decides what was measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

CASES = 20


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(ledger=tmp_path / "ledger.jsonl") as server:
        yield server


@pytest.fixture
def three(mini: Folder, loopback: LoopbackServer) -> Folder:
    """Six models, with a gate for each, of which two answer well, three badly and one never."""
    names = ("good", "fine", "mute", "poor", "bad", "sad")
    entry = (
        "{{provider: openai_compatible, base_url: '{url}', model: {name}, price: free, "
        "limits: {{attempts: 1}}}}"
    )
    mini.write(
        "models.yaml",
        "".join(f"{n}: {entry.format(url=loopback.openai_url, name=n)}\n" for n in names),
    )
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": "hello"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write(
        "experiments/hello.yaml",
        "experiment: hello\nobjective: Greet people by their name in a friendly way.\n"
        f"prompts: [prompts/hello.md]\nmodels: [{', '.join(names)}]\n"
        "dataset: datasets/names.jsonl\n"
        'checks: [contains: "{{ expected }}"]\n'
        "gates: [{metric: pass_rate, at_least: 50%, per: model}]\n",
    )
    refused = {"error": {"message": "flagged by our content filter", "code": "content_filter"}}
    answers = [rule(model=name, text="hello there") for name in ("good", "fine")]
    loopback.script = [rule(model="mute", status=400, body=refused), *answers, rule(text="no")]
    return mini


def test_a_model_that_never_answers_is_an_error_and_the_others_are_decided(
    edison: Edison, three: Folder, loopback: LoopbackServer
) -> None:
    done = edison(three, "run", "--json")
    assert done.code == 3, done.all
    told = json.loads(done.out)
    (run,) = told["runs"]
    assert (told["verdict"], run["status"], run["verdict"]) == ("error", "FAILED", "error")
    assert run["clients"]["stopped"] == {
        "the run": f"mute: {CASES} of {CASES} cells in error, max_errors is 20%"
    }
    verdicts = {row["model"]: row["verdict"] for row in run["gates"]}
    assert verdicts["good"] == verdicts["fine"] == "pass"
    assert verdicts["bad"] == verdicts["poor"] == verdicts["sad"] == "fail"
    assert verdicts["mute"] == "inconclusive"

    shown = edison(three, "status", "latest")
    assert "hello v1" in shown.out
    loopback.script = loopback.script[1:]
    again = edison(three, "resume", "--json")
    (run,) = json.loads(again.out)["runs"]
    assert (again.code, run["status"], run["verdict"]) == (1, "COMPLETED", "fail")
    assert {row["model"]: row["verdict"] for row in run["gates"]}["mute"] == "fail"


def test_the_screen_says_which_model_it_was_and_shows_the_gates(
    edison: Edison, three: Folder
) -> None:
    done = edison(three, "run")
    assert done.code == 3
    assert f"the run stopped: mute: {CASES} of {CASES} cells in error" in done.out
    assert "pass_rate" in done.out
