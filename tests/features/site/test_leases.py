"""Money that machines lease: within every limit, each request once, by months of UTC."""

from __future__ import annotations

import datetime as dt
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import UsageError
from edison_ci.features.site.lease_rows import (
    Lease,
    LeaseFile,
    LeaseRefusal,
    LeaseRequest,
    MonthlyLimit,
)

if TYPE_CHECKING:
    from pathlib import Path

NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
ALL = MonthlyLimit("limits.monthly_usd", "all", "", 1_000_000)
TEAM = MonthlyLimit("limits.teams.support", "team", "support", 100_000)
PROJECT = MonthlyLimit("limits.projects.faq", "project", "faq", 50_000)


def request(number: int, needs: int, spent: int = 0, **other: str) -> LeaseRequest:
    named = {"project": "faq", "team": "support", "by": "ed", **other}
    return LeaseRequest(f"{number:032x}", spent_microusd=spent, needs_microusd=needs, **named)


@pytest.fixture
def file(tmp_path: Path) -> LeaseFile:
    return LeaseFile(tmp_path / ".edison" / "leases.db")


def lent(found: Lease | LeaseRefusal) -> Lease:
    assert isinstance(found, Lease), found
    return found


def test_a_machine_gets_a_tenth_of_what_is_left_or_what_it_needs(file: LeaseFile) -> None:
    first = lent(file.lend(request(1, 10), [ALL], NOON))
    assert first.granted_microusd == 100_000
    assert file.used(ALL, "2026-11") == 100_000
    dear = lent(file.lend(request(2, 600_000), [ALL], NOON))
    assert dear.granted_microusd == 600_000
    rich = MonthlyLimit("limits.monthly_usd", "all", "", 10**11)
    assert lent(file.lend(request(3, 10), [rich], NOON)).granted_microusd == 5_000_000


def test_the_same_request_twice_is_one_lease(file: LeaseFile) -> None:
    first = lent(file.lend(request(1, 10), [ALL], NOON))
    assert file.lend(request(1, 10), [ALL], NOON) == first
    assert file.count("2026-11") == 1
    more = lent(file.lend(request(1, 150_000, spent=99_000), [ALL], NOON))
    assert more.granted_microusd == 190_000  # a tenth of the rest ahead
    assert lent(file.lend(request(1, 150_000, spent=99_000), [ALL], NOON)) == more


def test_every_limit_that_covers_a_lease_holds(file: LeaseFile) -> None:
    limits = [ALL, TEAM, PROJECT]
    refused = file.lend(request(1, 50_001), limits, NOON)
    assert refused == LeaseRefusal(
        "budget",
        "limits.projects.faq has $0.0500 left in 2026-11, and $0.0500 are needed",
        "limits.projects.faq",
    )
    assert file.count("2026-11") == 0
    lent(file.lend(request(2, 50_000), limits, NOON))
    lent(file.lend(request(3, 50_000, project="chat"), limits, NOON))
    spent = file.lend(request(4, 1, project="other"), limits, NOON)
    assert isinstance(spent, LeaseRefusal)
    assert spent.limit == "limits.teams.support"
    lent(file.lend(request(5, 900_000, project="x", team=""), limits, NOON))
    assert [file.used(each, "2026-11") for each in limits] == [1_000_000, 100_000, 50_000]


def test_what_was_not_spent_is_for_others_and_a_lost_machine_counts_in_full(
    file: LeaseFile,
) -> None:
    lent(file.lend(request(1, 600_000), [ALL], NOON))
    week_later = NOON + dt.timedelta(days=7)
    assert file.used(ALL, "2026-11") == 600_000
    assert isinstance(file.lend(request(2, 500_000), [ALL], week_later), LeaseRefusal)
    closed = lent(file.take_back(request(1, 0, 200_000, by="ed"), week_later))
    assert (closed.counted_microusd, closed.returned_at) == (200_000, "2026-11-25T12:00:00.000Z")
    lent(file.lend(request(2, 800_000), [ALL], week_later))
    # The money was given to somebody else: a later report cannot take it back.
    assert (
        lent(file.take_back(request(1, 0, 900_000, by="ed"), week_later)).spent_microusd == 200_000
    )
    assert (
        lent(file.take_back(request(1, 0, 150_000, by="ed"), week_later)).spent_microusd == 150_000
    )
    assert file.used(ALL, "2026-11") == 950_000
    again = file.lend(request(1, 10), [ALL], week_later)
    assert isinstance(again, LeaseRefusal)
    assert again.code == "returned"


