"""The files that a program of the repository consists of, and their hash.

A program whose files, arguments and set-up are the same gives the same kind of answer, so that its
stored answers may be reused; and in a pull request it is the program that the base trusts.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.documents.files import file_digest
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.models import Model
    from edison_ci.documents.files import Tree

_LEFT_OUT = frozenset({"__pycache__", "node_modules"})
_MOST_FILES = 20_000


def with_code(model: Model, tree: Tree) -> Model:
    """Return a model with the hash of its program's files; other models unchanged."""
    if model.provider != "command":
        return model
    found = hashlib.sha256()
    for number, path in enumerate(program_files(model, tree)):
        if number == _MOST_FILES:
            raise UsageError(
                f"the program of model {model.name!r} has more than {_MOST_FILES:,} files",
                hint="list only its own folders under options: files",
            )
        found.update(f"{path}\0".encode("utf-8", "surrogateescape"))
        found.update(file_digest(tree, path).encode())
    return replace(model, code=found.hexdigest(), tree=tree)


def program_files(model: Model, tree: Tree) -> Iterator[str]:
    """Yield the files of a program, sorted; hidden and generated ones are left out."""
    for place in sorted(model.options["files"]):
        yield from _below(tree, place)


def _below(tree: Tree, path: str) -> Iterator[str]:
    names = tree.names(path)
    if not names and tree.exists(path):
        yield path
    for name in names:
        if not name.startswith(".") and name not in _LEFT_OUT:
            yield from _below(tree, f"{path}/{name}")
