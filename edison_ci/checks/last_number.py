"""Which number does a text end in?"""

from __future__ import annotations

import re
from decimal import Decimal

from edison_ci.checks.evaluation import EvaluationError, quote

_TAIL = 2_000
_NUMBER = re.compile(
    r"(?:(?<![\w.])[-\u2212][$\u20ac\u00a3]?)?"
    r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++|(?<![\w.])\.\d)\d*+(?:\.\d++)?(?:[eE][+-]?\d{1,4}+(?!\d))?",
    re.ASCII,
)
_NOISE = str.maketrans({",": "", "$": "", "\u20ac": "", "\u00a3": "", "\u2212": "-"})


def last_number(text: str) -> str | None:
    """Return the last number of a text as it is written, or None if its end has none."""
    tail = text[-_TAIL:]
    cut = len(text) > _TAIL  # a number at the very start of the tail may lack its first digits
    last = None
    for found in _NUMBER.finditer(tail):
        if found.start() or not cut:
            last = found.group()
    return last


def number_of(text: str) -> Decimal:
    """Return the number that the argument of a check is."""
    text = text.strip()
    if len(text) > _TAIL or not _NUMBER.fullmatch(text):
        raise EvaluationError(f"{quote(text)} is not a number; write 42 or {{{{ expected }}}}")
    return read_number(text)


def read_number(text: str) -> Decimal:
    """Return the value of a number as `last_number` finds it."""
    return Decimal(text.translate(_NOISE))


def near(one: Decimal, other: Decimal, tolerance: float) -> bool:
    """Whether two numbers differ by no more than the tolerance."""
    try:
        return one == other or abs(one - other) <= Decimal(str(tolerance))
    except ArithmeticError:  # beyond what decimal arithmetic holds
        return False
