"""Lines that a change touched, and those that a result belongs to."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.results.run_result import RunResult

_MOST_LINES = 20_000
"""Comparing longer files line by line takes too long; their changes then have no lines."""


class Lines(NamedTuple):
    """A range of lines, counted from 1, both ends included."""

    first: int
    last: int


Changed: TypeAlias = "Mapping[str, Sequence[Lines]]"
"""The lines that a change touched, by path in the project."""


class Spot(NamedTuple):
    """Where in the project something is to be shown."""

    path: str
    lines: Lines | None = None
    """None where no line is known; the path may be empty as well."""


def changed_lines(before: str, after: str) -> tuple[Lines, ...]:
    """Return the lines of a text that differ from what it was; a removal shows at its place."""
    old, new = before.splitlines(), after.splitlines()
    if not new or max(len(old), len(new)) > _MOST_LINES:
        return ()
    same = _alike(old, new)
    rest = min(len(old), len(new)) - same
    end = _alike(old[::-1][:rest], new[::-1][:rest])
    # Lines that are there very often are no anchors: with them a hostile file would take minutes.
    matcher = difflib.SequenceMatcher(None, old[same : len(old) - end], new[same : len(new) - end])
    found = []
    for tag, _, _, first, last in matcher.get_opcodes():
        if tag != "equal":
            begin = min(same + first + 1, len(new))
            found.append(Lines(begin, max(same + last, begin)))
    return tuple(found)


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines at the beginning are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def spot_of(view: RunResult, prompt: str | None, changed: Changed) -> Spot:
    """Return where a result on a prompt, or on all of them, is shown.

    That is where the change touched the prompt, or else the experiment or the models; what nobody
    touched is shown at the prompt itself, without a line.
    """
    files = view.files
    own = [path for name, path in files.prompts.items() if prompt in (name, None)]
    places = [path for path in (*own, files.experiment, files.models) if path]
    for path in places:
        if changed.get(path):
            return Spot(path, changed[path][0])
    return Spot(places[0]) if places else Spot("")
