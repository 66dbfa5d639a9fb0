"""RunResult: the results of a run, each part read from stored rows on first access.

The terminal, JSON, Markdown, HTML, JUnit, SARIF and the pages render it, and none of them adds up
anything itself. A run that has ended was added up when it ended, and is not again; one that goes on
is added up from its cells.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config import gates as config_gates
from edison_ci.config import repeated_inputs
from edison_ci.errors import UsageError
from edison_ci.numeric import counted, fixed
from edison_ci.records import CellStatus, Move, RunStatus, Side
from edison_ci.results import cells as result_cells
from edison_ci.results import comparison as result_comparison
from edison_ci.results import decisions, leaderboard, rollups, samples, slices, trends, weaknesses
from edison_ci.results import fallbacks as result_fallbacks
from edison_ci.results import headline as result_headline
from edison_ci.results import human_grades as result_human_grades
from edison_ci.results import judges as result_judges
from edison_ci.results import scores as result_scores
from edison_ci.results.snapshot import (
    UNDECIDED,
    companion_of,
    eval_suite_of,
    is_redacted,
    outputs_of,
    replaced_names,
    screens_of,
    snapshot_of,
    suite_changes,
)
from edison_ci.results.spending import call_sums, calls_of, run_cost, stored_call_sums
from edison_ci.results.triage import SHOWN, changed_cases, triage_of
from edison_ci.stats import scores as stat_scores
from edison_ci.store import answers as store_answers
from edison_ci.store import batches as store_batches
from edison_ci.store import cells as store_cells
from edison_ci.store import judgments, manual_grades, steering
from edison_ci.store.runs import IMPORT, OUTPUTS, PRODUCTION

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.results.cells import Grid
    from edison_ci.results.comparison import BaseComparison, ComparisonEstimate
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.fallbacks import FallbackUse
    from edison_ci.results.headline import Headline
    from edison_ci.results.human_grades import HumanGrades
    from edison_ci.results.judges import JudgeFindings
    from edison_ci.results.leaderboard import LeaderboardRow as Measured
    from edison_ci.results.rollups import ComponentTotal, Totals
    from edison_ci.results.scores import ScoreSpread
    from edison_ci.results.slices import Breakdown, Slice
    from edison_ci.results.snapshot import SuiteChange
    from edison_ci.results.spending import CallSums
    from edison_ci.results.trends import TrendRun
    from edison_ci.results.triage import ChangedCase, Triage
    from edison_ci.results.weaknesses import PromptContrast
    from edison_ci.store.runs import Run

LISTED = 5
# Rollups are written when a run ends, so the cells of a run that has ended are not summed again. A
# running run has none, or those of an earlier end. Rollups of an imported file are made again: a
# foreign file may contain anything.
STATUSES = tuple(CellStatus)
_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.REFINING, RunStatus.REVIEWING})
"""Statuses of runs whose rollups are written."""


_REPORTED = (
    "prompts", "eval_suite", "files", "overall", "components", "breakdown", "variants", "against",
    "changes", "weak_prompts", "gates", "judges", "human_grades", "findings", "calls", "wall_s",
    "cost_microusd",
    "cut_off", "missing", "batches", "steered", "fallbacks", "headline",
)  # fmt: skip


class Change(NamedTuple):
    """Comparison of a prompt with a model with its base, on the same cases."""

    prompt: str
    model: str
    comparison: ComparisonEstimate


_NAMED = ("pii", "jailbreak", "secrets")
"""Screens whose reasons name kinds only; a model's reason may quote the answer."""


class Finding(NamedTuple):
    """Something that a screen or a judge saw in an answer."""

    kind: str
    """Such as pii."""
    by: str
    """`safety` for a screen, `flag` for a judge."""
    action: str
    """`block` when the answer is withheld, `redact` when it was changed, else `flag`."""
    prompt: str
    model: str
    case: str
    what: str = ""
    """What a screen without a model found, such as e-mail; never the text itself."""


class ScreenTotal(NamedTuple):
    """How many answers of a run a screen, or the judges, found something in."""

    name: str
    by: str
    """`safety` for a screen, `flag` for a judge."""
    found: int
    of: int
    """Answers that there are; for inputs, cells."""
    flagged: int
    redacted: int
    blocked: int
    errors: int
    """Answers that it could not screen."""

    @property
    def share(self) -> float | None:
        """Share of the answers in which something was found."""
        return self.found / self.of if self.of else None


