"""The budget of a search, and what of it is kept for the last look."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.execute.budgets import caps_of, run_limit
from edison_ci.plan.plan import bare_plan
from edison_ci.refine.evidence import split_cases
from edison_ci.results.spending import phase_prices
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import Cap, booked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edison_ci.plan.estimate import Load
    from edison_ci.refine.candidate import Subject

LAST_DRAWS = 3
"""Answers to each case when the winner meets the prompt as it is. There is one look, and what many
versions were measured for is decided by it: it costs little beside them, and luck weighs less."""
_ANY = 1_000_000
"""Versions that may be measured where nothing costs anything."""
_GROWN = 1.5
"""How much more an answer of the winner may cost than one of the prompt as it is."""


@dataclass(slots=True)
class SearchBudget:
    """What all calls of a search may cost together, over all its starts."""

    results: Path
    scope: str
    limit: int
    experiment: str
    loads: Sequence[Load]
    """What a version costs that answers all cases."""
    asked: int
    """How many cases that are."""
    looks: Mapping[int, float]
    """How many times that the last look asks for, by the answers that it takes to each case."""
    tokens: int | None = None
    kept: int = 0
    """Kept back for the last look, as long as it is to come."""

    @classmethod
    def of(cls, subject: Subject, name: str, budget_microusd: int | None) -> SearchBudget:
        """Return the budget of a search, from the command line and the experiment."""
        project, experiment = subject.project, subject.experiment
        limit = run_limit(caps_of(project, experiment, "", budget_microusd))
        assert limit is not None, "stop.budget_usd has a default"
        tokens = experiment.file.stop.max_total_tokens
        results = project.root / project.file.results
        plan = bare_plan(project, experiment, of="head")
        looks = last_looks(subject, plan.cases)
        found = cls(
            results, f"search:{name}", limit, experiment.id, plan.loads, plan.cases, looks, tokens
        )
        found.keep()
        return found

    @property
    def cap(self) -> Cap:
        """What counts now."""
        name = "the budget of the search"
        return Cap(self.scope, None, max(self.limit - self.kept, 0), self.tokens, name)

    def spent(self) -> int:
        """Return what is booked, calls that may have been charged included."""
        if not self.results.exists():
            return 0
        with closing(open_reader(self.results)) as reader:
            return booked(reader, self.cap, "")[0]

    def keep(self) -> None:
        """Keep enough for the last look: more than half of all only if it needs that at the least.

        As far as calls of a phase were paid for before, theirs are the prices; the last one of them
        must still be bookable at its worst.
        """
        least, most = (self._need(draws) for draws in (min(self.looks), max(self.looks)))
        self.kept = min(most, max(least, self.limit // 2), self.limit)

    def last_draws(self) -> int:
        """Return how many answers to each case the last look can take of what is left."""
        left = self.limit - self.spent()
        return max((one for one in self.looks if self._need(one) <= left), default=min(self.looks))

    def _need(self, draws: int) -> int:
        total, worst = self._price(self.looks[draws], pairwise=1)
        return round(_GROWN * total) + worst

    def _price(self, share: float, *, pairwise: float = 0) -> tuple[float, int]:
        """Return what a share of all answers costs, and the most that one call is booked at."""
        known: dict[str, tuple[float, int]] = {}
        if self.results.exists():
            with closing(open_reader(self.results)) as reader:
                known = phase_prices(reader, self.experiment)
        total, worst = 0.0, 0
        for load in self.loads:
            part = pairwise if load.phase == "pairwise" else share
            each = known.get(load.phase)
            if each is not None:
                total += each[0] * load.once_calls * part
                worst = max(worst, each[1])
            elif load.cost_microusd is not None:
                total += load.cost_microusd.high * part
        return total, worst

    def room(self, cases: int) -> int:
        """Return about how many versions may still answer so many cases each."""
        total, worst = self._price(1 / max(self.asked, 1))
        each = total * cases
        left = self.limit - self.kept - self.spent() - worst
        return _ANY if not each else max(int(left / each), 0)

    def release(self) -> None:
        """Let the last look have what was kept for it."""
        self.kept = 0


def last_looks(subject: Subject, cases: int) -> dict[int, float]:
    """Return how many times all answers of a version a last look asks for, by its draws.

    Both sides together; the first answers to the training cases are there by then.
    """
    own, held = subject.experiment.file.draws, len(split_cases(subject)[1])
    return {
        draws: 2 * (cases * draws - (cases - held) * own) / max(cases * own, 1)
        for draws in range(own, max(LAST_DRAWS, own) + 1)
    }
