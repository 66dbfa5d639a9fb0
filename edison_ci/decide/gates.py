"""One gate on one prompt with one model: from its cells to a finding.

A gate either keeps head inside a margin of base on the same cases, or above a floor or below a
ceiling. Scores, amounts and win rates are decided by inference, shares and latencies as they are
(STATS 7, 7b and 11).
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.decide import wording
from edison_ci.numeric import NOISE, exceeds, mean, mean_or_none
from edison_ci.records import Side, Verdict
from edison_ci.results.human_grades import human_metric, human_sample, labels_of
from edison_ci.results.pairwise import first_listed, games_in, rate_of
from edison_ci.results.samples import SIDES, Metric, Sample, TwoSidedSample
from edison_ci.stats.arrays import Range, generator_for, seed_of
from edison_ci.stats.corrected import LabelledScores, decide_corrected, favors_head
from edison_ci.stats.flips import decide_flips, flips_of
from edison_ci.stats.gates import (
    Limit,
    Spread,
    decide,
    decide_as_is,
    identical_outputs,
    lost_words,
    spread_of,
)
from edison_ci.stats.gates import decide_level as decide_mean_level
from edison_ci.stats.other_metrics import (
    FEWEST_FOR_TAIL,
    FEWEST_FOR_TAIL_GATE,
    AmountRule,
    decide_amount,
    decide_tail,
    decide_win_rate,
    points_margin,
    tail_latency,
)
from edison_ci.stats.paired import Pairs
from edison_ci.stats.power import cases_for_margin
from edison_ci.stats.sentences import order_sentence
from edison_ci.stats.verdicts import MOST_MISSING, WARN_MISSING, GateDecision, GateRule, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.results.pairwise import ComparedPair
    from edison_ci.results.samples import Paired, Share, Variant
    from edison_ci.stats.pairwise import WinRate


_SMALLEST_MARGIN = 1e-9
"""Used for a margin of 0, which no bound can keep exactly."""


@dataclass(frozen=True, slots=True)
class Question:
    """A gate and the cells that it decides on."""

    gate: Gate
    metric: Metric
    cells: TwoSidedSample
    variants: tuple[Variant, ...]
    clusters: Mapping[str, str]
    level: float | None = None
    """Confidence at an interim analysis; None for the gate's own."""

    @property
    def limit(self) -> Limit | None:
        """The floor or ceiling; None for a comparison with the base."""
        if self.gate.at_least is not None:
            return Limit(self.gate.at_least, "at_least")
        return None if self.gate.at_most is None else Limit(self.gate.at_most, "at_most")

    @property
    def confidence(self) -> float:
        """Confidence of the gate, always more than 0.5."""
        wanted = self.gate.confidence if self.level is None else self.level
        return max(wanted, 0.5 + _SMALLEST_MARGIN)

    def clusters_of(self, cases: Sequence[str]) -> tuple[str, ...] | None:
        """Return the cluster of each case; a case without one is a cluster of its own."""
        if not any(case in self.clusters for case in cases):
            return None
        return tuple(self.clusters.get(case, f"\0alone {case}") for case in cases)

    def sample(
        self, variants: Iterable[Variant], side: Side = Side.HEAD, lost_as: float | None = None
    ) -> Sample:
        """Return the values of a side, with the names of the cases only where they matter."""
        named = bool(self.clusters)
        return self.cells.sample(self.metric, variants, side, lost_as=lost_as, named=named)

    def rule(self, pairs: Pairs) -> GateRule:
        """Return the rule of a comparison of scores with the base."""
        return GateRule(
            margin=self.points(pairs),
            confidence=self.confidence,
            worst_case_drop=self.gate.worst_case_drop,
            fail_rule=self.gate.fail_rule,
            guarantee=self.gate.guarantee,
        )

    def spread(self) -> tuple[Spread, float] | None:
        """Return how much scores differ from the base's, and the margin; None if they are equal.

        Equal answers on both sides tell nothing about how much others would differ.
        """
        found = self.cells.pairs(self.metric, self.variants)
        pairs, _ = _pairs(self, found)
        if found.same_answers or pairs.n < 2:
            return None
        rule = self.rule(pairs)
        spread = spread_of(pairs, rule)
        return None if spread is None else (spread, rule.margin)

    def points(self, pairs: Pairs) -> float:
        """Return the margin in points of 0-1; a relative one is a share of the base's mean."""
        margin = self.gate.effective_margin
        value = margin.value
        if margin.relative and pairs.n:
            value = points_margin(margin.value, pairs.means("base"))
        return min(max(value, _SMALLEST_MARGIN), 1 - _SMALLEST_MARGIN)


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of a gate, before its p-value is corrected for the other gates."""

    decision: GateDecision
    say: Callable[[GateDecision], str]
    """Returns the sentence for the decision, which the other gates may have changed."""
    seed: int | None = None
    """Seed of the random numbers; None if there were none."""
    labels: Mapping[str, float] | None = None
    """The human labels that took part, and what they changed; None if there were none."""
    slices: tuple[SliceFinding, ...] = ()
    """Findings of the slices of a gate on the worst of them; empty for other gates."""
    small: tuple[tuple[str, int], ...] = ()
    """Slices that are too small to decide, with their cases."""

    @property
    def decisions(self) -> tuple[GateDecision, ...]:
        """The decisions that join the family of all gates."""
        return tuple(one.finding.decision for one in self.slices) or (self.decision,)


@dataclass(frozen=True, slots=True)
class SliceFinding:
    """Finding of a gate on the cases with one tag."""

    tag: str
    finding: Finding


def decide_gate(question: Question) -> Finding:
    """Decide a gate on its own."""
    if question.gate.use == "human":
        return _decide_human(question)
    return _decide_measured(question)


def _decide_human(question: Question) -> Finding:
    """Decide on the cases that people have graded, if they are a random sample."""
    gate, metric = question.gate, human_metric(question.metric)
    found = human_sample(question.cells, metric, question.variants, compared=question.limit is None)
    if not found.sample.n:
        picked = found.sample.picked
        return Finding(unmeasured(question), lambda _: wording.unmeasured(gate, picked=picked))
    finding = _decide_measured(replace(question, metric=metric, cells=found.cells))
    return replace(finding, say=lambda decision: f"{finding.say(decision)} {found.sentence}")


def _decide_measured(question: Question) -> Finding:
    kind, limit = question.metric.kind, question.limit
    if limit is None:
        compared = {"amount": _amounts, "latency": _tails, "share": _shares}
        return compared.get(kind, _scores)(question)
    levels = {
        "pass": _pass_level,
        "flips": _flips,
        "amount": _amount_level,
        "latency": _tail_level,
        "share": _share_level,
    }
    return levels.get(kind, _score_level)(question, limit)


# --- against the base -----------------------------------------------------------------------------


def _scores(question: Question) -> Finding:
    found = question.cells.pairs(question.metric, question.variants)
    pairs, missing = _pairs(question, found)
    rule = question.rule(pairs)
    if _same(found):
        decision = allow_for_missing(identical_outputs(pairs.n, rule), missing.count)
    else:
        labels = _labels(question, found)
        if labels is not None:
            corrected = _correct_by_labels(question, found, labels, rule)
            if corrected is not None:
                return corrected
        decision = decide(pairs, rule, rng=generator_for(found.cases), missing=missing)
        decision = _limit_promise(decision, pairs, rule)
        if labels is not None and decision.verdict is Verdict.PASS:
            return _confirm_pass(question, found, labels, decision)
    return _comparison_finding(question, found, decision)


# --- judges against people ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Labels:
    """Changes from the base by people, of a random sample of the cases, and by the judge."""

    human: Mapping[str, float]
    judge: Mapping[str, float]
    """Of all cases."""

    @property
    def cases(self) -> list[str]:
        """The labelled ones."""
        return sorted(self.human)

    @property
    def others(self) -> list[str]:
        return [case for case in self.judge if case not in self.human]


def _labels(question: Question, found: Paired) -> _Labels | None:
    labels = labels_of(question.cells, question.metric, question.variants)
    if labels is None or not labels.sample.n:
        return None
    judge = _changes(found)
    human = _changes(labels.cells.pairs(labels.metric, question.variants))
    both = {case: change for case, change in human.items() if case in judge}
    return _Labels(both, judge) if both else None


def _changes(found: Paired) -> dict[str, float]:
    sides = zip(found.cases, found.base, found.head, strict=True)
    return {case: mean(head) - mean(base) for case, base, head in sides}


def _correct_by_labels(
    question: Question, found: Paired, labels: _Labels, rule: GateRule
) -> Finding | None:
    """Decide on changes that human labels of both sides correct, if there are enough labels."""
    cases, others = labels.cases, labels.others
    clusters = question.clusters_of([*cases, *others])
    data = LabelledScores(
        human=[labels.human[case] for case in cases],
        judge=[labels.judge[case] for case in cases],
        unlabelled=[labels.judge[case] for case in others],
        clusters=None if clusters is None else (clusters[: len(cases)], clusters[len(cases) :]),
    )
    rng = generator_for(found.cases)
    corrected = decide_corrected(data, rule, rng=rng, lost=_lost_scores(question, found))
    if corrected is None:
        return None
    decision = corrected.decision
    if decision.verdict is Verdict.INCONCLUSIVE:
        decision = replace(decision, notes=(*decision.notes, wording.NEAR))
    # PASS already counts lost answers of the head as 0.
    decision = allow_for_missing(decision, found.missing)
    said = wording.corrected(len(cases), corrected.judge)
    return Finding(
        decision,
        lambda told: f"{wording.comparison(told, question.metric)} {said}",
        seed_of(found.cases),
        {"labels": len(cases), "trust": corrected.trust, "judge_estimate": corrected.judge},
    )


def _lost_scores(question: Question, found: Paired) -> tuple[float, ...]:
    """Return by how much each case is lower with lost answers of the head as 0."""
    if not found.lost:
        return ()
    worst = question.cells.pairs(question.metric, question.variants, lost_as=0.0)
    known = {
        case: mean(head) - mean(base)
        for case, base, head in zip(found.cases, found.base, found.head, strict=True)
    }
    drops = (
        known.get(case, 0.0) - (mean(head) - mean(base))
        for case, base, head in zip(worst.cases, worst.base, worst.head, strict=True)
    )
    return tuple(drop for drop in drops if drop > NOISE)


def _confirm_pass(
    question: Question, found: Paired, labels: _Labels, decision: GateDecision
) -> Finding:
    """Take back a pass by the judge's scores if labels show that the judge favors the head."""
    finding, cases = _comparison_finding(question, found, decision), labels.cases
    favor = favors_head(
        [labels.human[case] for case in cases],
        [labels.judge[case] for case in cases],
        rng=generator_for(cases),
        clusters=question.clusters_of(cases),
    )
    if favor.p.value > round(1 - question.confidence, 12):
        return finding
    return Finding(
        replace(decision, verdict=Verdict.INCONCLUSIVE, n_more=None),
        lambda told: wording.not_confirmed(told, favor),
        finding.seed,
        {"labels": favor.n, "judge_favors_head": favor.value, "p": favor.p.value},
    )


