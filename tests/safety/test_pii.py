"""Personal data is found where it is, and numbers of other kinds are left alone."""

from __future__ import annotations

import sys
from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from edison_ci.safety import pii
from edison_ci.safety.pii import (
    find_personal_data,
    is_card,
    is_iban,
    is_international,
    is_north_american,
    is_ssn,
    passes_luhn,
    redact_pii,
)
from tests.bare import lacking
from tests.timing import within


def found(text: str) -> list[tuple[str, str]]:
    return [(each.what, text[each.start : each.end]) for each in find_personal_data(text)]


FOUND = {
    "Write to ann.lee+shop@mail.example.org, please.": [
        ("e-mail", "ann.lee+shop@mail.example.org")
    ],
    "<a@b.co>": [("e-mail", "a@b.co")],
    "Call +49 30 1234567!": [("phone", "+49 30 1234567")],
    "Call 0049 30 1234567 now": [("phone", "0049 30 1234567")],
    "+1 (415) 555-0132": [("phone", "+1 (415) 555-0132")],
    "tel (415) 555-0132 or 415.555.0132": [("phone", "(415) 555-0132"), ("phone", "415.555.0132")],
    "555-123-4567": [("phone", "555-123-4567")],
    "or (555)123-4567, 555.123.4567": [("phone", "(555)123-4567"), ("phone", "555.123.4567")],
    "555 123 4567": [("phone", "555 123 4567")],
    "+1 555-123-4567": [("phone", "+1 555-123-4567")],
    "1-555-123-4567 ext. 12": [("phone", "1-555-123-4567 ext. 12")],
    "+15551234567": [("phone", "+15551234567")],
    "my number is 123-456-7890.": [("phone", "123-456-7890")],
    "(555) 111-2222 or else 115-555-0132": [("phone", "(555) 111-2222"), ("phone", "115-555-0132")],
    "call 5551234567": [("phone", "5551234567")],
    "phone: 555-0199": [("phone", "555-0199")],
    "020 7946 0958": [("phone", "020 7946 0958")],
    "01 23 45 67 89.": [("phone", "01 23 45 67 89")],
    "(030) 1234567": [("phone", "(030) 1234567")],
    "0171/2345678": [("phone", "0171/2345678")],
    "Call me at 2127365000 after six.": [("phone", "2127365000")],
    "Handy: 01712345678": [("phone", "01712345678")],
    "mi m\u00f3vil 0612345678": [("phone", "0612345678")],
    "CPF 529.982.247-25": [("national-id", "529.982.247-25")],
    "my number is 123-45-6789": [("ssn", "123-45-6789")],
    "123 45 6789": [("ssn", "123 45 6789")],
    "SSN: 123456789": [("ssn", "123456789")],
    "pay to DE89 3704 0044 0532 0130 00 today": [("iban", "DE89 3704 0044 0532 0130 00")],
    "GB82WEST12345698765432": [("iban", "GB82WEST12345698765432")],
    "de89-3704-0044-0532-0130-00": [("iban", "de89-3704-0044-0532-0130-00")],
    "card 4111 1111 1111 1111": [("card", "4111 1111 1111 1111")],
    "1234 4111-1111-1111-1111": [("card", "4111-1111-1111-1111")],
    "1234 4111 1111 1111 1111": [("card", "4111 1111 1111 1111")],
    "3782 822463 10005": [("card", "3782 822463 10005")],
    "from 203.0.113.7 today": [("ip", "203.0.113.7")],
    "at 2001:db8::8a2e:370:7334.": [("ip", "2001:db8::8a2e:370:7334")],
}


def test_personal_data_is_found(subtests: pytest.Subtests) -> None:
    for text, matches in FOUND.items():
        with subtests.test(text=text):
            assert found(text) == matches


