"""The report as one self-contained HTML file, rendered with the templates of this package.

The stylesheet is inline and a content security policy allows its hash only: nothing else is
  applied,
fetched or run. Templates escape every value, with invisible characters spelled out. Values are
prepared here, where types are checked; the templates only lay them out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edison_ci.documents.secrets import redacted
from edison_ci.numeric import (
    NOTHING,
    TOLERANCE,
    change,
    counted,
    dollars,
    milliseconds,
    percent,
    percent_span,
    score,
    signed_span,
)
from edison_ci.records import CellStatus, Move, Side
from edison_ci.report import components
from edison_ci.report.charts.bars import Bar, Bars, Histogram, bars, histogram, tenths
from edison_ci.report.charts.drawing import Column, DataTable, fluid
from edison_ci.report.charts.estimates import (
    Pareto,
    ParetoPoint,
    Range,
    forest,
    gate_forests,
    gate_name,
    interval,
    one_prompt,
    pareto,
)
from edison_ci.report.charts.heatmap import Field, HeatMap, heatmap
from edison_ci.report.charts.trend import Series, Trend, TrendPoint, trend
from edison_ci.report.components import Card, text_box
from edison_ci.report.markdown_report import DECISIONS, eval_suite_sentence
from edison_ci.report.markup import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.records import Case
    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.cells import CellResult, FailingCells, Grid, Square
    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import Change, RunResult
    from edison_ci.results.slices import Slice
    from edison_ci.results.triage import ChangedCase
    from edison_ci.stats.scores import Interval

_MOST_CHANGED_CASES = 30
MOST_CHANGED_ANSWERS = 10
"""Changed cases that are shown with the answers of both sides."""
_MOST_CHARS = 20_000
"""Characters of a text that a page shows."""
_HALF_WIDTH = 460
"""Width of a chart that shares a row with another."""
_HIDDEN_KINDS = ("safety", "flag")
_PASSES = {True: "passes", False: "fails", None: "not graded"}


class PageRun(NamedTuple):
    """A run on the page, with its failing answers."""

    view: RunResult
    failing: FailingCells
    cases: Mapping[str, Case]
    """Known cases of the failing answers, by id."""
    changed: tuple[ChangedCase, ...] = ()
    """Cases that changed most, with their answers; none if texts are left out."""


# --- whole pages ----------------------------------------------------------------------------------


def html_page(report: Report, runs: Sequence[PageRun], *, unfolded: bool = False) -> str:
    """Return the report as an HTML file; `unfolded` opens all folds, for printing."""
    names = ", ".join(dict.fromkeys(view.run.experiment for view in report.runs)) or "edison"
    return _render(
        "report.html",
        **_page_values(f"{names}: {report.verdict or 'not finished'}"),
        failure=report.failure,
        simulation=report.simulation,
        nothing=not report.runs and not report.failure,
        links=[(view.run.id, _run_name(view)) for view in report.runs],
        suites=[_eval_suite(view) for view in report.runs if view.eval_suite],
        runs=[_run_values(page, unfolded=unfolded) for page in runs],
    )


def result_html(view: RunResult, failing: FailingCells) -> str:
    """Return one run as an HTML fragment with its stylesheet, for a notebook."""
    run = _run_values(PageRun(view, failing, {}), unfolded=False)
    return _render("notebook.html", style=Markup(stylesheet()), run=run)


def whole_page(title: str, content: Iterable[Markup | None]) -> str:
    """Return content as a self-contained HTML file."""
    parts = [part for part in content if part is not None]
    return _render("page.html", **_page_values(title), content=parts)


def stylesheet() -> str:
    """Return the stylesheet of all pages."""
    place = files("edison_ci.report").joinpath("static", "edison.css")
    return place.read_text(encoding="utf-8")


def policy(style: str) -> str:
    """Return the content security policy of a file: only this stylesheet is applied."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _page_values(title: str) -> dict[str, Any]:
    style = stylesheet()
    return {"title": title, "style": Markup(style), "policy": policy(style)}


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("edison_ci.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every value goes through `escape`, which also spells out invisible characters.
        finalize=lambda value: value if isinstance(value, Markup) else escape(str(value)),
    )
    found.globals["ui"] = components
    return found


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def _run_name(view: RunResult) -> str:
    on = ", with the base's eval suite" if view.on == "base" else ""
    return f"{view.run.experiment}{on}"


