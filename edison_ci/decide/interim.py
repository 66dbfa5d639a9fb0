"""Gates at interim analyses.

Testing several times inflates errors. So at a planned interim analysis a gate needs a higher
confidence than at the end, and cases that come one after another are decided by evidence that is
valid at any time (STATS 9).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.config.repeated_inputs import repetition_sentence
from edison_ci.decide import wording
from edison_ci.decide.gates import Finding, decide_gate
from edison_ci.decide.missing_answers import allow_for_missing, hold_at_worst
from edison_ci.decide.win_rates import decide_wins
from edison_ci.numeric import exceeds
from edison_ci.plan.interim_analysis import batch_size, batches_of, is_inferred, takes_part
from edison_ci.records import Side, Verdict
from edison_ci.stats.gates import identical_outputs
from edison_ci.stats.paired import Pairs
from edison_ci.stats.sequential import decide_look, planned_levels, repeated_p
from edison_ci.stats.verdicts import MOST_MISSING, GateRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.decide.gates import Question
    from edison_ci.plan.interim_analysis import InterimAnalysis
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.samples import Paired, TwoSidedSample
    from edison_ci.stats.verdicts import GateDecision

_FEWEST = 2
"""Cases below which no number of repeats decides a gate."""


def decide_interim(question: Question, interim: InterimAnalysis | None) -> Finding:
    """Decide a gate at an interim analysis; one that takes no part is decided as usual."""
    finding = _decide(question, interim)
    repeated = _repetition(question)
    if not repeated:
        return finding
    return replace(finding, say=lambda decision: f"{finding.say(decision)} {repeated}")


def _repetition(question: Question) -> str:
    """Return how many cases count, if some have the same input; '' where cases do not matter."""
    if question.metric.kind in ("share", "latency") or not question.clusters:
        return ""
    cells, variants = question.cells, question.variants
    cases = {case for variant in variants for case in cells.case_ids(variant, Side.HEAD)}
    return repetition_sentence(cases, question.clusters)


def _decide(question: Question, interim: InterimAnalysis | None) -> Finding:
    if interim is None or not takes_part(question.gate, interim.kind):
        return _once(question)
    if interim.kind == "cases":
        return _anytime(question, interim)
    return _planned(question, interim)


def _once(question: Question) -> Finding:
    wins = question.metric.kind == "wins" and question.gate.use != "human"
    return decide_wins(question) if wins else decide_gate(question)


def _planned(question: Question, interim: InterimAnalysis) -> Finding:
    """Decide at the level of a planned analysis; the shown interval keeps the gate's own level.

    The p-value becomes that of all planned analyses together, so that it is compared with the
    error of the gate, alone and after Holm's adjustment.
    """
    plain = _once(question)
    own = plain.decision
    alpha = round(1 - question.confidence, 12)
    at_level = _once(replace(question, level=1 - planned_level(interim, alpha)))
    p, decided = at_level.decision.p, at_level.decision
    if p is not None:
        value = repeated_p(p.value, look=interim.number, looks=interim.of)
        method = f"{p.method}, over {interim.of} planned analyses"
        p = replace(p, value=value, method=method)
    decision = replace(
        decided,
        interval=own.interval,
        level=own.level,
        alpha=alpha,
        p=p,
        p_adjusted=None if p is None else p.value,
        n_more=own.n_more if decided.verdict is Verdict.INCONCLUSIVE else None,
        n_more_range=own.n_more_range,
    )

    def say(final: GateDecision) -> str:
        return wording.planned_interim(at_level.say(final), final, interim)

    return Finding(decision, say, at_level.seed)


def planned_level(interim: InterimAnalysis, alpha: float) -> float:
    """Return the level at which a planned analysis decides, for a total error of alpha."""
    return planned_levels(interim.of, alpha=alpha)[interim.number - 1]


def _anytime(question: Question, interim: InterimAnalysis) -> Finding:
    measured = question.cells.pairs(question.metric, question.variants)
    margin = question.gate.effective_margin
    share = min(max(margin.value, 1e-9), 1 - 1e-9) if margin.relative else None

    def decided(paired: Paired) -> GateDecision:
        order = _in_order(question.cells, interim, paired)
        clusters = question.clusters_of(order.cases)
        pairs = Pairs(order.base, order.head, clusters)
        rule = GateRule(
            margin=question.points(pairs),
            confidence=question.confidence,
            fail_rule=question.gate.fail_rule,
        )
        if _same_by_construction(question, paired):
            return identical_outputs(pairs.n, rule)
        looks, planned = _positions(order, clusters), _planned_sizes(question)
        return decide_look(pairs, rule, looks=looks, share=share, planned=planned)

    def passes_at_worst() -> bool:
        """Decide again with lost answers of the head as failed."""
        worst = question.cells.pairs(question.metric, question.variants, lost_as=0.0)
        return decided(worst).verdict is Verdict.PASS

    decision = hold_at_worst(decided(measured), measured.lost, passes_at_worst)

    def at_base() -> GateDecision:
        """Decide again with lost answers of the head at the base's score."""
        held = question.cells.pairs(question.metric, question.variants, lost_as="base")
        return allow_for_missing(decided(held), held.missing)

    decision = allow_for_missing(decision, measured.missing, at_base)
    return Finding(decision, lambda final: wording.sampled(final, question.metric, interim))


