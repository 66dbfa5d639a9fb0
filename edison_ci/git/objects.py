"""Objects of a repository, read through one long-running Git, and the files of one commit.

`git cat-file --batch` is started for the first object and runs as long as the reader exists. Names
of files are never sent to it: a path is followed from tree to tree, by ids.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import stat
import threading
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from edison_ci.documents.files import inside
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.git.command import LOCAL_TIMEOUT_S, start_git, stop_git

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from edison_ci.git.repository import Repository

MAX_SKIPPED_BYTES = 64_000_000
"""A larger object is not skipped by reading it: Git is restarted instead."""
_MAX_TREE_BYTES = 100_000_000
_CHUNK = 1 << 16
_HEADER = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (blob|tree|commit|tag) ([0-9]+)")


class ObjectUnavailable(Exception):
    """An object cannot be read: it is missing, or Git failed."""


class TooLargeError(Exception):
    """An object has more bytes than allowed."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class GitObject(NamedTuple):
    """The id, the kind and the content of an object."""

    name: str
    kind: str
    data: bytes


class Objects:
    """The objects of the repository at `root`; used by one thread at a time."""

    def __init__(self, root: Path) -> None:
        self._root, self._lock = root, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def file(self, commit: str, path: str, *, max_bytes: int) -> bytes | None:
        """Return the content of a regular file of a commit; None if there is none at this path."""
        with self._lock:
            mode, name = stat.S_IFDIR, f"{commit}^{{tree}}"
            for part in path.encode("utf-8", "surrogateescape").split(b"/"):
                if not stat.S_ISDIR(mode):
                    return None
                tree = self._get(name, max_bytes=_MAX_TREE_BYTES)
                mode, name = _entry(tree, part, len(commit) // 2)
            return self._get(name, max_bytes=max_bytes).data if stat.S_ISREG(mode) else None

    def blob(self, name: str, *, max_bytes: int) -> bytes:
        """Return the content of a blob by its id."""
        with self._lock:
            return self._get(name, max_bytes=max_bytes).data

    def commit(self, ref: str) -> str | None:
        """Return the full id of the commit that a ref, of one line, names; None if none."""
        with self._lock, contextlib.suppress(ObjectUnavailable, TooLargeError):
            return self._get(f"{ref}^{{commit}}", max_bytes=_MAX_TREE_BYTES).name
        return None

    def close(self) -> None:
        """End the running Git, which does not see how far a shallow history was deepened."""
        with self._lock:
            self._stop()

    def _get(self, name: str, *, max_bytes: int) -> GitObject:
        try:
            header = self._request(name)
        except OSError:
            self._stop()
            raise ObjectUnavailable from None
        about = _HEADER.fullmatch(header)
        if about is None:
            raise ObjectUnavailable  # missing or ambiguous; Git keeps running
        size = int(about[3])
        if size <= max_bytes:
            return GitObject(about[1].decode(), about[2].decode(), self._take(size + 1)[:-1])
        if size <= MAX_SKIPPED_BYTES:
            self._take(size + 1, keep=False)
        else:
            self._stop()
        raise TooLargeError(size)

    def _request(self, name: str) -> bytes:
        process = self._process
        if process is None or process.poll() is not None:
            self._stop()
            process = start_git("cat-file", "--batch", cwd=self._root)
            self._process = process
            weakref.finalize(self, stop_git, process)
        assert process.stdin is not None
        process.stdin.write(name.encode("utf-8", "surrogateescape") + b"\n")
        process.stdin.flush()
        while b"\n" not in self._buffer:
            self._buffer += self._read()
        header, _, self._buffer = self._buffer.partition(b"\n")
        return header

    def _take(self, size: int, *, keep: bool = True) -> bytes:
        """Return the next bytes, or skip them."""
        pieces, left = [], size
        while left:
            piece, self._buffer = self._buffer[:left], self._buffer[left:]
            left -= len(piece)
            if keep:
                pieces.append(piece)
            if left:
                try:
                    self._buffer = self._read()
                except OSError:
                    self._stop()
                    raise ObjectUnavailable from None
        return b"".join(pieces)

    def _read(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        data = os.read(descriptor, _CHUNK) if ready.poll(1_000 * LOCAL_TIMEOUT_S) else b""
        if not data:
            raise BrokenPipeError  # Git ended, or did not answer in time
        return data

    def _stop(self) -> None:
        process, self._process, self._buffer = self._process, None, b""
        if process is not None:
            stop_git(process)


def _entry(tree: GitObject, name: bytes, id_bytes: int) -> tuple[int, str]:
    """Return mode and id of an entry of a tree by its name; mode 0 if there is none."""
    data, at = tree.data, 0
    while at < len(data):
        space, end = data.index(b" ", at), data.index(b"\0", at)
        stop = end + 1 + id_bytes
        if data[space + 1 : end] == name:
            return int(data[at:space], 8), data[end + 1 : stop].hex()
        at = stop
    return 0, ""


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
        folder = inside(path)
        return sorted(p for p in self._paths if p == folder or p.startswith(f"{folder}/"))

    def write_to(self, folder: Path) -> None:
        """Write all files of the project in this commit into a folder."""
        self._repository.write_files(self._commit, self._prefix, folder)

    def exists(self, path: str) -> bool:
        """Whether the commit has this file."""
        try:
            return inside(path) in self._paths
        except Fault:
            return False
