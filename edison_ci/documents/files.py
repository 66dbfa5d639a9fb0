"""Access to the files of a project, and to nothing outside of it.

Everything in a repository may be hostile, so a path is followed only inside the project and only to
a regular file: no absolute paths, no `..` out of the tree, no links that leave it, no files of
`.git` (it may hold tokens), no FIFOs or devices (they would block), and only a limited number of
bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import stat
import uuid
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


OWN_FOLDER = ".edison"
"""The folder in a project for what edison writes."""
_FOR_GIT = ("/.gitignore", "/prices.json", "/schemas/", "/secrets.yaml", "/trust.yaml")
"""What of it can be committed."""
_SCHEMA = re.compile(r"/schemas/[a-z_]+(?:\.schema)?\.json")
IGNORED_BY_GIT = "\n".join(
    (
        "# Results, locks and accounts stay on this machine; only these files are for Git:",
        "/*",
        *(f"!{path}" for path in _FOR_GIT),
        "",
    )
)
"""Its .gitignore."""


def may_be_committed(path: str) -> bool:
    """Whether a file of `.edison`, by its path in the project, can be in Git."""
    inside = path.removeprefix(OWN_FOLDER)
    return inside in _FOR_GIT or _SCHEMA.fullmatch(inside) is not None


def make_folder(folder: Path) -> None:
    """Make a folder and its parents; `.edison` gets its .gitignore with the first folder in it.

    Without it, `git add .` after the first command would commit results, locks and accounts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, *folder.parents):
        if place.name == OWN_FOLDER:
            # It may be read-only where folders in it are mounted, and is never written twice.
            with contextlib.suppress(OSError), (place / ".gitignore").open("x") as stream:
                stream.write(IGNORED_BY_GIT)
            return


def replace_file(
    root: Path, name: str, data: bytes, *, just_before: Callable[[], object] | None = None
) -> None:
    """Replace a file atomically, or make it and its folder; the mode of an existing file stays.

    Raises UsageError if a link leads it out of the folder `root`. `just_before` is called after
    all that may fail on the disk, for an audit entry; if it raises, the file stays as it was.
    """
    path = place_in(root, name)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        make_folder(path.parent)
        with aside.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            aside.chmod(path.stat().st_mode & 0o777)
        if just_before is not None:
            just_before()
        aside.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be written: {error.strerror}", hint="check its permissions"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def in_repository(root: Path, path: str) -> tuple[Path, str]:
    """Return a folder and a path in it; only that of a workflow may lead out of the project."""
    name = re.sub(r"^(\.\./)+", "", path)
    if name == path or not name.startswith(".github/") or ".." in name.split("/"):
        return root, path  # where `place_in` refuses it, if it leads out
    return root / path.removesuffix(name), name


def place_in(folder: Path, path: str, *, within: Path | None = None) -> Path:
    """Return where a file is written; raises UsageError if a link leads it out of the folder.

    `within` is the folder that it must stay in, if that is another.
    """
    target = folder / path
    if not Path(os.path.realpath(target.parent)).is_relative_to(os.path.realpath(within or folder)):
        raise UsageError(
            f"{path.rpartition('/')[0]} is a link to another place",
            hint="check where it comes from, and replace it by a folder",
        )
    return target


CONFIG_BYTES = 1_000_000
_CHUNK = 1 << 20
_GIT = ".git"


class Tree(Protocol):
    """A tree of files: the working directory, or a commit."""

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Open a regular file for reading, or raise a Fault."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; empty if it does not exist."""

    def exists(self, path: str) -> bool:
        """Whether a path exists."""


def read(tree: Tree, path: str, *, max_bytes: int = CONFIG_BYTES) -> bytes:
    """Return the whole content of a file of at most `max_bytes`."""
    with tree.open(path, max_bytes=max_bytes) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise too_large(path, len(data), max_bytes)
    return data


