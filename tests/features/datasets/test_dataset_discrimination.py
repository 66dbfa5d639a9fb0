"""edison dataset health: which cases tell models apart, and which are dead weight."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests import item_bank

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily


def measured(edison: Edison, folder: Folder, *, repeats: int = 2, **options: int) -> dict[str, Any]:
    item_bank.build(folder, **options)
    assert edison(folder, "run", "--yes", "--repeats", str(repeats)).code == 0
    return told(edison, folder)


def told(edison: Edison, folder: Folder) -> dict[str, Any]:
    done = edison(folder, "dataset", "health", "--json")
    assert done.code == 0, done.all
    found = json.loads(done.out)["experiments"][0]["discrimination"]
    assert isinstance(found, dict)
    return found


def test_known_cases_are_found(edison: Edison, folder: Folder) -> None:
    found = measured(edison, folder)
    verdicts = {each["case"]: each["verdict"] for each in found["cases"]}
    by_kind = {
        kind: [verdict for case, verdict in verdicts.items() if case.startswith(kind)]
        for kind in ("good", "easy", "coin", "wrong")
    }
    assert by_kind["easy"] == ["dead"] * item_bank.EASY
    assert by_kind["wrong"] == ["reversed"]
    assert by_kind["good"].count("separates") >= 12, by_kind
    assert "separates" not in by_kind["coin"] and "reversed" not in by_kind["coin"]
    assert (found["subjects"], found["answers"], found["enough"]) == (10, 20, True)
    assert found["simulated"] is True
    assert sum(found["counts"].values()) == len(item_bank.names())


def test_every_number_says_how_it_was_made(edison: Edison, folder: Folder) -> None:
    found = measured(edison, folder)
    best = found["cases"][0]
    assert best["case"].startswith("good")
    assert -1 <= best["low"] < best["estimate"] < best["high"] <= 1
    assert best["p"] <= best["p_adjusted"] <= 0.1
    assert (best["n"], best["subjects"], best["method"]) == (20, 10, "point-biserial")
    assert (best["level"], found["family"]) == (0.95, 21)
    dead = [each for each in found["cases"] if each["verdict"] == "dead"]
    assert {each["estimate"] for each in dead} == {None}
    estimates = [e["estimate"] for e in found["cases"] if e["estimate"] is not None]
    assert estimates == sorted(estimates, reverse=True)


@pytest.mark.nightly
def test_the_terminal_lists_the_best_and_the_worst(edison: Edison, folder: Folder) -> None:
    measured(edison, folder)
    shown = edison(folder, "dataset", "health")
    lines = shown.out.splitlines()
    heads = [line for line in lines if "tell models apart" in line]
    assert heads[0].endswith("(20 answers, of 10 prompt versions with models)  simulated")
    best = [line for line in lines if line.strip().startswith("best")]
    worst = [line for line in lines if line.strip().startswith("worst")]
    assert len(best) == len(worst) == 5
    assert all("good-" in line and "tells apart" in line for line in best)
    assert "wrong-0" in worst[-1] and "reversed" in worst[-1]
    assert (
        "1 case reversed: models that do well elsewhere fail here; check the expected" in shown.out
    )
    assert "    easy-0, easy-1, easy-2, easy-3, easy-4" in lines


def test_few_models_are_too_few_to_tell(edison: Edison, folder: Folder) -> None:
    found = measured(edison, folder, models=4)
    assert (found["enough"], found["subjects"], found["cases"]) == (False, 4, [])
    said = edison(folder, "dataset", "health").err
    assert "too few answers to know which cases tell models apart" in said
    assert "4 prompt versions with a model, and at least 5 are needed" in said


def test_ten_equal_answers_do_not_show_that_a_case_is_dead(edison: Edison, folder: Folder) -> None:
    found = measured(edison, folder, repeats=1)
    easy = [each for each in found["cases"] if each["case"].startswith("easy")]
    assert {each["verdict"] for each in easy} == {"too_few"}


@pytest.mark.nightly
def test_an_edited_case_begins_anew(edison: Edison, folder: Folder) -> None:
    before = measured(edison, folder)
    assert any(each["case"] == "wrong-0" for each in before["cases"])
    folder.edit("datasets/names.jsonl", '"expected": "wrong-0"', '"expected": "Hi."')
    after = told(edison, folder)
    assert not any(each["case"] == "wrong-0" for each in after["cases"])


@pytest.mark.nightly
def test_an_answer_that_several_runs_reuse_counts_once(edison: Edison, folder: Folder) -> None:
    before = measured(edison, folder)
    assert edison(folder, "run", "--yes", "--repeats", "2").code == 0
    assert told(edison, folder) == before


def test_repeats_are_further_answers_of_the_same_subject(edison: Edison, folder: Folder) -> None:
    item_bank.build(folder, models=6)
    assert edison(folder, "run", "--yes", "--repeats", "3").code == 0
    found = told(edison, folder)
    assert (found["subjects"], found["answers"]) == (6, 18)
    assert {each["n"] for each in found["cases"]} == {18}
    best = found["cases"][0]
    assert best["high"] - best["low"] > 0.3, "three equal answers are not three models"
