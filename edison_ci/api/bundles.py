"""Bundles of runs: export and import.

A bundle is a ZIP file with `results.db`, a results file with only these runs, and `manifest.json`
with its contents and checksums. It is imported in one transaction if all checksums are right and
the results are consistent, else not at all. Where EDISON_SIGNING_KEY is set, the manifest is
signed: with its checksums, and with who ran each run. Runs signed with a key in trust.yaml may
serve as base where they are imported; others never do.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.access import proposal_terms
from edison_ci.access import site as sites
from edison_ci.config import project_files
from edison_ci.documents import files as document_files
from edison_ci.documents import json_text, marks, signatures
from edison_ci.errors import ConfigError, StoreError, UsageError
from edison_ci.results import rollups
from edison_ci.sanitize import line
from edison_ci.store import cells as store_cells
from edison_ci.store import database as store_database
from edison_ci.store import integrity, merge
from edison_ci.store import runs as store_runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from edison_ci.access.site import Actor, Site
    from edison_ci.store.runs import Run

# Only expected names are unpacked, to paths chosen here, up to a limit of size; the claims of the
# archive about itself are not trusted.
MOST_BYTES = 1_000_000_000
"""Limit of the archive, and of its unpacked contents."""
MOST_MEMBERS = 100
MOST_RATIO = 100
_SLACK = 1_000_000
"""Bytes allowed at any ratio: a small file may compress to almost nothing."""
_CHUNK = 1 << 20
_END = struct.Struct("<4s4H2LH")
_LOCATOR = 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class UnpackedFile(NamedTuple):
    """A file unpacked from an archive."""

    path: Path
    size_bytes: int
    sha256: str


def unpack(
    archive: Path,
    wanted: Mapping[str, int],
    folder: Path,
    *,
    most_members: int = MOST_MEMBERS,
    optional: str = "",
) -> dict[str, UnpackedFile]:
    """Unpack the wanted files, each with its limit of size; raises UsageError for others."""
    with _opened(archive, most_members) as opened:
        members = opened.infolist()
        if optional and optional not in opened.namelist():
            wanted = {name: most for name, most in wanted.items() if name != optional}
        _refuse_members(archive, members, wanted)
        return {
            member.filename: _unpack_member(opened, member, wanted[member.filename], folder)
            for member in members
        }


def read_member(archive: Path, name: str, most: int, *, most_members: int) -> bytes:
    """Return one file of an archive, up to a limit of size; raises UsageError."""
    with _opened(archive, most_members) as opened:
        members = [member for member in opened.infolist() if member.filename == name]
        _refuse_members(archive, members, {name: most})
        with opened.open(members[0]) as source:
            data = source.read(most + 1)
        if len(data) > most:
            raise zipfile.BadZipFile(f"{name} is too large")
        return data


@contextmanager
def _opened(archive: Path, most_members: int) -> Iterator[zipfile.ZipFile]:
    """Open an archive whose listing is not too long; raise for what is wrong with it."""
    _refuse_size(archive, most_members)
    try:
        with zipfile.ZipFile(archive) as opened:
            yield opened
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise invalid_bundle(archive, f"it is damaged ({error})") from None
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StoreError(
                f"{archive.name} cannot be unpacked: {error.strerror}",
                hint="free some space in the folder for temporary files",
            ) from None
        raise invalid_bundle(archive, f"it cannot be read ({error.strerror or error})") from None


def invalid_bundle(archive: Path, why: str) -> UsageError:
    """Return the error for a file that is not a valid bundle."""
    return UsageError(
        f"{archive} is not a valid bundle: {why}",
        hint="create one of runs: edison report --format bundle; or one of a whole project: "
        "edison admin bundle create FILE",
    )


def _refuse_size(archive: Path, most_members: int) -> None:
    """Raise, by the last bytes, for an archive whose listing would exhaust the memory."""
    if not archive.is_file():
        raise UsageError(
            f"{archive} does not exist", hint="name a bundle: edison import bundle FILE"
        )
    size = archive.stat().st_size
    if size > MOST_BYTES:
        raise invalid_bundle(archive, f"it has {size:,} bytes, more than {MOST_BYTES:,}")
    with archive.open("rb") as stream:
        stream.seek(-min(size, _END.size + _LOCATOR), os.SEEK_END)
        tail = stream.read()
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise invalid_bundle(archive, "it is not a ZIP file")
    entries = _END.unpack(end)[4]
    if tail.startswith(b"PK\6\7") or entries > most_members:
        raise invalid_bundle(archive, f"it has more than {most_members:,} files")


def _refuse_members(
    archive: Path, members: list[zipfile.ZipInfo], wanted: Mapping[str, int]
) -> None:
    names = [member.filename for member in members]
    odd = [name for name in names if name not in wanted]
    if odd:
        raise invalid_bundle(archive, f"it contains {odd[0][:80]!r}")
    missing = [name for name in wanted if names.count(name) != 1]
    if missing:
        times = "is missing" if missing[0] not in names else "is in it twice"
        raise invalid_bundle(archive, f"{missing[0]} {times}")
    for member in members:
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or member.is_dir():
            raise invalid_bundle(archive, f"{member.filename} is not a regular file")
        if member.flag_bits & 1 or member.compress_type not in _METHODS:
            raise invalid_bundle(
                archive, f"{member.filename} has an unsupported compression or is encrypted"
            )


def _unpack_member(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, most: int, folder: Path
) -> UnpackedFile:
    most = min(most, MOST_RATIO * member.compress_size + _SLACK)
    target, digest, size = folder / member.filename, hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(member) as source, target.open("xb") as stream:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > most:
                raise zipfile.BadZipFile(f"{member.filename} is too large")
            digest.update(chunk)
            stream.write(chunk)
    return UnpackedFile(target, size, digest.hexdigest())


def pack(target: Path, files: Mapping[str, Path | bytes]) -> int:
    """Write an archive atomically; return its size in bytes."""
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
            "the runs are too large for a bundle", hint="bundle them one at a time"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}", hint="choose another path"
        ) from None
    return target.stat().st_size


def _add(archive: zipfile.ZipFile, place: str, content: Path | bytes) -> None:
    # A fixed time, so that the same contents give the same archive.
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
_LONGEST_NAME = 200
_ABOUT = b"edison-ci bundle 1\n"
"""Prefix of what is signed, so that signatures of other things are not valid."""
SIGNATURE = "manifest.json.sig"
MOST_SIGNATURE = 200
_LIMITS = {_MANIFEST: 1_000_000, SIGNATURE: MOST_SIGNATURE, _DATABASE: MOST_BYTES}
_HINT = "make a bundle with edison report --format bundle"


class BundledRun(NamedTuple):
    """A run in a bundle."""

    id: str
    experiment: str
    verdict: str | None
    simulated: bool
    cells: int


@dataclass(frozen=True, slots=True)
class ImportedRuns:
    """The runs of an imported bundle."""

    new: tuple[BundledRun, ...]
    known: tuple[BundledRun, ...]
    """Runs that existed already."""
    signed_by: str | None = None
    """Public key of the valid signature; None without one."""
    trusted: bool = False
    """Whether that key is one of trust.yaml."""


class Arrival(NamedTuple):
    """How a bundle came here."""

    way: str
    """import, push or pull."""
    source: str
    """File or address that it came from."""
    actor: Actor
    keys: Collection[str]
    """The trusted public keys."""
    run_id: str | None = None
    """The run that was asked for; None takes any runs."""


def trusted_keys(root: Path) -> tuple[str, ...]:
    """Return the public keys whose signatures are trusted here; none if trust.yaml is not valid.

    In a job for a proposal, that is for its base to say.
    """
    try:
        if proposal_terms.is_proposed(root):
            return proposal_terms.base_trust(root).results.public_keys
    except (UsageError, ConfigError):
        return ()
    files = project_files.ProjectFiles(document_files.WorkingTree(root))
    trust = files.trust()
    return () if files.problems else trust.results.public_keys


def write_bundle(site: Site, runs: Sequence[Run], target: Path, actor: Actor | None = None) -> int:
    """Write runs to a bundle; return its size in bytes.

    It is signed if there is a key, and all of them were made here or are trusted here.
    """
    action, names = "report --format bundle", ", ".join(run.id for run in runs)
    site.admit(actor or site.actor(), sites.Role.VIEWER, action, names)
    if site.file.settings.private:
        raise UsageError(
            "this project is private, so its texts are not exported",
            hint="see settings.private in edison.yaml; --format csv has no texts",
        )
    for run in runs:
        if run.moving:
            raise UsageError(
                f"run {run.id} is still running", hint="wait until it has ended: edison runs watch"
            )
    with tempfile.TemporaryDirectory(prefix="edison-bundle-") as name:
        database = Path(name) / _DATABASE
        merge.extract(site.results, [run.id for run in runs], database)
        with database.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        file = {"name": _DATABASE, "size_bytes": database.stat().st_size, "sha256": sha256}
        with closing(integrity.open_foreign(database, hint=_HINT)) as connection:
            told = [run._asdict() for run in _runs(connection)]
        manifest = {
            "edison_bundle": _FORM,
            "results_version": len(store_database.migrations()),
            "project": site.file.slug,
            "runs": told,
            "origins": _origins(site, runs),
            "files": [file],
        }
        signer = own_signer() if all(_is_own(site, run) for run in runs) else None
        return pack(target, {**manifest_files(manifest, signer, _ABOUT), _DATABASE: database})


def own_signer() -> signatures.Signer | None:
    """Return what signs with the private key of the environment; None without one."""
    private = os.environ.get(signatures.VARIABLE, "").strip()
    return signatures.Signer(private) if private else None


def manifest_files(
    manifest: dict[str, Any], signer: signatures.Signer | None, about: bytes
) -> dict[str, bytes]:
    """Return the manifest and, if it is to be signed, its signature."""
    if signer is not None:
        manifest["public_key"] = signer.public
    text = f"{json.dumps(manifest, indent=2, ensure_ascii=True)}\n".encode()
    if signer is None:
        return {_MANIFEST: text}
    signed = signer.sign(about, hashlib.sha256(text).digest())
    return {_MANIFEST: text, SIGNATURE: signed.signature.encode()}


def _origins(site: Site, runs: Sequence[Run]) -> list[dict[str, str]]:
    """Return who ran each run, where, and how it was started."""
    found = []
    with closing(store_database.open_reader(site.results)) as reader:
        for run in runs:
            (by, on), origin = (
                store_runs.who_ran(reader, run.id),
                store_runs.origin_of(reader, run.id),
            )
            as_ = run.trigger if origin is None else origin.ran_as
            found.append({"run_id": run.id, "by": by, "on": on, "as": as_})
    return found


def _is_own(site: Site, run: Run) -> bool:
    """Whether a run was made here, or is trusted here."""
    with closing(store_database.open_reader(site.results)) as reader:
        origin = store_runs.origin_of(reader, run.id)
    return (
        run.trigger != store_runs.IMPORT
        if origin is None
        else origin.is_trusted(trusted_keys(site.root))
    )


def import_bundle(
    site: Site, bundle: Path, *, dry_run: bool = False, arrival: Arrival | None = None
) -> ImportedRuns:
    """Import the runs of a bundle into the results, in one transaction."""
    if arrival is None:
        actor = site.require(sites.Role.EDITOR, "import bundle", bundle.name)
        arrival = Arrival("import", bundle.name, actor, trusted_keys(site.root))
    with tempfile.TemporaryDirectory(prefix="edison-bundle-") as name:
        files = unpack(bundle, _LIMITS, Path(name), optional=SIGNATURE)
        manifest = _manifest(bundle, files[_MANIFEST].path.read_bytes())
        listed = manifest["files"][0]
        found = files[_DATABASE]
        if (listed["size_bytes"], listed["sha256"]) != (found.size_bytes, found.sha256):
            raise invalid_bundle(bundle, f"the checksum of {_DATABASE} differs from the manifest")
        signed_by = manifest_signer(bundle, files, manifest, _ABOUT)
        with closing(integrity.open_foreign(found.path, hint=_HINT)) as source:
            odd = next(integrity.problems_in(source), None)
            if odd is not None:
                raise invalid_bundle(bundle, odd)
            runs = _runs(source)
            if [run._asdict() for run in runs] != manifest["runs"] or not runs:
                raise invalid_bundle(bundle, "its runs differ from the manifest")
            if arrival.run_id is not None and [run.id for run in runs] != [arrival.run_id]:
                raise invalid_bundle(bundle, f"it is not run {arrival.run_id}, which was asked for")
            if arrival.way != "import":
                _refuse_for_transfer(site, bundle, manifest, source)
            taken = _split_known(site, source, runs)
            taken = replace(taken, signed_by=signed_by, trusted=signed_by in arrival.keys)
            if taken.new and not dry_run:
                _accept(site, source, manifest, taken, arrival)
    return taken


def _accept(
    site: Site,
    source: sqlite3.Connection,
    manifest: Mapping[str, Any],
    taken: ImportedRuns,
    arrival: Arrival,
) -> None:
    ids, now = [run.id for run in taken.new], site.now()
    told = {
        "runs": ids,
        "sha256": manifest["files"][0]["sha256"],
        "signed_by": taken.signed_by,
        "trusted": taken.trusted,
    }
    action = "import bundle" if arrival.way == "import" else f"{arrival.way} runs"
    entry = site.entry(arrival.actor, action, arrival.source, after=told)
    claims = _claims(manifest)
    origins = [
        store_runs.RunOrigin(
            run_id,
            *claims.get(run_id, ("", "", "")),
            arrival.way,
            arrival.source,
            arrival.actor.name,
            now,
            taken.signed_by,
            taken.trusted,
        )
        for run_id in ids
    ]
    merge.accept(site.results, source, origins, entry, add_rollups)


def _claims(manifest: Mapping[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Return what a manifest says of who ran each run, where and how; texts of a stranger."""
    listed = manifest.get("origins")
    return {
        str(each.get("run_id")): (_short(each, "by"), _short(each, "on"), _short(each, "as"))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    }


