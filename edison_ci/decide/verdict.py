"""The verdict of all gates of an experiment on a run."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.decide import wording
from edison_ci.decide.gates import Finding, Question
from edison_ci.decide.interim import carried, goes_on, look_at, settles_later
from edison_ci.decide.win_rate import not_held_against
from edison_ci.errors import ExitCode
from edison_ci.plan.looks import takes_part
from edison_ci.results.decisions import GateRow, RowVerdict
from edison_ci.results.samples import TwoSidedSample, metric_of
from edison_ci.stats.verdicts import Verdict, decide_family

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.plan.baseline import Doubt
    from edison_ci.plan.looks import Look
    from edison_ci.results.samples import Subject
    from edison_ci.stats.verdicts import GateDecision


# Everything it would have said, and that it is only advice: the row counts as skipped, so it
# neither fails nor passes a run, whatever `if_unclear` asks for.
def advised(row: GateRow, unlicensed: Mapping[str, str]) -> GateRow:
    """Return a row as advice if judges without a licence would decide it."""
    reason = unlicensed.get(row.metric)
    if reason is None or row.verdict == "skipped" or row.gate.get("use") == "human":
        return row
    sentence = f"Advisory only, would be {row.verdict}: {row.sentence} The {reason}."
    advice = {"would_be": row.verdict, "reason": reason}
    return replace(
        row, verdict="skipped", sentence=sentence, detail={**row.detail, "advisory": advice}
    )


@dataclass(frozen=True, slots=True)
class Background:
    """What the cells of a run do not say themselves."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    """Clusters by case, of the cases that have one."""
    quarantined: Collection[str] = frozenset()
    """Cases that run and are shown, but never gate."""
    has_base: bool = False
    """Whether there is anything to compare with."""
    look: Look | None = None
    """Which of several looks this is; None for the only one."""
    before: tuple[GateRow, ...] = ()
    """What the look before it said."""
    stored: Stored = field(default_factory=lambda: Stored())
    """What stands in for a base that was not measured with the run."""
    unlicensed: Mapping[str, str] = field(default_factory=dict)
    """Metrics that judges may not decide, and why: their gates are advisory."""
    asked: str | None = None
    """The commit that it was to be compared with, as it was named."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Stored cells that the head is compared with, or why there are none."""

    cells: TwoSidedSample | None = None
    """Both sides, as if they had been measured together."""
    told: str = ""
    """Which run it is, or why there is none."""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunDecision:
    """What all gates say together."""

    rows: tuple[GateRow, ...]
    verdict: RowVerdict
    exit_code: ExitCode

    @classmethod
    def of(cls, rows: Iterable[GateRow]) -> RunDecision:
        """Put rows together: fail if one fails, else inconclusive if one is, else pass."""
        rows = tuple(rows)
        said = {row.verdict for row in rows if not _passed_over(row)}
        if any(_passed_over(row) for row in rows):
            said.add("pass")
        order: tuple[RowVerdict, ...] = ("fail", "inconclusive", "pass")
        verdict: RowVerdict = next((one for one in order if one in said), "skipped")
        code = ExitCode.GATE_FAILED if verdict == "fail" else ExitCode.DONE
        if verdict == "inconclusive" and any(_insists(row) for row in rows):
            code = ExitCode.UNCLEAR
        return cls(rows, verdict, code)


def doubted(decision: RunDecision, doubts: Iterable[Doubt]) -> RunDecision:
    """Return a decision with what keeps it from passing, first and whatever its gates let pass."""
    insists = any(row.if_unclear == "fail" for row in decision.rows)
    if_unclear = "fail" if insists else "neutral"
    rows = [
        GateRow(
            metric=doubt.metric,
            prompt=None,
            model=None,
            verdict="inconclusive",
            sentence=doubt.sentence,
            if_unclear=if_unclear,
            gate={"if_unclear": if_unclear},
            detail={"doubt": True},
        )
        for doubt in doubts
    ]
    return RunDecision.of((*rows, *decision.rows)) if rows else decision


