"""Is this really UTF-8 text?"""

from __future__ import annotations

from edison_ci.documents.marks import Fault

_BOM = b"\xef\xbb\xbf"


def decode(data: bytes) -> str:
    """Return the text of UTF-8 bytes without a byte order mark; bad bytes and NUL are faults."""
    if data.startswith(_BOM):
        data = data[len(_BOM) :]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(data, error) from None
    if "\0" in text:
        raise Fault("nul-byte", "NUL byte in a text file", at=place(text, text.index("\0")))
    return text


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column (from 0) of an offset in a text."""
    line = text.count("\n", 0, offset)
    return line, offset - (text.rfind("\n", 0, offset) + 1)


def _not_utf8(data: bytes, error: UnicodeDecodeError) -> Fault:
    before = data[: error.start].decode("utf-8", errors="replace")
    hint = "save the file as UTF-8"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        hint = "this is UTF-16; save the file as UTF-8"
    message = f"byte 0x{data[error.start]:02x} is not UTF-8"
    return Fault("encoding", message, hint, at=place(before, len(before)))
