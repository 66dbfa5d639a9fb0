"""edison notifications: recipients and deliveries, and a test message to each recipient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci import utc
from edison_ci.access import site as sites
from edison_ci.access.job import keys_at
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.documents import record_json
from edison_ci.errors import DeliveryError, EdisonError, ExitCode, UsageError
from edison_ci.features.monitor import notifications as outgoing
from edison_ci.features.monitor import outbox
from edison_ci.numeric import counted
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.sections import Notification

_RUN_SECONDS = 5.0


@click.group(cls=EdisonGroup)
def notifications() -> None:
    """List, test and send notifications.

    The recipients are in edison.yaml. A message is kept in the results file until
    their server has accepted it: `edison run` sends it at its end, and so do `edison serve` and
    `edison schedule run`. URLs and passwords come from environment variables, and are never stored
    or shown.

    Examples:
      edison notifications list
      edison notifications test chat
      edison notifications send
    """


@notifications.command("list", cls=EdisonCommand)
@click.pass_obj
def list_recipients(state: CliState) -> None:
    """List the recipients, and what waits, was sent or failed.

    What cannot be delivered is tried again, later and later, for 3 days; then it counts as failed.

    Examples:
      edison notifications list
      edison notifications list --json
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    counts = _counts(site)
    named = {recipient.name: recipient for recipient in site.file.notifications}
    rows = [(name, named.get(name), counts.get(name)) for name in dict.fromkeys([*named, *counts])]
    environ = keys_at(site.root)
    if terminal.json:
        terminal.document({"recipients": [_as_json(*row, environ) for row in rows]})
        return
    if not rows:
        terminal.note("edison.yaml has no notifications; docs/watching.md shows how to add one")
        return
    for name, recipient, count in rows:
        by = _way(recipient, environ) or "no longer in edison.yaml"
        terminal.result(StyledText(name, bold=True), f": {by}")
        _show_recipient(terminal, recipient, count)


def _show_recipient(
    terminal: Terminal, recipient: Notification | None, count: outbox.RecipientCounts | None
) -> None:
    if recipient is not None:
        texts = "; with texts" if recipient.texts else ""
        terminal.result(f"  on {', '.join(recipient.on)}{texts}", hang=5)
    if count is None:
        terminal.result("  no notifications yet")
        return
    last = f"; last sent {utc.to_minute(count.last_sent_at)}" if count.last_sent_at else ""
    terminal.result(
        f"  {count.waiting:,} waiting, {count.sent:,} sent, {count.failed:,} failed{last}"
    )
    if count.last_error and (count.waiting or count.failed):
        terminal.result("  ", StyledText(count.last_error, BAD), hang=2)
    if count.waiting and count.next_at is not None and count.last_error:
        terminal.result(f"  tried again at {utc.to_minute(count.next_at)}")


@notifications.command("test", cls=EdisonCommand)
@click.argument("names", nargs=-1, metavar="[RECIPIENT]...")
@click.pass_obj
def test_recipients(state: CliState, names: tuple[str, ...]) -> None:
    """Send a test message to each recipient, or to those named.

    Prints what the server answered. Exit code 3 if one was not accepted.

    Examples:
      edison notifications test
      edison notifications test chat mail
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    chosen = _chosen(terminal, site, names)
    actor = site.require(
        sites.Role.EDITOR, "notifications test", ", ".join(recipient.name for recipient in chosen)
    )
    _refuse_offline(state)
    results, environ = [], keys_at(site.root)
    for recipient in chosen:
        try:
            reply, error = outgoing.send_test(site, recipient), None
        except DeliveryError as failed:
            reply, error = "", failed
        after = "accepted" if error is None else error.message
        site.note(site.entry(actor, "notifications test", recipient.name, after=after))
        results.append((recipient, _way(recipient, environ), reply, error))
        if not terminal.json:
            _show_test(terminal, *results[-1])
    if terminal.json:
        terminal.document({"tests": [_test_json(*result) for result in results]})
    if any(error is not None for *_, error in results):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


@notifications.command("send", cls=EdisonCommand)
@click.pass_obj
def send_waiting(state: CliState) -> None:
    """Send what waits, for cron or CI.

    What was tried a moment ago is left for later. Exit code 3 if something was not accepted.

    Examples:
      edison notifications send
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    site.require(sites.Role.EDITOR, "notifications send")
    _refuse_offline(state)
    delivery = outgoing.deliver(site)
    if terminal.json:
        failed = (*delivery.problems, *delivery.unset)
        problems = [{"recipient": name, "error": why} for name, why in failed]
        numbers = record_json.fields_of(delivery, "sent", "given_up", "busy")
        terminal.document({**numbers, "problems": problems})
    elif delivery.busy:
        terminal.note("another process is sending notifications at the moment")
    else:
        waiting = sum(count.waiting for count in _counts(site).values())
        rest = f", {waiting:,} still wait" if waiting else ""
        terminal.result(f"{counted(delivery.sent, 'notification')} sent{rest}")
        _show_problems(terminal, delivery)
        for name, why in dict.fromkeys(delivery.unset):
            terminal.note(StyledText(f"{name}: ", ODD), why)
    if delivery.problems or delivery.unset:
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