def _short(claim: Mapping[str, Any], name: str) -> str:
    value = claim.get(name)
    return line(value)[:_LONGEST_NAME] if isinstance(value, str) else ""


def manifest_signer(
    bundle: Path, files: Mapping[str, UnpackedFile], manifest: Mapping[str, Any], about: bytes
) -> str | None:
    """Return the key that signed the manifest; None without one. Raises if it does not fit."""
    key = manifest.get("public_key")
    if key is None and SIGNATURE not in files:
        return None
    signature = files[SIGNATURE].path.read_bytes() if SIGNATURE in files else b""
    digest = bytes.fromhex(files[_MANIFEST].sha256)
    given = signature.decode("ascii", "replace")
    if not isinstance(key, str) or signatures.signer_of(about, digest, given, [key]) is None:
        raise invalid_bundle(bundle, "its signature does not fit: it was changed after signing")
    return key


def _refuse_for_transfer(
    site: Site, bundle: Path, manifest: Mapping[str, Any], source: sqlite3.Connection
) -> None:
    """Raise for a bundle of another project, or with a run that may still change."""
    if manifest.get("project") != site.file.slug:
        raise invalid_bundle(bundle, f"it is not of the project {site.file.slug}")
    for run_id in store_runs.run_ids(source):
        if store_runs.find_run(source, run_id).status not in store_runs.FINAL:
            raise invalid_bundle(bundle, f"run {run_id} has not ended")


