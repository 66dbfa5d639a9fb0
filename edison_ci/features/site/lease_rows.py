"""Leases of a shared budget: money that machines take from a limit before they spend it.

In `.edison/leases.db` of a site. An open lease counts with all that was granted, a returned one
with what its machine has spent. A machine that is lost keeps its lease booked at worst, so the sum
never passes a limit, for any number, clocks and failures of the machines. Months are those
of the site's clock, in UTC, and a lease belongs to one month.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.numeric import dollars
from edison_ci.store.private_file import FileLayout, PrivateFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

LEASE_S = 600
"""Seconds until a lease has to be renewed."""
_SHARE = 10
_MOST_AHEAD_MICROUSD = 5_000_000
"""A machine gets a tenth of what is left in advance, at most this: few requests, and little that
is booked by machines without being spent."""
_SCHEMA = """
create table lease (
  id          text primary key,             -- chosen by the machine, for each lease a new one
  month       text not null,                -- such as 2026-11, UTC
  project     text not null,
  team        text not null,                -- empty without one
  by          text not null,                -- the member whose token the machine has
  granted     integer not null,             -- micro-dollars that it may spend
  spent       integer not null,             -- as the machine last reported
  opened_at   text not null,
  expires_at  text not null,                -- until when it has to be renewed
  returned_at text                          -- when the rest was given back; null while it is open
) strict, without rowid;
create index lease_by_month on lease (month);
"""
_COUNTED = "iif(returned_at is null, max(granted, spent), spent)"
_COLUMNS = "id, month, project, team, by, granted, spent, opened_at, expires_at, returned_at"

Scope: TypeAlias = Literal["all", "team", "project"]


class MonthlyLimit(NamedTuple):
    """A limit of the site for a calendar month."""

    name: str
    """Its key in edison.yaml."""
    scope: Scope
    of: str
    """The team or project; empty for all."""
    microusd: int

    def covers(self, lease: LeaseRequest) -> bool:
        """Whether the money of a lease counts against it."""
        return self.scope == "all" or self.of == getattr(lease, self.scope)


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a machine asks for; the same request twice is one lease."""

    id: str
    project: str
    team: str
    by: str
    spent_microusd: int
    """Booked by the machine for this lease so far."""
    needs_microusd: int
    """What the lease has to allow in all, so that the next call can be made; 0 to return it."""


class Lease(NamedTuple):
    """A lease as it is stored."""

    id: str
    month: str
    project: str
    team: str
    by: str
    granted_microusd: int
    spent_microusd: int
    opened_at: str
    expires_at: str
    returned_at: str | None

    @property
    def counted_microusd(self) -> int:
        """What it counts with against the limits."""
        if self.returned_at is not None:
            return self.spent_microusd
        return max(self.granted_microusd, self.spent_microusd)


class LeaseRefusal(NamedTuple):
    """Why there is no money."""

    code: Literal["budget", "month", "returned", "unknown"]
    message: str
    limit: str = ""
    """The key of the limit without room."""


