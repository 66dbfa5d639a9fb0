"""Origin of a written case: keys of its metadata.

A generated case names the model that wrote it, the version of the instructions, the seed and the
time. Its expected answer is unverified until a second model or a person agrees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.records import Case, Json

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
        found: dict[str, Json] = {
            "written_by": self.writer,
            "instructions": self.instructions,
            "seed": self.seed,
            "written_at": self.at,
            "verified_by": self.verified_by,
        }
        return {key: value for key, value in found.items() if value != ""}


def writer_of(metadata: Mapping[str, Json]) -> str:
    """Return the model that wrote a case; empty if it was not generated."""
    return _text(metadata, "written_by")


def is_unverified(case: Case) -> bool:
    """Whether a case was generated, and nobody agreed with its expected answer."""
    if not case.metadata:
        return False
    written = writer_of(case.metadata) not in ("", EDISON)
    return written and case.expected is not None and not _text(case.metadata, "verified_by")


def _text(metadata: Mapping[str, Json], key: str) -> str:
    found = metadata.get(key)
    return found if isinstance(found, str) else ""
