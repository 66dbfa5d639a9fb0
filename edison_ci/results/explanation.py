"""Explanation of a cell: why it passed or failed.

Everything is read from stored rows: thresholds from the snapshot of the run, scores and reasons
from the components, replies of judges from their answers. Only the case is read from today's files,
and only if it has not changed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.embeddings import is_vector
from edison_ci.checks.output import parse_output
from edison_ci.config.case_facts import content_hash
from edison_ci.config.cases import STATIC, look_up_cases, supports_lookup
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError
from edison_ci.numeric import fixed, reaches, significant
from edison_ci.plan.fingerprint import plain
from edison_ci.records import CellStatus, Side
from edison_ci.results.snapshot import experiment_in, snapshot_of
from edison_ci.safety.redaction import redact_case, redactor
from edison_ci.store.answers import answer_at
from edison_ci.store.cells import COUNTED, fallback_of, find_cell, run_of_cell
from edison_ci.store.judgments import comparisons_of, judge_scores_of
from edison_ci.store.manual_grades import grades_of
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case
    from edison_ci.results.cells import Cells
    from edison_ci.results.run_result import RunResult
    from edison_ci.store.answers import CachedAnswer
    from edison_ci.store.cells import CellRow, Component, FallbackAnswer
    from edison_ci.store.judgments import ComparisonRow, JudgeScoreRow
    from edison_ci.store.manual_grades import ManualGrade
    from edison_ci.store.runs import Run

_FEW = 30
"""Cases up to which each is read alone, as those of a page; for more, the dataset is read whole."""


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """Reply of a judge or grader, with its cost."""

    model: str
    request_hash: str
    answer_no: int
    stored: CachedAnswer | None
    """None once the text is taken away."""


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """One of the answers to the cell's call."""

    number: int
    created_at: str
    cost_microusd: int
    cost_kind: str
    tokens_in: int | None
    tokens_out: int | None
    latency_ms: int
    served_model: str
    finish_reason: str


@dataclass(frozen=True, slots=True)
class ComparedAnswer:
    """Another answer to the same case, and which of the two a judge prefers."""

    side: str
    model: str
    judge: str
    preferred: bool | None
    """Whether this cell's answer is preferred in both orders; None for a tie."""
    orders: tuple[tuple[str, str], tuple[str, str]]
    """Winner and reason, when this cell's answer was shown first, and second."""
    asked: bool
    status: str


@dataclass(frozen=True, slots=True)
class CellExplanation:
    """A cell with everything that explains its grade."""

    run: Run
    cell: CellRow
    case: Case | None
    """None when the case has changed, or is no longer there."""
    answer: CachedAnswer | None
    output: Output | None
    """None for a blocked answer too: it is withheld."""
    thresholds: dict[tuple[str, str], float]
    """By kind and name of a component; a component that cannot fail by its score has none."""
    judgments: tuple[JudgeAnswer, ...]
    answers: tuple[AnswerRecord, ...]
    judge_scores: tuple[JudgeScoreRow, ...] = ()
    """Scores of each judge of the rubric, by criterion."""
    rivals: tuple[ComparedAnswer, ...] = ()
    """The answers that it was compared with."""
    people: tuple[ManualGrade, ...] = ()
    """Human grades of the answer, each person's last."""
    fallback: FallbackAnswer | None = None
    """The answer of a fallback model in place of this one; it counts for nothing."""
    fallback_text: str | None = None
    """None if it is withheld or no longer stored."""

    @property
    def counted(self) -> tuple[Component, ...]:
        """The components that composite and pass are made of."""
        return tuple(component for component in self.cell.components if component.kind in COUNTED)

    @property
    def text(self) -> str | None:
        """The answer as it is graded, or all of it if it is malformed; None if it is withheld."""
        return text_of(self.output)

    @property
    def arithmetic(self) -> str:
        """Calculation of the composite, in points out of 100."""
        cell = self.cell
        if cell.status is not CellStatus.OK:
            return f"{cell.status}, so the composite is {_points(cell.composite)}"
        broken = [
            component.name for component in self.counted if component.status is CellStatus.ERROR
        ]
        if broken:
            return f"missing, because {', '.join(broken)} could not be graded"
        weighed = [p for p in self.counted if p.score is not None and p.weight > 0]
        if not weighed:
            return "missing, because nothing that was graded has a weight"
        total = math.fsum(component.weight for component in weighed)
        terms = " + ".join(f"{p.weight:g} x {_points(p.score)} ({p.name})" for p in weighed)
        return f"({terms}) / {significant(total, 6)} = {_points(cell.composite)}"

    @property
    def why(self) -> str:
        """In one sentence, why it passed or did not."""
        cell = self.cell
        if cell.status is not CellStatus.OK:
            return failure_of(cell)
        failed = [component for component in self.counted if component.passed is False]
        if failed:
            return "fails: " + "; ".join(self._short_of(component) for component in failed)
        return _passing_words(cell)

    def _short_of(self, component: Component) -> str:
        asked = self.thresholds.get((component.kind, component.name))
        score = f"{component.kind} {component.name} has {_points(component.score)}"
        reason = f" ({component.reason})" if component.reason else ""
        reached = asked is None or (component.score is not None and reaches(component.score, asked))
        return f"{score}{'' if reached else f' of {_points(asked)}'}{reason}"


