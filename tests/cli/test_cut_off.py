"""Answers that end at max_tokens: counted wherever a run is shown, and named where they fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.features.github.report_comment import comment_body
from edison_ci.results.report import report_of
from edison_ci.results.run_result import RunResult
from edison_ci.store.runs import find_run
from tests.loopback.fixture import loopback
from tests.loopback.script import rule
from tests.opened import opened
from tests.web.conftest import LINES, started

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["loopback"]

EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks: [is_json: {}]
gates:
  - {metric: pass_rate, at_least: 10%}
"""
WHOLE = '{"greeting": "Hello"}'
LONG = '{"greeting": "Hello and a very warm welcome to you"}'


@pytest.fixture
def project(mini: Folder, loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Six cases, of which two are answered at length."""
    monkeypatch.setenv("OWN_KEY", "k-123456789012")
    entry = {
        "provider": "openai_compatible",
        "model": "m",
        "base_url": loopback.openai_url,
        "key_env": "OWN_KEY",
        "params": {"max_tokens": 4},
        "price": {"in": 1, "out": 2},
    }
    mini.write("models.yaml", json.dumps({"small": entry}))
    keys = [{"env": "OWN_KEY", "hosts": [loopback.url]}]
    mini.write(".edison/trust.yaml", json.dumps({"version": 1, "keys": keys}))
    mini.write("experiments/hello.yaml", EXPERIMENT)
    rows = [{"id": f"n{number}", "name": f"Person{number}"} for number in range(6)]
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    long = [rule(contains=f"Person{number}", text=LONG) for number in (1, 4)]
    loopback.script = [*long, rule(text=WHOLE)]
    return mini


def told(project: Folder, edison: Edison) -> dict[str, Any]:
    (found,) = json.loads(edison(project, "status", "latest", "--json").out)["runs"]
    return dict(found)


def test_answers_cut_off_are_in_the_summary_and_the_json(project: Folder, edison: Edison) -> None:
    ran = edison(project, "run")
    assert "  2 answers cut off at max_tokens: raise it, or ask for less\n" in ran.out
    found = told(project, edison)
    assert found["cut_off"] == 2
    assert [model["cut_off"] for model in found["models"]] == [2]
    shown = edison(project, "status", "latest").out
    assert "2 answers cut off at max_tokens" in shown


def test_answers_cut_off_are_in_the_comment_and_the_report(project: Folder, edison: Edison) -> None:
    edison(project, "run")
    said = "Cut off at max_tokens: 2 of 6 answers of hello with small."
    with opened(project.path / ".edison" / "results.db") as connection:
        run = find_run(connection, "latest")
        report = report_of(connection, [run])
        assert said in comment_body(report).replace("`", "")
        assert said in " ".join(RunResult(connection, run).missing)
    assert edison(project, "report", "latest", "--format", "html", "--out", "out.html").code == 0
    page = (project.path / "out.html").read_text(encoding="utf-8")
    assert "2 cut off at max_tokens" in page


def test_a_check_of_json_says_that_the_answer_was_cut_off(project: Folder, edison: Edison) -> None:
    edison(project, "run")
    cut = edison(project, "explain", "n1").out
    assert "the answer was cut off at max_tokens: " in " ".join(cut.split())
    assert "cut off" not in edison(project, "explain", "n2").out


def test_a_malformed_answer_says_that_it_was_cut_off(project: Folder, edison: Edison) -> None:
    project.edit("prompts/hello.md", "---\n", "---\nexpect: json\n")
    edison(project, "run")
    with opened(project.path / ".edison" / "results.db") as connection:
        rows = connection.execute(
            "select case_id, reason from cell where status = 'malformed' order by case_id"
        ).fetchall()
    assert [case for case, _ in rows] == ["n1", "n4"]
    assert all(reason.startswith("the answer was cut off at max_tokens: ") for _, reason in rows)


def test_a_run_without_such_answers_says_nothing_of_them(
    project: Folder, edison: Edison, loopback: LoopbackServer
) -> None:
    loopback.script = [rule(text=WHOLE)]
    assert "cut off" not in edison(project, "run").out
    assert told(project, edison)["cut_off"] == 0


@pytest.mark.nightly
def test_answers_cut_off_are_on_the_page_of_the_run(project: Folder, edison: Edison) -> None:
    edison(project, "run")
    run_id = told(project, edison)["run_id"]
    for server in started(project.path, LINES[0]):
        page = server.get(f"/-/edison/run/{run_id}").text
        assert "2 cut off at max_tokens" in page