def _eval_suite(view: RunResult) -> dict[str, Any]:
    rows = tuple((change.place, change.before, change.after) for change in view.eval_suite)
    return {
        "experiment": view.run.experiment,
        "how": eval_suite_sentence(view),
        "table": DataTable((Column("file"), Column("base"), Column("head")), rows),
    }


# --- one run --------------------------------------------------------------------------------------


def _run_values(page: PageRun, *, unfolded: bool) -> dict[str, Any]:
    view, run = page.view, page.view.run
    short = one_prompt(view.gates)
    moved = [*_changed_cases(view)]
    failing = page.failing
    return {
        "id": run.id,
        "experiment": run.experiment,
        "verdict": run.verdict or run.status.lower(),
        "labels": view.labels,
        "brief": view.on == Side.BASE,
        "headline": view.headline.sentence,
        "lead": _lead(view),
        "cards": [*_cards(view)],
        "limitations": [
            *view.missing,
            *view.steered,
            *(rival.sentence for rival in view.weak_prompts),
        ],
        "gates": [
            (row.word.lower(), gate_name(row, short=short), row.sentence) for row in view.gates
        ],
        "forests": [fluid(forest, chart) for chart in gate_forests(view.gates)],
        "scores": [_score_row(row) for row in view.variants],
        "pareto": _pareto(view),
        "changes": [_change_row(one) for one in view.changes],
        "changed_answers": [_changed_answers(case) for case in page.changed],
        "changed_cases": moved[:_MOST_CHANGED_CASES],
        "more_changed_cases": max(len(moved) - _MOST_CHANGED_CASES, 0),
        "failing": [_failing(cell, page.cases.get(cell.case)) for cell in failing.cells],
        "failing_count": _amount(len(failing.cells), failing.total, "answer"),
        "unfolded": unfolded,
        "components": _components(view),
        "histograms": [
            histogram(
                Histogram(f"{spread.kind} {spread.name}", tenths(spread.counts), mean=spread.mean,
                          width=_HALF_WIDTH)
            )
            for spread in view.spreads
        ],
        "slices": _slices(view),
        "costs": _cost_table(view),
        "cost_chart": _cost_chart(view),
        "trend": _trend(view),
        "grid": _grid(view.grid),
        "facts": [*_facts(view)],
    }  # fmt: skip


def _lead(view: RunResult) -> str:
    run = view.run
    on = ", with the base's eval suite" if view.on == "base" else ""
    lead = f"Run {run.id}, {run.created_at[:16].replace('T', ' ')} UTC{on}."
    if view.against is not None and run.base_commit is not None:
        base = f"{run.base_ref} at {run.base_commit[:8]}"
        lead += f" Compared with {base} on {counted(view.against.n, 'case')}."
    return lead


def _cards(view: RunResult) -> Iterator[Card]:
    overall, against = view.overall, view.against
    yield Card("Score", _points(overall.composite), "of 100", _points_span(overall.composite))
    if against is not None and against.estimate is not None:
        ends = ""
        if against.low is not None and against.high is not None:
            ends = signed_span(against.low, against.high)
        yield Card("Change from base", _change(against.estimate), "points", ends)
    passed = overall.pass_rate
    of = "" if passed is None else f"of {passed.n:,}"
    yield Card("Pass rate", _percent(passed), of, _percent_span(passed))
    about = "~" if view.calls["unknown"] else ""
    reused = f"{counted(view.calls['made'], 'call')}, {view.calls['reused']:,} reused"
    yield Card("Cost", f"{about}{dollars(view.cost_microusd)}", note=reused)
    if overall.p50_ms is not None:
        late = "" if overall.p95_ms is None else f"p95 {milliseconds(overall.p95_ms)}"
        yield Card("Median latency", milliseconds(overall.p50_ms), note=late)
    cells = view.cells
    odd = [f"{cells[word]:,} {word}" for word in ("malformed", "error", "blocked", "skipped")
           if cells[word]]  # fmt: skip
    if view.cut_off_count:
        odd.append(f"{view.cut_off_count:,} cut off at max_tokens")
    yield Card("Answers", f"{cells['ok']:,}", f"of {cells['total']:,}", ", ".join(odd))


def _points(found: Interval | None) -> str:
    return NOTHING if found is None else score(found.estimate)


