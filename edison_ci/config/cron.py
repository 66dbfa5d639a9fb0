"""Cron expressions: five fields in UTC, the times at which they are due, and their words.

cronsim is imported when a schedule is looked at; most projects have none.
"""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HINT = 'write minute hour day month weekday, in UTC: "0 9 * * 1-5"'
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_MOST_LOOKED_AT = 500
"""Fires among which the shortest gap is sought: a day of fires every 5 minutes, and more."""
_FEW = 6
"""The most times of a day that are listed one by one."""
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def wrong_cron(cron: str) -> str | None:
    """Return what is wrong with an expression; None if it is valid."""
    from cronsim import CronSimError

    if len(cron.split()) != 5:
        return "is not five fields"
    try:
        _parsed(cron)
    except CronSimError as error:
        return f"is not a schedule: {str(error).lower()}"
    return None


def fires(cron: str, after: dt.datetime) -> Iterator[dt.datetime]:
    """Yield the times at which a valid expression is due, from the first one after a time."""
    from cronsim import CronSim

    yield from CronSim(cron, after.astimezone(dt.UTC))


def next_fire(cron: str, after: dt.datetime) -> dt.datetime | None:
    """Return the first time after another at which it is due; None if it never is."""
    return next(fires(cron, after), None)


def shortest_gap(cron: str) -> dt.timedelta | None:
    """Return the shortest time between two fires; None if there is at most one."""
    times = itertools.islice(fires(cron, _START), _MOST_LOOKED_AT)
    return min((later - earlier for earlier, later in itertools.pairwise(times)), default=None)


def in_words(cron: str) -> str:
    """Return a valid expression in plain English, such as `on weekdays at 09:00 UTC`."""
    parsed = _parsed(cron)
    time, days = _time(sorted(parsed.minutes), sorted(parsed.hours)), _days(parsed)
    if not time.startswith("at "):
        return f"{time} {days}" if days else time
    return f"{days if days.startswith('on ') else f'every day {days}'.rstrip()} {time}"


def _parsed(cron: str) -> Any:
    from cronsim import CronSim

    return CronSim(cron, _START)


def _time(minutes: Sequence[int], hours: Sequence[int]) -> str:
    every_hour = len(hours) == 24
    within = "" if every_hour else f" {_span(hours)}"
    if len(minutes) == 60:
        return f"every minute{within}"
    step = _step(minutes, 60)
    if step is not None:
        start = f" from minute {minutes[0]}" if minutes[0] and every_hour else ""
        return f"every {step} minutes{start}{within}"
    if every_hour:
        if minutes == [0]:
            return "every hour"
        return f"every hour at {_numbered('minute', minutes)}"
    if len(minutes) * len(hours) <= _FEW:
        clocks = [f"{hour:02}:{minute:02}" for hour in hours for minute in minutes]
        return f"at {listed(clocks)} UTC"
    if len(minutes) == 1:
        first = f"{hours[0]:02}:{minutes[0]:02}"
        if (hours_apart := _step(hours, 24)) is not None:
            return f"every {hours_apart} hours from {first} UTC"
        if _contiguous(hours):
            return f"every hour from {first} to {hours[-1]:02}:{minutes[0]:02} UTC"
    return f"at {_numbered('minute', minutes)} of {_numbered('hour', hours)} UTC"


def _span(hours: Sequence[int]) -> str:
    if _contiguous(hours):
        return f"from {hours[0]:02}:00 to {hours[-1]:02}:59 UTC"
    return f"in {_numbered('hour', hours)} UTC"


def _step(values: Sequence[int], most: int) -> int | None:
    """Return the step of values that are evenly spread over the whole range; None if not."""
    if len(values) < 2:
        return None
    step = values[1] - values[0]
    whole = most % step == 0 and values[0] < step
    return step if whole and list(values) == list(range(values[0], most, step)) else None


def _contiguous(values: Sequence[int]) -> bool:
    return len(values) > 1 and values[-1] - values[0] == len(values) - 1


def _numbered(noun: str, values: Sequence[int]) -> str:
    """Return numbers after their noun, three or more in a row as a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    spans: list[str] = []
    for run in runs:
        spans += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return f"{noun}{'' if len(values) == 1 else 's'} {listed(spans)}"


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _days(parsed: Any) -> str:
    """Return the days in words; empty for every day of every month."""
    named = [_MONTHS[month - 1] for month in sorted(parsed.months)]
    some_months = "" if len(named) == 12 else listed(named)
    of_month = _of_month(parsed, some_months or "the month")
    of_week = _of_week(parsed)
    when = f"in {some_months}" if some_months else ""
    if of_month and of_week:
        # With a star in one of the two fields both must match, otherwise either is enough.
        if parsed.day_and:
            return f"on {of_week} that are {of_month}"
        return f"on {of_month} and on {of_week} {when}".rstrip()
    if of_month:
        return f"on {of_month}"
    return f"on {of_week} {when}".rstrip() if of_week else when


def _of_month(parsed: Any, months: str) -> str:
    numbers = sorted(day for day in parsed.days if day > 0)
    if len(numbers) == 31:
        return ""
    kind = {1: "odd", 2: "even"}.get(numbers[0] if numbers else 0)
    if kind and numbers == list(range(numbers[0], 32, 2)):
        days = [f"{kind} days of {months}"]
    else:
        days = [f"{_numbered('day', numbers)} of {months}"] if numbers else []
    if parsed.LAST in parsed.days:
        days.append(f"the last day of {months}")
    if parsed.LAST_WEEKDAY in parsed.days:
        days.append(f"the last weekday of {months}")
    return listed(days)


def _of_week(parsed: Any) -> str:
    plain = {day % 7 for day in parsed.weekdays if isinstance(day, int)}
    if len(plain) == 7:
        return ""
    if plain == {1, 2, 3, 4, 5}:
        days = ["weekdays"]
    elif plain == {0, 6}:
        days = ["weekends"]
    else:
        days = [f"{_DAYS[day % 7]}s" for day in sorted(plain, key=lambda day: (day - 1) % 7)]
    counted = sorted(day for day in parsed.weekdays if not isinstance(day, int))
    for day, nth in counted:
        which = "last" if nth == parsed.LAST else _NTH[nth]
        days.append(f"the {which} {_DAYS[day % 7]} of the month")
    return listed(days)