def _limit_promise(decision: GateDecision, pairs: Pairs, rule: GateRule) -> GateDecision:
    """Do not promise a verdict from further cases where the number of cases is not the problem.

    `n_needed` assumes an unchanged head. With that many cases and still no verdict there may be a
    real drop close to the margin; then the number is computed for the distance that is left.
    """
    if decision.verdict is not Verdict.INCONCLUSIVE or decision.value is None:
        return decision
    if any("missing" in note and ": " in note for note in decision.notes):
        return replace(decision, n_more=None, n_more_range=None)
    if decision.n_needed is None or decision.n < decision.n_needed:
        return decision
    more, room = None, rule.margin + decision.value
    if room > 0 and pairs.clusters is None:
        wanted = cases_for_margin(
            float(pairs.differences.std(ddof=1)),
            margin=room,
            alpha=rule.alpha,
            worst_case_drop=rule.worst_case_drop,
            power=rule.power,
        ).value
        more = None if wanted is None else max(1, wanted - decision.n)
    notes = (*decision.notes, wording.NEAR)
    return replace(decision, n_more=more, n_more_range=None, notes=notes)


def _flips(question: Question, limit: Limit) -> Finding:
    """Decide on cases that pass on the base and fail on the head.

    Over several variants each case is a cluster: its flips come from one change.
    """
    counted = question.cells.flips(question.variants, question.clusters)[1]
    every = [question.cells.pairs(question.metric, (variant,)) for variant in question.variants]
    cases = [case for found in every for case in found.cases]
    clusters = question.clusters_of(cases)
    if clusters is None and len(every) > 1:
        clusters = tuple(cases)
    pairs = Pairs(
        tuple(repeats for found in every for repeats in found.base),
        tuple(repeats for found in every for repeats in found.head),
        clusters,
    )
    lost = [
        drop
        for variant, found in zip(question.variants, every, strict=True)
        for drop in _lost_scores(replace(question, variants=(variant,)), found)
    ]
    if every and all(_same(found) for found in every):
        decision = replace(identical_outputs(pairs.n), kind="level", margin=limit.value)
    else:
        decision = decide_flips(pairs, limit.value, confidence=question.confidence, lost=lost)
    missing = sum(found.missing for found in every)
    decision = allow_for_missing(decision, missing)
    seen = flips_of(pairs)
    return Finding(decision, lambda said: wording.flips(said, seen, counted))


