"""Zstandard data is unpacked exactly, within its limit, or refused."""

from __future__ import annotations

import base64
import random

import pytest

from edison_ci.documents.marks import Fault
from edison_ci.features.importing.tables import unpack_zstd

_WORDS = ["parcel", "letter", "stamp", "box", "late", "soon"]
TEXT = " ".join(random.Random(3).choices(_WORDS, k=900)).encode()
# Packed by the reference implementation at its level 19: literals in a Huffman code, sequences with
# tables of their own.
PACKED = base64.b64decode(
    "KLUv/WDwEm0TADQCbGV0dGVyIGJveCBzdGFtcCBib3hwYXJjZWxzb29uIGxhdGWBNKjRp7S/ATEIQmGco9LiAxEg"
    "EEJgCDWBIcYpASYmQgqSlgOLKR1p0bymcyRbalBXVsaHKz8kueZgnOsMEnI83oe4/w+QYo203EwqPuS1KSBYKyK9"
    "wWwmDg/o9RIc7EqogVHhlDSMEELJJ1KorNLY63tlvlcmyRzpKjfBt88FZ9AEfv9ff7Tt0ZVoD9ntY8kq96gco3Sk"
    "ANOsy5IZY6irtYyQxmzCqauKgWIjNJmaLfB+sWQKZZKVBTS3A5esBRfCUUate6G7b3Dky34jC3O7vWersx6tgQsB"
    "7jNgRKZDaY7CHVC3Tvcllwq2bk5F03wNQZLEVBWW2BE9HfiBmftN0dRJJ9/d/zIhk+r0JfqUEpDAfGin85IqfM3k"
    "mVCmJ1E/k+Ku4PCXYX1AbYEl1jJRLQ0o0kYTtz8uwinrVupmAI7jSW6kt9iWv7/8ASqhbItsGznYhaIabk4iyiFW"
    "kLASKI1/1HacSkZibW7MQiqzN+S1xGBG48cZ4I9WBf5MQo0ZKP/lYx3BcV9RU2oyNBC/gN8FBU8y2r7p7jeQQHw/"
    "sT8gEOvsA9YtEHw2REzgviXkjd+Wtw9pm7rBD5A8q4Hr0IA5eedIQkcD/5p635WRRqqMzjD4AcObiyAPiwE6Icrr"
    "pWkIYkifCK8ikErbBMDM3+MPJaTWCdfjPjxra1Jt8HsHXkv6wMQ2jsEqZRv6usBTurwPf3DkHYm7V4nConnj84M0"
    "dm+dRZGOOMVJshrjt+GFBBt5NQmAV/x3PxqxEIqn7Nd1KqtVBQ=="
)
HEAD = b"\x28\xb5\x2f\xfd\x00\x58"


def test_what_the_reference_packed_is_the_same_again() -> None:
    assert unpack_zstd(PACKED, len(TEXT)) == TEXT
    assert unpack_zstd(PACKED + PACKED, 2 * len(TEXT)) == TEXT + TEXT


def test_blocks_can_be_plain_or_repeat_a_byte_and_frames_can_be_skipped() -> None:
    plain, repeated = b"\x18\x00\x00abc", b"\x23\x00\x00x"
    skipped = b"\x50\x2a\x4d\x18\x02\x00\x00\x00??"
    assert unpack_zstd(skipped + HEAD + plain + repeated, 7) == b"abcxxxx"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (PACKED[:-1], "ends too early"),
        (PACKED[:40], "ends too early"),
        (b"PK" + PACKED, "Unknown frame descriptor"),
        (HEAD + b"\x07\x00\x00", "corruption detected"),
        (b"\x28\xb5\x2f\xfd\x01\x58\x07", "Dictionary mismatch"),
        (HEAD + b"\x23\x00\x10x" * 2, "corruption detected"),
    ],
)
def test_damaged_data_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(Fault, match=said):
        unpack_zstd(data, len(TEXT))


def test_no_more_is_unpacked_than_allowed() -> None:
    bomb = HEAD + b"\x02\x00\x08x" * 1_000
    with pytest.raises(Fault, match="unpacks to over 1,000 bytes"):
        unpack_zstd(bomb, 1_000)


def test_frames_without_content_are_refused() -> None:
    with pytest.raises(Fault, match="ends too early"):
        unpack_zstd(b"\x50\x2a\x4d\x18\x00\x00\x00\x00" * 10_000, 10)


def test_any_changed_byte_is_refused_or_read_with_its_length() -> None:
    rng = random.Random(5)
    for _ in range(300):
        broken = bytearray(PACKED)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            assert len(unpack_zstd(bytes(broken), len(TEXT))) == len(TEXT)
        except Fault as fault:
            assert fault.hint
