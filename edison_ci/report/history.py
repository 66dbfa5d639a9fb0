"""The runs of an experiment as a file: a line for each run, prompt and model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.numeric import NOTHING, dollars, milliseconds, percent, score
from edison_ci.report.components import data_table, figure, scrolled
from edison_ci.report.document import Column, Table
from edison_ci.report.html import whole_page
from edison_ci.report.markup import element
from edison_ci.report.spreadsheet import cell_text
from edison_ci.results.snapshot import RunSource, source_of
from edison_ci.sanitize import json_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.trends import ModelTrend, TrendRun

COLUMNS = (
    "experiment", "run_id", "run_started", "verdict", "simulation", "commit", "prompt", "version",
    "label", "model", "cases", "score", "score_low", "score_high", "pass_rate", "pass_rate_low",
    "pass_rate_high", "answers", "errors", "answer_cost_microusd", "tokens_in", "tokens_out",
    "latency_p50_ms", "latency_p95_ms", "branch", "author",
)  # fmt: skip
"""Stable columns."""


def history_records(
    points: Sequence[TrendRun], trends: Sequence[ModelTrend]
) -> Iterator[dict[str, Any]]:
    """Yield a record for each run, prompt and model, oldest run first."""
    for index, point in enumerate(points):
        run, source = point.run, source_of(point.run)
        for trend in trends:
            totals = trend.totals[index]
            if totals is None:
                continue
            composite, rate = totals.composite, totals.pass_rate
            values = (
                run.experiment, run.id, run.created_at, run.verdict, run.simulation, run.commit_id,
                totals.prompt, totals.version[:8], run.labels.get(totals.prompt), totals.model,
                composite.n, composite.estimate, composite.low, composite.high, rate.estimate,
                rate.low, rate.high, totals.answers, totals.error, totals.answer_cost_microusd,
                totals.tokens_in, totals.tokens_out, totals.p50_ms, totals.p95_ms,
                source.branch, source.author,
            )  # fmt: skip
            yield dict(zip(COLUMNS, values, strict=True))


def history_rows(records: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield a header and the records as texts."""
    yield COLUMNS
    for record in records:
        yield tuple(map(cell_text, record.values()))


def history_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the records as lines of JSON."""
    return (json_text({"schema_version": 1, **record}, indent=None) + "\n" for record in records)


_SHOWN = (
    Column("run"), Column("commit"), Column("verdict"), Column("prompt"), Column("model"),
    Column("score", numeric=True), Column("pass rate", numeric=True),
    Column("cases", numeric=True), Column("cost per answer", numeric=True),
    Column("latency p50", numeric=True), Column("errors", numeric=True),
)  # fmt: skip


def _source(record: dict[str, Any]) -> str:
    """Return commit, branch and author of a record, as far as they are known."""
    named = RunSource(record["commit"], record["branch"], record["author"], changed=False)
    return named.words or NOTHING


def history_page(name: str, records: Sequence[dict[str, Any]], charts: Sequence[Drawing]) -> str:
    """Return the history of an experiment as one HTML file."""
    rows = tuple(
        (
            f"{record['run_started'][:16].replace('T', ' ')} {record['simulation']}".strip(),
            _source(record),
            str(record["verdict"] or "no gates"),
            f"{record['prompt']} {record['label'] or record['version']}",
            record["model"],
            score(record["score"]),
            percent(record["pass_rate"]),
            f"{record['cases']:,}",
            dollars(record["answer_cost_microusd"]),
            milliseconds(record["latency_p50_ms"]),
            f"{record['errors']:,}",
        )
        for record in reversed(records)
    )
    head = element("header", element("h1", name), class_="page-header")
    panels = [element("div", figure(chart), class_="panel") for chart in charts]
    table = scrolled(data_table(Table(_SHOWN, rows), caption="Runs"), "Runs")
    listed = element("section", element("h2", "Runs"), table, class_="section")
    return whole_page(name, [head, element("div", *panels, class_="stack"), listed])
