"""Two choices of stored cells are compared as STATS 15 says."""

from __future__ import annotations

import json
import math
import random
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from scipy.stats import ttest_ind

from docs.gates import Answer, Graded, Results
from edison_ci.config.gates import Gate
from edison_ci.errors import UsageError
from edison_ci.records import Move, Side
from edison_ci.results.comparison import ComparisonEstimate, ComparisonSettings, compare_choices
from edison_ci.results.comparison_sample import CellChoice
from edison_ci.results.leaderboard import CaseFilter, Scores, contrast_of
from edison_ci.results.metrics import metric_of
from edison_ci.results.samples import SIDES, TwoSidedSample
from edison_ci.results.scores import compare_with_base
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Sequence


class Two:
    """Two runs in one file."""

    def __init__(self, results: Results) -> None:
        self.connection = results.connection
        self.a, self.b = (Results.of(results.connection, name) for name in ("run-a", "run-b"))

    def fill(self, a: Sequence[float | None], b: Sequence[float | None], **more: Any) -> Two:
        for run, scores in ((self.a, a), (self.b, b)):
            for index, score in enumerate(scores):
                status = "ok" if score is not None else "error"
                passed = None if score is None else score >= 0.5
                run.add(Graded(f"c{index:03}", score, status=status, passed=passed, **more))
        return self

    def choice(self, name: str, **more: Any) -> CellChoice:
        return CellChoice(name, find_run(self.connection, name), **more)

    def compare(self, **more: Any) -> ComparisonEstimate:
        return compare_choices(
            self.connection, self.choice("run-a"), self.choice("run-b"), ComparisonSettings(**more)
        )


def counts(found: ComparisonEstimate) -> tuple[int, ...]:
    return tuple(len(found.moved[move]) for move in Move)


@pytest.fixture
def two(results: Results) -> Two:
    return Two(results)


def test_a_clear_gain_is_b_better_and_lists_what_it_fixed(two: Two) -> None:
    found = two.fill([0.4] * 20, [0.4] * 8 + [0.8] * 12).compare()
    assert (found.verdict, found.n, counts(found)) == ("b_better", 20, (0, 12, 0, 0))
    assert found.estimate == pytest.approx(0.24)
    assert found.moved[Move.FIXED][0].passed == (False, True)
    assert found.sentence.startswith("B is better: from A to B +24.0 points (likely +")
    assert found.sentence.endswith("on the same 20 cases.")
    assert found.p is not None and found.p < 0.001


def test_the_other_way_round_the_sign_flips(two: Two) -> None:
    two.fill([0.4] * 20, [0.4] * 8 + [0.8] * 12)
    forth = two.compare()
    back = compare_choices(
        two.connection, two.choice("run-b"), two.choice("run-a"), ComparisonSettings()
    )
    assert (back.verdict, counts(back)) == ("a_better", (12, 0, 0, 0))
    assert back.estimate == pytest.approx(-(forth.estimate or 0))
    assert back.p == forth.p


def test_few_cases_say_how_many_more_it_takes(two: Two) -> None:
    found = two.fill([0.5, 0.7, 0.6], [0.6, 0.6, 0.6]).compare()
    assert (found.verdict, found.n_more is not None) == ("unclear", True)
    assert found.sentence.startswith("Not yet known: from A to B 0 points")
    assert "more cases would settle it" in found.sentence
    assert "very few cases" in found.notes


def test_tiny_differences_on_many_cases_are_practically_none(two: Two) -> None:
    scores = [0.6 + index % 7 / 50 for index in range(160)]
    found = two.fill(scores, [s + (-1) ** i / 100 for i, s in enumerate(scores)]).compare()
    assert found.verdict == "same"
    assert found.sentence.startswith("No practical difference: at worst ")


def test_the_margin_is_that_of_the_gate(two: Two) -> None:
    two.fill([0.6, 0.7] * 30, [0.61, 0.69] * 30)
    gate = Gate.model_validate({"metric": "composite", "no_worse_than": "base", "margin": "10pp"})
    assert two.compare(gates=(gate,)).margin == pytest.approx(0.1)
    assert two.compare().margin == 0.05