def failure_of(cell: CellRow) -> str:
    """Return why a cell fails, by its first component that does; empty if it does not fail."""
    if cell.status is not CellStatus.OK:
        return f"{cell.status}: {_stored_reason(cell)}"
    failed = [
        component
        for component in cell.components
        if component.kind in COUNTED and component.passed is False
    ]
    if not failed:
        return ""
    first, more = failed[0], len(failed) - 1
    if first.kind == "rubric" and not first.reason:  # its weakest criterion has a reason
        criteria = [
            component
            for component in cell.components
            if component.kind == "criterion" and component.reason
        ]
        first = min(
            criteria, key=lambda component: (component.score or 0.0, component.name), default=first
        )
    why = f"{first.name}: {first.reason}" if first.reason else f"{first.kind} {first.name}"
    return why + (f" (and {more:,} more)" if more else "")


def outcome_reason(cell: CellRow) -> str:
    """Return why a cell passes or fails, by the first component that does."""
    return failure_of(cell) or _passing_words(cell)


def _passing_words(cell: CellRow) -> str:
    if cell.passed is None:
        return "neither passes nor fails: a component of the grade is missing"
    return "passes: every component reaches its threshold"


def output_of(
    run: Run, cell: CellRow, answer: CachedAnswer | None, experiment: Experiment | None = None
) -> Output | None:
    """Return an answer as it is graded; None if it is withheld or no longer stored."""
    if answer is None or cell.status is CellStatus.BLOCKED:
        return None
    form = expected_form(run, experiment, cell.side, cell.version)
    return parse_output(answer.completion.text, form)


def text_of(output: Output | None) -> str | None:
    """Return the text of an answer, all of it if it is malformed; None without one."""
    if output is None:
        return None
    return output.raw if output.malformed else output.text


def _stored_reason(cell: CellRow) -> str:
    return (cell.reason or cell.error or "no reason is stored").removeprefix("blocked: ")


def explain(
    connection: sqlite3.Connection, project: Project | None, run: Run, cell: CellRow
) -> CellExplanation:
    """Return everything that is known about a cell; without its project, not what was asked."""
    experiment = project.experiments.get(run.experiment) if project is not None else None
    answer = answer_at(connection, cell.request_hash, cell.answer_no)
    fallback = fallback_of(connection, cell.id) if cell.status is CellStatus.ERROR else None
    replies = [
        JudgeAnswer(model, request_hash, answer_no, answer_at(connection, request_hash, answer_no))
        for model, request_hash, answer_no in connection.execute(
            "select model, request_hash, answer_no from judgment where cell_id = ? "
            "order by model, request_hash",
            (cell.id,),
        ).fetchall()
    ]
    return CellExplanation(
        run=run,
        cell=cell,
        case=None if project is None else _case(project, experiment, cell),
        answer=answer,
        output=output_of(run, cell, answer, experiment),
        thresholds=_thresholds(run, experiment),
        # A cell also rests on the embeddings that a check compared, which are not for reading.
        judgments=tuple(
            reply
            for reply in replies
            if reply.stored is None or not is_vector(reply.stored.completion.text)
        ),
        answers=_answers(connection, cell.request_hash),
        judge_scores=judge_scores_of(connection, cell.id),
        rivals=tuple(
            _rival(connection, cell.id, row) for row in comparisons_of(connection, cell.id)
        ),
        people=tuple(grades_of(connection, run.experiment, cell)),
        fallback=fallback,
        fallback_text=None if fallback is None else _fallback_text(connection, fallback),
    )


def explain_cell(connection: sqlite3.Connection, cell_id: str) -> CellExplanation | None:
    """Explain the cell whose id starts so, without its project; None if there is none."""
    run_id = run_of_cell(connection, cell_id)
    if run_id is None:
        return None
    cell = find_cell(connection, run_id, cell_id)
    return explain(connection, None, find_run(connection, run_id), cell)


def _fallback_text(connection: sqlite3.Connection, fallback: FallbackAnswer) -> str | None:
    if fallback.status is CellStatus.BLOCKED:
        return None
    stored = answer_at(connection, fallback.request_hash, fallback.answer_no)
    return None if stored is None else stored.completion.text


