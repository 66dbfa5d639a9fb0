"""Prompts of a run that are shown to be worse than the best one, so that a loop may drop them.

Overlapping intervals are no test: each prompt is compared with the best on the same cases, models
and draws, one-sided, at .05/(K-1) for K prompts (STATS 7b). The best was picked from the same
cases, which makes it look better than it is: of prompts that are all alike, one is dropped in 12 of
100 runs with 2 prompts, in 14 with 4, in 18 with 8 (simulated, 25 cases). So it saves money, and
proves nothing.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.results.comparable import experiment_in
from edison_ci.rounding import mean, snap
from edison_ci.stats.arrays import generator_for, mean_of
from edison_ci.stats.paired import Pairs
from edison_ci.stats.permutation import paired_p
from edison_ci.stats.sentences import cases as counted_cases
from edison_ci.stats.sentences import chance, points

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Mapping

    from edison_ci.store.runs import Run

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Rival:
    """How a prompt stands against the best one, on the same cases."""

    prompt: str
    best: str
    n: int
    estimate: float
    """Its mean minus that of the best."""
    p: float
    """One-sided: how often luck alone would put it so far behind."""
    level: float
    """What p may be at most for the prompt to be dropped: .05/(K-1)."""
    method: str

    @property
    def weak(self) -> bool:
        """Whether it is shown to be worse."""
        return self.p <= self.level

    @property
    def sentence(self) -> str:
        """What a loop would do with it, and why."""
        behind = f"{points(-self.estimate)} points below {self.best}"
        on = f"on the same {counted_cases(self.n)}"
        if not self.weak:
            return f"{self.prompt} would be run again in a loop: it is not shown to be worse."
        luck = f"Chance of seeing this by luck: {chance(self.p)}."
        return f"{self.prompt} would not be run again in a loop: {behind} {on}. {luck}"

    def as_json(self) -> dict[str, Any]:
        """Return it with everything that led to it."""
        return {
            "prompt": self.prompt,
            "best": self.best,
            "n": self.n,
            "estimate": self.estimate,
            "p": self.p,
            "level": self.level,
            "method": self.method,
            "weak": self.weak,
            "sentence": self.sentence,
        }


@dataclass(slots=True)
class Beside:
    """A prompt and the best one, case by case."""

    cases: list[str] = field(default_factory=list)
    best: array[float] = field(default_factory=lambda: array("d"))
    own: array[float] = field(default_factory=lambda: array("d"))
    clusters: list[str] = field(default_factory=list)

    def pairs(self) -> Pairs:
        """Return the pairs; clusters count only if some case has one."""
        clustered = any(name.startswith("cluster ") for name in self.clusters)
        return Pairs.of(self.best, self.own, self.clusters if clustered else None)


def rivals(best: str, others: Mapping[str, Beside]) -> tuple[Rival, ...]:
    """Compare prompts with the best one; K counts them all, the best included."""
    level = ALPHA / max(len(others), 1)
    found = []
    for prompt, beside in sorted(others.items()):
        if not beside.cases:
            continue
        pairs = beside.pairs()
        p = paired_p(pairs, rng=generator_for(beside.cases), side="less")
        mean = mean_of(pairs.differences)
        found.append(Rival(prompt, best, pairs.n, mean, p.value, level, p.method))
    return tuple(found)


def weak_prompts(connection: sqlite3.Connection, run: Run) -> tuple[Rival, ...]:
    """Return the prompts that a loop would not run again; none if its experiment keeps them all."""
    try:
        kept = json.loads(run.snapshot)
    except ValueError:
        kept = {}
    written = experiment_in(kept, run.experiment)
    if run.status != "COMPLETED" or not written.get("stop", {}).get("prune_weak_prompts", True):
        return ()
    aside = frozenset(kept.get("quarantine.yaml") or ())
    return tuple(rival for rival in rivals_in(connection, run.id, aside) if rival.weak)


def rivals_in(
    connection: sqlite3.Connection, run_id: str, quarantined: Collection[str] = frozenset()
) -> tuple[Rival, ...]:
    """Compare the prompts of a run with the best of them; none if it has only one."""
    found: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
    names = _prompts(connection, run_id)
    if len(names) < 2:
        return ()
    for case in _by_case(connection, run_id, quarantined):
        for prompt, score in case.common(names).items():
            found[prompt].append(score)
    if not found:
        return ()
    # In a tie the first by name, so that the same run is always told the same way.
    best = max(sorted(found), key=lambda prompt: snap(mean(found[prompt])))
    others: dict[str, Beside] = {name: Beside() for name in names if name != best}
    for case in _by_case(connection, run_id, quarantined):
        for prompt, beside in others.items():
            scores = case.common((best, prompt))
            if scores:
                beside.cases.append(case.id)
                beside.best.append(scores[best])
                beside.own.append(scores[prompt])
                beside.clusters.append(case.unit)
    return rivals(best, others)


class _Case(NamedTuple):
    """The scores of one case, by prompt and then by model and draw."""

    id: str
    unit: str
    scores: dict[str, dict[tuple[str, int], float]]

    def common(self, prompts: Collection[str]) -> dict[str, float]:
        """Return the mean of each prompt over what all of them answered."""
        if not all(prompt in self.scores for prompt in prompts):
            return {}
        shared = set.intersection(*(set(self.scores[prompt]) for prompt in prompts))
        if not shared:
            return {}
        return {prompt: mean([self.scores[prompt][key] for key in shared]) for prompt in prompts}


def _prompts(connection: sqlite3.Connection, run_id: str) -> list[str]:
    rows = connection.execute(
        "select distinct prompt from cell where run_id = ? and side = 'head' order by 1", (run_id,)
    )
    return [name for (name,) in rows]


def _by_case(
    connection: sqlite3.Connection, run_id: str, quarantined: Collection[str]
) -> Iterator[_Case]:
    """Yield the cases of a run one by one; nothing is held that grows with their number."""
    rows = connection.execute(
        "select case_id, cluster, prompt, model, draw, composite from cell where run_id = ? "
        "and side = 'head' and status in ('ok', 'malformed') and composite is not null "
        "order by case_id",
        (run_id,),
    )
    for case_id, cells in groupby(rows, key=itemgetter(0)):
        if case_id in quarantined:
            continue
        scores: dict[str, dict[tuple[str, int], float]] = {}
        unit = f"case {case_id}"
        for _, cluster, prompt, model, draw, composite in cells:
            unit = unit if cluster is None else f"cluster {cluster}"
            scores.setdefault(prompt, {})[model, draw] = composite
        yield _Case(case_id, unit, scores)
