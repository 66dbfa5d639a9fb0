"""What does every report show of a run?

One picture of the results, made from what is stored; JUnit, SARIF, Markdown, JSON, the comment of a
pull request and its annotations are different ways to say it. It holds ids, scores and sentences,
and no text of an answer.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.results.snapshot import is_redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.results.comparison import Standing
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.leaderboard import Standing as Measured
    from edison_ci.results.run_result import RunSummary
    from edison_ci.results.weak_prompts import Rival
    from edison_ci.store.runs import Run

_BEFORE_UNFINISHED = ("error", "fail")
_AFTER_UNFINISHED = ("inconclusive", "pass", "skipped")


class Change(NamedTuple):
    """How a prompt with a model stands against its base, on the same cases."""

    prompt: str
    model: str
    standing: Standing


class Finding(NamedTuple):
    """Something that a screen or a judge saw in an answer."""

    kind: str
    """Such as pii."""
    by: str
    """`safety` for a screen, `flag` for a judge."""
    action: str
    """`block` when the answer is shown to nobody, else `flag`."""
    prompt: str
    model: str
    case: str


class MaterialChange(NamedTuple):
    """One thing that both sides are measured with, and that the change has changed."""

    place: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Files:
    """Where what was measured is written, as paths in the project."""

    experiment: str = ""
    models: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Paths by the ids of prompts."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, and everything there is to say about it."""

    summary: RunSummary
    gates: tuple[GateRow, ...] = ()
    scores: tuple[Measured, ...] = ()
    """Every prompt version with every model, head before base."""
    changes: tuple[Change, ...] = ()
    """Against the base, for each prompt with a model that both sides have."""
    weak: tuple[Rival, ...] = ()
    """Prompts that are shown to be worse than the best one of the run."""
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    """What the numbers do not tell, in sentences."""
    on: str = "head"
    """Whose material it was measured on."""
    material: tuple[MaterialChange, ...] = ()
    """What of the material differs from the base's; told before anything else."""
    replaced: tuple[str, ...] = ()
    """What is compared with a former self of another name."""
    twice: bool = False
    """Whether it was measured on the base's material as well."""
    quarantined: frozenset[str] = frozenset()
    files: Files = field(default_factory=Files)

    @property
    def run(self) -> Run:
        """The run as it is stored."""
        return self.summary.run

    @property
    def labels(self) -> tuple[str, ...]:
        """What keeps the numbers from being evidence."""
        run = self.run
        marks = (
            ("simulated", run.simulated),
            ("personal data redacted", is_redacted(run)),
            ("replayed", run.trigger == "replay"),
            ("imported", run.trigger == "import"),
            (f"shard {run.shard}", run.shard is not None),
            ("part of the cases", run.partial and run.shard is None),
        )
        return tuple(word for word, on in marks if on)

    @property
    def finished(self) -> bool:
        """Whether it has come to its end, good or bad."""
        return self.run.status in ("COMPLETED", "FAILED")

    @property
    def regressions(self) -> int:
        """How many cases are worse than in the base, over all prompts and models."""
        return sum(len(change.standing.broken) for change in self.changes)


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

    runs: tuple[RunView, ...] = ()
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
    def measured(self) -> tuple[RunView, ...]:
        """The runs without those that only repeat one on the base's material."""
        return tuple(view for view in self.runs if view.on == "head") or self.runs

    @property
    def regressions(self) -> int:
        """How many cases are worse than in the base."""
        return sum(view.regressions for view in self.measured)

    @property
    def cost_microusd(self) -> int:
        """What all runs have cost."""
        return sum(view.summary.cost_microusd for view in self.runs)
