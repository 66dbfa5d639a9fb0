r"""Regular expressions, matched in bounded time.

Python's `re` backtracks: a pattern may take time that doubles with each character. Where the steps
can be counted beforehand and are few, it runs here; else in a worker process that ends after a
second. `regex` has a time limit of its own, but it overran a limit of 1 s by 15 s on `\s+$`. RE2 is
linear, but its `\w`, `\d` and `\b` know ASCII only, so that it disagrees with `re` in all languages
but English.
"""

from __future__ import annotations

import importlib
import re
import threading
import warnings
from functools import lru_cache
from typing import Any, NamedTuple

from edison_ci.checks.evaluation import EvaluationError, quote
from edison_ci.checks.worker import bounded

MAX_PATTERN = 5_000
LIMIT_S = 1.0
SHOWN = 200
_FEW_STEPS = 50_000_000
"""Some tenths of a second for a text made to be slow; any other takes microseconds."""
LINEAR = 1_000
"""So many steps for each character of a text are still few."""
_MANY = 10**15
_quietly = threading.Lock()
_LONG = 1 << 40


class _Cost(NamedTuple):
    """Upper bounds of what matching from one place takes."""

    ways: int
    """In how many ways it can succeed, each of which a later failure may come back to."""
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
    """Return the cost of a part of Python's parse tree in a text of this length."""
    total = _NOTHING
    for kind, value in tree:
        total = total.then(_of(str(kind), value, length))
    return total


def _of(kind: str, value: Any, length: int) -> _Cost:
    if kind in _ATOMS:
        return _ATOM
    if kind == "BRANCH":
        total = _Cost(0, 0)
        for branch in value[1]:
            total = total.or_else(_cost(branch, length))
        return total
    if kind in _REPEATS:
        return _repeated(*value, length=length)
    if kind in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _cost(value[-1] if kind == "SUBPATTERN" else value, length)
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _cost(value[1], length)
    return _UNKNOWN  # back references, conditions, and what a later Python adds


def _repeated(low: int, high: int, body: Any, *, length: int) -> _Cost:
    inner, width = _cost(body, length), body.getwidth()[0]
    if high == 1:
        return inner if low == 1 else inner.or_else(_NOTHING)
    if inner.ways > 1 or width == 0:  # one text can be cut into turns in ever more ways
        return _UNKNOWN
    turns = min(int(high), length // width + 1)
    return _Cost(max(turns - int(low), 0) + 1, min(turns * inner.steps, _MANY))


class Pattern(NamedTuple):
    """A pattern, and what is known about it."""

    compiled: re.Pattern[str]
    steps: int
    """How many steps searching takes for each character of a long text."""
    reach: int
    """Up to which length a text is searched in no time, whatever it says."""

    @property
    def is_linear(self) -> bool:
        """Whether searching takes time in proportion to the text."""
        return self.steps <= LINEAR


@lru_cache(maxsize=512)
def analysed(pattern: str) -> Pattern:
    """Return a pattern and its cost; raises re.error and what else `re` raises."""
    with _quietly, warnings.catch_warnings():  # which is for the whole process: one at a time
        warnings.simplefilter("ignore")  # what a later Python may read differently
        compiled = re.compile(pattern)
        try:
            tree = importlib.import_module("re._parser").parse(pattern)
        except ImportError:  # not promised by Python; without it no cost is known
            return Pattern(compiled, steps=_MANY, reach=0)
    length = 1
    while length < _LONG and _cost(tree, length).steps * length <= _FEW_STEPS:
        length *= 2
    return Pattern(compiled, _cost(tree, _LONG).steps, reach=length // 2)


def find(pattern: str, text: str) -> str | None:
    """Return the start of what a pattern finds in a text, or None; raises EvaluationError."""
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"{_shown(pattern)} is longer than {MAX_PATTERN:,} characters")
    try:
        known = analysed(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise EvaluationError(f"{_shown(pattern)} is not valid: {error}") from None
    if len(text) <= known.reach:
        found = known.compiled.search(text)
        return None if found is None else found.group()[:SHOWN]
    reply = bounded("search", pattern, text, what=_shown(pattern), limit_s=LIMIT_S)
    return str(reply[0]) if isinstance(reply, list) else None


def _shown(pattern: str) -> str:
    return f"the pattern {quote(pattern, 60)}"
