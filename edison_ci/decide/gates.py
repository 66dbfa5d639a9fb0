"""One gate on one prompt with one model: from the numbers to what it finds.

A gate either keeps head inside a margin of base on the same cases, or above a floor or below a
ceiling. Scores and amounts are decided by inference, shares and latencies as they are (STATS 7b).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.decide import wording
from edison_ci.results.human_grades import grading_seeds
from edison_ci.results.samples import SIDES, Metric, TwoSidedSample
from edison_ci.rounding import TOLERANCE, exceeds, mean_or_none
from edison_ci.stats.arrays import generator_for, seed_of
from edison_ci.stats.gates import decide, identical_outputs
from edison_ci.stats.levels import Limit, decide_as_is, decide_pass_level, decide_score_level
from edison_ci.stats.other_metrics import (
    FEWEST_FOR_TAIL,
    FEWEST_FOR_TAIL_GATE,
    AmountRule,
    decide_amount,
    decide_tail,
    points_margin,
    tail_latency,
)
from edison_ci.stats.paired import Pairs
from edison_ci.stats.power import cases_for_margin
from edison_ci.stats.sampling import random_sample
from edison_ci.stats.verdicts import (
    MOST_MISSING,
    WARN_MISSING,
    GateDecision,
    GateRule,
    Missing,
    Verdict,
)
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.results.samples import Paired, Sample, Share, Side, Subject
    from edison_ci.stats.sampling import RandomSample


# People grade some of the cases. Those can stand for all of them only if they are a random sample,
# so cases that somebody picked do not count, unless every case is graded. A gate then decides on
# the sample as it would decide on a run of so many cases.
_GRADES = (
    "join run r on r.id = c.run_id left join human_grades h on "
    "h.experiment = r.experiment and h.case_id = c.case_id and h.address = c.address "
    "and h.take = c.take"
)
_CRITERION = (
    "join run r on r.id = c.run_id left join (select g.experiment, g.case_id, g.address, "
    "g.take, avg(e.value) as score from manual_grade g, json_each(g.criteria) e "
    "where e.key = :part and g.id in (select max(id) from manual_grade "
    "group by experiment, case_id, address, take, actor) "
    "group by g.experiment, g.case_id, g.address, g.take) h on "
    "h.experiment = r.experiment and h.case_id = c.case_id and h.address = c.address "
    "and h.take = c.take"
)


def human_metric(metric: Metric) -> Metric:
    """Return a metric as people's grades have it."""
    name, said = f"human {metric.name}", f"{metric.said} by people"
    if metric.name.startswith("criterion."):
        part = {"part": metric.parameters["part"]}
        return Metric(name, "score", said, "h.score", _CRITERION, parameters=part)
    if metric.name == "pass_rate":
        # What is blocked is shown to nobody, and does not pass.
        value = "case c.status when 'blocked' then 0 else h.passed end"
        return Metric(name, "pass", said, value, _GRADES)
    return Metric(name, "score", said, "h.score", _GRADES)


@dataclass(frozen=True, slots=True)
class HumanSample(TwoSidedSample):
    """Reads what people said of the answers."""

    chosen: Collection[str] = frozenset()
    """The cases that count."""

    def sample(self, metric: Metric, subjects: Iterable[Subject], side: Side = "head") -> Sample:
        """Return the value of each case on one side; people may be divided about a case."""
        found = TwoSidedSample.sample(self, metric, subjects, side)
        found.single = found.single and all(value in (0.0, 1.0) for value in found.values)
        return found

    def _by_case(
        self, metric: Metric, subject: Subject, side: Side
    ) -> Iterator[tuple[str, list[tuple[str, int, str, float | None, str, int | None]]]]:
        for case, rows in TwoSidedSample._by_case(self, metric, subject, side):
            if case in self.chosen:
                yield case, rows


@dataclass(frozen=True, slots=True)
class Electorate:
    """The part of a run that people have graded."""

    cells: HumanSample
    sample: RandomSample

    @property
    def said(self) -> str:
        """What a reader has to know of the cases that count."""
        n, of, picked = self.sample.n, self.sample.of, self.sample.picked
        if n == of:
            return f"People graded all {of:,} cases."
        chosen = f"; {picked:,} that were picked do not count" if picked else ""
        return f"People graded {n:,} of {of:,} cases, a random sample{chosen}."


