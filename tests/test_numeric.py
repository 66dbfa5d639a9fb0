"""Numbers come out the same whatever the order of a sum and the last digits of a float."""

from __future__ import annotations

import json
import math
import re
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.numeric import (
    exceeds,
    fixed,
    mean,
    mean_or_none,
    percent,
    reaches,
    rounded,
    signed_score,
    significant,
    snap,
    weighted_mean,
    whole,
)
from edison_ci.sanitize import json_text

DECIMALS = st.decimals(min_value=-10_000, max_value=10_000, places=6)
"""Numbers as people meet them: those on the edge between two roundings are among them."""
NOISE = st.floats(min_value=-1e-14, max_value=1e-14)
SCORES = st.lists(
    st.sampled_from([k / 20 for k in range(21)]) | st.floats(0, 1), min_size=1, max_size=30
)


@given(DECIMALS, NOISE, st.integers(0, 4))
def test_noise_never_changes_what_is_written(number: Decimal, noise: float, digits: int) -> None:
    clean = float(number)
    noisy = clean * (1 + noise) + noise
    for signed in (False, True):
        assert fixed(noisy, digits, signed=signed) == fixed(clean, digits, signed=signed)
    assert snap(noisy) == snap(clean)
    assert rounded(noisy, digits) == rounded(clean, digits)


@given(DECIMALS, st.integers(0, 4))
def test_halves_are_rounded_away_from_zero(number: Decimal, digits: int) -> None:
    expected = number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    text = fixed(float(number), digits)
    assert Decimal(text) == expected
    assert text.startswith("-") == (expected < 0), "zero has no sign"
    if digits == 0:
        assert whole(float(number)) == expected


@pytest.mark.parametrize("value", [66.25, 66.24999999999999, 66.25000000000001])
def test_a_half_is_written_alike_however_it_was_summed(value: float) -> None:
    assert fixed(value, 1) == "66.3"
    assert fixed(-value, 1) == "-66.3"
    assert rounded(value, 1) == 66.3


@pytest.mark.parametrize(
    ("value", "digits", "signed", "grouped", "text"),
    [
        (12.5, 0, False, False, "13"),
        (-0.04, 1, False, False, "0.0"),
        (-0.04, 1, True, False, "+0.0"),
        (-1e-17, 0, True, False, "+0"),
        (0.05, 1, True, False, "+0.1"),
        (1234567.5, 0, False, True, "1,234,568"),
        (-1234.25, 1, True, True, "-1,234.3"),
        (1.0049999999999999, 2, False, False, "1.01"),
    ],
)
def test_numbers_are_written(
    value: float, digits: int, signed: bool, grouped: bool, text: str
) -> None:
    assert fixed(value, digits, signed=signed, grouped=grouped) == text


@given(st.floats(-1e-3, 1e-3), st.integers(0, 4), st.booleans())
def test_zero_has_no_minus(value: float, digits: int, signed: bool) -> None:
    minus_zero = re.compile(r"-0*\.?0*%?")
    texts = [
        fixed(value, digits, signed=signed),
        significant(value if abs(value) > 1e-9 else -0.0, digits + 1),
        f"{rounded(value, digits):g}",
        json.dumps(snap(value if abs(value) > 1e-9 else -0.0)),
        percent(value, digits),
        signed_score(value),
    ]
    assert not [text for text in texts if minus_zero.fullmatch(text)]


@given(SCORES, st.randoms(use_true_random=False))
def test_the_mean_does_not_depend_on_the_order(scores: list[float], random: object) -> None:
    shuffled = list(scores)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis does not name its class
    assert mean(scores) == mean(shuffled)
    exact = sum(map(Fraction, scores)) / len(scores)
    assert mean(scores) == pytest.approx(float(exact), rel=1e-15, abs=1e-300)


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_weighted_mean_does_not_depend_on_the_order(
    weighted: list[tuple[float, float]], random: object
) -> None:
    shuffled = list(weighted)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis does not name its class
    found = weighted_mean(weighted)
    assert found == weighted_mean(shuffled)
    total = sum(Fraction(weight) for weight, _ in weighted)
    exact = sum(Fraction(weight) * Fraction(value) for weight, value in weighted) / total
    assert found == pytest.approx(float(exact), rel=1e-14)


def test_nothing_has_no_mean() -> None:
    assert mean_or_none([]) is None
    assert mean_or_none([0.25, 0.5]) == 0.375
    assert weighted_mean([]) is None
    assert weighted_mean([(0.0, 1.0)]) is None


@pytest.mark.parametrize(
    ("value", "snapped"),
    [
        (0.1 + 0.2, 0.3),
        (0.3 - 0.1 - 0.2, 0.0),
        (-0.0, 0.0),
        (1 / 3, 0.333333333333),
        (200 / 3, 66.6666666667),
        (1234567.8, 1234567.8),
        (1.23456e-10, 1.23e-10),
        (1e300, 1e300),
    ],
)
def test_noise_is_taken_off(value: float, snapped: float) -> None:
    found = snap(value)
    assert found == snapped
    assert math.copysign(1, found) == math.copysign(1, snapped)
    assert snap(found) == found


def test_what_is_no_number_stays() -> None:
    assert snap(-math.inf) == -math.inf
    assert math.isnan(snap(math.nan))


@given(st.decimals(min_value=0, max_value=1, places=3), NOISE)
def test_a_threshold_that_is_met_exactly_is_reached(number: Decimal, noise: float) -> None:
    threshold = float(number)
    assert reaches(threshold + noise, threshold)
    assert not exceeds(threshold + noise, threshold)
    assert not reaches(threshold - 0.0005, threshold)
    assert exceeds(threshold + 0.0005, threshold)


def test_a_limit_times_a_count_is_exceeded_only_beyond_it() -> None:
    assert 29 > 0.29 * 100, "which is why it is not compared plainly"
    assert not exceeds(29, 0.29 * 100)
    assert exceeds(30, 0.29 * 100)


@pytest.mark.parametrize(
    ("value", "digits", "text"), [(0.12345, 4, "0.1235"), (0.2, 3, "0.2"), (1.25e6, 2, "1.3e+06")]
)
def test_significant_digits_are_written(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text
    assert significant(value * (1 - 1e-14), digits) == text


def test_json_has_computed_numbers_without_noise_and_written_ones_as_they_are() -> None:
    pi = 3.141592653589793
    found = json.loads(
        json_text(
            {
                "mean": 0.1 + 0.2,
                "parts": [{"score": 2 / 3, "n": 3, "passed": True}],
                "case": {"input": {"amounts": [pi, 12345678901.25]}, "expected": pi},
                "params": {"temperature": pi},
            }
        )
    )
    assert found == {
        "mean": 0.3,
        "parts": [{"score": 0.666666666667, "n": 3, "passed": True}],
        "case": {"input": {"amounts": [pi, 12345678901.25]}, "expected": pi},
        "params": {"temperature": pi},
    }