def _amounts(question: Question) -> Finding:
    found = question.cells.pairs(question.metric, question.variants)
    pairs, missing = _pairs(question, found)
    rule = AmountRule(question.gate.effective_margin.value, question.confidence)
    if _same(found):
        same = identical_outputs(pairs.n, GateRule(confidence=rule.confidence))
        decision = replace(same, kind="relative", margin=rule.margin)
    else:
        decision = decide_amount(pairs, rule, rng=generator_for(found.cases))

    def passes_at_worst() -> bool:
        """Decide again with lost answers at the highest amount of all."""
        highest = max(max(amounts) for amounts in (*pairs.base, *pairs.head))
        worst, _ = _pairs(question, found, lost_as=highest)
        again = decide_amount(worst, rule, rng=generator_for(found.cases))
        return again.verdict is Verdict.PASS

    decision = hold_at_worst(decision, found.lost, passes_at_worst)
    return _comparison_finding(question, found, allow_for_missing(decision, missing.count))


def _comparison_finding(question: Question, found: Paired, decision: GateDecision) -> Finding:
    seed = None if decision.p is None else seed_of(found.cases)
    return Finding(decision, lambda said: wording.comparison(said, question.metric), seed)


def _tails(question: Question) -> Finding:
    base, head = (question.cells.latencies(question.variants, side) for side in SIDES)
    values = tail_latency(base).value, tail_latency(head).value
    decision = decide_tail(base, head, margin=question.gate.effective_margin.value)
    return Finding(
        _advise_tail(decision),
        lambda said: wording.tail_change(said, question.metric, values, FEWEST_FOR_TAIL),
    )