def electorate(
    cells: TwoSidedSample, metric: Metric, subjects: Iterable[Subject], *, compared: bool
) -> Electorate:
    """Return the cases of some prompts and models that people's grades can stand for."""
    about = (cells.connection, cells.base, cells.head, cells.left_out, cells.draws)
    everything = _Everything(*about)
    known: set[str] = set()
    graded: set[str] | None = None
    for subject in subjects:
        for side in SIDES if compared else SIDES[1:]:
            cases, done = everything.graded(metric, subject, side)
            known |= cases
            graded = done if graded is None else graded & done
    samples = [random_sample(known, graded or (), seed) for seed in _seeds(cells)]
    best = max(samples, key=lambda sample: sample.n)
    return Electorate(HumanSample(*about, best.cases), best)


class _Everything(TwoSidedSample):
    """Reads which cases there are to grade, and which are graded."""

    __slots__ = ()

    def graded(self, metric: Metric, subject: Subject, side: Side) -> tuple[set[str], set[str]]:
        known: set[str] = set()
        graded: set[str] = set()
        wanted = replace(metric, status="c.status")
        for case, rows in self._by_case(wanted, subject, side):
            if any(row[2] in ("ok", "malformed", "blocked") for row in rows):
                known.add(case)
            if any(row[3] is not None for row in rows):
                graded.add(case)
        return known, graded


def _seeds(cells: TwoSidedSample) -> list[int]:
    """Return the seeds by whose order people went through the answers of an experiment."""
    run = find_run(cells.connection, cells.head.run_id)
    return grading_seeds(cells.connection, run.experiment)


_SMALLEST_MARGIN = 1e-9
"""Stands in for a margin of nothing, which no bound can keep exactly."""
_WORST_QUANTILE = 0.05


