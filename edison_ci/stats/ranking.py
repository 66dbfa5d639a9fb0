"""Rankings of several systems, and how sure they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.numeric import rounded
from edison_ci.stats.arrays import Range, np, special
from edison_ci.stats.scores import Estimate
from edison_ci.stats.verdicts import holm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Array


# The model of Davidson (1970) with the order effect of Davidson and Beaver (1977): with first-
# shown i and second-shown j, P(i) : P(j) : P(tie) = pi_i : g pi_j : v sqrt(pi_i pi_j), pi =
# exp(theta). Without ties it is that of Bradley and Terry (1952).
_STEPS = 100
_LARGEST_STEP = 2.0
_CONVERGED = 1e-9
_ENDLESS = 12.0
"""A strength beyond it means that the data set no limit."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model's linear form: what each parameter adds to the log odds of each outcome."""

    design: Array
    """(pairs, 3 outcomes: first, second, tie; parameters)."""
    ties: bool
    order_effect: bool
    systems: int

    @classmethod
    def of(cls, pairs: Array, *, systems: int, ties: bool, order_effect: bool) -> Model:
        """Make the model of ordered pairs of systems, (pairs, 2)."""
        width = systems - 1 + ties + order_effect
        # theta_K = -sum of the others, so the mean strength is 0.
        strength = np.vstack((np.eye(systems - 1), -np.ones(systems - 1)))
        design = np.zeros((len(pairs), 3, width))
        first, second = (strength[pairs[:, side].astype(int)] for side in (0, 1))
        design[:, 0, : systems - 1] = first
        design[:, 1, : systems - 1] = second
        design[:, 2, : systems - 1] = (first + second) / 2
        if ties:
            design[:, 2, systems - 1] = 1
        if order_effect:
            design[:, 1, -1] = 1
        return cls(design, ties, order_effect, systems)

    def chances(self, parameters: Array) -> Array:
        """Return P(first), P(second), P(tie) of each pair, (..., pairs, 3)."""
        logits = np.einsum("pok,...k->...po", self.design, parameters)
        if not self.ties:
            logits[..., 2] = -np.inf
        logits -= logits.max(axis=-1, keepdims=True)
        weights = np.exp(logits)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def score(self, parameters: Array, counts: Array) -> Array:
        """Return the gradient of the log-likelihood; `counts` is (..., pairs, 3)."""
        expected = self.chances(parameters) * counts.sum(axis=-1, keepdims=True)
        return np.asarray(np.einsum("...po,pok->...k", counts - expected, self.design))

    def information(self, parameters: Array, counts: Array) -> Array:
        """Return the negative Hessian of the log-likelihood."""
        chances = self.chances(parameters)
        total = counts.sum(axis=-1)
        mean = np.einsum("...po,pok->...pk", chances, self.design)
        square = np.einsum("...p,...po,pok,pol->...kl", total, chances, self.design, self.design)
        return np.asarray(square - np.einsum("...p,...pk,...pl->...kl", total, mean, mean))

    def strengths(self, parameters: Array) -> Array:
        """Return theta of every system, with mean 0."""
        theta = parameters[..., : self.systems - 1]
        return np.concatenate((theta, -theta.sum(axis=-1, keepdims=True)), axis=-1)


@dataclass(frozen=True, slots=True)
class Fit:
    """The most likely parameters of one or many sets of counts."""

    parameters: Array
    settled: bool
    """Whether every set has finite parameters; without it the data set no limit to some."""


