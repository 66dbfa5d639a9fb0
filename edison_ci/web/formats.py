"""Formats of the pages for numbers, times and untrusted text, on top of `numeric`.

Estimates and intervals are separate texts, so that table columns line up.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from edison_ci import numeric
from edison_ci.documents.secrets import redacted
from edison_ci.numeric import counted as counted
from edison_ci.numeric import fixed, rounded, whole
from edison_ci.report.markup import code_spans
from edison_ci.results.run_sentences import run_word, version_names
from edison_ci.results.snapshot import prompt_labels, source_of
from edison_ci.sanitize import lines
from edison_ci.stats import sentences

if TYPE_CHECKING:
    from markupsafe import Markup

    from edison_ci.results.decisions import GateRow
    from edison_ci.store.runs import Run

NOTHING = "\N{EN DASH}"


def points(value: float | None) -> str:
    """Return a score in points out of 100."""
    return NOTHING if value is None else numeric.score(value)


def percent(value: float | None, digits: int = 0) -> str:
    """Return a share."""
    return NOTHING if value is None else numeric.percent(value, digits)


def span(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return an interval, in points or percent."""
    if low is None or high is None:
        return ""
    return f"{fixed(100 * low, digits)} to {fixed(100 * high, digits)}"


def signed(value: float | None) -> str:
    """Return a change in points."""
    if value is None:
        return NOTHING
    return numeric.signed_score(value).replace("-", "\N{MINUS SIGN}")


def signed_span(low: float | None, high: float | None) -> str:
    """Return the interval of a change, in points."""
    return "" if low is None or high is None else f"{signed(low)} to {signed(high)}"


def dollars(microusd: float | None) -> str:
    """Return an amount of money; small ones with more digits."""
    return NOTHING if microusd is None else numeric.dollars(microusd)


def milliseconds(value: float | None) -> str:
    """Return a latency."""
    return NOTHING if value is None else numeric.milliseconds(value)


def count(value: int | None) -> str:
    """Return a whole number."""
    return NOTHING if value is None else f"{value:,}"


def tokens(value: float | None) -> str:
    """Return a mean number of tokens, as a whole one."""
    return count(None if value is None else whole(value))


def tokens_in_out(tokens_in: float | None, tokens_out: float | None) -> str:
    """Return mean numbers of tokens, sent and received."""
    if tokens_in is None and tokens_out is None:
        return NOTHING
    return f"{tokens(tokens_in)} in, {tokens(tokens_out)} out"


def short_number(value: float) -> str:
    """Return a number on a criterion's own scale, with two decimals at most."""
    return f"{rounded(value, 2):g}"


def p_value(value: float | None) -> str:
    """Return a p-value."""
    return NOTHING if value is None else numeric.probability(value)


def p_words(value: float) -> str:
    """Return a p-value in words: p = 0.012, p < 0.001."""
    return sentences.p_words(value)


def two_sided(value: float) -> str:
    """Return the p-value of a comparison with its question: for any difference."""
    return sentences.two_sided(value)


def when(time: str | None) -> str:
    """Return a stored time to the minute, in UTC."""
    return NOTHING if not time else time[:16].replace("T", " ")


def day(time: str | None) -> str:
    """Return the day of a stored time."""
    return NOTHING if not time else time[:10]


def duration(started: str, ended: str | None) -> str:
    """Return the time between two timestamps."""
    if ended is None:
        return NOTHING
    took = dt.datetime.fromisoformat(ended) - dt.datetime.fromisoformat(started)
    return numeric.duration(max(took.total_seconds(), 0))


def status_word(run: Run) -> str:
    """Return the verdict of a run in a word; its status if it has none."""
    return run_word(run)


def text(value: str | None) -> str:
    """Return untrusted text with secrets masked and invisible characters spelled out."""
    return lines(value or "")


def redact(value: str | None) -> str:
    """Return untrusted text with secrets masked, for a text box, which does the rest."""
    return redacted(value or "")


def as_text(value: Any) -> str:
    """Return a JSON value as text."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def shorten(value: str, most: int = 120) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text(value).split())
    return line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def version(hash_: str, label: str | None = None) -> str:
    """Return label and short hash of a version."""
    return " ".join(version_names(label, hash_))


def run_versions(run: Run) -> str:
    """Return the versions of the prompts of a run."""
    return text(prompt_labels(run))


def run_source(run: Run) -> str:
    """Return commit, branch and author of a run."""
    return text(source_of(run).words)


def sentence(value: str | None) -> Markup:
    """Return a sentence with the text between backticks as code."""
    return code_spans(text(value))


def gate_level(metric: str, level: float) -> str:
    """Return the required level of a gate, in the unit of its metric."""
    if metric.startswith("cost_usd"):
        return f"${level:g}"
    if metric.startswith("latency_ms"):
        return f"{fixed(level, grouped=True)} ms"
    if metric.startswith("tokens"):
        return f"{fixed(level, grouped=True)} tokens"
    return f"{100 * level:g}%"


def gate_value(gate: GateRow, number: float | None) -> str:
    """Return a number of a gate, in the unit of its metric."""
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
