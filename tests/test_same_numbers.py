"""The order of cases, judges, criteria and rows changes no number, word or decision."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.gates import Graded, Results
from edison_ci.execute.grading import composite_of
from edison_ci.judges.panel import Combine, grade_rubric
from edison_ci.numeric import fixed
from edison_ci.records import CellStatus
from edison_ci.results.components import component_totals
from edison_ci.results.judges import panel_agreement
from edison_ci.results.leaderboard import CaseFilter, board_of
from edison_ci.results.rollups import rollups_of
from edison_ci.results.scores import compare_with_base, scores_of
from edison_ci.results.slices import breakdown_of
from edison_ci.stats.agreement import krippendorff, panel_score, severity_of
from edison_ci.stats.arrays import dot, grouped, variance_of
from edison_ci.stats.gates import decide
from edison_ci.stats.paired import Pairs
from edison_ci.stats.pairwise import BothOrders, win_rate
from edison_ci.stats.scores import mean_interval
from edison_ci.stats.sentences import (
    agreement_sentence,
    gate_sentence,
    judges_sentence,
    win_sentence,
)
from edison_ci.stats.slices import Moments
from edison_ci.stats.value import Contender, recommend
from edison_ci.store.cells import Component
from edison_ci.store.database import open_database
from edison_ci.store.judgments import JudgeScoreRow, write_judge_scores
from tests.judges.bench import criterion, rubric
from tests.judges.test_panel import judge_score

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

SCORE = st.integers(0, 20).map(lambda step: step / 20)
"""Sums of these have noise in any order but one, and their means are often half a digit."""
SEED = st.integers(0, 1_000)
GATES = (
    {"metric": "composite", "no_worse_than": "base"},
    {"metric": "composite", "at_least": 0.6},
    {"metric": "pass_rate", "at_least": 0.5},
)


def shuffled(values: Sequence[T], seed: int) -> list[T]:
    return Random(seed).sample(values, len(values))


def told(value: Any) -> Any:
    """Return a value with its numbers as they could be written, to more digits than any is."""
    if isinstance(value, float):
        return fixed(value, 9)
    if isinstance(value, dict):
        return {key: told(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [told(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: told(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


# --- one answer -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.3, 0.7, 1, 2.2]), SCORE), min_size=1), SEED)
def test_the_composite_of_a_cell(weighted: list[tuple[float, float]], seed: int) -> None:
    components = [
        Component(f"p{i}", "check", s, True, w, CellStatus.OK) for i, (w, s) in enumerate(weighted)
    ]
    assert composite_of(components) == composite_of(shuffled(components, seed))


@given(
    st.lists(st.tuples(SCORE, SCORE, SCORE), min_size=1, max_size=5),
    st.sampled_from(("mean", "median", "trimmed")),
    st.integers(1, 20).map(lambda step: step / 20),
    SEED,
)
def test_the_grade_of_a_panel(
    said: list[tuple[float, float, float]], combine: Combine, pass_at: float, seed: int
) -> None:
    names = ("Tone", "Facts", "Form")
    criteria = [criterion(n, w, min=0.3) for n, w in zip(names, (0.1, 0.2, 0.7), strict=True)]
    judge_scores = [
        judge_score(f"j{i}", **dict(zip(names, s, strict=True))) for i, s in enumerate(said)
    ]
    found = grade_rubric(rubric(*criteria, pass_at=pass_at), judge_scores, combine)
    again = grade_rubric(
        rubric(*shuffled(criteria, seed), pass_at=pass_at), shuffled(judge_scores, seed), combine
    )
    assert (found.composite, found.passed, found.coverage) == (
        again.composite,
        again.passed,
        again.coverage,
    )
    by_name = {one.name: (one.score, one.passed, one.disputed) for one in again.criteria}
    assert {one.name: (one.score, one.passed, one.disputed) for one in found.criteria} == by_name


# --- many answers ---------------------------------------------------------------------------------


@given(st.lists(SCORE, min_size=1, max_size=24), SEED)
def test_a_score_and_its_interval(scores: list[float], seed: int) -> None:
    other = shuffled(scores, seed)
    found = mean_interval(scores)
    assert found is not None and found == mean_interval(other)
    sliced, again = Moments.of(scores).interval(), Moments.of(other).interval()
    assert sliced is not None and sliced.method == found.method
    assert told(sliced) == told(again) == told(found)


@given(st.lists(st.tuples(SCORE, SCORE), min_size=2, max_size=14), SEED)
def test_the_decision_of_a_gate(cases: list[tuple[float, float]], seed: int) -> None:
    def decided(rows: list[tuple[float, float]]) -> Any:
        base, head = zip(*rows, strict=True)
        return decide(Pairs.of(base, head), rng=np.random.default_rng(1))

    found, again = decided(cases), decided(shuffled(cases, seed))
    assert found == again
    assert gate_sentence(found) == gate_sentence(again)


@given(st.lists(st.tuples(SCORE, st.sampled_from("abc")), min_size=2, max_size=24), SEED)
def test_sums_by_cluster(cases: list[tuple[float, str]], seed: int) -> None:
    def summed(rows: list[tuple[float, str]]) -> Any:
        values, clusters = zip(*rows, strict=True)
        array = np.array(values)
        groups = grouped(array, clusters)
        return groups.sums.tolist(), groups.sizes.tolist(), variance_of(array), dot(array, array)

    assert summed(cases) == summed(shuffled(cases, seed))


@given(st.lists(st.tuples(SCORE, SCORE, SCORE), min_size=2, max_size=9), SEED)
def test_what_judges_agree_on(table: list[tuple[float, float, float]], seed: int) -> None:
    """Cases and judges in another order are the same panel; below ten cases nothing is drawn."""
    columns = shuffled(range(3), seed)
    names = ["a", "b", "c"]
    other = [tuple(row[at] for at in columns) for row in shuffled(table, seed)]

    def said(rows: Sequence[Sequence[float]], judges: list[str]) -> Any:
        found = [panel_score(row) for row in rows]
        biases = dict(zip(judges, severity_of(rows, 3), strict=True))
        rng = np.random.default_rng(1)
        return (
            {name: told(bias) for name, bias in biases.items()},
            judges_sentence(
                names,
                [biases[n] for n in names],
                apart=sum(case.flagged for case in found),
                of=len(rows),
            ),
            agreement_sentence(krippendorff(rows, rng=rng)),
            sorted(told(case)["value"] for case in found),
        )

    assert said(table, names) == said(other, [names[at] for at in columns])


@given(st.lists(st.tuples(SCORE, SCORE), min_size=2, max_size=14), SEED)
def test_who_is_preferred(values: list[tuple[float, float]], seed: int) -> None:
    cases = [BothOrders(*both) for both in values]
    found, again = (
        win_rate(rows, rng=np.random.default_rng(1)) for rows in (cases, shuffled(cases, seed))
    )
    assert win_sentence(found) == win_sentence(again)
    assert told(found.order) == told(again.order)
    assert (found.preference, told(found.value)) == (again.preference, told(again.value))


@given(st.lists(st.lists(SCORE, min_size=6, max_size=6), min_size=2, max_size=4), SEED)
def test_which_model_is_recommended(models: list[list[float]], seed: int) -> None:
    """Models whose scores are the same in another order are equally good: the name decides."""
    names = "abcd"[: len(models)]
    contenders = [Contender(n, s, 1.0, ()) for n, s in zip(names, models, strict=True)]
    counterpart = Contender("z", shuffled(models[0], seed), 1.0, ())
    order = shuffled(range(6), seed)
    other = [
        Contender(c.name, [c.case_scores[at] for at in order], c.cost, ())
        for c in shuffled([*contenders, counterpart], seed)
    ]
    found, again = recommend([*contenders, counterpart]), recommend(other)
    assert (found.value, found.best, [m.name for m in found.models]) == (
        again.value,
        again.best,
        [m.name for m in again.models],
    )
    assert found.best != "z", "a tie goes to the first name"


# --- a results file -------------------------------------------------------------------------------


def cells_of(rows: Sequence[tuple[float, float, float]]) -> list[Graded]:
    """Return a case for each row: three repeats of two models on both sides, the head lower."""
    return [
        Graded(
            f"case-{number:02}",
            score if side == "base" else score / 2,
            side,
            repeat,
            model=model,
            passed=score >= 0.5,
            components=(
                Component("Tone", "criterion", score, None, 0.3, CellStatus.OK),
                Component("Facts", "criterion", 1 - score, None, 0.7, CellStatus.OK),
            ),
        )
        for number, row in enumerate(rows)
        for side in ("base", "head")
        for model in ("small", "large")
        for repeat, score in enumerate(row if model == "small" else row[::-1])
    ]


def judge_scores_on(cell: Graded) -> Iterator[JudgeScoreRow]:
    for judge, less in (("mild", 0.0), ("strict", 0.15), ("third", 0.1)):
        for name in ("Tone", "Facts"):
            yield JudgeScoreRow(judge, name, None, max(0.0, (cell.composite or 0.0) - less))


def found_in(cells: Sequence[Graded]) -> dict[str, Any]:
    """Write cells in this order, and return all that is told of them."""
    with (
        TemporaryDirectory() as folder,
        closing(open_database(Path(folder) / "results.db")) as connection,
    ):
        results = Results.of(connection)
        for cell in cells:
            results.add(cell)
        for cell in cells:
            write_judge_scores(
                connection, [(results.cell_id(cell), o) for o in judge_scores_on(cell)]
            )
        rollups_of(connection, results.run_id)(connection)
        connection.execute("update run set status = 'COMPLETED', complete = 1, partial = 0")
        board = board_of(connection, "support-reply", CaseFilter())
        judges = panel_agreement(connection, results.run_id)
        assert board is not None and judges is not None
        decision = results.decide(*GATES)
        components = component_totals(connection, results.run_id, "head")
        return {
            "scores": told(scores_of(connection, results.run_id)),
            "components": {p.name: told(p._asdict()) for p in components},
            "breakdown": told(breakdown_of(connection, results.run_id)),
            "change": told(compare_with_base(connection, results.run_id)),
            "gates": [told(row.as_json()) for row in decision.rows],
            "board": [(row.place[2:], told(row.composite)) for row in board.rows],
            "contrasts": [told(c._asdict()) for c in board.contrasts],
            "judges": [told(judges.as_json()), judges.sentences],
        }


@settings(max_examples=12)
@given(st.lists(st.tuples(SCORE, SCORE, SCORE), min_size=3, max_size=7), SEED)
def test_the_rows_of_a_results_file(rows: list[tuple[float, float, float]], seed: int) -> None:
    cells = cells_of(rows)
    assert found_in(cells) == found_in(shuffled(cells, seed))
