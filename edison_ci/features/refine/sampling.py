"""Sampling of trials: the cases on which a candidate is measured until it is clear if it helps.

With `stop.adaptive_sampling` a trial takes the training cases in random order, in batches, both
sides of each, and looks after every batch. It stops with the training cases once the gain is shown,
or once it is shown to be smaller than `stop.min_delta`. The held-out cases are measured only if the
gain is shown. A look uses e-values, which stay valid however often one looks; half of the error is
kept for the exact test on all training cases (STATS 9, docs/statistics.md).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.features.refine.evidence import Sampling, training_pairs
from edison_ci.features.refine.weaknesses import quarantined_cases, split_part
from edison_ci.numeric import exceeds, mean_or_none
from edison_ci.plan.interim_analysis import batch_size, batches_of, random_batches
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.convergence import SAMPLED_LEVEL, sampled_gain, sampled_p
from edison_ci.stats.paired import Pairs, paired_difference
from edison_ci.stats.permutation import paired_p

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from edison_ci.execute.tasks import RunWork
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.records import Case


class Planned(NamedTuple):
    """The training cases of a trial."""

    cases: int
    clusters: Mapping[int, int]
    """Number of clusters by size, without cases in quarantine; a case may be its own cluster."""


class TrialSampling:
    """Chooses the cases of one trial, and keeps what its looks showed."""

    def __init__(self, target: RefineTarget, version: str) -> None:
        self._target = target
        self._seed = f"trial:{version}"
        self._aside = quarantined_cases(target)
        self.found: Sampling | None = None
        """What the training cases showed; None before the first look."""

    def __call__(
        self, reader: sqlite3.Connection, run_id: str, work: RunWork
    ) -> Iterator[Sequence[Case]]:
        """Yield batches of training cases, then the held-out cases if the gain is shown."""
        training, unseen = (split_part(self._target, name) for name in ("train", "holdout"))
        seen: list[list[str]] = []
        planned = self._planned(filter(training.has, work.cases()), work.clusters)

        def some(part: Callable[[Case], bool]) -> Iterator[Sequence[Case]]:
            return random_batches(
                lambda: filter(part, work.cases()),
                work.clusters,
                seed=self._seed,
                size=batch_size(planned.cases),
            )

        for batch in some(training.has):
            yield batch
            seen.append([str(case.id) for case in batch])
            self.found = self._look(reader, run_id, seen, planned)
            if self.found.clear:
                break
        if self.found is not None and self.found.promising:
            yield from some(unseen.has)

    def _planned(self, cases: Iterable[Case], clusters: Mapping[str, str]) -> Planned:
        total, names = 0, Counter[str]()
        for case in cases:
            total += 1
            if case.id not in self._aside:
                names[clusters.get(case.id, f"\0alone {case.id}")] += 1
        return Planned(total, Counter(names.values()))

    def _look(
        self,
        reader: sqlite3.Connection,
        run_id: str,
        seen: Sequence[Sequence[str]],
        planned: Planned,
    ) -> Sampling:
        """Return what the training cases so far show."""
        training = training_pairs(reader, self._target, run_id)
        places = {case: place for place, case in enumerate(training.cases)}
        order: list[int] = []
        looks: list[int] = []
        for batch in seen:
            order += [places[case] for case in batch if case in places]
            looks.append(len(order))
        clusters = None
        if training.pairs.clusters is not None:
            clusters = tuple(training.pairs.clusters[place] for place in order)
            looks = [len(set(clusters[:look])) for look in looks]
        base, head = (
            tuple(side[place] for place in order)
            for side in (training.pairs.base, training.pairs.head)
        )
        pairs = Pairs(base, head, clusters)
        gain = sampled_gain(
            pairs,
            looks=looks,
            planned=planned.clusters,
            min_gain=self._target.experiment.file.stop.min_delta,
        )
        measured, final, interval = sum(map(len, seen)), None, gain.interval
        if measured >= planned.cases and pairs.n:
            final = paired_p(pairs, rng=generator_for(training.cases), side="greater").value
            whole = paired_difference(pairs.differences, clusters=clusters, level=SAMPLED_LEVEL)
            interval = None if whole is None else whole.interval
        mean = mean_or_none(pairs.differences.tolist())
        return Sampling(
            p_gain=sampled_p(gain.p, final),
            p_worse=gain.p_worse,
            interval=interval,
            measured=measured,
            planned=planned.cases,
            clear=(gain.shown and exceeds(mean or 0.0, 0)) or gain.hopeless,
            gain=mean,
        )


def first_part(target: RefineTarget) -> tuple[str, ...]:
    """Return a random half of the training cases, with declared clusters kept together."""
    part = split_part(target, "train")
    feed = target.project.cases(target.experiment)
    cases = [(str(case.id), case.cluster) for case in feed if part.has(case)]
    units = len({cluster or f"\0alone {case}" for case, cluster in cases})
    seed = f"prune:{target.prompt.version}"
    batches = batches_of(cases, seed=seed, size=max(math.ceil(units / 2), 1))
    return tuple(sorted(batches[0])) if batches else ()
