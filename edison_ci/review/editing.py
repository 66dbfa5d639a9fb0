"""Suggestions that a person edits before they are taken.

The whole prompt is edited as it would be, and held to the same guardrails as what a model writes.
What comes of it is another suggestion, which was not measured, and the old one is superseded.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from edison_ci.documents.decoding import decode
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.operate.actors import Role
from edison_ci.refine.patch import diff_of
from edison_ci.review.desk import entity_of
from edison_ci.review.refined import is_base, looked_at, prompt_in, refined, stale
from edison_ci.store.audit import add_audit
from edison_ci.store.database import changing
from edison_ci.store.suggestions import (
    OPEN,
    Status,
    Suggestion,
    add_suggestion,
    decided_already,
    move_suggestion,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.operate.actors import Actor
    from edison_ci.refine.candidate import Candidate
    from edison_ci.review.desk import Desk

UNMEASURED = "Edited by hand after it was measured, and not measured again."


class GuardrailsBroken(UsageError):
    """An edited text that breaks guardrails."""


def may_edit(desk: Desk, one: Suggestion) -> Actor:
    """Return who edits, if they may, and the suggestion can still be edited."""
    actor = desk.require(Role.EDITOR, "review edit", one)
    if one.status not in OPEN:
        raise decided_already(one)
    desk.refuse_while_running(one)
    return actor


def text_to_edit(desk: Desk, one: Suggestion) -> str:
    """Return the prompt as it would be with a suggestion."""
    return decode(refined(desk.project, one, base_data(desk, one)))


def edited(desk: Desk, actor: Actor, one: Suggestion, text: str) -> Suggestion:
    """Store an edited suggestion in the place of the one it was made from."""
    before = base_data(desk, one)
    diff = diff_of(one.path, decode(before), text)
    if not diff:
        raise UsageError("nothing of the suggestion is left", hint="reject it instead")
    candidate = looked_at(desk.project, one, before, diff)
    if not candidate.ok:
        broken = "; ".join(f"{rail.rule}: {rail.detail}" for rail in candidate.guardrails
                           if not rail.ok)  # fmt: skip
        raise GuardrailsBroken(f"the edited prompt breaks guardrails: {broken}")
    new = _suggestion(desk, one, candidate)
    if new.hash == one.hash:
        raise UsageError("nothing was changed", hint=f"approve it: edison review approve {one.id}")
    with changing(desk.site.results) as connection:
        kept = add_suggestion(connection, new)
        if kept.status is not Status.PROPOSED:
            raise UsageError(f"that is suggestion {kept.id}, which is {kept.status}")
        reason = f"edited into suggestion {new.id}"
        move_suggestion(connection, one, Status.SUPERSEDED, reason=reason)
        entry = desk.site.entry(actor, "review edit", entity_of(one), after={"as": new.id})
        add_audit(connection, entry)
    return kept


def _suggestion(desk: Desk, one: Suggestion, candidate: Candidate) -> Suggestion:
    assert candidate.change is not None, "it keeps the guardrails, so it was applied"
    change = candidate.change
    length = len(change.subject.text)
    grown = len(change.text) - length
    evidence = {
        "proven": False,
        "verified": False,
        "sentence": UNMEASURED,
        "growth": {
            "chars": grown,
            "percent": round(100 * grown / length, 1) if length else 0.0,
            "lines_added": len(change.patch.added),
            "lines_removed": len(change.patch.removed),
        },
        "examples": one.evidence.get("examples", []),
    }
    return dataclasses.replace(
        one,
        diff=candidate.diff,
        hash="",
        new_hash=candidate.version,
        guardrails=candidate.guardrails,
        evidence=evidence,
        status=Status.PROPOSED,
        forced=True,
        created_at=desk.site.now(),
        edited_from=one.id,
        commit_id=None,
        cost_microusd=0,
        runs=(),
        decided_by=None,
        decided_at=None,
        reason=None,
    )


def base_data(desk: Desk, one: Suggestion) -> bytes:
    """Return the prompt's file in the version that a suggestion changes, from wherever it is."""
    prompt = None
    for data in _places(desk, one):
        if is_base(desk.project, one, data):
            return data
        prompt = prompt or prompt_in(desk.project, one.path, data)
    raise stale(one, prompt)


def _places(desk: Desk, one: Suggestion) -> Iterator[bytes]:
    path = desk.project.root / one.path
    if path.is_file() and not path.is_symlink():
        yield path.read_bytes()
    repository = desk.repository
    if repository is None:
        return
    default = repository.default_branch()
    tips = [repository.head(), repository.resolve(default) if default else None]
    for commit in filter(None, tips):
        data = repository.read(commit, desk.in_repository(one.path))
        if data is not None:
            yield data


def readable(data: bytes) -> str:
    """Return an edited file as text."""
    try:
        return decode(data).replace("\r\n", "\n")
    except Fault as fault:
        raise UsageError(f"the edited prompt cannot be read: {fault.message}") from None
