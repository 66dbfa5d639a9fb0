"""What monitoring adds to a run: notices of its end and of its budgets, and what it loads ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.features.monitor import alert_check, alerts, conditions, run_notices
from edison_ci.stats import drift, slices

if TYPE_CHECKING:
    from edison_ci.access.site import Site


def changes_of_context(site: Site) -> dict[str, Any]:
    """Return the changes of the context of a run."""
    # An experiment with one run shows no trend.
    past = (conditions, drift, alerts) if site.results.exists() else ()
    ahead = (alert_check, slices, *past)
    if not site.file.notifications:
        return {"ahead": ahead}
    return {
        "ahead": (*ahead, run_notices),
        "record_end": lambda connection, run_id: run_notices.note_end(connection, site, run_id),
        "record_alert": lambda connection, *fact: run_notices.note_budget(connection, site, *fact),
    }
