"""What do plain rules read out of a document that nobody knows?"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from edison_ci.providers.sim.extraction.amounts import READ_CHARS, amounts_in, dates_in

if TYPE_CHECKING:
    from edison_ci.records import Json

FIELDS = ("vendor", "invoice_number", "date", "currency", "total")
SYMBOLS = {"€": "EUR", "£": "GBP", "$": "USD", "¥": "JPY", "₹": "INR", "zł": "PLN"}
_CODE = re.compile(
    r"\b(EUR|GBP|USD|JPY|CHF|SEK|NOK|DKK|PLN|CZK|HUF|AUD|NZD|CAD|BRL|INR|CNY|MXN|ZAR|AED|KES|TRY|IDR"
    r"|XOF)\b"
)
_NUMBER = re.compile(
    r"(?:invoice|bill|receipt|ticket|rechnung|facture|factura|fattura|credit note|order)\b"
    r"[^\n\d]{0,22}?((?=[A-Z0-9/-]*\d)[A-Z0-9][A-Z0-9/-]{1,24})",
    re.I,
)
LOOKALIKE = re.compile(r"\b(?=[A-Z0-9/-]*\d)[A-Z]{0,4}[A-Z0-9]+(?:[/-][A-Z0-9]+)+\b|\b\d{5,}\b")
_TOTAL = re.compile(
    r"total|amount due|to pay|payable|gross|betrag|summe|totale|zahlen|payer|pagar|please pay|"
    r"balance due|sum\b",
    re.I,
)
_LESSER = re.compile(r"sub-? ?total|net|netto|excl", re.I)
_TITLES = re.compile(r"^(?:tax )?(?:invoice|receipt|bill|statement|credit note|order)\b.*$", re.I)


@lru_cache(maxsize=512)
def guessed(document: str) -> dict[str, Json]:
    """Return the five fields as far as plain rules find them; what they miss is None."""
    text = document[:READ_CHARS]
    dates = dates_in(document)
    number = _NUMBER.search(text)
    return {
        "vendor": _vendor(text),
        "invoice_number": number[1] if number else None,
        "date": dates[0].iso if dates else None,
        "currency": _currency(text),
        "total": plain_number(_total(document)),
    }


def _vendor(text: str) -> str | None:
    for line in text.splitlines():
        name = re.split(r"\s{3,}|, | - |:", line.strip(" #*|<>"), maxsplit=1)[0].strip()
        if name and not _TITLES.match(name) and re.search(r"[^\W\d_]{3}", name):
            return name[:80]
    return None


def _currency(text: str) -> str | None:
    code = _CODE.search(text)
    if code:
        return code[1]
    return next((code for symbol, code in SYMBOLS.items() if symbol in text), None)


def plain_number(value: float | None) -> int | float | None:
    """Return a whole amount as an integer, as JSON writes it."""
    return int(value) if value is not None and value == int(value) else value


def _total(document: str) -> float | None:
    amounts = amounts_in(document)
    totals = [
        amount
        for amount in amounts
        if _TOTAL.search(amount.line) and not _LESSER.search(amount.line)
    ]
    if totals:
        return totals[-1].value
    return max((amount.value for amount in amounts), default=None)
