"""Limits: what a shard may spend."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.execute.budgets import shard_caps
from edison_ci.store.ledger import SpendingCap

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = "2026-03-01T12:00:00.000Z"
BOOKED = [
    ("run:me", "2026-03-01", 30, 3),
    ("project", "2026-02-20", 100, 10),
    ("project", "2026-03-01", 30, 3),
    ("project", "2025-12-01", 999, 99),
]


@pytest.fixture
def ledger() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table booked (scope, day, microusd, tokens)")
        connection.executemany("insert into booked values (?, ?, ?, ?)", BOOKED)
        yield connection


def test_a_shard_has_its_part_of_what_a_run_may_spend(ledger: sqlite3.Connection) -> None:
    caps = (SpendingCap("run:me", None, microusd=1_000), SpendingCap("run:me", None, tokens=10))
    money, tokens = shard_caps(ledger, caps, 4, "me", NOW)
    assert (money.microusd, money.tokens) == (250, None), "its own spending is part of its share"
    assert (tokens.microusd, tokens.tokens) == (None, 2)


@pytest.mark.parametrize(("limit", "share"), [(1_100, 100 + 250), (100, 100), (50, 50)])
def test_what_was_spent_before_is_not_divided(
    ledger: sqlite3.Connection, limit: int, share: int
) -> None:
    """All shards together stay below the limit, and none is stopped by what is long paid."""
    (cap,) = shard_caps(ledger, (SpendingCap("project", 30, microusd=limit),), 4, "me", NOW)
    assert cap.microusd == share
