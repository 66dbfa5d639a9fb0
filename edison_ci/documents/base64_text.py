"""Base64 with one text for each value: keys, signatures and boxes are read in no other spelling.

The decoders of Python ignore the spare bits of the last character, and some of them every character
that is not base64. A changed text could then pass for the one that was signed, and one key be
listed twice.
"""

from __future__ import annotations

import base64

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
