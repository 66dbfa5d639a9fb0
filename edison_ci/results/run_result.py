"""RunResult: everything that a run found, each part read from the stored rows when it is asked for.

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
from edison_ci.config.decisions import Gate
from edison_ci.errors import UsageError
from edison_ci.formatting import counted
from edison_ci.results.cells import grid_of
from edison_ci.results.comparison import change_of, compared
from edison_ci.results.decisions import decisions_of
from edison_ci.results.human_grades import people_of
from edison_ci.results.judges import judges_said
from edison_ci.results.leaderboard import variants_of
from edison_ci.results.material_changes import companion_of, material_changes, replaced_in
from edison_ci.results.part_scores import graded_spreads, live_spreads
from edison_ci.results.rollups import part_totals, stored_part_totals, typical
from edison_ci.results.scores import Scored, scores_of
from edison_ci.results.slices import breakdown_of
from edison_ci.results.snapshot import UNDECIDED, is_redacted, kept_snapshot, material_of
from edison_ci.results.spending import call_sums, calls_of, run_cost, stored_call_sums
from edison_ci.results.totals import totals_of_run
from edison_ci.results.trends import points_of
from edison_ci.results.weak_prompts import weak_prompts
from edison_ci.rounding import fixed
from edison_ci.stats.scores import Interval
from edison_ci.store.comparisons import any_comparison
from edison_ci.store.grades import held_to_people
from edison_ci.store.opinions import several_judges
from edison_ci.store.runs import cell_statuses, clusters_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.results.cells import Grid
    from edison_ci.results.comparison import Compared, Standing
    from edison_ci.results.decisions import GateRow
    from edison_ci.results.human_grades import People
    from edison_ci.results.judges import JudgesSaid
    from edison_ci.results.leaderboard import Standing as Measured
    from edison_ci.results.material_changes import MaterialChange
    from edison_ci.results.part_scores import ScoreSpread
    from edison_ci.results.rollups import PartTotal
    from edison_ci.results.slices import Breakdown, Facet
    from edison_ci.results.spending import CallSums
    from edison_ci.results.totals import Totals
    from edison_ci.results.trends import Point
    from edison_ci.results.weak_prompts import Rival
    from edison_ci.store.runs import Run

LISTED = 5
# Whoever ends a run writes its sums, so a run that has ended is not added up again. A run that
# goes on has none, or those of an earlier end. Those that came in with a file from elsewhere are
# not believed: they may say anything.
STATUSES = ("ok", "malformed", "error", "blocked", "skipped")
_ENDED = frozenset({"COMPLETED", "FAILED", "REFINING", "REVIEWING"})
"""Statuses that a run gets to by way of its sums."""


_REPORTED = (
    "prompts", "material", "files", "overall", "parts", "breakdown", "variants", "against",
    "changes", "weak_prompts", "gates", "judges", "people", "findings", "calls", "wall_s",
    "cost_microusd",
    "missing",
)  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class Files:
    """Where what was measured is written, as paths in the project."""

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
    """A run, and everything there is to say about it."""

    def __init__(self, connection: sqlite3.Connection, run: Run) -> None:
        self.connection = connection
        self.run = run

    def loaded(self) -> RunResult:
        """Return it with all that reports show read, to be told after the results are closed."""
        for name in _REPORTED:
            getattr(self, name)
        return self

    # --- what it is ------------------------------------------------------------------------------

    @cached_property
    def snapshot(self) -> dict[str, Any]:
        """What it was planned on."""
        return kept_snapshot(self.run)

    @cached_property
    def prompts(self) -> tuple[tuple[str, str], ...]:
        """Id and version of each prompt."""
        rows = self.connection.execute(
            "select distinct prompt, version from cell where run_id = ? and side = 'head' "
            "order by prompt",
            (self.run.id,),
        )
        return tuple(rows.fetchall())

    @property
    def labels(self) -> tuple[str, ...]:
        """What keeps the numbers from being evidence."""
        return labels_of(self.run)

    @property
    def ended(self) -> bool:
        """Whether it was added up: it has come to an end, good or bad."""
        return self.run.status in _ENDED

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to it."""
        return self.run.status in ("COMPLETED", "FAILED")

    @property
    def on(self) -> str:
        """Whose material it was measured on, head or base."""
        return material_of(self.run)

    @cached_property
    def companion(self) -> Run | None:
        """The run of the same comparison on the base's material, if there is one."""
        return companion_of(self.connection, self.run)

    @property
    def twice(self) -> bool:
        """Whether it was measured on the base's material as well."""
        return self.companion is not None

    @cached_property
    def material(self) -> tuple[MaterialChange, ...]:
        """What of the material differs from the base's; told before anything else."""
        if self.on != "head":
            return ()
        return material_changes(self.connection, self.run, self.companion)

    @property
    def replaced(self) -> tuple[str, ...]:
        """What is compared with a former self of another name."""
        return replaced_in(self.run)

    @cached_property
    def quarantined(self) -> frozenset[str]:
        """The cases that were set aside when it was planned."""
        found = self.snapshot.get("quarantine.yaml") or ()
        return frozenset(case for case in found if isinstance(case, str))

    @cached_property
    def clusters(self) -> dict[str, str]:
        """The group of each case that belongs to one."""
        return clusters_of(self.connection, self.run.id)

    @cached_property
    def files(self) -> Files:
        """Where what was measured is written."""
        return _files(self.run, self.snapshot)

    # --- scores ----------------------------------------------------------------------------------

    @cached_property
    def cells(self) -> dict[str, int]:
        """How many cells there are in all (`total`), and how many ended with each status."""
        found = self._summed_cells() if self.ended else {}
        found = found or cell_statuses(self.connection, self.run.id)
        return {"total": self.run.cells_planned, **{s: found.get(s, 0) for s in STATUSES}}

    def _summed_cells(self) -> dict[str, int]:
        sums = ", ".join(f"sum({status})" for status in STATUSES)
        row = self.connection.execute(
            f"select {sums} from rollup_run where run_id = ? group by run_id", (self.run.id,)
        ).fetchone()
        return {} if row is None else dict(zip(STATUSES, row, strict=True))

    @cached_property
    def _scored(self) -> tuple[Scored, ...]:
        """The scores of all of it, then of each prompt with a model, with costs and latencies."""
        found = _stored_scores(self.connection, self.run.id) if self.ended else None
        if found is None:
            scores = scores_of(self.connection, self.run.id)
            found = [_timed(self.connection, self.run.id, one) for one in scores]
        return tuple(_priced(one, self.call_sums.costs) for one in found)

    @property
    def overall(self) -> Scored:
        """What all of it is worth."""
        return self._scored[0]

    @property
    def models(self) -> tuple[Scored, ...]:
        """What each prompt with each model is worth."""
        return self._scored[1:]

    @cached_property
    def parts(self) -> tuple[PartTotal, ...]:
        """How each check, criterion, grader and screen went."""
        stored = stored_part_totals(self.connection, self.run.id, "head") if self.ended else []
        return tuple(stored or part_totals(self.connection, self.run.id, "head"))

    @cached_property
    def totals(self) -> Totals | None:
        """What its head comes to; None before it ended."""
        return totals_of_run(self.connection, self.run.id) if self.ended else None

    @cached_property
    def breakdown(self) -> Breakdown:
        """Kinds of cases, draws and what is missing, once it has ended."""
        return breakdown_of(self.connection, self.run.id)

    @property
    def outstanding(self) -> tuple[Facet, ...]:
        """The kinds of cases that stand out, the weakest first."""
        found = (facet for facet in self.breakdown.facets if facet.stands_out)
        return tuple(sorted(found, key=lambda facet: facet.difference or 0.0))

    @cached_property
    def variants(self) -> tuple[Measured, ...]:
        """Every prompt version with every model, head before base."""
        return variants_of(self.connection, self.run, self.clusters)

    @cached_property
    def against(self) -> Compared | None:
        """The base, and the change from it over everything, where there is one."""
        if not self.run.base_commit:
            return None
        return compared(self.connection, self.run.id)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Against the base, for each prompt with a model that both sides have."""
        return tuple(self._changes())

    def _changes(self) -> Iterator[Change]:
        sides = [
            {(one.place.prompt, one.place.model) for one in self.variants if one.place.side == side}
            for side in ("base", "head")
        ]
        gates = tuple(_gates(self.gates))
        for prompt, model in sorted(sides[0] & sides[1]):
            subject = (prompt, model)
            try:
                yield Change(prompt, model, change_of(self, subject, gates))
            except UsageError:
                continue  # no case in common: the gates have said so

    @property
    def regressions(self) -> int:
        """How many cases are worse than in the base, over all prompts and models."""
        return sum(len(change.standing.broken) for change in self.changes)

    @cached_property
    def weak_prompts(self) -> tuple[Rival, ...]:
        """Prompts that are shown to be worse than the best one of the run."""
        if len(self.prompts) < 2:
            return ()
        return weak_prompts(self.connection, self.run)

    # --- decisions, judges, people ----------------------------------------------------------------

    @cached_property
    def gates(self) -> tuple[GateRow, ...]:
        """What its gates said."""
        return decisions_of(self.connection, self.run.id)

    @cached_property
    def judges(self) -> JudgesSaid | None:
        """What its judges say beside the scores, if anything."""
        run_id = self.run.id
        if any_comparison(self.connection, run_id) or several_judges(self.connection, run_id):
            return judges_said(self.connection, run_id)
        return None

    @cached_property
    def people(self) -> People | None:
        """What people said of its answers, if anybody did."""
        if not held_to_people(self.connection, self.run):
            return None
        return people_of(self.connection, self.run)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What screens and judges found in answers."""
        rows = self.connection.execute(
            "select p.name, p.kind, case when c.status = 'blocked' then 'block' else 'flag' end, "
            "c.prompt, c.model, c.case_id from cell c join part p on p.cell_id = c.id "
            "and p.kind in ('safety', 'flag') and p.status = 'ok' "
            "where c.run_id = ? and c.side = 'head' group by 1, 2, 3, 4, 5, 6 "
            "order by 3, p.kind desc, p.name, c.prompt, c.model, c.case_id",
            (self.run.id,),
        )
        return tuple(Finding(*row) for row in rows.fetchall())

    # --- money and time ---------------------------------------------------------------------------

    @cached_property
    def call_sums(self) -> CallSums:
        """What its calls come to."""
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
        """Seconds that were spent on it, by a clock that nobody sets; None while it runs."""
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
        """Where scores lie, whatever the answers that are missing are worth, in sentences."""
        return tuple(_bounds(self))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What the numbers do not tell, in sentences."""
        return tuple(_missing(self))

    # --- for pages --------------------------------------------------------------------------------

    @cached_property
    def spreads(self) -> tuple[ScoreSpread, ...]:
        """How scores are spread; a check that only says yes or no has nothing to spread."""
        stored = tuple(graded_spreads(self.breakdown.parts)) if self.ended else ()
        return stored or tuple(live_spreads(self.connection, self.run.id))

    @cached_property
    def grid(self) -> Grid:
        """The worst cases by prompts with models."""
        return grid_of(self)

    @cached_property
    def history(self) -> tuple[Point, ...]:
        """The complete runs of its experiment up to it, oldest first."""
        points = points_of(self.connection, self.run.experiment)
        return tuple(point for point in points if point.run.created_at <= self.run.created_at)


def labels_of(run: Run) -> tuple[str, ...]:
    """Return what keeps the numbers of a run from being evidence."""
    marks = (
        ("simulated", run.simulated),
        ("personal data redacted", is_redacted(run)),
        ("replayed", run.trigger == "replay"),
        ("imported", run.trigger == "import"),
        (f"shard {run.shard}", run.shard is not None),
        ("part of the cases", run.partial and run.shard is None),
        ("trial", run.trigger == "refine"),
    )
    return tuple(word for word, on in marks if on)


# --- sums -----------------------------------------------------------------------------------------


def _stored_scores(connection: sqlite3.Connection, run_id: str) -> list[Scored] | None:
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
        composite, rate = (Interval(*one) if one[3] else None for one in both)
        found.append(Scored(prompt, model, composite, rate, p50_ms=p50, p95_ms=p95))
    return found


def _timed(connection: sqlite3.Connection, run_id: str, one: Scored) -> Scored:
    """Return scores with how long the answers took, each once."""
    where = "c.run_id = ? and c.side = 'head'"
    where += " and c.prompt = ? and c.model = ?" if one.model else ""
    rows = connection.execute(
        "select latency_ms, count(*) from (select distinct a.attempt, a.latency_ms from cell c "
        f"join answer a on a.address = c.address and a.take = c.take where {where}) "
        "group by latency_ms order by latency_ms",
        (run_id, one.prompt, one.model) if one.model else (run_id,),
    )
    p50, p95 = typical(rows.fetchall())
    return replace(one, p50_ms=p50, p95_ms=p95)


def _priced(one: Scored, costs: dict[tuple[str, str], int]) -> Scored:
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


def _gates(rows: Iterable[GateRow]) -> Iterator[Gate]:
    """Yield the gates that say which difference of the composite matters, as files write them."""
    for row in rows:
        if row.metric != "composite" or "no_worse_than" not in row.gate:
            continue
        written = {"metric": row.metric, "no_worse_than": row.gate["no_worse_than"]}
        margin = row.gate.get("margin")
        if margin:
            unit = "%" if margin["relative"] else "pp"
            written["margin"] = f"{100 * float(margin['value']):g}{unit}"
        yield Gate.model_validate(written)


# --- sentences ------------------------------------------------------------------------------------


def _missing(result: RunResult) -> Iterator[str]:
    run, cells = result.run, result.cells
    done = sum(count for name, count in cells.items() if name != "total")
    if run.status != "COMPLETED":
        by = f", stopped by {run.stopped_by}" if run.stopped_by else ""
        yield f"The run is {run.status}{by}: {done:,} of {cells['total']:,} cells are done."
    if cells["error"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in result.error_kinds.items())
        yield f"{cells['error']:,} of {cells['total']:,} cells ended in an error ({kinds})."
    yield from result.bounds
    for part in result.parts:
        if part.errors:
            yield f"No grade by {part.kind} {part.name}: {counted(part.errors, 'answer')}."
    if cells["skipped"]:
        shown = "; ".join(f"{case}: {reason}" for case, reason in result.skips)
        more = ", ..." if cells["skipped"] > LISTED else ""
        yield f"Skipped: {counted(cells['skipped'], 'cell')}. {shown}{more}"
    yield from _partial(run)
    if aside := len(result.quarantined):
        are = "is" if aside == 1 else "are"
        yield f"{counted(aside, 'case')} {are} in quarantine: run and shown, but never gating."
    if result.calls["unknown"]:
        lost = counted(result.calls["unknown"], "call")
        yield f"Of unknown fate, and counted at the most they can cost: {lost}."
    if run.status == "COMPLETED" and not result.gates and run.shard is None:
        yield "The experiment has no gates, so nothing was decided."


def _partial(run: Run) -> Iterator[str]:
    if run.shard is not None:
        shard = run.shard.replace("/", " of ")
        yield f"Shard {shard}: this is a part of a run. {UNDECIDED}"
    elif run.partial:
        yield "Only a part of the cases was run."


def _bounds(result: RunResult) -> Iterator[str]:
    several = sum(bool(counts.model) for counts in result.breakdown.counts) > 1
    for found in result.breakdown.bounds:
        worst, best = found.composite_worst, found.composite_best
        if worst is None or best is None or (found.model and not several):
            continue
        who = f"the score of {found.prompt} with {found.model}" if found.model else "the score"
        without = counted(found.missing, "answer")
        yield (
            f"With {without} missing, {who} lies between {fixed(100 * worst, 1)} and "
            f"{fixed(100 * best, 1)}."
        )
