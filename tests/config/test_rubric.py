"""Rubrics: weights, scales and names."""

from __future__ import annotations

import pytest

from edison_ci.config.rubric import SCALES, Criterion, RubricFile, Scale
from tests.config.said import said


def rubric(*weights: float, more: str = "") -> str:
    rows = "".join(
        f"  - {{name: C{i}, description: Something to look for., weight: {weight}}}\n"
        for i, weight in enumerate(weights)
    )
    return f"rubric: tone\n{more}criteria:\n{rows}"


@pytest.mark.parametrize(
    "weights", [(0.5, 0.5), (0.33, 0.33, 0.33), (0.505, 0.505), (0.35, 0.25, 0.25, 0.15)]
)
def test_weights_sum_to_one_within_a_hundredth(weights: tuple[float, ...]) -> None:
    assert said(RubricFile, rubric(*weights)) == []


@pytest.mark.parametrize(
    ("weights", "total", "shares"),
    [
        ((0.5, 0.4), "0.9", "C0 0.556, C1 0.444"),
        ((0.5, 0.52), "1.02", "C0 0.49, C1 0.51"),
        ((1, 1), "2", "C0 0.5, C1 0.5"),
    ],
)
def test_other_weights_are_refused_with_their_sum_and_what_would_be_right(
    weights: tuple[float, ...], total: str, shares: str
) -> None:
    assert said(RubricFile, rubric(*weights)) == [
        f"3:3: weights sum to {total}, not to 1 (normalised: {shares}; or add normalize: true)"
    ]


def test_normalizing_keeps_proportions() -> None:
    text = rubric(0.2, 0.6, more="normalize: true\n")
    assert said(RubricFile, text) == []
    file = RubricFile.model_validate(
        {
            "rubric": "tone",
            "normalize": True,
            "criteria": [
                {"name": name, "description": "Something to look for.", "weight": weight}
                for name, weight in (("Warmth", 0.2), ("Brevity", 0.6))
            ],
        }
    )
    assert file.weights() == pytest.approx({"Warmth": 0.25, "Brevity": 0.75})


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_in_short_is_its_ends(scale: str) -> None:
    criterion = Criterion.model_validate(
        {"name": "A", "description": "Something to look for.", "weight": 1, "scale": scale}
    )
    low, high = map(float, scale.split("-"))
    assert (criterion.scale.min, criterion.scale.max) == (low, high)


def test_a_scale_is_zero_to_five_when_nothing_is_said() -> None:
    criterion = Criterion(name="A", description="Something to look for.", weight=1)
    assert (criterion.scale.min, criterion.scale.max) == (0, 5)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("min: 1\nmax: 5\nlabels: {1: bad, 3.5: fair, 5: good}\n", []),
        ("min: -1\nmax: 1\nlabels: {-1: bad}\n", []),
        (
            "min: 3\nmax: 3\n",
            [
                "1:6: min 3 is not below max 3 "
                "(min is the worst score; for the reverse, set lower_is_better)"
            ],
        ),
        (
            "min: 1\nmax: 5\nlabels: {0: bad}\n",
            ["3:13: label '0' is not a score of the scale (write a number from 1 to 5)"],
        ),
        (
            "min: 1\nmax: 5\nlabels: {nan: bad}\n",
            ["3:15: label 'nan' is not a score of the scale (write a number from 1 to 5)"],
        ),
    ],
)
def test_a_scale_in_full_has_two_ends_and_labels_between(text: str, messages: list[str]) -> None:
    assert said(Scale, text) == messages


def test_criteria_are_told_apart_by_their_slugs() -> None:
    text = rubric(0.5, 0.5).replace("C0", "Tone of Voice").replace("C1", "tone  of voice")
    assert said(RubricFile, text) == [
        "4:12: criterion 'tone  of voice' is named twice "
        "(give each criterion a distinct name; case and blanks are ignored)"
    ]
    criterion = Criterion(name="Tone of Voice", description="Something to look for.", weight=1)
    assert criterion.slug == "tone-of-voice"


def test_names_and_weights_are_wrong_together() -> None:
    text = rubric(0.5, 0.4).replace("C1", "C0")
    assert [message.partition(" ")[0] for message in said(RubricFile, text)] == ["3:3:", "4:12:"]
