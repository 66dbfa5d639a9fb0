"""Notifications: messages to recipients, written to the outbox and delivered from it.

`notify` writes a row for each recipient in the transaction of the fact; `deliver` sends
what is due. A message is sent at least once, with an id by which a second one is dropped. A failed
one is tried again, later and later, until some days have passed. One process of a machine delivers
at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import random
import uuid
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci import feature, utc
from edison_ci._dataclass import dataclass
from edison_ci.access.job import keys_at
from edison_ci.access.proposal_terms import base_file, is_proposed
from edison_ci.access.site import BY_ITSELF
from edison_ci.api.notices import Notice
from edison_ci.errors import DeliveryError, EdisonError
from edison_ci.features.monitor import mail, outbox, webhooks
from edison_ci.sanitize import line, lines
from edison_ci.store.audit import add_audit
from edison_ci.store.database import open_for_change
from edison_ci.store.liveness import try_lock

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.access.site import Site
    from edison_ci.config.sections import Notification, Occasion

logger = logging.getLogger(__name__)


FIRST_WAIT_S = 30.0
LONGEST_WAIT_S = 3_600.0
MOST_ASKED_S = 6 * 3_600.0
"""The longest wait that a server may ask for."""
GIVE_UP_DAYS, GIVE_UP_ATTEMPTS = 3, 5
"""Both have to pass: after a clock jumped ahead, nothing is given up at once."""
KEPT_DAYS = 30
"""How long the outbox keeps what was sent or given up."""
PER_HOUR = 10
"""Most messages for one recipient in an hour; the rest is sent as a digest."""
_DIGEST_NOTICES = 50
_TEXT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """Results of the notifications that were due."""

    sent: int = 0
    problems: tuple[tuple[str, str], ...] = ()
    """Recipient and error of each failure."""
    unset: tuple[tuple[str, str], ...] = ()
    """The same for recipients whose variable this process does not have."""
    given_up: int = 0
    busy: bool = False
    """Whether another process was delivering."""


def recipients(site: Site, environ: Mapping[str, str] = os.environ) -> tuple[Notification, ...]:
    """Return the recipients of a project.

    In a job for a proposal only those that the base has as well: the author of a pull request must
    not decide what is sent where.
    """
    allowed, why = _recipients(site, environ)
    if why:
        logger.warning("notifications are off in this job", extra={"reason": why})
    return allowed


def _recipients(site: Site, environ: Mapping[str, str]) -> tuple[tuple[Notification, ...], str]:
    """Return the recipients, and why those of a proposal cannot be known."""
    named = site.file.notifications
    try:
        if not named or not is_proposed(site.root, environ):
            return named, ""
        base = base_file(site.root, environ)
    except EdisonError as error:
        return (), error.message
    of_base = () if base is None else base.notifications
    return tuple(recipient for recipient in named if recipient in of_base), ""


def silent_recipients(site: Site, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the recipients of edison.yaml that are not notified in this job, and why."""
    allowed, why = _recipients(site, environ)
    why = why or "the base does not have this recipient, or has it with other values"
    named = [recipient.name for recipient in site.file.notifications if recipient not in allowed]
    return dict.fromkeys(named, f"not notified in this job, which is for a proposal: {why}")


def address_of(recipient: Notification, environ: Mapping[str, str]) -> str:
    """Return how a recipient is reached, for people: the variable and the host, never the URL."""
    if recipient.github_issues:
        return "issues on GitHub"
    host, how = "", "mail"
    name = recipient.webhook_env or ""
    if recipient.smtp is not None:
        name = recipient.smtp.host_env
        with contextlib.suppress(DeliveryError):
            host = mail.mail_server(recipient.smtp, environ).host
    else:
        host = webhooks.host_of(name, environ)
        how = "webhook" if recipient.format == "json" else recipient.format
    return f"{how} at {host} ({name})" if host else f"{how}, {name} is not set"


