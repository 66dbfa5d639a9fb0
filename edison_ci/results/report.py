"""Reports on runs, and the JSON documents of runs, reports and cells."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.records import Side, Verdict
from edison_ci.results.decisions import interim_json
from edison_ci.results.run_result import RunResult
from edison_ci.results.scores import interval_json
from edison_ci.results.snapshot import eval_suite_of, outputs_of, source_of
from edison_ci.sanitize import json_text
from edison_ci.stats.slices import Moments

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from edison_ci.results.cells import CellResult, Cells
    from edison_ci.results.components import ComponentSpread, ComponentTotal
    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.results.scores import Totals, VariantScore
    from edison_ci.results.slices import Breakdown, Reliability, Slice
    from edison_ci.store.runs import Run


# One view of the results, made from stored rows; JUnit, SARIF, Markdown, JSON, the comment on a
# pull request and its annotations render it. It has ids, scores and sentences, but no text of an
# answer.
_BEFORE_UNFINISHED = (Verdict.ERROR, Verdict.FAIL)
_AFTER_UNFINISHED = (Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.SKIPPED)


SIMULATED = "Answers and grades come from a simulator and say nothing about real models."
_SIMULATED = {
    "simulated": SIMULATED,
    "simulated answers": "The answers come from a simulator and say nothing about real models.",
    "simulated judge": "The answers are real; the judge is simulated, so that the scores it gives "
    "say nothing about them.",
    "simulated judges": "The answers are real; the judges are simulated, so that the scores they "
    "give say nothing about them.",
}
_SOME_SIMULATED = "Some answers or grades come from a simulator and say nothing about real models."


class Simulation(NamedTuple):
    """What is simulated in a report."""

    label: str
    sentence: str


class PlannedRun(NamedTuple):
    """The planned run of an experiment, where none could be made."""

    experiment: str
    cases: int
    cells: int
    calls: int
    cost_microusd: tuple[int, int] | None
    """From and to; None when a price is not known."""


@dataclass(frozen=True, slots=True)
class Report:
    """The runs of all experiments that a change touches."""

    runs: tuple[RunResult, ...] = ()
    failure: str = ""
    """Why a requested experiment has no run."""
    undecided: str = ""
    """Why the report is inconclusive at best."""
    plans: tuple[PlannedRun, ...] = ()
    """The runs that would have been made, where none could be."""
    dropped: tuple[str, ...] = ()
    """What was not evaluated as the change has it, in sentences: experiments that the base gates
    and that were not run, and parts of the change that its job does not follow."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why it is inconclusive at best, in sentences; shown first."""
        of_runs = (
            f"{view.run.experiment}: {row.sentence}"
            for view in self.runs
            for row in view.gates
            if row.doubt and row.sentence not in self.dropped
        )
        return tuple(dict.fromkeys((*self.dropped, *of_runs)))

    @property
    def verdict(self) -> Verdict | None:
        """The worst verdict; None while something is unfinished that could still fail."""
        verdicts = {view.run.verdict for view in self.runs}
        if self.failure:
            verdicts.add(Verdict.ERROR)
        if self.undecided or self.dropped:
            verdicts.add(Verdict.INCONCLUSIVE)
        for verdict in _BEFORE_UNFINISHED:
            if verdict in verdicts:
                return verdict
        # A run that waits for a batch has a verdict before it is finished.
        if not all(view.finished or view.run.verdict for view in self.runs):
            return None
        return next((v for v in _AFTER_UNFINISHED if v in verdicts), Verdict.SKIPPED)

    @property
    def simulated(self) -> bool:
        """Whether some of the numbers come from a simulator."""
        return any(view.run.simulated for view in self.runs)

    @property
    def simulation(self) -> Simulation | None:
        """What is simulated in the runs, as a heading and a sentence; None if nothing is."""
        labels = dict.fromkeys(view.run.simulation for view in self.runs)
        if not any(labels):
            return None
        label = next(iter(labels)) if len(labels) == 1 else "partly simulated"
        return Simulation(label.capitalize(), _SIMULATED.get(label, _SOME_SIMULATED))

    @property
    def head_runs(self) -> tuple[RunResult, ...]:
        """The runs on the eval suite of head, without their companions on that of the base."""
        return tuple(view for view in self.runs if view.on == Side.HEAD) or self.runs

    def companions_of(self, view: RunResult) -> tuple[RunResult, ...]:
        """Return the run of the same comparison with the base's eval suite, if there is one."""
        companion_id = None if view.companion is None else view.companion.id
        return tuple(other for other in self.runs if other.run.id == companion_id)

    @property
    def regressions(self) -> int:
        """How many cases are worse than in the base."""
        return sum(view.regressions for view in self.head_runs)

    @property
    def cost_microusd(self) -> int:
        """Cost of all runs."""
        return sum(view.cost_microusd for view in self.runs)


