"""The page of alerts with its forms: what is open, and what was; and the banner of other pages."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci.access.site import Role
from edison_ci.errors import UsageError
from edison_ci.features.monitor.alert_rows import (
    AlertEntry,
    alert_overview,
    alerted_experiments,
)
from edison_ci.features.monitor.alerts import acknowledge, mute, mute_target, unmute
from edison_ci.numeric import duration
from edison_ci.report.charts.trend import Happening, MarkKind
from edison_ci.web.page_context import PER_PAGE, Page, PageContext, Paging, paged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.features.monitor.alert_rows import Alert
    from edison_ci.results.trends import TrendRun
    from edison_ci.web.forms import FormRequest

_MOST_MARKS = 100
MUTES = {"1": "an hour", "24": "a day", "168": "a week"}
"""Hours for which a form mutes, and how it says so."""


class AlertLine(NamedTuple):
    """An alert with how long it was open."""

    entry: AlertEntry
    open_for: str


def alerts(context: PageContext) -> Page:
    """Return the open alerts, and a page of closed ones, of all experiments or of one."""
    names = alerted_experiments(context.connection)
    named = context.args.text("experiment")
    chosen = named if named and named in names else None
    now = utc.timestamp(context.now)
    totals = alert_overview(context.connection, now, chosen, past=0)
    paging = Paging.of(context.args, totals.past_total)
    overview = alert_overview(context.connection, now, chosen, past=PER_PAGE, offset=paging.offset)
    open_page = paged(context, overview.open, "alerts", turn="open", experiment=chosen)
    return Page(
        "alerts",
        "Alerts",
        {
            "open": [_line(entry, now) for entry in open_page.rows],
            "open_alerts": open_page,
            "past": [_line(entry, now) for entry in overview.past],
            "paging": paging,
            "experiments": [name for name in names if name],
            "experiment": chosen or "",
            "may_ack": context.may(Role.REVIEWER),
            "may_mute": context.may(Role.EDITOR),
            "mutes": MUTES,
            "messages": context.messages,
        },
        area="alerts",
    )


def _line(entry: AlertEntry, now: str) -> AlertLine:
    return AlertLine(entry, duration(entry.duration_s(now)))


def banner(context: PageContext, experiment: str | None = None) -> tuple[Alert, ...]:
    """Return the open alerts that are not muted, the most serious first."""
    overview = alert_overview(context.connection, utc.timestamp(context.now), experiment, past=0)
    return tuple(entry.alert for entry in overview.open if entry.mute is None)


def alert_marks(context: PageContext, points: Sequence[TrendRun]) -> tuple[Happening, ...]:
    """Return a mark at the newest run before each alert that was opened."""
    name, now = points[0].run.experiment, utc.timestamp(context.now)
    overview = alert_overview(context.connection, now, name, past=_MOST_MARKS)
    times = [point.run.created_at for point in points]
    return tuple(
        Happening(
            max(0.0, float(bisect_right(times, entry.alert.opened_at) - 1)),
            MarkKind.ALERT,
            f"{entry.alert.opened_at[:10]}, {entry.alert.level} {entry.alert.condition.words}",
        )
        for entry in (*overview.open, *overview.past)
        if entry.alert.opened_at >= times[0]
    )


def ack(sent: FormRequest) -> str:
    """Acknowledge an alert."""
    numbers, note = [int(sent.path["alert"])], sent.form.text("note")
    (alert,) = acknowledge(sent.site, numbers, note, actor=sent.actor)
    return _back(sent, f"Alert {alert.id} is yours. It stays open until its condition ends.")


def mute_alert(sent: FormRequest) -> str:
    """Mute the condition of an alert for a time, or end that."""
    target = mute_target(sent.site, int(sent.path["alert"]))
    hours = sent.form.text("hours")
    if hours == "0":
        unmute(sent.site, target, actor=sent.actor)
        return _back(sent, f"No longer muted: {target.words}.")
    if hours not in MUTES:
        raise UsageError("unknown length of a mute", hint="go back and choose one")
    made = mute(sent.site, target, dt.timedelta(hours=int(hours)), actor=sent.actor)
    until = utc.to_minute(made.until)
    return _back(sent, f"Notifications of {target.words} are muted until {until}.")


def _back(sent: FormRequest, text: str) -> str:
    return sent.links.to("alerts", messages=sent.keep(text))
