"""Handlers of monitoring for runs: notices of their end and budgets, and the check for alerts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from edison_ci.access import site as sites
from edison_ci.cli import terminal as screens
from edison_ci.errors import EdisonError
from edison_ci.features.monitor import alert_check, alert_rows, alerts, conditions, run_notices
from edison_ci.stats import drift, slices
from edison_ci.store import runs
from edison_ci.store.database import open_for_reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.access.site import Site
    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Project

logger = logging.getLogger(__name__)


def changes_of_context(site: Site) -> dict[str, Any]:
    """Return the changes of the context of a run."""
    # An experiment with one run shows no trend.
    past = (alert_check, conditions, drift, alerts) if site.results.exists() else ()
    ahead = (alert_rows, slices, *past)
    if not site.file.notifications:
        return {"ahead": ahead}
    return {
        "ahead": (*ahead, run_notices),
        "record_end": lambda connection, run_id: run_notices.note_end(connection, site, run_id),
        "record_alert": lambda connection, *fact: run_notices.note_budget(connection, site, *fact),
    }


def check_after_run(terminal: Terminal, project: Project, run_ids: Sequence[str]) -> None:
    """Open and close the alerts of experiments whose runs have ended, and name what changed.

    A check that fails is logged: the result of the run does not depend on it.
    """
    if not run_ids:
        return
    site = sites.Site(project.root, project.file).at_one_time()
    try:
        with open_for_reading(site.results) as reader:
            names = {runs.find_run(reader, run_id).experiment for run_id in run_ids}
            names = {name for name in names if alert_rows.has_news(reader, name)}
            if not names:
                return
            done = alert_check.check_experiments(site, project, reader, names)
        if not (done.opened or done.raised or done.closed):
            return
        with open_for_reading(site.results) as reader:
            changed = [
                alert_rows.find_alert(reader, number) for number in (*done.opened, *done.raised)
            ]
        # The run itself has reported its budget.
        news = [
            alert
            for alert in changed
            if alert and alert.condition is not alert_rows.Condition.BUDGET
        ]
        for alert in news:
            color = screens.BAD if alert.level is alert_rows.Level.ALERT else screens.ODD
            word = screens.StyledText(f"{alert.level.upper()} {alert.condition.words}:", color)
            terminal.note(word, f" {alert.sentence}")
        for number in done.closed:
            terminal.note(f"alert {number} is closed")
        if news:
            terminal.note("see: edison alerts list")
    except EdisonError as error:
        logger.warning("alerts were not checked", extra={"reason": error.message})
