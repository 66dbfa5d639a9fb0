"""Human grades of a run, and automatic scores corrected by them.

Where there are human grades, they replace the automatic ones, and both are shown. From a random
sample of graded cases the score that people would have given to all cases is estimated (STATS 14).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.case_facts import content_hash
from edison_ci.config.cases import STATIC
from edison_ci.documents.record_json import fields_of
from edison_ci.numeric import TOLERANCE, mean_or_none
from edison_ci.records import CellStatus, Side
from edison_ci.results.explanation import expected_form
from edison_ci.results.human_corrections import (
    Correction,
    change_corrections,
    rate_of,
    score_of,
    side_bias_corrections,
)
from edison_ci.results.judges import approval_of
from edison_ci.results.metrics import Metric
from edison_ci.results.samples import SIDES, TwoSidedSample
from edison_ci.results.scores import interval_json
from edison_ci.results.snapshot import snapshot_of
from edison_ci.safety.redaction import redact_case, redactor
from edison_ci.stats.calibration import LabelCounts
from edison_ci.stats.corrected import random_rank, random_sample
from edison_ci.stats.intervals import interval_of_mean, interval_of_rate
from edison_ci.stats.scores import units_of
from edison_ci.store.answers import answer_at
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case
    from edison_ci.results.samples import Variant
    from edison_ci.stats.corrected import RandomSample
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.manual_grades import Key
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cell whose answer can be graded."""

    id: str
    side: str
    prompt: str
    version: str
    model: str
    case_id: str
    repeat: int
    request_hash: str
    answer_no: int
    status: str
    composite: float | None
    passed: int | None
    case_hash: str | None

    @property
    def key(self) -> Key:
        """The answer."""
        return self.case_id, self.request_hash, self.answer_no


@dataclass(frozen=True, slots=True)
class GradableAnswer:
    """What a person sees of an answer."""

    case: Case | None
    """None when the case changed since, or is no longer there."""
    output: Output | None
    """None when the text is no longer stored."""


_GRADABLE = "run_id = ? and status in ('ok', 'malformed') and answer_no is not null"


def candidates(connection: sqlite3.Connection, run_id: str, seed: int) -> list[Candidate]:
    """Return the answers of a run that can be graded, in the random order of a seed."""
    rows = connection.execute(
        "select id, side, prompt, version, model, case_id, repeat, request_hash, answer_no, "
        "status, composite, "
        f"passed, case_hash from cell where {_GRADABLE}",
        (run_id,),
    )
    ranks: dict[str, str] = {}
    cells = [Candidate(*row) for row in rows]
    for cell in cells:
        if cell.case_id not in ranks:
            ranks[cell.case_id] = random_rank(seed, cell.case_id)
    cells.sort(key=lambda cell: (ranks[cell.case_id], random_rank(seed, cell.id)))
    return list(_each_answer_once(cells))


def _each_answer_once(cells: Iterable[Candidate]) -> Iterator[Candidate]:
    answers: set[Key] = set()
    for cell in cells:
        if cell.key not in answers:
            answers.add(cell.key)
            yield cell


def sample_of(cells: Iterable[Candidate], graded: Iterable[Key], seed: int) -> RandomSample:
    """Return the graded cases of a run that are a random sample of all its cases."""
    done = {case for case, _, _ in graded}
    return random_sample((cell.case_id for cell in cells), done, seed)


def cases_of(
    project: Project, experiment: Experiment, cells: Iterable[Candidate]
) -> Mapping[str, Case]:
    """Return the cases of cells whose content has not changed, read once."""
    hashes = {cell.case_id: cell.case_hash for cell in cells}
    source = project.cases(experiment) if experiment.file.data else [STATIC]
    redact = redactor(project.file.settings)
    return {
        case.id: redact_case(case, redact)
        for case in source
        if case.id in hashes and content_hash(case) == hashes[case.id]
    }


def gradable_answer(
    connection: sqlite3.Connection,
    run: Run,
    experiment: Experiment,
    cell: Candidate,
    cases: Mapping[str, Case],
) -> GradableAnswer:
    """Return an answer with its case, for a person to grade."""
    stored = answer_at(connection, cell.request_hash, cell.answer_no)
    output = None
    if stored is not None:
        form = expected_form(run, experiment, cell.side, cell.version)
        output = parse_output(stored.completion.text, form)
    return GradableAnswer(cases.get(cell.case_id), output)