def report_of(connection: sqlite3.Connection, runs: Iterable[Run], failure: str = "") -> Report:
    """Return the report on runs, each with its run on the base's eval suite."""
    results = [RunResult(connection, run).load() for run in runs]
    companions = {result.companion.id for result in results if result.companion is not None}
    listed: list[RunResult] = []
    for result in results:
        if result.run.id in companions:
            continue  # added with the run that it belongs to
        listed.append(result)
        if result.companion is not None:
            listed.append(RunResult(connection, result.companion).load())
    return Report(tuple(listed), failure)


_NO_JUDGES: dict[str, Any] = {"head_to_head": [], "judge_agreement": None}


def run_document(result: RunResult) -> dict[str, Any]:
    """Return the whole JSON document of a run, with its breakdown, gates and judges."""
    return {
        **detailed(as_json(result), result.breakdown),
        "notes": [*result.notes],
        "interim": interim_json(result.gates),
        "weak_prompts": [rival.as_json() for rival in result.weak_prompts],
        **(_NO_JUDGES if result.judges is None else result.judges.as_json()),
        "quarantined": sorted(result.quarantined),
    }


def as_json(result: RunResult) -> dict[str, Any]:
    """Return a run as it appears in a list, without its breakdown."""
    run = result.run
    cuts = {(cut.prompt, cut.model): cut.cut_off for cut in result.cut_off if cut.side == Side.HEAD}
    return {
        "run_id": run.id,
        "experiment": run.experiment,
        "trigger": run.trigger,
        "origin": outputs_of(run),
        "status": run.status,
        "verdict": run.verdict,
        "simulated": run.simulated,
        "simulated_parts": run.simulated_parts,
        "partial": run.partial,
        "shard": run.shard,
        "stopped_by": run.stopped_by,
        "steered": [*result.steered],
        "batches": [batch.as_json() for batch in result.batches],
        "prompts": [
            {"id": prompt, "hash": version[:8], "label": run.labels.get(prompt)}
            for prompt, version in result.prompts
        ],
        "composite": interval_json(result.overall.composite),
        "pass_rate": interval_json(result.overall.pass_rate),
        "against": _against(result),
        "gates": [row.as_json() for row in result.gates],
        "human": result.human_grades.as_json() if result.human_grades is not None else None,
        "cells": result.cells,
        "errors": result.error_kinds,
        "fallbacks": [used.as_json() for used in result.fallbacks],
        "cut_off": result.cut_off_count,
        "calls": result.calls,
        "cost_microusd": result.cost_microusd,
        "tokens": {"in": result.tokens_in, "out": result.tokens_out},
        "wall_s": result.wall_s,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "source": source_of(run)._asdict(),
        "models": [
            {**_scored(scored), "cut_off": cuts.get((scored.prompt, scored.model), 0)}
            for scored in result.models
        ],
        "components": [_component(component) for component in result.components],
    }


def _component(component: ComponentTotal) -> dict[str, Any]:
    return {
        "name": component.name,
        "kind": component.kind,
        "graded": component.answers,
        "passed": component.passed,
        "mean": component.mean,
        "errors": component.errors,
        "blocked": component.blocked,
        "redacted": component.redacted,
    }


def _against(result: RunResult) -> dict[str, Any] | None:
    run, against = result.run, result.against
    if run.base_commit is None:
        return None
    return {
        "ref": run.base_ref,
        "commit": run.base_commit,
        "eval_suite": eval_suite_of(run),
        "composite": interval_json(against.composite) if against else None,
        "difference": against.as_json() if against else None,
    }