CLEAN = [
    "",
    "Orders over 50 euros ship free within 30 days.",
    "Order 100-200-3000, batch 2024-10-21, 01.02.2024 10:30, 12:30:45.",
    "user@localhost, @mention, a@b, foo@bar..com, .dot@x.org",
    "kettlecrag.example/returns",
    "Tracking number 1Z999AA10123456784",
    "ISBN 978-3-16-148410-0",
    "4111 1111 1111 1112",
    "DE89 3704 0044 0532 0130 01",
    "000-12-3456, 666-12-3456, 078-05-1120",
    "127.0.0.1, 0.0.0.0, ::1, 256.1.1.1, 1.2.3, 1.2.3.4.5, v1.2.3.4, version 10.2.3.4",
    "std::vector and Foo::bar(), 10:20, aspect 16:9",
    "12345678901234567890123456789012345678901234567890",
    "$1,234,567.89 and 3.14159265358979",
    "2125551234567",
    "Order 2127365000, parcel 01712345678, call for item 1111111111.",
    "order 123-456-7890, Invoice no. 187-654-3210, part number: 115-555-0132, #123-456-7890",
    "123 456 7890",
    "555-123-45678, 555-123-4567-8, 2024-123-4567",
]


def test_other_numbers_and_names_are_left_alone(subtests: pytest.Subtests) -> None:
    for text in CLEAN:
        with subtests.test(text=text):
            assert found(text) == []
            assert redact_pii(text) == text


def identifiers(rng: Random, count: int) -> list[str]:
    """Return numbers that people write, and that are none of a telephone."""

    def digits(*lengths: int, by: str = "-") -> str:
        return by.join(str(rng.randrange(10**n)).zfill(n) for n in lengths)

    shapes = (
        lambda: f"978-{digits(1, 2, 6, 1)}",
        lambda: f"{rng.randrange(1990, 2030)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
        lambda: f"{rng.randrange(1, 29):02}.{rng.randrange(1, 13):02}.{rng.randrange(1990, 2030)}",
        lambda: f"{rng.getrandbits(32):08x}-{rng.getrandbits(16):04x}-{rng.getrandbits(16):04x}",
        lambda: digits(5, 4, 2),
        lambda: digits(2, 7),
        lambda: digits(5, 4),
        lambda: digits(4, 2, 3, 4),
        lambda: f"Order {digits(3, 3, 4)}",
        lambda: f"invoice no. {digits(3, 3, 4)}",
        lambda: f"Part #{digits(3, 3, 4)}",
        lambda: f"ref. {digits(3, 4)}",
        lambda: f"AB-{digits(3, 3, 4)}",
        lambda: f"{digits(3, 3, 4)}-{digits(2)}",
        lambda: f"v{digits(1, 2, 4, by='.')}",
        lambda: f"{rng.randrange(1, 10**10):,}.{digits(2)}",
        lambda: f"{digits(2)}.{digits(4)}, -{digits(3)}.{digits(4)}",
        lambda: f"10.{digits(4)}/{digits(6)}",
        lambda: f"pages {rng.randrange(100, 400)}-{rng.randrange(400, 900)}",
        lambda: digits(rng.randrange(6, 20)),
    )
    return [shapes[n % len(shapes)]() for n in range(count)]


def test_numbers_of_other_kinds_are_hardly_ever_telephones() -> None:
    texts = identifiers(Random(7), 20_000)
    alarms = [text for text in texts if any(what == "phone" for what, _ in found(text))]
    # An order number in assigned ranges, or with a leading 0, has the form of a telephone number.
    assert {text[:3] for text in alarms if text[0] != "0"} <= {"Ord", "inv", "Par"}
    assert len(alarms) / len(texts) <= 0.113, "it was 11.2% before numbers of examples were found"


def test_redaction_leaves_the_kind_and_nothing_of_the_data() -> None:
    text = (
        "Ann (ann@shop.example, +49 30 1234567) paid 4111 1111 1111 1111 from "
        "DE89370400440532013000, SSN 123-45-6789, at 203.0.113.7."
    )
    assert redact_pii(text) == (
        "Ann ([E-MAIL], [PHONE]) paid [CARD] from [IBAN], SSN [SSN], at [IP]."
    )
    assert redact_pii(redact_pii(text)) == redact_pii(text)


