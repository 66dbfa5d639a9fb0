"""Bundles: runs that travel as one file with all they rest on, and checksums.

A bundle is a ZIP file with `results.db`, a results file that has these runs alone, and
`manifest.json`, which says what is in it. It is taken in if every checksum is right, the results
are sound, and what they say is possible; in one transaction, or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.operate.actors import Role
from edison_ci.results.rollups import rollups_of
from edison_ci.store.database import migrations
from edison_ci.store.extracts import accept, extract, known_runs
from edison_ci.store.foreign import odd_things, open_foreign
from edison_ci.store.runs import count_cells, find_run, run_ids

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.operate.site import Site
    from edison_ci.store.runs import Run


# Only names that are expected are unpacked, each to a place of our choosing, never more than is
# allowed of it, whatever the archive says of itself.
MOST_BYTES = 1_000_000_000
"""Of the archive, and of all that is in it."""
MOST_MEMBERS = 100
MOST_RATIO = 100
_SLACK = 1_000_000
"""Bytes that may come of nearly nothing: a small file of one letter."""
_CHUNK = 1 << 20
_END = struct.Struct("<4s4H2LH")
_LOCATOR = 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Unpacked(NamedTuple):
    """A file that was in an archive."""

    path: Path
    size_bytes: int
    sha256: str


def unpack(archive: Path, wanted: Mapping[str, int], folder: Path) -> dict[str, Unpacked]:
    """Unpack the files that are wanted, and how large each may be; anything else is refused."""
    _refuse_size(archive)
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            _refuse_members(archive, members, wanted)
            return {
                member.filename: _unpacked(opened, member, wanted[member.filename], folder)
                for member in members
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise no_bundle(archive, f"it is damaged ({error})") from None
    except OSError as error:
        raise no_bundle(archive, f"it cannot be read ({error.strerror or error})") from None


def no_bundle(archive: Path, why: str) -> UsageError:
    """Return the error for what cannot be taken in."""
    return UsageError(
        f"{archive} is no bundle: {why}", hint="make one with edison report --format bundle"
    )


def _refuse_size(archive: Path) -> None:
    """Refuse, by its last bytes, what would fill the memory when it is only listed."""
    if not archive.is_file():
        raise UsageError(
            f"there is no file {archive}", hint="name a bundle: edison import bundle FILE"
        )
    size = archive.stat().st_size
    if size > MOST_BYTES:
        raise no_bundle(archive, f"it has {size:,} bytes, and {MOST_BYTES:,} are allowed")
    with archive.open("rb") as stream:
        stream.seek(-min(size, _END.size + _LOCATOR), os.SEEK_END)
        tail = stream.read()
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise no_bundle(archive, "it does not end as a ZIP file does")
    entries = _END.unpack(end)[4]
    if tail.startswith(b"PK\6\7") or entries > MOST_MEMBERS:
        raise no_bundle(archive, f"it has more than {MOST_MEMBERS} files")


def _refuse_members(
    archive: Path, members: list[zipfile.ZipInfo], wanted: Mapping[str, int]
) -> None:
    names = [member.filename for member in members]
    odd = [name for name in names if name not in wanted]
    if odd:
        raise no_bundle(archive, f"it has {odd[0][:80]!r}")
    missing = [name for name in wanted if names.count(name) != 1]
    if missing:
        times = "is not in it" if missing[0] not in names else "is in it twice"
        raise no_bundle(archive, f"{missing[0]} {times}")
    for member in members:
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or member.is_dir():
            raise no_bundle(archive, f"{member.filename} is no ordinary file")
        if member.flag_bits & 1 or member.compress_type not in _METHODS:
            raise no_bundle(archive, f"{member.filename} is packed in a way we do not read")


def _unpacked(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, most: int, folder: Path
) -> Unpacked:
    most = min(most, MOST_RATIO * member.compress_size + _SLACK)
    target, digest, size = folder / member.filename, hashlib.sha256(), 0
    with opened.open(member) as source, target.open("xb") as stream:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > most:
                raise zipfile.BadZipFile(f"{member.filename} is larger than it may be")
            digest.update(chunk)
            stream.write(chunk)
    return Unpacked(target, size, digest.hexdigest())


def pack(target: Path, files: Mapping[str, Path | bytes]) -> int:
    """Write an archive, whole or not at all; return how large it is."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                with zipfile.ZipFile(
                    stream, "w", zipfile.ZIP_DEFLATED, allowZip64=False
                ) as archive:
                    for place, content in files.items():
                        _add(archive, place, content)
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            Path(name).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink(missing_ok=True)
            raise
    except zipfile.LargeZipFile:
        raise UsageError(
            "the runs are too large for a bundle", hint="bundle one at a time"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}", hint="write it somewhere else"
        ) from None
    return target.stat().st_size


def _add(archive: zipfile.ZipFile, place: str, content: Path | bytes) -> None:
    # The same content makes the same archive: times are of no use to whoever unpacks it.
    about = zipfile.ZipInfo(place, _EPOCH)
    about.compress_type = zipfile.ZIP_DEFLATED
    about.external_attr = (stat.S_IFREG | 0o644) << 16
    with archive.open(about, "w") as stream:
        if isinstance(content, bytes):
            stream.write(content)
            return
        with content.open("rb") as source:
            while chunk := source.read(_CHUNK):
                stream.write(chunk)


