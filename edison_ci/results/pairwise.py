"""Which pairs of answers of a run were compared, and who won?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.results.comparison_sample import LINEUP

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping, Sequence

_VALUES = {"a": 1.0, "tie": 0.5, "b": 0.0}


class System(NamedTuple):
    """What wrote an answer."""

    side: str
    """head, or base."""
    model: str


@dataclass(frozen=True, slots=True)
class Game:
    """Two answers to one case, compared in both orders; values are those for a."""

    prompt: str
    a: System
    b: System
    case: str
    draw: int
    judge: str
    first: float | None
    """1 if a wins when it is shown first, 0.5 for a tie, 0 if it loses; None if nobody said."""
    second: float | None
    """The same when a is shown second."""
    chars: tuple[int, int]
    asked: bool
    own: str | None
    """`a`, `b` or `both`: what the judge's own model wrote."""
    scores: tuple[float | None, float | None]
    """The composites of a and b."""

    @property
    def value(self) -> float | None:
        """What the pair is worth to a; None if an order is missing."""
        if self.first is None or self.second is None:
            return None
        return (self.first + self.second) / 2

    @property
    def winner(self) -> str | None:
        """`a`, `b` or `tie`: a judge must say the same in both orders."""
        if self.first is None or self.second is None:
            return None
        if self.first != self.second or self.first == 0.5:
            return "tie"
        return "a" if self.first else "b"

    def turned(self) -> Game:
        """Return the same game as b sees it."""
        own = {"a": "b", "b": "a"}.get(self.own or "", self.own)
        first, second = (None if v is None else 1 - v for v in (self.second, self.first))
        return replace(
            self,
            a=self.b,
            b=self.a,
            first=first,
            second=second,
            chars=self.chars[::-1],
            own=own,
            scores=self.scores[::-1],
        )


@dataclass(frozen=True, slots=True)
class Match:
    """All games of two systems with one prompt, and the cases that should have had one."""

    prompt: str
    a: System
    b: System
    games: tuple[Game, ...]
    planned: tuple[str, ...]
    """Every case that a has a cell of, in order."""


def games_of(
    connection: sqlite3.Connection, run_id: str, quarantined: Collection[str] = frozenset()
) -> list[Game]:
    """Return every comparison of a run; in a line-up, those of cells that stand in it."""
    # Cells are those of a line-up where there is one: a temporary table of the same name.
    rows = connection.execute(
        "select a.prompt, a.side, a.model, b.side, b.model, a.case_id, a.draw, x.judge, "
        "x.ab_winner, x.ba_winner, x.chars_a, x.chars_b, x.asked, x.own, a.composite, b.composite "
        # Cross joins keep this order: SQLite would try each pair of cells, the square of a run.
        "from cell a cross join comparison x on x.a_cell = a.id "
        "cross join cell b on b.id = x.b_cell "
        "where a.run_id = ?1 and b.run_id = ?1 order by a.prompt, a.case_id, a.draw",
        (run_id,),
    )
    found = []
    for row in rows:
        if row[5] in quarantined:
            continue
        game = Game(
            prompt=row[0],
            a=System(*row[1:3]),
            b=System(*row[3:5]),
            case=row[5],
            draw=row[6],
            judge=row[7],
            first=_VALUES.get(row[8]),
            second=_VALUES.get(row[9]),
            chars=(row[10], row[11]),
            asked=bool(row[12]),
            own=row[13],
            scores=(row[14], row[15]),
        )
        if run_id == LINEUP:  # only what stands on both sides of it, and always head against base
            if game.a.side == game.b.side:
                continue
            game = game.turned() if game.a.side == "base" else game
        found.append(game)
    return found


def matches_of(
    connection: sqlite3.Connection, run_id: str, quarantined: Collection[str] = frozenset()
) -> list[Match]:
    """Return the games of a run by prompt and pair of systems, in a stable order."""
    by_pair: dict[tuple[str, System, System], list[Game]] = defaultdict(list)
    for game in games_of(connection, run_id, quarantined):
        by_pair[game.prompt, game.a, game.b].append(game)
    planned = _planned(connection, run_id, quarantined) if by_pair else {}
    return [
        Match(prompt, a, b, tuple(games), tuple(planned.get((prompt, a), ())))
        for (prompt, a, b), games in sorted(by_pair.items())
    ]


def _planned(
    connection: sqlite3.Connection, run_id: str, quarantined: Collection[str]
) -> Mapping[tuple[str, System], Sequence[str]]:
    rows = connection.execute(
        "select distinct prompt, side, model, case_id from cell where run_id = ? order by case_id",
        (run_id,),
    )
    found: dict[tuple[str, System], list[str]] = defaultdict(list)
    for prompt, side, model, case in rows:
        if case not in quarantined:
            found[prompt, System(side, model)].append(case)
    return found


def first_listed(games: Iterable[Game]) -> set[tuple[str, str]]:
    """Return prompts with the model that others are held against: it is never asked about."""
    asked, held = set(), set()
    for game in games:
        asked.add((game.prompt, game.a.model))
        held.add((game.prompt, game.b.model))
    return held - asked
