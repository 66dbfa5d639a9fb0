"""Hashes that were seen, numbered in their order, in little memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from edison_ci.config.cases import HashIndex


@pytest.mark.nightly
def test_it_numbers_hashes_as_a_dict_would() -> None:
    rng, index, known = random.Random(3), HashIndex(), dict[int, int]()
    last: list[int] = []
    for _ in range(8_000):
        # Few low bits, so that many belong into the same slots; some are negative, some repeated.
        key = (rng.getrandbits(63) >> 9 << 9 | rng.getrandbits(3)) * rng.choice((1, -1))
        key = rng.choice((key, rng.choice(last[-50:] or [key])))
        last += [key] if key not in known else []
        assert (key in index) == (key in known)
        assert index.add(key) == known.setdefault(key, len(known))
    assert len(index) == len(known)
    assert all(index.add(key) == number for key, number in known.items()), "nothing has moved"


def test_a_hash_takes_a_fifth_of_what_a_set_would() -> None:
    keys = [hash(f"case {number}") for number in range(20_000)]
    tracemalloc.start()
    try:
        index = HashIndex()
        for key in keys:
            index.add(key)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / len(keys) < 26