def _points_span(found: Interval | None) -> str:
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return "1 case: no error bar"
    return f"{score(found.low)} to {score(found.high)}"


def _percent(found: Interval | None) -> str:
    return NOTHING if found is None else percent(found.estimate)


def _percent_span(found: Interval | None) -> str:
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return "1 case: no error bar"
    return percent_span(found.low, found.high)


def _change(estimate: float | None) -> str:
    return change(estimate, None, None).removesuffix(" points")


def _amount(listed: int, total: int, noun: str) -> str:
    if total > listed:
        return f"The worst {listed:,} of {counted(total, noun)}."
    return f"{counted(total, noun)}, the worst first."


# --- scores and changes ---------------------------------------------------------------------------


def _score_row(row: LeaderboardRow) -> dict[str, Any]:
    place, composite = row.place, row.composite
    label = "base" if place.side == Side.BASE else row.label or ""
    short = place.version[:8]
    estimate, low, high = None, None, None
    if composite is not None:
        estimate, low, high = composite.estimate, composite.low, composite.high
    about = "~" if row.estimated else ""
    return {
        "prompt": place.prompt,
        "version": label if short in label else f"{label} {short}".strip(),
        "model": place.model,
        "score": _points(composite),
        "score_span": _points_span(composite),
        "bar": interval(Range(f"{place.prompt} with {place.model}", estimate, low, high)).svg,
        "pass_rate": _percent(row.pass_rate),
        "pass_rate_span": _percent_span(row.pass_rate),
        "cost": f"{about}{dollars(row.cost_microusd)}",
        "p50": milliseconds(row.p50_ms),
        "p95": milliseconds(row.p95_ms),
    }


def _pareto(view: RunResult) -> Drawing | None:
    """Draw score against cost where there are several variants that cost something."""
    heads = [
        row for row in view.variants if row.place.side == Side.HEAD and row.composite is not None
    ]
    if len(heads) < 2 or not any(row.cost_microusd for row in heads):
        return None
    prompts = {row.place.prompt for row in heads}
    spots = tuple(
        ParetoPoint(
            row.place.model if len(prompts) == 1 else f"{row.place.prompt}, {row.place.model}",
            row.cost_microusd,
            row.composite.estimate,
            row.composite.low,
            row.composite.high,
            front=not any(_dominates(other, row) for other in heads),
        )
        for row in heads
        if row.composite is not None
    )
    return fluid(pareto, Pareto("Score and cost per answer", spots))


def _dominates(other: LeaderboardRow, row: LeaderboardRow) -> bool:
    """Whether another variant is as good and as cheap, and better in one of them."""
    if None in (other.cost_microusd, row.cost_microusd, other.composite, row.composite):
        return False
    assert other.composite is not None and row.composite is not None
    a = (-(other.cost_microusd or 0), other.composite.estimate)
    b = (-(row.cost_microusd or 0), row.composite.estimate)
    return a != b and a[0] >= b[0] and a[1] >= b[1]


def _change_row(one: Change) -> dict[str, Any]:
    found = one.comparison
    low, high = found.interval or (None, None)
    more = f" (about {counted(found.n_more, 'more case')} needed)" if found.n_more else ""
    missing = f" ({found.missing:,} missing)" if found.missing else ""
    return {
        "prompt": one.prompt,
        "model": one.model,
        "scores": [score(value) for value in found.scores],
        "change": _change(found.estimate),
        "span": NOTHING if low is None or high is None else signed_span(low, high),
        "decision": f"{DECISIONS[found.verdict]}{more}",
        "cases": f"{found.n:,}{missing}",
        "fixed": f"{len(found.moved[Move.FIXED]):,}",
        "newly_failing": f"{len(found.moved[Move.NEWLY_FAILING]):,}",
    }


def _changed_cases(view: RunResult) -> Iterator[dict[str, Any]]:
    for move in Move:
        for one in view.changes:
            for case in one.comparison.moved[move]:
                before, after = (_PASSES[passed] for passed in case.passed)
                yield {
                    "case": case.case,
                    "word": move.words,
                    "prompt": one.prompt,
                    "model": one.model,
                    "base": score(case.a),
                    "head": score(case.b),
                    "passes": before if before == after else f"{before}, then {after}",
                }