def _planned_sizes(question: Question) -> dict[int, int]:
    """Return the number of planned clusters by size."""
    cases = [case for case, _ in question.cells.cases()]
    names = question.clusters_of(cases) or cases
    return dict(Counter(Counter(names).values()))


class _Ordered(NamedTuple):
    """Pairs in the order in which their cases were taken."""

    cases: tuple[str, ...]
    base: tuple[tuple[float, ...], ...]
    head: tuple[tuple[float, ...], ...]
    ends: tuple[int, ...]
    """How many of the pairs there were after each batch."""


def _in_order(cells: TwoSidedSample, interim: InterimAnalysis, paired: Paired) -> _Ordered:
    batches = batches_of(cells.cases(), seed=interim.seed, size=batch_size(interim.most))
    positions = {case: index for index, case in enumerate(paired.cases)}
    order: list[int] = []
    ends: list[int] = []
    for batch in batches:
        order += [positions[case] for case in batch if case in positions]
        ends.append(len(order))
    return _Ordered(
        tuple(paired.cases[i] for i in order),
        tuple(paired.base[i] for i in order),
        tuple(paired.head[i] for i in order),
        tuple(ends),
    )


def _positions(order: _Ordered, clusters: Sequence[str] | None) -> list[int]:
    """Return the numbers of cases, or clusters, at the interim analyses so far."""
    if clusters is None:
        return list(order.ends)
    return [len(set(clusters[:end])) for end in order.ends]


def _same_by_construction(question: Question, paired: Paired) -> bool:
    """Whether both sides have the same answers, including those of cases to come.

    Equal answers so far are not enough: a template may render differently for later cases only.
    """
    total = len(paired.cases) + paired.missing
    whole = bool(paired.cases) and not exceeds(paired.missing, MOST_MISSING * total)
    whole = whole and not paired.lost
    return whole and paired.same_answers and question.cells.one_version(question.variants)


def open_rows(rows: Sequence[GateRow], interim: InterimAnalysis) -> list[GateRow]:
    """Return the rows of this interim analysis that are inconclusive."""
    unclear = (row for row in rows if row.verdict is Verdict.INCONCLUSIVE)
    return [row for row in unclear if _number(row) == interim.number]


def continues(rows: Sequence[GateRow], interim: InterimAnalysis) -> bool:
    """Whether more should be measured after an interim analysis.

    Cases are added until every gate that takes part is decided. Repeats are added only while they
    can change the verdict: not after a failure, and not where cases are missing.
    """
    if interim.last:
        return False
    if interim.kind == "cases":
        return bool(open_rows(rows, interim)) or not any(_number(row) for row in rows)
    if any(row.verdict is Verdict.FAIL for row in rows):
        return False
    return any(_helped_by_repeats(row) for row in open_rows(rows, interim))


def unclear_variants(
    rows: Sequence[GateRow], interim: InterimAnalysis
) -> frozenset[tuple[str, str]] | None:
    """Return the prompts and models that need further repeats; None for all of them."""
    helped = [row for row in open_rows(rows, interim) if _helped_by_repeats(row)]
    named = {(row.prompt, row.model) for row in helped if row.prompt and row.model}
    everything = interim.kind == "cases" or len(named) < len({(r.prompt, r.model) for r in helped})
    return None if everything else frozenset(named)


def settles_later(gate: Gate, interim: InterimAnalysis | None) -> bool:
    """Whether a gate is decided once, after sampling has stopped."""
    return interim is not None and interim.kind == "cases" and not takes_part(gate, "cases")


def _number(row: GateRow) -> int:
    return int(row.detail.get("interim", {}).get("number", 0))


def _helped_by_repeats(row: GateRow) -> bool:
    missing = int(row.detail.get("missing", 0))
    return row.n >= _FEWEST and not exceeds(missing, MOST_MISSING * (row.n + missing))


def stays(row: GateRow | None, gate: Gate, interim: InterimAnalysis) -> bool:
    """Whether a row of the interim analysis before stays as it is.

    Gates without inference are decided again: an unsafe answer counts at any time.
    """
    if row is None or row.detail.get("waiting") or not is_inferred(gate):
        return False
    return row.verdict is not Verdict.INCONCLUSIVE or not takes_part(gate, interim.kind)
