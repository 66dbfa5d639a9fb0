"""edison dataset coverage and fill: what is covered, measured, and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.extras import PY3LANGID, command_for
from edison_ci.records import Case, CaseId
from edison_ci.results.coverage import coverage_of, values_of
from tests.bare import lacking
from tests.features.assist.test_dataset_generate import facts, replies, rows_of, writer, written

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["facts", "writer"]

EXPERIMENT = "experiments/facts.yaml"
TARGETS = """
coverage:
  at_least: 2
  tags: [rivers, "Big Seas"]
  languages: [en, de]
  difficulty: [1, 5]
  lengths: [XS, S]
"""
GERMAN = (
    "Wie lang ist eigentlich die Donau, und in welches Meer m\u00fcndet sie am Ende?",
    "Warum hei\u00dft dieser kleine Bach hinter unserem Haus seit jeher Rotach?",
)


def shown(edison: Edison, folder: Folder) -> dict[str, Any]:
    done = edison(folder, "dataset", "coverage", "--json")
    assert done.code == 0, done.all
    found: dict[str, Any] = json.loads(done.out)["experiments"][0]
    return found


def rows(folder: Folder, *given: dict[str, Any]) -> None:
    texts = [json.dumps({"id": f"c{n}", **row}) for n, row in enumerate(given)]
    folder.write("datasets/own.jsonl", "\n".join(texts) + "\n")


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("It cost $ 12.50 on 2026-03-04 at 09:15", {"number", "amount", "date", "time"}),
        ("There are 7 of them", {"number"}),
        ("write to a.b@shop.example or see https://shop.example", {"email", "url"}),
        ("that is 5% of 20 euros", {"number", "percent", "amount"}),
        ("no such thing, not even room B12", set()),
    ],
)
def test_entities_are_found_in_the_inputs(text: str, entities: set[str]) -> None:
    found = values_of(Case(CaseId("a"), {"question": text}))
    assert {*found.entities} == entities


def test_the_language_of_each_input_counts() -> None:
    german = "K\u00f6nnen Sie mir bitte sagen, wann mein Paket endlich ankommen wird?"
    english = "The parcel arrives within three working days, whatever the weather is like."
    case = Case(CaseId("a"), {"message": german, "policy": english, "name": "Jo"})
    assert values_of(case).languages == ("de", "en")
    told = Case(CaseId("b"), {"message": "ok"}, metadata={"language": "fr"})
    assert values_of(told).languages == ("fr",)


def test_languages_that_are_not_detected_are_said(edison: Edison, facts: Folder) -> None:
    rows(
        facts,
        {"input": {"question": GERMAN[0]}},
        {"input": {"question": GERMAN[1]}},
        {"input": {"question": "Which?"}, "metadata": {"language": "en"}},
    )
    assert shown(edison, facts)["note"] == ""
    with lacking("py3langid"):
        found = shown(edison, facts)
        assert found["dimensions"]["languages"]["cases"] == {"en": 1}
        advice = command_for(PY3LANGID)
        reason = f"languages of 2 cases are not detected: py3langid is not installed: {advice}"
        assert found["note"] == reason
        assert reason in edison(facts, "dataset", "coverage").err


def test_values_with_too_few_cases_are_named(edison: Edison, facts: Folder) -> None:
    facts.write(EXPERIMENT, facts.read(EXPERIMENT) + TARGETS)
    rows(
        facts,
        {"input": {"question": "Which river is long?"}, "tags": ["rivers"], "difficulty": 1},
        {"input": {"question": "Which river is short?"}, "tags": ["rivers"], "difficulty": 1},
        {"input": {"question": "Which sea is big?"}, "tags": ["Big Seas"], "difficulty": 5},
    )
    found = shown(edison, facts)
    assert found["dimensions"]["tags"] == {
        "share": 0.5, "cases": {"rivers": 2, "Big Seas": 1}, "missing": {"Big Seas": 1},
    }  # fmt: skip
    assert found["dimensions"]["difficulty"]["missing"] == {"5": 1}
    assert found["dimensions"]["lengths"]["cases"] == {"XS": 3, "S": 0}
    assert found["dimensions"]["ambiguity"]["missing"] == {"ambiguous": 2}, "has its usual values"
    screen = edison(facts, "dataset", "coverage")
    assert "1 of 2  few: Big Seas (1)" in screen.out
    assert [line.split() for line in screen.out.splitlines() if line.startswith("  rivers")] == [
        ["rivers", "2", "0", "0", "0", "0"]
    ]


def test_without_targets_the_usual_values_count(edison: Edison, facts: Folder) -> None:
    found = shown(edison, facts)
    assert {*found["dimensions"]["lengths"]["cases"]} == {"XS", "S", "M", "L"}
    assert {*found["dimensions"]["difficulty"]["missing"]} == {"1", "2", "3", "4", "5"}
    assert "tags" not in found["dimensions"], "no case has one"


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        ("coverage: {languages: [German]}", "is not the code of a language"),
        ("coverage: {lengths: [XXL]}", "XXL"),
        ("coverage: {difficulty: [6]}", "6"),
        ("coverage: {tags: [a, a]}", "a"),
        ("coverage: {topics: [a]}", "unknown key"),
    ],
)
def test_bad_targets_are_refused_with_their_place(
    edison: Edison, facts: Folder, targets: str, reason: str
) -> None:
    facts.write(EXPERIMENT, facts.read(EXPERIMENT) + targets + "\n")
    done = edison(facts, "validate")
    assert done.code == 2
    line = facts.read(EXPERIMENT).splitlines().index(targets) + 1
    assert f"{EXPERIMENT}:{line}:" in done.all
    assert reason in done.all


def test_targets_change_no_result(edison: Edison, facts: Folder) -> None:
    edison(facts, "run", "-q")
    facts.write(EXPERIMENT, facts.read(EXPERIMENT) + TARGETS)
    plan = json.loads(edison(facts, "plan", "--json").out)
    assert json.dumps(plan).count('"coverage"') == 0


def test_gaps_are_filled_by_few_cases_and_measured_again(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    facts.write(EXPERIMENT, facts.read(EXPERIMENT) + TARGETS)
    seen: list[dict[str, Any]] = []

    def make(slots: list[dict[str, Any]]) -> list[dict[str, Any]]:
        seen.extend(slots)
        found = written(slots)
        for row, slot in zip(found, slots, strict=True):
            if slot.get("language") == "de":
                said = GERMAN[slot["slot"] % 2]
                row["input"] = {"question": said}
        return found

    replies(writer, make)
    done = edison(facts, "dataset", "fill", "--by", "web", "--yes", "--json")
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert len(seen) < sum(
        n for each in found["before"]["dimensions"].values() for n in each["missing"].values()
    ), "one case fills several gaps"
    after = found["after"]["dimensions"]
    assert after["tags"]["missing"] == {}
    assert after["difficulty"]["missing"] == {}
    assert "de" not in after["languages"]["missing"]
    assert found["added"] == len(found["cases"])
    tags = {tag for row in rows_of(facts) for tag in row["tags"]}
    assert tags >= {"rivers", "Big Seas"}, "as they are written in the experiment"
    with_rows = shown(edison, facts)["dimensions"]
    assert with_rows["tags"] == after["tags"], "what was told is what is there"


def test_what_is_covered_needs_no_model(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    facts.write(
        EXPERIMENT,
        facts.read(EXPERIMENT)
        + "coverage: {at_least: 1, lengths: [XS], difficulty: [1], ambiguity: [clear], "
        "languages: [en], entities: [number]}\n",
    )
    said = "Which of the 3 rivers in that country is long?"
    rows(facts, {"input": {"question": said}, "difficulty": 1, "metadata": {"language": "en"}})
    done = edison(facts, "dataset", "fill", "--by", "web")
    assert (done.code, "everything is covered" in done.out) == (0, True), done.all
    assert not writer.requests


def test_a_model_that_ignores_the_gaps_leaves_them(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    facts.write(EXPERIMENT, facts.read(EXPERIMENT) + "coverage: {entities: [email]}\n")
    replies(writer, written)
    found = json.loads(edison(facts, "dataset", "fill", "--by", "web", "--json").out)
    assert found["after"]["dimensions"]["entities"]["missing"] == {"email": 3}


def test_a_million_values_are_bounded() -> None:
    cases = (Case(CaseId(str(n)), {"q": "x"}, tags=(f"t{n}",)) for n in range(1_000))
    found = coverage_of(cases, None)
    assert len(found.dimensions[0].counts) == 200
