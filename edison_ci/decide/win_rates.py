"""Gates on win rates: how often a pairwise judge prefers the head, or a model.

Against the base, each case counts 1, 0.5 or 0 for the head, and is compared with the 0.5 of two
equal sides by the rule for scores. Without a base a model is compared with the one listed first
(STATS 11).
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.decide import wording
from edison_ci.decide.gates import Finding, Question, decide_level, unmeasured
from edison_ci.decide.missing_answers import allow_for_missing
from edison_ci.numeric import TOLERANCE
from edison_ci.records import Side
from edison_ci.results.pairwise import first_listed, games_in, rate_of
from edison_ci.results.samples import Sample, TwoSidedSample
from edison_ci.stats.arrays import Range, generator_for, seed_of
from edison_ci.stats.gates import identical_outputs
from edison_ci.stats.other_metrics import decide_win_rate
from edison_ci.stats.sentences import order_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.results.pairwise import ComparedPair
    from edison_ci.results.samples import Variant
    from edison_ci.stats.pairwise import WinRate
    from edison_ci.stats.verdicts import GateDecision


EVEN = 0.5
"""Win rate of two equal sides, and the most that a case can lose."""


def why_no_win_rate(cells: TwoSidedSample, variant: Variant | None) -> str:
    """Return why a prompt with a model has no win rate; '' if it has one."""
    if variant is None or (variant.prompt, variant.model) not in first_listed(
        game for game in games_in(cells) if game.b.side == Side.HEAD
    ):
        return ""
    return f"{variant.model} is listed first: the others are compared with it."


def decide_wins(question: Question) -> Finding:
    """Decide a gate on the win rate."""
    against = question.gate.no_worse_than is not None
    games = _pairs_of(question, against_base=against)
    if not games:
        return Finding(unmeasured(question), lambda _: wording.unmeasured(question.gate))
    planned = _planned_cases(question)
    clusters = {case: question.clusters[case] for case in planned if case in question.clusters}
    rate = rate_of(games, planned, clusters)
    names = (
        ("head", "base")
        if games[0].b.side == Side.BASE
        else (_model_name(question), games[0].b.model)
    )
    limit = question.limit
    if limit is None:
        return _wins_against_base(question, games, rate, names)
    sample = _win_sample(games, planned, rate)
    worst = None
    if sample.missing:
        values_by_case = dict(zip(sample.cases, sample.values, strict=True))
        lost = 0.0 if limit.wanted == "at_least" else 1.0
        values = array("d", (values_by_case.get(case, lost) for case in planned))
        worst = Sample(cases=list(planned), values=values)
    decision = _note_order(decide_level(question, sample, worst, limit), rate)
    return Finding(decision, lambda final: wording.win_level(final, rate, names, limit))


def _wins_against_base(
    question: Question, games: Sequence[ComparedPair], rate: WinRate, names: tuple[str, str]
) -> Finding:
    margin = question.gate.effective_margin
    even = EVEN * margin.value if margin.relative else margin.value
    rule = question.rule(min(max(even, TOLERANCE), 1 - TOLERANCE))
    ids = sorted({game.case for game in games if game.value is not None})
    if rate.n and all(not game.asked and game.winner == "tie" for game in games):
        same = identical_outputs(rate.n, rule)
        decision = allow_for_missing(same, rate.excluded)
    else:
        decision = decide_win_rate(
            rate.wins,
            rule,
            rng=generator_for(ids),
            clusters=question.clusters_of(ids),
            missing=rate.excluded,
        )
    decision = _note_order(_as_rate(decision, rate), rate)
    seed = None if decision.p is None else seed_of(ids)
    return Finding(decision, lambda final: wording.win_comparison(final, rate, names), seed)


def _as_rate(decision: GateDecision, rate: WinRate) -> GateDecision:
    """Return a decision on w - 0.5 with its numbers as win rates."""

    def moved(value: float | None) -> float | None:
        return None if value is None else min(1.0, max(0.0, value + EVEN))

    return replace(
        decision,
        kind="level",
        value=rate.value,
        interval=None if rate.interval is None else Range(*rate.interval),
        margin=EVEN - decision.margin,
        worst_plausible=moved(decision.worst_plausible),
        best_plausible=moved(decision.best_plausible),
    )


def _note_order(decision: GateDecision, rate: WinRate) -> GateDecision:
    """Add a note if the judge prefers one of the two orders."""
    note = order_sentence(rate.order) if rate.order is not None else None
    return decision if note is None else replace(decision, notes=(*decision.notes, note))


def _pairs_of(question: Question, *, against_base: bool) -> list[ComparedPair]:
    cells = question.cells
    variants = {(variant.prompt, variant.model) for variant in question.variants}
    every = games_in(cells)
    if cells.repeats is not None:
        every = [game for game in every if game.repeat < cells.repeats]
    mine = [game for game in every if (game.prompt, game.a.model) in variants]
    base = [game for game in mine if game.b.side == Side.BASE]
    if against_base or base:
        return base
    listed = first_listed(every)
    return [game for game in mine if (game.prompt, game.b.model) in listed]


def _planned_cases(question: Question) -> list[str]:
    planned = (question.cells.case_ids(variant, Side.HEAD) for variant in question.variants)
    return sorted({case for cases in planned for case in cases})


def _win_sample(games: Sequence[ComparedPair], planned: Sequence[str], rate: WinRate) -> Sample:
    compared = {game.case for game in games if game.value is not None}
    sample = Sample(cases=[case for case in planned if case in compared], missing=rate.excluded)
    sample.values.extend(rate.wins)
    return sample


def _model_name(question: Question) -> str:
    variants = question.variants
    return variants[0].model if len(variants) == 1 else "the others"
