"""How is a ZIP file that a stranger made unpacked, and how is one of ours made?

Only names that are expected are unpacked, each to a place of our choosing, never more than is
allowed of it, whatever the archive says of itself.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 1_000_000_000
"""Of the archive, and of all that is in it."""
MOST_MEMBERS = 100
MOST_RATIO = 100
_SLACK = 1_000_000
"""Bytes that may come of nearly nothing: a small file of one letter."""
_CHUNK = 1 << 20
_END = struct.Struct("<4s4H2LH")
_LOCATOR = 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Unpacked(NamedTuple):
    """A file that was in an archive."""

    path: Path
    size_bytes: int
    sha256: str


def unpack(archive: Path, wanted: Mapping[str, int], folder: Path) -> dict[str, Unpacked]:
    """Unpack the files that are wanted, and how large each may be; anything else is refused."""
    _refuse_size(archive)
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            _refuse_members(archive, members, wanted)
            return {
                member.filename: _unpacked(opened, member, wanted[member.filename], folder)
                for member in members
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise no_bundle(archive, f"it is damaged ({error})") from None
    except OSError as error:
        raise no_bundle(archive, f"it cannot be read ({error.strerror or error})") from None


def no_bundle(archive: Path, why: str) -> UsageError:
    """Return the error for what cannot be taken in."""
    return UsageError(
        f"{archive} is no bundle: {why}", hint="make one with edison report --format bundle"
    )


def _refuse_size(archive: Path) -> None:
    """Refuse, by its last bytes, what would fill the memory when it is only listed."""
    if not archive.is_file():
        raise UsageError(
            f"there is no file {archive}", hint="name a bundle: edison import bundle FILE"
        )
    size = archive.stat().st_size
    if size > MOST_BYTES:
        raise no_bundle(archive, f"it has {size:,} bytes, and {MOST_BYTES:,} are allowed")
    with archive.open("rb") as stream:
        stream.seek(-min(size, _END.size + _LOCATOR), os.SEEK_END)
        tail = stream.read()
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise no_bundle(archive, "it does not end as a ZIP file does")
    entries = _END.unpack(end)[4]
    if tail.startswith(b"PK\6\7") or entries > MOST_MEMBERS:
        raise no_bundle(archive, f"it has more than {MOST_MEMBERS} files")


def _refuse_members(
    archive: Path, members: list[zipfile.ZipInfo], wanted: Mapping[str, int]
) -> None:
    names = [member.filename for member in members]
    odd = [name for name in names if name not in wanted]
    if odd:
        raise no_bundle(archive, f"it has {odd[0][:80]!r}")
    missing = [name for name in wanted if names.count(name) != 1]
    if missing:
        times = "is not in it" if missing[0] not in names else "is in it twice"
        raise no_bundle(archive, f"{missing[0]} {times}")
    for member in members:
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or member.is_dir():
            raise no_bundle(archive, f"{member.filename} is no ordinary file")
        if member.flag_bits & 1 or member.compress_type not in _METHODS:
            raise no_bundle(archive, f"{member.filename} is packed in a way we do not read")


def _unpacked(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, most: int, folder: Path
) -> Unpacked:
    most = min(most, MOST_RATIO * member.compress_size + _SLACK)
    target, digest, size = folder / member.filename, hashlib.sha256(), 0
    with opened.open(member) as source, target.open("xb") as stream:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > most:
                raise zipfile.BadZipFile(f"{member.filename} is larger than it may be")
            digest.update(chunk)
            stream.write(chunk)
    return Unpacked(target, size, digest.hexdigest())


def pack(target: Path, files: Mapping[str, Path | bytes]) -> int:
    """Write an archive, whole or not at all; return how large it is."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                with zipfile.ZipFile(
                    stream, "w", zipfile.ZIP_DEFLATED, allowZip64=False
                ) as archive:
                    for place, content in files.items():
                        _add(archive, place, content)
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            Path(name).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink(missing_ok=True)
            raise
    except zipfile.LargeZipFile:
        raise UsageError(
            "the runs are too large for a bundle", hint="bundle one at a time"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}", hint="write it somewhere else"
        ) from None
    return target.stat().st_size


def _add(archive: zipfile.ZipFile, place: str, content: Path | bytes) -> None:
    # The same content makes the same archive: times are of no use to whoever unpacks it.
    about = zipfile.ZipInfo(place, _EPOCH)
    about.compress_type = zipfile.ZIP_DEFLATED
    about.external_attr = (stat.S_IFREG | 0o644) << 16
    with archive.open(about, "w") as stream:
        if isinstance(content, bytes):
            stream.write(content)
            return
        with content.open("rb") as source:
            while chunk := source.read(_CHUNK):
                stream.write(chunk)
