"""The files that a program of the repository consists of, and their hash.

A program whose files, arguments and set-up are the same gives the same kind of answer, so that its
stored answers may be reused; in a pull request it is the program that the base trusts; and a worker
runs the code of a check only if it is the same in its own checkout.

The files are those that Git has, or would add, below `files`: hidden ones and lock files too, and
no others. A program runs in a folder with exactly these, so that no other file can change it.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

from edison_ci.documents.files import OverlayTree, WorkingTree, file_digest, inside
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.git.objects import CommitTree
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from edison_ci.checks.code import Command, Python
    from edison_ci.checks.options import Check
    from edison_ci.config.models import Model
    from edison_ci.documents.files import Tree

_LEFT_OUT = frozenset({".git", "__pycache__"})
_EXECUTABLE = 0o755
_MOST_FILES = 20_000
_MOST_CHECK_FILES = 1_000
"""Files that are hashed for each answer: more would take longer than the check."""
LONGEST_PROGRAM = 10_000
"""Characters of the program of a check that workers may run."""


def with_code(model: Model, tree: Tree) -> Model:
    """Return a model with the hash of its program's files; other models unchanged."""
    if model.provider != "command":
        return model
    files = program_files(model, tree)
    if len(files) > _MOST_FILES:
        raise UsageError(
            f"the program of model {model.name!r} has more than {_MOST_FILES:,} files",
            hint="list only its own folders under options: files",
        )
    return replace(model, code=_digest(files, tree), tree=tree)


def _digest(files: Iterable[str], tree: Tree) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path}\0".encode("utf-8", "surrogateescape"))
        digest.update(file_digest(tree, path).encode())
    return digest.hexdigest()


def check_files(check: Check, tree: Tree) -> set[str]:
    """Return the files that a code check names: a Python file, or files in a command line."""
    if check.check == "python":
        return {cast("Python", check).path}
    if check.check == "command":
        return files_among(cast("Command", check).value, tree)
    return set()


def files_among(words: Iterable[str], tree: Tree) -> set[str]:
    """Return the words of a command line that are files."""
    return {inside(word) for word in words if _is_file(tree, word)}


def check_digest(check: Check, tree: Tree) -> str:
    """Return the hash of the files that a code check names, and of all others in their folders.

    Empty if nothing shows that two programs are the same, as for one that names no file.
    """
    named = check_files(check, tree)
    folders = {str(PurePosixPath(path).parent) for path in named} - {"."}
    below = (path for folder in sorted(folders) for path in _all_below(tree, folder))
    files = named | {*islice(below, _MOST_CHECK_FILES + 1)}
    if not named or len(files) > _MOST_CHECK_FILES or len(check.program) > LONGEST_PROGRAM:
        return ""
    return _digest(sorted(files), tree)


def program_files(model: Model, tree: Tree) -> list[str]:
    """Return the files of a program, sorted: what it sees, and what its hash is made of."""
    while isinstance(tree, OverlayTree):
        tree = tree.tree
    return sorted(set(_files_at([inside(place) for place in model.options["files"]], tree)))


def _files_at(places: Sequence[str], tree: Tree) -> Iterable[str]:
    if isinstance(tree, CommitTree):
        files = [path for place in places for path in tree.under(place)]
    elif isinstance(tree, WorkingTree) and (repository := Repository.find(tree.root)) is not None:
        files = repository.own_files(tree.root, places)
    else:
        return (path for place in places for path in _all_below(tree, place))
    return (path for path in files if not _LEFT_OUT.intersection(path.split("/")))


def write_program(model: Model, tree: Tree, folder: Path) -> None:
    """Write the files of a program into a folder, all executable; raises Fault without any."""
    files = program_files(model, tree)
    if not files:
        places = ", ".join(model.options["files"])
        message = f"Git has no file at {places}: ignored ones and links do not count"
        raise Fault("not-found", message, "take it out of .gitignore, or name another")
    for path in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with tree.open(path) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        target.chmod(_EXECUTABLE)


def _all_below(tree: Tree, path: str) -> Iterator[str]:
    names = tree.names(path)
    if not names and tree.exists(path):
        yield path
    for name in names:
        if name not in _LEFT_OUT:
            yield from _all_below(tree, f"{path}/{name}")


def _is_file(tree: Tree, word: str) -> bool:
    try:
        tree.open(word).close()
    except Fault:
        return False
    return True
