from __future__ import annotations

import statistics
from random import Random

import pytest

from benchmarks.sim import NAMES, Case, grade
from edison_ci.simulator.assignment import Task, known_cases
from edison_ci.simulator.judge import CEILING, Criterion, pairwise, score, task_of
from edison_ci.simulator.writing import Exhibit
from tests.simulator.conftest import TASKS, example, written
from tests.simulator.test_generator import HOSTILE

RUBRICS = {name: [criterion for criterion, _ in example(name).criteria] for name in NAMES}


def faultless(name: str) -> list[tuple[Case, str]]:
    return [
        (Case(case.id, dict(case.inputs), case.expected), written(case))
        for case in known_cases(TASKS[name])
    ]


@pytest.mark.parametrize("name", NAMES)
def test_faultless_answers_average_at_most_97_points(name: str) -> None:
    project = example(name)
    points = [
        100 * grade(project, case, output, seed).composite
        for case, output in faultless(name)
        for seed in range(3)
    ]
    assert 85 < statistics.fmean(points) <= 97


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_noise_does_not_raise_the_ceiling(noise: float) -> None:
    case, output = faultless("customer-support")[0]
    exhibit = Exhibit(Task.SUPPORT, case.inputs, output)
    rubric = RUBRICS["customer-support"]
    means = [
        statistics.fmean(
            s.score / 5 for s in score(exhibit, rubric, Random(n), noise=noise).values()
        )
        for n in range(400)
    ]
    assert statistics.fmean(means) <= CEILING + 0.01


def test_noise_scatters_the_scores() -> None:
    case, output = faultless("customer-support")[0]
    exhibit = Exhibit(Task.SUPPORT, case.inputs, output)

    def spread(noise: float) -> float:
        rubric = [Criterion("Accuracy", maximum=100)]
        scores = (score(exhibit, rubric, Random(n), noise=noise) for n in range(300))
        return statistics.pstdev(given["Accuracy"].score for given in scores)

    assert spread(0.0) < spread(0.05) < spread(0.2)


def test_scores_are_reproducible() -> None:
    case, output = faultless("code-generation")[0]
    exhibit = Exhibit(Task.CODE, case.inputs, output)
    rubric = RUBRICS["code-generation"]
    assert score(exhibit, rubric, Random(3)) == score(exhibit, rubric, Random(3))


@pytest.mark.parametrize("name", NAMES)
def test_every_criterion_of_the_examples_is_scored_with_a_reason(name: str) -> None:
    for case, output in faultless(name)[::9]:
        given = score(Exhibit(TASKS[name], case.inputs, output), RUBRICS[name], Random(1))
        assert set(given) == {criterion.name for criterion in RUBRICS[name]}
        assert all(0 <= s.score <= 5 and s.reason for s in given.values())


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.0, 3.0), (0.0, 10.0), (0.0, 100.0), (1.0, 7.0), (-2.0, 2.0)]
)
def test_scores_stay_on_their_scale(low: float, high: float) -> None:
    case, output = faultless("customer-support")[0]
    exhibit = Exhibit(Task.SUPPORT, case.inputs, output)
    criterion = Criterion("Accuracy", minimum=low, maximum=high)
    scores = [
        score(exhibit, [criterion], Random(n), noise=0.4)["Accuracy"].score for n in range(99)
    ]
    assert low <= min(scores) < max(scores) <= high


def test_lower_can_be_better() -> None:
    case, output = faultless("customer-support")[0]
    exhibit = Exhibit(Task.SUPPORT, case.inputs, output)
    criterion = Criterion("Accuracy", lower_is_better=True)
    assert score(exhibit, [criterion], Random(1), noise=0)["Accuracy"].score < 1


