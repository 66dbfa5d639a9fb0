"""Edits of quarantine.yaml and licences.yaml."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci.config.licences import LICENCES
from edison_ci.config.project_files import QUARANTINE
from edison_ci.config.quarantine import QuarantinedCase
from edison_ci.documents.files import WorkingTree, read
from edison_ci.documents.marks import Fault
from edison_ci.documents.replace_file import replace_file
from edison_ci.documents.yaml_edit import with_entry, without_entry
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import UsageError
from edison_ci.operate.actors import Role
from edison_ci.store.audit import AuditEntry, write_audit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from edison_ci.config.licences import Licence, LicencesFile
    from edison_ci.documents.marks import Json
    from edison_ci.operate.actors import Actor
    from edison_ci.operate.site import Site


def write_licence(site: Site, actor: Actor, known: LicencesFile, licence: Licence) -> LicencesFile:
    """Write a licence in place of the one that the same judges had; return the new file."""
    before = known.of(licence.rubric, licence.judges, licence.combine)
    changed = known.with_licence(licence)
    told = [None if entry is None else entry.model_dump(mode="json") for entry in (before, licence)]
    entity = f"{licence.rubric} by {', '.join(licence.judges)}"
    entry = site.entry(actor, "calibrate", entity, before=told[0], after=told[1])
    replace_file(
        site.root / LICENCES,
        changed.text().encode("utf-8"),
        just_before=lambda: write_audit(site.results, entry),
    )
    return changed


DAYS = 30
"""How long a case is set aside unless somebody says otherwise."""
_FRESH = (
    "# yaml-language-server: $schema=.edison/schemas/quarantine.schema.json\n"
    "# Flaky cases: they run and are shown, and never decide a gate.\n"
    "version: 1\n"
)


def set_aside(
    site: Site, experiment: str, case: str, *, reason: str, until: dt.date | None = None
) -> QuarantinedCase:
    """Add a case to quarantine.yaml, with today's date and the actor as its owner."""
    known = site.quarantine().cases
    actor = site.require(Role.EDITOR, "quarantine add", f"{experiment}/{case}")
    today = site.clock().astimezone(dt.UTC).date()
    last = until or today + dt.timedelta(days=DAYS)
    if last < today:
        raise UsageError(f"{last} is in the past", hint="give a day that is still to come")
    if found := _found(known, experiment, case):
        raise UsageError(
            f"{case!r} of {experiment} is set aside until {found.until}",
            hint=f"first: edison quarantine remove {experiment} {case}",
        )
    said = " ".join(reason.split())
    if not said:
        raise UsageError("the reason is empty", hint="say why it is set aside")
    entry = QuarantinedCase(
        experiment=experiment,
        case=case,
        reason=said[:1_000],
        since=today.isoformat(),
        until=last.isoformat(),
        owner=actor.name[:100],
    )
    text = _text(site.root)
    told = entry.model_dump(mode="json")
    changed = _tried(lambda: with_entry(_FRESH if text is None else text, "cases", told))
    row = site.entry(actor, "quarantine add", f"{experiment}/{case}", after=told)
    _replace(site, _compared(changed, [*known, entry], text), row)
    return entry


def take_back(site: Site, experiment: str, case: str) -> QuarantinedCase:
    """Remove a case from quarantine.yaml."""
    known = site.quarantine().cases
    actor = site.require(Role.EDITOR, "quarantine remove", f"{experiment}/{case}")
    found = _found(known, experiment, case)
    if found is None:
        there = ", ".join(f"{e.experiment} {e.case}" for e in known[:5]) or "none"
        raise UsageError(
            f"{case!r} of {experiment} is not in quarantine", hint=f"there are: {there}"
        )
    place, text = known.index(found), _text(site.root) or ""
    changed = _tried(lambda: without_entry(text, "cases", place))
    left = [entry for entry in known if entry is not found]
    told = found.model_dump(mode="json")
    row = site.entry(actor, "quarantine remove", f"{experiment}/{case}", before=told)
    _replace(site, _compared(changed, left, text), row)
    return found


def _found(cases: Sequence[QuarantinedCase], experiment: str, case: str) -> QuarantinedCase | None:
    return next((e for e in cases if (e.experiment, e.case) == (experiment, case)), None)


def _text(root: Path) -> str | None:
    tree = WorkingTree(root)
    if not tree.exists(QUARANTINE):
        return None
    return read(tree, QUARANTINE).decode("utf-8-sig")


def _tried(edit: Callable[[], str]) -> str | None:
    try:
        return edit()
    except (Fault, ValueError, IndexError):
        return None


def _compared(changed: str | None, wanted: Sequence[QuarantinedCase], before: str | None) -> str:
    """Return the edited text if it says what is meant and nothing else; else refuse it."""
    expected = [entry.model_dump(mode="json") for entry in wanted]
    if changed is not None:
        others, value = _others(before or ""), _value(changed)
        if value is not None and value.get("cases", []) == expected:
            same = {key: there for key, there in value.items() if key != "cases"}
            if before is None or same == others:
                return changed
    raise UsageError(
        f"{QUARANTINE} is written in a way that cannot be edited safely",
        hint="edit it by hand; `edison schema quarantine` has its form",
    )


def _others(text: str) -> dict[str, Json]:
    return {key: value for key, value in (_value(text) or {}).items() if key != "cases"}


def _value(text: str) -> dict[str, Json] | None:
    try:
        value = read_yaml(text, QUARANTINE).value
    except Fault:
        return None
    return value if isinstance(value, dict) else None


def _replace(site: Site, text: str, row: AuditEntry) -> None:
    """Write the file whole or not at all, with its audit row."""
    site.results.parent.mkdir(parents=True, exist_ok=True)
    replace_file(
        site.root / QUARANTINE,
        text.encode("utf-8"),
        just_before=lambda: write_audit(site.results, row),
    )