def decide(
    cells: TwoSidedSample, gates: Sequence[Gate], background: Background | None = None
) -> RunDecision:
    """Decide every gate on stored cells; nothing else is read, nothing is written."""
    background = background or Background()
    look = background.look
    draws = look.at if look is not None and look.kind == "draws" else None
    left_out = cells.left_out.union(background.quarantined)
    sides = _Sides.of(replace(cells, left_out=left_out, draws=draws), background)
    asked = [row for gate in gates for row in _asked(gate, sides, background)]
    kept: list[GateRow | None] = [None] * len(asked)
    if look is not None and len(background.before) == len(asked):
        kept = [
            old if carried(old, row.gate, look) else None
            for old, row in zip(background.before, asked, strict=True)
        ]
    first = [
        old or (_waiting(row) if settles_later(row.gate, look) and row.question else None)
        for old, row in zip(kept, asked, strict=True)
    ]
    rows = _together(asked, first, background)
    if look is None or goes_on(rows, look):
        return RunDecision.of(rows)
    # Sampling has stopped: now those are decided that waited for it, the others stay.
    done = [None if row.detail.get("waiting") else row for row in rows]
    return RunDecision.of(_together(asked, done, background) if None in done else rows)


def _together(
    asked: Sequence[_Asked], kept: Sequence[GateRow | None], background: Background
) -> list[GateRow]:
    """Decide the rows that are not kept, allowing for all."""
    look = background.look
    findings = [
        look_at(row.question, look) if row.question is not None and old is None else None
        for row, old in zip(asked, kept, strict=True)
    ]
    new = [finding.decision for finding in findings if finding is not None]
    others = [p for row in kept if row is not None and (p := _counted_p(row)) is not None]
    decided = iter(decide_family(new, others=others).items if new else ())
    rows = []
    for row, old, finding in zip(asked, kept, findings, strict=True):
        if old is not None:
            rows.append(old)
        elif finding is None:
            rows.append(_skipped(row))
        else:
            said = _decided(row, finding, next(decided), look)
            rows.append(advised(said, background.unlicensed))
    return rows


class _Asked(NamedTuple):
    """A row of the report, before the rows are allowed for each other."""

    gate: Gate
    subject: Subject | None
    question: Question | None
    reason: str = ""
    """Why nothing is asked."""
    stored: Stored | None = None
    """What it is compared with, if that was measured another time."""


class _Sides(NamedTuple):
    """What gates look at: head alone, and head against base, which may have been measured apart."""

    alone: TwoSidedSample
    compared: TwoSidedSample | None
    heads: tuple[Subject, ...]
    bases: frozenset[Subject]

    @classmethod
    def of(cls, cells: TwoSidedSample, background: Background) -> _Sides:
        compared = cells if background.has_base else background.stored.cells
        bases = frozenset(compared.subjects("base")) if compared is not None else frozenset()
        return cls(cells, compared, cells.subjects("head"), bases)


def _asked(gate: Gate, sides: _Sides, background: Background) -> list[_Asked]:
    heads, comparing = sides.heads, gate.no_worse_than is not None
    groups: list[tuple[Subject | None, tuple[Subject, ...]]] = [(None, heads)]
    if gate.per == "model" and heads:
        groups = [(subject, (subject,)) for subject in heads]
    cells = sides.compared if comparing else sides.alone
    if cells is None:
        reason = background.stored.told or wording.no_base(background.asked)
        return [_Asked(gate, subject, None, reason) for subject, _ in groups]
    bases = sides.bases if comparing else frozenset(heads)
    stored = background.stored if comparing and not background.has_base else None
    metric = metric_of(cells, gate.metric)
    rows = []
    for subject, members in groups:
        known = tuple(member for member in members if member in bases)
        if members and not known:
            rows.append(_Asked(gate, subject, None, wording.no_base_of(subject)))
            continue
        question = Question(gate, metric, cells, known, background.clusters)
        wins = metric.kind == "wins" and gate.use != "human"
        reason = not_held_against(cells, subject) if wins else ""
        if reason:
            rows.append(_Asked(gate, subject, None, reason))
            continue
        rows.append(_Asked(gate, subject, question, stored=stored))
    return rows


