"""What a run was planned on, as it is kept with it: files, options and whose eval suite it used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.plan.baseline import Doubt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.store.runs import Run

UNDECIDED = "Its gates do not decide: `edison merge` puts all shards together and decides."
"""What is said of the gates of a shard."""


def kept_snapshot(run: Run) -> dict[str, Any]:
    """Return what a run was planned on, as it was kept."""
    try:
        found = json.loads(run.snapshot)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_redacted(run: Run) -> bool:
    """Whether personal data was taken out of what a run stored and graded."""
    settings = kept_snapshot(run).get("edison.yaml: settings")
    return isinstance(settings, dict) and settings.get("redact_pii_before_storage") is True


def kept_against(run: Run) -> dict[str, Any]:
    """Return what is kept of the base that a run was compared with; empty without one."""
    against = kept_snapshot(run).get("command line", {}).get("against")
    return against if isinstance(against, dict) else {}


def material_of(run: Run) -> str:
    """Return whose material a run was measured on: `head` or `base`."""
    return str(kept_against(run).get("material", "head"))


def kept_doubts(run: Run) -> tuple[Doubt, ...]:
    """Return why a run was inconclusive at best."""
    kept = kept_snapshot(run).get("command line", {})
    return (*doubts_in(kept.get("against") or {}), *doubts_in(kept))


def doubts_in(kept: Mapping[str, Any]) -> tuple[Doubt, ...]:
    """Return doubts as they were kept."""
    return tuple(Doubt(*map(str, each)) for each in kept.get("doubts", ()))


def objective_of(run: Run) -> str:
    """Return what an experiment was for when a run was planned."""
    for part in kept_snapshot(run).values():
        if isinstance(part, dict) and part.get("experiment") == run.experiment:
            return str(part.get("objective") or "")
    return ""
