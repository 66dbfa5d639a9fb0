"""The check for alerts after a run, and what it says below the result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from edison_ci.access import site as sites
from edison_ci.cli import lookup
from edison_ci.cli.terminal import BAD, ODD, StyledText
from edison_ci.errors import EdisonError
from edison_ci.features.monitor import alert_check
from edison_ci.features.monitor import alert_rows as alerts
from edison_ci.store import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Project

logger = logging.getLogger(__name__)


def check_after_run(terminal: Terminal, project: Project, run_ids: Sequence[str]) -> None:
    """Open and close the alerts of experiments whose runs have ended, and name what changed.

    A check that fails is logged: the result of the run does not depend on it.
    """
    if not run_ids:
        return
    site = sites.Site(project.root, project.file).at_one_time()
    try:
        with lookup.results_of(project) as reader:
            names = {runs.find_run(reader, run_id).experiment for run_id in run_ids}
            names = {name for name in names if alerts.has_news(reader, name)}
            if not names:
                return
            done = alert_check.check_experiments(site, project, reader, names)
        if not (done.opened or done.raised or done.closed):
            return
        with lookup.results_of(project) as reader:
            changed = [alerts.find_alert(reader, number) for number in (*done.opened, *done.raised)]
        # Of a budget the run has told itself.
        news = [
            alert for alert in changed if alert and alert.condition is not alerts.Condition.BUDGET
        ]
        for alert in news:
            color = BAD if alert.level is alerts.Level.ALERT else ODD
            word = StyledText(f"{alert.level.upper()} {alert.condition.words}:", color)
            terminal.note(word, f" {alert.sentence}")
        for number in done.closed:
            terminal.note(f"alert {number} is closed")
        if news:
            terminal.note("see: edison alerts list")
    except EdisonError as error:
        logger.warning("alerts were not checked", extra={"reason": error.message})
