"""Drafts of a rubric: four to six criteria from 0 to 5, none of which decides alone."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents import yaml_edit
from edison_ci.features.assist.drafting import DoesNotFit, Question, list_kind, text_of
from edison_ci.judges import instructions
from edison_ci.judges.replies import object_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.features.assist.drafting import DraftKind
    from edison_ci.records import Json

COUNTS = (4, 6)
HEAVIEST = 0.4
_SUM_WITHIN = 0.02
_WIDTH = 98


class CriterionDraft(NamedTuple):
    """A draft of a criterion."""

    name: str
    description: str
    weight: float


def rubric_question(objective: str) -> Question:
    """Return what is asked for."""
    pieces = (instructions.FencedText("text", objective, "objective"),)
    return Question(pieces, "The material ends here. Write the criteria of a rubric for it.")


def _read(items: Sequence[Json]) -> tuple[CriterionDraft, ...]:
    fewest, most = COUNTS
    if not fewest <= len(items) <= most:
        raise DoesNotFit(f"{len(items)} criteria; {fewest} to {most} were asked for")
    found = [_criterion(item) for item in items]
    if len({each.name.lower() for each in found}) < len(found):
        raise DoesNotFit("two criteria have the same name")
    total = sum(each.weight for each in found)
    if abs(total - 1) > _SUM_WITHIN:
        raise DoesNotFit(f"the weights add up to {total:g}, not to 1")
    heaviest = max(found, key=lambda each: each.weight)
    if heaviest.weight > HEAVIEST:
        raise DoesNotFit(f"{heaviest.name} weighs {heaviest.weight:g}; at most {HEAVIEST:g}")
    # Rounded weights that add up to 1 exactly: the last one takes what is left.
    shares = [round(each.weight / total, 2) for each in found[:-1]]
    shares.append(round(1 - sum(shares), 2))
    return tuple(each._replace(weight=w) for each, w in zip(found, shares, strict=True))


def _criterion(item: Json) -> CriterionDraft:
    name = text_of(item, "name", (1, 50))
    description = text_of(item, "description", (10, 500))
    weight = item.get("weight") if isinstance(item, dict) else None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1:
        raise DoesNotFit(f"the weight of {name} is not a share between 0 and 1")
    if not all(each.isalnum() or each == " " for each in name) or not name.isascii():
        raise DoesNotFit(f"{name!r} is not a name of letters, digits and spaces")
    return CriterionDraft(name, description, float(weight))


RUBRIC: DraftKind[tuple[CriterionDraft, ...]] = list_kind(
    "rubric",
    "criteria",
    object_schema(
        name={"type": "string"}, description={"type": "string"}, weight={"type": "number"}
    ),
    _read,
)


def rubric_text(name: str, criteria: Sequence[CriterionDraft]) -> str:
    """Return the file of a rubric."""
    lines = [
        "# yaml-language-server: $schema=../.edison/schemas/rubric.schema.json",
        f"rubric: {yaml_edit.scalar(name)}",
        "criteria:",
    ]
    for each in criteria:
        text = textwrap.wrap(each.description, _WIDTH - 6, break_long_words=False)
        lines += [f"  - name: {yaml_edit.scalar(each.name)}", "    description: >-"]
        lines += [f"      {line}" for line in text]
        lines += [f"    weight: {each.weight:g}", '    scale: "0-5"']
    return "\n".join(lines) + "\n"