def deliver_briefly(terminal: Terminal, site: sites.Site) -> None:
    """Send what is due at the end of a run; the outcome changes nothing about the run."""
    if terminal.offline or not site.file.notifications:
        return
    try:
        delivery = outgoing.deliver(site, seconds=_RUN_SECONDS)
    except EdisonError as error:
        terminal.note(StyledText("notifications: ", ODD), error.message)
        return
    _show_problems(terminal, delivery)


def _show_problems(terminal: Terminal, delivery: outgoing.Delivery) -> None:
    for name, why in dict.fromkeys(delivery.problems):
        terminal.note(StyledText(f"{name}: ", ODD), f"not delivered yet: {why}")
    if delivery.given_up:
        terminal.note(f"{counted(delivery.given_up, 'notification')} given up after 3 days")


def _refuse_offline(state: CliState) -> None:
    if state.offline:
        raise UsageError("network access is disabled by --offline", hint="leave out --offline")


def _counts(site: sites.Site) -> dict[str, outbox.RecipientCounts]:
    if not site.results.exists():
        return {}
    with lookup.results_of(site) as connection:
        return {count.recipient: count for count in outbox.count_notifications(connection)}


def _chosen(terminal: Terminal, site: sites.Site, names: tuple[str, ...]) -> list[Notification]:
    if not site.file.notifications:
        raise UsageError(
            "edison.yaml has no notifications", hint="docs/watching.md shows how to add one"
        )
    silent = outgoing.silent_recipients(site)
    asked = [name for name in names if name in silent]
    if asked or len(silent) == len(site.file.notifications):
        name = next(iter(asked or silent))
        raise UsageError(f"{name}: {silent[name]}", hint="test it on the default branch")
    for name, why in silent.items():
        terminal.note(StyledText(f"{name}: ", ODD), why)
    by_name = {recipient.name: recipient for recipient in outgoing.recipients(site)}
    for name in names:
        if name not in by_name:
            raise UsageError(f"there is no recipient {name!r}", hint=did_you_mean(name, by_name))
    return [by_name[name] for name in dict.fromkeys(names)] or [*by_name.values()]


def _way(recipient: Notification | None, environ: Mapping[str, str]) -> str | None:
    return None if recipient is None else outgoing.address_of(recipient, environ)


def _show_test(
    terminal: Terminal,
    recipient: Notification,
    by: str | None,
    reply: str,
    error: DeliveryError | None,
) -> None:
    name = f"{recipient.name}, {by}: "
    if error is None:
        terminal.result(name, StyledText("accepted", GOOD), f" ({reply})" if reply else "")
        return
    terminal.result(name, StyledText(error.message, BAD))
    if error.hint:
        terminal.result(f"  {error.hint}")


def _test_json(
    recipient: Notification, by: str | None, reply: str, error: DeliveryError | None
) -> dict[str, Any]:
    return {
        "recipient": recipient.name,
        "by": by,
        "accepted": error is None,
        "answer": reply or None,
        "error": None if error is None else error.message,
        "hint": error.hint or None if error is not None else None,
    }


def _as_json(
    name: str,
    recipient: Notification | None,
    count: outbox.RecipientCounts | None,
    environ: Mapping[str, str],
) -> dict[str, Any]:
    counts = count or outbox.RecipientCounts(name)
    return {
        "recipient": name,
        "by": _way(recipient, environ),
        "on": [] if recipient is None else list(recipient.on),
        "texts": recipient is not None and recipient.texts,
        **record_json.fields_of(counts, "waiting", "sent", "failed", "last_sent_at"),
        "last_error": counts.last_error or None,
        "next_attempt_at": counts.next_at,
    }
