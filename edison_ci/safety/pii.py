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
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.safety.names import PII_KINDS, find_names

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
_FICTION = "555"
"""Area code of numbers in films and examples."""
_BEFORE = 40
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
    library = _phonenumbers()
    if library is not None:
        return _valid_for(library, digits)
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
    _APART + r"(?:\+1[ .\-]?|1[ .\-])?(?:\([0-9]{3}\)[ \-]?|[0-9]{3}[ .\-/])[0-9]{3}[ .\-][0-9]{4}"
    r"(?: ?(?:x|ext\.?|extension) ?[0-9]{1,6})?(?![0-9A-Za-z\-/])"
)
_AMERICAN_IN_ONE = re.compile(_APART + r"\+1 ?[0-9]{10}(?![0-9A-Za-z])")
_NUMBERED = re.compile(
    r"(?i)(?:\b(?:orders?|invoices?|items?|parts?|parcels?|tickets?|cases?|lots?|batch(?:es)?|serials?|models?"
    r"|sku|isbn|issn|ref(?:erence)?s?|bestellung|rechnung|artikel|auftrag|commande|facture|pedido"
    r"|factura|ordine|fattura)(?:[ \-]?(?:no|nr|number|nummer|num|id|code))?[ .:#\-]{0,4}|#)$"
)
"""Words before a number that is none of a telephone, whatever its form."""
_NATIONAL = re.compile(
    _APART + r"\(?0[1-9][0-9]{0,4}\)?[ /\-.][0-9](?:[ \-.]?[0-9]){5,11}(?![0-9A-Za-z])"
)
_CALLED = re.compile(
    r"(?i)\b(?:tel|telefon|telephone|phone|mobile|mobil|handy|cell|fax|call|ring|text|dial|sms|"
    r"whatsapp|anruf|rufen|erreichbar|appel|telefono|movil|m\u00f3vil|celular|cellulare|llam|chiam|"
    r"lig|fone)[a-z\u00e0-\u00ff]{0,8}\b[^0-9\n]{0,20}([0-9]{10,11}|555[ .\-]?[0-9]{4})"
    r"(?![0-9A-Za-z\-/]|\.[0-9])"
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

    Names of people and places are match by a pipeline of spaCy, if one is named.
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
    matches = (m for m in find_personal_data(text, names_by) if m.what in kinds)
    # Of matches that start at one place the longest, and none that starts inside another.
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if match.start >= at:
            pieces += [text[at : match.start], f"[{match.what.upper()}]"]
            at = match.end
        elif match.end > at:
            at = match.end
    return "".join([*pieces, text[at:]])


def _emails(text: str) -> Iterator[PiiMatch]:
    for match in _EMAIL.finditer(text):
        local = match.group().partition("@")[0]
        if ".." not in local and local[0] != "." and local[-1] != ".":
            yield PiiMatch("e-mail", *match.span())


def _phones(text: str) -> Iterator[PiiMatch]:
    places = set[tuple[int, int]]()
    for pattern, valid in _PHONES:
        for match in pattern.finditer(text):
            if match.span() not in places and valid(match):
                places.add(match.span())
                yield PiiMatch("phone", *match.span())
    for match in _CALLED.finditer(text):
        digits = match[1]
        american = is_north_american(digits[-10:]) or digits[-10:].startswith(_FICTION)
        if american or (digits[0] == "0" and digits[1] != "0"):
            yield PiiMatch("phone", *match.span(1))


def _plus(match: re.Match[str]) -> bool:
    candidate = match.group()
    digits = _digits(candidate)
    if candidate[0] == "+":
        return is_international(digits)
    return len(digits) >= _SHORTEST_AFTER_00 + 2 and is_international(digits.removeprefix("00"))


def _american(match: re.Match[str]) -> bool:
    """Whether it is in assigned ranges, or is written as only telephone numbers are.

    People also write numbers that are never issued, such as 555-123-4567, as examples and instead
    of their own.
    """
    candidate = re.split("[xe]", match.group(), maxsplit=1)[0].strip()
    digits = _digits(candidate)
    national = digits[-10:]
    if is_north_american(national):
        return True
    if national[0] == "0" or all(group.endswith("00") for group in (national[:3], national[3:6])):
        return False
    if candidate.startswith("+") or len(digits) == 11 or national.startswith(_FICTION):
        return True
    separators = re.sub("[0-9]", "", candidate)
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    return separators.strip() != "" and _NUMBERED.search(before) is None


def _in_one(match: re.Match[str]) -> bool:
    return match.group().lstrip("+1 ")[:1] != "0"


def _national(match: re.Match[str]) -> bool:
    candidate = match.group()
    if _DATE.match(candidate.lstrip("(")) or _SSN.fullmatch(candidate):
        return False
    return 9 <= len(_digits(candidate)) <= 12


_PHONES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_PLUS, _plus),
    (_AMERICAN, _american),
    (_AMERICAN_IN_ONE, _in_one),
    (_NATIONAL, _national),
)


def _ssns(text: str) -> Iterator[PiiMatch]:
    for match in _SSN.finditer(text):
        if is_ssn(_digits(match.group())):
            yield PiiMatch("ssn", *match.span())
    for match in _NAMED_SSN.finditer(text):
        if is_ssn(match.group(1)):
            yield PiiMatch("ssn", *match.span(1))


def _ibans(text: str) -> Iterator[PiiMatch]:
    for match in _IBAN.finditer(text):
        candidate = match.group(1)
        length = iban_length(candidate[:2].upper())
        letters = candidate.replace(" ", "").replace("-", "")[:length].upper()
        if length is not None and is_iban(letters):
            end = match.start() + _end_of(candidate, length)
            if not text[end : end + 1].isalnum():
                yield PiiMatch("iban", match.start(), end)


def _end_of(candidate: str, length: int) -> int:
    """Return the end of the first `length` letters and digits."""
    places = [place for place, letter in enumerate(candidate) if letter.isalnum()]
    return places[length - 1] + 1


def _cards(text: str) -> Iterator[PiiMatch]:
    for match in _CARD.finditer(text):
        if is_card(_digits(match.group(1))):
            yield PiiMatch("card", *match.span(1))


def _addresses(text: str) -> Iterator[PiiMatch]:
    for pattern, mark, fewest in ((_IPV4, ".", 3), (_IPV6, ":", 2)):
        if text.count(mark) < fewest:
            continue
        for match in pattern.finditer(text):
            try:
                address = ipaddress.ip_address(match.group())
            except ValueError:
                continue
            before = text[max(0, match.start() - 12) : match.start()]
            named = address.is_loopback or address.is_unspecified or _VERSION.search(before)
            if not named and _is_written_out(match.group()):
                yield PiiMatch("ip", *match.span())


def _is_written_out(address: str) -> bool:
    """Whether it is clearly an address and not a word, as in `::add`."""
    groups = [group for group in re.split("[:.]", address) if group]
    return len(groups) > 1 and any(letter.isdigit() for letter in address)


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())


# National identity numbers. One that differs from other numbers only by a check digit counts with
# its name before it, or in the groups in which people write it: every eleventh number of nine
# digits could be a Dutch one. The rules are those of the issuers; python-stdnum, which has more of
# them, is a larger dependency than these lines, under a licence that some companies do not allow.


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
    """Return a number that is recognised by its shape."""
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
    for national_id in _NATIONAL_IDS:
        for match in national_id.pattern.finditer(text):
            place = match.span("id")
            if place not in seen and national_id.valid(match["id"].translate(_SEPARATORS).upper()):
                seen.add(place)
                yield place
