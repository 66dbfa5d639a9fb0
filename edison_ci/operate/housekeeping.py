"""Housekeeping of the results: what it changes, who may do it, and its audit."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from edison_ci.operate.actors import Role
from edison_ci.store.answers import Freed, clear_texts, clearable
from edison_ci.store.audit import add_audit
from edison_ci.store.database import copy_before_upgrade, open_reader, stored_version, version_of
from edison_ci.store.exclusive import exclusively, shrink
from edison_ci.store.retention import Collected, Retention, collect, collectable

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.operate.site import Site


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A results file before and after."""

    before: int
    after: int
    copy: Path | None
    """As it was before; None if nothing changed."""


def upgrade(site: Site) -> Upgraded:
    """Bring the results file up to date."""
    before = stored_version(site.results)
    actor = site.require(Role.ADMIN, "db upgrade", site.file.results)
    with exclusively(site.results, site.locks, "db upgrade") as connection:
        after = version_of(connection)
        if after == before:
            return Upgraded(before, after, None)
        entry = site.entry(actor, "db upgrade", site.file.results, before=before, after=after)
        add_audit(connection, entry)
    return Upgraded(before, after, copy_before_upgrade(site.results))


# --- old texts ------------------------------------------------------------------------------------


def retention_of(site: Site) -> Retention | None:
    """Return what the project's settings say about old texts; None keeps them for ever."""
    days = site.file.settings.retention_days
    if days == 0:
        return None
    quarantined = tuple((entry.experiment, entry.case) for entry in site.quarantine().cases)
    return Retention(site.days_ago(days), quarantined, site.production())


def preview_gc(site: Site) -> Collected:
    """Return what `gc` would take away now."""
    retention = retention_of(site)
    with closing(open_reader(site.results)) as connection:
        return Collected() if retention is None else collectable(connection, retention)


def gc(site: Site, *, vacuum: bool = False) -> Collected:
    """Take away the texts that are older than the settings say."""
    stored_version(site.results)
    actor = site.require(Role.ADMIN, "gc", site.file.results)
    retention = retention_of(site)
    gone = Collected()
    if retention is not None:
        with exclusively(site.results, site.locks, "gc") as connection:
            gone = collect(connection, retention)
            if gone.texts or gone.reasons or gone.events:
                told = {"cutoff": retention.cutoff, **asdict(gone)}
                add_audit(connection, site.entry(actor, "gc", site.file.results, after=told))
    if vacuum:
        shrink(site.results, site.locks)
    return gone


# --- stored answers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clearing:
    """Which texts a person wants to be rid of."""

    everything: bool = False
    """Also those that cells point to."""
    older_than_days: int | None = None


def preview_clear(site: Site, wanted: Clearing) -> Freed:
    """Return what `clear` would take away now."""
    with closing(open_reader(site.results)) as connection:
        return clearable(connection, everything=wanted.everything, before=_before(site, wanted))


def clear(site: Site, wanted: Clearing) -> Freed:
    """Take away stored texts; the numbers of what was paid for stay."""
    stored_version(site.results)
    actor = site.require(Role.OWNER, "cache clear", site.file.results)
    before = _before(site, wanted)
    with exclusively(site.results, site.locks, "cache clear") as connection:
        gone = clear_texts(connection, everything=wanted.everything, before=before)
        told = {**asdict(wanted), **asdict(gone)}
        add_audit(connection, site.entry(actor, "cache clear", site.file.results, after=told))
    return gone


def _before(site: Site, wanted: Clearing) -> str | None:
    if wanted.older_than_days is None:
        return None
    return site.days_ago(wanted.older_than_days)
