"""The judges of a run: whom they prefer, whether they agree, and what they may decide."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.record_json import fields_of
from edison_ci.numeric import fixed, reaches, snap, weighted_mean
from edison_ci.records import Side
from edison_ci.results import pairwise, samples
from edison_ci.results.scores import estimate_json
from edison_ci.stats import agreement as stat_agreement
from edison_ci.stats import arrays
from edison_ci.stats import sentences as stat_sentences
from edison_ci.store.judgments import none_compared

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.results.pairwise import HeadToHead
    from edison_ci.stats.agreement import Agreement


def no_judge_answered(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether answers were to be judged, and every judgment failed."""
    query = (
        "select exists (select 1 from cell c join component p on p.cell_id = c.id "
        "where c.run_id = ? and c.status = 'ok' and +p.kind in ('rubric', 'grader') "
        "and p.status in ({}))"
    )

    def is_there(statuses: str) -> bool:
        return bool(connection.execute(query.format(statuses), (run_id,)).fetchone()[0])

    # Most runs have no judge, or one that answered at once: neither takes a second look.
    if is_there("'ok', 'error'") and not is_there("'ok'"):
        return True
    return none_compared(connection, run_id)


def silent_judges(connection: sqlite3.Connection, run_id: str) -> dict[str, str]:
    """Return the judges that never gave a score, though others did, and a reason."""
    rows = connection.execute(
        "select s.judge, max(s.reason) from judge_score s join cell c on c.id = s.cell_id "
        "where c.run_id = ? group by s.judge having count(s.raw) = 0 order by s.judge",
        (run_id,),
    )
    return dict(rows.fetchall())


def last_error_of_judges(connection: sqlite3.Connection, run_id: str) -> str:
    """Return what kept the judges of a run from its last cell; empty if that is not known."""
    row = connection.execute(
        "select p.reason from cell c join component p on p.cell_id = c.id where c.run_id = ? "
        "and p.kind in ('rubric', 'grader') and p.status = 'error' and p.reason <> '' "
        "order by c.rowid desc limit 1",
        (run_id,),
    ).fetchone()
    return str(row[0]) if row else ""


# What is judged is an answer; the case is the unit of uncertainty. A judge's score of an answer is
# the weighted mean of its scores of the criteria, where it scored at least half of the weights.
_MIN_COVERAGE = 0.5
_FAR = 0.5
_CELLS_READ = 20


class JudgeDisagreement(NamedTuple):
    """An answer on which judges are far apart."""

    case: str
    model: str
    side: str
    repeat: int
    criterion: str
    scores: Mapping[str, float]
    """0-1, by judge."""
    spread: float

    @property
    def sentence(self) -> str:
        """The answer and criterion, with the score of each judge."""
        by = ", ".join(f"{judge} {fixed(100 * score)}" for judge, score in self.scores.items())
        base = "" if self.side == Side.HEAD else f" ({self.side})"
        repeat = f"#{self.repeat}" if self.repeat else ""
        return f"{self.case}@{self.model}{repeat}{base} {self.criterion}: {by}"


@dataclass(frozen=True, slots=True)
class CriterionAgreement:
    """How far judges agree on one criterion."""

    name: str
    alpha: Agreement
    kappa: Agreement | None
    """Cohen's, with quadratic weights; None unless there are two judges."""


