r"""Regular expressions in bounded time.

Python's `re` backtracks: the time of a pattern may double with each character. If an upper bound of
the steps is known and low, it runs here; else in a worker process that is killed after a second.
`regex` has a time limit, but exceeded 1 s by 15 s on `\s+$`. RE2 is linear, but its `\w`, `\d` and
`\b` are ASCII only, so it disagrees with `re` in most languages but English.
"""

from __future__ import annotations

import importlib
import re
import threading
import warnings
from functools import lru_cache
from typing import Any, NamedTuple

from edison_ci.checks import time_limit
from edison_ci.checks.evaluation import EvaluationError, quote

MAX_PATTERN = 5_000
LIMIT_S = 1.0
SHOWN = 200
_FEW_STEPS = 50_000_000
"""Some tenths of a second for an adversarial text; other texts take microseconds."""
LINEAR = 1_000
"""The most steps for each character that count as linear time."""
_MANY = 10**15
_quietly = threading.Lock()
_LONG = 1 << 40


class _Cost(NamedTuple):
    """Upper bounds of the cost of a match attempt at one position."""

    ways: int
    """In how many ways it can match; backtracking may try each of them."""
    steps: int

    def then(self, other: _Cost) -> _Cost:
        return _Cost(
            min(self.ways * other.ways, _MANY), min(self.steps + self.ways * other.steps, _MANY)
        )

    def or_else(self, other: _Cost) -> _Cost:
        return _Cost(min(self.ways + other.ways, _MANY), min(self.steps + other.steps, _MANY))


_NOTHING, _ATOM, _UNKNOWN = _Cost(1, 0), _Cost(1, 1), _Cost(_MANY, _MANY)
_ATOMS = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


def _cost(tree: Any, length: int) -> _Cost:
    """Return the cost of a part of Python's parse tree for a text of this length."""
    total = _NOTHING
    for kind, value in tree:
        total = total.then(_node_cost(str(kind), value, length))
    return total


def _node_cost(kind: str, value: Any, length: int) -> _Cost:
    if kind in _ATOMS:
        return _ATOM
    if kind == "BRANCH":
        total = _Cost(0, 0)
        for branch in value[1]:
            total = total.or_else(_cost(branch, length))
        return total
    if kind in _REPEATS:
        return _repeat_cost(*value, length=length)
    if kind in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _cost(value[-1] if kind == "SUBPATTERN" else value, length)
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _cost(value[1], length)
    return _UNKNOWN  # back references, conditions, and syntax of later Pythons


def _repeat_cost(low: int, high: int, body: Any, *, length: int) -> _Cost:
    inner, width = _cost(body, length), body.getwidth()[0]
    if high == 1:
        return inner if low == 1 else inner.or_else(_NOTHING)
    if inner.ways > 1 or width == 0:  # exponentially many ways to split a text into repetitions
        return _UNKNOWN
    turns = min(int(high), length // width + 1)
    return _Cost(max(turns - int(low), 0) + 1, min(turns * inner.steps, _MANY))


class Pattern(NamedTuple):
    """A compiled pattern and the cost of searching it."""

    compiled: re.Pattern[str]
    steps: int
    """Steps of a search for each character of a long text."""
    reach: int
    """The longest text that can be searched here, with any content."""

    @property
    def is_linear(self) -> bool:
        """Whether a search takes linear time."""
        return self.steps <= LINEAR


@lru_cache(maxsize=512)
def analyse_pattern(pattern: str) -> Pattern:
    """Return a pattern and its cost; raises re.error and other errors of `re`."""
    with _quietly, warnings.catch_warnings():  # global state, so one thread at a time
        warnings.simplefilter("ignore")  # warnings about syntax that may change in a later Python
        compiled = re.compile(pattern)
        try:
            tree = importlib.import_module("re._parser").parse(pattern)
        except ImportError:  # a private module; without it the cost is unknown
            return Pattern(compiled, steps=_MANY, reach=0)
    length = 1
    while length < _LONG and _cost(tree, length).steps * length <= _FEW_STEPS:
        length *= 2
    return Pattern(compiled, _cost(tree, _LONG).steps, reach=length // 2)


def search(pattern: str, text: str) -> str | None:
    """Return the start of the first match in a text, or None; raises EvaluationError."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"{_shown(pattern)} is longer than {MAX_PATTERN:,} characters")
    try:
        analysed = analyse_pattern(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise EvaluationError(f"{_shown(pattern)} is not valid: {error}") from None
    if len(text) <= analysed.reach:
        match = analysed.compiled.search(text)
        return None if match is None else match.group()[:SHOWN]
    reply = time_limit.run_job("search", pattern, text, what=_shown(pattern), limit_s=LIMIT_S)
    return str(reply[0]) if isinstance(reply, list) else None


def _shown(pattern: str) -> str:
    return f"the pattern {quote(pattern, 60)}"
