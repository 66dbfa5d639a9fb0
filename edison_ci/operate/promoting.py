"""The version of a prompt that is in production, marked in its file.

By `production` in the front matter of its file, which is no part of the version: the mark travels
with the repository and is reviewed like anything else. Comments and the rest of the file stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.config.prompt import read_prompt
from edison_ci.documents.files import read
from edison_ci.documents.replace_file import replace_file
from edison_ci.documents.yaml_edit import scalar
from edison_ci.errors import Location, UsageError
from edison_ci.operate.actors import Role
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.operate.site import Site

_LINE = re.compile(r"^production[ \t]*:[^\n]*(?:\n|\Z)", re.M)
_FENCE = re.compile(r"^---[ \t]*\r?$", re.M)


def promote(site: Site, project: Project, prompt: Prompt, version: str) -> bool:
    """Mark a version as the one in production; tell whether that changes anything."""
    actor = site.require(Role.EDITOR, "promote", prompt.id)
    before = prompt.header.production
    if before == version:
        return False
    data = read(project.tree, prompt.path)
    text = with_mark(data.decode("utf-8"), version)
    _refuse_other_changes(prompt, text, version)
    site.results.parent.mkdir(parents=True, exist_ok=True)
    row = site.entry(actor, "promote", prompt.id, before=before, after=version)
    replace_file(
        site.root / prompt.path,
        text.encode("utf-8"),
        just_before=lambda: write_audit(site.results, row),
    )
    return True


def with_mark(text: str, version: str) -> str:
    """Return the text of a prompt with the mark in its front matter."""
    body = text.removeprefix("\ufeff")
    start = text[: len(text) - len(body)]
    newline = "\r\n" if "\r\n" in body else "\n"
    line = f"production: {scalar(version)}{newline}"
    fences = [*_FENCE.finditer(body)][:2]
    if len(fences) < 2 or fences[0].start():
        return f"{start}---{newline}{line}---{newline}{body}"
    first, last = fences[0].end() + 1, fences[1].start()
    header = body[first:last]
    changed, known = _LINE.subn(line, header, count=1)
    return f"{start}{body[:first]}{changed if known else header + line}{body[last:]}"


def _refuse_other_changes(prompt: Prompt, text: str, version: str) -> None:
    """Raise unless the text says what it said, and the mark."""
    inputs = {"production": ""}
    again, _ = read_prompt(text.encode("utf-8"), prompt.path, lambda _: None)
    header = None if again is None else again.header
    same = (
        again is not None
        and header is not None
        and header.production == version
        and header.model_copy(update=inputs) == prompt.header.model_copy(update=inputs)
        and [(s.role, s.template.source) for s in again.sections]
        == [(s.role, s.template.source) for s in prompt.sections]
    )
    if not same:
        raise UsageError(
            "the front matter is written in a way that cannot be edited safely",
            hint=f"write it yourself: production: {scalar(version)}",
            where=Location(prompt.path),
        )
