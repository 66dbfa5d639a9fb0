"""Which results a job for a proposal believes: those that it made itself, and signed ones.

A results file from a cache or an artifact says whatever its writer liked. In a job for a pull
request, a merge queue or a commit that was named by hand, such a file is set aside before anything
in it is read, unless it is signed with a key that the base's `trust.yaml` lists. A note under
RUNNER_TEMP, which the runner empties for each job, tells later commands which file the job made.
Anywhere else the results are those of whoever works there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.config.project_files import ProjectFiles
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import ConfigError, UsageError
from edison_ci.operate.proposal_terms import is_proposed, trust_of_base
from edison_ci.operate.signatures import is_signed, signature_beside
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from edison_ci.config.load import Project

_NOTE = "edison-own-results.json"
_USUAL = ".edison/results.db"
_SUFFIXES = ("", "-wal", "-shm", "-journal", ".sig")


def set_aside_unknown(root: Path, results: Path | None = None) -> Path | None:
    """Set results aside that this job did not make and nobody signed; return where they are now."""
    if not is_proposed(root):
        return None
    path = results if results is not None else root / _results_of(root)
    if not os.path.lexists(path) or _is_noted(path):
        return None
    if is_trusted(root, path):
        note(path)
        return None
    aside = set_aside(path)
    for suffix in _SUFFIXES:
        old = path.with_name(path.name + suffix)
        if os.path.lexists(old):
            old.rename(aside.with_name(aside.name + suffix))
    return aside


def is_trusted(root: Path, path: Path) -> bool:
    """Whether a key that the base lists fits the signature beside a results file."""
    try:
        keys = trust_of_base(root).results.public_keys
    except (UsageError, ConfigError):
        return False  # nobody knows what the base trusts
    return not path.is_symlink() and is_signed(path, keys)


def claim(project: Project) -> None:
    """Let results that there are not yet be those of this job, in a job for a proposal."""
    path = project.root / project.file.results
    if is_proposed(project.root) and not os.path.lexists(path):
        open_database(path).close()
        note(path)


def adopt(path: Path) -> bool:
    """Take back what was set aside, because the workflow says that the same run of it made it."""
    aside = set_aside(path)
    if not aside.exists() or os.path.lexists(path):
        return False
    for suffix in _SUFFIXES:
        old = aside.with_name(aside.name + suffix)
        if old.exists():
            old.rename(path.with_name(path.name + suffix))
    note(path)
    return True


def set_aside(path: Path) -> Path:
    """Return where results are that are not believed."""
    return path.with_name(f"{path.stem}.unsigned{path.suffix}")


def note(path: Path) -> None:
    """Note that a results file is of this job; without a place for the note, nothing is."""
    place = _place()
    if place is not None:
        signature_beside(path).unlink(missing_ok=True)  # it is written to from now on
        kept = [each for each in _noted() if each != _named(path)]
        place.write_text(json.dumps([*kept, _named(path)]), encoding="utf-8")


def _is_noted(path: Path) -> bool:
    return not path.is_symlink() and path.exists() and _named(path) in _noted()


def _named(path: Path) -> list[object]:
    found = path.stat()
    return [str(path.resolve()), found.st_dev, found.st_ino]


def _noted() -> list[list[object]]:
    place = _place()
    try:
        found = json.loads(place.read_text(encoding="utf-8")) if place is not None else []
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def _place() -> Path | None:
    folder = os.environ.get("RUNNER_TEMP")
    return Path(folder) / _NOTE if folder and Path(folder).is_dir() else None


def _results_of(root: Path) -> str:
    found = ProjectFiles(WorkingTree(root)).project()
    return _USUAL if found is None else found.results
