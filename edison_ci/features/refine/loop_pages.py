"""The pages of loops: their iterations, results and what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.features.refine.loop_report import stop_reason
from edison_ci.features.refine.loop_rows import (
    Iteration,
    Loop,
    LoopState,
    current_rows,
    find_loop,
    iterations_of,
    list_loops,
    loop_spending,
    loops_by_experiment,
)
from edison_ci.numeric import snap
from edison_ci.report.charts.trend import Sparkline, sparkline
from edison_ci.results.run_lists import experiments
from edison_ci.results.spending import booked
from edison_ci.stats.convergence import verified
from edison_ci.web import formats
from edison_ci.web.page_context import (
    Crumb,
    Page,
    PageContext,
    Paging,
    paged,
    run_results,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.run_result import RunResult


@dataclass(frozen=True, slots=True)
class LoopLine:
    """A loop in a list."""

    loop: Loop
    iterations: tuple[Iteration, ...]
    cost_microusd: int
    trend: Drawing | None

    @property
    def measured(self) -> list[Iteration]:
        """The iterations that have a score."""
        return [iteration for iteration in self.iterations if iteration.score is not None]

    @property
    def best(self) -> Iteration | None:
        """The iteration with the best training score; the first of equals."""
        return max(self.measured, key=lambda iteration: snap(iteration.score or 0.0), default=None)

    @property
    def rounds(self) -> int:
        """Number of measured iterations; one measures all prompts in play."""
        return len({iteration.number for iteration in self.measured})

    @property
    def pending(self) -> list[str]:
        """The suggestions that wait for a decision."""
        return [
            iteration.pending
            for iteration in current_rows(self.iterations)
            if iteration.pending is not None
        ]

    @property
    def firsts(self) -> dict[str, float | None]:
        """The score of the first version of each prompt."""
        return {iteration.prompt: iteration.score for iteration in reversed(self.iterations)}

    @property
    def paths(self) -> list[str]:
        """The files of its prompts."""
        return list(dict.fromkeys(iteration.path for iteration in self.iterations))

    @property
    def others(self) -> list[tuple[str, dict[str, Any]]]:
        """Held-out evidence of further prompts, by name."""
        kept = self.loop.evidence.get("others")
        evidence_by_name = kept.items() if isinstance(kept, dict) else ()
        return [
            (name, evidence["holdout"])
            for name, evidence in evidence_by_name
            if evidence.get("holdout")
        ]

    @property
    def holdout(self) -> dict[str, Any] | None:
        """Evidence of the held-out cases, best prompt against first one."""
        holdout = self.loop.evidence.get("holdout")
        return holdout if isinstance(holdout, dict) else None

    @property
    def verified(self) -> bool:
        """Whether there are enough held-out cases."""
        return self.holdout is not None and verified(int(self.holdout.get("n") or 0))

    @property
    def state(self) -> str:
        """Its status as one word."""
        if self.loop.point is LoopState.DONE:
            return "completed"
        if self.loop.stopped_by == "budget":
            return "paused"
        return "waiting" if self.loop.point is LoopState.REVIEWING else str(self.loop.point)

    @property
    def why(self) -> str:
        """Why it ended; '' while it is active."""
        return stop_reason(self.loop) if self.loop.stopped_by else ""


def loops(context: PageContext) -> Page:
    """Return every loop, newest first."""
    experiment = context.args.text("experiment")
    counts = loops_by_experiment(context.connection)
    total = counts.get(experiment, 0) if experiment else sum(counts.values())
    paging = Paging.of(context.args, total)
    listed = list_loops(context.connection, experiment, most=paging.per_page, offset=paging.offset)

    def again(**changes: Any) -> str:
        return context.links.to("loops", **{"experiment": experiment, **changes})

    return Page(
        "loops",
        "Loops",
        {
            "loops": [_line(context.connection, listed_loop) for listed_loop in listed],
            "paging": paging,
            "again": again,
            "experiment": experiment,
            "experiments": experiments(context.connection),
        },
        area="loops",
    )


def loop(context: PageContext) -> Page:
    """Return a loop: iterations, gain on held-out cases, and cost."""
    stored = find_loop(context.connection, context.path["loop"])
    if stored is None:
        message = f"there is no loop {context.path['loop']!r}"
        raise UsageError(message, hint="open it from the list of loops")
    line = _line(context.connection, stored)
    iterations = paged(context, _with_origins(line.iterations), "loop", stored.id)
    visible = [iteration for iteration, _ in iterations.rows]
    runs = run_results(
        context, [iteration.run_id for iteration in visible if iteration.run_id is not None]
    )
    by_id: dict[str, RunResult] = {run.run.id: run for run in runs}
    first = line.firsts.get(line.best.prompt) if line.best is not None else None
    return Page(
        "loop",
        f"Loop of {stored.experiment}, {formats.when(stored.started_at)}",
        {
            "loop_": stored,
            "line": line,
            "first": first,
            "iterations": iterations,
            "runs": by_id,
            "spending": loop_spending(context.connection, stored),
            "sides": [
                (name, stored.evidence[name])
                for name in ("train", "holdout")
                if isinstance(stored.evidence.get(name), dict)
            ],
        },
        crumbs=(Crumb("Loops", context.links.to("loops")),),
        area="loops",
    )


def _with_origins(iterations: Sequence[Iteration]) -> list[tuple[Iteration, str]]:
    """Return the iterations, each with the word for where a version without suggestion is from."""
    rows, seen = [], set[str]()
    for iteration in iterations:
        repeated = iteration.version in seen
        rows.append(
            (
                iteration,
                "original" if iteration.number == 1 else "unchanged" if repeated else "by hand",
            )
        )
        seen.add(iteration.version)
    return rows


def _line(connection: sqlite3.Connection, listed: Loop) -> LoopLine:
    iterations = tuple(iterations_of(connection, listed))
    best: dict[int, float | None] = {}
    for iteration in iterations:
        best_so_far = best.get(iteration.number)
        best[iteration.number] = (
            iteration.score
            if best_so_far is None
            else max(best_so_far, iteration.score or best_so_far)
        )
    scores = tuple(best.values())
    trend = None
    if len(scores) > 1:
        title = f"Score of {len(scores)} iterations on the training cases"
        trend = sparkline(Sparkline(title, scores))
    return LoopLine(listed, iterations, booked(connection, listed.scope), trend)
