"""Times in UTC: the current one, and the form in which times are stored."""

from __future__ import annotations

import datetime as dt


def now() -> dt.datetime:
    """Return the current time."""
    return dt.datetime.now(dt.UTC)


def timestamp(time: dt.datetime) -> str:
    """Return a time as it is stored: with milliseconds, so that texts sort as times do."""
    if time.tzinfo is not dt.UTC:
        time = time.astimezone(dt.UTC)
    return f"{time.isoformat(timespec='milliseconds')[:-6]}Z"


def to_minute(stored: str) -> str:
    """Return a stored time for people, without its seconds."""
    return f"{stored[:16].replace('T', ' ')} UTC"