@dataclass(frozen=True, slots=True)
class PanelAgreement:
    """Agreement of the judges of a run."""

    judges: tuple[str, ...]
    answers: int
    cases: int
    alpha: Agreement
    """Of the judges' scores of answers; `raw` is of the single scores that they are made of."""
    one: Agreement | None
    """ICC(2,1): how good one judge is; None where judgments are missing."""
    panel: Agreement | None
    """ICC(2,k): how good the mean of this panel is."""
    criteria: tuple[CriterionAgreement, ...]
    severity: Mapping[str, float | None]
    """How far each judge is above (generous) or below (strict) the panel, on 0-1."""
    apart: tuple[JudgeDisagreement, ...]
    """Farthest first."""
    missing: int
    """Judgments of answers that are missing."""
    same_calls: tuple[tuple[str, str], ...] = ()
    """Judges that are asked the very same, so that one answer serves both."""

    @property
    def cases_apart(self) -> int:
        """Cases with an answer on which judges differ by 50 points or more."""
        return len(
            {disagreement.case for disagreement in self.apart if reaches(disagreement.spread, _FAR)}
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on the agreement of the judges (STATS 3 and 13)."""
        sentences = [
            stat_sentences.judges_sentence(
                self.judges,
                [self.severity[judge] for judge in self.judges],
                apart=self.cases_apart,
                of=self.cases,
            ),
            stat_sentences.agreement_sentence(self.alpha),
        ]
        sentences += [
            f"{first} and {other} are the same call: their agreement means nothing."
            for first, other in self.same_calls
        ]
        if self.cases < stat_agreement.FEWEST_CASES:
            sentences.append(
                f"{self.cases} of the {stat_agreement.FEWEST_CASES} cases that an error bar needs."
            )
        return tuple(sentences)

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        return {
            **fields_of(self, "judges", "answers", "cases", "missing"),
            "alpha": _json(self.alpha),
            "raw_agreement": self.alpha.raw,
            "icc_one_judge": _json(self.one),
            "icc_panel": _json(self.panel),
            "criteria": [
                {"criterion": c.name, "alpha": _json(c.alpha), "kappa": _json(c.kappa)}
                for c in self.criteria
            ],
            **fields_of(self, "severity", "cases_apart", "apart", "same_calls", "sentences"),
        }


class _Answer(NamedTuple):
    """Scores of each judge for an answer, by criterion."""

    case: str
    model: str
    side: str
    repeat: int
    scores: dict[str, dict[str, float]]
    """By criterion, then by judge."""


def panel_agreement(connection: sqlite3.Connection, run_id: str) -> PanelAgreement | None:
    """Return how the judges of a run agree; None with fewer than two."""
    judges, weights, answers = _read(connection, run_id)
    if len(judges) < 2:
        return None
    cases = [answer.case for answer in answers]
    table = [[_score(answer, judge, weights) for judge in judges] for answer in answers]
    by_criterion = {
        name: [[answer.scores.get(name, {}).get(judge) for judge in judges] for answer in answers]
        for name in weights
    }
    alpha = stat_agreement.krippendorff(table, rng=arrays.generator_for(cases), cases=cases)
    every = [row for rows in by_criterion.values() for row in rows]
    whole = all(None not in row for row in table) and len(table) > 1
    one = panel = None
    if whole:
        one = stat_agreement.intraclass(
            table, rng=arrays.generator_for(cases), of="one judge", cases=cases
        )
        panel = stat_agreement.intraclass(
            table, rng=arrays.generator_for(cases), of="panel", cases=cases
        )
    return PanelAgreement(
        judges=judges,
        answers=len(answers),
        cases=len(set(cases)),
        alpha=replace(alpha, raw=stat_agreement.raw_agreement(every)),
        one=one,
        panel=panel,
        criteria=tuple(_criterion(n, rows, cases, judges) for n, rows in by_criterion.items()),
        severity=dict(zip(judges, stat_agreement.severity_of(table, len(judges)), strict=True)),
        apart=_apart(answers, weights),
        missing=sum(value is None for row in table for value in row),
        same_calls=_same_calls(connection, run_id),
    )


def _read(
    connection: sqlite3.Connection, run_id: str
) -> tuple[tuple[str, ...], dict[str, float], list[_Answer]]:
    rows = connection.execute(
        "select c.id, c.case_id, c.model, c.side, c.repeat, o.judge, o.criterion, o.score "
        "from cell c join judge_score o on o.cell_id = c.id where c.run_id = ? "
        "order by c.case_id, c.model, c.side, c.repeat, c.id, o.judge",
        (run_id,),
    )
    judges: dict[str, None] = {}
    answers: dict[str, _Answer] = {}
    for cell, case, model, side, repeat, judge, criterion, score in rows:
        judges.setdefault(judge)
        answer = answers.setdefault(cell, _Answer(case, model, side, repeat, defaultdict(dict)))
        if score is not None:
            answer.scores[criterion][judge] = score
    weights = connection.execute(
        "select p.name, max(p.weight) from cell c join component p on p.cell_id = c.id "
        "and p.kind = 'criterion' where c.run_id = ? group by p.name order by p.name",
        (run_id,),
    )
    return tuple(sorted(judges)), dict(weights.fetchall()), list(answers.values())


def _same_calls(connection: sqlite3.Connection, run_id: str) -> tuple[tuple[str, str], ...]:
    """Return judges that differ by name only, as a few answers show."""
    rows = connection.execute(
        "select distinct x.model, y.model from (select id from cell where run_id = ? "
        "and status = 'ok' limit ?) c join judgment x on x.cell_id = c.id join judgment y "
        "on y.cell_id = c.id and y.request_hash = x.request_hash and y.answer_no = x.answer_no "
        "and y.model > x.model "
        "join judge_score o on o.cell_id = c.id and o.judge = x.model "
        "join judge_score p on p.cell_id = c.id and p.judge = y.model order by 1, 2",
        (run_id, _CELLS_READ),
    )
    return tuple(rows.fetchall())


def _score(answer: _Answer, judge: str, weights: Mapping[str, float]) -> float | None:
    """Return a judge's composite of an answer (STATS 2)."""
    scores = [
        (weight, score)
        for name, weight in weights.items()
        if (score := answer.scores.get(name, {}).get(judge)) is not None
    ]
    scored = math.fsum(weight for weight, _ in scores)
    covered = reaches(scored, _MIN_COVERAGE * math.fsum(weights.values()))
    return weighted_mean(scores) if covered else None


def _criterion(
    name: str, rows: Sequence[Sequence[float | None]], cases: Sequence[str], judges: Sequence[str]
) -> CriterionAgreement:
    alpha = stat_agreement.krippendorff(rows, rng=arrays.generator_for(cases), cases=cases)
    kappa = None
    if len(judges) == 2:
        both = [
            (first, second) for first, second in rows if first is not None and second is not None
        ]
        kappa = stat_agreement.cohen(
            [first for first, _ in both],
            [second for _, second in both],
            rng=arrays.generator_for(cases),
            weights="quadratic",
        )
        if len(set(cases)) < len(cases):  # answers to one case are not independent
            kappa = replace(kappa, interval=None)
    return CriterionAgreement(name, alpha, kappa)


def _apart(
    answers: Sequence[_Answer], weights: Mapping[str, float]
) -> tuple[JudgeDisagreement, ...]:
    """Return where judges differ by 50 points, or with an sd of 25 (STATS 3)."""
    disagreements = []
    for answer in answers:
        for name in weights:
            scores = answer.scores.get(name, {})
            if len(scores) < 2:
                continue
            together = stat_agreement.panel_score([*scores.values()])
            if together.flagged:
                spread = together.spread or 0.0
                disagreements.append(JudgeDisagreement(*answer[:4], name, dict(scores), spread))
    return tuple(sorted(disagreements, key=lambda apart: (-snap(apart.spread), *apart[:5])))


def _json(agreement: Agreement | None) -> dict[str, Any] | None:
    if agreement is None:
        return None
    about = {"n": agreement.n, "method": agreement.method, "words": agreement.words}
    return estimate_json(agreement.value, agreement.interval, **about)


@dataclass(frozen=True, slots=True)
class JudgeFindings:
    """What the judges of a run say beside its scores."""

    matches: tuple[HeadToHead, ...]
    """By prompt and pair of systems."""
    agreement: PanelAgreement | None
    """None with fewer than two judges."""

    def as_json(self) -> dict[str, Any]:
        """Return it with the keys it has in the document of a run."""
        return fields_of(self, head_to_head="matches", judge_agreement="agreement")


def cells_apart(
    connection: sqlite3.Connection, run_id: str, apart: Iterable[JudgeDisagreement]
) -> dict[tuple[str, str, str, int], str]:
    """Return the cells of answers on which judges disagree, by case, model, side and repeat."""
    cells: dict[tuple[str, str, str, int], str] = {}
    for disagreement in apart:
        key = (disagreement.case, disagreement.model, disagreement.side, disagreement.repeat)
        row = connection.execute(
            "select id from cell where run_id = ? and case_id = ? and model = ? and side = ? "
            "and repeat = ? limit 1",
            (run_id, *key),
        ).fetchone()
        if row is not None:
            cells[key] = str(row[0])
    return cells


class StoredApproval(NamedTuple):
    """What the judges of a run were allowed to decide, as it was written with the run."""

    judges: tuple[str, ...]
    approved: bool
    reason: str
    """Why not, in words."""
    kappa: float | None
    """Agreement with people; None if it was never measured."""
    lower_bound: float | None
    """Of the agreement, one-sided 95%, over cases; the approval goes by it."""
    n: int
    """Labels that it rests on."""
    cases: int
    floor: float
    passes: int
    """Labels: answers that people let pass."""
    true_passes: int
    """Of these, passed by the judges."""
    fails: int
    true_fails: int


def approval_of(connection: sqlite3.Connection, run_id: str) -> StoredApproval | None:
    """Return the approval under which a run was judged; None if it needed none."""
    row = connection.execute(
        f"select {', '.join(StoredApproval._fields)} from judge_approval where run_id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        return None
    judges, approved, *rest = row
    return StoredApproval(tuple(json.loads(judges)), bool(approved), *rest)


def judge_findings(connection: sqlite3.Connection, run_id: str) -> JudgeFindings:
    """Return what the judges of a run say."""
    rows = connection.execute(
        "select distinct case_id, cluster from cell where run_id = ? and cluster is not null",
        (run_id,),
    )
    clusters = dict(rows.fetchall())
    matches = pairwise.matches_of(samples.TwoSidedSample.of_run(connection, run_id))
    return JudgeFindings(
        tuple(pairwise.head_to_head(match, clusters) for match in matches),
        panel_agreement(connection, run_id),
    )
