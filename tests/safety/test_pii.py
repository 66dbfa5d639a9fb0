"""Personal data is found where it is, and numbers of other kinds are left alone."""

from __future__ import annotations

import pytest

from edison_ci.safety.pii import personal_data, redact_pii
from tests.timing import within


def found(text: str) -> list[tuple[str, str]]:
    return [(each.what, text[each.start : each.end]) for each in personal_data(text)]


FOUND = {
    "Write to ann.lee+shop@mail.example.org, please.": [
        ("e-mail", "ann.lee+shop@mail.example.org")
    ],
    "<a@b.co>": [("e-mail", "a@b.co")],
    "Call +49 30 1234567!": [("phone", "+49 30 1234567")],
    "Call 0049 30 1234567 now": [("phone", "0049 30 1234567")],
    "+1 (415) 555-0132": [("phone", "+1 (415) 555-0132")],
    "tel (415) 555-0132 or 415.555.0132": [("phone", "(415) 555-0132"), ("phone", "415.555.0132")],
    "020 7946 0958": [("phone", "020 7946 0958")],
    "01 23 45 67 89.": [("phone", "01 23 45 67 89")],
    "(030) 1234567": [("phone", "(030) 1234567")],
    "0171/2345678": [("phone", "0171/2345678")],
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


@pytest.mark.parametrize("text", FOUND)
def test_personal_data_is_found(text: str) -> None:
    assert found(text) == FOUND[text]


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
    "(555) 111-2222 and 115-555-0132",
]


@pytest.mark.parametrize("text", CLEAN, ids=range(len(CLEAN)))
def test_other_numbers_and_names_are_left_alone(text: str) -> None:
    assert found(text) == []
    assert redact_pii(text) == text


def test_redaction_leaves_the_kind_and_nothing_of_the_data() -> None:
    text = (
        "Ann (ann@shop.example, +49 30 1234567) paid 4111 1111 1111 1111 from "
        "DE89370400440532013000, SSN 123-45-6789, at 203.0.113.7."
    )
    assert redact_pii(text) == (
        "Ann ([E-MAIL], [PHONE]) paid [CARD] from [IBAN], SSN [SSN], at [IP]."
    )
    assert redact_pii(redact_pii(text)) == redact_pii(text)


def test_redaction_finds_all_of_many() -> None:
    text = "a@b.example " * 500
    assert redact_pii(text) == "[E-MAIL] " * 500


UNITS = [
    "a", "1", "1 ", "1-", "a@", "a@a.", "a.a@", "+1", "+", "(", "00 ", "0123 0", "01 2345678a ",
    "DE12 ", "DE", "4111", "4111 ", "1.", "1.1.1.1", ":", "a:", "ab:cd:", "-", "@", "ssn ", "é",
    "\u200b",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_the_time_grows_with_the_text_only(unit: str) -> None:
    size = 250_000
    text = (unit * size)[:size]
    with within(2.5):
        list(personal_data(text))