def test_only_the_kinds_that_are_named_are_redacted() -> None:
    text = "Ann (ann@shop.example, +49 30 1234567) paid 4111 1111 1111 1111."
    assert redact_pii(text, {"card", "phone"}) == "Ann (ann@shop.example, [PHONE]) paid [CARD]."
    assert redact_pii(text, set()) == text


class _Entity(NamedTuple):
    label_: str
    start_char: int
    end_char: int


def test_names_are_found_by_an_installed_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline of spaCy is a package with a function `load`, as this one."""

    def pipeline(text: str) -> SimpleNamespace:
        at = text.find("Ann Lee")
        found = [_Entity("PERSON", at, at + 7)] if at >= 0 else []
        return SimpleNamespace(ents=[*found, _Entity("DATE", 0, 1), _Entity("GPE", 0, 4)])

    package = SimpleNamespace(load=lambda: pipeline)
    monkeypatch.setitem(sys.modules, "xx_core_test", package)
    text = "Oslo: Ann Lee, ann@shop.example. " + "x" * 100_000 + " Ann Lee"
    redacted = redact_pii(text, names_by="xx_core_test")
    assert redacted.startswith("[PLACE]: [PERSON], [E-MAIL].")
    assert redacted.endswith(" [PERSON]")
    assert redact_pii(text).startswith("Oslo: Ann Lee, [E-MAIL].")


def test_redaction_finds_all_of_many() -> None:
    text = "a@b.example " * 500
    assert redact_pii(text) == "[E-MAIL] " * 500


UNITS = [
    "a", "1", "1 ", "1-", "a@", "a@a.", "a.a@", "+1", "+", "(", "00 ", "0123 0", "01 2345678a ",
    "DE12 ", "DE", "4111", "4111 ", "1.", "1.1.1.1", ":", "a:", "ab:cd:", "-", "@", "ssn ", "é",
    "\u200b",
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("unit", UNITS)
def test_the_time_grows_with_the_text_only(unit: str) -> None:
    size = 250_000
    text = (unit * size)[:size]
    with within(2.5):
        list(find_personal_data(text))


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


def test_cards_of_every_scheme_are_recognised(subtests: pytest.Subtests) -> None:
    for digits in CARDS:
        with subtests.test(digits=digits):
            assert passes_luhn(digits)
            assert is_card(digits)


def test_a_card_with_one_digit_changed_is_none(subtests: pytest.Subtests) -> None:
    for digits in CARDS:
        with subtests.test(digits=digits):
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


def test_accounts_of_the_registry_are_recognised(subtests: pytest.Subtests) -> None:
    for text in IBANS:
        with subtests.test(text=text):
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


NO_SSNS = [
    "000121234", "666121234", "900121234", "999999999", "123001234", "123450000", "078051120",
    "219099999", "12345678", "1234567890",
]  # fmt: skip


def test_numbers_that_were_never_given_out(subtests: pytest.Subtests) -> None:
    for digits in NO_SSNS:
        with subtests.test(digits=digits):
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
    pii._phonenumbers.cache_clear()
    try:
        assert is_international(digits) is valid
    finally:
        pii._phonenumbers.cache_clear()


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
    pii._phonenumbers.cache_clear()
    try:
        assert is_international("4930123456")
        assert not is_international("493012345678")
        assert not is_international("0")
    finally:
        pii._phonenumbers.cache_clear()


def test_the_real_library_fits() -> None:
    pii._phonenumbers.cache_clear()
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
    pii._phonenumbers.cache_clear()
    try:
        with lacking("phonenumbers"):
            missed = [digits for digits in given if not is_international(digits)]
    finally:
        pii._phonenumbers.cache_clear()
    assert {len(digits) for digits in missed} <= {6, 7, 8}
    assert [digits for digits in missed if len(digits) == 8] == ["13101234"], "a Canadian service"
