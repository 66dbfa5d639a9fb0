"""The page of schedules with its forms: when each is due, its last times, and the scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.access.site import Role, open_site
from edison_ci.config.cron import in_words
from edison_ci.errors import EdisonError
from edison_ci.features.monitor.schedules import (
    enable_schedule,
    find_schedule,
    fire_words,
    read_schedules,
    schedule_overview,
    scheduler_status,
)
from edison_ci.web.page_context import Page, PageContext, paged

if TYPE_CHECKING:
    from edison_ci.web.forms import FormRequest

_HISTORY = 20
"""Times of a schedule that are shown."""
_PER_PAGE = 5
"""Schedules on a page, each with its times."""


def schedules(context: PageContext) -> Page:
    """Return the schedules with their last and next times, and whether a scheduler runs."""
    values: dict[str, object] = {
        "known": False,
        "messages": context.messages,
        "may_edit": context.may(Role.EDITOR),
        "words": in_words,
        "fire_words": fire_words,
    }
    if context.root is not None:
        try:
            site = replace(open_site(context.root), clock=lambda: context.now)
            overview = schedule_overview(site, history=_HISTORY)
            page = paged(context, overview.schedules, "schedules", per_page=_PER_PAGE)
            values |= {
                "known": True,
                "schedules": page,
                "broken": overview.broken,
                "scheduler": scheduler_status(site, [line.schedule for line in overview.schedules]),
            }
        except EdisonError:
            pass  # the files cannot be read: the page says so
    return Page("schedules", "Schedules", values, area="schedules")


def enable(sent: FormRequest) -> str:
    """Enable a schedule in its file."""
    return _switch(sent, to=True)


def disable(sent: FormRequest) -> str:
    """Disable a schedule in its file."""
    return _switch(sent, to=False)


def _switch(sent: FormRequest, *, to: bool) -> str:
    schedule = find_schedule(read_schedules(sent.site), sent.path["experiment"], sent.path["name"])
    enable_schedule(sent.site, schedule, to=to, actor=sent.actor)
    word = "enabled" if to else "disabled"
    message = f"{schedule.full_name} is {word} in {schedule.path}. Commit the file to keep it so."
    return sent.links.to("schedules", messages=sent.keep(message))
