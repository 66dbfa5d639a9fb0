"""How are times written?"""

from __future__ import annotations

import datetime as dt


def now() -> dt.datetime:
    """Return the time of this machine."""
    return dt.datetime.now(dt.UTC)


def stamp(time: dt.datetime) -> str:
    """Return a time as it is stored: texts of this form sort as the times do."""
    return time.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
