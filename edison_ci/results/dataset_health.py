"""Which cases of a dataset tell nothing, or contradict each other?

A dataset may have a million cases, so what is remembered of each is a few hashes; only cases that
are reported are kept, up to a limit.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.records import canonical_json
from edison_ci.results.comparable import yardstick
from edison_ci.results.complete import MOST_RUNS, complete_runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator

    from edison_ci.records import Case

SUBJECTS = 2
"""Prompt versions with models that must have answered a case before anything is said of it."""
SAME = 0.01
"""Scores that differ by less than a point are the same."""
MOST_GROUPS = 1_000
MOST_CASES = 1_000


class Group(NamedTuple):
    """Cases with the same inputs."""

    cases: tuple[str, ...]
    lines: tuple[int, ...]


class Tested(NamedTuple):
    """What the stored results say about a case."""

    case: str
    answers: int
    subjects: int
    passed: float | None
    """Share of the answers that passed."""
    low: float | None
    """Lowest and highest score."""
    high: float | None

    @property
    def alike(self) -> bool:
        """Whether all answers have the same pass and the same score."""
        if self.low is None or self.high is None or self.passed not in (0, 1):
            return False
        return self.high - self.low < SAME


@dataclass(slots=True)
class Listed:
    """Cases of one kind: how many, and the first of them."""

    count: int = 0
    cases: list[Tested] = field(default_factory=list)

    def add(self, case: Tested) -> None:
        """Count a case, and keep it if there is room."""
        self.count += 1
        if len(self.cases) < MOST_CASES:
            self.cases.append(case)


@dataclass(slots=True)
class Health:
    """How healthy a dataset is."""

    cases: int = 0
    duplicates: list[Group] = field(default_factory=list)
    """Same inputs and nothing that contradicts."""
    contradictions: list[Group] = field(default_factory=list)
    """Same inputs, different expected outputs."""
    more_groups: int = 0
    """Further groups that were not looked into."""
    measured: int = 0
    """Cases with results of enough prompt versions and models."""
    saturated: Listed = field(default_factory=Listed)
    """Every answer passes."""
    same_for_all: Listed = field(default_factory=Listed)
    """Every answer has the same score and the same pass: they tell nothing apart."""

    @property
    def ok(self) -> bool:
        """Whether nothing needs mending; a saturated case may be there on purpose."""
        return not self.duplicates and not self.contradictions


@dataclass(slots=True)
class Examined:
    """What is remembered of the cases that were read."""

    health: Health
    known: array[int]
    """Sorted hashes of ids, and of ids with their contents."""

    def has(self, case: str, content: str | None) -> bool:
        """Whether the dataset has this case, as it was when it was answered."""
        key = hash(case if content is None else (case, content))
        place = bisect_left(self.known, key)
        return place < len(self.known) and self.known[place] == key


def examine(feed: Callable[[], Iterable[Case]], content_hash: Callable[[Case], str]) -> Examined:
    """Read the cases twice: first to notice equal inputs, then to name the cases that have them."""
    inputs, known = array("q"), array("q")
    for case in feed():
        inputs.append(hash(_inputs(case)))
        known.append(hash(case.id))
        known.append(hash((case.id, content_hash(case))))
    health = Health(cases=len(inputs))
    known = array("q", sorted(known))
    repeated = _repeated(inputs)
    health.more_groups = max(0, len(repeated) - MOST_GROUPS)
    wanted = frozenset(repeated[:MOST_GROUPS])
    if wanted:
        for group, contradicts in _groups(feed(), wanted):
            (health.contradictions if contradicts else health.duplicates).append(group)
    return Examined(health, known)


def _inputs(case: Case) -> str:
    return canonical_json(dict(case.inputs))


def _repeated(hashes: array[int]) -> list[int]:
    found: dict[int, None] = {}
    last: int | None = None
    for key in sorted(hashes):
        if key == last:
            found[key] = None
        last = key
    return list(found)


def _groups(cases: Iterable[Case], wanted: frozenset[int]) -> Iterator[tuple[Group, bool]]:
    members: defaultdict[bytes, list[tuple[str, int]]] = defaultdict(list)
    expected: defaultdict[bytes, set[str]] = defaultdict(set)
    for case in cases:
        text = _inputs(case)
        if hash(text) not in wanted:
            continue
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        members[key].append((case.id, case.line))
        if case.expected is not None:
            expected[key].add(canonical_json(case.expected))
    for key, found in members.items():
        if len(found) > 1:
            ids, lines = zip(*found, strict=True)
            yield Group(ids, lines), len(expected[key]) > 1


def weigh(connection: sqlite3.Connection, experiment: str, examined: Examined) -> Health:
    """Add what the complete runs that were graded alike say about each case."""
    health = examined.health
    runs = complete_runs(connection, experiment, MOST_RUNS)
    if not runs:
        return health
    wanted = yardstick(runs[0])
    ids = [run.id for run in runs if yardstick(run) == wanted]
    for tested, content in _tested(connection, ids):
        if tested.subjects < SUBJECTS or not examined.has(tested.case, content):
            continue
        health.measured += 1
        if tested.passed == 1:
            health.saturated.add(tested)
        if tested.alike:
            health.same_for_all.add(tested)
    return health


def _tested(connection: sqlite3.Connection, runs: list[str]) -> Iterator[tuple[Tested, str | None]]:
    places = ", ".join("?" * len(runs))
    rows = connection.execute(
        "select case_id, case_hash, count(distinct address || ':' || take), "
        "count(distinct version || ' ' || model), avg(passed), min(composite), max(composite) "
        f"from cell where run_id in ({places}) and status in ('ok', 'malformed', 'blocked') "
        "group by case_id, case_hash order by case_id",
        runs,
    )
    for case, content, *numbers in rows:
        yield Tested(case, *numbers), content
