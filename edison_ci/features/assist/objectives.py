"""Drafts of the objective of an experiment, each with a focus of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.features.assist import drafting
from edison_ci.judges import instructions, replies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.features.assist.drafting import DraftKind
    from edison_ci.records import Json

HINTS = (10, 500)
"""Fewest and most characters of the notes."""
MOST = 5
LENGTHS = (20, 2_000)
_FOCUSES = ("clarity", "creativity", "efficiency")


class ObjectiveDraft(NamedTuple):
    """A draft of an objective."""

    focus: str
    text: str


def objective_kind(count: int) -> DraftKind[tuple[ObjectiveDraft, ...]]:
    """Return the kind of a draft of so many objectives."""
    item = replies.object_schema(focus={"type": "string"}, text={"type": "string"})
    return drafting.list_kind("objective", "objectives", item, partial(_read, count))


def objective_question(
    hints: str, count: int, current: str = "", *, detail: bool
) -> drafting.Question:
    """Return what is asked for; with a `current` objective, it is improved."""
    fewest, most = HINTS
    if not fewest <= len(hints) <= most and not (current and not hints):
        raise UsageError(
            f"the notes have {len(hints):,} characters; {fewest} to {most} are needed",
            hint='say in a sentence what the prompt is for: --hints "..."',
        )
    pieces = [instructions.FencedText("text", hints, "notes")] if hints else []
    pieces += [instructions.FencedText("text", current, "current objective")] if current else []
    what = "better versions of the current objective" if current else "objectives"
    focuses = ", ".join(_FOCUSES[:count])
    length = "four to eight sentences" if detail else "two to four sentences"
    wanted = f"Write {count} objectives ({what}), in this order of focus: {focuses}"
    wanted += " and others" if count > len(_FOCUSES) else ""
    return drafting.Question(tuple(pieces), f"The material ends here. {wanted}. Each has {length}.")


def _read(count: int, items: Sequence[Json]) -> tuple[ObjectiveDraft, ...]:
    if len(items) != count:
        raise drafting.DoesNotFit(f"{count} objectives were asked for, and there are {len(items)}")
    found = tuple(
        ObjectiveDraft(
            drafting.text_of(item, "focus", (1, 40)), drafting.text_of(item, "text", LENGTHS)
        )
        for item in items
    )
    if len({draft.text for draft in found}) < count:
        raise drafting.DoesNotFit("two objectives are the same")
    return found
