"""Numbers are held to the rules of whoever gives them out."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from edison_ci.safety import numbers
from edison_ci.safety.numbers import (
    is_card,
    is_iban,
    is_international,
    is_north_american,
    is_ssn,
    luhn,
)
from tests.bare import lacking

# Numbers that card schemes publish for tests.
CARDS = [
    "4111111111111111",
    "4012888888881881",
    "4222222222222",
    "5555555555554444",
    "5105105105105100",
    "2223003122003222",
    "378282246310005",
    "371449635398431",
    "6011111111111117",
    "3530111333300000",
    "30569309025904",
    "36227206271667",
    "6200000000000005",
    "6759649826438453",
]


@pytest.mark.parametrize("digits", CARDS)
def test_cards_of_every_scheme_are_recognised(digits: str) -> None:
    assert luhn(digits)
    assert is_card(digits)


@pytest.mark.parametrize("digits", CARDS)
def test_a_card_with_one_digit_changed_is_none(digits: str) -> None:
    for place in (1, 5, len(digits) - 1):
        changed = digits[:place] + str((int(digits[place]) + 1) % 10) + digits[place + 1 :]
        assert not is_card(changed)


@pytest.mark.parametrize(
    "digits",
    [
        "0000000000000000",
        "1234567812345670",  # Luhn holds, but no scheme starts with 1
        "9999999999999995",
        "411111111111111",  # no Visa card has 15 digits
        "37828224631000500",
        "",
    ],
)
def test_other_numbers_are_no_cards(digits: str) -> None:
    assert not is_card(digits)


# Examples from the IBAN registry.
IBANS = [
    "DE89370400440532013000",
    "GB82WEST12345698765432",
    "FR1420041010050500013M02606",
    "NL91ABNA0417164300",
    "NO9386011117947",
    "MT84MALT011000012345MTLCAST001S",
    "ES9121000418450200051332",
    "CH9300762011623852957",
    "BE68539007547034",
    "PL61109010140000071219812874",
    "SA0380000000608010167519",
]


@pytest.mark.parametrize("text", IBANS)
def test_accounts_of_the_registry_are_recognised(text: str) -> None:
    assert is_iban(text)
    swapped = text[:4] + text[5] + text[4] + text[6:]
    assert text == swapped or not is_iban(swapped)


@pytest.mark.parametrize(
    "text",
    ["", "DE", "DE8937040044053201300", "DE893704004405320130000", "DE00370400440532013000",
     "XX89370400440532013000", "de89370400440532013000", "DE8937040044053201300\u0660"],
)  # fmt: skip
def test_other_texts_are_no_accounts(text: str) -> None:
    assert not is_iban(text)


@pytest.mark.parametrize("digits", ["123456789", "001010001", "665121234", "899999999"])
def test_social_security_numbers(digits: str) -> None:
    assert is_ssn(digits)


@pytest.mark.parametrize(
    "digits",
    ["000121234", "666121234", "900121234", "999999999", "123001234", "123450000", "078051120",
     "219099999", "12345678", "1234567890"],
)  # fmt: skip
def test_numbers_that_were_never_given_out(digits: str) -> None:
    assert not is_ssn(digits)


@pytest.mark.parametrize(
    ("digits", "valid"),
    [("4155550132", True), ("2125551234", True), ("1155550132", False), ("4151550132", False),
     ("9115550132", False), ("4159110132", False), ("415555013", False), ("2955550132", False)],
)  # fmt: skip
def test_telephones_of_north_america(digits: str, valid: bool) -> None:
    assert is_north_american(digits) is valid


@pytest.mark.parametrize(
    ("digits", "valid"),
    [("493012345678", True), ("14155550132", True), ("442079460958", True), ("74951234567", True),
     ("33123456789", True), ("35312345678", True), ("1415555013", False), ("749512345", False),
     ("281234567890", False), ("4912345", False), ("4912345678901234", False)],
)  # fmt: skip
def test_telephones_of_the_world(digits: str, valid: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phonenumbers", None)  # as without the extra
    numbers._phonenumbers.cache_clear()
    try:
        assert is_international(digits) is valid
    finally:
        numbers._phonenumbers.cache_clear()


def test_with_the_extra_its_numbering_plans_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    class NumberParseException(Exception):
        pass

    def parse(text: str, region: None) -> str:
        if text == "+0":
            raise NumberParseException
        return text

    library = SimpleNamespace(
        NumberParseException=NumberParseException,
        parse=parse,
        is_valid_number=lambda text: text == "+4930123456",
    )
    monkeypatch.setitem(sys.modules, "phonenumbers", library)
    numbers._phonenumbers.cache_clear()
    try:
        assert is_international("4930123456")
        assert not is_international("493012345678")
        assert not is_international("0")
    finally:
        numbers._phonenumbers.cache_clear()


def test_the_real_library_fits() -> None:
    numbers._phonenumbers.cache_clear()
    assert is_international("14155552671")
    assert not is_international("999123456789")


def test_without_the_extra_only_very_short_numbers_of_the_world_are_missed() -> None:
    import phonenumbers

    given = [
        phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)[1:]
        for region in phonenumbers.SUPPORTED_REGIONS
        for kind in phonenumbers.PhoneNumberType.values()
        if (number := phonenumbers.example_number_for_type(region, kind)) is not None
    ]
    assert len(given) > 1_000
    numbers._phonenumbers.cache_clear()
    try:
        with lacking("phonenumbers"):
            missed = [digits for digits in given if not is_international(digits)]
    finally:
        numbers._phonenumbers.cache_clear()
    assert {len(digits) for digits in missed} <= {6, 7, 8}
    assert [digits for digits in missed if len(digits) == 8] == ["13101234"], "a Canadian service"
