"""The pages of loops: what refining again and again gained, what it cost, and why it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.formatting import counted
from edison_ci.report.charts.sparkline import Sparkline, sparkline
from edison_ci.results.run_lists import experiments
from edison_ci.results.spending import booked
from edison_ci.rounding import snap
from edison_ci.stats.convergence import verified
from edison_ci.store.loops import (
    Iteration,
    Loop,
    Point,
    find_loop,
    iterations_of,
    list_loops,
    loop_spending,
    loops_by_experiment,
)
from edison_ci.web import formats
from edison_ci.web.page_context import Crumb, Look, Page, Paging, run_results

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.run_result import RunResult

_STOPS = {
    "converged": "the last iterations gained next to nothing",
    "no_refinement": "nothing new was suggested that is shown to help",
    "no_weakness": "no criterion, check or grader finds a fault",
    "cancelled": "somebody cancelled its run",
    "not_measured": "no training case has a score",
}


@dataclass(frozen=True, slots=True)
class LoopLine:
    """A loop as lists show it."""

    loop: Loop
    iterations: tuple[Iteration, ...]
    cost_microusd: int
    trend: Drawing | None

    @property
    def measured(self) -> list[Iteration]:
        """The iterations that have a score."""
        return [one for one in self.iterations if one.score is not None]

    @property
    def best(self) -> Iteration | None:
        """The one with the best score on the training cases, the first of several."""
        return max(self.measured, key=lambda one: snap(one.score or 0.0), default=None)

    @property
    def holdout(self) -> dict[str, Any] | None:
        """What unseen cases say of the best prompt against the first one."""
        found = self.loop.evidence.get("holdout")
        return found if isinstance(found, dict) else None

    @property
    def verified(self) -> bool:
        """Whether there were enough unseen cases to say anything."""
        return self.holdout is not None and verified(int(self.holdout.get("n") or 0))

    @property
    def state(self) -> str:
        """Where it is, in a word."""
        if self.loop.point is Point.DONE:
            return "completed"
        if self.loop.stopped_by == "budget":
            return "paused"
        return "waiting" if self.loop.point is Point.REVIEWING else str(self.loop.point)

    @property
    def why(self) -> str:
        """Why it ended; '' while it goes on."""
        loop = self.loop
        if loop.stopped_by == "max_iterations":
            return f"{counted(loop.max_iterations, 'iteration')} are the most"
        if loop.stopped_by == "budget":
            return f"the budget of {formats.dollars(loop.budget_microusd)} has no more room"
        return _STOPS.get(loop.stopped_by or "", loop.stopped_by or "")


def loops(look: Look) -> Page:
    """Return every loop, newest first."""
    experiment = look.args.text("experiment")
    counts = loops_by_experiment(look.connection)
    total = counts.get(experiment, 0) if experiment else sum(counts.values())
    paging = Paging.of(look.args, total)
    found = list_loops(look.connection, experiment, most=paging.per_page, offset=paging.offset)

    def again(**changes: Any) -> str:
        return look.links.to("loops", **{"experiment": experiment, **changes})

    return Page(
        "loops",
        "Loops",
        {
            "loops": [_line(look.connection, one) for one in found],
            "paging": paging,
            "again": again,
            "experiment": experiment,
            "experiments": experiments(look.connection),
        },
        area="loops",
    )


def loop(look: Look) -> Page:
    """Return a loop: its iterations, what was gained on unseen cases, and what it cost."""
    found = find_loop(look.connection, look.path["loop"])
    if found is None:
        said = f"there is no loop {look.path['loop']!r}"
        raise UsageError(said, hint="see the list of loops")
    line = _line(look.connection, found)
    runs = run_results(look, [one.run_id for one in line.iterations if one.run_id is not None])
    by_id: dict[str, RunResult] = {each.run.id: each for each in runs}
    first = line.measured[0].score if line.measured else None
    return Page(
        "loop",
        f"Loop of {found.experiment}, {formats.when(found.started_at)}",
        {
            "loop_": found,
            "line": line,
            "first": first,
            "runs": by_id,
            "spending": loop_spending(look.connection, found),
            "sides": [
                (name, found.evidence[name])
                for name in ("train", "holdout")
                if isinstance(found.evidence.get(name), dict)
            ],
        },
        crumbs=(Crumb("Loops", look.links.to("loops")),),
        area="loops",
    )


def _line(connection: sqlite3.Connection, one: Loop) -> LoopLine:
    iterations = tuple(iterations_of(connection, one))
    scores = tuple(each.score for each in iterations)
    trend = None
    if len(scores) > 1:
        title = f"Score of {len(scores)} iterations on the training cases"
        trend = sparkline(Sparkline(title, scores))
    return LoopLine(one, iterations, booked(connection, one.scope), trend)
