"""Files of a project in a commit."""

from __future__ import annotations

import io
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from edison_ci.documents.files import inside
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.git.repository import Repository

_MAX_BYTES = 100_000_000
"""Files of a commit are held in memory; larger ones are an error."""


class CommitTree:
    """The files of a project in one commit; symbolic links are not followed."""

    def __init__(self, repository: Repository, commit: str, prefix: str = "") -> None:
        self._repository, self._commit = repository, commit
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    @cached_property
    def _paths(self) -> frozenset[str]:
        listed = self._repository.list_files(self._commit, self._prefix)
        return frozenset(path.removeprefix(self._prefix) for path in listed)

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Return the content of a regular file of the commit."""
        normal = inside(path)
        try:
            data = self._repository.read(
                self._commit, self._prefix + normal, max_bytes=max_bytes or _MAX_BYTES
            )
        except UsageError as error:
            raise Fault("size", error.message, error.hint) from None
        if data is None:
            message = f"{path} does not exist in {self._commit[:8]}"
            raise Fault("not-found", message, "commit it, or correct the path")
        return io.BytesIO(data)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder of the commit."""
        start = "" if folder in ("", ".") else folder.rstrip("/") + "/"
        rest = (path[len(start) :] for path in self._paths if path.startswith(start))
        return sorted({path.partition("/")[0] for path in rest})

    def under(self, path: str) -> list[str]:
        """Return the files that are at a path or below it, sorted."""
        wanted = inside(path)
        return sorted(p for p in self._paths if p == wanted or p.startswith(f"{wanted}/"))

    def write_to(self, folder: Path) -> None:
        """Write all files of the project in this commit into a folder."""
        self._repository.write_files(self._commit, self._prefix, folder)

    def exists(self, path: str) -> bool:
        """Whether the commit has this file."""
        try:
            return inside(path) in self._paths
        except Fault:
            return False