def _answers(connection: sqlite3.Connection, request_hash: str) -> tuple[AnswerRecord, ...]:
    rows = connection.execute(
        "select answer_no, created_at, cost_microusd, cost_kind, tokens_in, tokens_out, "
        "latency_ms, "
        "served_model, finish_reason from answer where request_hash = ? order by answer_no",
        (request_hash,),
    )
    return tuple(AnswerRecord(*row) for row in rows)


def _case(project: Project, experiment: Experiment | None, cell: CellRow) -> Case | None:
    cases = unchanged_cases(project, experiment, {cell.case_id: cell.case_hash})
    return cases.get(cell.case_id)


def unchanged_cases(
    project: Project, experiment: Experiment | None, hashes: Mapping[str, str | None]
) -> dict[str, Case]:
    """Return the cases, by id, that are still what they were by the hash of their content."""
    if experiment is None or not hashes:
        return {}
    data = experiment.file.data
    cases: Iterable[Case] = project.cases(experiment) if data else [STATIC]
    if data and len(hashes) <= _FEW and supports_lookup(hashes, data):
        cases = look_up_cases(project.cases(experiment), hashes)
    left, cases_by_id = set(hashes), {}
    try:
        for case in cases:
            if case.id in left:
                left.remove(case.id)
                cases_by_id[case.id] = case
            if not left:
                break
    except (Fault, ConfigError):
        return {}
    redact = redactor(project.file.settings)
    return {
        name: redact_case(case, redact)
        for name, case in cases_by_id.items()
        if content_hash(case) == hashes[name]
    }


def known_cases(project: Project, cells: Cells, view: RunResult) -> dict[str, Case]:
    """Return the cases of a run that are still what they were, by id."""
    experiment = project.experiments.get(view.run.experiment)
    return unchanged_cases(project, experiment, cells.case_hashes(view))


def expected_form(run: Run, experiment: Experiment | None, side: str, version: str) -> str:
    """Return what a prompt expected of an answer when the run was planned."""
    mark = "" if side == Side.HEAD else f"{side}: "
    for place, value in snapshot_of(run).items():
        if place.startswith(mark) and isinstance(value, list) and value[:1] == [version]:
            return str(value[1])
    prompts = experiment.prompts if experiment is not None else ()
    return next((p.expect for p in prompts if p.version == version), "none")


def _thresholds(run: Run, experiment: Experiment | None) -> dict[tuple[str, str], float]:
    """Return the lowest passing score of each component, as it was when the run was planned."""
    snapshot = snapshot_of(run)
    written = experiment_in(snapshot, run.experiment)
    thresholds: dict[tuple[str, str], float] = {}
    if experiment is not None:
        # A default depends on the kind of check, which only the check itself knows.
        for name, check in experiment.file.named_checks().items():
            if plain(check) in written.get("checks", ()):
                thresholds["check", name] = check.passes_at
    for grader in written.get("judges", {}).get("graders", ()):
        name = grader["name"] or grader["prompt"].rpartition("/")[2].removesuffix(".md")
        thresholds["grader", name] = grader["threshold"]
    rubric = snapshot.get((written.get("rubric") or {}).get("path", ""), {})
    if rubric.get("pass_at") is not None:
        thresholds["rubric", rubric["rubric"]] = rubric["pass_at"]
    for criterion in rubric.get("criteria", ()):
        if criterion["min"] is not None:
            thresholds["criterion", criterion["name"]] = criterion["min"]
    return thresholds


def _rival(connection: sqlite3.Connection, cell_id: str, row: ComparisonRow) -> ComparedAnswer:
    """Return a comparison as the cell sees it."""
    mine = "a" if row.a_cell == cell_id else "b"
    other = row.b_cell if mine == "a" else row.a_cell
    side, model = connection.execute(
        "select side, model from cell where id = ?", (other,)
    ).fetchone()
    names = {mine: "this", "tie": "tie", None: "nobody"}
    orders = [(row.ab_winner, row.ab_reason), (row.ba_winner, row.ba_reason)]
    first, second = orders if mine == "a" else orders[::-1]
    decided = row.ab_winner == row.ba_winner and row.ab_winner in ("a", "b")
    return ComparedAnswer(
        side,
        model,
        row.judge,
        row.ab_winner == mine if decided else None,
        (
            (names.get(first[0], "other"), first[1]),
            (names.get(second[0], "other"), second[1]),
        ),
        bool(row.asked),
        row.status,
    )


def _points(score: float | None) -> str:
    return "missing" if score is None else fixed(100 * score, 1).removesuffix(".0")
