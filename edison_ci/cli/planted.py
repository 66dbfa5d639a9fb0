"""What a commit may not bring along into a job that works on a proposal.

Only a run writes results, locks and copies: answers in a results file would be taken for answers of
models, and a link in the place of a lock would be written through. And only what is in the commit
is read: a link could lead to what earlier steps of the job left behind, such as credentials. The
rule is about names in the commit and about where links lead, so no other spelling is let in.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from edison_ci.documents.files import inside
from edison_ci.errors import UsageError
from edison_ci.repository import Repository

_OWN = ".edison"
_MAY_COME = re.compile(
    r"\.edison/(?:trust\.yaml|prices\.json|\.gitignore|schemas/[a-z]+\.schema\.json)"
)
"""What of `.edison` belongs into a commit, by its whole name."""
_BESIDE = ("", "-wal", "-shm", "-journal")
_LINK = "120000"
_FILES = ("100644", "100755")


@cache
def refuse_planted(root: Path, results: str) -> None:
    """Refuse results, locks, copies and links that came with the checkout, before any is used."""
    results = inside(results)
    for name in (_OWN, results):
        if link := _link_on_the_way(root, name):
            raise _refused(link)
    repository = Repository.find(root)
    head = repository.head() if repository is not None else None
    if repository is None or head is None:
        return
    modes = repository.modes(head)
    top = repository.root.resolve()
    folder = root.relative_to(top).as_posix()
    prefix = "" if folder == "." else f"{folder}/"
    written = {f"{results}{suffix}".casefold() for suffix in _BESIDE}
    for path, mode in modes.items():
        name = path.removeprefix(prefix)
        if not path.startswith(prefix):
            continue
        # Some file systems do not tell upper from lower case.
        folded = name.casefold()
        own = folded == _OWN or folded.startswith(f"{_OWN}/")
        may_come = mode in _FILES and _MAY_COME.fullmatch(name)
        if folded in written or (own and not may_come):
            raise _refused(name)
        if mode == _LINK:
            _refuse_astray(top, path, modes)


def _link_on_the_way(root: Path, name: str) -> str:
    """Return the first part of a path that is a link, or ''."""
    path = root
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            return os.path.relpath(path, root)
    return ""


def _refuse_astray(top: Path, path: str, modes: dict[str, str]) -> None:
    """Refuse a link to anything that is not in the commit; one that leads nowhere is harmless."""
    real = Path(os.path.realpath(top / path))
    if not real.exists():
        return
    target = real.relative_to(top).as_posix() if real.is_relative_to(top) else ""
    if target not in modes and not any(name.startswith(f"{target}/") for name in modes if target):
        raise UsageError(
            f"{path} is a link to something that is not part of the commit",
            hint="copy the file into the project",
        )


def _refused(path: str) -> UsageError:
    return UsageError(
        f"{path} is part of the commit, and only a run may write it: results in it would be "
        "taken for answers of models",
        hint=f"take it out: git rm --cached {path}",
    )