class LeaseFile(PrivateFile):
    """The leases of a site."""

    layout = FileLayout(
        0x45444C45,  # "EDLE"
        1,
        _SCHEMA,
        "a file of leases",
        "then the money leased this month counts as unspent",
    )

    def lend(
        self, asked: LeaseRequest, limits: Iterable[MonthlyLimit], now: dt.datetime
    ) -> Lease | LeaseRefusal:
        """Open, extend or renew a lease, within every limit."""
        month = f"{now:%Y-%m}"
        with self.writing() as connection:
            lent = _find(connection, asked.id)
            if lent is not None and (why := _unusable(lent, asked.by, month)) is not None:
                return why
            granted = lent.granted_microusd if lent is not None else 0
            more = max(asked.needs_microusd - granted, 0)
            room = None
            for limit in limits:
                if not limit.covers(asked):
                    continue
                left = max(limit.microusd - _counted(connection, month, limit), 0)
                if more > left:
                    left_words = f"{limit.name} has {dollars(left)} left in {month}"
                    return LeaseRefusal(
                        "budget", f"{left_words}, and {dollars(more)} are needed", limit.name
                    )
                room = left if room is None else min(room, left)
            if more:
                more = max(more, min((room or 0) // _SHARE, _MOST_AHEAD_MICROUSD))
            lease = Lease(
                asked.id, month, asked.project, asked.team, asked.by,
                granted + more, asked.spent_microusd,
                lent.opened_at if lent is not None else utc.timestamp(now),
                utc.timestamp(min(now + dt.timedelta(seconds=LEASE_S), _next_month(now))), None,
            )  # fmt: skip
            _put(connection, lease)
        return lease

    def take_back(self, request: LeaseRequest, now: dt.datetime) -> Lease | LeaseRefusal:
        """Close a lease with what was spent; a later report can only lower that.

        One that is not known was spent while the site could not be reached, and is booked now.
        """
        at, spent = utc.timestamp(now), request.spent_microusd
        with self.writing() as connection:
            lent = _find(connection, request.id)
            if lent is None:
                names = (request.project, request.team, request.by)
                lent = Lease(request.id, f"{now:%Y-%m}", *names, 0, spent, at, at, None)
            elif lent.by != request.by:
                return LeaseRefusal("unknown", f"there is no lease {request.id!r}")
            elif lent.returned_at is not None:
                at, spent = lent.returned_at, min(spent, lent.spent_microusd)
            closed = lent._replace(spent_microusd=spent, returned_at=at)
            _put(connection, closed)
        return closed

    def used(self, limit: MonthlyLimit, month: str) -> int:
        """Return what counts against a limit in a month, in micro-dollars."""
        where, values = _where(limit)
        rows = self.rows(
            f"select coalesce(sum({_COUNTED}), 0) from lease where month = ? {where}",
            [month, *values],
        )
        return int(rows[0][0]) if rows else 0

    def leases(self, month: str, *, most: int, skip: int = 0) -> list[Lease]:
        """Return the leases of a month, open ones first, then the newest first."""
        rows = self.rows(
            f"select {_COLUMNS} from lease where month = ? "
            "order by returned_at is not null, opened_at desc, id limit ? offset ?",
            [month, most, skip],
        )
        return [Lease(*row) for row in rows]

    def count(self, month: str) -> int:
        """Return the number of leases of a month."""
        rows = self.rows("select count(*) from lease where month = ?", [month])
        return int(rows[0][0]) if rows else 0


def _find(connection: sqlite3.Connection, lease_id: str) -> Lease | None:
    sql = f"select {_COLUMNS} from lease where id = ?"
    row = connection.execute(sql, (lease_id,)).fetchone()
    return None if row is None else Lease(*row)


def _put(connection: sqlite3.Connection, lease: Lease) -> None:
    marks = ", ".join("?" * len(lease))
    connection.execute(f"insert or replace into lease values ({marks})", lease)


def _unusable(lease: Lease, by: str, month: str) -> LeaseRefusal | None:
    """Return why a lease cannot be extended; that of another member is not there."""
    if lease.by != by:
        return LeaseRefusal("unknown", f"there is no lease {lease.id!r}")
    if lease.returned_at is not None:
        return LeaseRefusal("returned", f"lease {lease.id!r} was returned")
    if lease.month != month:
        return LeaseRefusal("month", f"lease {lease.id!r} is of {lease.month}")
    return None


def _counted(connection: sqlite3.Connection, month: str, limit: MonthlyLimit) -> int:
    where, values = _where(limit)
    sql = f"select coalesce(sum({_COUNTED}), 0) from lease where month = ? {where}"
    return int(connection.execute(sql, [month, *values]).fetchone()[0])


def _where(limit: MonthlyLimit) -> tuple[str, list[str]]:
    return ("", []) if limit.scope == "all" else (f"and {limit.scope} = ?", [limit.of])


def _next_month(now: dt.datetime) -> dt.datetime:
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + dt.timedelta(days=32)).replace(day=1)
