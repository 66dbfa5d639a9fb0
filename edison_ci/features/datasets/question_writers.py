"""Models as writers of cases: quality by judges, cases that tell models apart, duplicates, cost.

The writers of a dataset are compared by the mean quality of their questions, as judges rated them.
Their questions differ, so the test is unpaired, with p-values corrected for the number of pairs; a
difference that is not significant is a tie.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.case_facts import content_hash, writer_of
from edison_ci.features.datasets.case_discrimination import CaseVerdict
from edison_ci.numeric import snap
from edison_ci.records import canonical_json
from edison_ci.results.case_likeness import NEARLY_THE_SAME, KnownCases
from edison_ci.results.leaderboard import Contrast
from edison_ci.stats.paired import unpaired_difference
from edison_ci.stats.scores import mean_interval, pass_interval
from edison_ci.stats.verdicts import holm
from edison_ci.store.answers import SIMULATED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.features.datasets.case_discrimination import DatasetDiscrimination
    from edison_ci.features.datasets.health import QuestionQuality
    from edison_ci.records import Case, Json
    from edison_ci.stats.scores import Interval

PHASE = "dataset"
"""Phase under which the calls that write cases are booked."""
_DIVERSITY = 3
"""At which nine of ten words in common, in order, make two cases nearly the same."""
MOST_COMPARED = 1_000
"""Cases among which near duplicates are looked for: each is compared with all before it."""
MOST_WRITERS = 20
FEW = 10
"""Questions below which a mean says little."""
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class WriterRow:
    """What is known of the cases that a model wrote for one dataset."""

    writer: str
    """Name of the model; empty for cases that were not generated."""
    cases: int
    quality: Interval | None
    """Mean over its judged questions, from 0 to 1; None if none was judged."""
    shares: tuple[float, ...]
    separating: Interval | None
    """Share of its cases that tell models apart, of those with enough answers; None if none has."""
    same: int
    """Cases with the inputs of an earlier case."""
    near: int
    """Cases that are nearly the same as an earlier one."""
    cost_microusd: float | None
    """What it was paid for each of its cases that is in a dataset of the project; None if none of
    its calls is booked."""
    best_rank: int | None = None
    worst_rank: int | None = None
    """None without a quality."""

    @property
    def few(self) -> bool:
        """Whether so few questions were judged that their mean says little."""
        return 0 < len(self.shares) < FEW


@dataclass(frozen=True, slots=True)
class WriterCosts:
    """What the writers of a project were paid."""

    microusd: Mapping[str, float] = field(default_factory=dict)
    """For a case that is in a dataset now, by writer."""
    simulated: bool = False
    """Whether the simulator wrote some of them."""


@dataclass(slots=True)
class WritersBoard:
    """The writers of one dataset, the best first."""

    experiment: str
    cases: int
    rows: tuple[WriterRow, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    judges: tuple[str, ...] = ()
    own_judges: tuple[str, ...] = ()
    """Judges that rated questions which they wrote themselves."""
    simulated: bool = False
    enough_answers: bool = False
    """Whether it is known which cases tell models apart."""
    all_compared: bool = True
    """Whether near duplicates were looked for among all cases."""
    beyond: int = 0
    """Writers left out because there are too many."""


@dataclass(slots=True)
class _Written:
    """The cases of a dataset by their writers."""

    number: Counter[str] = field(default_factory=Counter)
    writers: dict[str, str] = field(default_factory=dict)
    """By case; cases that were not generated are left out."""
    same: Counter[str] = field(default_factory=Counter)
    near: Counter[str] = field(default_factory=Counter)
    all_compared: bool = True


def board_of_writers(
    experiment: str,
    cases: Iterable[Case],
    findings: tuple[QuestionQuality, DatasetDiscrimination],
    costs: WriterCosts,
) -> WritersBoard | None:
    """Return how the writers of a dataset stand; None if no case was generated."""
    quality, apart = findings
    written = _read(cases)
    if not written.writers:
        return None
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for question in quality.questions:
        if question.share is not None:
            shares[written.writers.get(question.case, "")].append(question.share)
    answered: Counter[str] = Counter()
    separating: Counter[str] = Counter()
    for case in apart.cases:
        writer = written.writers.get(case.case, "")
        answered[writer] += case.verdict is not CaseVerdict.TOO_FEW
        separating[writer] += case.verdict is CaseVerdict.SEPARATES
    rows = [
        WriterRow(
            writer=writer,
            cases=number,
            quality=mean_interval(shares[writer]),
            shares=tuple(shares[writer]),
            separating=pass_interval(separating[writer], answered[writer]),
            same=written.same[writer],
            near=written.near[writer],
            cost_microusd=costs.microusd.get(writer),
        )
        for writer, number in written.number.items()
    ]
    rows.sort(key=_order)
    listed = rows[:MOST_WRITERS]
    contrasts = _contrasts(listed)
    return WritersBoard(
        experiment=experiment,
        cases=written.number.total(),
        rows=_ranked(listed, contrasts),
        contrasts=contrasts,
        judges=quality.judges,
        own_judges=tuple(judge for judge in quality.judges if judge in written.number),
        simulated=quality.simulated or apart.simulated or costs.simulated,
        enough_answers=bool(answered.total()),
        all_compared=written.all_compared,
        beyond=len(rows) - len(listed),
    )


def _order(row: WriterRow) -> tuple[bool, float, int, str]:
    quality = 0.0 if row.quality is None else snap(row.quality.estimate)
    return row.quality is None, -quality, -row.cases, row.writer


def _contrasts(rows: Sequence[WriterRow]) -> tuple[Contrast, ...]:
    contrasts = []
    for better, worse in combinations(range(len(rows)), 2):
        difference = unpaired_difference(rows[worse].shares, rows[better].shares)
        if difference is not None and difference.p is not None:
            contrasts.append(
                Contrast(
                    better,
                    worse,
                    difference.value,
                    difference.interval,
                    difference.n,
                    difference.p,
                    difference.p,
                    False,
                    difference.method,
                    None,
                )
            )
    adjusted = holm([contrast.p for contrast in contrasts])
    return tuple(
        contrast._replace(p_holm=p, significant=stands_out)
        for contrast, p, stands_out in zip(
            contrasts, adjusted.value, adjusted.stands_out, strict=True
        )
    )


def _ranked(rows: Sequence[WriterRow], contrasts: Sequence[Contrast]) -> tuple[WriterRow, ...]:
    """Return the rows with the ranks that they may have: ties share theirs."""
    above = Counter(contrast.worse for contrast in contrasts if contrast.significant)
    below = Counter(contrast.better for contrast in contrasts if contrast.significant)
    judged = sum(row.quality is not None for row in rows)
    return tuple(
        row
        if row.quality is None
        else replace(row, best_rank=1 + above[place], worst_rank=judged - below[place])
        for place, row in enumerate(rows)
    )


def _read(cases: Iterable[Case]) -> _Written:
    """Return who wrote what; a case repeats another if that stands earlier in the dataset."""
    written, seen = _Written(), set[int]()
    texts: list[tuple[str, Mapping[str, Json]]] = []
    for case in cases:
        writer = writer_of(case.metadata)[:_LONGEST_NAME]
        written.number[writer] += 1
        if writer:
            written.writers[str(case.id)] = writer
        key = hash(" ".join(canonical_json(dict(case.inputs)).casefold().split()))
        if key in seen:
            written.same[writer] += 1
            continue
        seen.add(key)
        if len(texts) < MOST_COMPARED:
            texts.append((writer, case.inputs))
        else:
            written.all_compared = False
    if written.writers:
        written.near = _near(texts)
    return written


def _near(cases: Sequence[tuple[str, Mapping[str, Json]]]) -> Counter[str]:
    """Count the near duplicates of earlier cases by writer."""
    names = dict.fromkeys(name for _, inputs in cases for name in inputs)
    earlier, counts = KnownCases((), names, _DIVERSITY, by_meaning=False), Counter[str]()
    for writer, inputs in cases:
        counts[writer] += earlier.like(inputs) == NEARLY_THE_SAME
        earlier.add(inputs)
    return counts


def costs_by_writer(connection: sqlite3.Connection, project: Project) -> WriterCosts:
    """Return what each writer was paid for a case that is in a dataset of the project.

    The ledger knows who was paid and that it was for cases, not for which dataset; so all calls
    are divided by all its cases, and refused or removed cases raise the cost of the others.
    """
    rows = connection.execute(
        "select t.model, sum(case t.state when 'settled' then t.cost_microusd when 'released' "
        f"then 0 else t.est_microusd end), coalesce(max({SIMULATED}), 0) from own_attempt t "
        "left join answer a on a.attempt = t.id where t.phase = ? group by t.model",
        (PHASE,),
    ).fetchall()
    paid = {model: int(microusd or 0) for model, microusd, _ in rows}
    if not paid:
        return WriterCosts()
    kept: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for experiment in project.experiments.values():
        for case in project.cases(experiment) if experiment.file.data else ():
            writer, key = writer_of(case.metadata), (str(case.id), content_hash(case))
            if writer in paid and key not in seen:
                seen.add(key)
                kept[writer] += 1
    return WriterCosts(
        {writer: paid[writer] / number for writer, number in kept.items()},
        any(simulated for model, _, simulated in rows if model in kept),
    )
