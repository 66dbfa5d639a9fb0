"""Gates on the win rate.

Against the base, each case is worth 1, 0.5 or 0 to the head, and is held against the 0.5 of two
equal sides by the rule for scores (STATS 7, 7b and 11). Without a base a model's win rate is that
against the model listed first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.decide import wording
from edison_ci.decide.gates import Finding, allow_for_missing, levelled, unmeasured
from edison_ci.results.pairwise import first_listed, games_in, rate_of
from edison_ci.results.samples import Sample
from edison_ci.stats.arrays import Range, generator_for, seed_of
from edison_ci.stats.gates import identical_outputs
from edison_ci.stats.other_metrics import decide_win_rate
from edison_ci.stats.sentences import order_sentence
from edison_ci.stats.verdicts import GateRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.decide.gates import Question
    from edison_ci.results.pairwise import Game
    from edison_ci.results.samples import Subject, TwoSidedSample
    from edison_ci.stats.pairwise import WinRate
    from edison_ci.stats.verdicts import GateDecision

EVEN = 0.5
"""What a case is worth to either of two equal sides, and the most it can lose."""


def not_held_against(cells: TwoSidedSample, subject: Subject | None) -> str:
    """Say why a prompt with a model has no win rate; '' if it has one."""
    if subject is None or (subject.prompt, subject.model) not in first_listed(
        game for game in games_in(cells) if game.b.side == "head"
    ):
        return ""
    return f"{subject.model} is listed first: the others are compared with it."


def decide_wins(question: Question) -> Finding:
    """Decide a gate on the win rate."""
    against = question.gate.no_worse_than is not None
    games = _games(question, against_base=against)
    if not games:
        return Finding(unmeasured(question), lambda _: wording.unmeasured(question.gate))
    planned = _planned(question)
    clusters = {case: question.clusters[case] for case in planned if case in question.clusters}
    rate = rate_of(games, planned, clusters)
    names = ("head", "base") if games[0].b.side == "base" else (_named(question), games[0].b.model)
    limit = question.limit
    if limit is None:
        return _compared(question, games, rate, names)
    sample = _sample(games, planned, rate)
    decision = _noting(levelled(question, sample, limit), rate)
    return Finding(decision, lambda said: wording.win_level(said, rate, names, limit))


def _compared(
    question: Question, games: Sequence[Game], rate: WinRate, names: tuple[str, str]
) -> Finding:
    gate = question.gate
    margin = gate.effective_margin
    rule = GateRule(
        margin=min(max(EVEN * margin.value if margin.relative else margin.value, 1e-9), 1 - 1e-9),
        confidence=question.confidence,
        worst_case_drop=gate.worst_case_drop,
        fail_rule=gate.fail_rule,
        guarantee=gate.guarantee,
    )
    ids = sorted({game.case for game in games if game.value is not None})
    if rate.n and all(not game.asked and game.winner == "tie" for game in games):
        same = identical_outputs(rate.n, rule)
        decision = allow_for_missing(same, rate.excluded, lambda: True)
    else:
        decision = decide_win_rate(
            rate.wins,
            rule,
            rng=generator_for(ids),
            clusters=question.clusters_of(ids),
            missing=rate.excluded,
        )
    decision = _noting(_as_rate(decision, rate), rate)
    seed = None if decision.p is None else seed_of(ids)
    return Finding(decision, lambda said: wording.win_comparison(said, rate, names), seed)


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


def _noting(decision: GateDecision, rate: WinRate) -> GateDecision:
    """Add what makes the judge doubtful."""
    said = order_sentence(rate.order) if rate.order is not None else None
    return decision if said is None else replace(decision, notes=(*decision.notes, said))


# --- what counts ----------------------------------------------------------------------------------


def _games(question: Question, *, against_base: bool) -> list[Game]:
    cells = question.cells
    wanted = {(subject.prompt, subject.model) for subject in question.subjects}
    every = games_in(cells)
    if cells.draws is not None:
        every = [game for game in every if game.draw < cells.draws]
    mine = [game for game in every if (game.prompt, game.a.model) in wanted]
    base = [game for game in mine if game.b.side == "base"]
    if against_base or base:
        return base
    listed = first_listed(every)
    return [game for game in mine if (game.prompt, game.b.model) in listed]


def _planned(question: Question) -> list[str]:
    planned = (question.cells.planned(subject, "head") for subject in question.subjects)
    return sorted({case for cases in planned for case in cases})


def _sample(games: Sequence[Game], planned: Sequence[str], rate: WinRate) -> Sample:
    known = {game.case for game in games if game.value is not None}
    found = Sample(cases=[case for case in planned if case in known], missing=rate.excluded)
    found.values.extend(rate.wins)
    return found


def _named(question: Question) -> str:
    subjects = question.subjects
    return subjects[0].model if len(subjects) == 1 else "the others"
