"""Cases that come in batches: the reference of STATS 9, and the same by interim analyses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edison_ci.records import Verdict
from edison_ci.stats.paired import Pairs
from edison_ci.stats.sequential import decide_look, log_capital
from edison_ci.stats.verdicts import GateRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.verdicts import GateDecision

BATCH = 20


class Stopped(NamedTuple):
    """Where sampling stopped, and what was known there."""

    verdict: Verdict
    n: int
    """Cases, or clusters, up to the look that decided, else all there are."""
    looks: tuple[int, ...]
    decision: GateDecision | None = None


def pairs_of(differences: Sequence[float], clusters: Sequence[str] | None = None) -> Pairs:
    """Return pairs that have these differences."""
    base, head = [max(0.0, -x) for x in differences], [max(0.0, x) for x in differences]
    return Pairs.of(base, head, clusters=clusters)


def by_capital(
    differences: Sequence[float], rule: GateRule | None = None, *, n_max: int, batch: int = BATCH
) -> Stopped:
    """Stop at the first look at which one of the two e-values of STATS 9 is clear."""
    rule, d = rule or GateRule(), np.asarray(differences, dtype=np.float64)[:n_max]
    passed = log_capital(d, null="at most", mean=-rule.margin)
    limit = -rule.margin if rule.fail_rule == "beyond_margin" else 0.0
    failed = log_capital(d, null="at least", mean=limit)
    taken: list[int] = []
    for look in looks_of(n_max, batch, d.size):
        taken.append(look)
        at = np.array(taken) - 1
        if passed[at].max() >= math.log(1 / rule.alpha):
            return Stopped(Verdict.PASS, look, tuple(taken))
        if failed[at].max() >= math.log(1 / rule.alpha) and d[:look].mean() <= 1e-12 - rule.margin:
            return Stopped(Verdict.FAIL, look, tuple(taken))
    return Stopped(Verdict.INCONCLUSIVE, d.size, tuple(taken))


def by_looks(
    differences: Sequence[float],
    rule: GateRule | None = None,
    *,
    n_max: int,
    batch: int = BATCH,
    clusters: Sequence[str] | None = None,
) -> Stopped:
    """Decide after each batch as a run does, until a look is clear."""
    names = list(clusters or map(str, range(len(differences))))
    units = list(dict.fromkeys(names))[:n_max]
    taken: list[int] = []
    for look in looks_of(n_max, batch, len(units)):
        taken.append(look)
        known = set(units[:look])
        here = [i for i, name in enumerate(names) if name in known]
        seen = None if clusters is None else [names[i] for i in here]
        pairs = pairs_of([differences[i] for i in here], seen)
        found = decide_look(pairs, rule, looks=taken)
        if found.verdict is not Verdict.INCONCLUSIVE:
            return Stopped(found.verdict, look, tuple(taken), found)
    return Stopped(Verdict.INCONCLUSIVE, len(units), tuple(taken))


def looks_of(n_max: int, batch: int, n: int) -> list[int]:
    """Return the numbers of cases at which one looks, as far as there are so many."""
    return [look for look in (*range(batch, n_max, batch), n_max) if look <= n]
