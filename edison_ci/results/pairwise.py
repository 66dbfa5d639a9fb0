"""Head-to-head comparisons: win rates, and biases of the judge.

The unit is the case. Pairs that were decided without a judge (equal or malformed answers) count for
the win rate, but not for the biases of the judge.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.record_json import fields_of
from edison_ci.numeric import NOISE, fixed, reaches
from edison_ci.records import Side
from edison_ci.results.samples import Variant
from edison_ci.results.scores import estimate_json
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.paired import paired_difference
from edison_ci.stats.pairwise import BothOrders, Preference, length_effect, win_rate
from edison_ci.stats.permutation import sign_flip
from edison_ci.stats.ranking import Comparison, RankingRule, rank
from edison_ci.stats.sentences import cases as counted
from edison_ci.stats.sentences import order_sentence, win_sentence
from edison_ci.store.cells import SIDES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.results.leaderboard import CaseFilter
    from edison_ci.results.samples import CellSource, TwoSidedSample
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.pairwise import LengthEffect, OrderEffect, WinRate
    from edison_ci.stats.ranking import RankedSystem, Ranking


_VALUES = {"a": 1.0, "tie": 0.5, "b": 0.0}


class System(NamedTuple):
    """The side and model that wrote an answer."""

    side: Side
    model: str


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """Two answers to one case, compared in both orders; values are those for a."""

    prompt: str
    a: System
    b: System
    case: str
    repeat: int
    judge: str
    first: float | None
    """1 if a wins when it is shown first, 0.5 for a tie, 0 if it loses; None without a reply."""
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
        """Mean of both orders, for a; None if an order is missing."""
        if self.first is None or self.second is None:
            return None
        return (self.first + self.second) / 2

    @property
    def winner(self) -> str | None:
        """`a` or `b` if the judge says so in both orders, otherwise `tie`."""
        if self.first is None or self.second is None:
            return None
        if self.first != self.second or self.first == 0.5:
            return "tie"
        return "a" if self.first else "b"

    def swap(self) -> ComparedPair:
        """Return the same pair with a and b exchanged."""
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
class PairedSystems:
    """All games of two systems with one prompt, and the cases that should have had one."""

    prompt: str
    a: System
    b: System
    games: tuple[ComparedPair, ...]
    planned: tuple[str, ...]
    """Every case of which a has a cell, in order."""


_GAMES = """
select a.prompt, a.side, a.model, b.side, b.model, a.case_id, a.repeat, x.judge, x.ab_winner,
  x.ba_winner, x.chars_a, x.chars_b, x.asked, x.own, a.composite, b.composite, a.version, b.prompt,
  b.version
