"""Forest plots of gates: each number on an axis of its kind, with what was asked."""

from __future__ import annotations

import pytest

from edison_ci.records import Verdict
from edison_ci.report.charts.drawing import Unit
from edison_ci.report.charts.estimates import gate_forests
from edison_ci.results.decisions import GateRow
from edison_ci.results.run_sentences import gate_name

pytestmark = pytest.mark.daily


def row(metric: str, kind: str, asked: float, **gate: object) -> GateRow:
    return GateRow(
        metric, "reply", "small", Verdict.PASS, "said", estimate=0.02, low=-0.01, high=0.05, n=9,
        gate=gate, detail={"kind": kind, "margin": asked},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "unit", "bound", "above"),
    [
        (row("composite", "change", 0.1), Unit.CHANGE, -0.1, True),
        (row("criterion.Empathy", "change", 0.1), Unit.CHANGE, -0.1, True),
        (row("errors", "change", 0.1), Unit.CHANGE, 0.1, False),
        (row("safety.pii", "change", 0.1, margin={"relative": True}), Unit.CHANGE, None, False),
        (row("cost_usd.mean", "relative", 0.1), Unit.RATIO, 0.1, False),
        (row("pass_rate", "level", 0.6, at_least=0.6), Unit.SHARE, 0.6, True),
        (row("errors", "level", 0.2, at_most=0.2), Unit.SHARE, 0.2, False),
        (row("safety.pii", "level", 0.2, at_most=0.2), Unit.SHARE, 0.2, False),
        (row("composite", "level", 0.7, at_least=0.7), Unit.POINTS, 0.7, True),
        (row("cost_usd.mean", "level", 0.01, at_most=0.01), Unit.DOLLARS, 10_000, False),
        (row("latency_ms.p95", "level", 900, at_most=900), Unit.MILLISECONDS, 900, False),
        (row("tokens.mean", "level", 500, at_most=500), Unit.COUNT, 500, False),
    ],
)
def test_a_gate_stands_on_the_axis_of_its_kind(
    found: GateRow, unit: Unit, bound: float | None, above: bool
) -> None:
    (chart,) = gate_forests([found])
    (line,) = chart.lines
    assert (chart.unit, line.above) == (unit, above)
    assert line.bound == (bound if bound is None else pytest.approx(bound))


def test_numbers_of_one_kind_share_an_axis() -> None:
    rows = [row("composite", "change", 0.1), row("pass_rate", "level", 0.5, at_least=0.5)]
    found = gate_forests([*rows, rows[0]])
    assert [(chart.unit, len(chart.lines)) for chart in found] == [
        (Unit.CHANGE, 2),
        (Unit.SHARE, 1),
    ]


def test_a_decision_without_a_number_is_told_by_its_sentence_alone() -> None:
    assert gate_forests([GateRow("composite", None, None, Verdict.SKIPPED, "no base")]) == ()


def test_one_prompt_need_not_be_named() -> None:
    one = row("composite", "change", 0.1)
    assert gate_name(one) == "composite, reply with small"
    assert gate_forests([one])[0].lines[0].label == "composite, small"
    assert gate_name(GateRow("errors", None, None, Verdict.PASS, "")) == "errors"


def test_gates_on_one_metric_have_different_names() -> None:
    names = [
        gate_name(GateRow("composite", None, None, Verdict.PASS, "", gate=gate))
        for gate in (
            {"no_worse_than": "base"},
            {"no_worse_than": "production"},
            {"no_worse_than": {"anchor": "v1"}},
            {"no_worse_than": "base", "slices": "worst"},
        )
    ]
    assert names == [
        "composite",
        "composite, against production",
        "composite, against v1",
        "composite, worst slice",
    ]


def test_advice_is_no_verdict() -> None:
    one = row("composite", "change", 0.1)
    advised = GateRow(
        one.metric, "reply", "small", Verdict.FAIL, "", 0.1, detail={**one.detail, "advisory": "x"}
    )
    assert gate_forests([advised])[0].lines[0].verdict == "advisory"