class _Cell(NamedTuple):
    """An answer with its automatic and its human grade."""

    composite: float | None
    passed: float | None
    people: int
    score: float | None
    rating: float | None
    """Mean of the grades on a scale; thumbs left out."""
    human_pass: float | None


@dataclass(slots=True)
class _Case:
    cells: list[_Cell] = field(default_factory=list)
    cluster: str | None = None

    def mean(self, value: Callable[[_Cell], float | None]) -> float | None:
        """Return the mean over the repeats that have a value."""
        values = [v for cell in self.cells if (v := value(cell)) is not None]
        return mean_or_none(values)


_Cases = dict[str, _Case]


@dataclass(frozen=True, slots=True)
class HumanScore:
    """Human grades of a prompt with a model."""

    prompt: str
    model: str
    graded_cases: int
    """Cases with a human grade."""
    composite: Interval | None
    """With people's grades in place of automatic ones where there are some."""
    pass_rate: Interval | None
    sample: RandomSample
    corrections: tuple[Correction, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        return {
            **fields_of(self, "prompt", "model", "graded_cases"),
            "composite": interval_json(self.composite),
            "pass_rate": interval_json(self.pass_rate),
            "sample": {
                "cases": self.sample.n,
                **fields_of(self.sample, "of", "picked", "left_out"),
            },
            **fields_of(self, "corrections"),
        }


@dataclass(frozen=True, slots=True)
class HumanGrades:
    """Human grades of a run."""

    answers: int
    of: int
    """Answers that could be graded."""
    graders: int
    flagged: int
    scores: tuple[HumanScore, ...]
    change: tuple[Correction, ...] = ()
    """On the change from the base, and whether the judge favours a side."""

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        return {
            **fields_of(self, "answers", "of", people="graders"),
            **fields_of(self, "flagged", models="scores", change="change"),
        }


def human_grades_of(connection: sqlite3.Connection, run: Run) -> HumanGrades | None:
    """Return the human grades of a run, with corrections; None without any."""
    counts = approved_counts(connection, run.id)
    sides = _cells(connection, run.id)
    answers, people, flagged = _count_graded(connection, run)
    if not answers and not flagged and counts is None:
        return None
    seeds, who = grading_seeds(connection, run.experiment), _who(connection, run.id)
    passes = _rubric_passes(connection, run) if counts is not None else {}
    scores = []
    for (side, prompt, model), cases in sorted(sides.items()):
        if side != Side.HEAD:
            continue
        rubric = (counts, passes.get((prompt, model), {})) if counts is not None else None
        scores.append(_scored(prompt, model, cases, _Reading(seeds, who, rubric)))
    of = sum(len(case.cells) for cases in sides.values() for case in cases.values())
    change = _changes(sides, seeds, who)
    return HumanGrades(answers, of, people, flagged, tuple(scores), change)


_SAME_ANSWER = (
    "h.experiment = r.experiment and h.case_id = c.case_id and h.request_hash = c.request_hash "
    "and h.answer_no = c.answer_no"
)
_GRADES = f"join run r on r.id = c.run_id left join human_grades h on {_SAME_ANSWER}"
_CRITERION = (
    "join run r on r.id = c.run_id left join (select g.experiment, g.case_id, g.request_hash, "
    "g.answer_no, avg(e.value) as score from counted_grade g, json_each(g.criteria) e "
    "where e.key = :component and g.id in (select max(id) from counted_grade "
    "group by experiment, case_id, request_hash, answer_no, actor) "
    f"group by g.experiment, g.case_id, g.request_hash, g.answer_no) h on {_SAME_ANSWER}"
)


def _cells(connection: sqlite3.Connection, run_id: str) -> dict[tuple[str, str, str], _Cases]:
    rows = connection.execute(
        "select c.side, c.prompt, c.model, c.case_id, c.cluster, c.composite, c.passed, "
        f"coalesce(h.people, 0), h.score, h.rating, h.passed from cell c {_GRADES} "
        "where c.run_id = ? and c.status in ('ok', 'malformed', 'blocked')",
        (run_id,),
    )
    sides: dict[tuple[str, str, str], _Cases] = defaultdict(dict)
    for side, prompt, model, case_id, cluster, *values in rows:
        case = sides[side, prompt, model].setdefault(case_id, _Case(cluster=cluster))
        case.cells.append(_Cell(*values))
    return dict(sides)


def _count_graded(connection: sqlite3.Connection, run: Run) -> tuple[int, int, int]:
    """Return how many answers of a run are graded, by how many people, and how many flagged."""
    row = connection.execute(
        "with here as (select distinct case_id, request_hash, answer_no from cell where run_id = "
        "?1), "
        "last as (select g.* from counted_grade g join here using (case_id, request_hash, "
        "answer_no) "
        "where g.experiment = ?2 and g.id in (select max(id) from counted_grade "
        "where experiment = ?2 group by case_id, request_hash, answer_no, actor)) "
        "select (select count(*) from (select distinct case_id, request_hash, answer_no from last "
        "where score is not null)), (select count(distinct actor) from last "
        "where score is not null), (select count(*) from (select distinct case_id, request_hash, "
        "answer_no "
        "from last where flagged = 1))",
        (run.id, run.experiment),
    ).fetchone()
    return int(row[0]), int(row[1]), int(row[2])


def grading_seeds(connection: sqlite3.Connection, experiment: str) -> list[int]:
    """Return the seeds by whose order people went through the answers of an experiment."""
    rows = connection.execute(
        "select distinct seed from counted_grade where experiment = ? order by 1", (experiment,)
    )
    return [seed for (seed,) in rows] or [0]


_CHECKS = "Checks say"


def _who(connection: sqlite3.Connection, run_id: str) -> str:
    """Return who gives the automatic grades of a run."""
    rows = connection.execute(
        "select distinct p.kind in ('rubric', 'grader') from (select id from cell where run_id = ? "
        "and status = 'ok' limit 20) c join component p on p.cell_id = c.id "
        "and p.kind in ('check', 'rubric', 'grader') and p.weight > 0",
        (run_id,),
    )
    kinds = {bool(judged) for (judged,) in rows}
    if kinds == {True, False}:
        return "Automatic grades say"
    return _CHECKS if kinds == {False} else "Judge says"


def approved_counts(connection: sqlite3.Connection, run_id: str) -> LabelCounts | None:
    """Return the counts of right verdicts of a run's judges on labels; None if not measured."""
    approval = approval_of(connection, run_id)
    if approval is None or not approval.n:
        return None
    return LabelCounts(approval.true_passes, approval.passes, approval.true_fails, approval.fails)


def _rubric_passes(
    connection: sqlite3.Connection, run: Run
) -> dict[tuple[str, str], dict[str, float]]:
    """Return the share of the repeats of each case that the judges let pass."""
    rubrics = [
        value
        for value in snapshot_of(run).values()
        if isinstance(value, dict) and "criteria" in value and "pass_at" in value
    ]
    fails = any(
        rubric["pass_at"] is not None or any(c.get("min") is not None for c in rubric["criteria"])
        for rubric in rubrics
    )
    passed = "p.passed" if fails else f"(p.score >= 0.5 - {TOLERANCE})"
    rows = connection.execute(
        f"select c.prompt, c.model, c.case_id, avg({passed}) from cell c join component p "
        "on p.cell_id = c.id and p.kind = 'rubric' and p.score is not null "
        "where c.run_id = ? and c.side = 'head' group by 1, 2, 3",
        (run.id,),
    )
    shares: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for prompt, model, case_id, share in rows:
        if share is not None:
            shares[prompt, model][case_id] = share
    return dict(shares)


class _Reading(NamedTuple):
    seeds: list[int]
    who: str
    rubric: tuple[LabelCounts, Mapping[str, float]] | None
    """How judges did on labels, and what they let pass here."""


def _scored(prompt: str, model: str, cases: _Cases, reading: _Reading) -> HumanScore:
    def override(human: float | None, automatic: float | None) -> float | None:
        return automatic if human is None else human

    composites = {c: v.mean(lambda x: override(x.score, x.composite)) for c, v in cases.items()}
    passes = {c: v.mean(lambda x: override(x.human_pass, x.passed)) for c, v in cases.items()}
    scored, rated = _values(cases, "composite", "rating")
    passed, voted = _values(cases, "passed", "human_pass")
    sample = _best(scored, rated or _values(cases, "composite", "score")[1], reading.seeds)
    corrections: list[Correction] = []
    clusters = _clusters(cases)
    if rated:
        sampled = _best(scored, rated, reading.seeds)
        corrections.append(score_of(scored, rated, sampled, who=reading.who, clusters=clusters))
    if len(voted) > len(rated):  # with thumbs
        sampled = _best(passed, voted, reading.seeds)
        corrections.append(
            score_of(
                passed,
                voted,
                sampled,
                who=f"Pass rate: {reading.who[:1].lower()}{reading.who[1:]}",
                clusters=clusters,
            )
        )
    if reading.rubric is not None and not any(correction.applies for correction in corrections):
        corrections += rate_of(*reading.rubric)
    graded = sum(any(cell.people for cell in case.cells) for case in cases.values())
    return HumanScore(
        prompt,
        model,
        graded,
        _interval(cases, composites),
        _interval(cases, passes, rate=True),
        sample,
        tuple(corrections),
    )


def _clusters(cases: _Cases) -> dict[str, str]:
    return {name: case.cluster for name, case in cases.items() if case.cluster is not None}


def _values(cases: _Cases, automatic: str, human: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the automatic value of each case, and the human one where there is one."""
    everything: dict[str, float] = {}
    graded: dict[str, float] = {}
    for case_id, case in cases.items():
        value = case.mean(lambda cell: getattr(cell, automatic))
        human_value = case.mean(lambda cell: getattr(cell, human))
        if value is not None:
            everything[case_id] = value
            if human_value is not None:
                graded[case_id] = human_value
    return everything, graded


def _best(cases: Iterable[str], graded: Mapping[str, float], seeds: list[int]) -> RandomSample:
    """Return the largest random sample by any of the orders that people went by."""
    names = list(cases)
    return max((random_sample(names, graded, seed) for seed in seeds), key=lambda sample: sample.n)


def _interval(
    cases: _Cases, values: Mapping[str, float | None], *, rate: bool = False
) -> Interval | None:
    values_by_case = {case: value for case, value in values.items() if value is not None}
    interval_of = interval_of_rate if rate else interval_of_mean
    return interval_of([*values_by_case.values()], units_of([*values_by_case], _clusters(cases)))


def _changes(
    sides: Mapping[tuple[str, str, str], _Cases], seeds: list[int], who: str
) -> tuple[Correction, ...]:
    """Return corrections of the change from the base, for each prompt with a model."""
    corrections: list[Correction] = []
    for (side, prompt, model), base in sorted(sides.items()):
        head = sides.get(("head", prompt, model))
        if side != Side.BASE or head is None:
            continue
        for automatic, human in (("composite", "rating"), ("passed", "human_pass")):
            judged, graded = zip(*(_values(x, automatic, human) for x in (base, head)), strict=True)
            both = judged[0].keys() & judged[1].keys()
            gradable_answer = both & graded[0].keys() & graded[1].keys()
            if len(gradable_answer) < 2:
                continue
            corrections += side_bias_corrections(
                judged, graded, sorted(gradable_answer), f"{prompt} with {model}"
            )
            differences = {case: judged[1][case] - judged[0][case] for case in both}
            by_people = {case: graded[1][case] - graded[0][case] for case in gradable_answer}
            sample, clusters = _best(both, by_people, seeds), _clusters(head)
            corrections += change_corrections(
                differences, by_people, sample, who=who, clusters=clusters
            )
            break
    return tuple(corrections)


# People grade some of the cases. Those represent all cases only if they are a random sample, so
# cases that were picked by hand do not count, unless every case is graded. A gate then decides on
# the sample as it would on a run of that many cases.
def human_metric(metric: Metric) -> Metric:
    """Return the metric on grades by people that corresponds to one on automatic grades."""
    name, label = f"human {metric.name}", f"{metric.label} by people"
    if metric.name.startswith("criterion."):
        component = {"component": metric.parameters["component"]}
        return Metric(
            name, "score", label, "h.score", _CRITERION, parameters=component, complete=False
        )
    if metric.name == "pass_rate":
        # A blocked answer is not shown to graders, and does not pass.
        value = "case c.status when 'blocked' then 0 else h.passed end"
        return Metric(name, "pass", label, value, _GRADES, complete=False)
    return Metric(name, "score", label, "h.score", _GRADES, complete=False)


def labels_of(
    cells: TwoSidedSample, metric: Metric, variants: Sequence[Variant]
) -> HumanGradedSample | None:
    """Return the human grades of both sides by which the judge's scores can be corrected.

    None if judges do not decide the metric, or no answer was graded. Thumbs say nothing about the
    size of a change, so they do not count for scores.
    """
    connection, run = cells.connection, find_run(cells.connection, cells.head.run_id)
    name = metric.name
    if name not in ("composite", "pass_rate") and not name.startswith("criterion."):
        return None
    graded = connection.execute(
        "select exists (select 1 from counted_grade where experiment = ?)", (run.experiment,)
    ).fetchone()[0]
    if not graded or _who(connection, run.id) == _CHECKS:
        return None
    labels = human_metric(metric)
    if name == "composite":
        labels = replace(labels, value="h.rating")
    return human_sample(cells, labels, variants, compared=True)


@dataclass(frozen=True, slots=True)
class HumanSample(TwoSidedSample):
    """Reads the grades of people."""

    chosen: Collection[str] = frozenset()
    """The cases that count."""

    def _by_case(
        self, metric: Metric, variant: Variant, side: Side
    ) -> Iterator[tuple[str, list[tuple[str, int, str, float | None, str, int | None]]]]:
        for case, rows in TwoSidedSample._by_case(self, metric, variant, side):
            if case in self.chosen:
                yield case, rows


@dataclass(frozen=True, slots=True)
class HumanGradedSample:
    """The cases of a run that people have graded."""

    cells: HumanSample
    sample: RandomSample
    metric: Metric

    @property
    def sentence(self) -> str:
        """Which cases count, in a sentence."""
        n, of, picked = self.sample.n, self.sample.of, self.sample.picked
        if n == of:
            return f"People graded all {of:,} cases."
        chosen = f"; {picked:,} that were picked do not count" if picked else ""
        return f"People graded {n:,} of {of:,} cases, a random sample{chosen}."


def human_sample(
    cells: TwoSidedSample, metric: Metric, variants: Iterable[Variant], *, compared: bool
) -> HumanGradedSample:
    """Return the human-graded cases of some prompts and models that represent all cases."""
    about = (cells.connection, cells.base, cells.head, cells.left_out, cells.repeats)
    everything = _GradedCases(*about)
    every_case: set[str] = set()
    graded: set[str] | None = None
    for variant in variants:
        for side in SIDES if compared else SIDES[1:]:
            cases, done = everything.graded(metric, variant, side)
            every_case |= cases
            graded = done if graded is None else graded & done
    samples = [random_sample(every_case, graded or (), seed) for seed in _seeds(cells)]
    best = max(samples, key=lambda sample: sample.n)
    return HumanGradedSample(HumanSample(*about, best.cases), best, metric)


_ANSWERED = (CellStatus.OK, CellStatus.MALFORMED, CellStatus.BLOCKED)


class _GradedCases(TwoSidedSample):
    """Reads which cases can be graded, and which are graded."""

    __slots__ = ()

    def graded(self, metric: Metric, variant: Variant, side: Side) -> tuple[set[str], set[str]]:
        gradable: set[str] = set()
        graded: set[str] = set()
        unchanged = replace(metric, status="c.status")
        for case, rows in self._by_case(unchanged, variant, side):
            if any(row[2] in _ANSWERED for row in rows):
                gradable.add(case)
            if any(row[3] is not None for row in rows):
                graded.add(case)
        return gradable, graded


def _seeds(cells: TwoSidedSample) -> list[int]:
    """Return the seeds of the orders in which people graded the answers of an experiment."""
    run = find_run(cells.connection, cells.head.run_id)
    return grading_seeds(cells.connection, run.experiment)