-- Cross joins keep this order: SQLite would try each pair of cells, the square of a run.
from cell a cross join comparison x on x.a_cell = a.id cross join cell b on b.id = x.b_cell
where a.run_id = ?1 and b.run_id = ?1 order by a.prompt, a.case_id, a.repeat
"""


def games_in(cells: TwoSidedSample) -> list[ComparedPair]:
    """Return the comparisons of a run; for sides of two runs, those of head against base."""
    rows = cells.connection.execute(_GAMES, (cells.head.run_id,))
    rows_of_cases = (row for row in rows if row[5] not in cells.left_out)
    if cells.run_id is not None:
        return [_game(row) for row in rows_of_cases]
    games = []
    for row in rows_of_cases:
        places = (row[1], row[0], row[2], row[16]), (row[3], row[17], row[4], row[18])
        for one, other, game in ((*places, _game(row)), (*places[::-1], _game(row).swap())):
            head, base = _member(cells.head, one), _member(cells.base, other)
            if head is not None and base is not None and cells.base.run_id == cells.head.run_id:
                a, b = System(Side.HEAD, head.model), System(Side.BASE, base.model)
                games.append(replace(game, prompt=head.prompt, a=a, b=b))
    return games


def _member(source: CellSource, place: tuple[str, str, str, str]) -> Variant | None:
    """Return the variant of a cell in a sample, by side, prompt, model and version; else None."""
    side, prompt, model, version = place
    if side != source.side or not version.startswith(source.version):
        return None
    return source.sample_name(Variant(prompt, model))


def _game(row: Sequence[Any]) -> ComparedPair:
    return ComparedPair(
        prompt=row[0],
        a=System(SIDES[row[1]], row[2]),
        b=System(SIDES[row[3]], row[4]),
        case=row[5],
        repeat=row[6],
        judge=row[7],
        first=_VALUES.get(row[8]),
        second=_VALUES.get(row[9]),
        chars=(row[10], row[11]),
        asked=bool(row[12]),
        own=row[13],
        scores=(row[14], row[15]),
    )


def matches_of(cells: TwoSidedSample) -> list[PairedSystems]:
    """Return the games of a sample by prompt and pair of systems, in a stable order."""
    by_pair: dict[tuple[str, System, System], list[ComparedPair]] = defaultdict(list)
    for game in games_in(cells):
        by_pair[game.prompt, game.a, game.b].append(game)
    return [
        PairedSystems(
            prompt, a, b, tuple(games), tuple(cells.case_ids(Variant(prompt, a.model), a.side))
        )
        for (prompt, a, b), games in sorted(by_pair.items())
    ]


def first_listed(games: Iterable[ComparedPair]) -> set[tuple[str, str]]:
    """Return prompts with the model that all others are compared with: it is never `a`."""
    first, second = set(), set()
    for game in games:
        first.add((game.prompt, game.a.model))
        second.add((game.prompt, game.b.model))
    return second - first


FEW = 10
_WORDS = {
    Preference.A: "a_better",
    Preference.B: "b_better",
    Preference.EQUIVALENT: "equivalent",
    Preference.UNCLEAR: "unclear",
}


@dataclass(frozen=True, slots=True)
class SelfPreference:
    """Preference of a judge for answers of its own model over those of another."""

    win_rate: float
    """Of its own answers, ties counted half."""
    n: int
    """Cases."""
    excess: float | None
    """Win rate minus what the scores of these answers predict; None without scores."""
    interval: Range | None
    """Of the excess."""
    p: float | None
    """Two-sided p-value of the excess."""

    @property
    def warn(self) -> bool:
        """Whether the judge prefers its own answers significantly more than the scores predict."""
        return self.p is not None and self.p <= 0.05 and (self.excess or 0.0) > NOISE


@dataclass(frozen=True, slots=True)
class HeadToHead:
    """Two systems with one prompt, compared by a judge."""

    match: PairedSystems
    rate: WinRate
    """Of a."""
    length: LengthEffect | None
    own: SelfPreference | None
    won: int
    """Pairs of answers that a won in both orders."""
    lost: int
    tied: int

    @property
    def among_models(self) -> bool:
        """Whether models are compared, rather than head with base."""
        return self.match.a.side == self.match.b.side

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two in a sentence."""
        a, b = self.match.a, self.match.b
        return (a.model, b.model) if a.side == b.side else (a.side, b.side)

    def sentence_for(self, a: str, b: str) -> str:
        """Return which of the two is preferred (STATS 11), by these names."""
        sentence = win_sentence(self.rate, a=a, b=b)
        if self.rate.excluded:
            sentence += f" {counted(self.rate.excluded)} could not be compared in both orders."
        return sentence

    @property
    def judge(self) -> str:
        """The model that compared."""
        return self.match.games[0].judge

    @property
    def sentence(self) -> str:
        """Which of the two is preferred (STATS 11)."""
        return self.sentence_for(*self.names)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons for caution: few cases, and biases of the judge."""
        warnings = []
        if 0 < self.rate.n < FEW:
            warnings.append("very few cases")
        order = self.rate.order
        sentence = order_sentence(order) if order is not None else None
        if order is not None and sentence is not None:
            warnings.append(f"{sentence}{_lean(order)}")
        if self.length is not None and self.length.warn:
            warnings.append(_length_sentence(self.length))
        if self.own is not None:
            warnings.append(_own_sentence(self.judge, self.own))
        return tuple(warnings)

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        rate, match = self.rate, self.match
        return {
            **fields_of(match, "prompt", "a", "b"),
            "judge": self.judge,
            "win_rate": _rate_json(rate),
            "preference": _WORDS[rate.preference],
            **fields_of(self, "won", "lost", "tied"),
            "excluded": rate.excluded,
            "order_effect": _order_json(rate.order),
            "length_effect": _length_json(self.length),
            "self_preference": _own_json(self.own),
            **fields_of(self, "sentence", "warnings"),
        }


def head_to_head(match: PairedSystems, clusters: Mapping[str, str] | None = None) -> HeadToHead:
    """Return the numbers of a match; `clusters` are those of cases that have one."""
    judged = [game for game in match.games if game.asked]
    winners = Counter(game.winner for game in match.games)
    return HeadToHead(
        match=match,
        rate=rate_of(match.games, match.planned, clusters),
        length=_length(judged),
        own=_own(judged),
        won=winners["a"],
        lost=winners["b"],
        tied=winners["tie"],
    )


def overall_head_to_head(
    cells: TwoSidedSample, clusters: Mapping[str, str] | None = None
) -> HeadToHead | None:
    """Return head against base over all prompts and models; None if nothing was compared."""
    matches = [match for match in matches_of(cells) if match.a.side != match.b.side]
    if not matches:
        return None
    planned = sorted({case for match in matches for case in match.planned})
    games = tuple(game for match in matches for game in match.games)
    return head_to_head(replace(matches[0], games=games, planned=tuple(planned)), clusters)


def rate_of(
    games: Sequence[ComparedPair], planned: Sequence[str], clusters: Mapping[str, str] | None = None
) -> WinRate:
    """Return the win rate of a; the value of a case is the mean of its pairs with both orders.

    The order effect is estimated from the pairs that were judged, and the consistency from single
    pairs: a mean over several would hide or invent it.
    """
    clusters_by_case = clusters or {}
    rate = _rate(_by_case(games), planned, clusters_by_case)
    asked = [game for game in games if game.asked and game.value is not None]
    order = rate.order
    if len(asked) < len(games):
        order = _rate(_by_case(asked), (), clusters_by_case).order
    if order is not None and asked:
        consistency = statistics.fmean(game.first == game.second for game in asked)
        order = replace(order, consistency=consistency)
    return replace(rate, order=order)


def _rate(
    whole: Mapping[str, Sequence[ComparedPair]], planned: Sequence[str], clusters: Mapping[str, str]
) -> WinRate:
    cases = []
    for case in sorted({*planned, *whole}):
        played = whole.get(case, ())
        first = [game.first for game in played if game.first is not None]
        second = [game.second for game in played if game.second is not None]
        cases.append(
            BothOrders(
                statistics.fmean(first) if first else None,
                statistics.fmean(second) if second else None,
                clusters.get(case),
            )
        )
    return win_rate(cases, rng=generator_for(list(whole)))


def _by_case(games: Sequence[ComparedPair]) -> dict[str, list[ComparedPair]]:
    games_by_case: dict[str, list[ComparedPair]] = defaultdict(list)
    for game in games:
        if game.value is not None:
            games_by_case[game.case].append(game)
    return games_by_case


def _length(games: Sequence[ComparedPair]) -> LengthEffect | None:
    wins, a, b = [], [], []
    for played in _by_case(games).values():
        wins.append(statistics.fmean(game.value or 0.0 for game in played))
        a.append(statistics.fmean(max(1, game.chars[0]) for game in played))
        b.append(statistics.fmean(max(1, game.chars[1]) for game in played))
    return length_effect(wins, a, b)


def _own(games: Sequence[ComparedPair]) -> SelfPreference | None:
    """Compare the judge's preferences with those predicted by the scores of the same answers."""
    mine = _by_case([g if g.own == "a" else g.swap() for g in games if g.own in ("a", "b")])
    if not mine:
        return None
    wins = {c: statistics.fmean(game.value or 0.0 for game in played) for c, played in mine.items()}
    excess = []
    for case, played in mine.items():
        expected = [_expected(game.scores) for game in played]
        values = [value for value in expected if value is not None]
        if len(values) == len(expected):
            excess.append((case, wins[case] - statistics.fmean(values)))
    difference = paired_difference([value for _, value in excess])
    p = None
    if difference is not None and difference.interval is not None:
        rng = generator_for([case for case, _ in excess])
        p = sign_flip([value for _, value in excess], rng=rng).value
    return SelfPreference(
        win_rate=statistics.fmean(wins.values()),
        n=len(wins),
        excess=None if difference is None else difference.value,
        interval=None if difference is None else difference.interval,
        p=p,
    )