def _changed_answers(case: ChangedCase) -> dict[str, Any]:
    """Return a changed case with its answer on each side, and why each passes or fails."""
    sides = (("Base", case.before), ("Head", case.after))
    return {
        "case": case.case,
        "word": case.move.words,
        "variant": f"{case.prompt} with {case.model}",
        "scores": f"{score(case.before.composite)} to {score(case.after.composite)}",
        "boxes": [
            {**_box(f"{name}, {score(side.composite)}", side.text or ""), "why": side.why,
             "stored": side.text is not None}
            for name, side in sides
        ],
    }  # fmt: skip


# --- answers --------------------------------------------------------------------------------------


def _failing(cell: CellResult, case: Case | None) -> dict[str, Any]:
    boxes = []
    if case is not None:
        boxes.append(_box("Input", _input_text(case)))
        if case.expected is not None:
            boxes.append(_box("Expected", _value_text(case.expected)))
    if cell.text is not None:
        boxes.append(_box("Answer", cell.text))
    tokens = ""
    if cell.tokens_out is not None:
        tokens = f", {cell.tokens_in or 0:,} + {cell.tokens_out:,} tokens"
    latency = "" if cell.latency_ms is None else f", {milliseconds(cell.latency_ms)}"
    return {
        "case": cell.case,
        "outcome": cell.outcome,
        "variant": f"{cell.prompt} with {cell.model}" + (f" #{cell.repeat}" if cell.repeat else ""),
        "result": f"{score(cell.composite)} of 100" if cell.composite is not None
        else cell.error or "",
        "reasons": [*_reasons(cell)],
        "boxes": boxes,
        "no_text": "was blocked and is not shown"
        if cell.status == CellStatus.BLOCKED
        else "is not stored",
        "details": f"cell {cell.id[:12]}, {dollars(cell.cost_microusd)}{tokens}{latency}",
    }  # fmt: skip


def _reasons(cell: CellResult) -> Iterator[str]:
    if cell.status != CellStatus.OK:
        reason = cell.reason.removeprefix("blocked: ")
        yield f"{cell.error or cell.status}: {reason}".removesuffix(": ")
    for component in cell.components:
        if component.passed is False or component.status == CellStatus.ERROR:
            what = f"scored {score(component.score)}"
            if component.status == CellStatus.ERROR:
                what = "could not be graded"
            why = f": {component.reason}" if component.reason else ""
            yield f"{component.kind} {component.name} {what}{why}"


def _box(label: str, text: str) -> dict[str, Any]:
    shown = text[:_MOST_CHARS]
    cut = f" (the first {_MOST_CHARS:,} of {len(text):,} characters)" if shown != text else ""
    return {"label": f"{label}{cut}", "box": text_box(shown, label=label, prose=True)}


def _input_text(case: Case) -> str:
    if len(case.inputs) == 1:
        return _value_text(next(iter(case.inputs.values())))
    return "\n".join(f"{name}: {_value_text(value)}" for name, value in case.inputs.items())


def _value_text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return redacted(text)


def _grid(grid: Grid) -> dict[str, Any] | None:
    if not grid.rows:
        return None
    same_prompt = len({column.prompt for column in grid.columns}) == 1
    text = f"{counted(grid.cases, 'case')}, the worst first."
    if grid.cases > len(grid.rows):
        text = f"The worst {len(grid.rows):,} of {counted(grid.cases, 'case')}; CSV has them all."
    return {
        "text": f"{text} Numbers are points out of 100.",
        "columns": [c.model if same_prompt else f"{c.prompt}, {c.model}" for c in grid.columns],
        "rows": [(case, [_square(square) for square in squares]) for case, squares in grid.rows],
    }


def _square(square: Square | None) -> tuple[str, str]:
    if square is None:
        return "skipped", NOTHING
    repeats = f" ({square.repeats})" if square.repeats > 1 else ""
    return square.outcome, f"{score(square.composite)}{repeats}"


# --- components, slices, cost and trend -----------------------------------------------------------


def _components(view: RunResult) -> DataTable | None:
    """Return the table of all components of the grade; None if there are none."""
    rows = tuple(
        (
            component.name,
            component.kind,
            score(component.mean),
            NOTHING if component.failed is None else f"{component.failed:,}",
            f"{component.answers:,}",
            f"{component.errors:,}",
        )
        for component in view.components
        if (component.answers or component.errors) and component.kind not in _HIDDEN_KINDS
    )
    numbers = ("mean", "failed", "graded", "not graded")
    columns = (Column("component"), Column("kind"), *(Column(n, numeric=True) for n in numbers))
    return DataTable(columns, rows) if rows else None


