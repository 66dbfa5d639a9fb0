"""Comparisons of two sides on the same cases: which is better, with interval and p-value.

The sides are two runs, two versions of a prompt, or two prompts of one run. The rule is that of
STATS 15: better if the difference is significant, practically the same if the interval lies inside
the margin, and otherwise not yet known, with the number of further cases it would take.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import gates as config_gates
from edison_ci.documents.record_json import as_document, fields_of
from edison_ci.errors import UsageError
from edison_ci.numeric import exceeds, mean_or_none
from edison_ci.records import Move
from edison_ci.results.comparison_sample import CellChoice, comparison_sample
from edison_ci.results.metrics import metric_of
from edison_ci.results.pairwise import overall_head_to_head
from edison_ci.results.samples import SIDES
from edison_ci.results.scores import estimate_json
from edison_ci.results.snapshot import differing_eval_suite
from edison_ci.stats import ab
from edison_ci.stats.ab import Outcome, compare
from edison_ci.stats.arrays import generator_for, mean_of
from edison_ci.stats.other_metrics import margin_in_points
from edison_ci.stats.paired import EQUAL_DIFFERENCES, Pairs, unpaired_difference
from edison_ci.stats.scores import units_of
from edison_ci.stats.sentences import cases, more_cases, points, signed, ties_words
from edison_ci.stats.verdicts import MOST_MISSING, WARN_MISSING, GateRule
from edison_ci.store.cells import clusters_of
from edison_ci.store.runs import IMPORTED_ANSWERS, common_simulation

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Project
    from edison_ci.results.comparison_sample import ComparisonSample
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.pairwise import HeadToHead
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.samples import Paired
    from edison_ci.stats.ab import Comparison
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.flips import CaseFlips
    from edison_ci.store.runs import Run


_FEW = 10
_VERDICTS = {
    Outcome.A: "a_better",
    Outcome.B: "b_better",
    Outcome.SAME: "same",
    Outcome.UNCLEAR: "unclear",
}

_MOVES = {
    "fixed": Move.FIXED,
    "newly_failing": Move.NEWLY_FAILING,
    "higher": Move.HIGHER,
    "lower": Move.LOWER,
}
"""Lists of moved cases by their key in `--json`, in its order."""


class MovedCase(NamedTuple):
    """A case that passes on one side only, or whose score is clearly another."""

    case: str
    a: float
    b: float
    passed: tuple[bool | None, bool | None]


@dataclass(frozen=True, slots=True)
class ComparisonEstimate:
    """B compared with A."""

    a: CellChoice
    b: CellChoice
    n: int
    estimate: float | None
    """B minus A; None without a case."""
    interval: Range | None
    p: float | None
    method: str
    verdict: str
    """a_better, b_better, same or unclear."""
    sentence: str
    margin: float
    """The smallest difference that matters."""
    scores: tuple[float | None, float | None]
    """The means of A and B on these cases."""
    moved: Mapping[Move, tuple[MovedCase, ...]] = field(
        default_factory=lambda: dict.fromkeys(Move, ())
    )
    """The cases that changed, for every way."""
    flips: CaseFlips | None = None
    """How many began to fail or to pass, beside what chance gives; None if not the same cases."""
    n_more: int | None = None
    missing: int = 0
    notes: tuple[str, ...] = ()
    head_to_head: HeadToHead | None = None
    """Win rate of B against A, where a judge compared their answers."""

    @property
    def simulation(self) -> str:
        """What is simulated in the two runs, as a label; empty if nothing is."""
        return common_simulation((self.a.run, self.b.run))

    def as_json(self) -> dict[str, Any]:
        """Return the comparison with the keys of the contract."""
        return {
            "a": {**self.a.as_json(), "composite": self.scores[0]},
            "b": {**self.b.as_json(), "composite": self.scores[1]},
            "n": self.n,
            "difference": estimate_json(self.estimate, self.interval, p=self.p, method=self.method),
            **fields_of(self, "verdict", "sentence"),
            **{name: as_document(self.moved[move]) for name, move in _MOVES.items()},
            **fields_of(self, "margin", "n_more", "missing", "notes", "head_to_head"),
        }


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """Facts for a comparison that are not in the cells."""

    gates: Sequence[Gate] = ()
    """The margin of the first gate on the composite is the smallest difference that matters."""
    clusters: Mapping[str, str] | None = None
    quarantined: Collection[str] = frozenset()


def comparison_settings(
    project: Project | None, reader: sqlite3.Connection, *runs: Run
) -> ComparisonSettings:
    """Return the current gates and quarantine, and the stored clusters, for a comparison."""
    clusters = clusters_of(reader, *(run.id for run in runs))
    if project is None:
        return ComparisonSettings(clusters=clusters)
    name = runs[-1].experiment
    experiment = project.experiments.get(name)
    quarantined = frozenset(e.case for e in project.quarantine if e.experiment == name)
    gates = experiment.file.gates if experiment is not None else ()
    return ComparisonSettings(gates, clusters, quarantined)


def pair_settings(
    project: Project | None, reader: sqlite3.Connection, a: CellChoice, b: CellChoice
) -> ComparisonSettings:
    """Return the settings for a comparison of two choices.

    The older run says which inputs are the same, so that A and B may change places.
    """
    runs = sorted((a.run, b.run), key=lambda run: run.created_at)
    return comparison_settings(project, reader, *runs)


def compare_choices(
    connection: sqlite3.Connection, a: CellChoice, b: CellChoice, setting: ComparisonSettings
) -> ComparisonEstimate:
    """Compare B with A; raises UsageError if they were measured with different eval suites."""
    require_same_suite(a, b)
    sample = comparison_sample(connection, a, b, setting.quarantined)
    if not sample.matching.paired:
        return _unpaired(sample, (a, b))
    return _paired(sample, (a, b), setting)


def change_of(
    result: RunResult, variant: tuple[str, str], gates: Sequence[Gate]
) -> ComparisonEstimate:
    """Compare head with base in one run, for a prompt with a model."""
    prompt, model = variant
    base, head = (
        CellChoice(side, result.run, side=side, prompt=prompt, models=(model,)) for side in SIDES
    )
    setting = ComparisonSettings(gates, result.clusters, result.quarantined)
    estimate = compare_choices(result.connection, base, head, setting)
    # Where a gate decides it, the gate says how many more cases it takes: one number a question.
    return replace(estimate, n_more=None) if any(map(_on_score, gates)) else estimate


def require_same_suite(a: CellChoice, b: CellChoice) -> None:
    """Raise UsageError if two choices were graded by different checks, rubrics or judges."""
    different = differing_eval_suite(a.run, b.run)
    if different:
        older = min((a, b), key=lambda choice: choice.run.created_at)
        raise UsageError(
            f"{a.name} and {b.name} were not measured alike: {', '.join(different)} differ",
            hint=f"grade the older one again, edison regrade {older.run.id}, "
            "or measure both together: edison run --against REF",
        )


def _paired(
    sample: ComparisonSample, choices: tuple[CellChoice, CellChoice], setting: ComparisonSettings
) -> ComparisonEstimate:
    cells = sample.cells
    paired = cells.pairs(metric_of(cells, "composite"), cells.common_variants())
    clusters = setting.clusters or {}
    grouped = units_of(paired.cases, clusters)
    pairs = Pairs(tuple(paired.base), tuple(paired.head), grouped)
    rule = GateRule(margin=_margin(setting.gates, pairs))
    passed, flips = cells.flips(cells.common_variants(), clusters)
    passes = [passed.get(case) for case in paired.cases]
    seen = overall_head_to_head(cells, clusters)
    wins = None if seen is None else ab.HeadToHead(seen.rate)
    rng = generator_for(paired.cases)
    compared = compare(
        pairs, rule, rng=rng, passed=[both or (True, True) for both in passes], head_to_head=wins
    )
    same = bool(paired.cases) and paired.same_answers
    outcome = Outcome.SAME if same else compared.outcome
    notes = [*compared.notes, *_doubts(*choices), *_notes(paired, sample)]
    if exceeds(paired.missing, MOST_MISSING * (pairs.n + paired.missing)):
        outcome = Outcome.UNCLEAR
    base, head = pairs.means("base"), pairs.means("head")

    def moved(positions: Iterable[int]) -> tuple[MovedCase, ...]:
        return tuple(
            MovedCase(paired.cases[i], float(base[i]), float(head[i]), passes[i] or (None, None))
            for i in positions
        )

    return ComparisonEstimate(
        *choices,
        n=pairs.n,
        estimate=compared.value,
        interval=compared.interval,
        p=None if compared.p is None else compared.p.value,
        method=compared.method,
        verdict=_VERDICTS[outcome],
        sentence=_same_answers(pairs.n) if same else _sentence(outcome, compared),
        margin=rule.margin,
        scores=(mean_of(base), mean_of(head)) if pairs.n else (None, None),
        moved={move: moved(positions) for move, positions in compared.moved.items()},
        n_more=compared.n_more if outcome is Outcome.UNCLEAR else None,
        flips=flips,
        missing=paired.missing,
        notes=tuple(notes),
        head_to_head=seen,
    )


def _margin(gates: Sequence[Gate], pairs: Pairs) -> float:
    """Return the difference that matters: that of the gate on the composite, else 5 points."""
    for gate in gates:
        if _on_score(gate):
            margin = gate.effective_margin
            return margin_in_points(margin.value, pairs, relative=margin.relative)
    return GateRule().margin


def _on_score(gate: Gate) -> bool:
    """Whether a gate compares the composite with its base."""
    return gate.metric == "composite" and gate.no_worse_than is not None


def _doubts(*choices: CellChoice) -> list[str]:
    """Return notes on runs that are incomplete, imported, or of which one is simulated."""
    notes = [
        f"run {choice.run.id} is {choice.run.status}: not all its cells are there"
        for choice in choices
        if not choice.run.complete
    ]
    if len({choice.run.simulated for choice in choices}) > 1:
        notes.append("one of the two is simulated, the other is not")
    for run_id in dict.fromkeys(c.run.id for c in choices if c.run.trigger in IMPORTED_ANSWERS):
        notes.append(f"the answers of run {run_id} were imported")
    return notes


def _notes(paired: Paired, sample: ComparisonSample) -> list[str]:
    notes, matching = [], sample.matching
    total = len(paired.cases) + paired.missing
    if exceeds(paired.missing, WARN_MISSING * total):
        notes.append(f"{paired.missing:,} of {cases(total)} are missing on one side")
    if 0 < len(paired.cases) < _FEW:
        notes.append("very few cases")
    for what, names in (
        ("only in B", matching.added),
        ("only in A", matching.removed),
        ("no longer the same", matching.changed),
    ):
        if names:
            notes.append(f"{cases(len(names))} {what}, not compared: {_listed(names)}")
    if sample.alone:
        notes.append(f"only one of the two has {_listed(sample.alone)}")
    return notes


def _listed(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _unpaired(
    sample: ComparisonSample, choices: tuple[CellChoice, CellChoice]
) -> ComparisonEstimate:
    """Compare two sets of cases of which too few are the same (STATS 6)."""
    cells = sample.cells
    metric, variants = metric_of(cells, "composite"), cells.common_variants()
    base, head = (cells.sample(metric, variants, side) for side in SIDES)
    difference = unpaired_difference(base.values, head.values)
    interval = difference.interval if difference is not None else None
    verdict = "unclear"
    if interval is not None and (interval.low > 0 or interval.high < 0):
        verdict = "b_better" if interval.low > 0 else "a_better"
    note = "they have too few cases in common: unpaired, about 3 to 10 times less sensitive"
    if difference is None:
        sentence = "Nothing to compare: one side has no score."
    else:
        sentence = (
            f"Other cases: B is {signed(difference.value)} points from A{_likely(interval)}, "
            "unpaired."
        )
        if difference.se == 0:
            sentence += " All scores of A are equal, and all of B."
    return ComparisonEstimate(
        *choices,
        n=difference.n if difference is not None else 0,
        estimate=difference.value if difference is not None else None,
        interval=interval,
        p=None if difference is None else difference.p,
        method=difference.method if difference is not None else "none: no case",
        verdict=verdict,
        sentence=sentence,
        margin=GateRule().margin,
        scores=(mean_or_none(base.values), mean_or_none(head.values)),
        notes=(
            note,
            *([f"only one of the two has {_listed(sample.alone)}"] if sample.alone else []),
        ),
    )


def _same_answers(n: int) -> str:
    return f"Nothing to compare: both are the same answers, graded the same ({cases(n)})."


def _sentence(outcome: Outcome, comparison: Comparison) -> str:
    if comparison.value is None:
        return "Not yet known: no case has a score on both sides."
    sentence = _verdict_words(outcome, comparison, comparison.value)
    if not comparison.method.startswith(EQUAL_DIFFERENCES):
        return sentence
    ties = ties_words(comparison.n, comparison.value, comparison.interval)
    return f"{sentence} {ties[0].upper()}{ties[1:]}."


def _verdict_words(outcome: Outcome, comparison: Comparison, value: float) -> str:
    change = f"{signed(value)} points{_likely(comparison.interval)}"
    on = f"on the same {cases(comparison.n)}"
    if outcome in (Outcome.A, Outcome.B):
        which = "B is better" if outcome is Outcome.B else "A is better"
        return f"{which}: from A to B {change} {on}."
    if outcome is Outcome.SAME and comparison.same_within is not None:
        low, high = (signed(end) for end in comparison.same_within)
        return (
            f"No practical difference: at worst {low} to {high}, inside "
            f"{points(comparison.margin)} points either way ({cases(comparison.n)})."
        )
    more = ""
    if comparison.n_more is not None:
        more = f" About {more_cases(comparison.n_more)} would settle it if nothing really changed."
    return f"Not yet known: from A to B {change} {on}.{more}"


def _likely(interval: Range | None) -> str:
    if interval is None:
        return ""
    return f" (likely {signed(interval.low)} to {signed(interval.high)})"


def gates_on_score(rows: Iterable[GateRow]) -> Iterator[config_gates.Gate]:
    """Yield the gates that say which difference of the composite matters, as files write them."""
    for row in rows:
        if row.metric != "composite" or "no_worse_than" not in row.gate:
            continue
        written = {"metric": row.metric, "no_worse_than": row.gate["no_worse_than"]}
        margin = row.gate.get("margin")
        if margin:
            unit = "%" if margin["relative"] else "pp"
            written["margin"] = f"{100 * float(margin['value']):g}{unit}"
        yield config_gates.Gate.model_validate(written)