def _expected(scores: tuple[float | None, float | None]) -> float | None:
    """Return the value of a pair if the higher score won."""
    a, b = scores
    if a is None or b is None:
        return None
    return 0.5 if abs(a - b) <= NOISE else float(a > b)


def _lean(order: OrderEffect) -> str:
    if not reaches(abs(order.value), 0.05):
        return ", with no lean to either place"
    read = "first" if order.value > 0 else "second"
    lean = fixed(100 * order.value, signed=True)
    return f": it prefers what it reads {read} (order effect {lean} points)"


def _length_sentence(length: LengthEffect) -> str:
    which = "longer" if length.value > 0 else "shorter"
    points = 100 * abs(length.value) * math.log(2)
    return f"this judge prefers {which} answers: {fixed(points)} points for twice the length"


def _own_sentence(judge: str, own: SelfPreference) -> str:
    sentence = f"{judge} compares its own answers: it prefers them in {fixed(100 * own.win_rate)}%"
    sentence += f" of {counted(own.n)}"
    if own.warn and own.excess is not None:
        sentence += f", {fixed(100 * own.excess)} points more than the scores say"
    return sentence


def _rate_json(rate: WinRate) -> dict[str, Any]:
    """Return a win rate with its interval as it appears in `--json`."""
    p = None if rate.p is None else rate.p.value
    return estimate_json(rate.value, rate.interval, n=rate.n, p=p, method=rate.method)


