"""National identity numbers in a text, by the rules and check digits of their countries.

A number that only a check digit tells from any other counts with its name before it, or in the
groups in which people write it: every eleventh number of nine digits could be a Dutch one. The
rules are those of the issuers; python-stdnum, which has more of them, is a larger dependency than
these lines, under a licence that some companies do not allow.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def is_nino(text: str) -> bool:
    """Whether this can be a British national insurance number."""
    never = {"BG", "GB", "KN", "NK", "NT", "TN", "ZZ"}
    return text[:2] not in never and not set(text[:2]) & set("DFIQUV") and text[1] != "O"


def is_steuer_id(digits: str) -> bool:
    """Whether this can be a German tax number: ISO 7064, one digit is there twice or thrice."""
    often = sorted(Counter(digits[:10]).values())
    if digits[0] == "0" or often[-1] not in (2, 3) or (len(often) > 1 and often[-2] > 1):
        return False
    rest = 10
    for digit in digits[:10]:
        total = (int(digit) + rest) % 10 or 10
        rest = total * 2 % 11
    return (11 - rest) % 10 == int(digits[10])


def is_nir(text: str) -> bool:
    """Whether this is a French social security number, with its key of two digits."""
    number = text[:13].replace("2A", "19").replace("2B", "18")
    return number.isdigit() and 97 - int(number) % 97 == int(text[13:])


def is_dni(text: str) -> bool:
    """Whether this is a Spanish identity number of a citizen (DNI) or a foreigner (NIE)."""
    number = int(text[:-1].translate({ord("X"): "0", ord("Y"): "1", ord("Z"): "2"}))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[number % 23] == text[-1]


_ODD = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3,
         6, 8, 12, 14, 16, 10, 22, 25, 24, 23],
        strict=True,
    )
)  # fmt: skip
"""Values of the characters at odd places of a codice fiscale, by the decree of 1976."""


def is_codice_fiscale(text: str) -> bool:
    """Whether this is an Italian tax code, by its last letter."""
    total = 0
    for place, letter in enumerate(text[:15]):
        plain = int(letter) if letter.isdigit() else ord(letter) - ord("A")
        total += plain if place % 2 else _ODD[letter]
    return chr(ord("A") + total % 26) == text[15]


def is_bsn(digits: str) -> bool:
    """Whether this can be a Dutch citizen service number, by its test with 11."""
    weights = (9, 8, 7, 6, 5, 4, 3, 2, -1)
    total = sum(weight * int(digit) for weight, digit in zip(weights, digits, strict=True))
    return total % 11 == 0 and int(digits) > 0


def is_cpf(digits: str) -> bool:
    """Whether this is a Brazilian taxpayer number, by its two check digits."""
    if len(set(digits)) == 1:
        return False
    for length in (9, 10):
        total = sum(
            int(digit) * (length + 1 - place) for place, digit in enumerate(digits[:length])
        )
        if total * 10 % 11 % 10 != int(digits[length]):
            return False
    return True


_TIMES = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
"""Multiplication in the dihedral group of order 10, on which Verhoeff's check digit rests."""
_TURNS = (
    "0123456789", "1576283094", "5803796142", "8916043527",
    "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip


def is_aadhaar(digits: str) -> bool:
    """Whether this can be an Indian Aadhaar number, by its check digit of Verhoeff."""
    rest = 0
    for place, digit in enumerate(reversed(digits)):
        rest = int(_TIMES[rest][int(_TURNS[place % 8][int(digit)])])
    return rest == 0 and digits[0] not in "01" and digits != digits[::-1]


class _NationalId(NamedTuple):
    pattern: re.Pattern[str]
    valid: Callable[[str], bool]


_START, _END = r"(?<![0-9A-Za-z.\-/])(?<![0-9] )", r"(?![0-9A-Za-z\-/]|\.[0-9])"
_MONTH = "[ABCDEHLMPRST]"


def _shaped(pattern: str, valid: Callable[[str], bool]) -> _NationalId:
    """Return a number that its shape tells from others."""
    return _NationalId(re.compile(rf"{_START}(?P<id>{pattern}){_END}"), valid)


def _named(names: str, pattern: str, valid: Callable[[str], bool]) -> _NationalId:
    """Return a number that counts only after its name."""
    return _NationalId(
        re.compile(rf"(?i)\b(?:{names})\b[^0-9\n]{{0,20}}(?P<id>{pattern}){_END}"), valid
    )


_NATIONAL_IDS = (
    _shaped(r"[A-Z]{2} ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]", is_nino),
    _shaped(r"[12] ?[0-9]{2} ?[0-9]{2} ?(?:[0-9]{2}|2[AB]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}", is_nir),
    _shaped(r"[0-9]{2}\.?[0-9]{3}\.?[0-9]{3}[ \-]?[A-HJ-NP-TV-Z]", is_dni),
    _shaped(r"[XYZ][ \-]?[0-9]{7}[ \-]?[A-HJ-NP-TV-Z]", is_dni),
    _shaped(rf"[A-Z]{{6}}[0-9]{{2}}{_MONTH}[0-9]{{2}}[A-Z][0-9]{{3}}[A-Z]", is_codice_fiscale),
    _shaped(r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}", is_cpf),
    _named("cpf", r"[0-9]{11}", is_cpf),
    _shaped(r"[0-9]{2} [0-9]{3} [0-9]{3} [0-9]{3}", is_steuer_id),
    _named(
        r"steuer-?id(?:nr|entifikationsnummer)?|idnr|steuerliche identifikationsnummer|tax id",
        r"[0-9]{2} ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}",
        is_steuer_id,
    ),
    _named(r"bsn|burgerservicenummer|sofi-?nummer", r"[0-9]{9}", is_bsn),
    _shaped(r"[2-9][0-9]{3} [0-9]{4} [0-9]{4}", is_aadhaar),
    _named(r"aadhaar|aadhar|uidai?", r"[2-9][0-9]{3} ?[0-9]{4} ?[0-9]{4}", is_aadhaar),
)
_SEPARATORS = str.maketrans("", "", " .-")


def find_national_ids(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of national identity numbers in a text, each of them once."""
    seen = set[tuple[int, int]]()
    for each in _NATIONAL_IDS:
        for found in each.pattern.finditer(text):
            place = found.span("id")
            if place not in seen and each.valid(found["id"].translate(_SEPARATORS).upper()):
                seen.add(place)
                yield place
