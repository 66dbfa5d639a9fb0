"""What a gate finds at one of several interim analyses.

Looking twice at a test costs, so at a planned look a gate must be surer than at the end, and cases
that come one after another are weighed by evidence that is valid at any time (STATS 9).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.decide import wording
from edison_ci.decide.gates import Finding, allow_for_missing, decide_gate, worst_quantile
from edison_ci.decide.win_rate import decide_wins
from edison_ci.plan.looks import batch_size, batches_of, is_inferred, takes_part
from edison_ci.rounding import exceeds
from edison_ci.stats.gates import identical_outputs
from edison_ci.stats.paired import Pairs
from edison_ci.stats.sequential import decide_look, planned_levels
from edison_ci.stats.verdicts import MOST_MISSING, GateRule, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.decide.gates import Question
    from edison_ci.plan.looks import Look
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.samples import Paired, TwoSidedSample

_FEWEST = 2
"""Cases without which no number of draws decides anything."""


def look_at(question: Question, look: Look | None) -> Finding:
    """Decide a gate at a look; one that is looked at only once is decided as ever."""
    if look is None or not takes_part(question.gate, look.kind):
        return _once(question)
    if look.kind == "cases":
        return _anytime(question, look)
    return _planned(question, look)


def _once(question: Question) -> Finding:
    wins = question.metric.kind == "wins" and question.gate.use != "human"
    return decide_wins(question) if wins else decide_gate(question)


def _planned(question: Question, look: Look) -> Finding:
    """Decide at the level of one of the planned looks; what is shown keeps the gate's own."""
    plain = _once(question)
    levels = planned_levels(look.of, alpha=round(1 - question.confidence, 12))
    found = _once(replace(question, level=1 - levels[look.number - 1]))
    own = plain.decision
    decision = replace(
        found.decision,
        interval=own.interval,
        level=own.level,
        n_more=own.n_more if found.decision.verdict is Verdict.INCONCLUSIVE else None,
        n_more_range=own.n_more_range,
    )
    return Finding(decision, lambda said: wording.planned_look(found.say(said), said, look),
                   found.seed)  # fmt: skip


# --- cases one after another ----------------------------------------------------------------------


def _anytime(question: Question, look: Look) -> Finding:
    found = question.cells.pairs(question.metric, question.subjects)
    order = _in_order(question.cells, look, found)
    clusters = question.clusters_of(order.cases)
    pairs = Pairs(order.base, order.head, clusters)
    margin = question.gate.effective_margin
    share = min(max(margin.value, 1e-9), 1 - 1e-9) if margin.relative else None
    rule = GateRule(
        margin=question.points(pairs),
        confidence=question.confidence,
        fail_rule=question.gate.fail_rule,
    )
    if _same_by_construction(question, found):
        decision = identical_outputs(pairs.n, rule)
    else:
        looks = _positions(order, clusters)
        decision = decide_look(pairs, rule, looks=looks, share=share)

    def passes_at_worst() -> bool:
        """Decide again with missing heads at the lowest scores, and never above their base."""
        worst = worst_quantile(pairs.means("head").tolist())
        gone = tuple((base,) for base in found.base_only)
        alone = tuple(f"\0missing {index}" for index in range(len(gone)))
        imputed = Pairs(
            (*pairs.base, *gone),
            (*pairs.head, *((min(worst, base),) for (base,) in gone)),
            None if clusters is None else (*clusters, *alone),
        )
        units = len(set(imputed.clusters)) if imputed.clusters is not None else imputed.n
        again = decide_look(imputed, rule, looks=[units], share=share)
        return again.verdict is Verdict.PASS

    decision = allow_for_missing(decision, found.missing, passes_at_worst)
    return Finding(decision, lambda said: wording.sampled(said, question.metric, look))


class _Ordered(NamedTuple):
    """Pairs in the order in which their cases were taken."""

    cases: tuple[str, ...]
    base: tuple[tuple[float, ...], ...]
    head: tuple[tuple[float, ...], ...]
    ends: tuple[int, ...]
    """How many of the pairs there were after each batch."""


def _in_order(cells: TwoSidedSample, look: Look, found: Paired) -> _Ordered:
    batches = batches_of(cells.cases(), seed=look.seed, size=batch_size(look.most))
    known = {case: index for index, case in enumerate(found.cases)}
    order: list[int] = []
    ends: list[int] = []
    for batch in batches:
        order += [known[case] for case in batch if case in known]
        ends.append(len(order))
    return _Ordered(
        tuple(found.cases[i] for i in order),
        tuple(found.base[i] for i in order),
        tuple(found.head[i] for i in order),
        tuple(ends),
    )


def _positions(order: _Ordered, clusters: Sequence[str] | None) -> list[int]:
    """Return after how many cases, or clusters, one has looked."""
    if clusters is None:
        return list(order.ends)
    return [len(set(clusters[:end])) for end in order.ends]


def _same_by_construction(question: Question, found: Paired) -> bool:
    """Whether both sides are the same answers, and those to come will be.

    Equal answers so far are not enough: a template may say something new to later cases only.
    """
    total = len(found.cases) + found.missing
    whole = bool(found.cases) and not exceeds(found.missing, MOST_MISSING * total)
    return whole and found.same_answers and question.cells.one_version(question.subjects)


# --- what follows from a look ---------------------------------------------------------------------


def open_rows(rows: Sequence[GateRow], look: Look) -> list[GateRow]:
    """Return the rows that were looked at this time and are not clear."""
    return [row for row in rows if _number(row) == look.number and row.verdict == "inconclusive"]


def goes_on(rows: Sequence[GateRow], look: Look) -> bool:
    """Whether more is to be measured after a look.

    Cases are added until every gate that takes part is clear. Draws are added only while they can
    change the verdict: not after a failure, and not for want of cases.
    """
    if look.last:
        return False
    if look.kind == "cases":
        return bool(open_rows(rows, look)) or not any(_number(row) for row in rows)
    if any(row.verdict == "fail" for row in rows):
        return False
    return any(_helped_by_draws(row) for row in open_rows(rows, look))


def unclear_subjects(rows: Sequence[GateRow], look: Look) -> frozenset[tuple[str, str]] | None:
    """Return the prompts and models that further draws are for; None for all of them."""
    found = [row for row in open_rows(rows, look) if _helped_by_draws(row)]
    named = {(row.prompt, row.model) for row in found if row.prompt and row.model}
    everything = look.kind == "cases" or len(named) < len({(r.prompt, r.model) for r in found})
    return None if everything else frozenset(named)


def settles_later(gate: Gate, look: Look | None) -> bool:
    """Whether a gate waits until sampling has stopped, to be decided once."""
    return look is not None and look.kind == "cases" and not takes_part(gate, "cases")


def _number(row: GateRow) -> int:
    return int(row.detail.get("look", {}).get("number", 0))


def _helped_by_draws(row: GateRow) -> bool:
    missing = int(row.detail.get("missing", 0))
    return row.n >= _FEWEST and not exceeds(missing, MOST_MISSING * (row.n + missing))


def carried(row: GateRow | None, gate: Gate, look: Look) -> bool:
    """Whether a row of the look before stays as it is.

    What is compared without inference is compared again: an unsafe answer counts whenever it came.
    """
    if row is None or row.detail.get("waiting") or not is_inferred(gate):
        return False
    return row.verdict != "inconclusive" or not takes_part(gate, look.kind)
