"""Running totals: what the calls of one transaction add to them.

Nobody else can change `booked` while a transaction writes. So the totals that a budget is checked
against are read once, and written once, for all the calls that share a commit. An operation that
keeps to this is handed the sums. Before any other the table is brought up to date: whoever reads or
changes it by itself finds it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

T = TypeVar("T")


def read_total(connection: sqlite3.Connection, scope: str, first: str) -> tuple[int, int]:
    """Return the micro-dollars and tokens that the table has for a scope since a day."""
    row = connection.execute(
        "select coalesce(sum(microusd), 0), coalesce(sum(tokens), 0) from booked "
        "where scope = ? and (day >= ? or day = '')",
        (scope, first),
    ).fetchone()
    return int(row[0]), int(row[1])


def add_to_totals(
    connection: sqlite3.Connection, changes: Iterable[tuple[str, str, int, int]]
) -> None:
    """Add to the table: scope, day, micro-dollars and tokens."""
    connection.executemany(
        "insert into booked (scope, day, microusd, tokens) values (?, ?, ?, ?) "
        "on conflict (scope, day) do update set microusd = microusd + excluded.microusd, "
        "tokens = tokens + excluded.tokens",
        changes,
    )


class Totals:
    """The totals as a transaction sees them: what the table has, and what is still to be added.

    It lives no longer than the transaction, and is thrown away if that is rolled back.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._read: dict[tuple[str, str], tuple[int, int]] = {}
        self._added: dict[tuple[tuple[str, ...], str], tuple[int, int]] = {}

    def since(self, scope: str, first: str) -> tuple[int, int]:
        """Return the micro-dollars and tokens booked in a scope since a day."""
        total = self._read.get((scope, first))
        if total is None:
            total = self._read[scope, first] = read_total(self._connection, scope, first)
        microusd, tokens = total
        for (scopes, day), more in self._added.items():
            if scope in scopes and (day >= first or day == ""):
                microusd, tokens = microusd + more[0], tokens + more[1]
        return microusd, tokens

    def add(self, scopes: tuple[str, ...], day: str, microusd: int, tokens: int) -> None:
        """Add to what is booked in each of some scopes on a day."""
        before = self._added.get((scopes, day), (0, 0))
        self._added[scopes, day] = (before[0] + microusd, before[1] + tokens)

    def write(self) -> None:
        """Bring the table up to date, and forget what was read from it."""
        added, self._added, self._read = self._added, {}, {}
        if added:
            add_to_totals(
                self._connection,
                [(scope, day, *more) for (scopes, day), more in added.items() for scope in scopes],
            )


class OnTotals(Generic[T]):
    """An operation that knows `booked` only by the totals it is handed, or not at all."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[sqlite3.Connection, Totals], T]) -> None:
        self.act = act

    def __call__(self, connection: sqlite3.Connection) -> T:
        """Do it alone."""
        totals = Totals(connection)
        result = self.act(connection, totals)
        totals.write()
        return result


def together(
    operations: Iterable[Callable[[sqlite3.Connection], T]], connection: sqlite3.Connection
) -> list[T]:
    """Return what each operation of a transaction yields; they share their totals."""
    totals, found = Totals(connection), []
    for operation in operations:
        if isinstance(operation, OnTotals):
            found.append(operation.act(connection, totals))
        else:
            totals.write()
            found.append(operation(connection))
    totals.write()
    return found
