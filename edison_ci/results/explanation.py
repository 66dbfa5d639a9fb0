"""Why a cell passed or failed: everything that made it what it is.

Everything is told from what was stored: thresholds from the snapshot that the run was planned on,
scores and reasons from the parts, what judges said from their own answers. Only the case is read
from today's files, and only if it is still the case that was asked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.cases import STATIC, can_be_looked_up, looked_up
from edison_ci.config.facets import content_hash
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError
from edison_ci.plan.fingerprint import plain
from edison_ci.results.snapshot import kept_snapshot
from edison_ci.rounding import fixed, reaches, significant
from edison_ci.safety.redaction import redacted_case, redaction
from edison_ci.store.answers import answer_at
from edison_ci.store.comparisons import comparisons_of
from edison_ci.store.grades import grades_of
from edison_ci.store.opinions import opinions_of
from edison_ci.store.runs import COUNTED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case
    from edison_ci.store.answers import Stored
    from edison_ci.store.comparisons import ComparisonRow
    from edison_ci.store.grades import ManualGrade
    from edison_ci.store.opinions import OpinionRow
    from edison_ci.store.runs import CellRow, Part, Run

_FEW = 4
"""Cases that are looked up one by one; for more, a dataset is read through."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a judge or grader answered, and what that cost."""

    model: str
    address: str
    take: int
    stored: Stored | None
    """None once the text is taken away."""


@dataclass(frozen=True, slots=True)
class Take:
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
class Rival:
    """Another answer to the same case, and which of the two a judge prefers."""

    side: str
    model: str
    judge: str
    preferred: bool | None
    """Whether this cell's answer is preferred in both orders; None for a tie."""
    said: tuple[tuple[str, str], tuple[str, str]]
    """Who won and why, when this cell's answer was shown first, and second."""
    asked: bool
    status: str


@dataclass(frozen=True, slots=True)
class Explained:
    """A cell with everything that made it what it is."""

    run: Run
    cell: CellRow
    case: Case | None
    """None when the case changed since, or is no longer there."""
    answer: Stored | None
    output: Output | None
    """None for a blocked answer too: it is shown to nobody."""
    thresholds: dict[tuple[str, str], float]
    """By kind and name of a part; a part that cannot fail by its score has none."""
    judgments: tuple[Said, ...]
    takes: tuple[Take, ...]
    opinions: tuple[OpinionRow, ...] = ()
    """What each judge of the rubric said, by criterion."""
    rivals: tuple[Rival, ...] = ()
    """The answers that it was compared with."""
    people: tuple[ManualGrade, ...] = ()
    """What people said of the answer, each person's last word."""

    @property
    def counted(self) -> tuple[Part, ...]:
        """The parts that composite and pass are made of."""
        return tuple(part for part in self.cell.parts if part.kind in COUNTED)

    @property
    def arithmetic(self) -> str:
        """How the composite comes about, in points out of 100."""
        cell = self.cell
        if cell.status != "ok":
            return f"{cell.status}, so the composite is {_points(cell.composite)}"
        broken = [part.name for part in self.counted if part.status == "error"]
        if broken:
            return f"missing, because {', '.join(broken)} could not be graded"
        weighed = [p for p in self.counted if p.score is not None and p.weight > 0]
        if not weighed:
            return "missing, because nothing that was graded has a weight"
        total = math.fsum(part.weight for part in weighed)
        terms = " + ".join(f"{p.weight:g} x {_points(p.score)} ({p.name})" for p in weighed)
        return f"({terms}) / {significant(total, 6)} = {_points(cell.composite)}"

    @property
    def why(self) -> str:
        """In one sentence, why it passed or did not."""
        cell = self.cell
        if cell.status in ("error", "skipped", "malformed", "blocked"):
            reason = (cell.reason or cell.error or "no reason was kept").removeprefix("blocked: ")
            return f"{cell.status}: {reason}"
        failed = [part for part in self.counted if part.passed is False]
        if failed:
            return "fails: " + "; ".join(self._short_of(part) for part in failed)
        if cell.passed is None:
            return "neither passes nor fails: a part of the grade is missing"
        return "passes: every part reaches its threshold"

    def _short_of(self, part: Part) -> str:
        asked = self.thresholds.get((part.kind, part.name))
        score = f"{part.kind} {part.name} has {_points(part.score)}"
        said = f" ({part.reason})" if part.reason else ""
        reached = asked is None or (part.score is not None and reaches(part.score, asked))
        return f"{score}{'' if reached else f' of {_points(asked)}'}{said}"


