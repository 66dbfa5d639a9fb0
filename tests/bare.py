"""An installation without some of its libraries, in this process or in one of its own.

The finder of the path does not see them: looking for one finds nothing, and importing it raises
what it raises where it was never installed.
"""

from __future__ import annotations

import contextlib
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Folder

_SITE = """\
import os
import sys
from importlib.machinery import PathFinder


class Without(PathFinder):
    hidden = frozenset(os.environ["HIDDEN_LIBRARIES"].split())

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in cls.hidden
        return None if hidden else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def without(folder: Folder, *libraries: str) -> dict[str, str]:
    """Return the environment of a process that does not find these libraries."""
    place = folder.path.parent / "bare"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    return {"PYTHONPATH": str(place), "HIDDEN_LIBRARIES": " ".join(libraries)}


@contextlib.contextmanager
def lacking(*libraries: str) -> Iterator[None]:
    """Do not find these libraries in this process, either."""

    class Without(PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
            hidden = fullname.partition(".")[0] in libraries
            return None if hidden else super().find_spec(fullname, path, target)

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] in libraries]:
            patch.delitem(sys.modules, name)
        finders: list[Any] = sys.meta_path  # what is imported meanwhile may add to it
        finders[finders.index(PathFinder)] = Without
        try:
            yield
        finally:
            finders[finders.index(Without)] = PathFinder