def _scored(scored: VariantScore) -> dict[str, Any]:
    return {
        "prompt": scored.prompt,
        "model": scored.model,
        "composite": interval_json(scored.composite),
        "pass_rate": interval_json(scored.pass_rate),
        "cost_microusd": scored.cost_microusd,
        "latency_ms": {"p50": scored.p50_ms, "p95": scored.p95_ms},
    }


_Who = tuple[str, str]
_ALL: _Who = ("", "")
_NO_SPREAD = {"min": None, "max": None, "sd": None}


def detailed(document: dict[str, Any], breakdown: Breakdown) -> dict[str, Any]:
    """Return the document of a run with its breakdown: overall, by model, and by slice."""
    components = _by_model(breakdown.components)
    spread = _overall(breakdown.components)
    models = [
        {
            **model,
            **_numbers(breakdown, (model["prompt"], model["model"])),
            "components": components.get((model["prompt"], model["model"]), []),
        }
        for model in document["models"]
    ]
    return {
        **document,
        **_numbers(breakdown, _ALL if len(models) != 1 else _only(models)),
        "models": models,
        "components": [
            {
                **component,
                **spread.get((component["name"], component["kind"]), _NO_SPREAD),
            }
            for component in document["components"]
        ],
        "slices": [_slice(slice_) for slice_ in breakdown.slices],
    }


def _only(models: list[dict[str, Any]]) -> _Who:
    """Return the only prompt and model: its numbers are those of the run."""
    return models[0]["prompt"], models[0]["model"]


def _numbers(breakdown: Breakdown, who: _Who) -> dict[str, Any]:
    totals = next((row for row in breakdown.totals if (row.prompt, row.model) == who), None)
    return {
        "rates": None if totals is None else rates(totals),
        "bounds": None if totals is None or not totals.missing else _bounds(totals),
        "reliability": [
            _reliability(row) for row in breakdown.reliability if (row.prompt, row.model) == who
        ],
    }


def rates(totals: Totals) -> dict[str, float | None]:
    """Return the share of cells of each status; skipped ones do not count."""
    asked = totals.cells - totals.skipped
    return {
        name: getattr(totals, name) / asked if asked else None
        for name in ("error", "malformed", "blocked")
    }


def _bounds(totals: Totals) -> dict[str, Any]:
    return {
        "missing": totals.missing,
        "composite": {"worst": totals.composite_worst, "best": totals.composite_best},
        "pass_rate": {"worst": totals.pass_worst, "best": totals.pass_best},
    }


def _reliability(repeats: Reliability) -> dict[str, Any]:
    def share(estimate: float, low: float | None, high: float | None) -> dict[str, Any]:
        same = {"n": repeats.n, "method": repeats.method}
        return {"estimate": estimate, "low": low, "high": high, **same}

    return {
        "k": repeats.k,
        "pass_all": share(repeats.pass_all, repeats.pass_all_low, repeats.pass_all_high),
        "pass_any": share(repeats.pass_any, repeats.pass_any_low, repeats.pass_any_high),
    }


def _slice(slice_: Slice) -> dict[str, Any]:
    return {
        **asdict(slice_),
        "composite": slice_.composite._asdict(),
        "pass_rate": slice_.pass_rate._asdict(),
    }


def _by_model(components: Iterable[ComponentSpread]) -> dict[_Who, list[dict[str, Any]]]:
    spreads: defaultdict[_Who, list[dict[str, Any]]] = defaultdict(list)
    for component in components:
        spreads[component.prompt, component.model].append(_spread(component))
    return spreads


def _spread(component: ComponentSpread) -> dict[str, Any]:
    return {
        "name": component.name,
        "kind": component.kind,
        "graded": component.n,
        "mean": component.mean,
        "min": component.low,
        "max": component.high,
        "sd": component.sd,
    }


