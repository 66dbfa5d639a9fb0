"""A signature fits in the one spelling in which it was written, with a key in its own."""

from __future__ import annotations

import contextlib

import pytest

from edison_ci.documents.secrets import learn
from edison_ci.documents.signatures import Signer, generate_keys, signer_of
from edison_ci.errors import UsageError
from tests.fixed_keys import signing_keys
from tests.respelled import respelled

PAIR = signing_keys("ours")
ABOUT, DIGEST = b"a test\n", bytes(range(32))
SIGNATURE = Signer(PAIR.private).sign(ABOUT, DIGEST).signature


def test_each_pair_of_keys_is_a_new_one() -> None:
    pairs = [generate_keys() for _ in range(3)]
    assert len({text for pair in pairs for text in pair}) == 6
    assert [Signer(pair.private).public for pair in pairs] == [pair.public for pair in pairs]


def test_a_signature_fits_what_was_signed() -> None:
    other = signing_keys("theirs").public
    assert signer_of(ABOUT, DIGEST, SIGNATURE, [other, PAIR.public]) == PAIR.public
    assert signer_of(ABOUT, DIGEST, SIGNATURE, [other]) is None
    assert signer_of(b"another test\n", DIGEST, SIGNATURE, [PAIR.public]) is None
    assert signer_of(ABOUT, DIGEST[::-1], SIGNATURE, [PAIR.public]) is None


def test_a_signature_in_another_spelling_fits_nothing() -> None:
    fitting = [
        text for text in respelled(SIGNATURE) if signer_of(ABOUT, DIGEST, text, [PAIR.public])
    ]
    assert fitting == []


def test_a_public_key_in_another_spelling_is_none() -> None:
    assert signer_of(ABOUT, DIGEST, SIGNATURE, respelled(PAIR.public)) is None


@pytest.mark.parametrize("ignored", ["", " ", "\n"])
def test_a_private_key_is_read_as_it_was_printed(ignored: str) -> None:
    assert Signer(f"{ignored}{PAIR.private}{ignored}").public == PAIR.public


def test_a_private_key_in_another_spelling_signs_nothing_as_this_one() -> None:
    for text in respelled(PAIR.private):
        if text.strip() == PAIR.private:
            continue
        with contextlib.suppress(UsageError):
            assert Signer(text).public != PAIR.public, text
        learn({})  # each would be looked for in all that is printed
