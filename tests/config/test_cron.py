"""Cron expressions: when they are due, how far apart, and what they say in words."""

from __future__ import annotations

import datetime as dt

import pytest

from edison_ci.config.cron import fires, in_words, next_fire, shortest_gap, wrong_cron

NOW = dt.datetime(2026, 11, 17, 15, 30, tzinfo=dt.UTC)

EXPRESSIONS = [
    ("* * * * *", "every minute"),
    ("*/5 * * * *", "every 5 minutes"),
    ("5/10 * * * *", "every 10 minutes from minute 5"),
    ("15,45 * * * *", "every 30 minutes from minute 15"),
    ("*/7 * * * *", "every hour at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56"),
    ("0-10,30 * * * *", "every hour at minutes 0 to 10 and 30"),
    ("0 * * * *", "every hour"),
    ("17 * * * *", "every hour at minute 17"),
    ("* 9-17 * * *", "every minute from 09:00 to 17:59 UTC"),
    ("* 9,12 * * *", "every minute in hours 9 and 12 UTC"),
    ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59 UTC on weekdays"),
    ("30 8-18 * * *", "every hour from 08:30 to 18:30 UTC"),
    ("0 */2 * * *", "every 2 hours from 00:00 UTC"),
    ("0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00 UTC"),
    ("0 9 * * *", "every day at 09:00 UTC"),
    ("0 9,17 * * *", "every day at 09:00 and 17:00 UTC"),
    ("0-10 9 * * *", "every day at minutes 0 to 10 of hour 9 UTC"),
    ("0 9 * * 1-5", "on weekdays at 09:00 UTC"),
    ("0 9 * * mon-fri", "on weekdays at 09:00 UTC"),
    ("0 9 * * 1", "on Mondays at 09:00 UTC"),
    ("0 9 * * 7", "on Sundays at 09:00 UTC"),
    ("0 9 * * 0,6", "on weekends at 09:00 UTC"),
    ("0 9 * * WED,MON,SUN", "on Mondays, Wednesdays and Sundays at 09:00 UTC"),
    ("0 9 * * 5L", "on the last Friday of the month at 09:00 UTC"),
    ("0 9 * * 1#2", "on the second Monday of the month at 09:00 UTC"),
    ("0 0 1 * *", "on day 1 of the month at 00:00 UTC"),
    ("0 0 1,15 * *", "on days 1 and 15 of the month at 00:00 UTC"),
    ("0 0 L * *", "on the last day of the month at 00:00 UTC"),
    ("0 0 LW * *", "on the last weekday of the month at 00:00 UTC"),
    ("0 9 31 12 *", "on day 31 of December at 09:00 UTC"),
    ("0 9 * 6-8 *", "every day in June, July and August at 09:00 UTC"),
    ("0 9 * 1 1", "on Mondays in January at 09:00 UTC"),
    ("*/30 * * 1 *", "every 30 minutes in January"),
    ("0 9 1,15 * 1", "on days 1 and 15 of the month and on Mondays at 09:00 UTC"),
    ("0 9 1 1 1", "on day 1 of January and on Mondays in January at 09:00 UTC"),
    ("0 9 */2 * 1", "on Mondays that are odd days of the month at 09:00 UTC"),
    ("0 9 2/2 * *", "on even days of the month at 09:00 UTC"),
]


def test_an_expression_is_said_in_words(subtests: pytest.Subtests) -> None:
    for cron, words in EXPRESSIONS:
        with subtests.test(cron=cron):
            assert wrong_cron(cron) is None
            assert in_words(cron) == words


@pytest.mark.parametrize(
    ("cron", "coming"),
    [
        ("*/5 * * * *", "2026-11-17T15:35"),
        ("30 15 * * *", "2026-11-18T15:30"),
        ("0 9 * * 1", "2026-11-23T09:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
    ],
)
def test_the_next_time_is_after_now(cron: str, coming: str) -> None:
    assert next_fire(cron, NOW) == dt.datetime.fromisoformat(f"{coming}+00:00")


def test_times_are_those_of_utc_wherever_the_question_is_asked() -> None:
    there = NOW.astimezone(dt.timezone(dt.timedelta(hours=9)))
    assert next_fire("0 9 * * *", there) == next_fire("0 9 * * *", NOW)


def test_a_day_that_never_comes_is_never_due() -> None:
    assert next_fire("0 0 31 2,4 1#1", NOW) is not None
    assert list(fires("0 0 */31 2 1#2", NOW)) == []


@pytest.mark.parametrize(
    ("cron", "minutes"),
    [
        ("* * * * *", 1),
        ("*/7 * * * *", 4),
        ("0,3 9 * * 1", 3),
        ("*/5 * * * *", 5),
        ("0 * * * *", 60),
    ],
)
def test_the_shortest_gap_is_found_over_the_hour(cron: str, minutes: int) -> None:
    assert shortest_gap(cron) == dt.timedelta(minutes=minutes)