@dataclass(frozen=True, slots=True)
class Question:
    """A gate and the cells that it is about."""

    gate: Gate
    metric: Metric
    cells: TwoSidedSample
    subjects: tuple[Subject, ...]
    clusters: Mapping[str, str]
    level: float | None = None
    """How sure it must be at an early look; None for the gate's own confidence."""

    @property
    def limit(self) -> Limit | None:
        """The floor or ceiling; None for a comparison with the base."""
        if self.gate.at_least is not None:
            return Limit(self.gate.at_least, "at_least")
        return None if self.gate.at_most is None else Limit(self.gate.at_most, "at_most")

    @property
    def confidence(self) -> float:
        """How sure the gate must be: always more than a coin."""
        wanted = self.gate.confidence if self.level is None else self.level
        return max(wanted, 0.5 + _SMALLEST_MARGIN)

    def clusters_of(self, cases: Sequence[str]) -> tuple[str, ...] | None:
        """Return the cluster of each case; a case without one stands for itself."""
        if not any(case in self.clusters for case in cases):
            return None
        return tuple(self.clusters.get(case, f"\0alone {case}") for case in cases)

    def points(self, pairs: Pairs) -> float:
        """Return the margin in points of 0-1; a relative one is a share of the base's mean."""
        margin = self.gate.effective_margin
        value = margin.value
        if margin.relative and pairs.n:
            value = points_margin(margin.value, pairs.means("base"))
        return min(max(value, _SMALLEST_MARGIN), 1 - _SMALLEST_MARGIN)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a gate found, before the other gates are allowed for."""

    decision: GateDecision
    say: Callable[[GateDecision], str]
    """Says the decision, which the other gates may have changed."""
    seed: int | None = None
    """Of what was random; None if nothing was."""


def decide_gate(question: Question) -> Finding:
    """Decide a gate on its own."""
    if question.gate.use == "human":
        return _by_people(question)
    return _measured(question)


def _by_people(question: Question) -> Finding:
    """Decide on the cases that people have graded, as far as they can stand for all."""
    gate, metric = question.gate, human_metric(question.metric)
    found = electorate(question.cells, metric, question.subjects, compared=question.limit is None)
    if not found.sample.n:
        picked = found.sample.picked
        return Finding(unmeasured(question), lambda _: wording.unmeasured(gate, picked=picked))
    finding = _measured(replace(question, metric=metric, cells=found.cells))
    return replace(finding, say=lambda decision: f"{finding.say(decision)} {found.said}")


def _measured(question: Question) -> Finding:
    kind, limit = question.metric.kind, question.limit
    if limit is None:
        compared = {"amount": _amounts, "latency": _tails, "share": _shares}
        return compared.get(kind, _scores)(question)
    levels = {
        "pass": _pass_level,
        "amount": _amount_level,
        "latency": _tail_level,
        "share": _share_level,
    }
    return levels.get(kind, _score_level)(question, limit)


# --- against the base -----------------------------------------------------------------------------


def _scores(question: Question) -> Finding:
    found = question.cells.pairs(question.metric, question.subjects)
    pairs, missing = _pairs(question, found)
    rule = GateRule(
        margin=question.points(pairs),
        confidence=question.confidence,
        worst_case_drop=question.gate.worst_case_drop,
        fail_rule=question.gate.fail_rule,
        guarantee=question.gate.guarantee,
    )
    if _same(found):
        decision = allow_for_missing(identical_outputs(pairs.n, rule), missing.count, lambda: True)
    else:
        decision = decide(pairs, rule, rng=generator_for(found.cases), missing=missing)
        decision = _honest_about_more(decision, pairs, rule)
    return _compared(question, found, decision)


def _honest_about_more(decision: GateDecision, pairs: Pairs, rule: GateRule) -> GateDecision:
    """Promise no verdict from further cases where these do not lack cases.

    The usual number of cases is for an unchanged head. With that many and still no verdict there
    may be a real drop close to the margin, and only cases for what is left of it help.
    """
    if decision.verdict is not Verdict.INCONCLUSIVE or decision.value is None:
        return decision
    if any("cases are missing: " in note for note in decision.notes):
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


def _amounts(question: Question) -> Finding:
    found = question.cells.pairs(question.metric, question.subjects)
    pairs, missing = _pairs(question, found)
    rule = AmountRule(question.gate.effective_margin.value, question.confidence)
    if _same(found):
        same = identical_outputs(pairs.n, GateRule(confidence=rule.confidence))
        decision = replace(same, kind="relative", margin=rule.margin)
    else:
        decision = decide_amount(pairs, rule, rng=generator_for(found.cases))

    def passes_at_worst() -> bool:
        """Decide again with missing heads at the highest amounts, and never below their base."""
        worst = quantile(pairs.means("head").tolist(), 1 - _WORST_QUANTILE)
        imputed = Pairs(
            (*pairs.base, *((base,) for base in missing.base_only)),
            (*pairs.head, *((max(worst, base),) for base in missing.base_only)),
        )
        again = decide_amount(imputed, rule, rng=generator_for(found.cases))
        return again.verdict is Verdict.PASS

    return _compared(question, found, allow_for_missing(decision, missing.count, passes_at_worst))


def _compared(question: Question, found: Paired, decision: GateDecision) -> Finding:
    seed = None if decision.p is None else seed_of(found.cases)
    return Finding(decision, lambda said: wording.comparison(said, question.metric), seed)


def _tails(question: Question) -> Finding:
    base, head = (question.cells.latencies(question.subjects, side) for side in SIDES)
    values = tail_latency(base).value, tail_latency(head).value
    decision = decide_tail(base, head, margin=question.gate.effective_margin.value)
    return Finding(
        _advising(decision),
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
    told = f"{100 * margin.value:g}{unit}"
    return Finding(
        decision, lambda said: wording.share_change(said, question.metric, base, head, told)
    )


def _pairs(question: Question, found: Paired) -> tuple[Pairs, Missing]:
    clusters = question.clusters_of(found.cases)
    pairs = Pairs(tuple(found.base), tuple(found.head), clusters)
    return pairs, Missing(found.missing, tuple(found.base_only))


def _same(found: Paired) -> bool:
    """Whether both sides are the same answers, and nearly all of them are there."""
    planned = len(found.cases) + found.missing
    return (
        bool(found.cases)
        and found.same_answers
        and not exceeds(found.missing, MOST_MISSING * planned)
    )


# --- floors and ceilings --------------------------------------------------------------------------


def _score_level(question: Question, limit: Limit) -> Finding:
    sample = question.cells.sample(question.metric, question.subjects)
    decision = levelled(question, sample, limit)
    return Finding(decision, lambda said: wording.level(said, question.metric))


def _pass_level(question: Question, limit: Limit) -> Finding:
    sample = question.cells.sample(question.metric, question.subjects)
    whole = sample.single
    if not whole or question.clusters_of(sample.cases) is not None:
        decision = levelled(question, sample, limit)
    else:
        decision = _counted(question, sample, limit)
    return Finding(decision, lambda said: wording.pass_level(said, limit, whole=whole))


def _counted(question: Question, sample: Sample, limit: Limit) -> GateDecision:
    """Decide how many cases pass, and again with what is missing at the worst that was seen."""
    passes, n = round(math.fsum(sample.values)), len(sample.values)

    def decided(more: int = 0, passed: int = 0) -> GateDecision:
        return decide_pass_level(passes + passed, n + more, limit, confidence=question.confidence)

    def passes_at_worst() -> bool:
        worst = round(_worst(sample, limit)) * sample.missing
        return decided(sample.missing, worst).verdict is Verdict.PASS

    return allow_for_missing(decided(), sample.missing, passes_at_worst)


def levelled(question: Question, sample: Sample, limit: Limit) -> GateDecision:
    """Decide a mean of cases, and again with what is missing at the worst that was seen."""

    def decided(imputed: Sequence[float] = ()) -> GateDecision:
        clusters = question.clusters_of(sample.cases)
        if clusters is not None:
            clusters = (*clusters, *(f"\0missing {index}" for index in range(len(imputed))))
        scores = [*sample.values, *imputed]
        return decide_score_level(scores, limit, clusters=clusters, confidence=question.confidence)

    def passes_at_worst() -> bool:
        worst = [_worst(sample, limit)] * sample.missing
        return decided(worst).verdict is Verdict.PASS

    return allow_for_missing(decided(), sample.missing, passes_at_worst)


def _amount_level(question: Question, limit: Limit) -> Finding:
    sample = question.cells.sample(question.metric, question.subjects)
    n = len(sample.values)
    amount = mean_or_none(sample.values)
    decision = allow_for_missing(decide_as_is(amount, n, limit), sample.missing, lambda: True)
    return Finding(decision, lambda said: wording.amount_level(said, question.metric, limit))


def _tail_level(question: Question, limit: Limit) -> Finding:
    tail = tail_latency(question.cells.latencies(question.subjects, "head"))
    decision = _advising(decide_as_is(tail.value, tail.n, limit, advisory=tail.advisory))
    return Finding(
        decision,
        lambda said: wording.tail_level(said, question.metric, limit, fewest=FEWEST_FOR_TAIL),
    )


def _share_level(question: Question, limit: Limit) -> Finding:
    share = _share(question, "head")
    decision = decide_as_is(share.value, share.of, limit)
    return Finding(decision, lambda said: wording.share_level(said, question.metric, share, limit))


# --- what holds for all ---------------------------------------------------------------------------


def _share(question: Question, side: Side) -> Share:
    name, cells = question.metric.name, question.cells
    if name == "errors":
        return cells.errors(question.subjects, side)
    return cells.flagged(name.partition(".")[2], question.subjects, side)


def _advising(decision: GateDecision) -> GateDecision:
    """Keep a latency from failing on fewer calls than decide."""
    if decision.n >= FEWEST_FOR_TAIL_GATE or decision.verdict is Verdict.INCONCLUSIVE:
        return decision
    decision = replace(
        decision, notes=(f"advisory: it takes {FEWEST_FOR_TAIL_GATE} calls to fail",)
    )
    if decision.verdict is Verdict.PASS:
        return decision
    more = FEWEST_FOR_TAIL_GATE - decision.n
    return replace(decision, verdict=Verdict.INCONCLUSIVE, n_more=more)


def allow_for_missing(
    decision: GateDecision, missing: int, passes_at_worst: Callable[[], bool]
) -> GateDecision:
    """Allow for missing cases as STATS 7 does, where the decision has not done so."""
    total = decision.n + missing
    decision = replace(decision, missing=missing)
    if not decision.n or not exceeds(missing, WARN_MISSING * total):
        return decision
    said, unclear = f"{missing:,} of {total:,} cases are missing", False
    if exceeds(missing, MOST_MISSING * total):
        said, unclear = f"{said}: too many to decide", True
    elif decision.verdict is Verdict.PASS and not passes_at_worst():
        said, unclear = f"{said}: would not pass if they had gone badly", True
    verdict = Verdict.INCONCLUSIVE if unclear else decision.verdict
    more = None if unclear else decision.n_more
    return replace(decision, verdict=verdict, n_more=more, notes=(*decision.notes, said))


def _worst(sample: Sample, limit: Limit) -> float:
    """Return nearly the worst value of a case that was seen."""
    share = _WORST_QUANTILE if limit.wanted == "at_least" else 1 - _WORST_QUANTILE
    return quantile(sample.values, share)


def worst_quantile(values: Sequence[float]) -> float:
    """Return nearly the worst score that was seen."""
    return quantile(values, _WORST_QUANTILE)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies, rounding to the worse side."""
    place = share * (len(values) - 1)
    worse = math.floor(place + TOLERANCE) if share < 0.5 else math.ceil(place - TOLERANCE)
    return sorted(values)[worse]


def unmeasured(question: Question) -> GateDecision:
    """Return the decision on something that the run does not have."""
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
