"""What an import produces, before anything is written."""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.prompt import read_prompt
from edison_ci.config.trust import TrustFile
from edison_ci.importing.yaml_output import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.project import Paths
    from edison_ci.documents.marks import Json
    from edison_ci.importing.drafts import ModelDraft, PromptDraft
    from edison_ci.importing.experiments import Laid
    from edison_ci.importing.fidelity import Fidelity


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


SIMULATED_JUDGE: dict[str, Json] = {"provider": "sim", "model": "judge"}
REAL_JUDGE: dict[str, Json] = {
    "provider": "openai",
    "model": "gpt-4.1",
    "key_env": "OPENAI_API_KEY",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """The project that an import goes to."""

    paths: Paths
    models: dict[str, Json] = field(default_factory=dict)
    """Entries of the registry that is there already."""
    judge: str | None = None
    """Its default judge."""
    trust: TrustFile = field(default_factory=TrustFile.model_construct)


@dataclass(frozen=True, slots=True)
class Imported:
    """Files, and models that they need."""

    name: str
    description: str
    experiments: tuple[str, ...]
    files: dict[str, str]
    models: dict[str, dict[str, Json]]
    model: str
    """The first that generates."""
    judge: str | None
    fidelity: Fidelity


def files_of(paths: Paths, prompts: Iterable[PromptDraft], laid: Iterable[Laid]) -> dict[str, str]:
    """Return the texts of prompts, experiments and datasets by path."""
    files = {f"{paths.prompts}/{draft.id}.md": prompt_text(draft) for draft in prompts}
    for each in laid:
        schema = schema_line(paths.experiments, "experiment")
        files[f"{paths.experiments}/{each.name}.yaml"] = schema + yaml_text(each.experiment)
        rows = (json.dumps(row, ensure_ascii=False) for row in each.rows)
        files[f"{paths.datasets}/{each.name}.jsonl"] = "".join(f"{row}\n" for row in rows)
    return files


def schema_line(folder: str, kind: str) -> str:
    """Return the line by which an editor finds the schema of a file in a folder."""
    up = "../" * len([part for part in folder.split("/") if part not in ("", ".")])
    return f"# yaml-language-server: $schema={up}.edison/schemas/{kind}.schema.json\n"


def share(prompts: Iterable[PromptDraft], models: Iterable[ModelDraft]) -> None:
    """Give the prompts the schema and tools that providers had."""
    for model in models:
        for prompt in prompts:
            for name, value in model.shared.items():
                prompt.header.setdefault(name, value)
