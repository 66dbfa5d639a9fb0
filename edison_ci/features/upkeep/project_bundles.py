"""Bundles of whole projects: files, results and audit log, to restore on another machine.

A bundle has what the project needs and nothing that opens doors: no accounts, no keys, and the list
of trusted hosts only as a file to be looked at. One list of paths holds for writing and restoring.
Its files are trusted like those of a repository that is cloned. Its archive is read as what a
stranger wrote: names are checked before anything is unpacked, sizes and checksums while it is, and
the folder appears whole or not at all.

Its results count as made here only if they are signed with the private key here. Otherwise its runs
are brought as from elsewhere, like those of a bundle of runs, and only the audit beside them:
suggestions, loops, alerts, schedules, batches and running totals of a stranger would decide here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import unicodedata
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role, open_site
from edison_ci.api.bundles import (
    MOST_BYTES,
    MOST_SIGNATURE,
    SIGNATURE,
    add_rollups,
    invalid_bundle,
    manifest_files,
    manifest_signer,
    own_signer,
    pack,
    read_member,
    unpack,
)
from edison_ci.config.project_files import TRUST
from edison_ci.documents.files import make_folder
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import hidden, secrets_in
from edison_ci.errors import UsageError
from edison_ci.git.command import decode, run_git
from edison_ci.sanitize import line
from edison_ci.store.audit import verify_audit, write_audit
from edison_ci.store.backup import content_of, copy_whole
from edison_ci.store.database import migrations
from edison_ci.store.integrity import open_foreign, problems_in
from edison_ci.store.liveness import refuse_while_run
from edison_ci.store.merge import accept, copy_audit
from edison_ci.store.runs import RESTING, TRIAL, RunOrigin, find_run, origin_of, run_ids, who_ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.access.site import Site
    from edison_ci.store.audit import AuditEntry

_FORM = 1
_ABOUT = b"edison-ci project 1\n"
"""Prefix of what is signed, so that signatures of other things are not valid."""
_AGAIN = "create the bundle again"
_MANIFEST, _RESULTS, _FILES = "manifest.json", "results.db", "files/"
MOST_FILES = 10_000
_MOST_MANIFEST = 10_000_000
_MOST_PATH = 400
_ODD = re.compile(r"[\x00-\x1f\x7f\\]")
_SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__"})
_USUAL = ".edison/results.db"
_OWN = (TRUST, ".edison/prices.json", ".edison/.gitignore", ".edison/schemas/", ".edison/loops/")
"""What a bundle has of any folder .edison, besides the results."""
_BESIDE = ("", "-wal", "-shm", "-journal", ".sig")
"""Suffixes of the results file and of what SQLite and edison read beside it."""
_KEYS = re.compile(
    r"(?:^|/)(?:\.env(?:\..*)?|.*\.(?:pem|key|p12|pfx)|id_(?:rsa|ed25519|ecdsa))$", re.IGNORECASE
)
"""Names of files that usually hold keys."""
BUNDLED = ".bundled"
"""Suffix of the list of trusted hosts in a restored project."""


@dataclass(frozen=True, slots=True)
class WrittenBundle:
    """A bundle that was written."""

    size_bytes: int
    files: int
    runs: int
    left_out: tuple[str, ...]
    """Files that are links or may hold keys."""


@dataclass(frozen=True, slots=True)
class RestoredProject:
    """A project that was restored."""

    folder: Path
    files: int
    runs: int
    audit_rows: int
    trust: bool
    """Whether there is a list of trusted hosts to look at."""
    allows_code: bool
    own: bool
    """Whether it is signed with the key here, so that its results count as made here."""


class _Listed(NamedTuple):
    path: str
    size_bytes: int
    sha256: str


def write_project_bundle(site: Site, target: Path) -> WrittenBundle:
    """Write the project to a bundle; raises UsageError if a file holds a key."""
    actor = site.require(Role.VIEWER, "bundle create", target.name)
    if site.file.settings.private:
        raise UsageError(
            "this project is private, so its texts are not exported",
            hint="see settings.private in edison.yaml; to move it, copy its folder",
        )
    if not _may_be_results(site.file.results):
        raise UsageError(
            f"a bundle has no results in {site.file.results}",
            hint=f"set results in edison.yaml to {_USUAL}, and move the file there",
        )
    refuse_while_run(site.locks)
    paths, left_out = _project_files(site, target)
    if len(paths) > MOST_FILES:
        raise UsageError(
            f"the project has {len(paths):,} files, more than {MOST_FILES:,}",
            hint="remove or ignore what does not belong to it",
        )
    listed, packed = [], {}
    for path in paths:
        data = (site.root / path).read_bytes()
        _refuse_keys(path, data)
        listed.append(_Listed(path, len(data), hashlib.sha256(data).hexdigest()))
        packed[_FILES + path] = data
    with tempfile.TemporaryDirectory(prefix="edison-bundle-") as name:
        results, runs, content = None, 0, {}
        if site.results.exists():
            copy = Path(name) / _RESULTS
            copy_whole(site.results, copy)
            runs = content_of(copy).runs
            with copy.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            results = {"path": site.file.results, "size_bytes": copy.stat().st_size,
                       "sha256": sha256}  # fmt: skip
            content[_RESULTS] = copy
        manifest = {
            "edison_project": _FORM,
            "results_version": len(migrations()),
            "results": results,
            "files": [file._asdict() for file in listed],
        }
        size = pack(target, {**manifest_files(manifest, own_signer(), _ABOUT), **content, **packed})
    site.note_export("the whole project as a bundle", target.name, actor)
    return WrittenBundle(size, len(paths), runs, tuple(left_out))


def _project_files(site: Site, target: Path) -> tuple[list[str], list[str]]:
    """Return the files of a project, and those that are left out."""
    paths, left_out = [], []
    for path in sorted(set(_candidates(site.root))):
        place = site.root / path
        if place == target.absolute() or not place.exists() or _is_results(path, site):
            continue
        linked = place.resolve() != site.root.resolve() / path
        if _is_bundled(path) and place.is_file() and not linked:
            paths.append(path)
        elif _is_bundled(path) or not path.startswith(".edison/"):
            left_out.append(path)
    return paths, left_out


def _candidates(root: Path) -> Iterator[str]:
    own = root / ".edison"
    if own.is_dir():
        yield from (path.relative_to(root).as_posix() for path in _walk(own))
    listed = run_git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
    if listed.code == 0:
        yield from (path for path in decode(listed.out).split("\0") if path)
    else:
        yield from (path.relative_to(root).as_posix() for path in _walk(root))


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in _SKIPPED:
                yield from _walk(path)
        else:
            yield path


def _refuse_keys(path: str, data: bytes) -> None:
    text = data.decode("utf-8", "replace").replace("\0", "")  # so that UTF-16 hides none
    fault = next(iter(secrets_in(text)), None)
    if fault is not None or hidden(text) != text:
        where = path if fault is None else f"{path}:{fault.at[0] + 1}"
        raise UsageError(
            f"{where} holds a key, so no bundle was written",
            hint="remove it and revoke the key: a bundle may be sent around",
        )


def restore_project_bundle(bundle: Path, folder: Path) -> RestoredProject:
    """Make a project of a bundle, in a folder that is not there yet or is empty."""
    taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken or folder.is_symlink():
        raise UsageError(
            f"{folder} exists and is not empty, or is a link",
            hint="name a folder that does not exist yet",
        )
    raw = read_member(bundle, _MANIFEST, _MOST_MANIFEST, most_members=MOST_FILES + 3)
    files, results, manifest = _manifest(bundle, raw)
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"there is no folder {parent}", hint="create it first")
    aside = parent / f".{folder.name}.{uuid.uuid4().hex[:12]}.restore"
    with tempfile.TemporaryDirectory(prefix="edison-bundle-") as name:
        members = {_MANIFEST: _MOST_MANIFEST, SIGNATURE: MOST_SIGNATURE}
        members |= {_FILES + file.path: file.size_bytes for file in files}
        if results is not None:
            members[_RESULTS] = results.size_bytes
        most = MOST_FILES + 3
        unpacked = unpack(bundle, members, Path(name), most_members=most, optional=SIGNATURE)
        signed_by, signer = manifest_signer(bundle, unpacked, manifest, _ABOUT), own_signer()
        own = signed_by is not None and signer is not None and signer.public == signed_by
        try:
            for file in files:
                member = unpacked[_FILES + file.path]
                _refuse_other(bundle, file, member.size_bytes, member.sha256)
                place = aside / (file.path + BUNDLED if _is_trust(file.path) else file.path)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(member.path, place)
            runs = rows = 0
            site = open_site(aside)
            for path in [file.path for file in files if _is_results(file.path, site)]:
                raise invalid_bundle(bundle, f"it contains {path[:80]!r}")
            if results is not None:
                if site.file.results != results.path:
                    raise invalid_bundle(bundle, "its results are not where edison.yaml says")
                member = unpacked[_RESULTS]
                _refuse_other(bundle, results, member.size_bytes, member.sha256)
                rows = _refuse_results(bundle, member.path)
                make_folder(site.results.parent)
                digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
                entry = site.entry(site.actor(), "bundle restore", bundle.name,
                                   after={"sha256": digest, "signed_by": signed_by})  # fmt: skip
                if own:
                    shutil.copyfile(member.path, site.results)
                    write_audit(site.results, entry)
                else:
                    _bring_runs(site, member.path, entry, signed_by)
                runs = content_of(site.results).runs
            if folder.is_dir():
                folder.rmdir()
            aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    trusted = any(_is_trust(file.path) for file in files)
    code = site.file.settings.allow_code
    return RestoredProject(folder, len(files), runs, rows, trusted, code, own)


def _refuse_other(bundle: Path, listed: _Listed, size: int, sha256: str) -> None:
    if (listed.size_bytes, listed.sha256) != (size, sha256):
        raise invalid_bundle(bundle, f"the checksum of {listed.path} differs from the manifest")


def _refuse_results(bundle: Path, path: Path) -> int:
    """Refuse results that are not sound; return the number of rows of their audit."""
    with closing(open_foreign(path, hint=_AGAIN)) as connection:
        odd = next(problems_in(connection, unfinished=True), None)
        if odd is not None:
            raise invalid_bundle(bundle, odd)
        return verify_audit(connection).rows


def _bring_runs(site: Site, path: Path, entry: AuditEntry, signed_by: str | None) -> None:
    """Bring the runs that have ended, as from elsewhere, and the audit; nothing else counts.

    A signature is not for runs that came to its owner from elsewhere, and were not trusted there.
    """
    with closing(open_foreign(path, hint=_AGAIN)) as source:
        origins = []
        for run_id in sorted(run_ids(source)):
            run, before = find_run(source, run_id), origin_of(source, run_id)
            if run.status not in RESTING or run.trigger == TRIAL:
                continue
            signer = signed_by if before is None or before.trusted else None
            ran_as = run.trigger if before is None else before.ran_as
            ran_by, ran_on = (line(name)[:_MOST_PATH] for name in who_ran(source, run_id))
            arrival = ("restore", entry.entity, entry.actor, site.now(), signer)
            origins.append(RunOrigin(run_id, ran_by, ran_on, ran_as, *arrival))
        copy_audit(site.results, source)
        accept(site.results, source, origins, entry, add_rollups)


def _manifest(bundle: Path, raw: bytes) -> tuple[list[_Listed], _Listed | None, dict[str, Any]]:
    try:
        value = parse_json(raw.decode())
    except (Fault, UnicodeDecodeError):
        raise invalid_bundle(bundle, f"{_MANIFEST} is not JSON") from None
    listed = value.get("files") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(listed, list):
        raise invalid_bundle(bundle, f"{_MANIFEST} is not the manifest of a project")
    if value.get("edison_project") != _FORM or value.get("results_version") != len(migrations()):
        raise UsageError(
            f"{bundle} is not a bundle of a project of this version of edison",
            hint="a bundle of runs is imported: edison import bundle FILE",
        )
    files = [_listed(bundle, entry) for entry in listed]
    results = None if value.get("results") is None else _listed(bundle, value["results"])
    for path in [entry.path for entry in files if not _is_bundled(entry.path)]:
        raise invalid_bundle(bundle, f"it contains {path[:80]!r}")
    if results is not None and not _may_be_results(results.path):
        raise invalid_bundle(bundle, f"its results are in {results.path[:80]!r}")
    names = [entry.path for entry in (*files, *([results] if results else []))]
    folded = [_folded(name) for name in names]
    if len(set(folded)) != len(folded) or _nested(folded):
        raise invalid_bundle(bundle, "two of its files have the same name")
    total = sum(entry.size_bytes for entry in files) + (results.size_bytes if results else 0)
    if len(files) > MOST_FILES or total > MOST_BYTES:
        raise invalid_bundle(bundle, f"it has more than {MOST_FILES:,} files or too many bytes")
    return files, results, value


def _listed(bundle: Path, value: Any) -> _Listed:
    if not isinstance(value, dict) or set(value) != set(_Listed._fields):
        raise invalid_bundle(bundle, f"{_MANIFEST} lists something that is not a file")
    path, size, sha256 = value["path"], value["size_bytes"], value["sha256"]
    if not isinstance(path, str):
        raise invalid_bundle(bundle, f"it contains {str(path)[:80]!r}")
    if type(size) is not int or size < 0 or not isinstance(sha256, str):
        raise invalid_bundle(bundle, f"{_MANIFEST} has no size or checksum of {path}")
    return _Listed(path, size, sha256)


def _nested(names: list[str]) -> bool:
    """Whether one name is a folder of another."""
    files = set(names)
    return any(
        "/".join(parts[:depth]) in files
        for name in names
        for parts in [name.split("/")]
        for depth in range(1, len(parts))
    )


def _is_bundled(path: str) -> bool:
    """Whether a bundle may have a file of this path; the one rule for writing and restoring."""
    parts = path.split("/")
    own = ("/".join(parts[at:]) for at, part in enumerate(parts) if _folded(part) == ".edison")
    listed = all(
        allowed in _OWN
        or allowed.startswith(tuple(folder for folder in _OWN if folder.endswith("/")))
        for allowed in own
    )
    return listed and _is_safe(path) and not _KEYS.search(path)


def _may_be_results(path: str) -> bool:
    """Whether a bundle may have results of this path; other files of .edison have their uses."""
    return path == _USUAL or (_is_bundled(path) and ".edison" not in map(_folded, path.split("/")))


def _is_results(path: str, site: Site) -> bool:
    """Whether a file would be read as the results of a project, or as what belongs to them."""
    return _folded(path) in [_folded(f"{site.file.results}{suffix}") for suffix in _BESIDE]


def _is_trust(path: str) -> bool:
    return path == TRUST or path.endswith(f"/{TRUST}")


def _is_safe(path: str) -> bool:
    """Whether a path stays in its folder, on every system, and changes nothing of Git."""
    parts = path.split("/")
    odd = any(part in ("", ".", "..") or _folded(part) in _SKIPPED for part in parts)
    return not odd and len(path) <= _MOST_PATH and not _ODD.search(path)


def _folded(name: str) -> str:
    """Return a name as file systems compare it that ignore case and invisible characters."""
    text = unicodedata.normalize("NFKC", name)
    return "".join(char for char in text if unicodedata.category(char) != "Cf").casefold()
