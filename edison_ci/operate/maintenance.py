"""Maintenance of the results file: upgrade, retention and clearing, with roles and audit."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from edison_ci.operate.site import Role
from edison_ci.store.answers import FreedTexts, clear_texts, clearable
from edison_ci.store.audit import add_audit
from edison_ci.store.database import copy_before_upgrade, open_reader, stored_version, version_of
from edison_ci.store.liveness import exclusive_access, shrink
from edison_ci.store.retention import Retention, RetentionResult, collect, collectable

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.operate.site import Actor, Site


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The versions of a results file before and after an upgrade."""

    before: int
    after: int
    copy: Path | None
    """A backup of the file before; None if nothing changed."""


def upgrade(site: Site) -> UpgradeResult:
    """Upgrade the results file to the current version."""
    before = stored_version(site.results)
    actor = site.require(Role.ADMIN, "db upgrade", site.file.results)
    with exclusive_access(site.results, site.locks, "db upgrade") as connection:
        after = version_of(connection)
        if after == before:
            return UpgradeResult(before, after, None)
        entry = site.entry(actor, "db upgrade", site.file.results, before=before, after=after)
        add_audit(connection, entry)
    return UpgradeResult(before, after, copy_before_upgrade(site.results))


# --- old texts ------------------------------------------------------------------------------------


def retention_policy(site: Site) -> Retention | None:
    """Return the retention of old texts by the settings; None keeps them."""
    days = site.file.settings.retention_days
    if days == 0:
        return None
    quarantined = tuple((entry.experiment, entry.case) for entry in site.quarantine().cases)
    return Retention(site.days_ago(days), quarantined, site.production())


def preview_gc(site: Site) -> RetentionResult:
    """Return what `gc` would delete now."""
    retention = retention_policy(site)
    with closing(open_reader(site.results)) as connection:
        return RetentionResult() if retention is None else collectable(connection, retention)


def gc(site: Site, *, actor: Actor | None = None, vacuum: bool = False) -> RetentionResult:
    """Delete the texts that are older than the settings allow; without `actor`, a person does."""
    stored_version(site.results)
    actor = actor or site.require(Role.ADMIN, "gc", site.file.results)
    retention = retention_policy(site)
    gone = RetentionResult()
    if retention is not None:
        with exclusive_access(site.results, site.locks, "gc") as connection:
            gone = collect(connection, retention)
            if gone.texts or gone.reasons or gone.events:
                told = {"cutoff": retention.cutoff, **asdict(gone)}
                add_audit(connection, site.entry(actor, "gc", site.file.results, after=told))
    if vacuum:
        shrink(site.results, site.locks)
    return gone


# --- stored answers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CacheSelection:
    """The stored texts to clear."""

    everything: bool = False
    """Whether texts that cells refer to are cleared too."""
    older_than_days: int | None = None


def preview_clear(site: Site, wanted: CacheSelection) -> FreedTexts:
    """Return what `clear` would delete now."""
    with closing(open_reader(site.results)) as connection:
        return clearable(connection, everything=wanted.everything, before=_before(site, wanted))


def clear(site: Site, wanted: CacheSelection) -> FreedTexts:
    """Delete stored texts; costs and token counts stay."""
    stored_version(site.results)
    actor = site.require(Role.OWNER, "cache clear", site.file.results)
    before = _before(site, wanted)
    with exclusive_access(site.results, site.locks, "cache clear") as connection:
        gone = clear_texts(connection, everything=wanted.everything, before=before)
        told = {**asdict(wanted), **asdict(gone)}
        add_audit(connection, site.entry(actor, "cache clear", site.file.results, after=told))
    return gone


def _before(site: Site, wanted: CacheSelection) -> str | None:
    if wanted.older_than_days is None:
        return None
    return site.days_ago(wanted.older_than_days)
