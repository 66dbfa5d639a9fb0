"""The verdict of all gates of an experiment on a run.

A gate on the worst slice passes if every slice of enough cases does, each without correction: to
pass all of them wrongly is no more likely than to pass one wrongly (intersection-union). It fails
if one slice fails after its p-value is corrected for all slices and all other gates (Holm), since
among many slices some look bad by chance. Each push of a pull request is another chance to pass by
luck: from the second on, PASS is decided at a smaller error, and FAIL as always.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.decide import wording
from edison_ci.decide.gates import Finding, Question, SliceFinding, unmeasured
from edison_ci.decide.interim import continues, decide_interim, planned_level, settles_later, stays
from edison_ci.decide.win_rates import why_no_win_rate
from edison_ci.documents import record_json
from edison_ci.errors import ExitCode
from edison_ci.plan.interim_analysis import is_inferred, takes_part
from edison_ci.records import Side, Verdict
from edison_ci.results.decisions import GateRow
from edison_ci.results.metrics import metric_of
from edison_ci.results.scores import estimate_json
from edison_ci.results.slices import cases_by_tag
from edison_ci.stats.verdicts import SMALLEST_SLICE, decide_family, push_level

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.plan.interim_analysis import InterimAnalysis
    from edison_ci.records import BaselineDoubt
    from edison_ci.results.samples import TwoSidedSample, Variant
    from edison_ci.stats.verdicts import GateDecision


# The row keeps its numbers and its sentence, but counts as skipped: it neither fails nor passes a
# run, regardless of `if_unclear`.
def as_advice(row: GateRow, unapproved: Mapping[str, str]) -> GateRow:
    """Return a row as advice if judges without an approval would decide it."""
    reason = unapproved.get(row.metric)
    if reason is None or row.verdict is Verdict.SKIPPED or row.gate.get("use") == "human":
        return row
    sentence = f"Advisory only, would be {row.verdict}: {row.sentence} The {reason}."
    advice = {"would_be": row.verdict, "reason": reason}
    return replace(
        row, verdict=Verdict.SKIPPED, sentence=sentence, detail={**row.detail, "advisory": advice}
    )


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """Facts about a run that are not in its cells."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    """Clusters by case, of the cases that have one."""
    quarantined: Collection[str] = frozenset()
    """Cases that run and are shown, but never decide."""
    has_base: bool = False
    """Whether there is anything to compare with."""
    interim: InterimAnalysis | None = None
    """The interim analysis that is made; None without interim analyses."""
    before: tuple[GateRow, ...] = ()
    """Rows of the interim analysis before it."""
    stored: StoredBaseline = field(default_factory=lambda: StoredBaseline())
    """A stored run in place of a base that was not measured with the run."""
    fixed: Mapping[str, StoredBaseline] = field(default_factory=dict)
    """Fixed versions that gates compare with, by `Gate.fixed`."""
    push: int | None = 1
    """Which push of its pull request it is; 1 outside of one, None if that is unknown."""
    unapproved: Mapping[str, str] = field(default_factory=dict)
    """Metrics that judges may not decide, and why: their gates are advisory."""
    base_ref: str | None = None
    """The ref that the run was compared with, as it was given."""
    base_invalid: str = ""
    """The first problem of the experiment at that ref, where it is not valid."""
    outside: frozenset[str] = frozenset()
    """Models that the experiment does not list: they are shown, and never decide."""


@dataclass(frozen=True, slots=True)
class StoredBaseline:
    """Stored cells that the head is compared with, or why there are none."""

    cells: TwoSidedSample | None = None
    """Both sides, as if they had been measured together."""
    sentence: str = ""
    """Which run it is, or why there is none."""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunDecision:
    """The decision of all gates together."""

    rows: tuple[GateRow, ...]
    verdict: Verdict
    exit_code: ExitCode

    @classmethod
    def of(cls, rows: Iterable[GateRow]) -> RunDecision:
        """Combine rows: fail if one fails, else inconclusive if one is, else pass."""
        rows = tuple(rows)
        verdicts = {row.verdict for row in rows if not _is_waived(row)}
        if any(_is_waived(row) for row in rows):
            verdicts.add(Verdict.PASS)
        order = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)
        verdict = next((possible for possible in order if possible in verdicts), Verdict.SKIPPED)
        code = ExitCode.GATE_FAILED if verdict is Verdict.FAIL else ExitCode.DONE
        if verdict is Verdict.INCONCLUSIVE and any(_insists(row) for row in rows):
            code = ExitCode.UNCLEAR
        return cls(rows, verdict, code)


def with_doubts(decision: RunDecision, doubts: Iterable[BaselineDoubt]) -> RunDecision:
    """Return a decision with a row for each doubt in front, so that it cannot pass."""
    insists = any(row.if_unclear == "fail" for row in decision.rows)
    if_unclear = "fail" if insists else "neutral"
    rows = [
        GateRow(
            metric=doubt.metric,
            prompt=None,
            model=None,
            verdict=Verdict.INCONCLUSIVE,
            sentence=doubt.sentence,
            if_unclear=if_unclear,
            gate={"if_unclear": if_unclear},
            detail={"doubt": True},
        )
        for doubt in doubts
    ]
    return RunDecision.of((*rows, *decision.rows)) if rows else decision


def decide(
    cells: TwoSidedSample, gates: Sequence[Gate], background: VerdictContext | None = None
) -> RunDecision:
    """Decide every gate on stored cells. Reads nothing else and writes nothing."""
    background = background or VerdictContext()
    interim = background.interim
    repeats = interim.at if interim is not None and interim.kind == "repeats" else None
    left_out = cells.left_out.union(background.quarantined)
    sides = _Sides.of(replace(cells, left_out=left_out, repeats=repeats), background)
    pending = [row for gate in gates for row in _pending_rows(gate, sides, background)]
    kept: list[GateRow | None] = [None] * len(pending)
    if interim is not None and len(background.before) == len(pending):
        kept = [
            old if stays(old, row.gate, interim) else None
            for old, row in zip(background.before, pending, strict=True)
        ]
    first = [
        old or (_waiting_row(row) if settles_later(row.gate, interim) and row.question else None)
        for old, row in zip(kept, pending, strict=True)
    ]
    rows = _decide_rows(pending, first, background)
    if interim is None or continues(rows, interim):
        return RunDecision.of(rows)
    # Sampling has stopped: gates that waited for it are decided now, the others stay as they are.
    done = [None if row.detail.get("waiting") else row for row in rows]
    return RunDecision.of(_decide_rows(pending, done, background) if None in done else rows)


def _decide_rows(
    pending: Sequence[_PendingRow], kept: Sequence[GateRow | None], background: VerdictContext
) -> list[GateRow]:
    """Decide the rows that are not kept, with p-values corrected for all of them."""
    interim = background.interim
    findings = [
        _find(row.question, background) if row.question is not None and old is None else None
        for row, old in zip(pending, kept, strict=True)
    ]
    new = [
        decision for finding in findings if finding is not None for decision in finding.decisions
    ]
    others = [p for row in kept if row is not None for p in _counted_ps(row)]
    decided = iter(decide_family(new, others=others).items if new else ())
    rows = []
    for row, old, finding in zip(pending, kept, findings, strict=True):
        if old is not None:
            rows.append(old)
        elif finding is None:
            rows.append(_skipped_row(row))
        else:
            own = [next(decided) for _ in finding.decisions]
            new_row = _decided_row(row, finding, own, interim)
            rows.append(as_advice(new_row, background.unapproved))
    return rows


def _find(question: Question, background: VerdictContext) -> Finding:
    def decide_one(part: Question) -> Finding:
        return decide_at_push(part, background.interim, background.push)

    if question.gate.slices is not None:
        return decide_slices(question, decide_one)
    return decide_one(question)


class _PendingRow(NamedTuple):
    """A row before it is decided and its p-value is corrected for the other rows."""

    gate: Gate
    variant: Variant | None
    question: Question | None
    reason: str = ""
    """Why there is no question."""
    stored: StoredBaseline | None = None
    """The base, if it is a stored run."""
    open: bool = False
    """Whether it is inconclusive without a question, not skipped."""


class _Sides(NamedTuple):
    """The cells of gates: head alone, and head against base, which may be of another run."""

    alone: TwoSidedSample
    compared: TwoSidedSample | None
    heads: tuple[Variant, ...]

    @classmethod
    def of(cls, cells: TwoSidedSample, background: VerdictContext) -> _Sides:
        compared = cells if background.has_base else background.stored.cells
        return cls(cells, compared, cells.variants(Side.HEAD))


def _pending_rows(gate: Gate, sides: _Sides, background: VerdictContext) -> list[_PendingRow]:
    outside = [head for head in sides.heads if head.model in background.outside]
    heads = tuple(head for head in sides.heads if head not in outside)
    not_counted = [_PendingRow(gate, head, None, wording.outside(head)) for head in outside]
    if outside and not heads:
        return not_counted
    groups: list[tuple[Variant | None, tuple[Variant, ...]]] = [(None, heads)]
    if gate.per == "model" and heads:
        groups = [(variant, (variant,)) for variant in heads]
    cells, stored = _cells_of(gate, sides, background)
    if cells is None:
        sentence = "" if stored is None else stored.sentence
        reason = sentence or wording.no_base(background.base_ref, background.base_invalid)
        # Nothing keeps a fixed version from being measured, so its gate stays open without it.
        open_ = gate.fixed is not None
        rows = [_PendingRow(gate, variant, None, reason, open=open_) for variant, _ in groups]
        return [*rows, *not_counted]
    bases = frozenset(cells.variants(Side.BASE) if gate.compares else heads)
    metric = metric_of(cells, gate.metric)
    rows = []
    for variant, members in groups:
        common = tuple(member for member in members if member in bases)
        if members and not common:
            rows.append(_PendingRow(gate, variant, None, wording.no_base_of(variant)))
            continue
        question = Question(gate, metric, cells, common, background.clusters)
        wins = metric.kind == "wins" and gate.use != "human"
        reason = why_no_win_rate(cells, variant) if wins else ""
        if reason:
            rows.append(_PendingRow(gate, variant, None, reason))
            continue
        rows.append(_PendingRow(gate, variant, question, stored=stored))
    return [*rows, *not_counted]


def _cells_of(
    gate: Gate, sides: _Sides, background: VerdictContext
) -> tuple[TwoSidedSample | None, StoredBaseline | None]:
    """Return the cells that a gate decides on, if there are any, and their base if it is stored."""
    if gate.fixed is not None:
        fixed = background.fixed.get(gate.fixed, StoredBaseline())
        return fixed.cells, fixed
    if gate.compares:
        return sides.compared, None if background.has_base else background.stored
    return sides.alone, None


def _waiting_row(row: _PendingRow) -> GateRow:
    """Return the row of a gate that is decided when sampling has stopped."""
    detail = {"waiting": True, "tested": _tests(row)}
    return GateRow(
        verdict=Verdict.INCONCLUSIVE, sentence=wording.WAITING, detail=detail, **_row_fields(row)
    )


def _tests(row: _PendingRow) -> int:
    """Return how many p-values a row will have: of its slices, or one where there is inference."""
    if row.question is None or row.gate.use == "human":
        return 0
    if row.gate.slices is not None:
        return planned_slices(row.question)
    kind = row.question.metric.kind
    return int(kind not in ("latency", "share") and (row.gate.compares or kind != "amount"))


def _counted_ps(row: GateRow) -> list[float]:
    """Return the p-values with which a row counts in the family; 1 while it is not decided."""
    if row.detail.get("waiting"):
        return [1.0] * int(row.detail.get("tested", 0))
    p_values = [part["p"] for part in row.detail.get("slices", [])] or [row.p]
    return [p for p in p_values if p is not None]


def _skipped_row(row: _PendingRow) -> GateRow:
    verdict = Verdict.INCONCLUSIVE if row.open else Verdict.SKIPPED
    return GateRow(verdict=verdict, sentence=row.reason, **_row_fields(row))


def _decided_row(
    row: _PendingRow,
    finding: Finding,
    decisions: Sequence[GateDecision],
    interim: InterimAnalysis | None,
) -> GateRow:
    decision, more = decisions[0], dict[str, Any]()
    if row.gate.slices is not None:
        more = slices_json(finding, decisions if finding.slices else ())
    if finding.slices:
        finding, decision = worst_of(finding, decisions)
    if decision.verdict is not finding.decision.verdict and decision.n_more == 1:
        # The correction for the other gates made it inconclusive, not a lack of cases.
        decision = replace(decision, n_more=None)
    sentence, notes = finding.say(decision), decision.notes
    if row.gate.fixed is not None:
        sentence = f"{wording.distance(decision, row.gate.fixed)}{sentence}"
    if row.stored is not None:
        sentence = f"{sentence} {row.stored.sentence}"
    unclear = decision.verdict is Verdict.INCONCLUSIVE
    if unclear and interim is None and row.gate.if_unclear == "more_repeats":
        sentence, notes = f"{sentence} {wording.MORE_REPEATS}", (*notes, wording.MORE_REPEATS)
    names = ("kind", "method", "level", "margin", "worst_plausible", "best_plausible")
    return GateRow(
        verdict=decision.verdict,
        sentence=sentence,
        n_more=decision.n_more,
        **_numbers(decision),
        detail={
            **record_json.fields_of(decision, *names),
            "tests": decision.tests,
            "p_two_sided": None if decision.p is None else decision.p.two_sided,
            **record_json.fields_of(decision, "family", "missing", "n_needed", "n_more_range"),
            "seed": None if finding.seed is None else f"{finding.seed:064x}",
            "notes": [*notes],
            **({} if finding.labels is None else {"human_labels": dict(finding.labels)}),
            **more,
            **_circumstances(row, decision, interim),
        },
        **_row_fields(row),
    )


def _circumstances(
    row: _PendingRow, decision: GateDecision, interim: InterimAnalysis | None
) -> dict[str, Any]:
    """Return details of a decision at an interim analysis, or against a stored base."""
    detail: dict[str, Any] = {}
    if interim is not None and takes_part(row.gate, interim.kind):
        repeats, alpha = interim.kind == "repeats", decision.alpha
        level = planned_level(interim, alpha) if repeats else alpha
        detail["interim"] = {**interim.as_json(), "alpha": level}
    if row.stored is not None:
        detail["base"] = dict(row.stored.about)
    return detail


def _row_fields(row: _PendingRow) -> dict[str, Any]:
    gate, variant = row.gate, row.variant
    return {
        "metric": gate.metric,
        "prompt": None if variant is None else variant.prompt,
        "model": None if variant is None else variant.model,
        "if_unclear": gate.if_unclear,
        "gate": gate.model_dump(mode="json", exclude_none=True),
    }


def _is_waived(row: GateRow) -> bool:
    """Whether a row is inconclusive, and its gate has `if_unclear: pass`."""
    return row.verdict is Verdict.INCONCLUSIVE and row.if_unclear == "pass"


def _insists(row: GateRow) -> bool:
    return row.verdict is Verdict.INCONCLUSIVE and row.if_unclear == "fail"


def decide_at_push(
    question: Question, interim: InterimAnalysis | None, push: int | None
) -> Finding:
    """Decide a gate at a push of its pull request, 1 for the first; None is an unknown number."""
    finding = decide_interim(question, interim)
    decision = finding.decision
    inferred = is_inferred(question.gate) and wording.IDENTICAL not in decision.notes
    if decision.verdict is not Verdict.PASS or push == 1 or not inferred:
        return finding
    if push is None:
        return _with_note(finding, decision, wording.PUSH_UNKNOWN)
    alpha = push_level(round(1 - question.confidence, 12), push)
    again = decide_interim(replace(question, level=1 - alpha), interim)
    # The interval is for people, and keeps the confidence of the gate.
    decision = replace(again.decision, interval=decision.interval, level=decision.level)
    return _with_note(again, decision, wording.push_note(push, alpha))


def _with_note(finding: Finding, decision: GateDecision, note: str) -> Finding:
    return replace(
        finding,
        decision=replace(decision, notes=(*decision.notes, note)),
        say=lambda final: wording.at_push(finding.say(final), note),
    )


_WORST_FIRST = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)


def decide_slices(question: Question, decide: Callable[[Question], Finding]) -> Finding:
    """Decide a gate on each slice that is large enough.

    Planned cases count, also those without an answer: a slice does not become too small because
    the head broke it.
    """
    cells = question.cells
    planned = {
        case for variant in question.variants for case in cells.case_ids(variant, Side.HEAD)
    } - cells.left_out
    decided, small = [], []
    for tag, members in cases_by_tag(cells.connection, cells.head.run_id).items():
        inside = sorted(planned & members)
        units = len(set(question.clusters_of(inside) or inside))
        if units < SMALLEST_SLICE:
            small += [(tag, len(inside))] if inside else []
            continue
        others = cells.left_out | (planned - members)
        part = replace(question, cells=replace(cells, left_out=frozenset(others)))
        decided.append(SliceFinding(tag, decide(part)))
    if not decided:
        none = unmeasured(question)
        return Finding(none, lambda _: wording.no_slice(SMALLEST_SLICE), small=tuple(small))
    first = decided[0].finding
    return Finding(first.decision, first.say, first.seed, slices=tuple(decided), small=tuple(small))


def planned_slices(question: Question) -> int:
    """Return the number of slices that will be decided."""
    same = Finding(unmeasured(question), lambda _: "")
    return len(decide_slices(question, lambda _: same).slices)


def worst_of(finding: Finding, decisions: Sequence[GateDecision]) -> tuple[Finding, GateDecision]:
    """Return the worst slice, which represents all of them, after the correction for all gates."""
    verdict = next(v for v in _WORST_FIRST if any(d.verdict is v for d in decisions))
    index = min(
        (i for i, decision in enumerate(decisions) if decision.verdict is verdict),
        key=lambda i: _badness(decisions[i]),
    )
    worst, decision = finding.slices[index], decisions[index]

    def say(final: GateDecision) -> str:
        count = len(finding.slices)
        return wording.worst_slice(worst.finding.say(final), worst.tag, count, finding.small)

    return replace(finding, decision=worst.finding.decision, say=say, seed=worst.finding.seed), (
        decision
    )


def _badness(decision: GateDecision) -> tuple[float, float]:
    """Return a sort key, lowest for the worst: by p-value where it fails, else by its bound."""
    p = decision.p_adjusted if decision.verdict is Verdict.FAIL else None
    worst = decision.worst_plausible if decision.worst_plausible is not None else decision.value
    return (1.0 if p is None else p, 0.0 if worst is None else worst)


def _numbers(decision: GateDecision, **more: object) -> dict[str, Any]:
    """Return the numbers of a decision, by the columns in which they are stored."""
    numbers = estimate_json(decision.value, decision.interval, **more, n=decision.n)
    if decision.p is None:
        return {**numbers, "p": None, "p_holm": None}
    return {**numbers, "p": decision.p.value, "p_holm": decision.p_adjusted}


def slices_json(finding: Finding, decisions: Sequence[GateDecision]) -> dict[str, Any]:
    """Return all slices of a gate, as they appear in its details."""
    rows = [
        {
            "tag": part.tag,
            "verdict": str(decision.verdict),
            **_numbers(decision, worst_plausible=decision.worst_plausible),
        }
        for part, decision in zip(finding.slices, decisions, strict=True)
    ]
    return {"slices": rows, "small_slices": [{"tag": tag, "n": n} for tag, n in finding.small]}
