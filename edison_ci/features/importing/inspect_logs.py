"""Samples of an Inspect log in the format `.eval`: a ZIP file with one JSON file for each sample.

The file may be hostile: the number of members, the size of each and of all together are limited,
and nothing is unpacked to the disk.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, BinaryIO

from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.features.importing.exports import Fields, SourceRow
from edison_ci.features.importing.zstd import unpack_zstd

if TYPE_CHECKING:
    from edison_ci.errors import Location

MOST_MEMBERS = 100_000
MOST_BYTES = 50_000_000
"""Of one sample; a case is much smaller, but a sample has all events of its run."""
MOST_BYTES_OF_ALL = 1_000_000_000
_SAMPLE = re.compile(r"samples/(.+)_epoch_([0-9]{1,9})\.json", re.DOTALL)
_END = struct.Struct("<4s4H2LH")
_LOCAL = struct.Struct("<4s5H3L2H")
_ZSTD = 93
_HINT = "is it a log that Inspect wrote?"
_CONVERT = "convert it: inspect log convert FILE --to json --output-dir FOLDER"


def read_samples(stream: BinaryIO, where: Location) -> list[SourceRow]:
    """Return each sample once, of its first epoch; raises Fault."""
    _refuse_listing(stream)
    try:
        with zipfile.ZipFile(stream) as archive:
            return [
                SourceRow(where, sample)
                for member in _first_epochs(archive)
                for sample in [_sample(archive, member, stream)]
            ]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise Fault("syntax", f"the ZIP file is damaged ({error})", _HINT) from None


def _refuse_listing(stream: BinaryIO) -> None:
    """Raise, by the last bytes, for an archive whose listing would exhaust the memory."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - _END.size))
    end = stream.read()
    stream.seek(0)
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise Fault("syntax", "it is not a ZIP file", _HINT)
    if _END.unpack(end)[4] > MOST_MEMBERS:
        raise Fault("size", f"it has more than {MOST_MEMBERS:,} files", "import it in parts")


def _first_epochs(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    found: dict[str, tuple[int, zipfile.ZipInfo]] = {}
    for member in archive.infolist():
        if named := _SAMPLE.fullmatch(member.filename):
            one = (int(named[2]), member)
            found[named[1]] = min(found.get(named[1], one), one, key=lambda each: each[0])
    if sum(member.file_size for _, member in found.values()) > MOST_BYTES_OF_ALL:
        raise Fault("size", f"it unpacks to over {MOST_BYTES_OF_ALL:,} bytes", "import it in parts")
    return [member for _, member in found.values()]


def _sample(archive: zipfile.ZipFile, member: zipfile.ZipInfo, stream: BinaryIO) -> Fields:
    value = parse_json(decode(_unpacked(archive, member, stream)), constants=True)
    if not isinstance(value, dict):
        raise Fault("type", f"{member.filename[:80]!r} is not a sample", _HINT)
    return value


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, stream: BinaryIO) -> bytes:
    if member.file_size > MOST_BYTES:
        raise _too_large(member)
    try:
        with archive.open(member) as source:
            return source.read(MOST_BYTES)
    except NotImplementedError:
        if member.compress_type != _ZSTD:
            name = f"{member.filename[:80]!r}"
            raise Fault("type", f"{name} is compressed in an unknown way", _CONVERT) from None
    # Python 3.14 is the first whose zipfile knows what Inspect packs with.
    stream.seek(member.header_offset)
    head = stream.read(_LOCAL.size)
    if len(head) != _LOCAL.size:
        raise zipfile.BadZipFile("a file in it is cut off")
    name_bytes, extra_bytes = _LOCAL.unpack(head)[-2:]
    stream.seek(name_bytes + extra_bytes, 1)
    data = unpack_zstd(stream.read(member.compress_size), member.file_size)
    if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
        raise zipfile.BadZipFile("a file in it has another checksum")
    return data


def _too_large(member: zipfile.ZipInfo) -> Fault:
    message = f"{member.filename[:80]!r} unpacks to over {MOST_BYTES:,} bytes"
    return Fault("size", message, "leave the sample out")