def screen_words(name: str) -> str:
    """Return the name of a screen in words: `input_pii` is pii in inputs."""
    rest = name.removeprefix("input_")
    return name if rest == name else f"{rest} in inputs"


class CutOff(NamedTuple):
    """Answers of a prompt with a model that ended at max_tokens."""

    side: str
    prompt: str
    model: str
    cut_off: int
    answers: int


@dataclass(frozen=True, slots=True)
class Files:
    """Files of the experiment, as paths in the project."""

    experiment: str = ""
    models: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Paths by the ids of prompts."""


class Cost(NamedTuple):
    """What a model cost in a phase of the run."""

    model: str
    phase: str
    calls: int
    unknown: int
    microusd: int
    tokens_in: int
    tokens_out: int


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

    # --- what it is ------------------------------------------------------------------------------

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
        found = (self.connection.execute(query, (self.run.id,)).fetchall() for query in queries)
        return tuple(next(filter(None, found), ()))

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
        """What people changed in it while it went on, in sentences."""
        return tuple(
            f"Steered at {each.asked_at[11:16]} UTC by {each.by}: {each.said}."
            for each in steering.steering_of(self.connection, self.run.id)
            if each.done
        )

    @cached_property
    def batches(self) -> list[store_batches.StoredBatch]:
        """The batches that its answers are on their way in."""
        return store_batches.open_batches(self.connection, run_id=self.run.id)

    @cached_property
    def quarantined(self) -> frozenset[str]:
        """The cases that were in quarantine when it was planned."""
        found = self.snapshot.get("quarantine.yaml") or ()
        return frozenset(case for case in found if isinstance(case, str))

    @cached_property
    def clusters(self) -> dict[str, str]:
        """The cluster of each case that has one."""
        return store_cells.clusters_of(self.connection, self.run.id)

    @cached_property
    def files(self) -> Files:
        """Files of the experiment."""
        return _files(self.run, self.snapshot)

    # --- scores ----------------------------------------------------------------------------------

    @cached_property
    def cells(self) -> dict[str, int]:
        """How many cells there are in all (`total`), and how many ended with each status."""
        found = self._summed_cells() if self.ended else {}
        found = found or store_cells.cell_statuses(self.connection, self.run.id)
        return {"total": self.run.cells_planned, **{s: found.get(s, 0) for s in STATUSES}}

    def _summed_cells(self) -> dict[str, int]:
        sums = ", ".join(f"sum({status})" for status in STATUSES)
        row = self.connection.execute(
            f"select {sums} from rollup_run where run_id = ? group by run_id", (self.run.id,)
        ).fetchone()
        return {} if row is None else dict(zip(STATUSES, row, strict=True))

    @cached_property
    def _scored(self) -> tuple[result_scores.VariantScore, ...]:
        """The scores of all of it, then of each prompt with a model, with costs and latencies."""
        found = _stored_scores(self.connection, self.run.id) if self.ended else None
        if found is None:
            scores = result_scores.scores_of(self.connection, self.run.id)
            found = [_timed(self.connection, self.run.id, one) for one in scores]
        return tuple(_priced(one, self.call_sums.costs) for one in found)

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
            rollups.stored_component_totals(self.connection, self.run.id, "head")
            if self.ended
            else []
        )
        return tuple(stored or rollups.component_totals(self.connection, self.run.id, "head"))

    @cached_property
    def screens(self) -> tuple[ScreenTotal, ...]:
        """What each screen, and each kind of flag of the judges, found in the answers.

        Screens that found nothing are listed as well: they have looked.
        """
        totals = self.totals
        sent = 0 if totals is None else totals.ok + totals.malformed + totals.blocked
        of = sent
        if any(each.name.startswith("input_") and each.blocked for each in self.components):
            of -= self.connection.execute(
                "select count(*) from cell where run_id = ? and side = 'head' "
                "and status = 'blocked' and answer_no is null",
                (self.run.id,),
            ).fetchone()[0]
        if not sent:
            return ()
        found = [
            ScreenTotal(
                screen_words(each.name), each.kind, each.answers,
                sent if each.name.startswith("input_") else of, each.flagged, each.redacted,
                each.blocked, each.errors,
            )
            for each in self.components
            if each.kind in ("safety", "flag")
        ]  # fmt: skip
        told = {each.name for each in found if each.by == "safety"}
        clean = [
            ScreenTotal(words, "safety", 0, sent if name.startswith("input_") else of, 0, 0, 0, 0)
            for name in screens_of(self.run)
            if (words := screen_words(name)) not in told
        ]
        return (*found, *clean)

    @cached_property
    def totals(self) -> Totals | None:
        """Totals of its head; None before it ended."""
        return rollups.totals_of_run(self.connection, self.run.id) if self.ended else None

    @cached_property
    def breakdown(self) -> Breakdown:
        """Slices, repeats and what is missing, once it has ended."""
        return slices.breakdown_of(self.connection, self.run.id)

    @property
    def outstanding(self) -> tuple[Slice, ...]:
        """The slices that stand out, the weakest first."""
        found = (slice_ for slice_ in self.breakdown.slices if slice_.stands_out)
        return tuple(sorted(found, key=lambda slice_: slice_.difference or 0.0))

    @cached_property
    def variants(self) -> tuple[Measured, ...]:
        """Every prompt version with every model, head before base."""
        return leaderboard.variants_of(self.connection, self.run, self.clusters)

    @cached_property
    def against(self) -> BaseComparison | None:
        """The base, and the change from it over everything, where there is one."""
        if not self.run.base_commit:
            return None
        return result_comparison.compare_with_base(self.connection, self.run.id)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Against the base, for each prompt with a model that both sides have."""
        return tuple(self._changes())

    def _changes(self) -> Iterator[Change]:
        sides = [
            {(one.place.prompt, one.place.model) for one in self.variants if one.place.side == side}
            for side in samples.SIDES
        ]
        gates = tuple(_gates(self.gates))
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

    def triage(self, *, most: int | None = SHOWN) -> Triage | None:
        """Return which cases fail, and why; None before it ended."""
        return triage_of(self, most=most) if self.ended else None

    def changed_cases(self, *, most: int | None = None) -> tuple[ChangedCase, ...]:
        """Return the cases that changed since the base, with an answer of each side."""
        return changed_cases(self, most=most)

    @cached_property
    def headline(self) -> Headline:
        """The verdict, and what was found, in one sentence."""
        return result_headline.headline_of(self)

    # --- decisions, judges, people ----------------------------------------------------------------

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
        rows = self.connection.execute(
            "select p.name, p.kind, max(case when p.reason like 'block: %' then 2 "
            "when p.reason like 'redact: %' then 0 else 1 end), "
            "c.prompt, c.model, c.case_id, min(p.reason) from cell c join component p on "
            "p.cell_id = c.id and p.kind in ('safety', 'flag') and p.status = 'ok' "
            "where c.run_id = ? and c.side = 'head' group by 1, 2, 4, 5, 6 "
            "order by 3 desc, p.kind desc, p.name, c.prompt, c.model, c.case_id",
            (self.run.id,),
        )
        return tuple(
            Finding(
                kind,
                by,
                ("redact", "flag", "block")[action],
                prompt,
                model,
                case,
                what=reason.partition(": ")[2] if kind.removeprefix("input_") in _NAMED else "",
            )
            for kind, by, action, prompt, model, case, reason in rows.fetchall()
        )

    # --- money and time ---------------------------------------------------------------------------

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
        rows = self.connection.execute(
            "select t.model, t.phase, sum(t.state = 'settled'), sum(t.state in ('unknown', "
            "'reserved')), sum(case t.state when 'settled' then t.cost_microusd when 'released' "
            "then 0 else t.est_microusd end), coalesce(sum(a.tokens_in), 0), "
            "coalesce(sum(a.tokens_out), 0) from attempt t left join answer a on a.attempt = t.id "
            "where t.run_id = ? and t.phase <> 'replay' group by t.model, t.phase "
            "order by 5 desc, t.model, t.phase",
            (self.run.id,),
        )
        return tuple(Cost(*row) for row in rows.fetchall())

    # --- what the numbers do not tell -------------------------------------------------------------

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
            result_fallbacks.fallbacks_of(self.connection, self.run.id)
            if self.cells["error"]
            else ()
        )

    @cached_property
    def cut_off(self) -> tuple[CutOff, ...]:
        """Which answers were cut off at max_tokens, head before base; empty if none was."""
        query = _STORED_CUTS if self.ended else _LIVE_CUTS
        rows = self.connection.execute(f"{query} order by side desc, prompt, model", (self.run.id,))
        return tuple(CutOff(*row) for row in rows.fetchall())

    @property
    def cut_off_count(self) -> int:
        """How many answers of head were cut off at max_tokens."""
        return sum(one.cut_off for one in self.cut_off if one.side == Side.HEAD)

    @cached_property
    def skips(self) -> tuple[tuple[str, str], ...]:
        """The first cells that were left out, as CASE@MODEL, and why."""
        if not self.cells["skipped"]:
            return ()
        rows = self.connection.execute(
            "select case_id || '@' || model, coalesce(reason, '') from cell where run_id = ? "
            "and status = 'skipped' order by case_id limit ?",
            (self.run.id, LISTED),
        )
        return tuple(rows.fetchall())

    @cached_property
    def bounds(self) -> tuple[str, ...]:
        """Bounds of scores for any value of the missing answers, in sentences."""
        return tuple(_bounds(self))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What the numbers do not tell, in sentences."""
        return tuple(_missing(self))

    # --- for pages --------------------------------------------------------------------------------

    @cached_property
    def spreads(self) -> tuple[ScoreSpread, ...]:
        """Distributions of scores; a check that only passes or fails has none."""
        stored = (
            tuple(result_scores.graded_spreads(self.breakdown.components)) if self.ended else ()
        )
        return stored or tuple(result_scores.live_spreads(self.connection, self.run.id))

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


# --- sums -----------------------------------------------------------------------------------------


def _stored_scores(
    connection: sqlite3.Connection, run_id: str
) -> list[result_scores.VariantScore] | None:
    """Return the scores as they were written when the run ended; None if that is not all there."""
    numbers = (
        "composite, composite_low, composite_high, composite_n, composite_method, pass_rate, "
        "pass_low, pass_high, pass_n, pass_method, latency_p50_ms, latency_p95_ms"
    )
    rows = connection.execute(
        f"select '', '', 1, {numbers} from rollup_run where run_id = ?1 and side = 'head' "
        "union all select * from (select prompt, model, ok + malformed + blocked > 0, "
        f"{numbers} from rollup_model where run_id = ?1 and side = 'head' order by prompt, model)",
        (run_id,),
    ).fetchall()
    if len(rows) < 2 or rows[0][1]:
        return None  # a table of them is gone
    found = []
    for prompt, model, graded, *values, p50, p95 in rows:
        if not graded:
            continue
        both = values[:5], values[5:]
        if any(n and method is None for *_, n, method in both):
            return None
        composite, rate = (stat_scores.Interval(*one) if one[3] else None for one in both)
        found.append(
            result_scores.VariantScore(prompt, model, composite, rate, p50_ms=p50, p95_ms=p95)
        )
    return found


def _timed(
    connection: sqlite3.Connection, run_id: str, one: result_scores.VariantScore
) -> result_scores.VariantScore:
    """Return scores with how long the answers took, each once."""
    where = f"c.run_id = ? and c.side = 'head' and {store_answers.TIMED}"
    where += " and c.prompt = ? and c.model = ?" if one.model else ""
    rows = connection.execute(
        "select latency_ms, count(*) from (select distinct a.attempt, a.latency_ms from cell c "
        f"join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no where "
        f"{where}) "
        "group by latency_ms order by latency_ms",
        (run_id, one.prompt, one.model) if one.model else (run_id,),
    )
    p50, p95 = rollups.typical(rows.fetchall())
    return replace(one, p50_ms=p50, p95_ms=p95)


def _priced(
    one: result_scores.VariantScore, costs: dict[tuple[str, str], int]
) -> result_scores.VariantScore:
    """Return scores with what the answers cost."""
    cost = costs.get((one.prompt, one.model), 0) if one.model else sum(costs.values())
    return replace(one, cost_microusd=cost)


def _worked_s(connection: sqlite3.Connection, run_id: str) -> float | None:
    """Return the sum over sessions of how long each lasted, as far as it could tell."""
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


_STORED_CUTS = (
    "select side, prompt, model, cut_off, answers from rollup_model "
    "where run_id = ? and cut_off > 0"
)
_LIVE_CUTS = (
    "select side, prompt, model, count(distinct iif(a.finish_reason = 'length', a.attempt, null)) "
    "as cut_off, count(distinct a.attempt) from cell c join answer a "
    "on a.request_hash = c.request_hash and a.answer_no = c.answer_no where c.run_id = ? "
    "group by side, prompt, model having cut_off > 0"
)


# --- files and gates of then ----------------------------------------------------------------------


def _files(run: Run, snapshot: Mapping[str, Any]) -> Files:
    own = {place: value for place, value in snapshot.items() if not place.startswith("base: ")}
    for place, value in own.items():
        if isinstance(value, dict) and value.get("experiment") == run.experiment:
            paths = [str(path) for path in value.get("prompts", ())]
            prompts = {PurePosixPath(path).stem: path for path in paths}
            models = (p.partition(": ")[0] for p, v in own.items() if _is_model(p, v))
            return Files(place, next(models, ""), prompts)
    return Files()


def _is_model(place: str, value: Any) -> bool:
    return ": " in place and isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _gates(rows: Iterable[GateRow]) -> Iterator[config_gates.Gate]:
    """Yield the gates that say which difference of the composite matters, as files write them."""
    for row in rows:
        if row.metric != "composite" or "no_worse_than" not in row.gate:
            continue
        written = {"metric": row.metric, "no_worse_than": row.gate["no_worse_than"]}
        margin = row.gate.get("margin")
        if margin:
            unit = "%" if margin["relative"] else "pp"
            written["margin"] = f"{100 * float(margin['value']):g}{unit}"
        yield config_gates.Gate.model_validate(written)


# --- sentences ------------------------------------------------------------------------------------


def _missing(result: RunResult) -> Iterator[str]:
    run, cells = result.run, result.cells
    done = sum(count for name, count in cells.items() if name != "total")
    if run.status != RunStatus.COMPLETED:
        by = f", stopped by {run.stopped_by}" if run.stopped_by else ""
        yield f"The run is {run.status}{by}: {done:,} of {cells['total']:,} cells are done."
    if cells["error"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in result.error_kinds.items())
        yield f"{cells['error']:,} of {cells['total']:,} cells ended in an error ({kinds})."
    yield from (used.sentence for used in result.fallbacks)
    yield from result.bounds
    yield from _cuts(result.cut_off)
    for component in result.components:
        if component.errors:
            ungraded = counted(component.errors, "answer")
            yield f"No grade by {component.kind} {component.name}: {ungraded}."
    if cells["skipped"]:
        shown = "; ".join(f"{case}: {reason}" for case, reason in result.skips)
        more = ", ..." if cells["skipped"] > LISTED else ""
        yield f"Skipped: {counted(cells['skipped'], 'cell')}. {shown}{more}"
    if result.clusters and (
        repeated := repeated_inputs.repetition_sentence(_case_ids(result), result.clusters)
    ):
        yield repeated
    yield from _partial(run)
    yield from _imported(run)
    if aside := len(result.quarantined):
        are = "is" if aside == 1 else "are"
        yield f"{counted(aside, 'case')} {are} in quarantine: run and shown, but never gating."
    if result.calls["unknown"]:
        lost = counted(result.calls["unknown"], "call")
        yield f"Of unknown fate, and counted at the most they can cost: {lost}."
    if run.status == RunStatus.COMPLETED and not result.gates and run.shard is None:
        yield "The experiment has no gates, so nothing was decided."


def _cuts(found: Iterable[CutOff]) -> Iterator[str]:
    for one in found:
        side = f"{one.side}, " if one.side != Side.HEAD else ""
        yield (
            f"Cut off at max_tokens: {one.cut_off:,} of {counted(one.answers, 'answer')} of "
            f"{side}{one.prompt} with {one.model}. Raise max_tokens, or ask for less."
        )


def _case_ids(result: RunResult) -> list[str]:
    aside = result.quarantined
    return [
        case for case in store_cells.case_ids(result.connection, result.run.id) if case not in aside
    ]


def _partial(run: Run) -> Iterator[str]:
    if run.shard is not None:
        shard = run.shard.replace("/", " of ")
        yield f"Shard {shard}: this is a part of a run. {UNDECIDED}"
    elif run.partial:
        yield "Only a part of the cases was run."


def _imported(run: Run) -> Iterator[str]:
    origin = outputs_of(run)
    if origin is None:
        return
    yield f"The answers were imported from {origin['file']}: no model was called for them."
    for name, note in (("cost", "the cost counts as 0"), ("latency", "the latency is unknown")):
        if lacking := origin[f"without_{name}"]:
            yield f"Imported without a {name}: {counted(lacking, 'answer')}; {note}."


def _bounds(result: RunResult) -> Iterator[str]:
    known = result.connection, result.run.id
    several = sum(bool(counts.model) for counts in slices.counts_of(*known)) > 1
    for found in slices.bounds_of(*known):
        worst, best = found.composite_worst, found.composite_best
        if worst is None or best is None or (found.model and not several):
            continue
        who = f"the score of {found.prompt} with {found.model}" if found.model else "the score"
        without = counted(found.missing, "answer")
        yield (
            f"With {without} missing, {who} lies between {fixed(100 * worst, 1)} and "
            f"{fixed(100 * best, 1)}."
        )
