"""Which values are secrets because they are in use, in whatever form they turn up?

A key may look like nothing special, and a provider may send it back: in an answer, in an error, as
base64 or in an address. So the values themselves are known to the process, from the environment and
from whoever takes a key into use, and are taken out of everything that leaves it: streams, files,
the results, and what is sent to a forge. There is one such list for a process, because there is one
standard output.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHORTEST = 8
"""A shorter value would be found in harmless texts."""
MASK = "[key]"
_NAMES = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|PAT|SECRET|SECRET_KEY|ACCESS_KEY|PRIVATE_KEY|PASSWORD|PASSWD|"
    r"CREDENTIALS|WEBHOOK|WEBHOOK_URL)$"
)
"""Names of variables that hold secrets, as people and vendors name them."""
_PLAIN = re.compile(r"[a-z]{1,15}|[A-Z]{1,15}|[0-9]{1,15}|(?:[~./]|[A-Za-z]:\\).*", re.DOTALL)
"""Values that are words, numbers and paths: nobody's secret, and found in harmless texts."""


class _Known:
    """The secrets of this process."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self.forms: tuple[str, ...] = ()
        self.spelt: re.Pattern[str] | None = None

    def set(self, values: Iterable[str]) -> None:
        found = frozenset(value.strip() for value in values)
        self._values = frozenset(value for value in found if len(value) >= SHORTEST)
        forms = {form for value in self._values for form in forms_of(value)}
        self.forms = tuple(sorted(forms, key=len, reverse=True))
        spelt = sorted((_spelt(value) for value in self._values), key=len, reverse=True)
        self.spelt = re.compile("|".join(spelt)) if spelt else None

    def add(self, values: Iterable[str]) -> None:
        new = {value.strip() for value in values} - self._values
        if any(len(value) >= SHORTEST for value in new):
            self.set(self._values | new)


_KNOWN = _Known()


def learn(environ: Mapping[str, str]) -> None:
    """Know the secrets of an environment, and no others."""
    _KNOWN.set(
        value
        for name, value in environ.items()
        if _NAMES.search(name.upper()) and not _PLAIN.fullmatch(value)
    )


def remember(values: Iterable[str]) -> None:
    """Know these values too: somebody takes them into use."""
    _KNOWN.add(values)


def hidden(text: str) -> str:
    """Return a text without the secrets that are known, in none of their forms."""
    for form in _KNOWN.forms:
        if form in text:
            text = text.replace(form, MASK)
    if _KNOWN.spelt is not None and ("\\" in text or "%" in text):
        text = _KNOWN.spelt.sub(MASK, text)
    return text


def hidden_in(value: Any) -> Any:
    """Return a JSON value whose texts and names have no secrets that are known."""
    if not _KNOWN.forms:
        return value
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, dict):
        return {hidden_in(name): hidden_in(item) for name, item in value.items()}
    return [hidden_in(item) for item in value] if isinstance(value, list | tuple) else value


@cache
def forms_of(secret: str) -> frozenset[str]:
    """Return a secret as it is, as base64 and in hexadecimal digits."""
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, raw.hex(), raw.hex().upper()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        forms |= {_settled(encode(b"\0" * before + raw), before, len(raw)) for before in range(3)}
    return frozenset(form for form in forms if len(form) >= SHORTEST)


def _spelt(secret: str) -> str:
    """Return a pattern for a secret whose characters are escaped, some or all of them.

    In JSON, in JSON within JSON, and in addresses. The number of backslashes before a character is
    bounded, so that a long row of them is not searched again from each.
    """
    atoms = []
    for letter in secret:
        quoted = "".join(f"%{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
        atoms.append(f"(?:{re.escape(letter)}|(?i:u{ord(letter):04x}|{quoted}))")
    return r"\\{0,8}".join(atoms)


def _settled(encoded: bytes, before: int, length: int) -> str:
    """Return the characters that a secret alone decides, whatever stands around it.

    Base64 writes three bytes as four characters, so that a text within another has three forms.
    """
    first = -(-before * 8 // 6)
    last = (before + length) * 8 // 6
    return encoded[first:last].decode()


class HidingStream:
    """A text stream that writes no secret; in all else it is the stream that it stands before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text without the secrets that are known."""
        return self._stream.write(hidden(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for text in lines:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
