"""edison alerts: conditions that need attention, checked, listed, acknowledged and muted."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, MOST_BLOCKS, ODD, StyledText, Terminal
from edison_ci.documents import record_json
from edison_ci.errors import ExitCode, UsageError
from edison_ci.features.monitor import alert_check
from edison_ci.features.monitor import alert_rows as store_alerts
from edison_ci.features.monitor import alerts as alert_records
from edison_ci.features.monitor import notification_commands as notifications
from edison_ci.numeric import counted, duration
from edison_ci.results import run_lists
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from edison_ci.access.site import Site
    from edison_ci.features.monitor.alert_rows import Mute


@click.group(cls=EdisonGroup)
def alerts() -> None:
    """Check for falls, errors and other conditions that need attention.

    An alert is opened when a check finds its condition, and closed by the next complete run without
    it. Conditions of the machine are closed when a check finds them gone. There is one open alert
    of a condition and an experiment. `edison serve` checks every 5 minutes.

    Examples:
      edison alerts check
      edison alerts list --all
      edison alerts ack 3 --note "asked the provider"
      edison alerts mute 3 --for 2d
    """


@alerts.command(cls=EdisonCommand)
@click.option(
    "--fail-on",
    type=click.Choice(["alert", "warn", "never"]),
    default="alert",
    show_default=True,
    help="Level of open alerts at which the exit code is 1.",
)
@click.pass_obj
def check(state: CliState, fail_on: str) -> None:
    """Look for every condition, and open or close alerts.

    The exit code is 1 while an ALERT is open; --fail-on warn counts a WARN too. Alerts that are
    acknowledged count; muted ones do not.

    Examples:
      edison alerts check
      edison alerts check --fail-on warn --json
    """
    terminal, site = _opened(state)
    done = alert_check.check_alerts(site)
    with lookup.results_of(site) as connection:
        overview = store_alerts.alert_overview(connection, site.now(), past=0)
    code = ExitCode.GATE_FAILED if _fails(overview, fail_on) else ExitCode.DONE
    if terminal.json:
        terminal.document(
            {
                "opened": list(done.opened),
                "raised": list(done.raised),
                "closed": list(done.closed),
                "open": [_document(entry) for entry in overview.open],
                "exit_code": int(code),
            }
        )
    else:
        _show_open(terminal, overview, site.now())
        if done.closed:
            terminal.result(f"{counted(len(done.closed), 'alert')} closed by this check")
    notifications.deliver_briefly(terminal, site)
    if code is not ExitCode.DONE:
        raise click.exceptions.Exit(int(code))


def _fails(overview: store_alerts.AlertOverview, fail_on: str) -> bool:
    if fail_on == "never" or overview.worst is None:
        return False
    return overview.worst.rank >= store_alerts.Level(fail_on).rank


_MOST_PAST, _EVERY = 100, 1_000_000
"""Closed alerts of `list --all`, and with --json."""


@alerts.command("list", cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--all", "past", is_flag=True, help="List closed alerts too, the newest 100.")
@click.pass_obj
def list_alerts(state: CliState, experiment: str | None, past: bool) -> None:
    """List open alerts, the most serious first.

    Shows what the last check found; nothing is checked.

    Examples:
      edison alerts list
      edison alerts list support-reply --all
      edison alerts list --json
    """
    terminal, site = _opened(state)
    most = _EVERY if terminal.json else _MOST_PAST
    with lookup.results_of(site) as connection:
        if experiment is not None:
            _require_experiment(run_lists.experiments(connection), experiment)
        overview = store_alerts.alert_overview(
            connection, site.now(), experiment, past=most if past else 0
        )
    if terminal.json:
        entries = [*overview.open, *overview.past]
        mutes = [_mute_document(mute) for mute in overview.mutes]
        terminal.document({"alerts": [_document(entry) for entry in entries], "mutes": mutes})
        return
    _show_open(terminal, overview, site.now())
    for entry in terminal.listed(overview.past, most=MOST_BLOCKS):
        _show(terminal, entry, site.now())
    if overview.past_total > len(overview.past):
        left = counted(overview.past_total - len(overview.past), "closed alert")
        terminal.note(f"{left} not shown" + ("" if past else ": see --all"))


@alerts.command(cls=EdisonCommand)
@click.argument("numbers", nargs=-1, required=True, type=click.IntRange(min=1), metavar="ALERT...")
@click.option("--note", default="", metavar="TEXT", help="What is done about it.")
@click.pass_obj
def ack(state: CliState, numbers: tuple[int, ...], note: str) -> None:
    """Record that you take care of open alerts.

    ALERT is a number of `edison alerts list`. An acknowledged alert stays open until its condition
    is gone, and sends no notification again unless it rises from WARN to ALERT. Needs a reviewer.

    Examples:
      edison alerts ack 3
      edison alerts ack 3 4 --note "rolled back the model"
    """
    terminal, site = _opened(state)
    acknowledged = alert_records.acknowledge(site, numbers, note)
    if terminal.json:
        terminal.document(
            {"alerts": [_document(store_alerts.AlertEntry(alert, None)) for alert in acknowledged]}
        )
        return
    for alert in acknowledged:
        terminal.result(f"alert {alert.id} is acknowledged by {alert.acknowledged_by}")


_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = dt.timedelta(days=365)


class _Duration(click.ParamType[dt.timedelta]):
    name = "TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> dt.timedelta:
        if isinstance(value, dt.timedelta):
            return value
        match = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a time such as 30m, 12h, 7d or 2w", param, ctx)
        length = dt.timedelta(**{_UNITS[match[2]]: int(match[1])})
        if length > _LONGEST:
            self.fail(f"{value} is longer than 365d", param, ctx)
        return length


@alerts.command("mute", cls=EdisonCommand)
@click.argument("target", metavar="ALERT|EXPERIMENT")
@click.option(
    "--for", "length", type=_Duration(), default="7d", show_default=True, metavar="TIME",
    help="Duration, such as 30m, 12h, 7d or 2w.",
)  # fmt: skip
@click.option("--reason", default="", metavar="TEXT", help="Reason, for others.")
@click.option("--off", is_flag=True, help="End the mute.")
@click.pass_obj
def mute_(state: CliState, target: str, length: dt.timedelta, reason: str, off: bool) -> None:
    """Mute the notifications of a condition for a time.

    ALERT is a number of `edison alerts list`: its condition is muted for its experiment, also if it
    closes and opens again. EXPERIMENT mutes every condition of an experiment. What is muted is
    checked and listed all the same. Needs an editor.

    Examples:
      edison alerts mute 3
      edison alerts mute support-reply --for 2d --reason "new model on Monday"
      edison alerts mute support-reply --off
    """
    terminal, site = _opened(state)
    muted = _target(site, target)
    if off:
        alert_records.unmute(site, muted)
        if terminal.json:
            terminal.document({"muted": None})
        terminal.result(f"{_words(muted)}: no longer muted")
        return
    made = alert_records.mute(site, muted, length, reason)
    if terminal.json:
        terminal.document({"muted": _mute_document(made)})
    terminal.result(f"{_words(muted)}: muted until {local_time(made.until)}")


def _words(target: alert_records.MuteTarget) -> str:
    return target.words.replace("_", " ")


def _target(site: Site, text: str) -> alert_records.MuteTarget:
    if text.isdecimal():
        return alert_records.mute_target(site, int(text))
    with lookup.results_of(site) as connection:
        _require_experiment(run_lists.experiments(connection), text)
    return alert_records.MuteTarget(text)


def _require_experiment(experiments: list[str], name: str) -> None:
    if name not in experiments:
        hint = did_you_mean(name, experiments, label="experiments with runs")
        raise UsageError(f"no run of an experiment {name!r} is stored", hint=hint)


def _opened(state: CliState) -> tuple[Terminal, Site]:
    return Terminal(state), lookup.open_site(state)


def local_time(stored: str) -> str:
    """Return a stored time for people: in UTC, and in local time where that differs."""
    time = dt.datetime.fromisoformat(stored)
    here = time.astimezone()
    in_utc = f"{time:%Y-%m-%d %H:%M} UTC"
    return in_utc if here.utcoffset() == dt.timedelta(0) else f"{in_utc} ({here:%H:%M} here)"


def _show_open(terminal: Terminal, overview: store_alerts.AlertOverview, now: str) -> None:
    for entry in terminal.listed(overview.open, most=MOST_BLOCKS):
        _show(terminal, entry, now)
    if not overview.open:
        terminal.result("no open alert")
    for mute in overview.mutes:
        what = _words(alert_records.MuteTarget(mute.experiment, mute.condition))
        why = f": {mute.reason}" if mute.reason else ""
        terminal.note(f"muted until {local_time(mute.until)} by {mute.actor}: {what}{why}")


def _show(terminal: Terminal, entry: store_alerts.AlertEntry, now: str) -> None:
    alert = entry.alert
    lead = f"{alert.id:>3}  "
    if alert.open:
        color = BAD if alert.level is store_alerts.Level.ALERT else ODD
        level = StyledText(f"{alert.level.upper():<5}", None if entry.mute else color, bold=True)
    else:
        level = StyledText(f"{alert.level.upper():<5}")
    hang = len(lead) + 7
    about = f"  {entry.about}: {alert.condition.words}"
    terminal.result(lead, level, StyledText(about, bold=alert.open), hang=hang)
    below = " " * hang
    terminal.result(f"{below}{alert.sentence}", hang=hang)
    terminal.result(f"{below}{_since(entry, now)}", hang=hang)


def _since(entry: store_alerts.AlertEntry, now: str) -> str:
    alert = entry.alert
    lasted = duration(entry.duration_s(now))
    if not alert.open:
        return f"open for {lasted} from {local_time(alert.opened_at)}; {alert.closed_why}"
    sentence = f"open for {lasted}, since {local_time(alert.opened_at)}"
    if alert.acknowledged_by is not None:
        note = f": {alert.note}" if alert.note else ""
        sentence += f"; acknowledged by {alert.acknowledged_by}{note}"
    return f"{sentence}; muted" if entry.mute is not None else sentence


def _document(entry: store_alerts.AlertEntry) -> dict[str, Any]:
    alert = entry.alert
    return {
        **record_json.fields_of(alert, number="id", condition="condition"),
        "experiment": alert.experiment or None,
        **record_json.fields_of(alert, "level"),
        "state": entry.state,
        **record_json.fields_of(
            alert,
            *("sentence", "detail", "run_id", "opened_at", "seen_at", "closed_at", "closed_why"),
            *("acknowledged_by", "acknowledged_at", "note"),
        ),
        "muted_until": None if entry.mute is None else entry.mute.until,
    }


def _mute_document(mute: Mute) -> dict[str, Any]:
    names = ("condition", "until", "reason")
    return {
        "experiment": mute.experiment or None,
        **record_json.fields_of(mute, *names, by="actor", made_at="made_at"),
    }
