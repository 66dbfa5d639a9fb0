"""What a summary says of people's grades, and when it corrects a score by them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.stats.corrected import random_order
from tests.opened import opened

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

CASES = 60
ORDER = random_order(f"c{i}" for i in range(CASES))


@pytest.fixture
def ran(edison: Edison, mini: Folder) -> Folder:
    """A project of 60 cases after a run whose only grade is the judge's."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.git("init", "-q")
    mini.git("config", "user.email", "ann@example.com")
    assert edison(mini, "run", "-q").code == 0
    return mini


def say(folder: Folder, cases: list[str], shift: float, *, thumbs: bool = False) -> None:
    """Let a person grade answers: so much above what the judge says, give or take."""
    noise = random.Random(1)
    with opened(folder.path / ".edison/results.db") as connection:
        for case in cases:
            cell, run_case, request_hash, answer_no, composite, passed = connection.execute(
                "select id, case_id, request_hash, answer_no, composite, passed from cell where "
                "case_id = ?",
                (case,),
            ).fetchone()
            score = min(1.0, max(0.0, composite + shift + noise.uniform(-0.05, 0.05)))
            score = float(passed) if thumbs else score
            connection.execute(
                "insert into manual_grade (cell_id, experiment, case_id, request_hash, "
                "answer_no, actor, "
                "scale, score, passed, flagged, seed, graded_at) "
                "values (?, 'hello', ?, ?, ?, 'ann', ?, ?, ?, 0, 0, 'now')",
                (cell, run_case, request_hash, answer_no, "thumbs" if thumbs else "0-1", score,
                 int(score >= 0.5)),
            )  # fmt: skip


def human(edison: Edison, folder: Folder) -> dict[str, Any]:
    (run,) = json.loads(edison(folder, "status", "latest", "--json").out)["runs"]
    assert isinstance(run["human"], dict)
    return {"composite": run["composite"]["estimate"], **run["human"]}


def test_a_run_that_nobody_graded_says_nothing_of_people(edison: Edison, ran: Folder) -> None:
    (run,) = json.loads(edison(ran, "status", "latest", "--json").out)["runs"]
    assert run["human"] is None


def test_people_s_grades_take_the_place_of_automatic_ones_and_both_are_shown(
    edison: Edison, ran: Folder
) -> None:
    say(ran, ORDER[:30], -1.0)  # all of these are worthless
    told = human(edison, ran)
    (model,) = told["models"]
    assert (told["answers"], told["of"], told["people"]) == (30, CASES, 1)
    assert model["graded_cases"] == 30
    assert model["composite"]["estimate"] < 0.6 * told["composite"]
    assert model["composite"]["n"] == CASES
    assert model["pass_rate"]["estimate"] <= 0.5
    shown = edison(ran, "status", "latest").out
    assert "30 of 60 answers graded by 1 person" in shown
    assert "with human grades instead of automatic ones" in shown


def test_a_random_sample_corrects_the_score(edison: Edison, ran: Folder) -> None:
    say(ran, ORDER[:30], -0.2)
    told = human(edison, ran)
    (found,) = told["models"][0]["corrections"]
    assert (found["applies"], found["n"], found["of"]) == (True, 30, "score")
    assert found["method"] == "prediction-powered mean"
    assert found["automatic"] == pytest.approx(told["composite"])
    assert found["low"] <= told["composite"] - 0.2 <= found["high"]
    assert found["sentence"].startswith(f"Judge says {100 * told['composite']:.0f}. Checked agai")
    assert "30 human labels it is 20 too generous: corrected" in found["sentence"]
    assert found["sentence"] in edison(ran, "status", "latest").out


def test_labels_that_were_picked_correct_nothing(edison: Edison, ran: Folder) -> None:
    say(ran, ORDER[30:55], -0.2)
    (found,) = human(edison, ran)["models"][0]["corrections"]
    assert (found["applies"], found["estimate"]) == (False, None)
    assert found["sentence"] == (
        "No correction: of 25 graded cases 25 were picked, and only 0 are a random sample; "
        "20 are needed: edison grade."
    )


def test_too_few_labels_stand_alone(edison: Edison, ran: Folder) -> None:
    say(ran, ORDER[:12], -0.2)
    (found,) = human(edison, ran)["models"][0]["corrections"]
    assert (found["applies"], found["n"]) == (False, 12)
    assert found["sentence"].endswith("labels alone: fewer than 20 labels.")


def test_thumbs_correct_the_pass_rate(edison: Edison, ran: Folder) -> None:
    say(ran, ORDER[:30], 0.0, thumbs=True)
    (found,) = human(edison, ran)["models"][0]["corrections"]
    assert (found["of"], found["applies"], found["n"]) == ("pass_rate", True, 30)
    assert found["sentence"].startswith("Pass rate: judge says")


def test_error_rates_on_labels_of_other_answers_correct_the_judge_s_passes(
    edison: Edison, ran: Folder
) -> None:
    with opened(ran.path / ".edison/results.db") as connection:
        connection.execute(
            "insert into judge_approval select id, '[\"judge\"]', 1, '', 0.7, 0.6, 60, 60, 0.6, "
            "40, 36, 20, 14 from run"
        )
    told = human(edison, ran)
    (found,) = told["models"][0]["corrections"]
    assert (told["answers"], found["of"], found["applies"]) == (0, "rubric_pass_rate", True)
    assert found["sentence"].startswith("The judges pass ")
    assert (
        "On 60 human labels they find 90% of what passes and 70% of what fails"
        in (found["sentence"])
    )
    with opened(ran.path / ".edison/results.db") as connection:
        connection.execute("update judge_approval set fails = 9, true_fails = 9")
    (found,) = human(edison, ran)["models"][0]["corrections"]
    assert (found["applies"], found["estimate"]) == (False, None)
    assert "is not corrected: fewer than 10 labels of a kind" in found["sentence"]


def test_a_score_of_checks_alone_is_not_said_to_be_a_judge_s(
    edison: Edison, mini: Folder, ran: Folder
) -> None:
    text = mini.read("experiments/hello.yaml").replace("rubric: rubrics/tone.yaml\n", "")
    mini.write("experiments/hello.yaml", text.replace("judges: {pointwise: [judge]}\n", ""))
    assert edison(ran, "run", "-q").code == 0
    say(ran, ORDER[:30], -0.2)
    (found,) = human(edison, ran)["models"][0]["corrections"]
    assert found["sentence"].startswith("Checks say 100.")