def test_what_was_spent_without_a_lease_counts_too(file: LeaseFile) -> None:
    lent(file.lend(request(1, 10), [ALL], NOON))
    file.take_back(request(1, 0, 2_000_000, by="ed"), NOON)
    assert file.used(ALL, "2026-11") == 2_000_000
    late = lent(file.take_back(request(9, 0, 5_000), NOON))  # the site was down when it began
    assert (late.granted_microusd, file.used(ALL, "2026-11")) == (0, 2_005_000)
    assert isinstance(file.lend(request(2, 1), [ALL], NOON), LeaseRefusal)


def test_a_lease_is_that_of_its_member(file: LeaseFile) -> None:
    lent(file.lend(request(1, 10), [ALL], NOON))
    for found in (
        file.lend(request(1, 20, by="eve"), [ALL], NOON),
        file.take_back(request(1, 0, 0, by="eve"), NOON),
    ):
        assert isinstance(found, LeaseRefusal)
        assert found.code == "unknown"
    assert file.used(ALL, "2026-11") == 100_000


@pytest.mark.parametrize(
    ("last", "first"),
    [
        ("2026-10-31T23:59:59.999+00:00", "2026-11-01T00:00:00+00:00"),
        ("2026-12-31T23:59:59+00:00", "2027-01-01T00:00:00+00:00"),
        ("2028-02-29T23:59:59+00:00", "2028-03-01T00:00:00+00:00"),
        # Clocks of Europe go back an hour that night; those of the site are UTC.
        ("2026-10-31T23:30:00+00:00", "2026-11-01T00:30:00+00:00"),
    ],
)
def test_a_month_ends_at_midnight_utc_and_with_it_its_leases(
    file: LeaseFile, last: str, first: str
) -> None:
    before, after = dt.datetime.fromisoformat(last), dt.datetime.fromisoformat(first)
    lease = lent(file.lend(request(1, 1_000_000), [ALL], before))
    assert lease.month == last[:7]
    assert lease.expires_at <= f"{first[:10]}T00:00:00.000Z"
    old = file.lend(request(1, 1_000_000), [ALL], after)
    assert isinstance(old, LeaseRefusal)
    assert (old.code, old.message) == ("month", f"lease '{request(1, 0).id}' is of {last[:7]}")
    new = lent(file.lend(request(2, 1_000_000), [ALL], after))
    assert new.month == first[:7]
    file.take_back(request(1, 0, 400_000), after)
    assert (file.used(ALL, last[:7]), file.used(ALL, first[:7])) == (400_000, 1_000_000)


def test_no_number_of_machines_passes_a_limit(file: LeaseFile) -> None:
    def machine(number: int) -> int:
        rng, spent = random.Random(number), 0
        for turn in range(6):
            lease_id = number * 100 + turn
            for _ in range(4):
                needs = spent + rng.randrange(1, 90_000)
                found = file.lend(request(lease_id, needs, spent=spent), [ALL], NOON)
                if isinstance(found, LeaseRefusal):
                    break
                spent = needs
            assert file.used(ALL, "2026-11") <= ALL.microusd
            if rng.random() < 0.7:  # else it is lost
                file.take_back(request(lease_id, 0, spent), NOON)
            spent = 0
        return number

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(machine, range(1, 7))) == [1, 2, 3, 4, 5, 6]
    assert 0 < file.used(ALL, "2026-11") <= ALL.microusd
    assert len(file.leases("2026-11", most=1_000)) == file.count("2026-11") > 6


def test_another_file_is_not_taken_for_leases(file: LeaseFile) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(b"SQLite format 3\0" + b"x" * 100)
    with pytest.raises(Exception, match=r"leases\.db"):
        file.lend(request(1, 10), [ALL], NOON)
    file.path.unlink()
    file.path.symlink_to("/dev/null")
    with pytest.raises(UsageError, match="is not a file of yours"):
        file.lend(request(1, 10), [ALL], NOON)


@pytest.mark.parametrize("months", [(0, 1, 0, 1, 0), (0, -1, 0, -1), (0, 480, 0, 481), (0, -480)])
def test_a_clock_of_a_site_that_jumps_lends_no_month_twice(
    file: LeaseFile, months: tuple[int, ...]
) -> None:
    seen = set()
    for number, jump in enumerate(months, 1):
        year, month = divmod(2026 * 12 + 10 + jump, 12)
        now = dt.datetime(year, month + 1, 18, 12, tzinfo=dt.UTC)
        found = file.lend(request(number, 1_000_000), [ALL], now)
        assert isinstance(found, LeaseRefusal) is (jump in seen)
        seen.add(jump)
        for old in range(1, number):
            again = file.lend(request(old, 2_000_000), [ALL], now)
            assert isinstance(again, LeaseRefusal), "a lease is of one month, and is full"
        assert file.used(ALL, f"{now:%Y-%m}") == ALL.microusd
