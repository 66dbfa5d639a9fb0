"""Maintenance of the results file: upgrade, backups, clearing, and the duties of a server."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from edison_ci.access import own_results
from edison_ci.access import site as sites
from edison_ci.api import bundles
from edison_ci.api.duties import DAY_S, Duty
from edison_ci.errors import EdisonError, StoreError, UsageError
from edison_ci.features.upkeep.retention import apply_retention
from edison_ci.numeric import counted
from edison_ci.store import answers, audit, database, integrity, liveness
from edison_ci.store import backup as store_backup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.access.site import Site


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The versions of a results file before and after an upgrade."""

    before: int
    after: int
    copy: Path | None
    """A backup of the file before; None if nothing changed."""


def upgrade(site: Site) -> UpgradeResult:
    """Upgrade the results file to the current version."""
    before = database.stored_version(site.results)
    actor = site.require(sites.Role.ADMIN, "db upgrade", site.file.results)
    with liveness.exclusive_access(site.results, site.locks, "db upgrade") as connection:
        after = database.version_of(connection)
        if after == before:
            return UpgradeResult(before, after, None)
        entry = site.entry(actor, "db upgrade", site.file.results, before=before, after=after)
        audit.add_audit(connection, entry)
    return UpgradeResult(before, after, database.copy_before_upgrade(site.results))


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """The results of all checks of a results file."""

    version: int
    checks: list[integrity.CheckResult]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.ok for check in self.checks)


def check(site: Site) -> IntegrityReport:
    """Check the results file; changes nothing."""
    with closing(database.open_reader(site.results)) as connection:
        return IntegrityReport(
            database.version_of(connection), integrity.check_database(connection)
        )


_SPARE_BYTES = 100_000_000
"""Free space that a backup leaves for runs."""


def make_backup(site: Site, keep: int) -> store_backup.Backup:
    """Copy the results file to the folder of backups, and keep the `keep` newest there."""
    return store_backup.back_up(site.results, site.backups, stamp=_stamp(site), keep=keep)


def find_backup(site: Site, folder: Path, file: Path) -> Path:
    """Return the path of a backup in a folder, or among the backups; raises UsageError."""
    for path in (folder / file, site.backups / file):
        if path.is_file():
            return path
    names = [path.name for path in store_backup.backups_in(site.backups, site.results.stem)[:3]]
    newest = f"the newest are {', '.join(names)}" if names else "make one: edison admin db backup"
    raise UsageError(f"there is no backup {str(file)!r}", hint=newest)


def make_daily_backup(site: Site) -> str:
    """Make a backup if the disk has room for it; return what was done, in words."""
    size, free = site.results.stat().st_size, shutil.disk_usage(site.results.parent).free
    if free < 2 * size + _SPARE_BYTES:
        # A disk that is full stops runs, which is worse than a missing backup.
        raise StoreError(
            f"no room for a backup of {size:,} bytes: {free:,} bytes are free",
            hint="free some space, or lower settings.backups",
        )
    made = make_backup(site, site.file.settings.backups)
    gone = f", {counted(len(made.removed), 'older one')} removed" if made.removed else ""
    return f"{made.path.name}, {made.size_bytes:,} bytes{gone}"


@dataclass(frozen=True, slots=True)
class RestorePreview:
    """What is in a backup, and in the file that it would replace."""

    backup: store_backup.BackupContent
    present: store_backup.BackupContent | None
    """None if the file is missing or cannot be read."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A backup that was restored."""

    content: store_backup.BackupContent
    kept: Path | None
    """The file as it was before; None if there was none."""
    readable: bool
    """Whether that file could be read."""


def preview_restore(site: Site, source: Path) -> RestorePreview:
    """Return what `restore` would replace, and by what."""
    present = None
    if site.results.exists():
        try:
            present = store_backup.content_of(site.results)
        except EdisonError:
            present = None
    return RestorePreview(store_backup.content_of(source), present)