def _order_json(order: OrderEffect | None) -> dict[str, Any] | None:
    if order is None:
        return None
    about = {"p": order.p.value, "consistency": order.consistency, "warn": order.warn}
    return estimate_json(order.value, order.interval, n=order.n, **about)


def _length_json(length: LengthEffect | None) -> dict[str, Any] | None:
    if length is None:
        return None
    about = {"method": length.method, "warn": length.warn}
    return estimate_json(length.value, length.interval, n=length.n, **about)


def _own_json(own: SelfPreference | None) -> dict[str, Any] | None:
    if own is None:
        return None
    low, high = own.interval or (None, None)
    rate = fields_of(own, "win_rate", "n", "excess")
    return {**rate, "low": low, "high": high, **fields_of(own, "p", "warn")}


# Every comparison of two answers is two games, one in each order. The model is Davidson's, and the
# case is the unit of its uncertainty (STATS 12).
class Key(NamedTuple):
    """A prompt version with a model."""

    prompt: str
    version: str
    model: str


class PreferenceRanking(NamedTuple):
    """A ranking by preference, with the names it was made with."""

    ranking: Ranking
    names: Mapping[str, Key]
    """By the name of a system in the ranking."""
    judge: str
    baseline: str
    """The system that others were compared with most often."""
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

    def _placed(self, placed: RankedSystem) -> dict[str, Any]:
        return {
            "rank": {"best": placed.best_rank, "worst": placed.worst_rank},
            **self._key(placed.system),
            "elo_like": estimate_json(placed.value, placed.interval, n=placed.n),
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
    connection: sqlite3.Connection,
    run_ids: Sequence[str],
    names_by_key: Mapping[Key, str],
    case_filter: CaseFilter,
) -> PreferenceRanking | None:
    """Rank what runs have compared, newest run first; None if that is nothing.

    `names_by_key` has the systems that are ranked. A pair that several runs compared on a case
    counts once, as the newest run has it.
    """
    newest_games: dict[tuple[frozenset[Key], str, int], _Game] = {}
    for run_id in run_ids:
        for repeat, game in _preference_games(connection, run_id):
            if (
                game.a in names_by_key
                and game.b in names_by_key
                and game.a != game.b
                and case_filter.counts(game.case)
            ):
                newest_games.setdefault((frozenset((game.a, game.b)), game.case, repeat), game)
    if not newest_games:
        return None
    newest = next(iter(newest_games.values())).judge
    games = [game for game in newest_games.values() if game.judge == newest]
    baseline = names_by_key[Counter(game.b for game in games).most_common(1)[0][0]]
    ranking = rank(
        [comparison for game in games for comparison in _in_both_orders(game, names_by_key)],
        RankingRule(baseline=baseline),
        rng=generator_for(sorted({game.case for game in games})),
    )
    names = {name: key for key, name in names_by_key.items()}
    simulated = any(game.simulated for game in games)
    return PreferenceRanking(ranking, names, newest, baseline, simulated)


def _preference_games(connection: sqlite3.Connection, run_id: str) -> list[tuple[int, _Game]]:
    rows = connection.execute(
        "select a.repeat, a.prompt, a.version, a.model, b.prompt, b.version, b.model, a.case_id, "
        "coalesce('cluster ' || a.cluster, 'case ' || a.case_id), x.judge, x.ab_winner, "
        "x.ba_winner, r.simulated from cell a join comparison x on x.a_cell = a.id "
        "join cell b on b.id = x.b_cell join run r on r.id = x.run_id "
        "where a.run_id = ? and x.status = 'ok' "
        "order by a.case_id, a.repeat, a.prompt, a.model, b.model",
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


def _in_both_orders(game: _Game, names_by_key: Mapping[Key, str]) -> list[Comparison]:
    a, b = names_by_key[game.a], names_by_key[game.b]
    return [
        Comparison(a, b, _preference(game.orders[0], "a"), game.unit),
        Comparison(b, a, _preference(game.orders[1], "b"), game.unit),
    ]


def _preference(winner: str, shown_first: str) -> Literal["first", "second", "tie"]:
    if winner == "tie":
        return "tie"
    return "first" if winner == shown_first else "second"
