"""The page of schedules: when each is due, what became of its last times, and the scheduler."""

from __future__ import annotations

from dataclasses import replace

from edison_ci.access.site import Role, open_site
from edison_ci.config.cron import in_words
from edison_ci.errors import EdisonError
from edison_ci.features.monitor.schedules import (
    fire_words,
    schedule_overview,
    scheduler_status,
)
from edison_ci.web.cache import stored_messages
from edison_ci.web.page_context import Page, PageContext, paged

_HISTORY = 20
"""Times of a schedule that are shown."""
_PER_PAGE = 5
"""Schedules on a page, each with its times."""


def schedules(context: PageContext) -> Page:
    """Return the schedules with their last and next times, and whether a scheduler runs."""
    values: dict[str, object] = {
        "known": False,
        "messages": stored_messages(context.args.text("messages")),
        "may_edit": context.may(Role.EDITOR),
        "words": in_words,
        "fire_words": fire_words,
    }
    if context.root is not None:
        try:
            site = replace(open_site(context.root), clock=lambda: context.now)
            found = schedule_overview(site, history=_HISTORY)
            shown = paged(context, found.schedules, "schedules", per_page=_PER_PAGE)
            values |= {
                "known": True,
                "schedules": shown,
                "broken": found.broken,
                "scheduler": scheduler_status(site, [line.schedule for line in found.schedules]),
            }
        except EdisonError:
            pass  # the files cannot be read: the page says so
    return Page("schedules", "Schedules", values, area="schedules")