def _overall(components: Iterable[ComponentSpread]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the spread of each component over all prompts and models, by name and kind."""
    together: defaultdict[tuple[str, str], list[ComponentSpread]] = defaultdict(list)
    for component in components:
        if component.mean is not None:
            together[component.name, component.kind].append(component)
    spreads = {}
    for key, same in together.items():
        whole = Moments()
        for component in same:
            whole.merge(
                Moments(
                    component.n,
                    component.mean or 0.0,
                    (component.sd or 0.0) ** 2 * (component.n - 1),
                )
            )
        lows, highs = ([getattr(p, end) for p in same] for end in ("low", "high"))
        spreads[key] = {"min": min(lows), "max": max(highs), "sd": whole.sd}
    return spreads


def json_lines(report: Report, cells: Cells) -> Iterator[str]:
    """Yield a line of JSON for each cell of every run."""
    for view in report.runs:
        for cell in cells.of(view):
            yield json_text(_cell_json(view, cell), indent=None) + "\n"


def _cell_json(view: RunResult, cell: CellResult) -> dict[str, Any]:
    run = view.run
    return {
        "schema_version": 1,
        "experiment": run.experiment,
        "run_id": run.id,
        "run_started": run.created_at,
        "simulated": run.simulated,
        "side": cell.side,
        "prompt": {
            "id": cell.prompt,
            "hash": cell.version[:8],
            "label": run.labels.get(cell.prompt) if cell.side == Side.HEAD else None,
        },
        "model": cell.model,
        "case": cell.case,
        "repeat": cell.repeat,
        "cell": cell.id[:12],
        "status": cell.status,
        "composite": cell.composite,
        "passed": cell.passed,
        "error": cell.error,
        "reason": cell.reason or None,
        "cost_microusd": cell.cost_microusd,
        "cost_kind": cell.cost_kind,
        "tokens": {"in": cell.tokens_in, "out": cell.tokens_out},
        "latency_ms": cell.latency_ms,
        "finish_reason": cell.finish_reason,
        "served_model": cell.served_model,
        "components": [component._asdict() for component in cell.components],
        "text": cell.text,
    }


def document(report: Report) -> dict[str, Any]:
    """Return the report as a JSON value.

    A run in it is what `edison status RUN --json` prints, with what only a report has: both sides
    of every prompt version, changed cases, a changed eval suite, findings and limitations.
    """
    return {
        "schema_version": 1,
        "verdict": report.verdict,
        "simulated": report.simulated,
        "failure": report.failure or None,
        "undecided": report.undecided or None,
        "dropped": [*report.dropped],
        "planned": [_planned_json(plan) for plan in report.plans],
        "cost_microusd": report.cost_microusd,
        "regressions": report.regressions,
        "runs": [_reported_run(view) for view in report.runs],
    }


def document_text(report: Report) -> str:
    """Return the report as JSON text that is safe to print."""
    return json_text(document(report)) + "\n"


def _planned_json(plan: PlannedRun) -> dict[str, Any]:
    cost = plan.cost_microusd
    span = None if cost is None else {"low": cost[0], "high": cost[1]}
    return {**plan._asdict(), "cost_microusd": span}


def _reported_run(view: RunResult) -> dict[str, Any]:
    return {
        **run_document(view),
        "labels": [*view.labels],
        "on": view.on,
        "eval_suite": [change._asdict() for change in view.eval_suite],
        "replaced": [*view.replaced],
        "forms": [*view.forms],
        "scores": [_score_json(row) for row in view.variants],
        "changes": [
            {"prompt": change.prompt, "model": change.model, **change.comparison.as_json()}
            for change in view.changes
        ],
        "findings": [finding._asdict() for finding in view.findings],
        "missing": [*view.missing],
    }


def _score_json(row: LeaderboardRow) -> dict[str, Any]:
    place = row.place
    return {
        "side": place.side,
        "prompt": place.prompt,
        "hash": place.version[:8],
        "label": row.label,
        "model": place.model,
        "composite": interval_json(row.composite),
        "pass_rate": interval_json(row.pass_rate),
        "answers": row.answers,
        "cost_microusd": row.cost_microusd,
        "estimated": row.estimated,
        "latency_ms": {"p50": row.p50_ms, "p95": row.p95_ms},
    }
