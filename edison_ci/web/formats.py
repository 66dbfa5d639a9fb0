"""Numbers, times and words as pages show them.

Estimates and their intervals are separate texts, so that columns of them line up.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from edison_ci.documents.secrets import redacted
from edison_ci.report.markup import Html, element, escape, joined
from edison_ci.rounding import fixed, rounded, whole
from edison_ci.sanitize import lines

if TYPE_CHECKING:
    from edison_ci.results.decisions import GateRow

NOTHING = "\N{EN DASH}"


def points(value: float | None) -> str:
    """Return a score in points out of 100."""
    return NOTHING if value is None else fixed(100 * value, 1)


def percent(value: float | None, digits: int = 0) -> str:
    """Return a share."""
    return NOTHING if value is None else f"{fixed(100 * value, digits)}%"


def span(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return an interval, in points or percent."""
    if low is None or high is None:
        return ""
    return f"{fixed(100 * low, digits)} to {fixed(100 * high, digits)}"


def signed(value: float | None) -> str:
    """Return a change in points."""
    if value is None:
        return NOTHING
    return fixed(100 * value, 1, signed=True).replace("-", "\N{MINUS SIGN}")


def signed_span(low: float | None, high: float | None) -> str:
    """Return the interval of a change, in points."""
    return "" if low is None or high is None else f"{signed(low)} to {signed(high)}"


def dollars(microusd: float | None) -> str:
    """Return an amount of money; small ones with more digits."""
    if microusd is None:
        return NOTHING
    if microusd == 0:
        return "$0"
    if microusd < 10_000:
        return f"${fixed(microusd / 1e6, 6)}"
    return f"${fixed(microusd / 1e6, 4 if microusd < 1_000_000 else 2, grouped=True)}"


def milliseconds(value: float | None) -> str:
    """Return a latency."""
    if value is None:
        return NOTHING
    if value < 10_000:
        return f"{fixed(value, grouped=True)} ms"
    return f"{fixed(value / 1000, 1, grouped=True)} s"


def count(value: int | None) -> str:
    """Return a whole number."""
    return NOTHING if value is None else f"{value:,}"


def tokens(value: float | None) -> str:
    """Return a mean number of tokens, as a whole one."""
    return count(None if value is None else whole(value))


def short_number(value: float) -> str:
    """Return a number on a criterion's own scale, with two decimals at most."""
    return f"{rounded(value, 2):g}"


def counted(value: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{value:,} {word}{'' if value == 1 else 's'}"


def chance(value: float | None) -> str:
    """Return a p-value."""
    if value is None:
        return NOTHING
    return "< 0.001" if value < 0.001 else fixed(value, 3)


def when(time: str | None) -> str:
    """Return a stored time as people read it, in UTC."""
    return NOTHING if not time else time[:16].replace("T", " ")


def day(time: str | None) -> str:
    """Return the day of a stored time."""
    return NOTHING if not time else time[:10]


def lasted(begun: str, ended: str | None) -> str:
    """Return how long something took."""
    if ended is None:
        return NOTHING
    took = dt.datetime.fromisoformat(ended) - dt.datetime.fromisoformat(begun)
    seconds = max(took.total_seconds(), 0)
    if seconds < 90:
        return f"{fixed(seconds, 1)} s" if seconds < 10 else f"{fixed(seconds)} s"
    return f"{fixed(seconds / 60)} min" if seconds < 5400 else f"{fixed(seconds / 3600, 1)} h"


def text(value: str | None) -> str:
    """Return what a model or a person wrote: secrets cut, what hides or turns text spelt out."""
    return lines(value or "")


def words(found: str | None) -> str:
    """Return the same for a box of its own, which spells out itself what is hidden."""
    return redacted(found or "")


def plain(found: Any) -> str:
    """Return a value of a case or an answer as text."""
    return found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False)


def short(found: str, most: int = 120) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text(found).split())
    return line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def version(found: str, label: str | None = None) -> str:
    """Return a version as people know it: its label and hash, the hash once."""
    digits = found[:8]
    return f"{label} {digits}" if label and digits not in label else label or digits


def sentence(found: str | None) -> Html:
    """Return a sentence of ours; what stands between backticks is code."""
    pieces = text(found).split("`")
    if len(pieces) % 2 == 0:
        return escape("`".join(pieces))
    return joined(element("code", each) if i % 2 else each for i, each in enumerate(pieces))


def level(metric: str, asked: float) -> str:
    """Return what a gate asks for, in the unit of its metric."""
    if metric.startswith("cost_usd"):
        return f"${asked:g}"
    if metric.startswith("latency_ms"):
        return f"{fixed(asked, grouped=True)} ms"
    if metric.startswith("tokens"):
        return f"{fixed(asked, grouped=True)} tokens"
    return f"{100 * asked:g}%"


def found(gate: GateRow, number: float | None) -> str:
    """Return a number that a gate found, in the unit of its metric."""
    kind = gate.detail.get("kind")
    if number is None:
        return NOTHING
    if kind == "relative":
        return f"{fixed(100 * number, 1, signed=True)}%".replace("-", "\N{MINUS SIGN}")
    if gate.metric.startswith("cost_usd"):
        return dollars(1e6 * number)
    if gate.metric.startswith("latency_ms"):
        return milliseconds(number)
    if gate.metric.startswith("tokens"):
        return fixed(number, grouped=True)
    return signed(number) if kind == "change" else f"{fixed(100 * number, 1)}%"
