"""One gate on one prompt with one model: from its cells to a finding.

A gate either keeps head inside a margin of base on the same cases, or above a floor or below a
ceiling. Scores and amounts are decided by inference, shares and latencies as they are (STATS 7 and
7b); win rates have their own module.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.decide import wording
from edison_ci.decide.missing_answers import allow_for_missing, as_planned, hold_at_worst
from edison_ci.numeric import NOISE, TOLERANCE, exceeds, mean, mean_or_none
from edison_ci.records import Side, Verdict
from edison_ci.results.comparison_sample import flip_pairs, joint_pairs
from edison_ci.results.human_grades import human_metric, human_sample, labels_of
from edison_ci.results.samples import SIDES, Sample, TwoSidedSample
from edison_ci.stats.arrays import generator_for, seed_of
from edison_ci.stats.corrected import LabelledScores, decide_corrected, favors_head
from edison_ci.stats.flips import decide_flips, flips_of
from edison_ci.stats.gates import (
    Limit,
    Spread,
    decide,
    decide_as_is,
    identical_outputs,
    spread_of,
)
from edison_ci.stats.gates import decide_level as decide_mean_level
from edison_ci.stats.other_metrics import (
    FEWEST_FOR_TAIL,
    FEWEST_FOR_TAIL_GATE,
    AmountRule,
    decide_amount,
    decide_tail,
    margin_in_points,
    tail_latency,
)
from edison_ci.stats.paired import Pairs
from edison_ci.stats.power import cases_for_margin
from edison_ci.stats.scores import units_of
from edison_ci.stats.verdicts import MOST_MISSING, GateDecision, GateRule, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.results.metrics import Metric
    from edison_ci.results.samples import Paired, Share, Variant


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
        confidence = self.gate.confidence if self.level is None else self.level
        return max(confidence, 0.5 + TOLERANCE)

    def clusters_of(self, cases: Sequence[str]) -> tuple[str, ...] | None:
        """Return the cluster of each case; a case without one is its own."""
        return units_of(cases, self.clusters)

    def sample(
        self, variants: Iterable[Variant], side: Side = Side.HEAD, lost_as: float | None = None
    ) -> Sample:
        """Return the values of a side, with the names of the cases only where they matter."""
        named = bool(self.clusters)
        return self.cells.sample(self.metric, variants, side, lost_as=lost_as, named=named)

    def rule(self, margin: float) -> GateRule:
        """Return the rule of a comparison with the base, at a margin in points."""
        return GateRule(
            margin=margin,
            confidence=self.confidence,
            worst_case_drop=self.gate.worst_case_drop,
            fail_rule=self.gate.fail_rule,
            guarantee=self.gate.guarantee,
        )

    def spread(self) -> tuple[Spread, float] | None:
        """Return how much scores differ from the base's, and the margin; None if they are equal.

        Equal answers on both sides do not show how much others would differ.
        """
        paired = self.cells.pairs(self.metric, self.variants)
        pairs, _ = _pairs(self, paired)
        if paired.same_answers or pairs.n < 2:
            return None
        rule = self.rule(self.points(pairs))
        spread = spread_of(pairs, rule)
        return None if spread is None else (spread, rule.margin)

    def points(self, pairs: Pairs) -> float:
        """Return the margin in points of 0-1; a relative one is a share of the base's mean."""
        margin = self.gate.effective_margin
        return margin_in_points(margin.value, pairs, relative=margin.relative)


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
        return tuple(part.finding.decision for part in self.slices) or (self.decision,)


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
    graded = human_sample(
        question.cells, metric, question.variants, compared=question.limit is None
    )
    if not graded.sample.n:
        picked = graded.sample.picked
        return Finding(unmeasured(question), lambda _: wording.unmeasured(gate, picked=picked))
    finding = _decide_measured(replace(question, metric=metric, cells=graded.cells))
    return replace(finding, say=lambda decision: f"{finding.say(decision)} {graded.sentence}")


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


def _scores(question: Question) -> Finding:
    paired = question.cells.pairs(question.metric, question.variants)
    pairs, missing = _pairs(question, paired)
    rule = question.rule(question.points(pairs))
    if _same(paired):
        decision = allow_for_missing(identical_outputs(pairs.n, rule), missing.count)
    else:
        labels = _labels(question, paired)
        if labels is not None:
            corrected = _correct_by_labels(question, paired, labels, rule)
            if corrected is not None:
                return corrected
        decision = decide(pairs, rule, rng=generator_for(paired.cases), missing=missing)
        decision = _limit_promise(decision, pairs, rule)
        if labels is not None and decision.verdict is Verdict.PASS:
            return _confirm_pass(question, paired, labels, decision)
    return _comparison_finding(question, paired, decision)


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


def _labels(question: Question, paired: Paired) -> _Labels | None:
    labels = labels_of(question.cells, question.metric, question.variants)
    if labels is None or not labels.sample.n:
        return None
    judge = _changes(paired)
    human = _changes(labels.cells.pairs(labels.metric, question.variants))
    both = {case: change for case, change in human.items() if case in judge}
    return _Labels(both, judge) if both else None


