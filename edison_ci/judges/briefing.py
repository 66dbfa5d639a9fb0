"""Instructions of a judge, before it sees the material.

A briefing is a text of the package, or the project's own `judges/KIND.md` in its place, followed by
two parts that no project replaces: how the material is marked off as data, and the form of the
reply. It is the same for every case, so that providers can cache it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.documents import files
from edison_ci.documents.decoding import decode
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError, Location, Problem

if TYPE_CHECKING:
    from edison_ci.documents.files import Tree

Kind = Literal["pointwise", "pairwise", "moderation", "toxicity", "question"]

FOLDER = "judges"
"""Folder of a project's own instructions."""
MAX_BYTES = 50_000
_SHIPPED = Path(__file__).parent / "instructions"
_REPLY: dict[Kind, str] = {
    "pointwise": "pointwise-reply",
    "pairwise": "pairwise-reply",
    "moderation": "screen-reply",
    "toxicity": "screen-reply",
    "question": "question-reply",
}


@dataclass(frozen=True, slots=True)
class Briefing:
    """The instructions of one kind of judge."""

    kind: Kind
    text: str
    """How to judge: the package's text, or the project's."""
    path: str = ""
    """The project's file; empty for the package's text."""

    def message(self, criteria: str = "") -> str:
        """Return the system message, with the criteria in it."""
        parts = [self.text, _shipped("material"), criteria, _shipped(_REPLY[self.kind])]
        return "\n\n".join(part for part in parts if part)

    @property
    def version(self) -> str:
        """sha256 of everything the judge is told, criteria aside."""
        return hashlib.sha256(self.message().encode()).hexdigest()


@cache
def _shipped(name: str) -> str:
    return (_SHIPPED / f"{name}.md").read_text(encoding="utf-8").strip()


def override_path(kind: Kind) -> str:
    """Return where a project keeps its own instructions for a kind of judge."""
    return f"{FOLDER}/{kind}.md"


def brief(kind: Kind, tree: Tree | None = None) -> Briefing:
    """Return the briefing of a kind of judge, with the project's instructions if it has any."""
    path = override_path(kind)
    if tree is None or not tree.exists(path):
        return Briefing(kind, _shipped(kind))
    try:
        text = decode(files.read(tree, path, max_bytes=MAX_BYTES)).strip()
    except Fault as fault:
        raise ConfigError(
            [Problem(Location(path), fault.code, fault.message, fault.hint)]
        ) from None
    if not text:
        hint = "say how to judge, or remove the file to use the package's instructions"
        raise ConfigError([Problem(Location(path), "empty", f"{path} is empty", hint)])
    return Briefing(kind, text.replace("\r\n", "\n"), path)
