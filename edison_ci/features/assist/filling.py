"""Slots for what a dataset does not cover: each fills a gap in every dimension that has one."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from edison_ci.features.assist import case_slots

if TYPE_CHECKING:
    from edison_ci.results.coverage import Coverage

MOST = 500


def gap_slots(found: Coverage, most: int) -> list[case_slots.CaseSlot]:
    """Return the fewest slots that fill all gaps, at most so many.

    A length that the inputs cannot have would take the other gaps of its slot with it, so lengths
    have slots of their own.
    """
    gaps = {
        each.name: [value for value, n in each.missing.items() for _ in range(n)]
        for each in found.dimensions
    }
    names = ("tags", "entities", "ambiguity", "languages", "difficulty")
    rows = [
        {"tag": tag, "entity": entity, "ambiguity": ambiguity, "language": language, "level": level}
        for tag, entity, ambiguity, language, level in zip_longest(
            *(gaps.get(name, []) for name in names), fillvalue=""
        )
    ]
    rows += [{"length": length} for length in gaps.get("lengths", [])]
    slots = []
    for number, row in enumerate(rows[:most], start=1):
        level = row.pop("level", "")
        slots.append(case_slots.CaseSlot(number, int(level) if level else None, **row))
    return slots
