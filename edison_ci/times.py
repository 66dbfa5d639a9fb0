"""How are times written?"""

from __future__ import annotations

import datetime as dt


def now() -> dt.datetime:
    """Return the time of this machine."""
    return dt.datetime.now(dt.UTC)


def stamp(time: dt.datetime) -> str:
    """Return a time as it is stored: texts of this form sort as the times do."""
    if time.tzinfo is not dt.UTC:
        time = time.astimezone(dt.UTC)
    return f"{time.isoformat(timespec='milliseconds')[:-6]}Z"
