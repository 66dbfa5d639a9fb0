"""How is a prompt written, so that our reader finds the same messages in it?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.config.prompt import read_prompt
from edison_ci.importing.yaml_output import yaml_text

if TYPE_CHECKING:
    from edison_ci.documents.marks import Json
    from edison_ci.importing.drafts import PromptDraft

_HEADING = re.compile(r"(?m)^(\\?# (?:system|user|assistant)\s*)$")


def prompt_text(draft: PromptDraft) -> str:
    """Return the file of a prompt."""
    header: dict[str, Json] = {"id": draft.id, **draft.header}
    parts = [f"---\n{yaml_text(header)}---\n"]
    for message in draft.messages:
        body = _HEADING.sub(r"\\\1", trimmed(message.text))
        heading = (
            "" if len(draft.messages) == 1 and message.role == "user" else f"# {message.role}\n"
        )
        parts.append(f"{heading}{body}\n")
    return "\n".join(parts)


def reads_back(draft: PromptDraft) -> bool:
    """Whether our reader finds in the file what it was made of."""
    prompt, _ = read_prompt(prompt_text(draft).encode(), f"{draft.id}.md")
    if prompt is None:
        return False
    found = [(section.role, section.template.source) for section in prompt.sections]
    return found == [(m.role, trimmed(m.text)) for m in draft.messages]


def trimmed(text: str) -> str:
    """Return a text without the blank lines before it and what is blank after it."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", text.replace("\r\n", "\n")).rstrip()
