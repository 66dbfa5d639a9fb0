"""Small databases beside the results file, readable by their owner only.

A file is opened for each question, so that nothing is held; each change is one transaction.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from edison_ci.documents.files import make_folder
from edison_ci.errors import StoreError, UsageError
from edison_ci.store.database import store_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_PATIENCE_S = 10.0


class FileLayout(NamedTuple):
    """The kind and the tables of a file."""

    application_id: int
    version: int
    schema: str
    name: str
    """What it is, with its article."""
    after_removal: str
    """What to do after a file that cannot be used was removed."""
    upgrades: Mapping[int, str] = MappingProxyType({})
    """What a file of an earlier version lacks."""


class PrivateFile:
    """A file of one project."""

    layout: ClassVar[FileLayout]

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none if there is no file."""
        if not self.path.exists():
            return []
        try:
            with closing(self._connect()) as connection:
                return connection.execute(sql, [*values]).fetchall()
        except sqlite3.Error as error:
            raise store_error(error, self.path) from None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for one transaction, which is on the disk when the block is left."""
        try:
            with closing(self._connect()) as connection:
                connection.execute("begin immediate")
                yield connection
                connection.execute("commit")
        except sqlite3.Error as error:
            raise store_error(error, self.path) from None

    def _connect(self) -> sqlite3.Connection:
        _keep_private(self.path)
        connection = sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        layout = self.layout
        connection.execute("pragma secure_delete = 1")
        connection.execute("pragma trusted_schema = 0")
        (version,) = connection.execute("pragma user_version").fetchone()
        (owner,) = connection.execute("pragma application_id").fetchone()
        if version == layout.version and owner == layout.application_id:
            return
        connection.execute("begin immediate")
        (tables,) = connection.execute("select count(*) from sqlite_schema").fetchone()
        (version,) = connection.execute("pragma user_version").fetchone()
        if version in layout.upgrades and owner == layout.application_id:
            connection.execute(layout.upgrades[version])
            connection.execute(f"pragma user_version = {layout.version}")
        elif version != layout.version:
            if tables or version:
                raise UsageError(
                    f"{self.path} is not {layout.name} of this version",
                    hint=f"remove it, {layout.after_removal}",
                )
            for statement in layout.schema.split(";\n"):
                connection.execute(statement)
            connection.execute(f"pragma application_id = {layout.application_id}")
            connection.execute(f"pragma user_version = {layout.version}")
        connection.execute("commit")


def _keep_private(path: Path) -> None:
    """Make the file for its owner alone; refuse a link, or a file of another user.

    A folder that is a link could lead to files that came with a commit.
    """
    try:
        make_folder(path.parent)
        if path.parent.is_symlink():
            hint = "check where it comes from, and replace it by a folder"
            raise UsageError(f"{path.parent} is a link", hint=hint)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise UsageError(
                f"{path} is not a file of yours", hint="check where it comes from, and remove it"
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise StoreError(
            f"cannot make {path}: {error.strerror}", hint="is the folder writable?"
        ) from None
