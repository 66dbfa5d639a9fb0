"""Drafts of a change to a prompt, as a diff that keeps the guardrails of a refinement."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.features.assist import drafting
from edison_ci.judges import instructions, replies
from edison_ci.proposals import guardrails

if TYPE_CHECKING:
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.records import Json

FOCUS = (3, 500)
"""Fewest and most characters of what is to be better."""


class Improvement(NamedTuple):
    """A draft of a changed prompt."""

    note: str
    text: str
    """The whole file with the change."""


def improvement_kind(target: RefineTarget) -> drafting.DraftKind[Improvement]:
    """Return the kind of a draft of a change to a prompt."""
    schema = replies.object_schema(note={"type": "string"}, diff={"type": "string"})
    return drafting.DraftKind("improve", "diff", schema, partial(_read, target))


def improvement_question(target: RefineTarget, focus: str) -> drafting.Question:
    """Return what is asked for."""
    pieces = (
        instructions.FencedText("prompt", target.text, target.prompt.path),
        instructions.FencedText("text", target.experiment.file.objective, "objective"),
        instructions.FencedText("text", focus, "focus"),
    )
    path = target.prompt.path
    wanted = (
        f"Suggest one small change of {path}: a diff with the lines --- a/{path} and +++ b/{path}."
    )
    return drafting.Question(pieces, f"The material ends here. {wanted}")


def _read(target: RefineTarget, reply: dict[str, Json]) -> Improvement:
    note, diff = drafting.text_of(reply, "note", (1, 1_000)), reply["diff"]
    if not isinstance(diff, str):
        raise drafting.DoesNotFit("the diff is not a text")
    background = guardrails.GuardrailContext(lambda: target.project.cases(target.experiment))
    candidate = guardrails.check_diff(target, diff, note, background)
    if not candidate.ok or candidate.change is None:
        raise drafting.DoesNotFit(candidate.reason)
    return Improvement(note, candidate.change.text)