def _shares(question: Question) -> Finding:
    base, head = (_share(question, side) for side in SIDES)
    margin = question.gate.effective_margin
    if base.value is None or head.value is None:
        decision, value = decide_as_is(None, 0, Limit(margin.value, "at_most")), None
    else:
        allowed = margin.value * base.value if margin.relative else margin.value
        limit = Limit(base.value + allowed, "at_most")
        decision, value = decide_as_is(head.value, head.of, limit), head.value - base.value
    decision = replace(decision, kind="change", value=value, margin=margin.value)
    unit = "%" if margin.relative else " points"
    allowed_text = f"{100 * margin.value:g}{unit}"
    return Finding(
        decision, lambda said: wording.share_change(said, question.metric, base, head, allowed_text)
    )


def _pairs(
    question: Question, found: Paired, *, lost_as: float | None = None
) -> tuple[Pairs, Missing]:
    """Return the pairs, and what is missing; or the pairs with lost answers at a value."""
    if lost_as is not None:
        found = question.cells.pairs(question.metric, question.variants, lost_as=lost_as)
    pairs = Pairs(tuple(found.base), tuple(found.head), question.clusters_of(found.cases))
    worst = None
    if lost_as is None and found.lost and question.metric.kind != "amount":
        worst, _ = _pairs(question, found, lost_as=0.0)
    return pairs, Missing(found.missing, found.lost, worst)


def _same(found: Paired) -> bool:
    """Whether both sides have the same answers, with few of them missing and none lost."""
    planned = len(found.cases) + found.missing
    return (
        bool(found.cases)
        and found.same_answers
        and not found.lost
        and not exceeds(found.missing, MOST_MISSING * planned)
    )


# --- floors and ceilings --------------------------------------------------------------------------