def _changes(paired: Paired) -> dict[str, float]:
    sides = zip(paired.cases, paired.base, paired.head, strict=True)
    return {case: mean(head) - mean(base) for case, base, head in sides}


def _correct_by_labels(
    question: Question, paired: Paired, labels: _Labels, rule: GateRule
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
    rng = generator_for(paired.cases)
    corrected = decide_corrected(data, rule, rng=rng, lost=_lost_scores(question, paired))
    if corrected is None:
        return None
    decision = corrected.decision
    if decision.verdict is Verdict.INCONCLUSIVE:
        decision = replace(decision, notes=(*decision.notes, wording.NEAR))
    # PASS already counts lost answers of the head as 0.
    decision = allow_for_missing(decision, paired.missing)
    by_people = wording.corrected(len(cases), corrected.judge)
    return Finding(
        decision,
        lambda final: f"{wording.comparison(final, question.metric)} {by_people}",
        seed_of(paired.cases),
        {"labels": len(cases), "trust": corrected.trust, "judge_estimate": corrected.judge},
    )


def _lost_scores(question: Question, paired: Paired) -> tuple[float, ...]:
    """Return by how much each case is lower with lost answers of the head as 0."""
    if not paired.lost:
        return ()
    worst = question.cells.pairs(question.metric, question.variants, lost_as=0.0)
    changes = _changes(paired)
    drops = (changes.get(case, 0.0) - change for case, change in _changes(worst).items())
    return tuple(drop for drop in drops if drop > NOISE)


def _confirm_pass(
    question: Question, paired: Paired, labels: _Labels, decision: GateDecision
) -> Finding:
    """Take back a pass by the judge's scores if labels show that the judge favors the head."""
    finding, cases = _comparison_finding(question, paired, decision), labels.cases
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
        lambda final: wording.not_confirmed(final, favor),
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
        needed = cases_for_margin(
            float(pairs.differences.std(ddof=1)),
            margin=room,
            alpha=rule.alpha,
            worst_case_drop=rule.worst_case_drop,
            power=rule.power,
        ).value
        more = None if needed is None else max(1, needed - decision.n)
    notes = (*decision.notes, wording.NEAR)
    return replace(decision, n_more=more, n_more_range=None, notes=notes)


def _flips(question: Question, limit: Limit) -> Finding:
    """Decide on cases that pass on the base and fail on the head."""
    counted = question.cells.flips(question.variants, question.clusters)[1]
    pairs, every = flip_pairs(question.cells, question.variants, question.clusters)
    lost = [
        drop
        for variant, paired in zip(question.variants, every, strict=True)
        for drop in _lost_scores(replace(question, variants=(variant,)), paired)
    ]
    if every and all(_same(paired) for paired in every):
        decision = replace(identical_outputs(pairs.n), kind="level", margin=limit.value)
    else:
        decision = decide_flips(
            pairs, limit.value, confidence=question.confidence, lost=lost, net=question.gate.net
        )
    missing = sum(paired.missing for paired in every)

    def at_base() -> GateDecision:
        """Decide again as if no answer that is missing had broken a case."""
        held = [
            as_planned(question.cells.pairs(question.metric, (variant,), lost_as="base"))
            for variant in question.variants
        ]
        pairs = joint_pairs(held, question.clusters)
        net = question.gate.net
        return decide_flips(pairs, limit.value, confidence=question.confidence, net=net)

    decision = allow_for_missing(decision, missing, at_base)
    seen = flips_of(pairs)
    net = question.gate.net
    return Finding(decision, lambda final: wording.flips(final, seen, counted, net=net))


def _amounts(question: Question) -> Finding:
    paired = question.cells.pairs(question.metric, question.variants)
    pairs, missing = _pairs(question, paired)
    rule = AmountRule(question.gate.effective_margin.value, question.confidence)
    if _same(paired):
        same = identical_outputs(pairs.n, GateRule(confidence=rule.confidence))
        decision = replace(same, kind="relative", margin=rule.margin)
    else:
        decision = decide_amount(pairs, rule, rng=generator_for(paired.cases))

    def passes_at_worst() -> bool:
        """Decide again with lost answers at the highest amount of all."""
        highest = max(max(amounts) for amounts in (*pairs.base, *pairs.head))
        worst, _ = _pairs(question, paired, lost_as=highest)
        again = decide_amount(worst, rule, rng=generator_for(paired.cases))
        return again.verdict is Verdict.PASS

    decision = hold_at_worst(decision, paired.lost, passes_at_worst)
    decision = allow_for_missing(decision, missing.count)
    return _comparison_finding(question, paired, decision)


def _comparison_finding(question: Question, paired: Paired, decision: GateDecision) -> Finding:
    seed = None if decision.p is None else seed_of(paired.cases)
    return Finding(decision, lambda final: wording.comparison(final, question.metric), seed)


def _tails(question: Question) -> Finding:
    base, head = (question.cells.latencies(question.variants, side) for side in SIDES)
    values = tail_latency(base).value, tail_latency(head).value
    decision = decide_tail(base, head, margin=question.gate.effective_margin.value)
    return Finding(
        _advise_tail(decision),
        lambda final: wording.tail_change(final, question.metric, values, FEWEST_FOR_TAIL),
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
        decision,
        lambda final: wording.share_change(final, question.metric, base, head, allowed_text),
    )


def _pairs(
    question: Question, paired: Paired, *, lost_as: float | None = None
) -> tuple[Pairs, Missing]:
    """Return the pairs, and what is missing; or the pairs with lost answers at a value."""
    if lost_as is not None:
        paired = question.cells.pairs(question.metric, question.variants, lost_as=lost_as)
    pairs = Pairs(tuple(paired.base), tuple(paired.head), question.clusters_of(paired.cases))
    worst = None
    if lost_as is None and paired.lost and question.metric.kind != "amount":
        worst, _ = _pairs(question, paired, lost_as=0.0)

    def at_base() -> Pairs:
        held = question.cells.pairs(question.metric, question.variants, lost_as="base")
        return joint_pairs([as_planned(held)], question.clusters)

    return pairs, Missing(paired.missing, paired.lost, worst, at_base)


def _same(paired: Paired) -> bool:
    """Whether both sides have the same answers, with few of them missing and none lost."""
    planned = len(paired.cases) + paired.missing
    return (
        bool(paired.cases)
        and paired.same_answers
        and not paired.lost
        and not exceeds(paired.missing, MOST_MISSING * planned)
    )


def _score_level(question: Question, limit: Limit) -> Finding:
    decision = decide_level(question, *_level_samples(question, limit), limit)
    return Finding(
        decision,
        lambda final: f"{wording.level(final, question.metric)}{_base_too(question, limit, final)}",
    )


def _pass_level(question: Question, limit: Limit) -> Finding:
    sample, worst = _level_samples(question, limit)
    if question.gate.counts:
        return _every_pass(question, sample, limit)
    decision = decide_level(question, sample, worst, limit)

    def say(final: GateDecision) -> str:
        sentence = wording.pass_level(final, limit, whole=sample.single)
        return f"{sentence}{_base_too(question, limit, final)}"

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

    def say(final: GateDecision) -> str:
        return f"{wording.every_pass(final, failed)}{_base_too(question, limit, final)}"

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
    return sample, question.sample(question.variants, lost_as=_worst(limit))


def _worst(limit: Limit) -> float:
    return 0.0 if limit.wanted == "at_least" else 1.0


def decide_level(
    question: Question, sample: Sample, worst: Sample | None, limit: Limit
) -> GateDecision:
    """Decide on a mean of cases; it passes only if it would with lost answers at their worst."""

    def decided(cases: Sample) -> GateDecision:
        return decide_mean_level(
            cases.values,
            limit,
            clusters=question.clusters_of(cases.cases),
            confidence=question.confidence,
        )

    decision = decided(sample)
    if worst is not None:
        lost = max(1, len(worst.values) - len(sample.values))
        decision = hold_at_worst(decision, lost, lambda: decided(worst).verdict is Verdict.PASS)

    def at_best() -> GateDecision:
        """Decide again as if every answer that is missing were as good as can be."""
        best = question.sample(question.variants, lost_as=1 - _worst(limit))
        return decided(best) if not best.missing else decided(sample)

    return allow_for_missing(decision, sample.missing, at_best)


def _amount_level(question: Question, limit: Limit) -> Finding:
    sample = question.sample(question.variants)
    n = len(sample.values)
    amount = mean_or_none(sample.values)
    decision = allow_for_missing(decide_as_is(amount, n, limit), sample.missing)
    return Finding(decision, lambda final: wording.amount_level(final, question.metric, limit))


def _tail_level(question: Question, limit: Limit) -> Finding:
    tail = tail_latency(question.cells.latencies(question.variants, Side.HEAD))
    decision = _advise_tail(decide_as_is(tail.value, tail.n, limit, advisory=tail.advisory))
    return Finding(
        decision,
        lambda final: wording.tail_level(final, question.metric, limit, fewest=FEWEST_FOR_TAIL),
    )


def _share_level(question: Question, limit: Limit) -> Finding:
    share = _share(question, Side.HEAD)
    decision = decide_as_is(share.value, share.of, limit)
    return Finding(
        decision, lambda final: wording.share_level(final, question.metric, share, limit)
    )


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


def unmeasured(question: Question) -> GateDecision:
    """Return the decision of a gate on something that the run has not measured."""
    limit = question.limit
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None,
        n=0,
        method="none: not measured",
        level=question.confidence,
        margin=question.gate.effective_margin.value if limit is None else limit.value,
        kind="change" if limit is None else "level",
    )