def require_own(site: Site, source: Path) -> None:
    """Raise UsageError unless a file is a backup of this machine, or its signature is trusted."""
    made_here = source.resolve().parent == site.backups.resolve()
    if not (made_here or own_results.is_signed(source, bundles.trusted_keys(site.root))):
        raise UsageError(
            f"{source} is not from .edison/backups and has no signature that is trusted here",
            hint="if it is yours, add --as-own: its answers, grades and costs count as made here; "
            "to add runs of others: edison import bundle FILE",
        )


def restore(site: Site, source: Path, *, as_own: bool = False) -> Restored:
    """Replace the results by a backup; the present file is kept aside.

    All that the file says then counts as made here, so one from elsewhere has to be signed, unless
    the caller says that it is one's own.
    """
    actor = site.require(sites.Role.OWNER, "db restore", site.file.results)
    if not as_own:
        require_own(site, source)
    with liveness.housekeeping_lock(site.locks, "db restore"):
        liveness.refuse_while_run(site.locks)
        with store_backup.checked_copy(source, site.results) as copy:
            content, kept, readable = store_backup.content_of(copy), None, True
            if site.results.exists():
                kept = site.backups / f"before-restore-{_stamp(site)}.db"
                readable = store_backup.keep_aside(site.results, kept)
            after = {"from": source.name, "kept": kept and kept.name, **asdict(content)}
            entry = site.entry(actor, "db restore", site.file.results, after=after)
            liveness.refuse_while_run(site.locks)
            store_backup.replace_content(site.results, copy, entry)
    return Restored(content, kept, readable)


def _stamp(site: Site) -> str:
    return f"{site.clock():%Y%m%dT%H%M%SZ}"


@dataclass(frozen=True, slots=True)
class CacheSelection:
    """The stored texts to clear."""

    everything: bool = False
    """Whether texts that cells refer to are cleared too."""
    older_than_days: int | None = None


@dataclass(frozen=True, slots=True)
class StoredAnswers:
    """The stored answers by model."""

    models: list[answers.ModelCache]

    @property
    def total(self) -> dict[str, int]:
        """The sums over all models."""
        counts = ("answers", "texts", "size_bytes", "cost_microusd", "uses", "saved_microusd")
        return {
            name: sum(getattr(model, name) for model in self.models)
            for name in (*counts, "simulated")
        }


def stored_answers(site: Site) -> StoredAnswers:
    """Return how many answers are stored, and what their reuse saved."""
    with closing(database.open_reader(site.results)) as connection:
        return StoredAnswers(answers.cache_stats(connection))


def preview_clear(site: Site, selection: CacheSelection) -> answers.FreedTexts:
    """Return what `clear` would delete now."""
    with closing(database.open_reader(site.results)) as connection:
        return answers.clearable(
            connection, everything=selection.everything, before=_before(site, selection)
        )


def clear(site: Site, selection: CacheSelection) -> answers.FreedTexts:
    """Delete stored texts; costs and token counts stay."""
    database.stored_version(site.results)
    actor = site.require(sites.Role.OWNER, "cache clear", site.file.results)
    before = _before(site, selection)
    with liveness.exclusive_access(site.results, site.locks, "cache clear") as connection:
        gone = answers.clear_texts(connection, everything=selection.everything, before=before)
        details = {**asdict(selection), **asdict(gone)}
        audit.add_audit(
            connection, site.entry(actor, "cache clear", site.file.results, after=details)
        )
    return gone


def _before(site: Site, selection: CacheSelection) -> str | None:
    if selection.older_than_days is None:
        return None
    return site.days_ago(selection.older_than_days)


def duties_of(site: Site) -> Iterator[Duty]:
    """Yield the duties of a project, as its settings have them."""
    if site.file.settings.retention_days:
        yield Duty("retention", DAY_S, apply_retention)
    if site.file.settings.backups:
        yield Duty("backup", DAY_S, make_daily_backup)