def notify(
    connection: sqlite3.Connection,
    site: Site,
    notice: Notice,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Write a notice to the outbox for each recipient that wants it; return how many there are.

    It is written in the current transaction.
    """
    count = 0
    for recipient in recipients(site, environ):
        if (occasion := _wanted(recipient, notice)) is not None:
            addressed = replace(notice, occasion=occasion)
            for address in recipient.smtp.to if recipient.smtp is not None else ("",):
                message = message_of(site, addressed, texts=recipient.texts)
                outbox.add_notification(connection, message, recipient.name, address)
            count += 1
    return count


def _wanted(recipient: Notification, notice: Notice) -> Occasion | None:
    """Return the occasion for which a recipient gets a notice; None if it does not."""
    if recipient.github_issues and notice.condition is None:
        return None
    if notice.issues_only and not recipient.github_issues:
        return None
    named = (notice.occasion, *notice.also)
    return next((occasion for occasion in named if occasion in recipient.on), None)


def message_of(site: Site, notice: Notice, *, texts: bool = False) -> dict[str, Any]:
    """Return a notice as it is stored and sent, without secrets and control characters."""
    return {
        "schema_version": 1,
        "id": uuid.uuid4().hex,
        "project": site.file.project,
        "occasion": notice.occasion,
        "title": line(notice.title),
        "sentences": [line(sentence) for sentence in notice.sentences],
        "experiment": notice.experiment,
        "run_id": notice.run_id,
        "condition": notice.condition,
        "level": notice.level,
        "open": notice.open,
        "at": notice.at or site.now(),
        "texts": [lines(text)[:_TEXT_CHARS] for text in notice.texts] if texts else [],
        "notices": [],
    }


def deliver(
    site: Site,
    *,
    environ: Mapping[str, str] | None = None,
    seconds: float | None = None,
    rng: random.Random | None = None,
) -> Delivery:
    """Send what is due, for `seconds` at most; what is left stays for the next time.

    Addresses and passwords are in `environ`: by default the variables and sealed keys.
    """
    if not site.results.exists():
        return Delivery()
    with try_lock(site.locks, "notifications") as free:
        if not free:
            return Delivery(busy=True)
        keys = keys_at(site.root) if environ is None else environ
        courier = _Courier(site, keys, rng or random.Random(), seconds)
        with open_for_change(site.results) as connection:
            queues = courier.prepare(connection)
        if queues:
            asyncio.run(courier.send_all(queues))
        return courier.delivery()


@dataclass(slots=True)
class _Courier:
    """One delivery: what is due is sent to all recipients at once, to each in order."""

    site: Site
    environ: Mapping[str, str]
    rng: random.Random
    limit_s: float | None = None
    sent: int = 0
    given_up: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    unset: list[tuple[str, str]] = field(default_factory=list)

    def delivery(self) -> Delivery:
        return Delivery(self.sent, tuple(self.problems), tuple(self.unset), self.given_up)

    def prepare(self, connection: sqlite3.Connection) -> list[list[outbox.StoredNotification]]:
        """Return what each recipient is sent now, with digests of what is too much."""
        kept = self.site.file.settings.retention_days or KEPT_DAYS
        outbox.prune_notifications(connection, self.site.days_ago(min(kept, KEPT_DAYS)))
        queues: dict[tuple[str, str], list[outbox.StoredNotification]] = {}
        for notification in self._due(connection):
            queues.setdefault((notification.recipient, notification.address), []).append(
                notification
            )
        limited = (self._limited(connection, waiting) for waiting in queues.values())
        return [queue for queue in limited if queue]

    def _due(self, connection: sqlite3.Connection) -> list[outbox.StoredNotification]:
        return outbox.due_notifications(
            connection, now=self.site.now(), latest=self._after(MOST_ASKED_S + LONGEST_WAIT_S)
        )

    def _limited(
        self, connection: sqlite3.Connection, waiting: list[outbox.StoredNotification]
    ) -> list[outbox.StoredNotification]:
        """Return as many messages as fit into the hour, the last of them a digest of the rest."""
        name, address = waiting[0].recipient, waiting[0].address
        sent = outbox.sent_since(connection, name, address, self._after(-3_600))
        room, recipient = max(0, PER_HOUR - sent), self._recipient(name)
        if len(waiting) <= room or (recipient is not None and recipient.github_issues):
            return waiting
        if room == 0:
            return []
        single, rest = waiting[: room - 1], waiting[room - 1 :]
        digest = digest_of(self.site, rest)
        outbox.put_in_digest(connection, digest, rest)
        return [
            *single,
            replace(
                rest[0],
                id=digest["id"],
                occasion="digest",
                message=digest,
                attempts=0,
                created_at=digest["at"],
            ),
        ]

    def _recipient(self, name: str) -> Notification | None:
        matching = (
            recipient for recipient in recipients(self.site, self.environ) if recipient.name == name
        )
        return next(matching, None)

    def _after(self, seconds: float) -> str:
        return utc.timestamp(self.site.clock() + dt.timedelta(seconds=seconds))

    async def send_all(self, queues: Sequence[Sequence[outbox.StoredNotification]]) -> None:
        """Send to all recipients at once."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.limit_s), asyncio.TaskGroup() as group:
                    for queue in queues:
                        group.create_task(self._send_queue(queue))
        except ExceptionGroup as found:
            raise found.exceptions[0] from None

    async def _send_queue(self, queue: Sequence[outbox.StoredNotification]) -> None:
        name = queue[0].recipient
        recipient = self._recipient(name)
        for notification in queue:
            try:
                if recipient is None or not _has_address(recipient, notification.address):
                    raise DeliveryError(
                        f"{notification.address or name} is not in edison.yaml (any more)",
                        hint="add it again, or wait",
                    )
                await _Sender(self.site, recipient, self.environ, self.limit_s).send(
                    notification.message, notification.address
                )
            except DeliveryError as error:
                if not self._note_failure(notification, error):
                    return
            else:
                with open_for_change(self.site.results) as connection:
                    outbox.note_sent(connection, notification.id, self.site.now())
                self.sent += 1

    def _note_failure(self, notification: outbox.StoredNotification, error: DeliveryError) -> bool:
        """Note a failure; return whether the next message is worth trying."""
        why = line(error.message)
        (self.unset if error.unset else self.problems).append((notification.recipient, why))
        logger.info("not delivered", extra={"recipient": notification.recipient, "reason": why})
        next_at = self._after(self._wait_s(notification.attempts, error.retry_after_s))
        old = notification.created_at < self.site.days_ago(GIVE_UP_DAYS)
        with open_for_change(self.site.results) as connection:
            if old and notification.attempts + 1 >= GIVE_UP_ATTEMPTS:
                outbox.give_up(connection, notification, why, self.site.now())
                add_audit(connection, self._audit(notification, why))
                self.given_up += 1
            elif error.unset:  # another process may have the variable, and must not wait
                outbox.note_failure(connection, notification, why, due_at=notification.due_at)
            else:
                outbox.note_failure(connection, notification, why, due_at=next_at)
                if not error.this_message:
                    outbox.postpone(connection, notification, next_at)
        return error.this_message

    def _audit(self, notification: outbox.StoredNotification, why: str) -> Any:
        details = {
            "id": notification.id,
            "occasion": notification.occasion,
            "created_at": notification.created_at,
            "error": why,
        }
        return self.site.entry(
            BY_ITSELF, "notification given up", notification.recipient, after=details
        )

    def _wait_s(self, attempts: int, asked_s: float | None) -> float:
        """Return how long to wait: twice as long each time, with jitter, or what was asked for."""
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempts, 20))
        own = longest * self.rng.uniform(0.5, 1.0)
        return max(own, min(asked_s or 0.0, MOST_ASKED_S))


