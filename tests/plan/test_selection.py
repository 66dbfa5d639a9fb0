"""Shards: every case in exactly one, for ever the same one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.errors import UsageError
from edison_ci.plan.selection import MAX_SHARDS, Shard, parse_shard, shard_of

GOLDEN = {
    "ada": (1, 1, 1, 7, 87),
    "bo": (1, 1, 1, 5, 61),
    "return-how": (1, 1, 2, 1, 41),
    "static": (1, 1, 1, 3, 83),
    "João": (1, 2, 2, 4, 60),
    "0123456789abcdef": (1, 2, 2, 6, 238),
}
"""Which of 1, 2, 3, 8 and 256 shards a case is in. Stored results rely on it: never change it."""


@pytest.mark.parametrize(("case", "shards"), GOLDEN.items(), ids=list(GOLDEN))
def test_the_shard_of_a_case_never_changes(case: str, shards: tuple[int, ...]) -> None:
    assert tuple(shard_of(case, count) for count in (1, 2, 3, 8, 256)) == shards


@given(case=st.text(min_size=1), count=st.integers(1, MAX_SHARDS))
def test_a_case_is_in_exactly_one_shard(case: str, count: int) -> None:
    inside = [index for index in range(1, count + 1) if Shard(index, count).has(case)]
    assert inside == [shard_of(case, count)]


@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_shards_are_about_equally_large(count: int) -> None:
    cases, sizes = 10_000, [0] * count
    for number in range(cases):
        sizes[shard_of(f"case-{number}", count) - 1] += 1
    expected = cases / count
    spread = 5 * expected**0.5  # five standard deviations
    assert all(abs(size - expected) < spread for size in sizes)


@pytest.mark.parametrize("text", ["1/1", "1/4", "4/4", "256/256", "01/04"])
def test_a_shard_is_written_as_part_of_how_many(text: str) -> None:
    index, count = map(int, text.split("/"))
    assert parse_shard(text) == Shard(index, count)
    assert str(parse_shard(text)) == f"{index}/{count}"


NO_SHARDS = [
    "",
    "0/4",
    "5/4",
    "1/0",
    "1/257",
    "1",
    "1/",
    "/4",
    "a/b",
    "1/4/2",
    "-1/4",
    "1 / 4",
    "\u0661/\u0664",
]


def test_what_is_no_shard_is_refused_with_a_hint(subtests: pytest.Subtests) -> None:
    for text in NO_SHARDS:
        with subtests.test(text=text):
            with pytest.raises(UsageError) as caught:
                parse_shard(text)
            assert "1/4" in caught.value.hint
