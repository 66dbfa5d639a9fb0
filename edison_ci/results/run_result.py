"""RunResult: the results of a run, each part read from stored rows on first access.

The terminal, JSON, Markdown, HTML, JUnit, SARIF and the pages render it, and none of them adds up
anything itself. A run that has ended was added up when it ended, and is not again; one in progress
is added up from its cells.
"""

from __future__ import annotations

import datetime as dt
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.records import CellStatus, Move, RunStatus, Side, Verdict
from edison_ci.results import cells as result_cells
from edison_ci.results import comparison as result_comparison
from edison_ci.results import components as result_components
from edison_ci.results import (
    decisions,
    leaderboard,
    regressions,
    run_sentences,
    samples,
    slices,
    trends,
    weaknesses,
)
from edison_ci.results import human_grades as result_human_grades
from edison_ci.results import judges as result_judges
from edison_ci.results import scores as result_scores
from edison_ci.results import triage as result_triage
from edison_ci.results.snapshot import (
    Files,
    companion_of,
    eval_suite_of,
    files_of,
    form_notes,
    is_redacted,
    replaced_names,
    snapshot_of,
    suite_changes,
)
from edison_ci.results.spending import (
    Cost,
    call_sums,
    calls_of,
    run_cost,
    run_costs,
    stored_call_sums,
)
from edison_ci.store import batches as store_batches
from edison_ci.store import cells as store_cells
from edison_ci.store import judgments, manual_grades, steering
from edison_ci.store.runs import IMPORT, OUTPUTS, PRODUCTION

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.results.cells import Grid
    from edison_ci.results.comparison import ComparisonEstimate
    from edison_ci.results.components import ComponentTotal, Finding, ScoreSpread, ScreenTotal
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.human_grades import HumanGrades
    from edison_ci.results.judges import JudgeFindings
    from edison_ci.results.leaderboard import LeaderboardRow as Measured
    from edison_ci.results.run_sentences import CutOff, FallbackUse, Headline
    from edison_ci.results.scores import BaseComparison, Totals
    from edison_ci.results.slices import Breakdown, Slice
    from edison_ci.results.snapshot import SuiteChange
    from edison_ci.results.spending import CallSums
    from edison_ci.results.trends import TrendRun
    from edison_ci.results.triage import ChangedCase, Triage
    from edison_ci.results.weaknesses import PromptContrast
    from edison_ci.store.runs import Run


# Rollups are written when a run ends, so the cells of a run that has ended are not summed again. A
# running run has none, or those of an earlier end. Rollups of an imported file are made again: a
# foreign file may contain anything.
STATUSES = tuple(CellStatus)
FAILING_SHOWN = 10
"""Failing cases that are listed unless all are asked for."""
_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.REFINING, RunStatus.REVIEWING})
"""Statuses of runs whose rollups are written."""

_REPORTED = (
    "prompts", "eval_suite", "files", "overall", "components", "breakdown", "variants", "against",
    "changes", "weak_prompts", "gates", "judges", "human_grades", "findings", "calls", "wall_s",
    "cost_microusd",
    "cut_off", "missing", "batches", "steered", "forms", "fallbacks", "notes", "headline",
)  # fmt: skip


class Change(NamedTuple):
    """Comparison of a prompt with a model with its base, on the same cases."""

    prompt: str
    model: str
    comparison: ComparisonEstimate