def test_the_same_answers_need_no_statistics(two: Two) -> None:
    for run in (two.a, two.b):
        for index in range(5):
            run.add(Graded(f"c{index}", 0.7, answer=Answer(name=f"answer {index}")))
    found = two.compare()
    assert found.verdict == "same"
    assert "both are the same answers" in found.sentence


def test_too_many_missing_cases_decide_nothing(two: Two) -> None:
    found = two.fill([0.2] * 20, [0.9] * 15 + [None] * 5).compare()
    assert (found.verdict, found.n, found.missing) == ("unclear", 15, 5)
    assert any("5 of 20 cases are missing" in note for note in found.notes)


def test_cases_that_belong_together_count_together(two: Two) -> None:
    two.fill([0.4] * 12, [0.8] * 12)
    clusters = {f"c{index:03}": f"document {index // 6}" for index in range(12)}
    assert two.compare().verdict == "b_better"
    found = two.compare(clusters=clusters)
    assert (found.verdict, "clusters" in found.method) == ("unclear", True)


def test_quarantined_cases_are_left_out(two: Two) -> None:
    two.fill([0.4] * 12, [0.4] * 11 + [1.0])
    assert two.compare(quarantined={"c011"}).n == 11


def test_repeats_of_a_case_are_one_case(two: Two) -> None:
    for repeat in range(3):
        two.fill([0.4] * 10, [0.5] * 10, repeat=repeat)
    assert two.compare().n == 10


def test_different_data_with_much_in_common_is_compared_on_that(two: Two) -> None:
    two.fill([0.4] * 24, [0.8] * 30)
    found = two.compare()
    assert (found.n, found.verdict) == (24, "b_better")
    assert any("6 cases only in B" in note for note in found.notes)


def test_different_data_with_little_in_common_is_compared_unpaired(two: Two) -> None:
    two.fill([0.4, 0.5] * 6, [])
    for index in range(12):
        two.b.add(Graded(f"d{index}" if index else "c000", 0.8 - index % 2 / 10))
    found = two.compare()
    expected = ttest_ind([0.8, 0.7] * 6, [0.4, 0.5] * 6, equal_var=False).pvalue
    assert found.p == pytest.approx(expected)
    assert found.as_json()["difference"]["p"] == found.p
    assert found.sentence.endswith(", unpaired.")
    assert "less sensitive" in found.notes[0]


def test_other_data_without_any_spread_says_so(two: Two) -> None:
    two.fill([0.4] * 12, [])
    for index in range(12):
        two.b.add(Graded(f"d{index}" if index else "c000", 0.8))
    found = two.compare()
    assert found.p == pytest.approx(2 / math.comb(24, 12))
    assert found.sentence.endswith(" All scores of A are equal, and all of B.")


def test_ties_say_what_they_could_hide(two: Two) -> None:
    found = two.fill([0.4, 0.6] * 20, [0.4, 0.6] * 20).compare()
    assert found.sentence.endswith(
        " All 40 differences are 0: up to 8.8% of cases could differ and not have been seen."
    )
    assert found.interval is not None and found.interval.high == pytest.approx(0.088, abs=0.0005)


def test_nothing_in_common_is_refused(two: Two) -> None:
    two.fill([0.4] * 3, [])
    two.b.add(Graded("other", 0.5))
    with pytest.raises(UsageError, match="no case in common"):
        two.compare()


def test_two_prompts_of_one_run_are_set_against_each_other(two: Two) -> None:
    for index in range(12):
        two.a.add(Graded(f"c{index}", 0.4, prompt="short"), Graded(f"c{index}", 0.8, prompt="long"))
    short, long = (two.choice("run-a", prompt=name) for name in ("short", "long"))
    found = compare_choices(two.connection, short, long, ComparisonSettings())
    assert (found.verdict, found.n) == ("b_better", 12)


def test_models_that_only_one_has_are_told(two: Two) -> None:
    two.fill([0.4] * 12, [0.8] * 12)
    two.b.add(Graded("c000", 0.1, model="big"))
    found = two.compare()
    assert found.n == 12
    assert any("only one of the two has big" in note for note in found.notes)


def test_the_file_keeps_its_own_cells(two: Two) -> None:
    two.fill([0.4] * 5, [0.8] * 5)
    two.compare()
    two.compare()
    assert two.connection.execute("select count(*) from main.cell").fetchone() == (10,)


