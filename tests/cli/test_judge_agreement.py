"""What each judge said is kept, and a run tells whether its judges agree."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

HELLO = "experiments/hello.yaml"
CASES = 12


def verdict(warmth: float, brevity: float) -> str:
    scores = {"Warmth": warmth, "Brevity": brevity}
    entries = {name: {"score": score, "reason": "so"} for name, score in scores.items()}
    return json.dumps({"scores": entries, "flags": []})


@pytest.fixture
def panel(mini: Folder) -> Folder:
    """Twelve cases and two judges: `mild` scores a point higher, and once they are far apart."""
    names = [f"Person {i:02}" for i in range(CASES)]
    rows = ({"id": n[-2:], "input": {"name": n}, "expected": n} for n in names)
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for judge, more in (("strict", 0), ("mild", 1)):
        lines = [
            {"match": name, "text": verdict(i % 4 + more, 3 if i or more else 0)}
            for i, name in enumerate(names)
        ]
        mini.write(f"{judge}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small}\n"
        "strict: {provider: sim, model: script, options: {file: strict.jsonl},"
        " params: {temperature: 0.1}}\n"
        "mild: {provider: sim, model: script, options: {file: mild.jsonl},"
        " params: {temperature: 0.2}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    mini.edit(HELLO, "pointwise: [judge]", "pointwise: [strict, mild]")
    return mini


def agreement_of(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "run", "--json", *args)
    assert done.code == 0, done.all
    found = json.loads(done.out)["runs"][0]["judge_agreement"]
    assert isinstance(found, dict)
    return found


def rows(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def test_the_opinion_of_each_judge_is_stored(edison: Edison, panel: Folder) -> None:
    assert edison(panel, "run").code == 0
    kept = rows(
        panel,
        "select judge, criterion, raw, score, reason from judge_scores where case_id = '03' "
        "order by judge, criterion",
    )
    assert kept == [
        ("mild", "Brevity", 3.0, 0.6, "so"),
        ("mild", "Warmth", 4.0, 0.8, "so"),
        ("strict", "Brevity", 3.0, 0.6, "so"),
        ("strict", "Warmth", 3.0, 0.6, "so"),
    ]
    explained = json.loads(edison(panel, "explain", "03@small", "--json").out)
    assert {(o["judge"], o["criterion"]): o["score"] for o in explained["judge_scores"]} == {
        (judge, criterion): score for judge, criterion, _, score, _ in kept
    }


def test_a_run_tells_how_far_its_judges_agree(edison: Edison, panel: Folder) -> None:
    found = agreement_of(edison, panel)
    assert found["judges"] == ["mild", "strict"]
    assert found["same_calls"] == []
    assert (found["answers"], found["cases"], found["missing"]) == (CASES, CASES, 0)
    assert found["alpha"]["low"] < found["alpha"]["estimate"] < found["alpha"]["high"] < 1
    assert found["raw_agreement"] == pytest.approx((CASES - 1) / (2 * CASES))
    assert found["icc_one_judge"]["estimate"] < found["icc_panel"]["estimate"]
    kappas = {entry["criterion"]: entry["kappa"]["estimate"] for entry in found["criteria"]}
    assert 0 < kappas["Warmth"] < 1
    # A point of five on Warmth, three of five on Brevity of one case, each with half the weight.
    gap = (0.2 + 0.6 / CASES) / 2
    assert found["severity"]["mild"] == pytest.approx(gap / 2)
    assert found["severity"]["strict"] == pytest.approx(-gap / 2)


@pytest.mark.nightly
def test_cases_on_which_judges_are_far_apart_are_listed(edison: Edison, panel: Folder) -> None:
    found = agreement_of(edison, panel)
    (apart,) = found["apart"]
    assert (apart["case"], apart["criterion"]) == ("00", "Brevity")
    assert apart["scores"] == {"mild": 0.6, "strict": 0.0}
    assert found["cases_apart"] == 1
    shown = edison(panel, "status", "latest").out
    assert (
        "  2 judges, they differ by 50+ points on 1 of 12 cases (listed below). "
        "Judge mild is 13 points more generous than the others. "
        "Judge strict is 13 points stricter than the others.\n"
    ) in shown
    assert "    disagreement: 00@small Brevity: mild 60, strict 0\n" in shown
    assert "Krippendorff's alpha" in shown


def test_below_ten_cases_there_is_no_error_bar(edison: Edison, panel: Folder) -> None:
    found = agreement_of(edison, panel, "--limit", "9")
    assert found["alpha"]["low"] is None
    assert found["sentences"][-1] == "9 of the 10 cases that an error bar needs."


def test_judges_that_always_say_the_same_have_no_agreement_to_compute(
    edison: Edison, panel: Folder
) -> None:
    for judge in ("strict", "mild"):
        line = {"match": "", "text": verdict(4, 4)}
        panel.write(f"{judge}.jsonl", json.dumps(line) + "\n")
    found = agreement_of(edison, panel)
    assert found["alpha"]["estimate"] is None
    assert found["raw_agreement"] == 1
    assert found["sentences"][1] == (
        "Agreement is not computable: no variation. Equal judgments: 100%."
    )


def test_a_judgment_that_is_missing_is_kept_with_its_reason(edison: Edison, panel: Folder) -> None:
    lines = panel.read("mild.jsonl").splitlines()
    lines[0] = json.dumps({"match": "Person 00", "text": verdict(9, 3)})
    lines[1] = json.dumps({"match": "Person 01", "text": "I like it"})
    panel.write("mild.jsonl", "\n".join(lines) + "\n")
    found = agreement_of(edison, panel)
    assert found["missing"] == 1, "half of the weights is enough for a judge's score"
    assert found["icc_one_judge"] is None
    kept = rows(
        panel,
        "select case_id, criterion, missing from judge_scores where score is null order by 1, 2",
    )
    assert kept == [
        ("00", "Warmth", "out_of_range"),
        ("01", "Brevity", "judge_error"),
        ("01", "Warmth", "judge_error"),
    ]


@pytest.mark.nightly
def test_two_names_for_one_call_are_no_two_judges(edison: Edison, panel: Folder) -> None:
    panel.edit("models.yaml", "params: {temperature: 0.2}", "params: {temperature: 0.1}")
    panel.edit("models.yaml", "file: mild.jsonl", "file: strict.jsonl")
    found = agreement_of(edison, panel)
    assert found["same_calls"] == [["mild", "strict"]]
    said = "mild and strict are the same call: their agreement means nothing."
    assert said in edison(panel, "status", "latest").out


def test_one_judge_has_nobody_to_agree_with(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "run", "--json")
    assert json.loads(done.out)["runs"][0]["judge_agreement"] is None
    assert rows(mini, "select count(*) from judge_score") == [(4,)]
    assert "judges" not in edison(mini, "status", "latest").out


def told(found: Any) -> Any:
    """Return what a run tells without its own name and times; lists in whatever order."""
    if isinstance(found, dict):
        left_out = {"run_id", "created_at", "finished_at", "wall_s", "calls", "cost_microusd"}
        return {key: told(value) for key, value in found.items() if key not in left_out}
    if isinstance(found, list):
        return sorted((told(value) for value in found), key=lambda each: json.dumps(each))
    return found


@pytest.mark.nightly
def test_the_order_of_cases_and_judges_changes_no_number(edison: Edison, panel: Folder) -> None:
    panel.write(
        "third.jsonl", panel.read("strict.jsonl").replace('\\"score\\": 2', '\\"score\\": 3')
    )
    panel.edit(
        "models.yaml",
        "judge: {",
        "third: {provider: sim, model: script, options: {file: third.jsonl}}\njudge: {",
    )
    panel.edit(HELLO, "[strict, mild]", "[strict, mild, third]")
    first = edison(panel, "run", "--json")
    assert first.code == 0, first.all
    (one,) = json.loads(first.out)["runs"]
    shown = edison(panel, "status", "latest", "--slices").out.splitlines()
    lines = panel.read("datasets/names.jsonl").splitlines(keepends=True)
    panel.write("datasets/names.jsonl", "".join(lines[7:] + lines[6::-1]))
    panel.edit(HELLO, "[strict, mild, third]", "[third, mild, strict]")
    second = edison(panel, "run", "--json")
    assert second.code == 0, second.all
    (other,) = json.loads(second.out)["runs"]
    assert one["run_id"] != other["run_id"]
    assert one["judge_agreement"]["alpha"]["estimate"] is not None
    assert told(one) == told(other)
    again = edison(panel, "status", "latest", "--slices").out.splitlines()
    skipped = ("run ", "cost", "calls", one["run_id"], other["run_id"])

    def numbers(text: list[str]) -> list[str]:
        return [line for line in text if not any(word in line for word in skipped)]

    assert numbers(shown) == numbers(again)
    assert len(numbers(shown)) > 5
