"""How long a provider asks to be left alone.

It may say so as `retry-after-ms`, as `retry-after` in seconds or as a date, or by telling when a
rate limit resets: a duration (`1s`, `6m0s`, `20ms`), a time (ISO-8601), or seconds. What is past,
negative or not understood is no wish at all.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_RESET = re.compile(
    r"x-ratelimit-reset(?:-[a-z-]+)?|anthropic-ratelimit-[a-z-]+-reset", re.IGNORECASE
)
_DURATION = re.compile(r"(?=[0-9.])(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?"
                       r"(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,12}(?:\.\d{1,9})?)ms)?")  # fmt: skip
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_EPOCH_S = 1_000_000_000
"""A number of seconds this large is a time since 1970 and not a duration."""
_LONGEST_TEXT = 100


def retry_after_s(headers: Mapping[str, str], now: dt.datetime) -> float | None:
    """Return how many seconds to wait, or None when no (sensible) wish is stated.

    Names of headers are in lower case. A plain wish to retry goes before what is said about limits.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _positive(milliseconds / 1000)
    stated = headers.get("retry-after")
    if stated is not None:
        return _positive(_seconds_or_date(stated, now))
    return max(_resets(headers, now), default=None)


def _resets(headers: Mapping[str, str], now: dt.datetime) -> Iterator[float]:
    """Yield when each limit resets; one that has something left did not cause the refusal."""
    for name, value in headers.items():
        if not _RESET.fullmatch(name):
            continue
        left = _number(headers.get(name.lower().replace("reset", "remaining"), ""))
        seconds = _positive(duration_s(value, now))
        if seconds is not None and not left:
            yield seconds


def duration_s(text: str, now: dt.datetime) -> float | None:
    """Return the seconds that a duration, a time or a number stands for; negative when past."""
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        return None
    found = _DURATION.fullmatch(text)
    if found and any(found.groups()):
        days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
        return days * 86_400 + hours * 3_600 + minutes * 60 + seconds + milliseconds / 1000
    return _seconds_or_date(text, now)


def _seconds_or_date(text: str, now: dt.datetime) -> float | None:
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        return None
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_S * 1000:
            number /= 1000
        return number - now.timestamp() if number >= _EPOCH_S else number
    moment = _moment(text)
    return None if moment is None else (moment - now).total_seconds()


def _moment(text: str) -> dt.datetime | None:
    """Return the time that an HTTP date or ISO-8601 stands for; without a zone it is UTC."""
    for parse in (parsedate_to_datetime, dt.datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return None


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _positive(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else None
