"""The slices of a case (length, difficulty, kind, tags) and the hash of its content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edison_ci.records import canonical_json, plain_text
from edison_ci.store import cells

if TYPE_CHECKING:
    from edison_ci.records import Case
    from edison_ci.store.cells import CaseFacts


# An edited case keeps its id. Results of different runs are compared only if input and expected
# output are the same.
_HEX = 16


def content_hash(case: Case) -> str:
    """Return the hash of input and expected output."""
    content = canonical_json([case.inputs, case.expected])
    return hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()[:_HEX]


def facts_of(case: Case) -> CaseFacts:
    """Return the facts of a case that are stored for slices."""
    tags = canonical_json(sorted(set(case.tags))) if case.tags else "[]"
    return cells.CaseFacts(tags, case.difficulty, str(case.kind), words_in(case))


LENGTHS = {"XS": 10, "S": 50, "M": 200, "L": 1_000}
"""Maximum words of each size; longer inputs are XL."""
SIZES = (*LENGTHS, "XL")
LEVELS = {1: "easy", 2: "easy", 3: "medium", 4: "hard", 5: "hard"}
NONE = "(none)"
"""Slice of cases without a tag or difficulty."""


def level_of(difficulty: int | None) -> str:
    """Return the name of a difficulty from 1 to 5."""
    return NONE if difficulty is None else LEVELS.get(difficulty, NONE)


def words_in(case: Case) -> int:
    """Return the number of words of all inputs."""
    return sum(len(plain_text(value).split()) for value in case.inputs.values())


def length_of(words: int) -> str:
    """Return the size of an input with this number of words."""
    return next((size for size, most in LENGTHS.items() if words <= most), "XL")
