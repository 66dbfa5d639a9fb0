"""Audited edits of files: quarantine.yaml, and the version of a prompt in production."""

from __future__ import annotations

import datetime as dt
import re
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.access import site as sites
from edison_ci.config import project_files, quarantine
from edison_ci.config import prompt as config_prompt
from edison_ci.documents import files, yaml_edit
from edison_ci.errors import Location, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.access.site import Site
    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.store import audit


DAYS = 30
"""Default duration of a quarantine in days."""
_FRESH = (
    "# yaml-language-server: $schema=.edison/schemas/quarantine.schema.json\n"
    "# Flaky cases: they run and are shown, and never decide a gate.\n"
    "version: 1\n"
)


def quarantine_case(
    site: Site, experiment: str, case: str, *, reason: str, until: dt.date | None = None
) -> quarantine.QuarantinedCase:
    """Add a case to quarantine.yaml, with today's date and the actor as its owner."""
    cases = site.quarantine()
    actor = site.require(sites.Role.EDITOR, "quarantine add", f"{experiment}/{case}")
    today = site.clock().astimezone(dt.UTC).date()
    last = until or today + dt.timedelta(days=DAYS)
    if last < today:
        raise UsageError(f"{last} is in the past", hint="use a day in the future")
    if same := _find_case(cases, experiment, case):
        raise UsageError(
            f"{case!r} of {experiment} is in quarantine already, until {same.until}",
            hint=f"remove it first: edison quarantine remove {experiment} {case}",
        )
    words = " ".join(reason.split())
    if not words:
        raise UsageError("the reason is empty", hint="give the reason with --reason")
    entry = quarantine.QuarantinedCase(
        experiment=experiment,
        case=case,
        reason=words[:1_000],
        since=today.isoformat(),
        until=last.isoformat(),
        owner=actor.name[:100],
    )
    written = entry.model_dump(mode="json")
    row = site.entry(actor, "quarantine add", f"{experiment}/{case}", after=written)
    add = partial(yaml_edit.with_entry, key="cases", entry=written)
    _edit_quarantine(site, add, [*cases, entry], row)
    return entry


def release_case(site: Site, experiment: str | None, case: str) -> quarantine.QuarantinedCase:
    """Remove a case from quarantine.yaml; without an experiment, the only entry of the case."""
    cases = site.quarantine()
    if experiment is None:
        homes = [entry.experiment for entry in cases if entry.case == case]
        if len(homes) > 1:
            hint = f"name one: {', '.join(homes)}"
            raise UsageError(f"{case!r} of several experiments is in quarantine", hint=hint)
        experiment = homes[0] if homes else "any experiment"
    actor = site.require(sites.Role.EDITOR, "quarantine remove", f"{experiment}/{case}")
    released = _find_case(cases, experiment, case)
    if released is None:
        there = ", ".join(f"{e.experiment} {e.case}" for e in cases[:5]) or "none"
        raise UsageError(
            f"{case!r} of {experiment} is not in quarantine", hint=f"in quarantine: {there}"
        )
    before = released.model_dump(mode="json")
    row = site.entry(actor, "quarantine remove", f"{experiment}/{case}", before=before)
    remove = partial(yaml_edit.without_entry, key="cases", index=cases.index(released))
    _edit_quarantine(site, remove, [entry for entry in cases if entry is not released], row)
    return released


def _find_case(
    cases: Sequence[quarantine.QuarantinedCase], experiment: str, case: str
) -> quarantine.QuarantinedCase | None:
    return next((e for e in cases if (e.experiment, e.case) == (experiment, case)), None)


def _edit_quarantine(
    site: Site,
    edit: Callable[[str], str],
    cases: Sequence[quarantine.QuarantinedCase],
    row: audit.AuditEntry,
) -> None:
    """Write quarantine.yaml after an edit that leaves these cases; raises UsageError."""
    path, tree = project_files.QUARANTINE, files.WorkingTree(site.root)
    text = files.read(tree, path).decode("utf-8-sig") if tree.exists(path) else _FRESH
    left = [entry.model_dump(mode="json") for entry in cases]
    goal = {**yaml_edit.values_of(text, path), "cases": left}
    hint = "edit it by hand; `edison admin schema quarantine` shows its format"
    refusal = yaml_edit.not_editable(path, hint=hint)
    site.replace(path, yaml_edit.edited(text, edit, goal, refusal), row)


# The version in production is marked by `production` in the front matter of a prompt, which is not
# part of the version: the mark is committed and reviewed. The rest of the file stays as it is.
_FENCE = re.compile(r"^---[ \t]*\r?$", re.M)


def promote(site: Site, project: Project, prompt: Prompt, version: str) -> bool:
    """Mark a version as the one in production; return whether that changed the file."""
    actor = site.require(sites.Role.EDITOR, "promote", prompt.id)
    before = prompt.header.production
    if before == version:
        return False
    data = files.read(project.tree, prompt.path)
    text = mark_production(data.decode("utf-8"), version)
    _refuse_other_changes(prompt, text, version)
    row = site.entry(actor, "promote", prompt.id, before=before, after=version)
    site.replace(prompt.path, text, row)
    return True


def mark_production(text: str, version: str) -> str:
    """Return the text of a prompt with the mark in its front matter."""
    return with_key(text, "production", version)


def with_key(text: str, key: str, value: str) -> str:
    """Return the text of a prompt with a key in its front matter, in place of an earlier value."""
    body = text.removeprefix("\ufeff")
    start = text[: len(text) - len(body)]
    newline = "\r\n" if "\r\n" in body else "\n"
    line = f"{key}: {yaml_edit.scalar(value)}{newline}"
    fences = [*_FENCE.finditer(body)][:2]
    if len(fences) < 2 or fences[0].start():
        return f"{start}---{newline}{line}---{newline}{body}"
    first, last = fences[0].end() + 1, fences[1].start()
    header = body[first:last]
    written = re.compile(rf"^{key}[ \t]*:[^\n]*(?:\n|\Z)", re.M)
    changed, replaced = written.subn(line, header, count=1)
    return f"{start}{body[:first]}{changed if replaced else header + line}{body[last:]}"


def _refuse_other_changes(prompt: Prompt, text: str, version: str) -> None:
    """Raise UsageError unless the mark is the only change."""
    inputs = {"production": ""}
    again, _ = config_prompt.read_prompt(text.encode("utf-8"), prompt.path, lambda _: None)
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
            hint=f"edit it by hand: production: {yaml_edit.scalar(version)}",
            where=Location(prompt.path),
        )
