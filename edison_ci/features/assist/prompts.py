"""Drafts of a prompt in three styles, each with its rationale."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config import prompt as config_prompt
from edison_ci.errors import Severity
from edison_ci.features.assist import drafting
from edison_ci.judges import instructions, replies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.features.assist.drafting import DraftKind
    from edison_ci.records import Json

STYLES = ("structured", "conversational", "minimal")
_LENGTHS = (20, 20_000)
_HEADING = re.compile(r"\A\s*#\s*user[^\n]*\n", re.I)
_SECTION = re.compile(r"(?m)^# +(?:user|system|assistant|developer)\b", re.I)


class PromptDraft(NamedTuple):
    """A draft of a prompt."""

    style: str
    text: str
    """The message to the model."""
    rationale: str

    def file_text(self, name: str) -> str:
        """Return the file of the prompt."""
        return f"---\nid: {name}\n---\n# user\n{self.text}\n"


def prompt_kind(inputs: Sequence[str]) -> DraftKind[tuple[PromptDraft, ...]]:
    """Return the kind of a draft of prompts with these inputs."""
    text: Json = {"type": "string"}
    item = replies.object_schema(style=text, text=text, rationale=text)
    return drafting.list_kind("prompts", "prompts", item, partial(_read, tuple(inputs)))


def prompt_question(
    objective: str, criteria: Sequence[str], inputs: Sequence[str], constraints: Sequence[str]
) -> drafting.Question:
    """Return what is asked for."""
    pieces = [instructions.FencedText("text", objective, "objective")]
    if criteria:
        pieces.append(instructions.FencedText("text", "\n".join(criteria), "criteria"))
    if constraints:
        pieces.append(instructions.FencedText("text", "\n".join(constraints), "constraints"))
    names = ", ".join(f"{{{{ {name} }}}}" for name in inputs)
    wanted = f"Write {len(STYLES)} prompts: {', '.join(STYLES)}. Inputs: {names}."
    wanted += " Each keeps every constraint." if constraints else ""
    return drafting.Question(tuple(pieces), f"The material ends here. {wanted}")


def _read(inputs: tuple[str, ...], items: Sequence[Json]) -> tuple[PromptDraft, ...]:
    found = [
        PromptDraft(
            drafting.text_of(item, "style", (1, 40)).lower(),
            _HEADING.sub("", drafting.text_of(item, "text", _LENGTHS)).strip(),
            drafting.text_of(item, "rationale", (1, 1_000)),
        )
        for item in items
    ]
    if [draft.style for draft in found] != [*STYLES]:
        raise drafting.DoesNotFit(f"the styles are not {', '.join(STYLES)}, in this order")
    for draft in found:
        _check(draft, inputs)
    return tuple(found)


def _check(draft: PromptDraft, inputs: tuple[str, ...]) -> None:
    if _SECTION.search(draft.text):
        raise drafting.DoesNotFit(f"the {draft.style} prompt has a heading of its own")
    prompt, problems = config_prompt.read_prompt(draft.file_text("draft").encode(), "draft.md")
    wrong = [problem.message for problem in problems if problem.severity is Severity.ERROR]
    if prompt is None or wrong:
        raise drafting.DoesNotFit(f"the {draft.style} prompt cannot be read: {wrong[0]}")
    if {*prompt.inputs} != {*inputs}:
        other = ", ".join(sorted({*prompt.inputs} ^ {*inputs}))
        raise drafting.DoesNotFit(f"the inputs of the {draft.style} prompt differ: {other}")
