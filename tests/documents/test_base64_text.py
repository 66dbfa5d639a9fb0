"""Each value has one text in base64, and no other is read as it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from edison_ci.documents.decoding import (
    KEY_PATTERN,
    at_least_pattern,
    decode_base64,
    decode_base64url,
    encode_base64,
    encode_base64url,
)
from tests.respelled import respelled

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH = pytest.mark.parametrize(
    ("encode", "decode"),
    [(encode_base64, decode_base64), (encode_base64url, decode_base64url)],
    ids=["base64", "base64url"],
)


@BOTH
@pytest.mark.parametrize("size", [0, 1, 2, 3, 32, 64])
def test_bytes_come_back(
    encode: Callable[[bytes], str], decode: Callable[[str], bytes], size: int
) -> None:
    raw = bytes(range(255, 255 - size, -1))
    assert decode(encode(raw)) == raw


@BOTH
@pytest.mark.parametrize("size", [10, 11, 12, 32, 64])
def test_another_text_is_other_bytes_or_none(
    encode: Callable[[bytes], str], decode: Callable[[str], bytes], size: int
) -> None:
    raw = bytes(range(255, 255 - size, -1))
    for text in respelled(encode(raw)):
        try:
            assert decode(text) != raw, text
        except ValueError:
            continue


@pytest.mark.parametrize("text", ["=", "A", "AB==", "AAB=", "AAAA\n", "AA AA", "AA", "é", "-_-_"])
def test_a_text_that_nothing_encodes_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_base64(text)


@pytest.mark.parametrize("text", ["=", "A", "AB", "AAB", "AAAA\n", "AA AA", "AA==", "é", "+/+/"])
def test_a_text_for_addresses_that_nothing_encodes_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_base64url(text)


@pytest.mark.parametrize("size", [31, 32, 33])
def test_the_pattern_of_a_key_fits_what_is_decoded_to_one(size: int) -> None:
    text = encode_base64(bytes(range(size)))
    for each in (text, *respelled(text)):
        assert bool(re.fullmatch(KEY_PATTERN, each)) == (size_of(each) == 32), each


@pytest.mark.parametrize("size", [8, 9, 10, 11, 12])
def test_the_pattern_of_a_box_fits_what_is_decoded(size: int) -> None:
    text = encode_base64(bytes(range(size)))
    for each in (text, *respelled(text)):
        assert bool(re.fullmatch(at_least_pattern(3), each)) == (size_of(each) >= 9), each


def size_of(text: str) -> int:
    """Return the bytes of a text; -1 if it is not decoded."""
    try:
        return len(decode_base64(text))
    except ValueError:
        return -1
