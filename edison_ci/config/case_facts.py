"""Facts about a case: its slices (length, difficulty, kind, tags), content hash and origin.

A generated case names the model that wrote it, the version of the instructions, the seed and the
time, as keys of its metadata. Its expected answer is unverified until a second model or a person
agrees.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.records import canonical_json, plain_text
from edison_ci.store import cells

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.records import Case, Json
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


EDISON = "edison"
"""The writer of cases that need no model, such as boundary values."""
PERSON = "person"
"""What verified an expected answer, if not a model."""


class CaseOrigin(NamedTuple):
    """What wrote a case."""

    writer: str
    instructions: str
    """The version of the instructions; empty if there were none."""
    seed: int
    at: str
    verified_by: str = ""
    """The second model, or `person`; empty if the expected answer is unverified."""

    def metadata(self) -> dict[str, Json]:
        """Return the keys of the metadata."""
        keys: dict[str, Json] = {
            "written_by": self.writer,
            "instructions": self.instructions,
            "seed": self.seed,
            "written_at": self.at,
            "verified_by": self.verified_by,
        }
        return {key: value for key, value in keys.items() if value != ""}


def writer_of(metadata: Mapping[str, Json]) -> str:
    """Return the model that wrote a case; empty if it was not generated."""
    return _text(metadata, "written_by")


def is_unverified(case: Case) -> bool:
    """Whether a case was generated and its expected answer is not confirmed."""
    if not case.metadata:
        return False
    written = writer_of(case.metadata) not in ("", EDISON)
    return written and case.expected is not None and not _text(case.metadata, "verified_by")


def _text(metadata: Mapping[str, Json], key: str) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""
