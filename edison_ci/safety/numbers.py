"""Numbers that are what they look like: cards, accounts, social security, telephones.

Each function decides by the issuer's own rules (check digits, lengths, ranges never given out), so
that an order number is not taken for a card. The extra `pii` brings phonenumbers, which knows the
numbering plan of every country; without it, lengths and country codes decide.
"""

from __future__ import annotations

from functools import cache
from typing import Any

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
"""Characters of an account number by country, from the IBAN registry of SWIFT."""
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
"""How no country code starts."""
_NEVER_ISSUED = frozenset({"078051120", "219099999"})
"""Social security numbers that were printed in advertisements."""


def luhn(digits: str) -> bool:
    """Return whether the last digit checks the others."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_card(digits: str) -> bool:
    """Return whether these are the digits of a payment card."""
    fits = any(digits.startswith(starts) and len(digits) in sizes for starts, sizes in _CARDS)
    return fits and luhn(digits) and len(set(digits)) > 1


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
    """Return whether these ten digits can be a telephone number of North America."""
    area, exchange = digits[:3], digits[3:6]
    if len(digits) != 10 or area[0] in "01" or exchange[0] in "01":
        return False
    return area[1:] != "11" and exchange[1:] != "11" and area[1] != "9"


def is_international(digits: str) -> bool:
    """Return whether these digits, written after a plus sign, can be a telephone number."""
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