def fit(model: Model, counts: Array) -> Fit:
    """Maximise the log-likelihood by Newton's method; it is concave, so the maximum is global.

    `counts` is (..., pairs, 3): sets of counts are fitted side by side.
    """
    shape = (*counts.shape[:-2], model.design.shape[-1])
    parameters = np.zeros(shape)
    ridge = 1e-10 * np.eye(shape[-1])
    for _ in range(_STEPS):
        gradient = model.score(parameters, counts)
        information = model.information(parameters, counts) + ridge
        step = np.linalg.solve(information, gradient[..., None])[..., 0]
        longest = np.abs(step).max(axis=-1, keepdims=True, initial=0)
        # Far from the maximum a full step may overshoot; near it all are full.
        parameters = parameters + step * np.minimum(1, _LARGEST_STEP / np.maximum(longest, 1e-300))
        if longest.max(initial=0) < _CONVERGED:
            break
        if np.abs(parameters).max(initial=0) > 2 * _ENDLESS:
            break
    endless = np.abs(parameters).max(initial=0) > _ENDLESS
    return Fit(parameters, not endless and bool(longest.max(initial=0) < 1e-6))


BOOTSTRAP = 1_000
FEW_CASES = 20
"""Number of cases below which the uncertainty is bootstrapped, with a warning."""
_ELO = 400 / math.log(10)
_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True)
class Comparison:
    """One judgment of two systems on a case; the first was shown first."""

    first: str
    second: str
    outcome: Literal["first", "second", "tie"]
    case: str


@dataclass(frozen=True, slots=True)
class RankedSystem(Estimate):
    """Where a system stands; `n` are the judgments that it took part in."""

    value: float
    """Elo-like: 1000 is the average system, 400 more is ten times the odds."""
    system: str
    best_rank: int
    worst_rank: int
    beats_baseline: float | None
    """Chance to win against the baseline, ties counted half."""
    theta: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Several systems in order, best first, with what is known about the order."""

    placed: tuple[RankedSystem, ...]
    n: int
    """Cases."""
    method: str
    level: float
    islands: tuple[tuple[str, ...], ...]
    """More than one: they were never compared with each other, so nothing is placed."""
    tie_weight: float | None
    """v of the model; None without ties."""
    second_shown: float | None
    """g of the model, below 1 when the first shown is favoured; None unless requested."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankingRule:
    """How a ranking is computed."""

    baseline: str | None = None
    order_effect: bool = False
    level: float = 0.95