class RunResult:
    """A run and its results."""

    def __init__(self, connection: sqlite3.Connection, run: Run) -> None:
        self.connection = connection
        self.run = run

    def load(self) -> RunResult:
        """Read everything that reports show, so that the results file can be closed."""
        for name in _REPORTED:
            getattr(self, name)
        return self

    @cached_property
    def snapshot(self) -> dict[str, Any]:
        """The content of its files when it was planned."""
        return snapshot_of(self.run)

    @cached_property
    def prompts(self) -> tuple[tuple[str, str], ...]:
        """Id and version of each prompt."""
        tables = ("rollup_model", "cell") if self.ended else ("cell",)
        queries = (
            f"select distinct prompt, version from {table} where run_id = ? and side = 'head' "
            "order by prompt"
            for table in tables
        )
        results = (self.connection.execute(query, (self.run.id,)).fetchall() for query in queries)
        return tuple(next(filter(None, results), ()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels such as simulated or partial, for which the numbers are no evidence."""
        return labels_of(self.run)

    @property
    def ended(self) -> bool:
        """Whether it has ended, so that its rollups are written."""
        return self.run.status in _ENDED

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to it."""
        return self.run.status in (RunStatus.COMPLETED, RunStatus.FAILED)

    @property
    def on(self) -> str:
        """The side whose eval suite it was measured on: head or base."""
        return eval_suite_of(self.run)

    @cached_property
    def companion(self) -> Run | None:
        """The run of the same comparison on the base's eval suite, if there is one."""
        return companion_of(self.connection, self.run)

    @property
    def twice(self) -> bool:
        """Whether it was measured on the base's eval suite as well."""
        return self.companion is not None

    @cached_property
    def eval_suite(self) -> tuple[SuiteChange, ...]:
        """Changes of the eval suite since the base; shown first."""
        if self.on != Side.HEAD:
            return ()
        return suite_changes(self.connection, self.run, self.companion)

    @property
    def replaced(self) -> tuple[str, ...]:
        """Prompts and models that are compared with a predecessor of another name."""
        return replaced_names(self.run)

    @cached_property
    def steered(self) -> tuple[str, ...]:
        """What people changed during the run, in sentences."""
        return tuple(
            f"Steered at {request.asked_at[11:16]} UTC by {request.by}: {request.said}."
            for request in steering.steering_of(self.connection, self.run.id)
            if request.done
        )

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """Which forms of answers were found in prompts, and how many answers have one anyway."""
        parsed = (
            f"{round((component.mean or 0) * component.answers):,} of {component.answers:,} "
            f"answers have the form {component.name}, which is not required"
            for component in self.components
            if component.kind == store_cells.FORM
        )
        return tuple(f"{sentence}." for sentence in (*form_notes(self.run), *parsed))

    @cached_property
    def batches(self) -> list[store_batches.StoredBatch]:
        """The batches that its answers are on their way in."""
        return store_batches.open_batches(self.connection, run_id=self.run.id)

    @property
    def reserved_microusd(self) -> int:
        """Of its cost, what is reserved for open batches: the most that they can cost."""
        return sum(batch.booked_microusd for batch in self.batches)

    @cached_property
    def quarantined(self) -> frozenset[str]:
        """The cases that were in quarantine when it was planned."""
        cases = self.snapshot.get("quarantine.yaml") or ()
        return frozenset(case for case in cases if isinstance(case, str))

    @cached_property
    def clusters(self) -> dict[str, str]:
        """The cluster of each case that has one."""
        return store_cells.clusters_of(self.connection, self.run.id)

    @cached_property
    def files(self) -> Files:
        """Files of the experiment."""
        return files_of(self.run)

    @cached_property
    def cells(self) -> dict[str, int]:
        """How many cells there are in all (`total`), and how many ended with each status."""
        counts = self._summed_cells() if self.ended else {}
        counts = counts or store_cells.cell_statuses(self.connection, self.run.id)
        return {"total": self.run.cells_planned, **{s: counts.get(s, 0) for s in STATUSES}}

    def _summed_cells(self) -> dict[str, int]:
        sums = ", ".join(f"sum({status})" for status in STATUSES)
        row = self.connection.execute(
            f"select {sums} from rollup_run where run_id = ? group by run_id", (self.run.id,)
        ).fetchone()
        return {} if row is None else dict(zip(STATUSES, row, strict=True))

    @cached_property
    def _scored(self) -> tuple[result_scores.VariantScore, ...]:
        """The scores of all of it, then of each prompt with a model, with costs and latencies."""
        scored = (
            result_scores.stored_variant_scores(self.connection, self.run.id)
            if self.ended
            else None
        )
        if scored is None:
            scores = result_scores.scores_of(self.connection, self.run.id)
            scored = [
                result_scores.with_latencies(self.connection, self.run.id, score)
                for score in scores
            ]
        return tuple(result_scores.with_cost(score, self.call_sums.costs) for score in scored)

    @property
    def overall(self) -> result_scores.VariantScore:
        """Scores of the whole run."""
        return self._scored[0]

    @property
    def models(self) -> tuple[result_scores.VariantScore, ...]:
        """Scores of each prompt with each model."""
        return self._scored[1:]

    @cached_property
    def components(self) -> tuple[ComponentTotal, ...]:
        """Totals of each check, criterion, grader and screen."""
        stored = (
            result_components.stored_component_totals(self.connection, self.run.id, "head")
            if self.ended
            else []
        )
        return tuple(
            stored or result_components.component_totals(self.connection, self.run.id, "head")
        )

    @cached_property
    def screens(self) -> tuple[ScreenTotal, ...]:
        """What each screen, and each kind of flag of the judges, found in the answers.

        Screens that found nothing are listed as well: they have looked.
        """
        return result_components.screen_totals(
            self.connection, self.run, self.totals, self.components
        )

    @cached_property
    def totals(self) -> Totals | None:
        """Totals of its head; None before it ended."""
        return result_scores.totals_of_run(self.connection, self.run.id) if self.ended else None

    @cached_property
    def breakdown(self) -> Breakdown:
        """Slices, repeats and what is missing, once it has ended."""
        return slices.breakdown_of(self.connection, self.run.id)

    @property
    def outstanding(self) -> tuple[Slice, ...]:
        """The slices that stand out, the weakest first."""
        slices = (slice_ for slice_ in self.breakdown.slices if slice_.stands_out)
        return tuple(sorted(slices, key=lambda slice_: slice_.difference or 0.0))

    @cached_property
    def variants(self) -> tuple[Measured, ...]:
        """Every prompt with every model, the base before the candidate."""
        return leaderboard.variants_of(self.connection, self.run, self.clusters)

    @cached_property
    def against(self) -> BaseComparison | None:
        """The base, and the change from it over everything, where there is one."""
        if not self.run.base_commit:
            return None
        return result_scores.compare_with_base(self.connection, self.run.id)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Against the base, for each prompt with a model that both sides have."""
        return tuple(self._changes())

    def _changes(self) -> Iterator[Change]:
        sides = [
            {(row.place.prompt, row.place.model) for row in self.variants if row.place.side == side}
            for side in samples.SIDES
        ]
        gates = tuple(result_comparison.gates_on_score(self.gates))
        for prompt, model in sorted(sides[0] & sides[1]):
            variant = (prompt, model)
            try:
                yield Change(prompt, model, result_comparison.change_of(self, variant, gates))
            except UsageError:
                continue  # no case in common: the gates report it

    @property
    def regressions(self) -> int:
        """How many cases pass in the base and fail now, over all prompts and models."""
        return sum(len(change.comparison.moved[Move.NEWLY_FAILING]) for change in self.changes)

    @cached_property
    def weak_prompts(self) -> tuple[PromptContrast, ...]:
        """Prompts that are shown to be worse than the best one of the run."""
        if len(self.prompts) < 2:
            return ()
        return weaknesses.weak_prompts(self.connection, self.run)

    def triage(self, *, most: int | None = FAILING_SHOWN) -> Triage | None:
        """Return which cases fail, and why; None before it ended."""
        return result_triage.triage_of(self, most=most) if self.ended else None

    def changed_cases(self, *, most: int | None = None) -> tuple[ChangedCase, ...]:
        """Return the cases that changed since the base, with an answer of each side."""
        return result_triage.changed_cases(self, most=most)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What is shown to be worse although all gates pass, in sentences."""
        if self.run.verdict != Verdict.PASS or self.run.base_commit is None or not self.ended:
            return ()
        return tuple(regressions.regression_notes(self))

    @cached_property
    def headline(self) -> Headline:
        """The verdict, and what was found, in one sentence."""
        return run_sentences.headline_of(self)

    @cached_property
    def gates(self) -> tuple[GateRow, ...]:
        """Decisions of its gates."""
        return decisions.decisions_of(self.connection, self.run.id)

    @cached_property
    def judges(self) -> JudgeFindings | None:
        """Agreement and biases of its judges; None with a single judge and no comparisons."""
        run_id = self.run.id
        if judgments.any_comparison(self.connection, run_id) or judgments.several_judges(
            self.connection, run_id
        ):
            return result_judges.judge_findings(self.connection, run_id)
        return None

    @cached_property
    def human_grades(self) -> HumanGrades | None:
        """Grades of its answers by people; None if there are none."""
        if not manual_grades.has_human_grades(self.connection, self.run):
            return None
        return result_human_grades.human_grades_of(self.connection, self.run)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What screens and judges found in answers."""
        return result_components.findings_of(self.connection, self.run.id)

    @cached_property
    def call_sums(self) -> CallSums:
        """Sums of its calls."""
        stored = stored_call_sums(self.connection, self.run.id) if self.ended else None
        return stored or call_sums(self.connection, self.run.id)

    @cached_property
    def calls(self) -> dict[str, int]:
        """How its calls went: made, reused, retried, of unknown fate, estimated."""
        return calls_of(self.connection, self.run, self.call_sums)

    @cached_property
    def cost_microusd(self) -> int:
        """All that it cost, judges and calls of unknown fate included."""
        return run_cost(self.connection, self.run.id)

    @property
    def tokens_in(self) -> int:
        """Tokens that were read for the answers it rests on."""
        return self.call_sums.tokens_in

    @property
    def tokens_out(self) -> int:
        """Tokens of the answers it rests on."""
        return self.call_sums.tokens_out

    @cached_property
    def wall_s(self) -> float | None:
        """Seconds of all its sessions, by the monotonic clock; None while it runs."""
        if self.run.finished_at is None:
            return None
        worked = _worked_s(self.connection, self.run.id)
        if worked is not None:
            return worked
        begun, ended = map(dt.datetime.fromisoformat, (self.run.created_at, self.run.finished_at))
        return max((ended - begun).total_seconds(), 0.0)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """What each model cost in each phase."""
        return run_costs(self.connection, self.run.id)

    @cached_property
    def error_kinds(self) -> dict[str, int]:
        """How many cells ended in each kind of error, the most frequent first."""
        if not self.cells["error"]:
            return {}
        rows = self.connection.execute(
            "select coalesce(error, 'ERROR'), count(*) from cell where run_id = ? "
            "and status = 'error' group by 1 order by 2 desc, 1",
            (self.run.id,),
        )
        return dict(rows.fetchall())

    @cached_property
    def fallbacks(self) -> tuple[FallbackUse, ...]:
        """Answers of fallback models, which stand beside cells in error and count for nothing."""
        return (
            run_sentences.fallbacks_of(self.connection, self.run.id) if self.cells["error"] else ()
        )

    @cached_property
    def cut_off(self) -> tuple[CutOff, ...]:
        """Which answers were cut off at max_tokens, head before base; empty if none was."""
        return run_sentences.cut_off_answers(self.connection, self.run.id, ended=self.ended)

    @property
    def cut_off_count(self) -> int:
        """How many answers of head were cut off at max_tokens."""
        return sum(cut.cut_off for cut in self.cut_off if cut.side == Side.HEAD)

    @cached_property
    def skips(self) -> tuple[tuple[str, str], ...]:
        """The first cells that were left out, as CASE@MODEL, and why."""
        if not self.cells["skipped"]:
            return ()
        rows = self.connection.execute(
            "select case_id || '@' || model, coalesce(reason, '') from cell where run_id = ? "
            "and status = 'skipped' order by case_id limit ?",
            (self.run.id, run_sentences.LISTED),
        )
        return tuple(rows.fetchall())

    @cached_property
    def bounds(self) -> tuple[str, ...]:
        """Bounds of scores for any value of the missing answers, in sentences."""
        return tuple(run_sentences.bound_sentences(self))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What the numbers do not show, in sentences."""
        return tuple(run_sentences.missing_sentences(self))

    @cached_property
    def spreads(self) -> tuple[ScoreSpread, ...]:
        """Distributions of scores; a check that only passes or fails has none."""
        stored = (
            tuple(result_components.graded_spreads(self.breakdown.components)) if self.ended else ()
        )
        return stored or tuple(result_components.live_spreads(self.connection, self.run.id))

    @cached_property
    def grid(self) -> Grid:
        """The worst cases by prompts with models."""
        return result_cells.grid_of(self)

    @cached_property
    def history(self) -> tuple[TrendRun, ...]:
        """The complete runs of its experiment up to it, oldest first."""
        points = trends.points_of(self.connection, self.run.experiment)
        return tuple(point for point in points if point.run.created_at <= self.run.created_at)


def labels_of(run: Run) -> tuple[str, ...]:
    """Return what keeps the numbers of a run from being evidence."""
    marks = (
        (run.simulation, run.simulated),
        ("personal data redacted", is_redacted(run)),
        ("replayed", run.trigger == "replay"),
        ("imported", run.trigger == IMPORT),
        ("imported answers", run.trigger == OUTPUTS),
        ("answers of production", run.trigger == PRODUCTION),
        (f"shard {run.shard}", run.shard is not None),
        ("part of the cases", run.partial and run.shard is None),
        ("trial", run.trigger == "refine"),
    )
    return tuple(word for word, on in marks if on)


def _worked_s(connection: sqlite3.Connection, run_id: str) -> float | None:
    """Return the sum over sessions of how long each lasted, by its events."""
    row = connection.execute(
        "select max(worked) from (select sum(longest) as worked from (select shard, "
        "max(json_extract(data, '$.seconds')) as longest from (select data, "
        "json_extract(data, '$.shard') as shard, "
        "sum(type = 'status:changed' and json_extract(data, '$.to') = 'EXECUTING') "
        "over (order by seq) as session from event where run_id = ?) group by shard, session) "
        "group by shard)",
        (run_id,),
    ).fetchone()
    return None if row[0] is None else float(row[0])
