"""National identity numbers are found by their rules; other numbers are left alone."""

from __future__ import annotations

import pytest

from edison_ci.safety.pii import (
    find_national_ids,
    is_aadhaar,
    is_bsn,
    is_codice_fiscale,
    is_cpf,
    is_dni,
    is_nino,
    is_nir,
    is_steuer_id,
)
from tests.timing import within

# Numbers that the issuers, or the descriptions of their rules, print as examples.
FOUND = {
    "NI number AB 12 34 56 C": "AB 12 34 56 C",
    "n\u00b0 2 55 08 14 168 025 38.": "2 55 08 14 168 025 38",
    "Corse: 1 51 02 2A 112 025 84": "1 51 02 2A 112 025 84",
    "DNI 12345678Z": "12345678Z",
    "12.345.678-Z": "12.345.678-Z",
    "NIE X-1234567-L": "X-1234567-L",
    "CF RSSMRA85T10A562S": "RSSMRA85T10A562S",
    "CPF 529.982.247-25": "529.982.247-25",
    "meu cpf \u00e9 52998224725": "52998224725",
    "Steuer-ID: 86095742719": "86095742719",
    "86 095 742 719": "86 095 742 719",
    "BSN 111222333": "111222333",
    "Aadhaar 2341 2341 2346": "2341 2341 2346",
}


def found(text: str) -> list[str]:
    return [text[start:end] for start, end in find_national_ids(text)]


def test_a_number_is_found(subtests: pytest.Subtests) -> None:
    for text, match in FOUND.items():
        with subtests.test(text=text):
            assert found(text) == [match]


CLEAN = [
    "Order 111222333, invoice 86095742719, reference 52998224725, ticket 234123412346",
    "AB123456E and GB123456A and DF123456A",
    "12345678A",
    "1234-5678-9012",
    "RSSMRA85T10A562T",
    "529.982.247-24",
    "+49 86 095 742 719",
    "2 55 08 14 168 025 39",
]


@pytest.mark.parametrize("text", CLEAN, ids=range(len(CLEAN)))
def test_other_numbers_are_left_alone(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("valid", "number"),
    [
        (is_steuer_id, "86095742719"),
        (is_nir, "255081416802538"),
        (is_bsn, "111222333"),
        (is_cpf, "52998224725"),
        (is_aadhaar, "234123412346"),
    ],
)
def test_every_single_wrong_digit_is_noticed(valid: object, number: str) -> None:
    assert callable(valid)
    assert valid(number)
    wrong = [
        number[:place] + digit + number[place + 1 :]
        for place in range(len(number))
        for digit in "0123456789"
        if digit != number[place]
    ]
    assert [each for each in wrong if valid(each)] == []


def test_letters_are_checked() -> None:
    assert is_dni("12345678Z")
    assert not is_dni("12345678A")
    assert is_codice_fiscale("RSSMRA85T10A562S")
    assert not is_codice_fiscale("RSSMRB85T10A562S")
    assert is_nino("AB123456C")
    assert not is_nino("BG123456C")


@pytest.mark.parametrize("unit", ["1", "1 ", "AB12", "cpf ", "111.", "X1234567", "bsn 1", "é"])
def test_the_time_grows_with_the_text_only(unit: str) -> None:
    with within(2.5):
        list(find_national_ids((unit * 250_000)[:250_000]))
