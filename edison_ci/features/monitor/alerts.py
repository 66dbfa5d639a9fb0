"""Alerts: opened when a check finds a condition, closed when it is gone, acknowledged and muted.

There is one open alert of a condition and an experiment. Each change has a row of the audit, in the
same transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci import ranges, utc
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api.notices import Notice
from edison_ci.errors import UsageError
from edison_ci.features.monitor import notifications
from edison_ci.features.monitor.alert_rows import (
    Condition,
    Mute,
    add_mute,
    current_mutes,
    end_mute,
    find_alert,
    find_open,
    open_alert,
    see_again,
    untold_alerts,
    update_alert,
)
from edison_ci.numeric import counted
from edison_ci.store import audit, database

if TYPE_CHECKING:
    import datetime as dt
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.access.site import Actor, Site
    from edison_ci.config.sections import Occasion
    from edison_ci.features.monitor.alert_rows import Alert, Finding


def raise_alert(connection: sqlite3.Connection, site: Site, finding: Finding) -> None:
    """Open the alert of a condition, or update the one that is open, in the current transaction.

    The level of an open alert only rises. One that rises loses its acknowledgement: it was
    given for a lower level.
    """
    now, opened = site.now(), find_open(connection, finding.condition, finding.experiment)
    if opened is None:
        number = open_alert(connection, finding, now)
        after = {"number": number, "level": finding.level, "sentence": finding.sentence}
        _audit(connection, site, "alert open", finding, after=after)
        return
    worse = finding.level.rank > opened.level.rank
    level = finding.level if worse else opened.level
    see_again(connection, opened.id, finding, level, now)
    if worse:
        update_alert(connection, opened.id, acknowledged_by=None, acknowledged_at=None, note="")
        after = {"number": opened.id, "level": level, "sentence": finding.sentence}
        _audit(connection, site, "alert rise", finding, before=opened.level, after=after)


def close_alert(
    connection: sqlite3.Connection,
    site: Site,
    condition: Condition,
    experiment: str = "",
    *,
    why: str,
) -> None:
    """Close the open alert of a condition, if there is one, in the current transaction."""
    open_alert = find_open(connection, condition, experiment)
    if open_alert is None:
        return
    update_alert(connection, open_alert.id, closed_at=site.now(), closed_why=why)
    after = {"number": open_alert.id, "why": why}
    _audit(connection, site, "alert close", open_alert, before=open_alert.level, after=after)


def _audit(
    connection: sqlite3.Connection, site: Site, action: str, about: Finding | Alert, **values: Any
) -> None:
    entry = site.entry(sites.BY_ITSELF, action, _entity(about), **values)
    audit.add_audit(connection, replace(entry, run_id=about.run_id))


def _entity(about: Finding | Alert) -> str:
    return f"{about.condition} of {about.experiment or 'the machine'}"


MOST_TOLD = 3
"""Alerts that are notified one by one; more of them at once are one notice."""
REMIND_DAYS = 7
"""Time after which people are reminded of an open alert without acknowledgement."""
_OCCASIONS: dict[Condition, Occasion] = {
    Condition.SCHEDULE_MISSED: "schedule_missed",
    Condition.FIRE_SKIPPED: "schedule_missed",
    Condition.BUDGET: "budget",
}


def tell_alerts(connection: sqlite3.Connection, site: Site) -> None:
    """Write the notices of alerts that were opened, rose or ended, in the current transaction.

    What is muted is not sent. The end of an alert is sent even so if its opening was: an issue has
    to be closed.
    """
    mutes = current_mutes(connection, site.now())
    due = [
        alert
        for alert in untold_alerts(connection, remind_before=site.days_ago(REMIND_DAYS))
        if not (alert.open and any(mute.covers(alert) for mute in mutes))
    ]
    # The run that uses up a budget sends its notice at once.
    single = [alert for alert in due if alert.condition is not Condition.BUDGET]
    many = len(single) > MOST_TOLD
    if many:
        notifications.notify(connection, site, _digest(single, site))
    for alert in due:
        quiet = many or alert.condition is Condition.BUDGET
        notifications.notify(connection, site, replace(_notice(alert, site), issues_only=quiet))
        if alert.open:
            update_alert(connection, alert.id, told_level=alert.level, told_at=site.now())
        else:
            update_alert(connection, alert.id, told_end=1, told_at=site.now())


def _notice(alert: Alert, site: Site) -> Notice:
    occasion = _OCCASIONS.get(alert.condition, "alert")
    last = f"Acknowledge it: edison alerts ack {alert.id}"
    if not alert.open:
        last = f"It was open from {utc.to_minute(alert.opened_at)}: {alert.closed_why}."
    return Notice(
        occasion,
        _title(alert),
        (alert.sentence, last),
        alert.experiment or None,
        alert.run_id,
        alert.condition,
        alert.level.value,
        open=alert.open,
        at=site.now(),
        also=() if occasion == "alert" else ("alert",),
    )


def _title(alert: Alert) -> str:
    about = f"{alert.experiment or 'this machine'}: {alert.condition.words}"
    if not alert.open:
        return f"Over: {about}"
    again = "still open: " if alert.told_level is alert.level else ""
    return f"{alert.level.upper()} {again}{about}"


def _digest(alerts: Sequence[Alert], site: Site) -> Notice:
    """Return one notice about many alerts."""
    opened = [alert for alert in alerts if alert.open]
    worst = max((alert.level for alert in opened), key=lambda level: level.rank, default=None)
    over = len(alerts) - len(opened)
    parts = [f"{len(opened):,} open"] if opened else []
    parts += [f"{over:,} over"] if over else []
    return Notice(
        "alert",
        f"{counted(len(alerts), 'alert')}: {', '.join(parts)}",
        (*(f"{_title(alert)}. {alert.sentence}" for alert in alerts), "See: edison alerts list"),
        level="info" if worst is None else worst.value,
        open=bool(opened),
        at=site.now(),
        also=("schedule_missed",) if any(a.condition in _OCCASIONS for a in alerts) else (),
    )


def acknowledge(
    site: Site, numbers: Sequence[int], note: str = "", *, actor: Actor | None = None
) -> list[Alert]:
    """Record that a person takes care of open alerts; raises UsageError if one is not open.

    `actor` is a person who signed in; without one it is the person at the command line.
    """
    if len(note) > ranges.ALERT_NOTE_CHARS:
        message = f"a note has at most {ranges.ALERT_NOTE_CHARS} characters"
        raise UsageError(message, hint="shorten it")
    database.stored_version(site.results)
    who = site.actor() if actor is None else actor
    site.admit(who, sites.Role.REVIEWER, "alerts ack")
    acknowledged = []
    with database.open_for_change(site.results) as connection:
        for number in numbers:
            alert = _known(connection, number)
            if not alert.open:
                raise UsageError(
                    f"alert {number} is closed since {alert.closed_at}",
                    hint="open ones are listed by: edison alerts list",
                )
            update_alert(
                connection,
                number,
                acknowledged_by=who.name,
                acknowledged_at=site.now(),
                note=note,
            )
            after = {"number": number, "note": note}
            before = alert.acknowledged_by
            audit.add_audit(
                connection,
                site.entry(who, "alerts ack", _entity(alert), before=before, after=after),
            )
            acknowledged.append(_known(connection, number))
    return acknowledged


def _known(connection: sqlite3.Connection, number: int) -> Alert:
    alert = find_alert(connection, number)
    if alert is None:
        raise UsageError(
            f"there is no alert {number}", hint="see their numbers with: edison alerts list"
        )
    return alert


@dataclass(frozen=True, slots=True)
class MuteTarget:
    """What is muted: a condition of an experiment or the machine, or all of an experiment."""

    experiment: str
    """Empty for the machine."""
    condition: Condition | None = None
    """None for every condition of the experiment."""

    @property
    def words(self) -> str:
        """What it is, in words."""
        of = self.experiment or "this machine"
        return f"all alerts of {of}" if self.condition is None else f"{self.condition} of {of}"


def mute_target(site: Site, number: int) -> MuteTarget:
    """Return the condition and the experiment of an alert; raises UsageError if there is none."""
    with database.open_for_reading(site.results) as connection:
        alert = _known(connection, number)
    return MuteTarget(alert.experiment, alert.condition)


def mute(
    site: Site,
    target: MuteTarget,
    duration: dt.timedelta,
    reason: str = "",
    *,
    actor: Actor | None = None,
) -> Mute:
    """Mute the notifications of a condition for a time; it is found and listed all the same.

    A mute of the same target that has not ended is replaced.
    """
    who = _may_mute(site, target, actor)
    until = utc.timestamp(site.clock() + duration)
    made = Mute(0, target.experiment, target.condition, until, reason, who.name, site.now())
    with database.open_for_change(site.results) as connection:
        before = _end_mutes(connection, site, target)
        add_mute(connection, made)
        after = {"until": until, "reason": reason}
        audit.add_audit(
            connection,
            site.entry(who, "alerts mute", target.words, before=before or None, after=after),
        )
    return made


def unmute(site: Site, target: MuteTarget, *, actor: Actor | None = None) -> None:
    """End the mutes of a target; raises UsageError if it is not muted."""
    who = _may_mute(site, target, actor)
    with database.open_for_change(site.results) as connection:
        before = _end_mutes(connection, site, target)
        if not before:
            raise UsageError(
                f"{target.words} is not muted", hint="see what is with: edison alerts list"
            )
        audit.add_audit(connection, site.entry(who, "alerts unmute", target.words, before=before))


def _may_mute(site: Site, target: MuteTarget, actor: Actor | None) -> Actor:
    database.stored_version(site.results)
    who = site.actor() if actor is None else actor
    return site.admit(who, sites.Role.EDITOR, "alerts mute", target.words)


def _end_mutes(connection: sqlite3.Connection, site: Site, target: MuteTarget) -> list[str]:
    """End the mutes of exactly this target; return when each would have ended."""
    ended = [
        mute
        for mute in current_mutes(connection, site.now())
        if (mute.experiment, mute.condition) == (target.experiment, target.condition)
    ]
    for mute in ended:
        end_mute(connection, mute.id, site.now())
    return [mute.until for mute in ended]
