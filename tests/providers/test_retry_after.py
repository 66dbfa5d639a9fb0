"""How long a provider asks to be left alone, in all the ways it may say so."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.providers.failures import duration_s, retry_after_s

NOW = dt.datetime(2026, 11, 15, 12, 0, 0, tzinfo=dt.UTC)

WISHES = [
    ({"retry-after": "7"}, 7),
    ({"retry-after": "0.5"}, 0.5),
    ({"retry-after": " 3 "}, 3),
    ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT"}, 30),
    ({"retry-after": "Sunday, 15-Nov-26 12:00:30 GMT"}, 30),
    ({"retry-after-ms": "1500"}, 1.5),
    ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ({"x-ratelimit-reset-requests": "1s"}, 1),
    ({"x-ratelimit-reset-tokens": "6m0s"}, 360),
    ({"x-ratelimit-reset-tokens": "20ms"}, 0.02),
    ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
    ({"x-ratelimit-reset": "12"}, 12),
    ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 40)}, 40),
    ({"x-ratelimit-reset": str((int(NOW.timestamp()) + 40) * 1000)}, 40),
    ({"anthropic-ratelimit-requests-reset": "2026-11-15T12:01:00Z"}, 60),
    ({"anthropic-ratelimit-tokens-reset": "2026-11-15T13:01:00+01:00"}, 60),
    ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "5s"}, 5),
    (
        {
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-tokens": "5s",
            "x-ratelimit-remaining-tokens": "900",
        },
        1,
    ),
    ({"retry-after": "2", "x-ratelimit-reset-tokens": "50s"}, 2),
]


def test_a_wish_is_understood(subtests: pytest.Subtests) -> None:
    for headers, seconds in WISHES:
        with subtests.test(headers=headers):
            assert retry_after_s(headers, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize("days", [-14_600, -400, -1, -0.01, 0.01, 1, 400, 14_600, 2_900_000])
def test_a_wrong_clock_changes_no_pause(days: float, subtests: pytest.Subtests) -> None:
    """A date would be years away, which ends the run, or past, which asks again at once."""
    now, date = NOW + dt.timedelta(days=days), "Sun, 15 Nov 2026 12:00:00 GMT"
    for headers, seconds in WISHES:
        with subtests.test(headers=headers):
            assert retry_after_s({"date": date, **headers}, now) == pytest.approx(seconds)


NO_WISHES = [
    {},
    {"retry-after": ""},
    {"retry-after": "-5"},
    {"retry-after": "0"},
    {"retry-after": "soon"},
    {"retry-after": "NaN"},
    {"retry-after": "inf"},
    {"retry-after": "1e5"},
    {"retry-after": "9" * 500},
    {"retry-after": "Sun, 15 Nov 2026 11:59:00 GMT"},
    {"retry-after": "Sun, 99 Nov 2026 11:59:00 GMT"},
    {"retry-after-ms": "-1"},
    {"x-ratelimit-reset-tokens": "m"},
    {"x-ratelimit-reset-tokens": "-6m0s"},
    {"x-ratelimit-reset-tokens": "2020-01-01T00:00:00Z"},
    {"x-ratelimit-remaining-tokens": "7"},
    {"x-other": "7"},
]


def test_what_is_past_or_garbage_is_no_wish(subtests: pytest.Subtests) -> None:
    for headers in NO_WISHES:
        with subtests.test(headers=headers):
            assert retry_after_s(headers, NOW) is None


@given(st.text(max_size=60))
def test_no_text_makes_it_fail(text: str) -> None:
    seconds = retry_after_s({"retry-after": text, "x-ratelimit-reset-tokens": text}, NOW)
    assert seconds is None or seconds > 0
    duration_s(text, NOW)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s{milliseconds}ms"
    total = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    assert duration_s(text, NOW) == pytest.approx(total)