def _waiting(row: _Asked) -> GateRow:
    """Return the row of a gate that is decided when sampling has stopped."""
    detail = {"waiting": True, "tested": _is_tested(row)}
    return GateRow(verdict="inconclusive", sentence=wording.WAITING, detail=detail, **_named(row))


def _is_tested(row: _Asked) -> bool:
    """Whether a row will have a p: amounts and wins against the base do."""
    kind = row.question.metric.kind if row.question is not None else "share"
    return row.gate.no_worse_than is not None and kind in ("amount", "wins")


def _counted_p(row: GateRow) -> float | None:
    """Return the p with which a row counts in the family; not decided yet, it says nothing."""
    return 1.0 if row.detail.get("waiting") and row.detail.get("tested") else row.p


def _skipped(row: _Asked) -> GateRow:
    return GateRow(verdict="skipped", sentence=row.reason, **_named(row))


def _decided(row: _Asked, finding: Finding, decision: GateDecision, look: Look | None) -> GateRow:
    if decision.verdict is not finding.decision.verdict and decision.n_more == 1:
        # The other gates are in the way, not a lack of cases.
        decision = replace(decision, n_more=None)
    sentence, notes = finding.say(decision), decision.notes
    if row.stored is not None:
        sentence = f"{sentence} {row.stored.told}"
    unclear = decision.verdict is Verdict.INCONCLUSIVE
    if unclear and look is None and row.gate.if_unclear == "more_draws":
        sentence, notes = f"{sentence} {wording.MORE_DRAWS}", (*notes, wording.MORE_DRAWS)
    return GateRow(
        verdict=decision.verdict.value,
        sentence=sentence,
        estimate=decision.value,
        low=None if decision.interval is None else decision.interval.low,
        high=None if decision.interval is None else decision.interval.high,
        n=decision.n,
        n_more=decision.n_more,
        p=None if decision.p is None else decision.p.value,
        p_holm=None if decision.p is None else decision.p_adjusted,
        detail={
            "kind": decision.kind,
            "method": decision.method,
            "level": decision.level,
            "margin": decision.margin,
            "worst_plausible": decision.worst_plausible,
            "best_plausible": decision.best_plausible,
            "family": decision.family,
            "missing": decision.missing,
            "n_needed": decision.n_needed,
            "n_more_range": None if decision.n_more_range is None else [*decision.n_more_range],
            "seed": None if finding.seed is None else f"{finding.seed:064x}",
            "notes": [*notes],
            **_circumstances(row, decision, look),
        },
        **_named(row),
    )


def _circumstances(row: _Asked, decision: GateDecision, look: Look | None) -> dict[str, Any]:
    """Return what has to be known of a decision that was not made once, on one run."""
    told: dict[str, Any] = {}
    if look is not None and takes_part(row.gate, look.kind):
        told["look"] = {**look.as_json(), "alpha": decision.alpha}
    if row.stored is not None:
        told["base"] = dict(row.stored.about)
    return told


def _named(row: _Asked) -> dict[str, Any]:
    gate, subject = row.gate, row.subject
    return {
        "metric": gate.metric,
        "prompt": None if subject is None else subject.prompt,
        "model": None if subject is None else subject.model,
        "if_unclear": gate.if_unclear,
        "gate": gate.model_dump(mode="json", exclude_none=True),
    }


def _passed_over(row: GateRow) -> bool:
    """Whether a row is unclear, and its gate lets that pass."""
    return row.verdict == "inconclusive" and row.if_unclear == "pass"


def _insists(row: GateRow) -> bool:
    return row.verdict == "inconclusive" and row.if_unclear == "fail"
