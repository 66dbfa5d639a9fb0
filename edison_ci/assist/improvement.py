"""Drafts of a change to a prompt, as a diff that keeps the guardrails of a refinement."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.assist.drafting import DoesNotFit, DraftKind, Question, text_of
from edison_ci.judges.instructions import FencedText
from edison_ci.judges.replies import object_schema
from edison_ci.refine.guardrails import GuardrailContext, check_diff

if TYPE_CHECKING:
    from edison_ci.records import Json
    from edison_ci.refine.candidate import RefineTarget

FOCUS = (3, 500)
"""Fewest and most characters of what is to be better."""


class Improvement(NamedTuple):
    """A draft of a changed prompt."""

    note: str
    text: str
    """The whole file with the change."""


def improvement_kind(target: RefineTarget) -> DraftKind[Improvement]:
    """Return the kind of a draft of a change to a prompt."""
    schema = object_schema(note={"type": "string"}, diff={"type": "string"})
    return DraftKind("improve", "diff", schema, partial(_read, target))


def improvement_question(target: RefineTarget, focus: str) -> Question:
    """Return what is asked for."""
    pieces = (
        FencedText("prompt", target.text, target.prompt.path),
        FencedText("text", target.experiment.file.objective, "objective"),
        FencedText("text", focus, "focus"),
    )
    path = target.prompt.path
    wanted = (
        f"Suggest one small change of {path}: a diff with the lines --- a/{path} and +++ b/{path}."
    )
    return Question(pieces, f"The material ends here. {wanted}")


def _read(target: RefineTarget, reply: dict[str, Json]) -> Improvement:
    note, diff = text_of(reply, "note", (1, 1_000)), reply["diff"]
    if not isinstance(diff, str):
        raise DoesNotFit("the diff is not a text")
    background = GuardrailContext(lambda: target.project.cases(target.experiment))
    candidate = check_diff(target, diff, note, background)
    if not candidate.ok or candidate.change is None:
        raise DoesNotFit(candidate.reason)
    return Improvement(note, candidate.change.text)