@pytest.mark.parametrize(
    ("name", "better"),
    [("Kindness", "empathy"), ("Shortness", "brief"), ("Policy compliance", "policy_only")],
)
def test_a_renamed_criterion_is_understood_by_its_words(name: str, better: str) -> None:
    case = known_cases(Task.SUPPORT)[-1]
    criterion = Criterion(name, "How good is the reply in this respect?")

    def mean(output: str) -> float:
        exhibit = Exhibit(Task.SUPPORT, case.inputs, output)
        scores = (score(exhibit, [criterion], Random(n))[name].score for n in range(60))
        return statistics.fmean(scores)

    assert mean(written(case)) > mean(written(case, without=better)) + 0.5


def test_an_unknown_task_and_criterion_get_sensible_scores() -> None:
    criteria = [
        Criterion("Warmth", "Sounds friendly and warm."),
        Criterion("Brevity", "One short sentence only."),
        Criterion("Relevance", "Is about what was asked."),
        Criterion("Oddness", "Something that nobody has thought of before."),
    ]

    def mean(output: str) -> dict[str, float]:
        exhibit = Exhibit(task_of({"name": "Ada"}), {"name": "Ada Lovelace"}, output)
        runs = [score(exhibit, criteria, Random(n)) for n in range(40)]
        return {c.name: statistics.fmean(run[c.name].score for run in runs) for c in criteria}

    good = mean("Hello Ada Lovelace, a warm welcome, lovely to see you.")
    poor = mean("Number " * 400)
    assert all(good[name] > poor[name] for name in good)
    assert mean("")["Warmth"] == pytest.approx(0, abs=0.3)


def test_the_task_is_known_by_the_inputs() -> None:
    assert [task_of(example(name).cases[0].inputs) for name in NAMES] == list(TASKS.values())
    assert task_of({}) is Task.OTHER


# --- pairwise ------------------------------------------------------------------------------------


def pairs() -> list[tuple[Exhibit, Exhibit]]:
    made = []
    for case in known_cases(Task.SUPPORT)[:60]:
        good = Exhibit(Task.SUPPORT, case.inputs, written(case))
        poor = Exhibit(Task.SUPPORT, case.inputs, written(case, without="fact"))
        made.append((good, poor))
    return made


def wins(shown: list[tuple[Exhibit, Exhibit]], **options: float) -> float:
    """Return the share of wins of the answer shown first, a tie being half of one."""
    worth = {"first": 1.0, "tie": 0.5, "second": 0.0}
    rubric = RUBRICS["customer-support"]
    given = [pairwise(pair, rubric, Random(n), **options) for n, pair in enumerate(shown)]
    assert all(preference.reason for preference in given)
    return statistics.fmean(worth[preference.winner] for preference in given)


def test_the_better_answer_wins_in_either_place() -> None:
    assert wins(pairs()) > 0.75
    assert wins([(poor, good) for good, poor in pairs()]) < 0.25


def test_equal_answers_are_even_without_bias() -> None:
    equal = [(good, good) for good, _ in pairs()] * 5
    assert wins(equal) == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize("bias", [-0.3, 0.3])
def test_the_place_counts_as_configured(bias: float) -> None:
    equal = [(good, good) for good, _ in pairs()] * 5
    assert wins(equal, position_bias=bias) == pytest.approx(0.5 + bias, abs=0.08)


def test_two_equal_answers_are_sometimes_a_tie() -> None:
    good, _ = pairs()[0]
    rubric = RUBRICS["customer-support"]
    winners = [pairwise((good, good), rubric, Random(n)).winner for n in range(200)]
    assert {"first", "second", "tie"} == set(winners)


# --- hostile texts -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_answers_and_inputs_are_judged(text: str) -> None:
    rubric = [Criterion("Empathy"), Criterion("Odd thing", "a description")]
    strange: list[dict[str, object]] = [
        {},
        {"message": 3, "brief": None, "document": [], "task": {}, "function": 1},
        {"message": text, "policy": text, "brief": text, "document": text, "task": text},
    ]
    for task in Task:
        for inputs in strange:
            exhibit = Exhibit(task, inputs, text)  # type: ignore[arg-type]  # on purpose
            given = score(exhibit, rubric, Random(1))
            assert all(0 <= s.score <= 5 for s in given.values())
