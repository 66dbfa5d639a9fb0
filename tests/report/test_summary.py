"""The one picture of a run: what it holds, and where that comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.records import Move
from edison_ci.report.markdown_report import markdown
from edison_ci.results.report import Report, report_of
from edison_ci.results.snapshot import companion_of, runs_of_change
from edison_ci.store.runs import find_run
from tests.report.conftest import HEAD, Half, Plot, everything

if TYPE_CHECKING:
    from tests.report.conftest import Shelf

pytestmark = pytest.mark.daily

LATER = "2026-11-16T10:00:00.000Z"


def test_every_version_with_every_model_has_a_row_with_an_interval(shelf: Shelf) -> None:
    (view,) = shelf.add(Plot(models=("small", "large"))).runs
    rows = [(s.place.side, s.place.model, s.label) for s in view.variants]
    label = "v2+b7c1e290"
    assert rows == [
        ("base", "large", None),
        ("head", "large", label),
        ("base", "small", None),
        ("head", "small", label),
    ]
    for one in view.variants:
        assert one.composite is not None
        assert one.composite.low is not None
        assert one.pass_rate is not None
    shown = {(s.place.prompt, s.place.model): s for s in view.variants if s.place.side == "head"}
    for scored in view.models:
        same = shown[scored.prompt, scored.model]
        assert (same.composite, same.pass_rate) == (scored.composite, scored.pass_rate)


def test_the_change_of_each_prompt_and_model_names_fixed_and_broken_cases(shelf: Shelf) -> None:
    (view,) = shelf.add(Plot(drop=0.2)).runs
    (one,) = view.changes
    assert one.comparison.verdict == "a_better"
    assert one.comparison.margin == pytest.approx(0.05), "as the gate that was stored says"
    assert len(one.comparison.moved[Move.NEWLY_FAILING]) == view.regressions > 0
    assert one.comparison.estimate is not None
    assert one.comparison.estimate < 0


def test_reading_leaves_the_connection_as_it_was(shelf: Shelf) -> None:
    shelf.add(Plot())
    count = shelf.connection.execute("select count(*) from cell").fetchone()
    assert count == (80,), "no table of a comparison stands before the cells"
    assert shelf.connection.execute("pragma query_only").fetchone() == (1,)


@pytest.mark.nightly
def test_the_work_of_a_report_grows_with_the_run_and_not_with_its_square(shelf: Shelf) -> None:
    plots = [Plot(id=f"20261116T0900{n:02}-aaaaaa", cases=40 * 4**n) for n in range(3)]
    shelf.add(*plots)
    steps: list[int] = []
    for plot in plots:
        steps.append(0)
        shelf.connection.set_progress_handler(lambda: steps.append(steps.pop() + 1), 100)
        shelf.report(plot.id)
    assert steps[2] < 6 * steps[1], steps  # four times the cases


def test_a_run_without_base_has_no_changes_and_says_why(shelf: Shelf) -> None:
    (view,) = shelf.add(Plot(against=False)).runs
    assert view.changes == ()
    assert {s.place.side for s in view.variants} == {"head"}
    assert view.gates[0].verdict == "skipped"


def test_changed_material_is_told_with_both_runs(shelf: Shelf) -> None:
    report = shelf.add(*everything())
    head, base = report.runs
    assert (head.on, base.on) == ("head", "base")
    told = {change.place: (change.before, change.after) for change in head.eval_suite}
    assert told == {
        "cases": ("40", "38 (2 removed)"),
        "experiments/support-reply.yaml: gates[0].margin": ("5pp", "20pp"),
        "datasets/golden.jsonl": ("as it was", "edited"),
    }
    assert (head.twice, base.twice) == (True, False)
    assert base.eval_suite == ()
    both = shelf.report(base.run.id, head.run.id)
    assert [view.run.id for view in both.runs] == [head.run.id, base.run.id], "none of them twice"


def test_changed_material_is_told_where_the_base_could_not_be_measured(shelf: Shelf) -> None:
    report = shelf.add(everything()[1])
    (view,) = report.runs
    assert [change.place for change in view.eval_suite] == [
        "datasets/golden.jsonl",
        "experiments/support-reply.yaml: gates",
    ]
    assert "with head's eval suite only" in markdown(report)


def test_an_older_comparison_is_no_companion(shelf: Shelf) -> None:
    base, head = everything()
    shelf.add(base, head, replace(head, id="third", time=LATER))
    assert companion_of(shelf.connection, find_run(shelf.connection, "third")) is None


def test_runs_of_one_commit_belong_together(shelf: Shelf) -> None:
    first = Plot(id="one", experiment="a", cases=4)
    shelf.add(
        first,
        Plot(id="two", experiment="b", cases=4),
        Plot(id="other", experiment="c", cases=4, commit="f" * 40),
        Plot(id="again", experiment="a", cases=4, time=LATER),
    )
    found = runs_of_change(shelf.connection, find_run(shelf.connection, "latest"))
    assert [run.id for run in found] == ["again", "two"]
    assert found[0].commit_id == HEAD


def test_what_no_commit_has_stands_alone(shelf: Shelf) -> None:
    shelf.add(
        Plot(id="one", experiment="a", cases=4, commit=None),
        Plot(id="two", experiment="b", cases=4, commit=None, time=LATER),
    )
    found = runs_of_change(shelf.connection, find_run(shelf.connection, "latest"))
    assert [run.id for run in found] == ["two"]


def test_findings_have_their_cases_and_what_was_done(shelf: Shelf) -> None:
    (view,) = shelf.add(Plot(blocked=1, flagged=2)).runs
    assert [(f.kind, f.action, f.case) for f in view.findings] == [
        ("secrets", "block", "case-0000"),
        ("pii", "flag", "case-0001"),
        ("pii", "flag", "case-0002"),
    ]


def test_what_is_missing_is_said(shelf: Shelf) -> None:
    (view,) = shelf.add(
        Half(status="PAUSED", stopped_by="budget: run", lost=1, quarantined=("case-0003",))
    ).runs
    assert view.missing == (
        "The run is PAUSED, stopped by budget: run: 20 of 80 cells are done.",
        "1 of 80 cells ended in an error (1 TIMEOUT).",
        "With 1 answer missing, the score lies between 68.3 and 78.3.",
        "1 case is in quarantine: run and shown, but never gating.",
    )


@pytest.mark.parametrize(
    ("plots", "verdict"),
    [
        ([Plot(cases=60)], "pass"),
        ([Plot(cases=60, drop=0.2)], "fail"),
        ([Plot(cases=60), Plot(cases=60, drop=0.2)], "fail"),
        ([Plot(cases=60), Half(status="PAUSED")], None),
        ([Plot(cases=60, drop=0.2), Half(status="PAUSED")], "fail"),
        ([Plot(cases=60, drop=0.2), Half(status="FAILED")], "error"),
        ([], "skipped"),
    ],
)
def test_the_worst_verdict_counts(shelf: Shelf, plots: list[Plot], verdict: str | None) -> None:
    wide = {"metric": "composite", "no_worse_than": "base", "margin": "10pp"}
    plots = [
        replace(plot, id=f"run-{n}", experiment=f"e{n}", gates=(wide,))
        for n, plot in enumerate(plots)
    ]
    for plot in plots:
        shelf.add(plot)
    report = shelf.report(*(plot.id for plot in plots))
    assert report.verdict == verdict


def test_a_failure_is_an_error_whatever_else_was_run(shelf: Shelf) -> None:
    runs = [find_run(shelf.connection, shelf.add(Plot()).runs[0].run.id)]
    assert report_of(shelf.connection, runs, failure="no network").verdict == "error"
    assert Report(failure="no").verdict == "error"
