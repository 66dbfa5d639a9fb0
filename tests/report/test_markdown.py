"""Markdown, the job summary and the comment: what they say, and that they fit."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import UsageError
from edison_ci.forge.sticky_comment import marker_line, parse_data
from edison_ci.report.comment import (
    MOST_CHARACTERS,
    CommentOrigin,
    comment_body,
)
from edison_ci.report.markdown_report import MOST_BYTES, job_summary, markdown
from edison_ci.results.report import Report
from tests.report.conftest import GOLDEN, Half, Plot, Shelf, changed
from tests.report.page import page

if TYPE_CHECKING:
    from edison_ci.report.comment import State

ORIGIN = CommentOrigin("89abcdef" * 5, run_id=77, attempt=2)


def kept(name: str, text: str) -> None:
    """Compare with what was kept; UPDATE_GOLDEN=1 rewrites it."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_the_report_reads_as_before(failing: Report) -> None:
    kept("report.md", markdown(failing))


def test_the_job_summary_reads_as_before(failing: Report) -> None:
    kept("summary.md", job_summary(failing))


@pytest.mark.parametrize("state", ["running", "partial", "final", "cancelled"])
def test_the_comment_reads_as_before(failing: Report, state: State) -> None:
    report = Report() if state == "running" else failing
    kept(f"comment-{state}.md", comment_body(report, state=state, origin=ORIGIN))


def test_changed_material_is_told_before_any_score(failing: Report) -> None:
    text = comment_body(failing)
    assert text.index("Eval suite changed") < text.index("| gate |")


def test_simulated_is_said_first_and_with_each_run(failing: Report) -> None:
    text = markdown(failing)
    assert text.index("Simulated") < text.index("###")
    assert text.count(", simulated") == len(failing.runs)


def test_no_text_of_an_answer_is_in_it(failing: Report) -> None:
    for text in (markdown(failing), job_summary(failing), comment_body(failing)):
        assert "'sorry'?" not in text


def test_a_run_that_stopped_says_how_far_it_came(shelf: Shelf) -> None:
    text = markdown(shelf.add(Half(status="PAUSED", stopped_by="signal")))
    assert text.startswith("## ⏳ edison: not finished")
    assert "20 of 80 cells are done" in text


def test_nothing_affected_is_said() -> None:
    assert "No experiment is affected" in markdown(Report())
    assert "edison: skipped" in markdown(Report())


def test_what_failed_before_any_run_is_said() -> None:
    text = markdown(Report(failure="no experiment 'x' in experiments/x.yaml"))
    assert "edison: error" in text
    assert "`experiments/x.yaml`" in text


# --- the comment ----------------------------------------------------------------------------------


def test_the_comment_starts_with_its_marker_and_its_data(failing: Report) -> None:
    first, second, *_ = comment_body(failing, key="nightly.eval_1", origin=ORIGIN).split("\n")
    assert (
        first == marker_line("nightly.eval_1") == "<!-- edison-ci:report:v1 key=nightly.eval_1 -->"
    )
    assert second.startswith("<!-- edison-ci:data ")
    data = parse_data(comment_body(failing, origin=ORIGIN))
    assert data is not None
    assert data["verdict"] == failing.verdict
    assert (data["head"], data["run_id"], data["attempt"]) == ("89abcdef" * 5, 77, 2)
    assert data["state"] == "final"
    assert data["runs"][0] == [failing.runs[0].run.id, failing.runs[0].run.verdict]
    assert data["counts"]["regressions"] == failing.regressions > 0


@pytest.mark.parametrize("key", ["", "a b", "a-->", "a\nb", "x" * 101])
def test_a_key_that_could_forge_a_marker_is_refused(key: str) -> None:
    with pytest.raises(UsageError):
        marker_line(key)


@pytest.mark.parametrize(
    "body",
    ["", "one line", "a\n<!-- edison-ci:data [] -->", "a\n<!-- edison-ci:data {x -->", "a\nb\nc"],
)
def test_a_comment_without_data_has_none(body: str) -> None:
    assert parse_data(body) is None


def test_data_cannot_end_its_comment(failing: Report) -> None:
    view = failing.runs[0]
    run = replace(view.run, id="--> <b>x</b> <!--")
    report = Report((changed(view, run=run),))
    body = comment_body(report, origin=CommentOrigin(head="--><img src=x>"))
    hidden = body.split("\n")[1]
    assert hidden.count("-->") == hidden.count("<!--") == 1
    inside = hidden.removeprefix("<!-- edison-ci:data ").removesuffix(" -->")
    assert not {"<", ">", "--"} & {*inside, *(a + b for a, b in itertools.pairwise(inside))}
    data = parse_data(body)
    assert data is not None
    assert data["head"] == "--><img src=x>"


# --- fitting --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report with thousands of broken cases."""
    names = tuple(f"ünïcode-{'x' * 60}-{n:04}" for n in range(2_500))
    with Shelf.at(tmp_path_factory.mktemp("large") / "results.db") as shelf:
        return shelf.add(Plot(cases=2_500, drop=0.5, names=names, models=("a", "b")))


def test_a_long_comment_is_cut_between_rows_and_says_so(large: Report) -> None:
    body = comment_body(large)
    assert MOST_CHARACTERS - 2_000 < len(body) <= MOST_CHARACTERS
    assert "more rows, see the job summary" in body
    shown = [line for line in body.split("\n") if line.startswith("| `ünïcode")]
    assert all(line.endswith(" |") for line in shown)
    assert body.count("<details>") == body.count("</details>")
    left = large.runs[0].regressions - len(shown)
    assert f"… {left:,} more rows" in body
    assert "table" in page(body).elements


def test_a_long_summary_is_cut_by_bytes(large: Report) -> None:
    assert len(markdown(large).encode()) > 500_000
    text = job_summary(large, used=600_000)
    assert MOST_BYTES - 602_000 < len(text.encode()) <= MOST_BYTES - 600_000
    assert "more rows, see the artifacts" in text
    assert len(job_summary(large, used=MOST_BYTES)) < 200


def test_what_does_not_fit_at_all_is_counted(failing: Report) -> None:
    many = Report(failing.runs * 400)
    body = comment_body(many)
    assert len(body) <= MOST_CHARACTERS
    assert "more sections, see the job summary" in body