def file_digest(tree: Tree, path: str) -> str:
    """Return the sha256 of a file, or why it cannot be read."""
    digest = hashlib.sha256()
    try:
        with tree.open(path) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except Fault as fault:
        return fault.code
    return digest.hexdigest()


def too_large(path: str, size: int, limit: int) -> Fault:
    """Return the fault for a file over its limit."""
    message = f"{path} is larger than {limit:,} bytes ({size:,})"
    return Fault("size", message, "shorten or split it")


def inside(path: str) -> str:
    """Return the normalized path; raises Fault if it could leave the project."""
    if not path or "\0" in path or "\n" in path or "\\" in path:
        raise Fault("path", f"{path!r} is not a path", "use forward slashes")
    if "://" in path:
        raise Fault("path", f"{path!r} is a URL", "only files of the project are read")
    if path.startswith(("/", "~")) or path[1:2] == ":":
        raise Fault("path", f"{path!r} is absolute", "write it relative to edison.yaml")
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part == "..":
            if not parts:
                raise Fault(
                    "path", f"{path!r} leaves the project", "only files of the project are read"
                )
            parts.pop()
        else:
            parts.append(part)
    if not parts:
        raise Fault("path", f"{path!r} is not a file", "name a file below edison.yaml")
    return "/".join(parts)


class WorkingTree:
    """The files on disk below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Open a regular file inside the folder; links are followed if they stay inside."""
        real = self._real(path)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(real, flags)
        except FileNotFoundError:
            raise Fault("not-found", f"{path} does not exist", self._near(path)) from None
        except OSError as error:
            raise _unreadable(path, error) from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise Fault("not-a-file", f"{path} is {kind}", "replace it with a text file")
        if max_bytes is not None and status.st_size > max_bytes:
            os.close(descriptor)
            raise too_large(path, status.st_size, max_bytes)
        return os.fdopen(descriptor, "rb")

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; `open` refuses links that leave the project."""
        try:
            real = self._real(folder) if folder not in ("", ".") else self.root
            return sorted(entry.name for entry in os.scandir(real))
        except (OSError, Fault):
            return []

    def exists(self, path: str) -> bool:
        """Whether a path exists, even if it cannot be read."""
        try:
            return os.path.lexists(self.root / inside(path))
        except Fault:
            return False

    def _real(self, path: str) -> Path:
        try:
            real = Path(os.path.realpath(self.root / inside(path)))
        except OSError as error:
            raise _unreadable(path, error) from None
        if not real.is_relative_to(self.root):
            message = f"{path} is a link that leaves the project"
            raise Fault("path", message, "copy the file into the project")
        if any(part.casefold() == _GIT for part in real.relative_to(self.root).parts):
            raise Fault("path", f"{path} is an internal file of Git", "name a file of the project")
        return real

    def _near(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        names = self.names(folder)
        stem = name.rpartition(".")[0] or name
        same = [n for n in names if n.rpartition(".")[0] == stem or n.casefold() == name.casefold()]
        if same:
            return f"did you mean {(folder + '/' if folder else '') + same[0]!r}?"
        if folder and not names:
            return f"the folder {folder!r} is missing or empty"
        return "create it, or fix the path"


def _unreadable(path: str, error: OSError) -> Fault:
    message = f"{path} cannot be read: {error.strerror}"
    return Fault("unreadable", message, "check its links and permissions")


@dataclass(frozen=True, slots=True)
class OverlayTree:
    """A tree in which one file has another content: a text, bytes, or those of a copy."""

    tree: Tree
    path: str
    content: str | bytes | Path

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Open a file; the changed one with its new content."""
        if inside(path) != inside(self.path):
            return self.tree.open(path, max_bytes=max_bytes)
        if isinstance(self.content, Path):
            return self.content.open("rb")
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        return io.BytesIO(self.content.encode("utf-8", "surrogatepass"))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, with that of the changed file."""
        names = self.tree.names(folder)
        parent, _, name = inside(self.path).rpartition("/")
        return sorted({*names, name}) if folder.strip("./") == parent else names

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        return path == self.path or self.tree.exists(path)
