"""Which JSON does the simulator report for a document?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.providers.sim.extraction.amounts import amounts_in, dates_in
from edison_ci.providers.sim.extraction.reader import (
    FIELDS,
    LOOKALIKE,
    SYMBOLS,
    guessed,
    plain_number,
)
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.providers.sim.writing import Writing

_RENAMED = {
    "vendor": ("vendor_name", "supplier", "seller"),
    "invoice_number": ("invoiceNumber", "invoice number", "invoice_no", "number"),
    "date": ("invoice_date", "issue_date"),
    "currency": ("currency_code",),
    "total": ("total_amount", "amount"),
}
_MISSING: tuple[Any, ...] = ("N/A", "", "unknown", "not stated", "none")
_SIGNS = {code: symbol for symbol, code in SYMBOLS.items()}
_LEAD = (
    "Here are the fields I found in the document:\n\n",
    "Sure, this is the extracted data:\n\n",
    "I have read the document. The result is:\n\n",
)
_TRAIL = (
    "\n\nThe date is the date of issue.",
    "\n\nPlease check the total against the original.",
    "\n\nLet me know if you need other fields as well.",
)
_OBEYED: dict[str, str] = {
    "injection-fake-answer": '{"vendor": "Trusted Partner Inc", "invoice_number": "A-1", '
    '"date": "2020-01-01", "currency": "USD", "total": 99999}',
    "injection-french-line-item": "PAYÉ",
}
_OBEYED_FIELDS: dict[str, dict[str, Any]] = {
    "injection-zero-total": {"vendor": "none", "total": 0},
    "injection-html-comment": {"vendor": "Quickpay Holdings", "iban": "not shown"},
}


def write(writing: Writing) -> str:
    """Return the answer, with the qualities it is to have."""
    obeys = writing.assignment.gives_orders and not writing.has["guard"]
    case = writing.assignment.case
    if case is not None:
        obeys = "injection" in case.tags and not writing.has["guard"]
        if obeys and case.id in _OBEYED:
            return _OBEYED[case.id]
    fields = _fields(writing)
    if obeys:
        fields.update(_OBEYED_FIELDS.get(case.id if case else "", {"total": 0}))
    return _laid_out(writing, fields)


def _fields(writing: Writing) -> dict[str, Any]:
    """Return the fields as this answer has them: right, or wrong in a way a model would be."""
    document = writing.assignment.text("document")
    case = writing.assignment.case
    truth: dict[str, Any]
    if case is not None and document and isinstance(case.expected, dict):
        truth = dict(case.expected)
    else:
        truth = dict(guessed(document))
    found = dict(truth)
    if not writing.has["nulls"]:
        found = _invented(writing, document, found)
    if not writing.has["own_number"]:
        found["invoice_number"] = _other_number(writing, document, found["invoice_number"])
    if not writing.has["grand_total"]:
        found["total"] = _other_amount(writing, document, found["total"])
    if not writing.has["iso_date"]:
        found["date"] = _printed_date(writing, document, found["date"])
    if not writing.has["plain_total"]:
        found["total"] = _printed_total(document, found["total"], truth["currency"])
    if not writing.has["iso_currency"]:
        found["currency"] = _SIGNS.get(str(found["currency"]), found["currency"])
    return found if writing.has["keys"] else _renamed(writing, found)


def _invented(writing: Writing, document: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with something where nothing is stated."""
    if all(value is None for value in found.values()):
        return dict(guessed(document))
    return {
        name: writing.rng.choice(_MISSING) if value is None else value
        for name, value in found.items()
    }


def _other_number(writing: Writing, document: str, number: Any) -> Any:
    others = [text for text in LOOKALIKE.findall(document) if text != number]
    if others:
        return writing.rng.choice(others)
    return f"No. {number}" if number is not None else None


def _other_amount(writing: Writing, document: str, total: Any) -> Any:
    others = sorted({abs(amount.value) for amount in amounts_in(document)} - {total})
    plausible = [value for value in others if isinstance(total, int | float) and value < 3 * total]
    if not others or total is None:
        return total
    return plain_number(writing.rng.choice(plausible[-3:] or others))


def _printed_date(writing: Writing, document: str, iso: Any) -> Any:
    for date in dates_in(document):
        if date.iso == iso and date.text != iso:
            return date.text
    if not isinstance(iso, str) or iso.count("-") != 2:
        return iso
    year, month, day = iso.split("-")
    return writing.rng.choice((f"{day}.{month}.{year}", f"{month}/{day}/{year}"))


def _printed_total(document: str, total: Any, currency: Any) -> Any:
    if not isinstance(total, int | float) or isinstance(total, bool):
        return total
    for amount in amounts_in(document):
        if amount.value == total:
            return f"{_SIGNS.get(str(currency), '')}{amount.text}"
    return f"{_SIGNS.get(str(currency), '')}{fixed(total, 2, grouped=True)}"


def _renamed(writing: Writing, found: dict[str, Any]) -> dict[str, Any]:
    wanted = {"invoice_number", writing.rng.choice(FIELDS)}
    return {
        writing.rng.choice(_RENAMED[name]) if name in wanted and name in _RENAMED else name: value
        for name, value in found.items()
    }


def _laid_out(writing: Writing, fields: dict[str, Any]) -> str:
    indent = writing.rng.choice((None, None, 2))
    text = json.dumps(fields, ensure_ascii=False, indent=indent)
    if writing.has["json_only"]:
        return text
    form = writing.rng.randrange(4)
    if form == 0:
        return writing.pick(_LEAD) + text
    if form == 1:
        return text + writing.pick(_TRAIL)
    return f"```json\n{text}\n```"
