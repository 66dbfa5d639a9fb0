"""What are the gates asked about a run, and which gates are they?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.decide.conclusion import Question, conclude
from edison_ci.execute.licence import RunLicence
from edison_ci.execute.work import BASE
from edison_ci.frozen import dataclass
from edison_ci.plan.looks import kind_of_looks
from edison_ci.plan.plan import ranged

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Experiment
    from edison_ci.decide.conclusion import Conclusion
    from edison_ci.execute.orders import Against, RunOptions, Tools
    from edison_ci.execute.session import Held
    from edison_ci.execute.work import Work
    from edison_ci.plan.baseline import Doubt
    from edison_ci.plan.looks import Kind, Look
    from edison_ci.plan.plan import Plan

    Ask = Callable[[Look | None], Conclusion | None]


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of an experiment, or of what it is compared with."""

    experiment: Experiment
    against: Against | None
    tools: Tools

    @property
    def all(self) -> tuple[Gate, ...]:
        """The gates that count: those of the base where it has any to offer."""
        given = self.against.gates if self.against is not None else None
        return self.experiment.file.gates if given is None else given

    def doubts(self, options: RunOptions) -> tuple[Doubt, ...]:
        """Return why a run is inconclusive at best; without gates there is nothing to doubt."""
        own = self.against.doubts if self.against is not None else ()
        return (*own, *options.doubts) if self.all else ()

    def looks(self, work: Work) -> Kind | None:
        """Return how the run is looked at; None if once, at the end.

        A shard sees too little to stop at, and whoever only grades again has nothing to add.
        """
        apart = work.only is not None or work.selection.shard is not None
        if apart or not self.tools.gated or BASE not in work.sides:
            return None
        return kind_of_looks(self.all, self.experiment.file.stop)

    def foreseen(self, plan: Plan, work: Work) -> Plan:
        """Return the plan from least to most, where the run stops when it is clear."""
        kind = self.looks(work)
        return replace(plan, looks=None) if kind is None else ranged(plan, kind)

    def ask(self, held: Held, work: Work, *, now: Callable[[], str]) -> Ask:
        """Return what asks the gates at a look, or in the end; None if nobody decides."""
        aside = work.project.quarantine.cases
        quarantined = frozenset(e.case for e in aside if e.experiment == self.experiment.id)
        licence = RunLicence.of(work.project, self.experiment)

        def asked(look: Look | None = None) -> Conclusion | None:
            if not self.tools.gated or not self.all or work.selection.shard is not None:
                return None  # what is true of a part need not be true of the whole
            question = Question(
                held.run_id,
                self.all,
                work.clusters,
                quarantined,
                BASE in work.sides,
                now(),
                look,
                licence.unlicensed(self.all),
                self.doubts(held.options),
            )
            return conclude(work.project, held.reader, question)

        return asked