def _score_level(question: Question, limit: Limit) -> Finding:
    decision = decide_level(question, *_level_samples(question, limit), limit)
    return Finding(
        decision,
        lambda said: f"{wording.level(said, question.metric)}{_base_too(question, limit, said)}",
    )


def _pass_level(question: Question, limit: Limit) -> Finding:
    sample, worst = _level_samples(question, limit)
    if question.gate.counts:
        return _every_pass(question, sample, limit)
    decision = decide_level(question, sample, worst, limit)

    def say(said: GateDecision) -> str:
        told = wording.pass_level(said, limit, whole=sample.single)
        return f"{told}{_base_too(question, limit, said)}"

    return Finding(decision, say)


def _every_pass(question: Question, sample: Sample, limit: Limit) -> Finding:
    """Count: no number of cases shows that all others would pass too (STATS 5)."""
    decision = decide_as_is(mean_or_none(sample.values), len(sample.values), limit)
    decision = hold_at_worst(decision, sample.lost, lambda: False)
    if decision.verdict is Verdict.FAIL:
        decision = replace(decision, missing=sample.missing)
    else:
        decision = allow_for_missing(decision, sample.missing)
    failed = sum(value < 1 for value in sample.values)

    def say(said: GateDecision) -> str:
        return f"{wording.every_pass(said, failed)}{_base_too(question, limit, said)}"

    return Finding(decision, say)


def _base_too(question: Question, limit: Limit, decision: GateDecision) -> str:
    """Return that the base fails a floor or ceiling as well, where it was measured and does."""
    if decision.verdict is not Verdict.FAIL:
        return ""
    bases = frozenset(question.cells.variants(Side.BASE))
    variants = [variant for variant in question.variants if variant in bases]
    if not variants:
        return ""
    sample = question.sample(variants, Side.BASE)
    if question.gate.counts:
        missed = any(value < 1 for value in sample.values)
    else:
        missed = decide_level(question, sample, None, limit).verdict is Verdict.FAIL
    return f" {wording.BASE_TOO}" if missed else ""


def _level_samples(question: Question, limit: Limit) -> tuple[Sample, Sample | None]:
    """Return the cases, and all cases with lost answers at their worst if any is lost."""
    sample = question.sample(question.variants)
    if not sample.lost:
        return sample, None
    worst = 0.0 if limit.wanted == "at_least" else 1.0
    return sample, question.sample(question.variants, lost_as=worst)


def decide_level(
    question: Question, sample: Sample, worst: Sample | None, limit: Limit
) -> GateDecision:
    """Decide on a mean of cases; it passes only if it would with lost answers at their worst."""

    def decided(found: Sample) -> GateDecision:
        return decide_mean_level(
            found.values,
            limit,
            clusters=question.clusters_of(found.cases),
            confidence=question.confidence,
        )

    decision = decided(sample)
    if worst is not None:
        lost = max(1, len(worst.values) - len(sample.values))
        decision = hold_at_worst(decision, lost, lambda: decided(worst).verdict is Verdict.PASS)
    return allow_for_missing(decision, sample.missing)


def _amount_level(question: Question, limit: Limit) -> Finding:
    sample = question.sample(question.variants)
    n = len(sample.values)
    amount = mean_or_none(sample.values)
    decision = allow_for_missing(decide_as_is(amount, n, limit), sample.missing)
    return Finding(decision, lambda said: wording.amount_level(said, question.metric, limit))


def _tail_level(question: Question, limit: Limit) -> Finding:
    tail = tail_latency(question.cells.latencies(question.variants, Side.HEAD))
    decision = _advise_tail(decide_as_is(tail.value, tail.n, limit, advisory=tail.advisory))
    return Finding(
        decision,
        lambda said: wording.tail_level(said, question.metric, limit, fewest=FEWEST_FOR_TAIL),
    )


def _share_level(question: Question, limit: Limit) -> Finding:
    share = _share(question, Side.HEAD)
    decision = decide_as_is(share.value, share.of, limit)
    return Finding(decision, lambda said: wording.share_level(said, question.metric, share, limit))


# --- what holds for all ---------------------------------------------------------------------------


def _share(question: Question, side: Side) -> Share:
    name, cells = question.metric.name, question.cells
    if name == "errors":
        return cells.errors(question.variants, side)
    return cells.flagged(name.partition(".")[2], question.variants, side)


