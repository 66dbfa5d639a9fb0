"""edison leaderboard --recommend: the best value, and honesty about what cannot be shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.planted import Planted, plant

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

MANY, FEW = 300, 12
TIME = "2026-11-14T09:00:00Z"


def close(n: int) -> dict[str, list[float]]:
    """Return two models, the cheap one a point behind and noise of its own."""
    return {
        "large": [0.8 + 0.1 * (i % 2) for i in range(n)],
        "small": [0.79 + 0.1 * (i % 2) + 0.03 * (-1) ** (i // 2) for i in range(n)],
    }


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "leaderboard", "--recommend", *args, "--json")
    assert (done.code, done.err) == (0, ""), done.all
    (advice,) = json.loads(done.out)["experiments"]
    assert isinstance(advice, dict)
    return advice


@pytest.fixture
def many(mini: Folder) -> Folder:
    plant(mini, Planted("r1", TIME, close(MANY)))
    return mini


def test_the_cheapest_that_is_as_good_is_the_best_value(edison: Edison, many: Folder) -> None:
    advice = told(edison, many, "hello")
    assert (advice["most_accurate"], advice["fastest"]) == ("large", "small")
    assert (advice["best_value"], advice["front"]) == ("small", ["large", "small"])
    assert advice["sentences"][0].startswith(
        "Use small: within 5 points of the best (worst plausible -"
    )
    assert advice["sentences"][0].endswith(" at 20% of the cost.")
    small = advice["models"][1]
    assert (small["name"], small["as_good"], small["common"]["n"]) == ("small", True, MANY)
    assert -0.05 < small["worst_plausible"] < 0
    assert advice["doubts"] == []


def test_it_is_shown_with_reasons_and_intervals(edison: Edison, many: Folder) -> None:
    done = edison(many, "leaderboard", "--recommend")
    lines = done.out.splitlines()
    assert lines[0] == "hello  2 models on 300 cases"
    assert lines[1].startswith("most accurate  large  85.0 (84.")
    assert lines[2].startswith("fastest        small  204 ms, p95 204 ms")
    assert lines[3].startswith("best value     small  $0.000088")
    assert lines[5] == "It scores 1.0 points less and saves $0.35 in 1,000 answers."
    assert "on the front, as good" in done.out


def test_too_few_cases_are_said_to_be_too_few(edison: Edison, mini: Folder) -> None:
    plant(mini, Planted("r1", TIME, close(FEW)))
    advice = told(edison, mini)
    assert advice["best_value"] == "large"
    (doubt,) = advice["doubts"]
    assert (doubt["model"], doubt["worse"], doubt["n"]) == ("small", False, FEW)
    assert doubt["n_needed"] > FEW
    said = edison(mini, "leaderboard", "--recommend").out
    assert "Use large: no other model is shown to be within 5 points of it." in said
    assert "Not enough cases to tell whether small is as good as large: -1.0 points" in said
    assert "cases would show that it is within 5 points." in said
    assert "If it is, it would save $0.35 in 1,000 answers. About " in said
    assert doubt["would_save_microusd"] == pytest.approx(352)


def test_a_model_that_is_worse_is_said_to_be_worse(edison: Edison, mini: Folder) -> None:
    scores = close(60)
    scores["small"] = [score - 0.3 for score in scores["small"]]
    plant(mini, Planted("r1", TIME, scores))
    (doubt,) = told(edison, mini)["doubts"]
    assert doubt["worse"] and doubt["would_save_microusd"] is None
    assert (
        "small is shown to be worse than large: -31.0 points"
        in edison(mini, "leaderboard", "--recommend").out
    )


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (["--min-score", "84.5"], "small, because its score is 84.0"),
        (["--min-score", "0.845"], "small, because its score is 84.0"),
        (["--max-cost", "0.0001"], "large, because an answer costs $0.000440"),
        (["--max-latency", "500"], "large, because its median latency is 1,004 ms"),
    ],
)
def test_wishes_leave_models_out_with_the_reason(
    edison: Edison, many: Folder, wish: list[str], reason: str
) -> None:
    done = edison(many, "leaderboard", "--recommend", *wish)
    assert f"left out: {reason}\n" in done.out
    assert "is the only model" in done.out
    assert len(told(edison, many, *wish)["models"]) == 1


def test_wishes_that_nothing_meets(edison: Edison, many: Folder) -> None:
    advice = told(edison, many, "--min-score", "99%")
    assert (advice["best_value"], advice["models"], len(advice["left_out"])) == (None, [], 2)
    said = edison(many, "leaderboard", "--recommend", "--min-score", "99%").out
    assert "No model meets the requirements." in said
    assert edison(many, "leaderboard", "--recommend", "--min-score", "good").code == 2


def test_models_of_different_runs_meet_on_the_same_version(edison: Edison, mini: Folder) -> None:
    scores = close(MANY)
    plant(
        mini,
        Planted("r0", TIME, {"old": scores["large"]}, version="0" * 64),
        Planted("r1", "2026-11-15T09:00:00Z", {"large": scores["large"]}),
        Planted("r2", "2026-11-15T10:00:00Z", {"small": scores["small"]}),
        Planted("r3", "2026-11-15T11:00:00Z", {"tiny": scores["small"][:5]}),
    )
    advice = told(edison, mini)
    assert (advice["best_value"], advice["cases"]) == ("small", MANY)
    assert advice["left_out"] == [{"model": "tiny", "reason": "it has 5 of 300 cases"}]


def test_one_case_is_not_enough(edison: Edison, mini: Folder) -> None:
    plant(mini, Planted("r1", TIME, {"small": [0.5], "large": [0.9]}))
    done = edison(mini, "leaderboard", "--recommend")
    assert "Not enough cases: 1 case with a score of every model." in done.out
    assert told(edison, mini)["best_value"] is None


def test_few_cases_and_simulated_models_are_marked(edison: Edison, mini: Folder) -> None:
    assert edison(mini, "run", "-q").code == 0
    done = edison(mini, "leaderboard", "--recommend")
    assert done.out.startswith("hello  1 model on 2 cases  simulated\n")
    assert "Very few cases (2): do not rely on this." in done.out
    assert "No answer cost anything, so cost was not considered." in done.out
