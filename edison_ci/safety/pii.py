"""Personal data in a text, and the text without it.

Every pattern finds its candidates in time that grows with the length of the text, whatever the text
is: it starts only where a run of its characters starts, and every repetition has an end.
Candidates are then held to the rules of whoever gives such numbers out.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.safety.numbers import (
    iban_length,
    is_card,
    is_iban,
    is_international,
    is_north_american,
    is_ssn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-])[A-Za-z0-9._%+\-]{1,64}"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9\-@])"
)
_DIGITS = re.compile(r"[0-9](?:[ .()/\-]{0,2}[0-9]){6}")
"""Every telephone, social security and card number has so many, and most texts have not."""
_APART = r"(?<![0-9A-Za-z+.\-/])(?<![0-9] )"
"""Not the middle of a longer number or word."""
_PLUS = re.compile(_APART + r"(?:\+|00(?=[1-9]))[ ]?\(?[1-9](?:[ ()./\-]{0,2}[0-9]){6,14}(?![0-9])")
_SHORTEST_AFTER_00 = 10
"""Fewer digits after 00 are more often an item than a telephone."""
_AMERICAN = re.compile(
    _APART
    + r"(?:1[ .\-])?(?:\([0-9]{3}\) ?|[0-9]{3}[ .\-])[0-9]{3}[ .\-][0-9]{4}(?![0-9A-Za-z\-/])"
)
_NATIONAL = re.compile(
    _APART + r"\(?0[1-9][0-9]{0,4}\)?[ /\-.][0-9](?:[ \-.]?[0-9]){5,11}(?![0-9A-Za-z])"
)
_DATE = re.compile(r"[0-9]{2}([./\-])[0-9]{2}\1[0-9]{2,4}(?![0-9])")
_SSN = re.compile(r"(?<![0-9\-])[0-9]{3}([ \-])[0-9]{2}\1[0-9]{4}(?![0-9\-])")
_NAMED_SSN = re.compile(
    r"(?i)\b(?:ssn|social security(?: number| no\.?)?)[^0-9\n]{0,12}([0-9]{9})(?![0-9])"
)
_IBAN = re.compile(r"(?i)(?<![A-Z0-9])(?=([A-Z]{2}[0-9]{2}(?:[ \-]?[A-Z0-9]){11,30}))")
_CARD = re.compile(
    r"(?<![0-9])(?=([0-9]{13,19}(?![0-9])"
    r"|[0-9]{4}([ \-])[0-9]{4}\2[0-9]{4}\2[0-9]{1,4}(?:\2[0-9]{3})?(?![0-9])"
    r"|[0-9]{4}([ \-])[0-9]{6}\3[0-9]{4,5}(?![0-9])))"
)
_IPV4 = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w]|\.[0-9])")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_VERSION = re.compile(r"(?i)(?:version|release|firmware|build|v\.?) ?$")


class Found(NamedTuple):
    """Personal data in a text."""

    what: str
    start: int
    end: int


def personal_data(text: str) -> Iterator[Found]:
    """Yield every piece of personal data, kind by kind; pieces of different kinds may overlap."""
    if "@" in text:
        yield from _emails(text)
    if _DIGITS.search(text):
        for finder in (_phones, _ssns, _cards):
            yield from finder(text)
    yield from _ibans(text)
    yield from _addresses(text)


KINDS = ("e-mail", "phone", "ssn", "iban", "card", "ip")


def marks_in(text: str) -> Iterator[str]:
    """Yield the kinds of personal data that a redacted text had."""
    return (kind for kind in KINDS if f"[{kind.upper()}]" in text)


def redact_pii(text: str) -> str:
    """Return the text with every piece of personal data replaced by its kind, as in `[E-MAIL]`."""
    pieces: list[str] = []
    at = 0
    # The longest of those that start at one place, and none that starts inside another.
    for found in sorted(personal_data(text), key=lambda each: (each.start, -each.end)):
        if found.start >= at:
            pieces += [text[at : found.start], f"[{found.what.upper()}]"]
            at = found.end
        elif found.end > at:
            at = found.end
    return "".join([*pieces, text[at:]])


def _emails(text: str) -> Iterator[Found]:
    for found in _EMAIL.finditer(text):
        local = found.group().partition("@")[0]
        if ".." not in local and local[0] != "." and local[-1] != ".":
            yield Found("e-mail", *found.span())


def _phones(text: str) -> Iterator[Found]:
    for pattern, valid in _PHONES:
        for found in pattern.finditer(text):
            if valid(found.group()):
                yield Found("phone", *found.span())


def _plus(candidate: str) -> bool:
    digits = _digits(candidate)
    if candidate[0] == "+":
        return is_international(digits)
    return len(digits) >= _SHORTEST_AFTER_00 + 2 and is_international(digits.removeprefix("00"))


def _american(candidate: str) -> bool:
    digits = _digits(candidate)
    return is_north_american(digits[1:] if len(digits) == 11 else digits)


def _national(candidate: str) -> bool:
    if _DATE.match(candidate.lstrip("(")) or _SSN.fullmatch(candidate):
        return False
    return 9 <= len(_digits(candidate)) <= 12


_PHONES: tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...] = (
    (_PLUS, _plus),
    (_AMERICAN, _american),
    (_NATIONAL, _national),
)


def _ssns(text: str) -> Iterator[Found]:
    for found in _SSN.finditer(text):
        if is_ssn(_digits(found.group())):
            yield Found("ssn", *found.span())
    for found in _NAMED_SSN.finditer(text):
        if is_ssn(found.group(1)):
            yield Found("ssn", *found.span(1))


def _ibans(text: str) -> Iterator[Found]:
    for found in _IBAN.finditer(text):
        candidate = found.group(1)
        length = iban_length(candidate[:2].upper())
        letters = candidate.replace(" ", "").replace("-", "")[:length].upper()
        if length is not None and is_iban(letters):
            end = found.start() + _end_of(candidate, length)
            if not text[end : end + 1].isalnum():
                yield Found("iban", found.start(), end)


def _end_of(candidate: str, length: int) -> int:
    """Return where the first so many letters and digits end."""
    places = [place for place, letter in enumerate(candidate) if letter.isalnum()]
    return places[length - 1] + 1


def _cards(text: str) -> Iterator[Found]:
    for found in _CARD.finditer(text):
        if is_card(_digits(found.group(1))):
            yield Found("card", *found.span(1))


def _addresses(text: str) -> Iterator[Found]:
    for pattern, mark, fewest in ((_IPV4, ".", 3), (_IPV6, ":", 2)):
        if text.count(mark) < fewest:
            continue
        for found in pattern.finditer(text):
            try:
                address = ipaddress.ip_address(found.group())
            except ValueError:
                continue
            before = text[max(0, found.start() - 12) : found.start()]
            named = address.is_loopback or address.is_unspecified or _VERSION.search(before)
            if not named and _is_written_out(found.group()):
                yield Found("ip", *found.span())


def _is_written_out(address: str) -> bool:
    """Return whether nobody would take it for a word, as in `::add`."""
    groups = [group for group in re.split("[:.]", address) if group]
    return len(groups) > 1 and any(letter.isdigit() for letter in address)


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())