def _slices(view: RunResult) -> Drawing | None:
    slices = view.breakdown.slices
    several = sorted({(one.prompt, one.model) for one in slices if one.model})
    columns = several if len(several) > 1 else sorted({(s.prompt, s.model) for s in slices})[-1:]
    found: dict[tuple[str, str], dict[tuple[str, str], Slice]] = {}
    for one in slices:
        if (one.prompt, one.model) in columns:
            found.setdefault((one.dimension, one.value), {})[one.prompt, one.model] = one
    if not found:
        return None
    prompts = {prompt for prompt, _ in columns}
    rows = tuple(
        (f"{name}: {value}", tuple(_slice_field(by.get(column)) for column in columns))
        for (name, value), by in sorted(found.items())
    )
    names = tuple(
        (model if len(prompts) == 1 else f"{prompt}, {model}") or "all models"
        for prompt, model in columns
    )
    known = [one.composite.estimate for by in found.values() for one in by.values()]
    values = [value for value in known if value is not None] or [0.0, 1.0]
    # The shades cover the range of these scores only, or all would look alike.
    least = math.floor(10 * min(values) + TOLERANCE) / 10
    most = math.ceil(10 * max(values) - TOLERANCE) / 10
    return fluid(heatmap, HeatMap("Score by slice", names, rows, least=least, most=most))


def _slice_field(one: Slice | None) -> Field | None:
    if one is None:
        return None
    side: Literal["", "above", "below"] = ""
    if one.stands_out and one.difference is not None:
        side = "above" if one.difference > 0 else "below"
    return Field(one.composite.estimate, one.cases, side)


def _cost_table(view: RunResult) -> DataTable | None:
    numbers = ("calls", "unknown outcome", "tokens in", "tokens out", "cost")
    columns = (Column("model"), Column("phase"), *(Column(n, numeric=True) for n in numbers))
    rows = tuple(
        (
            cost.model,
            cost.phase,
            f"{cost.calls:,}",
            f"{cost.unknown:,}",
            f"{cost.tokens_in:,}",
            f"{cost.tokens_out:,}",
            dollars(cost.microusd),
        )
        for cost in view.costs
    )
    return DataTable(columns, rows) if rows else None


def _cost_chart(view: RunResult) -> Drawing | None:
    if not any(cost.microusd for cost in view.costs):
        return None
    phases = tuple(dict.fromkeys(cost.phase for cost in view.costs))
    models = tuple(dict.fromkeys(cost.model for cost in view.costs))
    spent = {(cost.model, cost.phase): cost.microusd for cost in view.costs}
    rows = tuple(
        Bar(model, tuple(float(spent.get((model, phase), 0)) for phase in phases))
        for model in models
    )
    return fluid(bars, Bars("Cost by model", rows, parts=phases))


def _trend(view: RunResult) -> Drawing | None:
    points = []
    for place, point in enumerate(p for p in view.history if p.composite is not None):
        assert point.composite is not None
        notes = [point.run.id]
        notes += [point.run.simulation] if point.run.simulated else []
        notes += [point.stopped.sentence] if point.stopped is not None else []
        notes += [f"{what} changed" for what in point.changed]
        points.append(
            TrendPoint(
                float(place),
                point.run.created_at[:10],
                point.composite.estimate,
                point.composite.low,
                point.composite.high,
                ", ".join(notes),
            )
        )
    if len(points) < 2:
        return None
    return fluid(trend, Trend("Score by run", (Series("score", tuple(points)),)))


def _facts(view: RunResult) -> Iterator[tuple[str, str]]:
    run = view.run
    prompts = ", ".join(
        f"{prompt} {run.labels.get(prompt, '')} ({version[:8]})" for prompt, version in view.prompts
    )
    yield "run", run.id
    yield "status", run.status
    yield "trigger", run.trigger
    yield "started", run.created_at
    yield "ended", run.finished_at or NOTHING
    yield "commit", (run.commit_id or NOTHING)[:12]
    yield "base", f"{run.base_ref} {(run.base_commit or '')[:12]}" if run.base_ref else NOTHING
    yield "prompts", prompts or NOTHING
    yield "tokens", f"{view.tokens_in:,} in, {view.tokens_out:,} out"