def explain(
    connection: sqlite3.Connection, project: Project | None, run: Run, cell: CellRow
) -> Explained:
    """Return everything that is known about a cell; without its project, not what was asked."""
    experiment = project.experiments.get(run.experiment) if project is not None else None
    answer = answer_at(connection, cell.address, cell.take)
    output = None
    if answer is not None and cell.status != "blocked":
        form = expected_form(run, experiment, cell.side, cell.version)
        output = parse_output(answer.completion.text, form)
    judged = connection.execute(
        "select model, address, take from judgment where cell_id = ? order by model, address",
        (cell.id,),
    ).fetchall()
    return Explained(
        run=run,
        cell=cell,
        case=None if project is None else _case(project, experiment, cell),
        answer=answer,
        output=output,
        thresholds=_thresholds(run, experiment),
        judgments=tuple(
            Said(model, address, take, answer_at(connection, address, take))
            for model, address, take in judged
        ),
        takes=_takes(connection, cell.address),
        opinions=opinions_of(connection, cell.id),
        rivals=tuple(
            _rival(connection, cell.id, row) for row in comparisons_of(connection, cell.id)
        ),
        people=tuple(grades_of(connection, run.experiment, cell)),
    )


def _takes(connection: sqlite3.Connection, address: str) -> tuple[Take, ...]:
    rows = connection.execute(
        "select take, created_at, cost_microusd, cost_kind, tokens_in, tokens_out, latency_ms, "
        "served_model, finish_reason from answer where address = ? order by take",
        (address,),
    )
    return tuple(Take(*row) for row in rows)


def _case(project: Project, experiment: Experiment | None, cell: CellRow) -> Case | None:
    found = unchanged_cases(project, experiment, {cell.case_id: cell.case_hash})
    return found.get(cell.case_id)


def unchanged_cases(
    project: Project, experiment: Experiment | None, wanted: Mapping[str, str | None]
) -> dict[str, Case]:
    """Return the cases, by id, that are still what they were by the hash of their content."""
    if experiment is None or not wanted:
        return {}
    data = experiment.file.data
    cases: Iterable[Case] = project.cases(experiment) if data else [STATIC]
    if data and len(wanted) <= _FEW and can_be_looked_up(wanted, data):
        cases = looked_up(project.tree, data, experiment.types(), wanted)
    left, found = set(wanted), {}
    try:
        for case in cases:
            if case.id in left:
                left.remove(case.id)
                found[case.id] = case
            if not left:
                break
    except (Fault, ConfigError):
        return {}
    redact = redaction(project.file.settings)
    return {
        name: redacted_case(case, redact)
        for name, case in found.items()
        if content_hash(case) == wanted[name]
    }


def expected_form(run: Run, experiment: Experiment | None, side: str, version: str) -> str:
    """Return what a prompt expected of an answer when the run was planned."""
    mark = "" if side == "head" else f"{side}: "
    for place, value in kept_snapshot(run).items():
        if place.startswith(mark) and isinstance(value, list) and value[:1] == [version]:
            return str(value[1])
    prompts = experiment.prompts if experiment is not None else ()
    return next((p.expect for p in prompts if p.version == version), "none")


# --- thresholds -----------------------------------------------------------------------------------


def _thresholds(run: Run, experiment: Experiment | None) -> dict[tuple[str, str], float]:
    """Return the lowest passing score of each part, as it was when the run was planned."""
    snapshot = kept_snapshot(run)
    written: dict[str, Any] = next(
        (v for v in snapshot.values() if _is_experiment(v, run.experiment)), {}
    )
    found: dict[tuple[str, str], float] = {}
    if experiment is not None:
        # A default depends on the kind of check, which only the check itself knows.
        for name, check in experiment.file.named_checks().items():
            if plain(check) in written.get("checks", ()):
                found["check", name] = check.passes_at
    for grader in written.get("judges", {}).get("graders", ()):
        name = grader["name"] or grader["prompt"].rpartition("/")[2].removesuffix(".md")
        found["grader", name] = grader["threshold"]
    rubric = snapshot.get((written.get("rubric") or {}).get("path", ""), {})
    if rubric.get("pass_at") is not None:
        found["rubric", rubric["rubric"]] = rubric["pass_at"]
    for criterion in rubric.get("criteria", ()):
        if criterion["min"] is not None:
            found["criterion", criterion["name"]] = criterion["min"]
    return found


def _rival(connection: sqlite3.Connection, cell_id: str, row: ComparisonRow) -> Rival:
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
    return Rival(
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


def _is_experiment(value: Any, name: str) -> bool:
    return isinstance(value, dict) and value.get("experiment") == name


def _points(score: float | None) -> str:
    return "missing" if score is None else fixed(100 * score, 1).removesuffix(".0")