_FORM = 1
_DATABASE, _MANIFEST = "results.db", "manifest.json"
_MOST_MANIFEST = 1_000_000
_HINT = "make a bundle with edison report --format bundle"


class BundledRun(NamedTuple):
    """A run in a bundle."""

    id: str
    experiment: str
    verdict: str | None
    simulated: bool
    cells: int


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What came of a bundle."""

    new: tuple[BundledRun, ...]
    known: tuple[BundledRun, ...]
    """Runs that were there already."""


def write_bundle(site: Site, runs: Sequence[Run], target: Path) -> int:
    """Write runs to a bundle; return how large it is."""
    site.require(Role.VIEWER, "report --format bundle", ", ".join(run.id for run in runs))
    if site.file.settings.private:
        raise UsageError(
            "this project is private: texts do not leave the results",
            hint="see settings.private in edison.yaml; --format csv leaves texts out",
        )
    for run in runs:
        if run.moving:
            raise UsageError(f"run {run.id} goes on", hint="wait until it has ended: edison watch")
    with tempfile.TemporaryDirectory(prefix="edison-bundle-") as name:
        database = Path(name) / _DATABASE
        extract(site.results, [run.id for run in runs], database)
        with database.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        file = {"name": _DATABASE, "size_bytes": database.stat().st_size, "sha256": sha256}
        with closing(open_foreign(database, hint=_HINT)) as connection:
            told = [run._asdict() for run in _runs(connection)]
        manifest = {
            "edison_bundle": _FORM,
            "results_version": len(migrations()),
            "runs": told,
            "files": [file],
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=True) + "\n"
        return pack(target, {_MANIFEST: text.encode(), _DATABASE: database})


def take_in(site: Site, bundle: Path, *, dry_run: bool = False) -> TakenIn:
    """Take the runs of a bundle into the results, in full or not at all."""
    actor = site.require(Role.EDITOR, "import bundle", bundle.name)
    with tempfile.TemporaryDirectory(prefix="edison-bundle-") as name:
        limits = {_MANIFEST: _MOST_MANIFEST, _DATABASE: MOST_BYTES}
        files = unpack(bundle, limits, Path(name))
        manifest = _manifest(bundle, files[_MANIFEST].path.read_bytes())
        said = manifest["files"][0]
        found = files[_DATABASE]
        if (said["size_bytes"], said["sha256"]) != (found.size_bytes, found.sha256):
            raise no_bundle(bundle, f"the checksum of {_DATABASE} is not that of the manifest")
        with closing(open_foreign(found.path, hint=_HINT)) as source:
            odd = next(odd_things(source), None)
            if odd is not None:
                raise no_bundle(bundle, odd)
            runs = _runs(source)
            if [run._asdict() for run in runs] != manifest["runs"] or not runs:
                raise no_bundle(bundle, "its runs are not those of the manifest")
            taken = _sorted_out(site, source, runs)
            if taken.new and not dry_run:
                ids = [run.id for run in taken.new]
                told = {"runs": ids, "sha256": found.sha256}
                entry = site.entry(actor, "import bundle", bundle.name, after=told)
                accept(site.results, source, ids, entry, _add_up)
    return taken


def _add_up(connection: sqlite3.Connection, run_id: str) -> None:
    rollups_of(connection, run_id)(connection)


def _sorted_out(site: Site, source: sqlite3.Connection, runs: Sequence[BundledRun]) -> TakenIn:
    known = known_runs(site.results, source, [run.id for run in runs])
    for run_id, same in known.items():
        if not same:
            raise UsageError(
                f"run {run_id} is here already, and is another one",
                hint="nothing was changed; the bundle is of another project, or was changed",
            )
    return TakenIn(
        new=tuple(run for run in runs if run.id not in known),
        known=tuple(run for run in runs if run.id in known),
    )


def _runs(connection: sqlite3.Connection) -> list[BundledRun]:
    runs = (find_run(connection, run_id) for run_id in run_ids(connection))
    return [
        BundledRun(r.id, r.experiment, r.verdict, r.simulated, count_cells(connection, r.id))
        for r in sorted(runs, key=lambda run: (run.created_at, run.id))
    ]


def _manifest(bundle: Path, raw: bytes) -> dict[str, Any]:
    """Return what a bundle says of itself, as far as it can be believed."""
    try:
        value = parse_json(raw.decode())
    except (Fault, UnicodeDecodeError):
        raise no_bundle(bundle, f"{_MANIFEST} is no JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("edison_bundle"), int):
        raise no_bundle(bundle, f"{_MANIFEST} does not say that it is one")
    if value["edison_bundle"] != _FORM or value.get("results_version") != len(migrations()):
        raise UsageError(
            f"{bundle} was made by another version of edison",
            hint="use the same version of edison here and there",
        )
    files = value.get("files")
    if not isinstance(files, list) or len(files) != 1 or not isinstance(files[0], dict):
        raise no_bundle(bundle, f"{_MANIFEST} lists no file")
    if {"name", "size_bytes", "sha256"} - set(files[0]) or files[0]["name"] != _DATABASE:
        raise no_bundle(bundle, f"{_MANIFEST} does not list {_DATABASE}")
    return dict(value)