def add_rollups(connection: sqlite3.Connection, run_id: str) -> None:
    """Write the sums of a run."""
    rollups.rollups_of(connection, run_id)(connection)


def _split_known(
    site: Site, source: sqlite3.Connection, runs: Sequence[BundledRun]
) -> ImportedRuns:
    known = merge.known_runs(site.results, source, [run.id for run in runs])
    for run_id, same in known.items():
        if not same:
            raise UsageError(
                f"a different run {run_id} exists already",
                hint="nothing was imported; the bundle comes from another project, or was modified",
            )
    return ImportedRuns(
        new=tuple(run for run in runs if run.id not in known),
        known=tuple(run for run in runs if run.id in known),
    )


def _runs(connection: sqlite3.Connection) -> list[BundledRun]:
    runs = (store_runs.find_run(connection, run_id) for run_id in store_runs.run_ids(connection))
    return [
        BundledRun(
            r.id, r.experiment, r.verdict, r.simulated, store_cells.count_cells(connection, r.id)
        )
        for r in sorted(runs, key=lambda run: (run.created_at, run.id))
    ]


def _manifest(bundle: Path, raw: bytes) -> dict[str, Any]:
    """Return the manifest of a bundle; raises UsageError if it is not valid."""
    try:
        value = json_text.parse_json(raw.decode())
    except (marks.Fault, UnicodeDecodeError):
        raise invalid_bundle(bundle, f"{_MANIFEST} is not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("edison_bundle"), int):
        raise invalid_bundle(bundle, f"{_MANIFEST} is not the manifest of a bundle")
    if value["edison_bundle"] != _FORM or value.get("results_version") != len(
        store_database.migrations()
    ):
        raise UsageError(
            f"{bundle} was created by another version of edison",
            hint="use the same version of edison for export and import",
        )
    files = value.get("files")
    if not isinstance(files, list) or len(files) != 1 or not isinstance(files[0], dict):
        raise invalid_bundle(bundle, f"{_MANIFEST} lists no file")
    if {"name", "size_bytes", "sha256"} - set(files[0]) or files[0]["name"] != _DATABASE:
        raise invalid_bundle(bundle, f"{_MANIFEST} does not list {_DATABASE}")
    return dict(value)
