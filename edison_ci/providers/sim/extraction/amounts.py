"""Which dates and amounts are printed in a document, and what do they mean?"""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache

from edison_ci.frozen import dataclass

READ_CHARS = 12_000
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar janvier enero gennaio",
            "feb february februar février febrero febbraio",
            "mar march märz mars marzo",
            "apr april avril abril aprile",
            "may mai mayo maggio",
            "jun june juni juin junio giugno",
            "jul july juli juillet julio luglio",
            "aug august août agosto augustus",
            "sep sept september septembre septiembre settembre",
            "oct october oktober octobre octubre ottobre",
            "nov november novembre noviembre",
            "dec december dezember décembre diciembre dicembre",
        ),
        start=1,
    )
    for name in names.split()
}
_DATE = re.compile(
    r"(?P<iso>\b\d{4}[-/.]\d{2}[-/.]\d{2}\b)"
    r"|(?P<kanji>\d{4}年\d{1,2}月\d{1,2}日)"
    r"|(?P<numeric>\b\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2})\b)"
    r"|(?P<named>\b\d{1,2}(?:st|nd|rd|th|\.)?[ -](?:of |de )?[^\W\d_]{3,10}\.?[ -](?:de )?"
    r"\d{2,4}\b)"
    r"|(?P<month>\b[^\W\d_]{3,9}\.? \d{1,2}, ?\d{4}\b)"
)
_AMOUNT = re.compile(
    r"(?<![\w/.-])(?P<sign>[-(]?)(?P<digits>"
    r"\d{1,3}(?:[,.' \u00a0]\d{2,3})*(?:[.,]\d{2})|\d+[.,]\d{2}"
    r"|\d{1,3}(?:[.,' ]\d{3})+)(?![\w/-])"
)


@dataclass(frozen=True, slots=True)
class Printed:
    """Something in a document, as printed and as meant."""

    text: str
    line: str
    """The line it stands in."""


@dataclass(frozen=True, slots=True)
class PrintedDate(Printed):
    """A date in a document."""

    iso: str


@dataclass(frozen=True, slots=True)
class PrintedAmount(Printed):
    """An amount of money in a document."""

    value: float


@lru_cache(maxsize=512)
def dates_in(document: str) -> tuple[PrintedDate, ...]:
    """Return the dates of a document in order of appearance."""
    text = document[:READ_CHARS]
    found = []
    for match in _DATE.finditer(text):
        iso = _iso(match)
        if iso:
            found.append(PrintedDate(match[0], _line(text, match.start()), iso))
    return tuple(found)


@lru_cache(maxsize=512)
def amounts_in(document: str) -> tuple[PrintedAmount, ...]:
    """Return the amounts of a document in order of appearance."""
    text = document[:READ_CHARS]
    dated = [(match.start(), match.end()) for match in _DATE.finditer(text)]
    found = []
    for match in _AMOUNT.finditer(text):
        if any(start <= match.start("digits") < end for start, end in dated):
            continue
        value = _value(match["digits"])
        signed = -value if match["sign"] else value
        found.append(PrintedAmount(match["digits"], _line(text, match.start()), signed))
    return tuple(found)


def _line(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)]


def _iso(match: re.Match[str]) -> str:
    numbers = [int(number) for number in re.findall(r"\d+", match[0])]
    if match["iso"] or match["kanji"]:
        return _date(*numbers[:3])
    if match["numeric"]:
        day, month, year = numbers
        return _date(year, month, day) or _date(year, day, month)
    name = re.search(r"(?!de |of )[^\W\d_]{3,}", match[0])
    month = _MONTHS.get(name[0].lower(), 0) if name else 0
    if not month or len(numbers) != 2:
        return ""
    return _date(numbers[1], month, numbers[0])


def _date(year: int, month: int, day: int) -> str:
    try:
        return dt.date(year + 2000 if year < 100 else year, month, day).isoformat()
    except ValueError:
        return ""


def _value(digits: str) -> float:
    """Return the number; the last separator is the decimal one if two digits follow it."""
    whole, _, cents = digits[-3:].partition(digits[-3]) if len(digits) > 2 else ("", "", "")
    if len(digits) > 3 and digits[-3] in ".," and not whole:
        return int(re.sub(r"\D", "", digits[:-3])) + int(cents) / 100
    return float(int(re.sub(r"\D", "", digits)))
