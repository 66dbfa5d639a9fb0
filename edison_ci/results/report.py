"""Report: the runs that belong together, of all experiments that a change touches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.results.run_result import RunResult

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from edison_ci.store.runs import Run

# One picture of the results, made from what is stored; JUnit, SARIF, Markdown, JSON, the comment
# of a pull request and its annotations are different ways to say it. It holds ids, scores and
# sentences, and no text of an answer.
_BEFORE_UNFINISHED = ("error", "fail")
_AFTER_UNFINISHED = ("inconclusive", "pass", "skipped")


class Planned(NamedTuple):
    """What a run of an experiment would take, where none could be made."""

    experiment: str
    cases: int
    cells: int
    calls: int
    cost_microusd: tuple[int, int] | None
    """From and to; None when a price is not known."""


@dataclass(frozen=True, slots=True)
class Report:
    """The runs that belong together: of all experiments that a change touches."""

    runs: tuple[RunResult, ...] = ()
    failure: str = ""
    """Why something that was asked for has no run at all."""
    undecided: str = ""
    """Why nothing better than inconclusive can be said, whatever the runs say."""
    planned: tuple[Planned, ...] = ()
    """What would have been run, where nothing could be."""
    dropped: tuple[str, ...] = ()
    """What the base gates and nothing was run for, in sentences."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why it is inconclusive at best, in sentences; told before anything else."""
        of_runs = (
            f"{view.run.experiment}: {row.sentence}"
            for view in self.runs
            for row in view.gates
            if row.doubt
        )
        return tuple(dict.fromkeys((*self.dropped, *of_runs)))

    @property
    def verdict(self) -> str | None:
        """The worst verdict; None while something is unfinished that could still fail."""
        verdicts = {view.run.verdict for view in self.runs}
        if self.failure:
            verdicts.add("error")
        if self.undecided or self.dropped:
            verdicts.add("inconclusive")
        for verdict in _BEFORE_UNFINISHED:
            if verdict in verdicts:
                return verdict
        if not all(view.finished for view in self.runs):
            return None
        return next((v for v in _AFTER_UNFINISHED if v in verdicts), "skipped")

    @property
    def simulated(self) -> bool:
        """Whether some of the numbers come from a simulator."""
        return any(view.run.simulated for view in self.runs)

    @property
    def measured(self) -> tuple[RunResult, ...]:
        """The runs without those that only repeat one on the base's material."""
        return tuple(view for view in self.runs if view.on == "head") or self.runs

    @property
    def regressions(self) -> int:
        """How many cases are worse than in the base."""
        return sum(view.regressions for view in self.measured)

    @property
    def cost_microusd(self) -> int:
        """What all runs have cost."""
        return sum(view.cost_microusd for view in self.runs)


def report_of(connection: sqlite3.Connection, runs: Iterable[Run], failure: str = "") -> Report:
    """Return the report on runs; each brings the run on the base's material that belongs to it."""
    results = [RunResult(connection, run).loaded() for run in runs]
    led = {one.companion.id for one in results if one.companion is not None}
    found: list[RunResult] = []
    for one in results:
        if one.run.id in led:
            continue  # it comes with the run that it belongs to
        found.append(one)
        if one.companion is not None:
            found.append(RunResult(connection, one.companion).loaded())
    return Report(tuple(found), failure)
