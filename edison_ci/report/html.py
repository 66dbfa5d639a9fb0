"""The report as one self-contained HTML file, rendered with the templates of this package.

The stylesheet is inline and a content security policy allows its hash only: nothing else is
applied, fetched or run. Templates escape every value, with invisible characters spelled out. Values
are prepared here, where types are checked; the templates only lay them out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edison_ci import utc
from edison_ci.documents.secrets import redacted
from edison_ci.numeric import NOTHING, counted, dollars, milliseconds, score
from edison_ci.records import CellStatus, Side
from edison_ci.report import components
from edison_ci.report.charts.bars import Histogram, bars, histogram, tenths
from edison_ci.report.charts.drawing import fluid
from edison_ci.report.charts.estimates import (
    Range,
    forest,
    gate_forests,
    interval,
    pareto,
)
from edison_ci.report.charts.heatmap import heatmap
from edison_ci.report.charts.trend import trend
from edison_ci.report.components import Card, block, data_table, scrolled, section, text_box
from edison_ci.report.document import Column, Section, Table, change_of, plain, rate_of, score_of
from edison_ci.report.markup import element, escape
from edison_ci.report.run_charts import costs_chart, history_chart, pareto_chart, slices_chart
from edison_ci.report.run_facts import (
    changed_cases_table,
    changes_table,
    components_table,
    costs_table,
    eval_suite_table,
    scores_table,
)
from edison_ci.results.cells import failures_of
from edison_ci.results.run_sentences import (
    calls_text,
    cell_counts,
    cost_text,
    eval_suite_sentence,
    prompt_versions,
    run_word,
    suite_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from edison_ci.records import Case
    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.cells import CellResult, FailingCells, Grid, Square
    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.triage import ChangedCase

_MOST_CHANGED_CASES = 30
MOST_CHANGED_ANSWERS = 10
"""Changed cases that are shown with the answers of both sides."""
_MOST_CHARS = 20_000
"""Characters of a text that a page shows."""
_HALF_WIDTH = 460
"""Width of a chart that shares a row with another."""


class PageRun(NamedTuple):
    """A run on the page, with its failing answers."""

    view: RunResult
    failing: FailingCells
    cases: Mapping[str, Case]
    """Known cases of the failing answers, by id."""
    changed: tuple[ChangedCase, ...] = ()
    """Cases that changed most, with their answers; none if texts are left out."""


def html_page(report: Report, runs: Sequence[PageRun], *, unfolded: bool = False) -> str:
    """Return the report as an HTML file; `unfolded` opens all folds, for printing."""
    names = ", ".join(dict.fromkeys(view.run.experiment for view in report.runs)) or "edison"
    return _render(
        "report.html",
        **_page_values(f"{names}: {report.verdict or 'not finished'}"),
        failure=report.failure,
        simulation=report.simulation,
        nothing=not report.runs and not report.failure,
        links=[(view.run.id, f"{view.run.experiment}{suite_words(view)}") for view in report.runs],
        suites=[
            (view.run.experiment, eval_suite_sentence(view), eval_suite_table(view))
            for view in report.runs
            if view.eval_suite
        ],
        runs=[_run_values(page, unfolded=unfolded) for page in runs],
    )


def result_html(view: RunResult) -> str:
    """Return the scores of one run as an HTML table, for a notebook."""
    run = view.run
    about = ", ".join((run_word(run), *map(str, view.labels)))
    return data_table(scores_table(view), caption=f"{run.experiment}, run {run.id}: {about}")


def whole_page(title: str, content: Iterable[Markup | None]) -> str:
    """Return content as a self-contained HTML file."""
    parts = [part for part in content if part is not None]
    return _render("page.html", **_page_values(title), content=parts)


def document_page(title: str, sections: Iterable[Section]) -> str:
    """Return a document as a self-contained HTML file."""
    return whole_page(title, [element("h1", title), *map(_section, sections)])


def _section(part: Section) -> Markup:
    title = plain(part.title)
    content = [block(text, label=title) for text in part.blocks]
    if part.table is not None and part.table.rows:
        table = data_table(part.table, caption=title)
        content.append(element("div", scrolled(table, title), class_="data-wrap"))
    return section(title, *content) if title else element("div", *content)


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
    environment = Environment(
        loader=PackageLoader("edison_ci.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every value goes through `escape`, which also spells out invisible characters.
        finalize=lambda value: value if isinstance(value, Markup) else escape(str(value)),
    )
    environment.globals["ui"] = components
    return environment


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def _run_values(page: PageRun, *, unfolded: bool) -> dict[str, Any]:
    view, run, failing = page.view, page.view.run, page.failing
    changed_cases = changed_cases_table(view)
    return {
        "id": run.id,
        "experiment": run.experiment,
        "verdict": run_word(run),
        "labels": view.labels,
        "brief": view.on == Side.BASE,
        "headline": view.headline.sentence,
        "amber": view.headline.amber,
        "lead": _lead(view),
        "cards": [*_cards(view)],
        "limitations": [
            *view.missing,
            *view.steered,
            *view.forms,
            *(rival.sentence for rival in view.weak_prompts),
        ],
        "gates": view.gates,
        "forests": [fluid(forest, chart) for chart in gate_forests(view.gates)],
        "scores": _scores(view),
        "changes": changes_table(view),
        "changed_answers": [_changed_answers(case) for case in page.changed],
        "changed_cases": replace(changed_cases, rows=changed_cases.rows[:_MOST_CHANGED_CASES]),
        "more_changed_cases": max(len(changed_cases.rows) - _MOST_CHANGED_CASES, 0),
        "failing": [_failing(cell, page.cases.get(cell.case)) for cell in failing.cells],
        "failing_count": _amount(len(failing.cells), failing.total, "answer"),
        "unfolded": unfolded,
        "components": components_table(view),
        "histograms": [
            histogram(
                Histogram(f"{spread.kind} {spread.name}", tenths(spread.counts), mean=spread.mean,
                          width=_HALF_WIDTH)
            )
            for spread in view.spreads
        ],
        "costs": costs_table(view),
        "grid": _grid(view.grid),
        "facts": [*_facts(view)],
        **_drawings(view),
    }  # fmt: skip


def _drawings(view: RunResult) -> dict[str, Drawing | None]:
    """Return the charts that are left out where there is too little to draw."""
    heads = [row for row in view.variants if row.place.side == Side.HEAD]
    short = len({row.place.prompt for row in heads}) == 1
    options = (
        (
            row.place.model if short else f"{row.place.prompt}, {row.place.model}",
            row.cost_microusd,
            row.composite,
        )
        for row in heads
    )
    return {
        "pareto": _drawn(pareto, pareto_chart(options)),
        "slices": _drawn(heatmap, slices_chart(view.breakdown.slices)),
        "cost_chart": _drawn(bars, costs_chart(view.costs)),
        "trend": _drawn(trend, history_chart(view.history)),
    }


def _drawn(draw: Callable[[Any], Drawing], chart: Any) -> Drawing | None:
    return None if chart is None else fluid(draw, chart)


def _lead(view: RunResult) -> str:
    run = view.run
    lead = f"Run {run.id}, {utc.to_minute(run.created_at)}{suite_words(view)}."
    if view.against is not None and run.base_commit is not None:
        base = f"{run.base_ref} at {run.base_commit[:8]}"
        lead += f" Compared with {base} on {counted(view.against.n, 'case')}."
    return lead


def _cards(view: RunResult) -> Iterator[Card]:
    overall, against = view.overall, view.against
    score, passed = score_of(overall.composite), rate_of(overall.pass_rate)
    yield Card("Score", score.value, "of 100", score.span)
    if against is not None and against.estimate is not None:
        moved = change_of(against.estimate, against.low, against.high)
        yield Card("Change from base", moved.value, "points", moved.span.removeprefix(NOTHING))
    of = "" if overall.pass_rate is None else f"of {overall.pass_rate.n:,}"
    yield Card("Pass rate", passed.value, of, passed.span)
    yield Card("Cost", cost_text([view]), note=calls_text(view.calls))
    if overall.p50_ms is not None:
        late = "" if overall.p95_ms is None else f"p95 {milliseconds(overall.p95_ms)}"
        yield Card("Median latency", milliseconds(overall.p50_ms), note=late)
    yield Card("Cells", f"{view.cells['total']:,}", note=cell_counts(view))


def _amount(listed: int, total: int, noun: str) -> str:
    if total > listed:
        return f"The worst {listed:,} of {counted(total, noun)}."
    return f"{counted(total, noun)}, the worst first."


def _scores(view: RunResult) -> Table:
    """Return the table of scores, with their intervals drawn on one scale."""
    table, at = scores_table(view), 4
    return Table(
        (*table.columns[:at], Column("0 to 100"), *table.columns[at:]),
        tuple(
            (*cells[:at], _score_bar(row), *cells[at:])
            for row, cells in zip(view.variants, table.rows, strict=True)
        ),
    )


def _score_bar(row: LeaderboardRow) -> Markup:
    title, composite = f"{row.place.prompt} with {row.place.model}", row.composite
    if composite is None:
        return interval(Range(title, None)).svg
    return interval(Range(title, composite.estimate, composite.low, composite.high)).svg


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
        "reasons": [*failures_of(cell)],
        "boxes": boxes,
        "no_text": "was blocked and is not shown"
        if cell.status == CellStatus.BLOCKED
        else "is not stored",
        "details": f"cell {cell.id[:12]}, {dollars(cell.cost_microusd)}{tokens}{latency}",
    }  # fmt: skip


def _box(label: str, text: str) -> dict[str, Any]:
    beginning = text[:_MOST_CHARS]
    cut = f" (the first {_MOST_CHARS:,} of {len(text):,} characters)" if beginning != text else ""
    return {"label": f"{label}{cut}", "box": text_box(beginning, label=label, prose=True)}


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


def _facts(view: RunResult) -> Iterator[tuple[str, str]]:
    run = view.run
    yield "run", run.id
    yield "status", run.status
    yield "trigger", run.trigger
    yield "started", run.created_at
    yield "ended", run.finished_at or NOTHING
    yield "commit", (run.commit_id or NOTHING)[:12]
    yield "base", f"{run.base_ref} {(run.base_commit or '')[:12]}" if run.base_ref else NOTHING
    yield "prompts", prompt_versions(view) or NOTHING
    yield "tokens", f"{view.tokens_in:,} in, {view.tokens_out:,} out"
