"""Cells of runs as CSV, with formulas disarmed.

A spreadsheet treats a cell that starts with =, +, -, @, tab or return as a formula, and a formula
can run programs. Such texts get a leading apostrophe, unless they are numbers.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

from edison_ci.numeric import significant
from edison_ci.records import Side, canonical_json, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edison_ci.records import Case
    from edison_ci.results.cells import CellResult, Cells
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

    KnownCases = Callable[[RunResult], Mapping[str, Case]]

COLUMNS = (
    "experiment", "run_id", "run_started", "simulated", "side", "prompt", "version", "label",
    "model", "case_id", "repeat", "cell", "status", "composite", "passed", "error", "reason",
    "cost_microusd", "cost_kind", "tokens_in", "tokens_out", "latency_ms", "finish_reason",
    "served_model",
)  # fmt: skip
"""Stable columns; one for each component of the grade, input, expected and text follow."""
# Full-width forms too: some spreadsheets treat them like the ASCII ones.
_FORMULA = re.compile("[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def rows_of(
    report: Report, cells: Cells, known: KnownCases = lambda _: {}
) -> Iterator[tuple[str, ...]]:
    """Yield the header, and a row for each cell of every run; `known` returns the cases."""
    components = list(dict.fromkeys(key for view in report.runs for key in _components(view)))
    texts = ("input", "expected", "text")
    yield (*COLUMNS, *(f"{kind}.{name}" for kind, name in components), *texts)
    for view in report.runs:
        cases = known(view) if cells.texts else {}
        for cell in cells.of(view):
            scores = {
                (component.kind, component.name): component.score for component in cell.components
            }
            graded = (cell_text(scores.get(key)) for key in components)
            case_texts = _case(cases.get(cell.case))
            yield (*_row(view, cell), *graded, *case_texts, cell_text(cell.text))


def as_csv(rows: Iterable[tuple[str, ...]], *, raw: bool = False) -> Iterator[str]:
    """Yield rows as lines of CSV; `raw` keeps formulas."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow(row if raw else map(disarm_cell, row))
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


def disarm_cell(text: str) -> str:
    """Return a text that no spreadsheet treats as a formula."""
    spelled = _CONTROL.sub(lambda control: f"\\u{{{ord(control.group()):x}}}", text)
    if _FORMULA.match(spelled) and not _NUMBER.fullmatch(spelled):
        return f"'{spelled}"
    return spelled


def _case(case: Case | None) -> tuple[str, str]:
    """Return input and expected output: a single input as it is, several as JSON."""
    if case is None:
        return "", ""
    inputs = [*case.inputs.values()]
    input_text = plain_text(inputs[0]) if len(inputs) == 1 else canonical_json(dict(case.inputs))
    return input_text, "" if case.expected is None else plain_text(case.expected)


def _components(view: RunResult) -> Iterator[tuple[str, str]]:
    return ((component.kind, component.name) for component in view.components)


def _row(view: RunResult, cell: CellResult) -> Iterator[str]:
    run = view.run
    label = run.labels.get(cell.prompt) if cell.side == Side.HEAD else None
    values = (
        run.experiment, run.id, run.created_at, run.simulated, cell.side, cell.prompt,
        cell.version[:8], label, cell.model, cell.case, cell.repeat, cell.id[:12], cell.status,
        cell.composite, cell.passed, cell.error, cell.reason, cell.cost_microusd, cell.cost_kind,
        cell.tokens_in, cell.tokens_out, cell.latency_ms, cell.finish_reason, cell.served_model,
    )  # fmt: skip
    return (cell_text(value) for value in values)


def cell_text(value: Any) -> str:
    """Return a value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    return significant(value, 10) if isinstance(value, float) else str(value)
