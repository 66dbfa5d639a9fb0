"""Writes the generated parts of docs/github.md."""

from __future__ import annotations

from docs.reference import table
from edison_ci.access import events
from edison_ci.access.events import Event, Situation

_EVENTS = {
    Situation.PULL_REQUEST: "`pull_request`",
    Situation.FORK: "`pull_request`",
    Situation.DEPENDABOT: "`pull_request`, `push`",
    Situation.MERGE_GROUP: "`merge_group`",
    Situation.PUSH: "`push`",
    Situation.SCHEDULE: "`schedule`",
    Situation.DISPATCH: "`workflow_dispatch`",
    Situation.AFTER_WORKFLOW: "`workflow_run`",
    Situation.OTHER: "any other",
}


def situations() -> str:
    """Return what a job may do, by what started it."""
    rows = []
    for situation, names in _EVENTS.items():
        event = Event(names, situation, "owner/name")
        rows.append((situation.value, names, f"`{event.mode}`", event.why))
    return table(("situation", "event", "mode", "why"), rows)


def permission_block(kind: str) -> str:
    """Return the permissions of a job as YAML."""
    needed = {"comment": events.COMMENT, "propose": events.PROPOSE}[kind]
    return f"```yaml\n{events.permissions_block(needed)}\n```"
