"""What a run does with answers that lack the form that their prompt asks for, or only mentions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback.fixture import loopback
from tests.loopback.script import rule
from tests.opened import opened

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
checks: [{icontains: {value: hello}}]
gates:
  - {metric: pass_rate, at_least: 10%}
"""
MENTIONS = "The customer sends JSON.\nGreet the customer {{ name }} in one friendly sentence.\n"
ASKS = "Greet the customer {{ name }} by name.\nAnswer in JSON, with one friendly sentence.\n"
PLAIN, WHOLE = "Hello there", '{"greeting": "Hello"}'


@pytest.fixture
def project(mini: Folder, loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Six cases, of which two are answered in JSON."""
    monkeypatch.setenv("OWN_KEY", "k-123456789012")
    entry = {
        "provider": "openai_compatible",
        "model": "m",
        "base_url": loopback.openai_url,
        "key_env": "OWN_KEY",
        "price": {"in": 1, "out": 2},
    }
    mini.write("models.yaml", json.dumps({"small": entry}))
    keys = [{"env": "OWN_KEY", "hosts": [loopback.url]}]
    mini.write(".edison/trust.yaml", json.dumps({"version": 1, "keys": keys}))
    mini.write("experiments/hello.yaml", EXPERIMENT)
    rows = [{"id": f"n{number}", "name": f"Person{number}"} for number in range(6)]
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    whole = [rule(contains=f"Person{number}", text=WHOLE) for number in (1, 4)]
    loopback.script = [*whole, rule(text=PLAIN)]
    return mini


def components(project: Folder) -> dict[str, list[tuple[Any, ...]]]:
    """Return the components of each case, as they are stored."""
    with opened(project.path / ".edison" / "results.db") as connection:
        rows = connection.execute(
            "select c.case_id, c.status, c.composite, p.kind, p.name, p.score, p.passed, p.weight "
            "from cell c join component p on p.cell_id = c.id order by p.kind"
        )
        by_case: dict[str, list[tuple[Any, ...]]] = {}
        for case, *rest in rows:
            by_case.setdefault(case, []).append(tuple(rest))
        return by_case


def test_a_mention_of_json_makes_nothing_malformed_and_whether_it_parses_is_shown(
    project: Folder, edison: Edison
) -> None:
    project.write("prompts/hello.md", MENTIONS)
    ran = edison(project, "run")
    assert ran.code == 0, ran.out
    assert "2 of 6 answers have the form json, which is not required." in ran.out
    assert "answers need not be JSON: the prompt mentions it" in ran.out
    found = components(project)
    assert [row[2:4] + row[4:5] for row in found["n0"]] == [
        ("check", 'icontains "hello"', 1.0),
        ("form", "json", 0.0),
    ]
    assert found["n1"][1] == ("ok", 1.0, "form", "json", 1.0, None, 0.0)
    explained = edison(project, "explain", "n0").out
    assert "json" in explained


def test_checks_of_a_malformed_answer_are_shown_and_its_score_stays_0(
    project: Folder, edison: Edison
) -> None:
    project.write("prompts/hello.md", f"---\nexpect: json\n---\n{ASKS}")
    ran = edison(project, "run")
    assert ran.code == 0, ran.out
    found = components(project)
    assert found["n0"] == [("malformed", 0.0, "unscored", 'icontains "hello"', 1.0, 1, 0.0)]
    assert found["n1"][0][:3] == ("ok", 1.0, "check")
    assert 'icontains "hello"' in edison(project, "explain", "n0").out


def test_most_answers_malformed_by_words_alone_is_told_first_and_measures_nothing(
    project: Folder, edison: Edison
) -> None:
    project.write("prompts/hello.md", ASKS)
    ran = edison(project, "run")
    assert ran.code == 3
    said = (
        "4 of 6 answers of hello are malformed, because line 2 was read as asking for json: "
        "'Answer in JSON, with one friendly sentence.'; write `expect: none` in prompts/hello.md "
        "if they need not be, else `expect: json`"
    )
    assert said in " ".join(ran.out.splitlines()[0].split())
    assert "Write that key, then: edison run hello (stored answers are reused)" in ran.err
    (told,) = json.loads(edison(project, "status", "latest", "--json").out)["runs"]
    assert told["verdict"] == "error"


def test_what_is_written_is_measured_whatever_the_answers_are(
    project: Folder, edison: Edison
) -> None:
    project.write("prompts/hello.md", f"---\nexpect: json\n---\n{ASKS}")
    assert edison(project, "run").code == 0
    project.edit("experiments/hello.yaml", "10%", "90%")
    assert edison(project, "run").code == 1


def test_a_plan_and_a_try_say_what_was_found(project: Folder, edison: Edison) -> None:
    project.write("prompts/hello.md", ASKS)
    said = (
        "prompts/hello.md:2: answers must be JSON: the prompt says 'Answer in JSON, with one "
        "friendly sentence.'; write `expect: json` if that is right, else `expect: none`"
    )
    assert said in " ".join(edison(project, "plan").out.split())
    tried = edison(project, "try", "--case", "n1")
    assert said in " ".join(tried.err.split())


def test_a_lost_word_is_a_note_and_decides_nothing(
    project: Folder, edison: Edison, loopback: LoopbackServer
) -> None:
    project.write("prompts/hello.md", ASKS)
    project.git("init", "-q", "-b", "main")
    project.git("add", ".")
    project.git("commit", "-qm", "base")
    project.edit("prompts/hello.md", "Answer in JSON, with", "Write")
    loopback.script = [rule(text=WHOLE)]
    ran = edison(project, "run", "--against", "HEAD")
    assert ran.code == 0, ran.out
    assert "answers to hello must be json on both sides" in ran.out
    assert "need no longer" not in ran.out