def _advise_tail(decision: GateDecision) -> GateDecision:
    """Keep a latency gate from failing on fewer calls than it needs."""
    if decision.n >= FEWEST_FOR_TAIL_GATE or decision.verdict is Verdict.INCONCLUSIVE:
        return decision
    decision = replace(
        decision, notes=(f"advisory: it takes {FEWEST_FOR_TAIL_GATE} calls to fail",)
    )
    if decision.verdict is Verdict.PASS:
        return decision
    more = FEWEST_FOR_TAIL_GATE - decision.n
    return replace(decision, verdict=Verdict.INCONCLUSIVE, n_more=more)


def hold_at_worst(
    decision: GateDecision, lost: int, passes_at_worst: Callable[[], bool]
) -> GateDecision:
    """Keep a gate from passing if it would not with lost answers at their worst."""
    if not lost or decision.verdict is not Verdict.PASS or passes_at_worst():
        return decision
    notes = (*decision.notes, lost_words(lost))
    return replace(decision, verdict=Verdict.INCONCLUSIVE, n_more=None, notes=notes)


def allow_for_missing(decision: GateDecision, missing: int) -> GateDecision:
    """Apply the rule for missing cases (STATS 7) to a decision that does not include it."""
    total = decision.n + missing
    decision = replace(decision, missing=missing)
    if not decision.n or not exceeds(missing, WARN_MISSING * total):
        return decision
    note = f"{missing:,} of {total:,} cases are missing"
    if not exceeds(missing, MOST_MISSING * total):
        return replace(decision, notes=(*decision.notes, note))
    notes = (*decision.notes, f"{note}: too many to decide")
    return replace(decision, verdict=Verdict.INCONCLUSIVE, n_more=None, notes=notes)


def unmeasured(question: Question) -> GateDecision:
    """Return the decision of a gate on something that the run has not measured."""
    limit = question.limit
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None,
        n=0,
        method="none: not measured",
        interval=None,
        level=question.confidence,
        margin=question.gate.effective_margin.value if limit is None else limit.value,
        kind="change" if limit is None else "level",
    )


# --- win rates ------------------------------------------------------------------------------------
# Against the base, each case counts 1, 0.5 or 0 for the head, and is compared with the 0.5 of two
# equal sides by the rule for scores. Without a base a model is compared with the one listed first.

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
        known = dict(zip(sample.cases, sample.values, strict=True))
        lost = 0.0 if limit.wanted == "at_least" else 1.0
        values = array("d", (known.get(case, lost) for case in planned))
        worst = Sample(cases=list(planned), values=values)
    decision = _note_order(decide_level(question, sample, worst, limit), rate)
    return Finding(decision, lambda said: wording.win_level(said, rate, names, limit))


def _wins_against_base(
    question: Question, games: Sequence[ComparedPair], rate: WinRate, names: tuple[str, str]
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


def _note_order(decision: GateDecision, rate: WinRate) -> GateDecision:
    """Add a note if the judge prefers one of the two orders."""
    note = order_sentence(rate.order) if rate.order is not None else None
    return decision if note is None else replace(decision, notes=(*decision.notes, note))


def _pairs_of(question: Question, *, against_base: bool) -> list[ComparedPair]:
    cells = question.cells
    wanted = {(variant.prompt, variant.model) for variant in question.variants}
    every = games_in(cells)
    if cells.repeats is not None:
        every = [game for game in every if game.repeat < cells.repeats]
    mine = [game for game in every if (game.prompt, game.a.model) in wanted]
    base = [game for game in mine if game.b.side == Side.BASE]
    if against_base or base:
        return base
    listed = first_listed(every)
    return [game for game in mine if (game.prompt, game.b.model) in listed]


def _planned_cases(question: Question) -> list[str]:
    planned = (question.cells.case_ids(variant, Side.HEAD) for variant in question.variants)
    return sorted({case for cases in planned for case in cases})


def _win_sample(games: Sequence[ComparedPair], planned: Sequence[str], rate: WinRate) -> Sample:
    known = {game.case for game in games if game.value is not None}
    found = Sample(cases=[case for case in planned if case in known], missing=rate.excluded)
    found.values.extend(rate.wins)
    return found


def _model_name(question: Question) -> str:
    variants = question.variants
    return variants[0].model if len(variants) == 1 else "the others"
