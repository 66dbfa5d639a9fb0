"""Personal data in a text, and its redaction.

Every pattern takes time linear in the length of any text: it can match only at the start of a run
of its characters, and every repetition is bounded. Candidates are then checked by the rules of the
issuer (check digits, lengths, ranges that are never issued), so that an order number is not taken
for a card. The extra `pii` installs phonenumbers, which knows the numbering plan of every country;
without it, lengths and country codes decide.
"""

from __future__ import annotations

import ipaddress
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.safety.names import find_names
from edison_ci.safety.national_ids import find_national_ids
from edison_ci.safety.screen import PII_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22,
    "BI": 27, "BR": 29, "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27,
    "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27,
    "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28,
    "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28,
    "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22,
    "MK": 19, "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23,
    "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24,
    "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28,
    "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}  # fmt: skip
"""Length of an IBAN by country, from the registry of SWIFT."""
_CARDS = (
    (("4",), frozenset({13, 16, 19})),
    (("51", "52", "53", "54", "55"), frozenset({16})),
    (tuple(str(number) for number in range(2221, 2721)), frozenset({16})),
    (("34", "37"), frozenset({15})),
    (("6011", "644", "645", "646", "647", "648", "649", "65"), frozenset(range(16, 20))),
    (tuple(str(number) for number in range(3528, 3590)), frozenset(range(16, 20))),
    (("300", "301", "302", "303", "304", "305", "36", "38", "39"), frozenset(range(14, 20))),
    (("62",), frozenset(range(16, 20))),
    (("50", "56", "57", "58", "63", "67"), frozenset(range(13, 20))),
)
"""Prefixes and lengths: Visa, Mastercard (two), American Express, Discover, JCB, Diners Club,
UnionPay, Maestro."""
_LETTERS = {ord(letter): str(int(letter, 36)) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_NO_COUNTRY = ("0", "28", "83", "89")
"""Prefixes of no country code."""
_NEVER_ISSUED = frozenset({"078051120", "219099999"})
"""Social security numbers that were printed in advertisements."""


def passes_luhn(digits: str) -> bool:
    """Whether the check digit by Luhn is right."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_card(digits: str) -> bool:
    """Whether these are the digits of a payment card."""
    fits = any(digits.startswith(starts) and len(digits) in sizes for starts, sizes in _CARDS)
    return fits and passes_luhn(digits) and len(set(digits)) > 1


def iban_length(country: str) -> int | None:
    """Return how long account numbers of a country are; None if it has none."""
    return _IBAN_LENGTHS.get(country)


def is_iban(text: str) -> bool:
    """Return whether this is an account number, written without blanks, in capitals."""
    if _IBAN_LENGTHS.get(text[:2]) != len(text) or not (text.isascii() and text.isalnum()):
        return False
    return int((text[4:] + text[:4]).translate(_LETTERS)) % 97 == 1


def is_ssn(digits: str) -> bool:
    """Return whether these nine digits can be a US social security number."""
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if len(digits) != 9 or digits in _NEVER_ISSUED:
        return False
    return not (area in ("000", "666") or area >= "900" or group == "00" or serial == "0000")


def is_north_american(digits: str) -> bool:
    """Whether these digits can be a telephone number of North America."""
    area, exchange = digits[:3], digits[3:6]
    if len(digits) != 10 or area[0] in "01" or exchange[0] in "01":
        return False
    return area[1:] != "11" and exchange[1:] != "11" and area[1] != "9"


def is_international(digits: str) -> bool:
    """Whether these digits, after a plus sign, can be a telephone number."""
    known = _phonenumbers()
    if known is not None:
        return _valid_for(known, digits)
    if digits.startswith("1"):
        return is_north_american(digits[1:])
    if digits.startswith("7"):
        return len(digits) == 11
    return 8 <= len(digits) <= 15 and not digits.startswith(_NO_COUNTRY)


@cache
def _phonenumbers() -> Any:
    try:
        import phonenumbers
    except ImportError:
        return None
    return phonenumbers


def _valid_for(phonenumbers: Any, digits: str) -> bool:
    try:
        number = phonenumbers.parse(f"+{digits}", None)
    except phonenumbers.NumberParseException:
        return False
    return bool(phonenumbers.is_valid_number(number))


_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-])[A-Za-z0-9._%+\-]{1,64}"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9\-@])"
)
_DIGITS = re.compile(r"[0-9](?:[ .()/\-]{0,2}[0-9]){6}")
"""Telephone, social security and card numbers all match this, and most texts do not."""
_SEVEN = re.compile(r"[0-9](?:[ .\-]?[0-9A-Za-z]){6}")
"""Every national identity number matches this."""
_APART = r"(?<![0-9A-Za-z+.\-/])(?<![0-9] )"
"""Not in the middle of a longer number or word."""
_PLUS = re.compile(_APART + r"(?:\+|00(?=[1-9]))[ ]?\(?[1-9](?:[ ()./\-]{0,2}[0-9]){6,14}(?![0-9])")
_SHORTEST_AFTER_00 = 10
"""Fewer digits after 00 are more often an item number than a telephone number."""
_AMERICAN = re.compile(
    _APART
    + r"(?:1[ .\-])?(?:\([0-9]{3}\) ?|[0-9]{3}[ .\-])[0-9]{3}[ .\-][0-9]{4}(?![0-9A-Za-z\-/])"
)
_NATIONAL = re.compile(
    _APART + r"\(?0[1-9][0-9]{0,4}\)?[ /\-.][0-9](?:[ \-.]?[0-9]){5,11}(?![0-9A-Za-z])"
)
_CALLED = re.compile(
    r"(?i)\b(?:tel|telefon|telephone|phone|mobile|mobil|handy|cell|fax|call|ring|text|dial|sms|"
    r"whatsapp|anruf|rufen|erreichbar|appel|telefono|movil|m\u00f3vil|celular|cellulare|llam|chiam|"
    r"lig|fone)[a-z\u00e0-\u00ff]{0,8}\b[^0-9\n]{0,20}([0-9]{10,11})(?![0-9A-Za-z\-/]|\.[0-9])"
)
"""Digits without a gap are a telephone number only after a word that says so."""
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


class PiiMatch(NamedTuple):
    """The kind and the position of personal data in a text."""

    what: str
    start: int
    end: int


def find_personal_data(text: str, names_by: str | None = None) -> Iterator[PiiMatch]:
    """Yield the personal data in a text by kind; matches of different kinds may overlap.

    Names of people and places are found by a pipeline of spaCy, if one is named.
    """
    if "@" in text:
        yield from _emails(text)
    if _DIGITS.search(text):
        for finder in (_phones, _ssns, _cards):
            yield from finder(text)
    yield from _ibans(text)
    yield from _addresses(text)
    if _SEVEN.search(text):
        yield from (PiiMatch("national-id", *place) for place in find_national_ids(text))
    if names_by is not None:
        yield from (PiiMatch(*name) for name in find_names(text, names_by))


def redaction_marks(text: str) -> Iterator[str]:
    """Yield the kinds of personal data that were redacted in a text."""
    return (kind for kind in PII_KINDS if f"[{kind.upper()}]" in text)


def redact_pii(text: str, kinds: Collection[str] = PII_KINDS, names_by: str | None = None) -> str:
    """Return the text with personal data of some kinds replaced by its kind, as in `[E-MAIL]`."""
    pieces: list[str] = []
    at = 0
    matches = (found for found in find_personal_data(text, names_by) if found.what in kinds)
    # Of matches that start at one place the longest, and none that starts inside another.
    for found in sorted(matches, key=lambda each: (each.start, -each.end)):
        if found.start >= at:
            pieces += [text[at : found.start], f"[{found.what.upper()}]"]
            at = found.end
        elif found.end > at:
            at = found.end
    return "".join([*pieces, text[at:]])


def _emails(text: str) -> Iterator[PiiMatch]:
    for found in _EMAIL.finditer(text):
        local = found.group().partition("@")[0]
        if ".." not in local and local[0] != "." and local[-1] != ".":
            yield PiiMatch("e-mail", *found.span())


def _phones(text: str) -> Iterator[PiiMatch]:
    for pattern, valid in _PHONES:
        for found in pattern.finditer(text):
            if valid(found.group()):
                yield PiiMatch("phone", *found.span())
    for found in _CALLED.finditer(text):
        digits = found[1]
        if is_north_american(digits[-10:]) or (digits[0] == "0" and digits[1] != "0"):
            yield PiiMatch("phone", *found.span(1))


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


def _ssns(text: str) -> Iterator[PiiMatch]:
    for found in _SSN.finditer(text):
        if is_ssn(_digits(found.group())):
            yield PiiMatch("ssn", *found.span())
    for found in _NAMED_SSN.finditer(text):
        if is_ssn(found.group(1)):
            yield PiiMatch("ssn", *found.span(1))


def _ibans(text: str) -> Iterator[PiiMatch]:
    for found in _IBAN.finditer(text):
        candidate = found.group(1)
        length = iban_length(candidate[:2].upper())
        letters = candidate.replace(" ", "").replace("-", "")[:length].upper()
        if length is not None and is_iban(letters):
            end = found.start() + _end_of(candidate, length)
            if not text[end : end + 1].isalnum():
                yield PiiMatch("iban", found.start(), end)


def _end_of(candidate: str, length: int) -> int:
    """Return the end of the first `length` letters and digits."""
    places = [place for place, letter in enumerate(candidate) if letter.isalnum()]
    return places[length - 1] + 1


def _cards(text: str) -> Iterator[PiiMatch]:
    for found in _CARD.finditer(text):
        if is_card(_digits(found.group(1))):
            yield PiiMatch("card", *found.span(1))


def _addresses(text: str) -> Iterator[PiiMatch]:
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
                yield PiiMatch("ip", *found.span())


def _is_written_out(address: str) -> bool:
    """Whether it is clearly an address and not a word, as in `::add`."""
    groups = [group for group in re.split("[:.]", address) if group]
    return len(groups) > 1 and any(letter.isdigit() for letter in address)


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())
