"""How does a run travel: as one file with all it rests on, and checksums?

A bundle is a ZIP file with `results.db`, a results file that has these runs alone, and
`manifest.json`, which says what is in it. It is taken in if every checksum is right, the results
are sound, and what they say is possible; in one transaction, or not at all.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.operate.actors import Role
from edison_ci.operate.archives import MOST_BYTES, no_bundle, pack, unpack
from edison_ci.results.rollups import rollups_of
from edison_ci.store.database import migrations
from edison_ci.store.extracts import accept, extract, known_runs
from edison_ci.store.foreign import odd_things, open_foreign
from edison_ci.store.runs import count_cells, find_run, run_ids

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.operate.site import Site
    from edison_ci.store.runs import Run

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
