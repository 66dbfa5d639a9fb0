"""In which order do prompt versions and models stand by what judges prefer?

Every comparison of two answers is two games, one in each order. The model is Davidson's, and the
case is the unit of its uncertainty (STATS 12).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci.stats.arrays import generator_for
from edison_ci.stats.ranking import Comparison, RankingRule, rank

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.results.roll import Roll
    from edison_ci.stats.ranking import Placed, Ranking


class Key(NamedTuple):
    """A prompt version with a model."""

    prompt: str
    version: str
    model: str


class Preferences(NamedTuple):
    """A ranking by preference, with the names it was made with."""

    ranking: Ranking
    names: Mapping[str, Key]
    """By the name of a system in the ranking."""
    judge: str
    baseline: str
    """The system that others were held against most often."""
    simulated: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        ranking = self.ranking
        return {
            "judge": self.judge,
            "simulated": self.simulated,
            "method": ranking.method,
            "cases": ranking.n,
            "rows": [self._placed(placed) for placed in ranking.placed],
            "baseline": self._key(self.baseline),
            "islands": [[self._key(name) for name in island] for island in ranking.islands],
            "notes": [*ranking.notes],
        }

    def _key(self, name: str) -> dict[str, Any]:
        key = self.names[name]
        return {"prompt": {"id": key.prompt, "hash": key.version[:8]}, "model": key.model}

    def _placed(self, placed: Placed) -> dict[str, Any]:
        low, high = placed.interval or (None, None)
        return {
            "rank": {"best": placed.best_rank, "worst": placed.worst_rank},
            **self._key(placed.system),
            "elo_like": {"estimate": placed.value, "low": low, "high": high, "n": placed.n},
            "beats_baseline": placed.beats_baseline,
        }


class _Game(NamedTuple):
    a: Key
    b: Key
    case: str
    unit: str
    """The case, or the cluster it belongs to."""
    judge: str
    orders: tuple[str, str]
    simulated: bool


def preferences_of(
    connection: sqlite3.Connection, run_ids: Sequence[str], known: Mapping[Key, str], roll: Roll
) -> Preferences | None:
    """Rank what runs have compared, newest run first; None if that is nothing.

    `known` names the systems that are ranked. A pair that several runs compared on a case counts
    once, as the newest run has it.
    """
    found: dict[tuple[frozenset[Key], str, int], _Game] = {}
    for run_id in run_ids:
        for draw, game in _games(connection, run_id):
            if game.a in known and game.b in known and game.a != game.b and roll.counts(game.case):
                found.setdefault((frozenset((game.a, game.b)), game.case, draw), game)
    if not found:
        return None
    newest = next(iter(found.values())).judge
    games = [game for game in found.values() if game.judge == newest]
    baseline = known[Counter(game.b for game in games).most_common(1)[0][0]]
    ranking = rank(
        [one for game in games for one in _in_both_orders(game, known)],
        RankingRule(baseline=baseline),
        rng=generator_for(sorted({game.case for game in games})),
    )
    names = {name: key for key, name in known.items()}
    simulated = any(game.simulated for game in games)
    return Preferences(ranking, names, newest, baseline, simulated)


def _games(connection: sqlite3.Connection, run_id: str) -> list[tuple[int, _Game]]:
    rows = connection.execute(
        "select a.draw, a.prompt, a.version, a.model, b.prompt, b.version, b.model, a.case_id, "
        "coalesce('cluster ' || a.cluster, 'case ' || a.case_id), x.judge, x.ab_winner, "
        "x.ba_winner, r.simulated from cell a join comparison x on x.a_cell = a.id "
        "join cell b on b.id = x.b_cell join run r on r.id = x.run_id "
        "where a.run_id = ? and x.status = 'ok' "
        "order by a.case_id, a.draw, a.prompt, a.model, b.model",
        (run_id,),
    )
    return [
        (
            row[0],
            _Game(
                a=Key(*row[1:4]),
                b=Key(*row[4:7]),
                case=row[7],
                unit=row[8],
                judge=row[9],
                orders=(row[10], row[11]),
                simulated=bool(row[12]),
            ),
        )
        for row in rows
    ]


def _in_both_orders(game: _Game, known: Mapping[Key, str]) -> list[Comparison]:
    a, b = known[game.a], known[game.b]
    return [
        Comparison(a, b, _outcome(game.orders[0], "a"), game.unit),
        Comparison(b, a, _outcome(game.orders[1], "b"), game.unit),
    ]


def _outcome(winner: str, shown_first: str) -> Literal["first", "second", "tie"]:
    if winner == "tie":
        return "tie"
    return "first" if winner == shown_first else "second"
