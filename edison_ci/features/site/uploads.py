"""Uploads of bundles to a site, in parts: each continues at the byte that the site has.

An upload is named by the SHA-256 of the bundle. Its bytes are kept beside the results until all of
them are there; then the bundle is checked and imported whole, or refused whole. Until then, no page
shows anything of it. A sender that is cut off asks how many bytes there are and sends the rest.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.api.bundles import Arrival, import_bundle, trusted_keys
from edison_ci.documents.files import make_folder
from edison_ci.errors import EdisonError, ExitCode, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.access.site import Actor, Site
    from edison_ci.api.bundles import ImportedRuns

FOLDER = ".edison/transfer"
"""Folder of what is on its way, on both sides."""
PUSH = "push runs"
"""Its name in the audit."""
MOST_OPEN = 20
"""Unfinished uploads of a member to a project."""
_DAY_S = 86_400
_NAME = re.compile(r"[0-9a-f]{64}")
_importing: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


class UploadRefused(EdisonError):
    """Bytes that are not accepted, with what the sender needs to continue."""

    exit_code = ExitCode.INVALID

    def __init__(
        self, status: int, reason: str, message: str, hint: str = "", received: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        """Of HTTP."""
        self.reason = reason
        self.received = received
        """Bytes that are here, if that is what the sender has to know."""


@dataclass(frozen=True, slots=True)
class Uploads:
    """The unfinished uploads of a member to a project."""

    site: Site
    limit: int
    """Most bytes of a bundle."""
    actor: Actor
    """Who pushes."""

    def received(self, name: str) -> int:
        """Return how many bytes of a bundle are here."""
        try:
            return self._path(name).stat().st_size
        except FileNotFoundError:
            return 0

    def add(self, name: str, offset: int, total: int, data: bytes) -> int:
        """Append bytes to an upload; return how many are here then."""
        if total > self.limit:
            raise UploadRefused(
                413,
                "too_large",
                f"the bundle has {total:,} bytes, and this site accepts {self.limit:,}",
                "push fewer texts (edison admin gc), or have the site raise --push-limit",
            )
        path = self._path(name)
        self._make_room(path)
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if size != offset or offset + len(data) > total:
                problem = f"{size:,} bytes are here, and byte {offset:,} was sent"
                raise UploadRefused(409, "offset", problem, "send the bytes after those", size)
            try:
                os.lseek(descriptor, size, os.SEEK_SET)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            except OSError as error:
                # What was written counts: the sender continues there once there is room.
                raise _no_room(error) from None
        return size + len(data)

    def finish(self, name: str) -> ImportedRuns:
        """Import a bundle that is complete; what is not valid is removed and audited."""
        path = self._path(name)
        with _locked(path, create=False), _importing[self.site.results]:
            source = f"bundle {name[:12]}"
            arrival = Arrival("push", source, self.actor, trusted_keys(self.site.root))
            try:
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                if digest != name:
                    raise UsageError("its bytes differ from its name", hint="push it again")
                taken = import_bundle(self.site, path, arrival=arrival)
            except (StoreError, OSError) as error:
                raise _no_room(error) from None
            except EdisonError as error:
                message = error.message.replace(str(path), "the bundle")
                path.unlink(missing_ok=True)
                entry = self.site.entry(self.actor, f"refused: {PUSH}", name[:12], after=message)
                self.site.note(entry)
                raise UploadRefused(422, "bundle", message, error.hint or "") from None
            path.unlink(missing_ok=True)
            return taken

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UploadRefused(400, "name", "an upload is named by its SHA-256")
        return self.site.root / FOLDER / f"{name}{self._ending}"

    @property
    def _ending(self) -> str:
        """The end of the names of a member's uploads, so that each member's are counted apart."""
        return f".{hashlib.sha256(self.actor.name.encode()).hexdigest()[:12]}.part"

    def _make_room(self, path: Path) -> None:
        """Make the folder, and remove uploads that did not continue for a day."""
        folder = path.parent
        make_folder(folder)
        others = []
        for part in folder.glob("*.part"):
            if time.time() - part.stat().st_mtime > _DAY_S:
                part.unlink(missing_ok=True)
            elif part != path and part.name.endswith(self._ending):
                others.append(part)
        if len(others) >= MOST_OPEN:
            problem = f"{len(others)} other bundles of yours are being pushed to this project"
            raise UploadRefused(409, "too_many", problem, "wait until they are done, at most a day")


def _no_room(error: StoreError | OSError) -> UploadRefused:
    """Return the refusal of bytes that the site could not store, which stay there."""
    reason = error.message if isinstance(error, StoreError) else str(error.strerror)
    return UploadRefused(
        507, "no_room", f"the site could not store it: {reason}", "push again when there is room"
    )


@contextmanager
def _locked(path: Path, *, create: bool = True) -> Iterator[int]:
    """Open an upload that no other request is writing to; raises UploadRefused."""
    busy = UploadRefused(
        409, "busy", "this bundle is being pushed by another process", "wait a moment"
    )
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        raise busy from None
    except OSError as error:
        raise _no_room(error) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        if not os.fstat(descriptor).st_nlink:  # finished between the two calls
            raise busy
        yield descriptor
    finally:
        os.close(descriptor)
