"""Bytes as text: decoding of UTF-8, with the position of invalid bytes, and base64."""

from __future__ import annotations

import base64
import codecs
import io
from typing import TYPE_CHECKING, BinaryIO

from edison_ci.documents.marks import Fault

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BLOCK = 262_144


def decode(data: bytes) -> str:
    """Return the text of UTF-8 bytes without a byte order mark; raises Fault."""
    return _text(data.removeprefix(_BOM))


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise _not_utf8(data[error.start :], place(before, len(before))) from None
    if "\0" in text:
        at = place(text, text.index("\0"))
        raise Fault("nul-byte", "NUL byte in a text file", _nul_hint(data), at=at)
    return text


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column (from 0) of an offset in a text."""
    line = text.count("\n", 0, offset)
    return line, offset - (text.rfind("\n", 0, offset) + 1)


def _not_utf8(data: bytes, at: tuple[int, int]) -> Fault:
    utf16 = data.startswith(_UTF16_MARKS)
    hint = "this is UTF-16; save the file as UTF-8" if utf16 else "save the file as UTF-8"
    return Fault("encoding", f"byte 0x{data[0]:02x} is not UTF-8", hint, at=at)


def _nul_hint(data: bytes) -> str:
    """Every other byte of English text in UTF-16 is NUL."""
    start = data[:1_000]
    wide = 3 * start.count(0) > len(start)
    return "this looks like UTF-16; save the file as UTF-8" if wide else "remove it"


def text_lines(stream: BinaryIO, *, longest: int) -> Iterator[str | Fault]:
    """Yield the lines of a file with their ends; for an invalid line, its Fault."""
    rest, number, start = b"", 0, True
    while block := stream.read(_BLOCK):
        if start:
            block, start = block.removeprefix(_BOM), False
        whole, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            yield from _decoded_lines(whole + newline, number, longest)
            number += whole.count(b"\n") + 1
        rest = rest[: longest + 1]  # enough of a long line to report it
    if rest:
        yield from _decoded_lines(rest, number, longest)


def _decoded_lines(data: bytes, number: int, longest: int) -> Iterator[str | Fault]:
    """Yield the decoded lines; decode one by one if the whole block is invalid."""
    if len(data) <= longest:
        try:
            yield from io.StringIO(_text(data), newline="\n")
            return
        except Fault:
            pass
    for index, line in enumerate(io.BytesIO(data), number):
        try:
            if len(line) - line.endswith(b"\n") > longest:
                raise Fault("size", f"the line is longer than {longest:,} bytes", "shorten it")
            yield _text(line)
        except Fault as fault:
            fault.at = (index, fault.at[1])
            yield fault


class TextBlocks:
    """A file read as text in blocks; invalid text raises Fault with its position."""

    def __init__(self, stream: BinaryIO, refused: re.Pattern[str]) -> None:
        self._stream, self._refused = stream, refused
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._held = ""
        self.end = (0, 0)
        """Line and column after the last character read."""
        self._start = True

    def read(self, size: int = _BLOCK) -> str:
        """Return at least one character, or '' at the end of the file."""
        text = ""
        while not text:
            data = self._stream.read(max(size, _BLOCK))
            text = self._held + self._decoded(data)
            self._held = ""
            if self._start and text:
                text, self._start = text.removeprefix("\ufeff"), False
            if not data:
                break
            if text.endswith("\r"):  # its line feed may come with the next block
                text, self._held = text[:-1], "\r"
        self._check(text)
        return text

    def _decoded(self, data: bytes) -> str:
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            self._check(self._held + error.object[: error.start].decode("utf-8"))
            raise _not_utf8(error.object[error.start :], self.end) from None

    def _check(self, text: str) -> None:
        match = self._refused.search(text)
        if match is not None:
            self._advance(text[: match.start()])
            raise refused_character(match.group(), self.end)
        self._advance(text)

    def _advance(self, text: str) -> None:
        line, column = place(text, len(text))
        self.end = (self.end[0] + line, column if line else self.end[1] + column)


def refused_character(character: str, at: tuple[int, int]) -> Fault:
    """Return the fault of a character that is not allowed unescaped."""
    if character == "\0":
        return Fault("nul-byte", "NUL byte in a text file", "remove it", at=at)
    if character == "\r":
        message = "a carriage return without a line feed"
        return Fault("syntax", message, "end lines with \\n or \\r\\n", at=at)
    message = f"character U+{ord(character):04X} is not allowed in YAML"
    return Fault("syntax", message, "write it as an escape in double quotes", at=at)


# Base64 with one text for each value: keys, signatures and boxes are read in no other spelling. The
# decoders of Python ignore the spare bits of the last character, and some of them every character
# that is not base64. A changed text could then pass for the one that was signed, and one key be
# listed twice.
_LETTER = "[A-Za-z0-9+/]"
_TWO_BYTES = f"{_LETTER}{{2}}[AEIMQUYcgkosw048]="
"""The last letter has two spare bits, which are zero."""
_ONE_BYTE = f"{_LETTER}[AQgw]=="
"""The last letter has four spare bits."""
KEY_PATTERN = f"(?:{_LETTER}{{4}}){{10}}{_TWO_BYTES}"
"""Pattern of 32 bytes, such as a public key."""


def at_least_pattern(groups: int) -> str:
    """Return the pattern of at least this many groups of three bytes."""
    return f"(?:{_LETTER}{{4}}){{{groups},}}(?:{_ONE_BYTE}|{_TWO_BYTES})?"


def encode_base64(raw: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(raw).decode("ascii")


def decode_base64(text: str) -> bytes:
    """Return the bytes of a text; raises ValueError unless it is the one that they encode to."""
    raw = base64.b64decode(text, validate=True)
    if encode_base64(raw) != text:
        raise ValueError("not the base64 of its bytes")
    return raw


def encode_base64url(raw: bytes) -> str:
    """Return bytes as base64 for addresses, cookies and tokens, without padding."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def decode_base64url(text: str) -> bytes:
    """Return the bytes of a text; raises ValueError unless it is the one that they encode to."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode_base64url(raw) != text:
        raise ValueError("not the base64 of its bytes")
    return raw