def _has_address(recipient: Notification, address: str) -> bool:
    """Whether a stored address is one that edison.yaml names."""
    return address in (("",) if recipient.smtp is None else recipient.smtp.to)


def digest_of(site: Site, waiting: Sequence[outbox.StoredNotification]) -> dict[str, Any]:
    """Return one message about many that were held back."""
    parts = [message.message for message in waiting]
    first, last = parts[0]["at"], parts[-1]["at"]
    notices = [part for message in parts for part in (message["notices"] or [message])]
    title = f"{len(notices):,} notifications between {first} and {last}"
    more = len(notices) - _DIGEST_NOTICES
    sentences = [f"At most {PER_HOUR} messages an hour are sent; these were held back."]
    if more > 0:
        sentences.append(f"The last {_DIGEST_NOTICES} are listed, {more:,} more are not.")
    keys = ("occasion", "title", "experiment", "run_id", "condition", "level", "open", "at")
    listed = [{key: part[key] for key in keys} for part in notices[-_DIGEST_NOTICES:]]
    loudest = next(
        (lv for lv in ("alert", "warn") if any(p["level"] == lv for p in notices)), "info"
    )
    return {
        "schema_version": 1,
        "id": uuid.uuid4().hex,
        "project": site.file.project,
        "occasion": "digest",
        "title": title,
        "sentences": sentences,
        **dict.fromkeys(("experiment", "run_id", "condition")),
        "level": loudest,
        "open": True,
        "at": site.now(),
        "texts": [],
        "notices": listed,
    }


def send_test(site: Site, recipient: Notification, environ: Mapping[str, str] | None = None) -> str:
    """Send a test message at once and return what the server answered; raises DeliveryError."""
    sentences = (
        f"This is a test. {recipient.name} is notified of: {', '.join(recipient.on)}.",
        "Nothing has happened, and there is nothing to do.",
    )
    notice = Notice(recipient.on[0], f"Test from {site.file.project}", sentences)
    message = {**message_of(site, notice), "occasion": "test"}
    keys = keys_at(site.root) if environ is None else environ
    return asyncio.run(_Sender(site, recipient, keys).test(message))


@dataclass(frozen=True, slots=True)
class _Sender:
    """Sends messages to one recipient."""

    site: Site
    recipient: Notification
    environ: Mapping[str, str]
    limit_s: float | None = None

    async def send(self, message: Mapping[str, Any], address: str) -> str:
        """Send a message and return what the server answered; raises DeliveryError."""
        smtp = self.recipient.smtp
        if smtp is not None:
            return await mail.send_mail(smtp, address, message, self.environ, limit_s=self.limit_s)
        if self.recipient.github_issues:
            tell_issue = feature.required("tell_issue", "github")
            return str(await tell_issue(self.site.root, message, self.environ))
        return await webhooks.post(self.recipient, message, self.environ, self.site.clock())

    async def test(self, message: Mapping[str, Any]) -> str:
        """Send a test message to every address; an issue is closed at once."""
        smtp = self.recipient.smtp
        if smtp is not None:
            return "; ".join([f"{to}: {await self.send(message, to)}" for to in smtp.to])
        if self.recipient.github_issues:
            asked = {**message, "condition": "test"}
            opened = await self.send(asked, "")
            return f"{opened}; {await self.send({**asked, 'open': False}, '')}"
        return await self.send(message, "")
