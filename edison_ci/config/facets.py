"""The slices that a case belongs to: length, difficulty and tags."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edison_ci.records import canonical_json
from edison_ci.store.runs import CaseFacts

if TYPE_CHECKING:
    from edison_ci.records import Case, Json


# An id stays when somebody edits a case. Results of another run are set against these only where
# the input and the expected output are what they were.
_HEX = 16


def content_hash(case: Case) -> str:
    """Return the hash of what a case asks and what it expects."""
    told = canonical_json([case.inputs, case.expected])
    return hashlib.sha256(told.encode("utf-8", errors="surrogatepass")).hexdigest()[:_HEX]


def facts_of(case: Case) -> CaseFacts:
    """Return what is kept of a case beside its id, to look at its kind apart from the others."""
    tags = canonical_json(sorted(set(case.tags)))
    return CaseFacts(tags, case.difficulty, str(case.kind), words_in(case))


LENGTHS = {"XS": 10, "S": 50, "M": 200, "L": 1_000}
"""Most words of each size; what has more is XL."""
SIZES = (*LENGTHS, "XL")
LEVELS = {1: "easy", 2: "easy", 3: "medium", 4: "hard", 5: "hard"}
NONE = "(none)"
"""Stands for a tag or a difficulty that a case does not have."""


def level_of(difficulty: int | None) -> str:
    """Return a difficulty from 1 to 5 in words."""
    return NONE if difficulty is None else LEVELS.get(difficulty, NONE)


def words_in(case: Case) -> int:
    """Return the number of words of all inputs together."""
    return sum(len(_text(value).split()) for value in case.inputs.values())


def length_of(words: int) -> str:
    """Return the size of an input of so many words."""
    return next((size for size, most in LENGTHS.items() if words <= most), "XL")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else canonical_json(value)
