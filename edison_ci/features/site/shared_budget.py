"""Money leased from a site, so that several machines share one monthly budget.

All calls of a process are booked in the scope of its lease, and what the site granted is one more
cap on them. Where a call does not fit, more is leased before its bytes leave; what was not spent is
returned at the end. A note of each lease is on the disk before the site is asked: the lease of a
process that was killed is returned by the next one here, with what the ledger has booked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.files import make_folder
from edison_ci.errors import UsageError
from edison_ci.features.site import client as site_client
from edison_ci.features.site import lease_rows as store_leases
from edison_ci.numeric import dollars
from edison_ci.sanitize import line
from edison_ci.store.batches import waits_in_batch
from edison_ci.store.ledger import SpendingCap, read_total

if TYPE_CHECKING:
    import datetime as dt
    import sqlite3
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.config.project import ProjectFile
    from edison_ci.config.sections import SharedBudget, SiteLimits
    from edison_ci.store.liveness import ProcessLock

logger = logging.getLogger(__name__)

LEASES_FILE = ".edison/leases.db"
"""What a site has leased to machines."""

SCOPE = "lease:"
PATIENCE_S = 15.0
"""How long a site that cannot be reached is asked again."""
_AT_THE_END_S = 3.0
_FIRST_WAIT_S = 0.25
_ASK_AGAIN_S = 2.0
"""How long a refusal of the site stands while calls are in flight, which may make room."""
_MOST_MICROUSD = 10**12
"""The largest amount that is accepted from a site."""
_LONGEST_NAME = 200
_NAME = "the shared budget"
_NOTE = re.compile(r"[0-9a-f]{32}\.json")


def monthly_limits(limits: SiteLimits | None) -> list[store_leases.MonthlyLimit]:
    """Return the limits of a site, that of all projects first."""
    if limits is None:
        return []
    monthly = []
    if limits.monthly_usd is not None:
        monthly.append(
            store_leases.MonthlyLimit(
                "limits.monthly_usd", "all", "", _microusd(limits.monthly_usd)
            )
        )
    for team, usd in limits.teams.items():
        monthly.append(
            store_leases.MonthlyLimit(f"limits.teams.{team}", "team", team, _microusd(usd))
        )
    for project, usd in limits.projects.items():
        name = f"limits.projects.{project}"
        monthly.append(store_leases.MonthlyLimit(name, "project", project, _microusd(usd)))
    return monthly


class LimitUse(NamedTuple):
    """A limit of a site, and how much of it is used."""

    name: str
    of: str
    """What it is for: all projects, a team or a project, in a month."""
    used_microusd: int
    limit_microusd: int


def limits_here(root: Path, limits: SiteLimits | None, now: dt.datetime) -> list[LimitUse]:
    """Return the limits of a site, read from its own files."""
    month, leases = f"{now:%Y-%m}", store_leases.LeaseFile(root / LEASES_FILE)
    return [
        LimitUse(
            limit.name,
            _whose(limit.scope, limit.of, month),
            leases.used(limit, month),
            limit.microusd,
        )
        for limit in monthly_limits(limits)
    ]


def limits_of(project: Project, now: dt.datetime) -> list[LimitUse]:
    """Return the limits of the site that a project is, if it is one."""
    return limits_here(project.root, project.file.limits, now)


def shared_limits(project: Project) -> list[LimitUse]:
    """Return the limits of the shared budget of a project; raises UsageError."""
    shared = project.file.shared_budget
    if shared is None:
        return []
    try:
        return limits_there(shared, project.file)
    except (site_client.SiteUnreachable, site_client.SiteRefusal) as error:
        raise UsageError(str(error)) from None


def limits_there(shared: SharedBudget, file: ProjectFile) -> list[LimitUse]:
    """Return the limits for a project that its site has.

    Raises UsageError, SiteUnreachable or SiteRefusal.
    """
    site = site_client.SiteClient.of(shared.url_env, shared.token_env, os.environ)
    reply = asyncio.run(site.send("GET", "/budget"))
    own = {("all", ""), ("team", file.team or ""), ("project", file.slug)}
    try:
        return [
            LimitUse(
                _name(limit["name"]),
                _whose(limit["scope"], limit["of"], _name(reply["month"])),
                _amount(limit["used_microusd"]),
                _amount(limit["limit_microusd"]),
            )
            for limit in reply["limits"]
            if (limit["scope"], limit["of"]) in own
        ]
    except (KeyError, TypeError, ValueError):
        raise site_client.unknown_reply() from None


def _name(value: object) -> str:
    return line(str(value))[:_LONGEST_NAME]


def _amount(value: object) -> int:
    """Return an amount that a site names; raises ValueError."""
    if type(value) is not int or not 0 <= value <= _MOST_MICROUSD:
        raise ValueError
    return value


def _whose(scope: str, of: str, month: str) -> str:
    return f"all machines in {month}" if scope == "all" else f"{scope} {of} in {month}"


def _microusd(usd: float) -> int:
    return round(usd * 1_000_000)


class MoneyLease:
    """What a process has leased, and may spend."""

    def __init__(
        self,
        project: Project,
        terms: SharedBudget,
        reader: sqlite3.Connection,
        owner: ProcessLock,
        *,
        offline: bool = False,
    ) -> None:
        self._file = project.file
        self._terms, self._reader, self._owner = terms, reader, owner
        self._notes = project.root / ".edison" / "leases"
        self._offline = offline
        self._site: site_client.SiteClient | None = None
        self._asking = asyncio.Lock()
        self._retired: list[str] = []
        self._unlimited_until = 0.0
        self._begin()

    def _begin(self) -> None:
        """Start a lease, of which the site does not know yet."""
        self.id = uuid.uuid4().hex
        self._granted, self._until, self._noted = 0, 0.0, False
        self._refusal, self._refused_at = "", 0.0

    @property
    def scope(self) -> str:
        """The scope in which calls are booked."""
        return f"{SCOPE}{self.id}"

    @property
    def cap(self) -> SpendingCap:
        """The cap of calls; a lease that was not renewed in time allows nothing."""
        now = time.monotonic()
        most: int | None = self._granted if now < self._until else 0
        if now < self._unlimited_until:
            most = None
        return SpendingCap(self.scope, None, microusd=most, name=_NAME)

    async def extend(self, microusd: int) -> str:
        """Lease money for calls that cost at most this; return the name of what has no room.

        Returns an empty text if there is room now.
        """
        async with self._asking:
            if self._refusal and time.monotonic() - self._refused_at < _ASK_AGAIN_S:
                return self._refusal
            self._refusal = await self._extended(microusd)
            self._refused_at = time.monotonic()
            return self._refusal

    async def _extended(self, microusd: int) -> str:
        try:
            site = self._connected()
            if not self._noted:
                await self._return_lost(site)
            renewed = False
            while True:
                needs = self._spent(self.id) + microusd
                if needs <= self._granted and time.monotonic() < self._until:
                    return ""  # another call leased it meanwhile
                try:
                    await self._lease(site, needs)
                    return ""
                except site_client.SiteRefusal as refused:
                    if renewed or refused.code not in ("month", "returned"):
                        return self._refused(site, refused)
                    renewed = True
                    # Calls in flight belong to the lease of the last month: it is returned later.
                    self._retired.append(self.id)
                    self._begin()
        except site_client.SiteUnreachable as error:
            return self._unreached(str(error))
        except UsageError as error:
            return f"{_NAME} ({error.message})"

    def _connected(self) -> site_client.SiteClient:
        if self._offline:
            raise site_client.SiteUnreachable("network access is disabled by --offline")
        if self._site is None:
            self._site = site_client.SiteClient.of(
                self._terms.url_env, self._terms.token_env, os.environ
            )
        return self._site

    def _refused(self, site: site_client.SiteClient, refused: site_client.SiteRefusal) -> str:
        logger.warning("the site leases no more", extra={"reason": refused.message})
        limit = refused.limit if refused.code == "budget" else ""
        what = f"{limit} of {site.host}" if limit else refused.message
        return f"{_NAME} ({what})"

    def _unreached(self, why: str) -> str:
        host = self._site.host if self._site is not None else "its site"
        if self._terms.if_unreachable == "continue":
            # Then the site is asked again, and learns what was spent meanwhile.
            self._unlimited_until = time.monotonic() + store_leases.LEASE_S
            logger.warning(
                "the shared budget cannot be reached; calls continue without it",
                extra={"site": host, "reason": why},
            )
            return ""
        logger.warning("the shared budget cannot be reached", extra={"site": host, "reason": why})
        return f"the leased part of {_NAME} ({host} cannot be reached)"

    async def _lease(self, site: site_client.SiteClient, needs: int) -> None:
        self._note(site)
        asked = time.monotonic()
        reply = await _send(
            site,
            f"/budget/leases/{self.id}",
            {**self._report(self.id), "needs_microusd": needs},
            PATIENCE_S,
        )
        try:
            granted, seconds = _amount(reply["granted_microusd"]), _amount(reply["expires_in_s"])
        except (KeyError, ValueError):
            raise site_client.unknown_reply() from None
        if granted < needs or not seconds or reply.get("lease") != self.id:
            raise site_client.unknown_reply()
        # Counted from before the request, so that the site's deadline is never later.
        self._granted, self._until = granted, asked + min(seconds, store_leases.LEASE_S)
        logger.info("leased", extra={"site": site.host, "granted": dollars(granted)})

    def _report(self, lease_id: str) -> dict[str, Any]:
        names = {"project": self._file.slug, "team": self._file.team or ""}
        return {**names, "spent_microusd": self._spent(lease_id)}

    def _spent(self, lease_id: str) -> int:
        return read_total(self._reader, f"{SCOPE}{lease_id}", "")[0]

    async def close(self) -> None:
        """Return what was not spent; if that fails, the next process here does it.

        A process that only collects a batch returns the lease of the one that sent it.
        """
        own = [*self._retired, *([self.id] if self._noted else [])]
        if self._offline or not (own or any(self._notes.glob("*.json"))):
            return
        try:
            site = self._connected()
        except UsageError as error:
            logger.warning("a lease was not returned", extra={"reason": error.message})
            return
        for lease_id in own:
            await self._give_back(site, lease_id)
        await self._return_lost(site)

    async def _give_back(self, site: site_client.SiteClient, lease_id: str) -> None:
        if waits_in_batch(self._reader, f"{SCOPE}{lease_id}"):
            return  # its cost is known when the batch is collected
        try:
            await _send(
                site, f"/budget/leases/{lease_id}/return", self._report(lease_id), _AT_THE_END_S
            )
        except (site_client.SiteRefusal, site_client.SiteUnreachable) as error:
            logger.warning("a lease was not returned", extra={"reason": str(error)})
            return
        (self._notes / f"{lease_id}.json").unlink(missing_ok=True)

    async def _return_lost(self, site: site_client.SiteClient) -> None:
        """Return the leases of processes that ended without doing so."""
        for path in sorted(self._notes.glob("*.json")):
            note = _read(path)
            if note.get("site") != site.url or not _NOTE.fullmatch(path.name):
                continue
            owner = note.get("owner")
            if isinstance(owner, str) and not self._owner.is_alive(owner):
                await self._give_back(site, path.stem)

    def _note(self, site: site_client.SiteClient) -> None:
        """Write down that the lease is asked for, before it is."""
        if self._noted:
            return
        make_folder(self._notes)
        text = json.dumps({"site": site.url, "owner": self._owner.id})
        with (self._notes / f"{self.id}.json").open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._noted = True


async def _send(
    site: site_client.SiteClient, path: str, body: Mapping[str, Any], patience_s: float
) -> dict[str, Any]:
    """Send a request until it is answered; repeated ones are one.

    Raises SiteUnreachable or SiteRefusal; a site that is busy is asked again before.
    """
    until, wait_s = time.monotonic() + patience_s, _FIRST_WAIT_S
    while True:
        try:
            return await site.send("POST", path, body)
        except (site_client.SiteUnreachable, site_client.SiteBusy):
            if time.monotonic() + wait_s > until:
                raise
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, 5.0)


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text("utf-8"))
        if isinstance(value, dict):
            return value
    return {}