def rank(
    comparisons: Sequence[Comparison],
    rule: RankingRule | None = None,
    *,
    rng: np.random.Generator,
) -> Ranking:
    """Rank systems by the Davidson model (STATS 12), with cases as the unit of uncertainty."""
    rule = rule or RankingRule()
    games = _Games.of(comparisons, order_effect=rule.order_effect)
    islands = games.islands()
    if len(islands) != 1:
        note = "never compared with each other: no joint ranking"
        return Ranking(
            (), len(games.cases), "none", rule.level, islands, None, None,
            (note,) if islands else (),
        )  # fmt: skip
    counts = games.by_case.sum(axis=0)
    pseudo = np.zeros_like(counts)
    fitted = fit(games.model, counts)
    notes: tuple[str, ...] = ()
    unplaced = games.without_limit(counts)
    if unplaced or not fitted.settled:
        # Half a win in each direction for every compared pair, shown in both orders alike.
        pseudo = games.half_wins()
        fitted = fit(games.model, counts + pseudo)
        names = ", ".join(unplaced) or "every system"
        notes = (f"not enough losses to place {names} exactly",)
    spread = _spread(games, fitted.parameters, pseudo, rng=rng)
    if spread.warning:
        notes = (*notes, spread.warning)
    placed = _placed(games, fitted.parameters, spread, rule)
    extra = fitted.parameters[len(games.systems) - 1 :]
    return Ranking(
        placed=placed,
        n=len(games.cases),
        method=spread.method,
        level=rule.level,
        islands=islands,
        tie_weight=math.exp(float(extra[0])) if games.model.ties else None,
        second_shown=math.exp(float(extra[-1])) if rule.order_effect else None,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Games:
    """All judgments as counts: (cases, ordered pairs, outcomes)."""

    systems: tuple[str, ...]
    cases: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    by_case: Array
    model: Model

    @classmethod
    def of(cls, comparisons: Sequence[Comparison], *, order_effect: bool) -> _Games:
        if any(game.first == game.second for game in comparisons):
            raise ValueError("a system is not compared with itself")
        systems = tuple(sorted({s for game in comparisons for s in (game.first, game.second)}))
        cases = tuple(sorted({game.case for game in comparisons}))
        number = {name: index for index, name in enumerate(systems)}
        row = {name: index for index, name in enumerate(cases)}
        keys = [(number[game.first], number[game.second]) for game in comparisons]
        pairs = tuple(sorted({(i, j) for i, j in keys} | {(j, i) for i, j in keys}))
        column = {pair: index for index, pair in enumerate(pairs)}
        by_case = np.zeros((len(cases), len(pairs), 3))
        which = {"first": 0, "second": 1, "tie": 2}
        for game, key in zip(comparisons, keys, strict=True):
            by_case[row[game.case], column[key], which[game.outcome]] += 1
        model = Model.of(
            np.array(pairs, dtype=np.float64).reshape(-1, 2),
            systems=max(1, len(systems)),
            ties=bool(by_case[:, :, 2].any()),
            order_effect=order_effect,
        )
        return cls(systems, cases, pairs, by_case, model)

    def islands(self) -> tuple[tuple[str, ...], ...]:
        """Return the groups of systems that are connected by comparisons."""
        reach = self._reach(np.array([True] * len(self.pairs)))
        groups = {tuple(np.flatnonzero(row).tolist()) for row in reach}
        return tuple(sorted(tuple(self.systems[i] for i in group) for group in groups))

    def without_limit(self, counts: Array) -> tuple[str, ...]:
        """Return the systems whose strength the wins do not limit from both sides.

        Wins decide, not ties: one win and five ties are likeliest at infinite strength.
        """
        won = np.zeros((len(self.systems), len(self.systems)))
        for index, (i, j) in enumerate(self.pairs):
            won[i, j] += counts[index, 0]
            won[j, i] += counts[index, 1]
        reach = self._reach(np.array([won[i, j] > 0 for i, j in self.pairs]))
        both = reach & reach.T
        sizes = both.sum(axis=1)
        if np.all(sizes == len(self.systems)):
            return ()
        largest = both[int(sizes.argmax())] if sizes.max() > 1 else np.zeros(len(sizes), bool)
        return tuple(self.systems[i] for i in np.flatnonzero(~largest))

    def half_wins(self) -> Array:
        """Return half a win in each direction for every compared pair, in both orders alike."""
        pseudo = np.zeros((len(self.pairs), 3))
        pseudo[:, :2] = 0.25
        return pseudo

    def _reach(self, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        size = len(self.systems)
        reach = np.eye(size, dtype=bool)
        for (i, j), there in zip(self.pairs, present, strict=True):
            reach[i, j] |= there
        for middle in range(size):
            reach |= reach[:, [middle]] & reach[[middle], :]
        return np.asarray(reach)


@dataclass(frozen=True, slots=True)
class _Spread:
    covariance: Array
    """Of the strengths of all systems; empty with a single case."""
    draws: Array | None
    df: int
    method: str
    warning: str


def _spread(
    games: _Games, parameters: Array, pseudo: Array, *, rng: np.random.Generator
) -> _Spread:
    """Return the uncertainty of the strengths, with the case as its unit."""
    cases, size = len(games.cases), len(games.systems) - 1
    if cases < 2:
        return _Spread(np.zeros((0, 0)), None, 0, "Davidson", "1 case: no error bar possible")
    lift = np.vstack((np.eye(size), -np.ones(size)))
    inverse = np.linalg.inv(games.model.information(parameters, games.by_case.sum(axis=0) + pseudo))
    draws, method, warning = None, "Davidson, case-clustered sandwich", ""
    if cases < FEW_CASES:
        picks = rng.multinomial(cases, np.full(cases, 1 / cases), size=BOOTSTRAP)
        counts = np.einsum("bc,cpo->bpo", picks.astype(np.float64), games.by_case)
        # A resample may lose a system's only loss, so each has the half wins.
        draws = games.model.strengths(fit(games.model, counts + games.half_wins()).parameters)
        covariance = np.atleast_2d(np.cov(draws.T))
        method, warning = "Davidson, case bootstrap", f"only {cases} cases"
    else:
        scores = games.model.score(parameters, games.by_case)
        whole = inverse @ (cases / (cases - 1) * scores.T @ scores) @ inverse
        covariance = lift @ whole[:size, :size] @ lift.T
    if pseudo.any() or np.diag(covariance).min() < _NO_SPREAD:
        # Cases that all say the same have no spread: the model's is added, since
        # no error bar has zero width.
        covariance = covariance + lift @ inverse[:size, :size] @ lift.T
        draws = None
    return _Spread(covariance, draws, cases - 1, method, warning)


def _placed(
    games: _Games, parameters: Array, spread: _Spread, rule: RankingRule
) -> tuple[RankedSystem, ...]:
    theta = games.model.strengths(parameters)
    better = _clearly_better(theta, spread, rule.level)
    tie = math.exp(float(parameters[theta.size - 1])) if games.model.ties else 0.0
    games_of = np.zeros(theta.size)
    for index, (i, j) in enumerate(games.pairs):
        games_of[[i, j]] += games.by_case[:, index].sum()
    rows = []
    for i, name in enumerate(games.systems):
        against = None
        if rule.baseline in games.systems:
            gap = float(theta[i] - theta[games.systems.index(str(rule.baseline))])
            up, down = math.exp(gap / 2), math.exp(-gap / 2)
            against = (up + tie / 2) / (up + down + tie)
        rows.append(
            RankedSystem(
                system=name,
                value=1000 + _ELO * float(theta[i]),
                n=int(games_of[i]),
                interval=_elo_interval(i, theta, spread, rule.level),
                level=rule.level,
                best_rank=1 + int(better[:, i].sum()),
                worst_rank=theta.size - int(better[i].sum()),
                beats_baseline=against,
                theta=float(theta[i]),
                method=spread.method,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-rounded(row.value, 6), row.system)))


def _clearly_better(theta: Array, spread: _Spread, level: float) -> NDArray[np.bool_]:
    """Return whether i is better than j, allowing for the number of pairs."""
    better = np.zeros((theta.size, theta.size), dtype=bool)
    if not spread.covariance.size:
        return better
    couples = [(i, j) for i in range(theta.size) for j in range(i + 1, theta.size)]
    p_values = []
    for i, j in couples:
        c = spread.covariance
        se = math.sqrt(max(0.0, float(c[i, i] + c[j, j] - 2 * c[i, j])))
        gap = abs(float(theta[i] - theta[j]))
        p_values.append(2 * float(special.stdtr(spread.df, -gap / se)) if se > 0 else 1.0)
    adjusted = holm(p_values, alpha=round(1 - level, 12))
    for (i, j), stands_out in zip(couples, adjusted.stands_out, strict=True):
        if stands_out:
            better[(i, j) if theta[i] > theta[j] else (j, i)] = True
    return np.asarray(better)


def _elo_interval(i: int, theta: Array, spread: _Spread, level: float) -> Range | None:
    if not spread.covariance.size:
        return None
    if spread.draws is not None:
        tail = (1 - level) / 2
        low, high = np.quantile(spread.draws[:, i], [tail, 1 - tail])
        # Half wins pull resamples to the middle; the estimate itself is never left out.
        low, high = min(float(low), float(theta[i])), max(float(high), float(theta[i]))
    else:
        reach = float(special.stdtrit(spread.df, 0.5 + level / 2)) * math.sqrt(
            spread.covariance[i, i]
        )
        low, high = float(theta[i]) - reach, float(theta[i]) + reach
    return Range(1000 + _ELO * low, 1000 + _ELO * high)
