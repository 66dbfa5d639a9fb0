"""What do the gates of an experiment say about a run?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.decide import wording
from edison_ci.decide.evidence import Evidence
from edison_ci.decide.gates import Finding, Question, decide_gate
from edison_ci.decide.metrics import metric_of
from edison_ci.decide.rows import GateRow, RowVerdict
from edison_ci.errors import ExitCode
from edison_ci.stats.families import decide_family
from edison_ci.stats.verdicts import Verdict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.decide.evidence import Subject
    from edison_ci.stats.verdicts import GateDecision


@dataclass(frozen=True, slots=True)
class Background:
    """What the cells of a run do not say themselves."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    """Clusters by case, of the cases that have one."""
    quarantined: Collection[str] = frozenset()
    """Cases that run and are shown, but never gate."""
    has_base: bool = False
    """Whether there is anything to compare with."""


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


def decide(
    connection: sqlite3.Connection,
    gates: Sequence[Gate],
    run_id: str,
    background: Background | None = None,
) -> RunDecision:
    """Decide every gate on the stored cells of a run; nothing else is read, nothing is written."""
    background = background or Background()
    evidence = Evidence(connection, run_id, frozenset(background.quarantined))
    sides = _Sides(
        evidence.subjects("head"),
        frozenset(evidence.subjects("base")) if background.has_base else None,
    )
    asked = [row for gate in gates for row in _asked(evidence, gate, sides, background)]
    findings = [row.finding for row in asked if row.finding is not None]
    decided = iter(decide_family([f.decision for f in findings]).items if findings else ())
    return RunDecision.of(
        _skipped(row) if row.finding is None else _decided(row, row.finding, next(decided))
        for row in asked
    )


class _Asked(NamedTuple):
    """A row of the report, before the rows are allowed for each other."""

    gate: Gate
    subject: Subject | None
    finding: Finding | None
    reason: str = ""
    """Why there is no finding."""


class _Sides(NamedTuple):
    """The prompts and models of both sides; the base may be absent."""

    head: tuple[Subject, ...]
    base: frozenset[Subject] | None


def _asked(evidence: Evidence, gate: Gate, sides: _Sides, background: Background) -> list[_Asked]:
    heads, bases = sides
    groups: list[tuple[Subject | None, tuple[Subject, ...]]] = [(None, heads)]
    if gate.per == "model" and heads:
        groups = [(subject, (subject,)) for subject in heads]
    if gate.no_worse_than is None:
        bases = frozenset(heads)
    elif bases is None:
        return [_Asked(gate, subject, None, wording.NO_BASE) for subject, _ in groups]
    metric = metric_of(evidence.connection, evidence.run_id, gate.metric)
    rows = []
    for subject, members in groups:
        known = tuple(member for member in members if member in bases)
        if members and not known:
            rows.append(_Asked(gate, subject, None, wording.no_base_of(subject)))
            continue
        question = Question(gate, metric, evidence, known, background.clusters)
        rows.append(_Asked(gate, subject, decide_gate(question)))
    return rows


def _skipped(row: _Asked) -> GateRow:
    return GateRow(verdict="skipped", sentence=row.reason, **_named(row))


def _decided(row: _Asked, finding: Finding, decision: GateDecision) -> GateRow:
    if decision.verdict is not finding.decision.verdict and decision.n_more == 1:
        # The other gates are in the way, not a lack of cases.
        decision = replace(decision, n_more=None)
    sentence, notes = finding.say(decision), decision.notes
    if decision.verdict is Verdict.INCONCLUSIVE and row.gate.if_unclear == "more_draws":
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
        },
        **_named(row),
    )


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