EXPERIMENT: dict[str, Any] = {
    "experiment": "support-reply",
    "prompts": ["prompts/p.md"],
    "checks": [{"check": "words", "max": 5}],
    "judges": {"pointwise": ["judge"], "graders": [{"prompt": "prompts/g.md"}]},
    "rubric": {"path": "rubrics/r.yaml", "weight": 1},
    "safety": {"pii": "off"},
    "gates": [],
}
SNAPSHOT: dict[str, Any] = {
    "experiments/support-reply.yaml": EXPERIMENT,
    "prompts/p.md": ["aa", "none"],
    "prompts/g.md": ["bb", None],
    "rubrics/r.yaml": {"criteria": []},
    "models.yaml: small": [{"model": "small"}, None],
    "models.yaml: judge": [{"model": "judge"}, {}],
    "the price of small": {"in": 1},
    "command line": {"reuse": True},
}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"prompts/p.md": ["cc", "none"]}, None),
        ({"models.yaml: small": [{"model": "other"}, None]}, None),
        ({"the price of small": {"in": 2}}, None),
        ({"command line": {"reuse": False}}, None),
        ({"experiments/support-reply.yaml": {**EXPERIMENT, "gates": [1]}}, None),
        ({"experiments/support-reply.yaml": {**EXPERIMENT, "checks": []}}, "checks"),
        ({"rubrics/r.yaml": {"criteria": [1]}}, "rubric"),
        ({"experiments/support-reply.yaml": {**EXPERIMENT, "objective": "Rhyme."}}, "objective"),
        ({"prompts/g.md": ["cc", None]}, "prompts/g.md"),
        ({"models.yaml: judge": [{"model": "judge"}, {"seed": 1}]}, "models.yaml: judge"),
    ],
)
def test_only_what_makes_grades_must_be_the_same(
    two: Two, change: dict[str, Any], differs: str | None
) -> None:
    two.fill([0.4] * 5, [0.8] * 5)
    a, b = (
        replace(choice, run=replace(choice.run, snapshot=json.dumps(kept)))
        for choice, kept in (
            (two.choice("run-a"), SNAPSHOT),
            (two.choice("run-b"), {**SNAPSHOT, **change}),
        )
    )
    if differs is None:
        assert compare_choices(two.connection, a, b, ComparisonSettings()).n == 5
    else:
        with pytest.raises(UsageError, match=f"not measured alike: {differs} differ"):
            compare_choices(two.connection, a, b, ComparisonSettings())


@pytest.mark.parametrize("shape", ["pass or fail", "scores"])
def test_every_command_has_the_same_p_for_the_same_question(results: Results, shape: str) -> None:
    """Recorded solutions of GSM8K: one system alone solves 209 problems, the other alone 152."""
    base, head = [0.0] * 209 + [1.0] * 152 + [1.0] * 300, [1.0] * 209 + [0.0] * 152 + [1.0] * 300
    if shape == "scores":
        drawn = random.Random(5)
        base = [drawn.random() for _ in range(60)]
        head = [min(1.0, max(0.0, score + drawn.gauss(0.03, 0.1))) for score in base]
    for index, (before, after) in enumerate(zip(base, head, strict=True)):
        results.both(f"c{index:04}", before, after)
    run = find_run(results.connection, results.run_id)
    choices = CellChoice("base", run, Side.BASE), CellChoice("head", run, Side.HEAD)
    compared = compare_choices(results.connection, *choices, ComparisonSettings())
    (row,) = results.decide({"metric": "composite", "no_worse_than": "base"}).rows
    beside = compare_with_base(results.connection, results.run_id)
    cells = TwoSidedSample.of_run(results.connection, results.run_id)
    metric, variants = metric_of(cells, "composite"), cells.common_variants()
    sides = [cells.sample(metric, variants, side) for side in SIDES]
    first, second = (Scores(sample, array("q", [0] * len(sample.cases))) for sample in sides)
    ranked = contrast_of(first, second, CaseFilter())
    assert ranked is not None and beside is not None
    found = {compared.p, row.detail["p_two_sided"], beside.p, ranked.p}
    assert len(found) == 1
    if shape == "pass or fail":
        assert f"{found.pop():.5f}" == "0.00315"
