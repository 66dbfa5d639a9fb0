"""Markdown, the job summary and the comment: what they say, and that they fit."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace

import pytest

from edison_ci.errors import UsageError
from edison_ci.features.github.report_comment import (
    MOST_CHARACTERS,
    CommentOrigin,
    comment_body,
)
from edison_ci.features.github.sticky_comment import ReportState, marker_line, parse_data
from edison_ci.records import Move
from edison_ci.report.annotations import annotations_of
from edison_ci.report.change_details import ChangeDetails, FileDiff
from edison_ci.report.html import PageRun, html_page
from edison_ci.report.markdown import prose
from edison_ci.report.markdown_report import ICONS, MOST_BYTES, headline, job_summary, markdown
from edison_ci.results.cells import FailingCells
from edison_ci.results.report import Report, document
from edison_ci.results.run_sentences import headline_of
from edison_ci.results.triage import ChangedCase, ShownAnswer
from tests.report.conftest import BASE, GATES, GOLDEN, Half, Plot, Shelf, changed
from tests.report.page import page

pytestmark = pytest.mark.daily

ORIGIN = CommentOrigin(
    "89abcdef" * 5,
    run_id=77,
    attempt=2,
    run_url="https://forge.example/acme/prompts/actions/runs/77",
)
DIFF = FileDiff(
    "prompts/support-reply.md",
    "# user\nAnswer the customer kindly.\n\n{{ message }}\n",
    "# user\nAnswer the customer in one word.\n\n{{ message }}\n",
)


def answer(composite: float, text: str, why: str = "") -> ShownAnswer:
    return ShownAnswer("c" * 24, composite, composite >= 0.6, text, why)


def details(report: Report, *cases: ChangedCase) -> ChangeDetails:
    return ChangeDetails((DIFF,), {report.head_runs[0].run.id: cases})


def told(move: Move, case: str = "case-0005", **texts: str) -> ChangedCase:
    worse = answer(0.376, texts.get("worse", "No."), texts.get("why", "polite: it is rude"))
    better = answer(0.698, texts.get("better", "Hello,\n\nwith pleasure."))
    sides = (worse, better) if move.better else (better, worse)
    return ChangedCase(case, "support-reply", "small", move, *sides)


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


@pytest.mark.parametrize("state", list(ReportState))
def test_the_comment_reads_as_before(failing: Report, state: ReportState) -> None:
    report = Report() if state == "running" else failing
    shown = details(failing, told(Move.NEWLY_FAILING), told(Move.FIXED, "case-0008"))
    body = comment_body(report, state=state, origin=ORIGIN, details=shown if report.runs else None)
    kept(f"comment-{state}.md", body)


def test_changed_material_is_told_before_any_score(failing: Report) -> None:
    text = comment_body(failing)
    assert text.index("Eval suite changed") < text.index("| gate |")


def test_simulated_is_said_first_and_with_each_run(failing: Report) -> None:
    text = markdown(failing)
    assert text.index("Simulated") < text.index("###")
    assert text.count("** (simulated)") == len(failing.head_runs)


# --- read in ten seconds --------------------------------------------------------------------------


def test_one_bold_sentence_says_what_and_how_much(failing: Report) -> None:
    first = comment_body(failing).split("\n\n")[2]
    assert first == f"**{failing.head_runs[0].headline.sentence}** (simulated)"
    assert "newly failing" in first and "fixed" in first


def test_each_experiment_has_its_sentence(shelf: Shelf) -> None:
    shelf.add(Plot(id="20261116T090000-aaaaaa"), Plot(id="20261116T090001-bbbbbb"))
    other = shelf.add(Plot(id="20261116T090002-cccccc", experiment="other", drop=0.4))
    report = Report((*shelf.report("20261116T090000-aaaaaa").runs, *other.runs))
    text = comment_body(report)
    assert [view.run.verdict for view in report.runs] == ["inconclusive", "fail"]
    for view in report.runs:
        said = prose(view.headline.sentence)
        assert f"- {ICONS[str(view.run.verdict)]} **{said}**" in text
    assert "### Gates of `other`" in text


def test_only_what_decides_is_unfolded(failing: Report) -> None:
    text = comment_body(failing, details=details(failing, told(Move.NEWLY_FAILING)))
    opened = re.sub(r"(?s)<details>.*?</details>", "", text)
    order = [
        "**support-reply",
        "```diff\n@@",
        "**Newly failing**",
        "### Gates",
        "Cost",
        "reproduce:",
    ]
    places = [opened.index(words) for words in order]
    assert places == sorted(places)
    gates = [row for row in opened.splitlines() if row.startswith("| ")]
    assert not any("✅" in row for row in gates)
    assert "Gates that pass" not in opened and "Gates that pass" in text
    assert "Score " not in opened and "Limitations" not in opened
    assert len(opened) < 6_000


def test_fixed_cases_alone_are_folded(failing: Report) -> None:
    text = comment_body(failing, details=details(failing, told(Move.FIXED)))
    opened = re.sub(r"(?s)<details>.*?</details>", "", text)
    assert "**Fixed** `case-0005`" in text and "**Fixed**" not in opened


def test_three_cases_are_shown_newly_failing_ones_first(failing: Report) -> None:
    cases = [told(Move.FIXED, "fixed"), *(told(Move.NEWLY_FAILING, f"new-{n}") for n in range(4))]
    text = comment_body(failing, details=details(failing, *cases))
    assert re.findall(r"\*\*(Newly failing|Fixed)\*\* `(.*?)`", text) == [
        ("Newly failing", f"new-{n}") for n in range(3)
    ]


def test_a_case_is_shown_before_and_after_with_the_reason(failing: Report) -> None:
    text = comment_body(failing, details=details(failing, told(Move.NEWLY_FAILING)))
    assert (
        "**Newly failing** `case-0005` with `small`: 69.8 to 37.6; `polite: it is rude`\n\n"
        "```diff\n- Hello,\n- with pleasure.\n+ No.\n```\n"
    ) in text


@pytest.mark.parametrize(
    "text",
    ["Write to ada@example.org.", "Call +44 20 7946 0958.", f"The key is sk-{'a1B2' * 12}."],
)
@pytest.mark.parametrize("place", ["better", "worse", "why"])
def test_personal_data_and_secrets_keep_the_texts_of_a_case_out(
    failing: Report, text: str, place: str
) -> None:
    dirty = told(Move.NEWLY_FAILING, "dirty", **{place: text})
    body = comment_body(failing, details=details(failing, dirty))
    assert "**Newly failing** `dirty` with `small`: 69.8 to 37.6. The texts are not shown" in body
    assert "with pleasure" not in body and "rude" not in body and text not in body
    clean = [told(Move.NEWLY_FAILING, f"new-{n}") for n in range(3)]
    assert "`dirty`" not in comment_body(failing, details=details(failing, dirty, *clean))


def test_a_case_that_a_screen_flagged_is_not_quoted(failing: Report) -> None:
    flagged = next(found.case for found in failing.head_runs[0].findings if found.kind == "pii")
    body = comment_body(failing, details=details(failing, told(Move.NEWLY_FAILING, flagged)))
    assert "with pleasure" not in body


def test_a_long_answer_is_cut_and_wrapped(failing: Report) -> None:
    long = told(Move.NEWLY_FAILING, worse="word " * 500, why="because " * 200)
    body = comment_body(failing, details=details(failing, long))
    shown = [row for row in body.splitlines() if row.startswith("+ word")]
    assert sum(len(row) for row in shown) < 320
    assert max(map(len, shown)) <= 86
    assert body.count("because") < 40


def test_a_long_diff_is_cut(failing: Report) -> None:
    rows = "".join(f"line {n}\n" for n in range(300))
    many = ChangeDetails(tuple(FileDiff(f"prompts/p{n}.md", "", rows) for n in range(9)))
    body = comment_body(failing, details=many)
    assert body.count("... 241 more lines") == 4
    assert "Also changed: `prompts/p4.md`, `prompts/p5.md`" in body
    assert len(body) < 20_000


def test_the_command_and_the_job_are_named(failing: Report) -> None:
    body = comment_body(failing, origin=ORIGIN)
    commit, base = failing.runs[0].run.commit_id, BASE[:12]
    assert (
        f"reproduce: `git fetch origin {commit} && git checkout FETCH_HEAD && "
        f"edison run support-reply --against {base}`"
    ) in body
    assert f"[log and report.html of this job]({ORIGIN.run_url})" in body
    local = comment_body(failing)
    assert f"reproduce: `git checkout {str(commit)[:12]} && edison run support-reply" in local


def test_the_bases_eval_suite_is_told_once_and_not_as_a_second_report(failing: Report) -> None:
    text = markdown(failing)
    (companion,) = [view for view in failing.runs if view.on == "base"]
    assert text.count(f"With the base's eval suite: {companion.headline.sentence}") == 1
    assert text.count("Prompts and models") == text.count("Limitations") == 1
    assert "22 of 38 passed" not in text, "the same gates are open with both eval suites"


def test_gates_that_only_the_bases_eval_suite_opens_are_listed(shelf: Shelf) -> None:
    head = Plot(
        id="20261116T090001-bbbbbb",
        margin=0.5,
        cases=100,
        gates=({"metric": "composite", "no_worse_than": "base", "margin": "50pp"},),
        changed=("experiments/support-reply.yaml: gates",),
        drop=0.2,
        time="2026-11-16T09:00:01.000Z",
    )
    base = replace(head, id="20261116T090000-aaaaaa", on="base", gates=GATES[:1], margin=0.05)
    report = shelf.add(replace(base, time="2026-11-16T09:00:00.000Z"), head)
    assert [view.run.verdict for view in report.runs] == ["pass", "fail"]
    opened = re.sub(r"(?s)<details>.*?</details>", "", markdown(report))
    assert "With the base's eval suite: support-reply is worse" in opened
    assert "| ❌ fail | `composite` |" in opened.split("With the base's eval suite")[1]


def test_nothing_in_it_contradicts_itself(failing: Report, shelf: Shelf) -> None:
    unclear = shelf.add(Plot(cases=12, drop=0.08))
    for report in (failing, unclear):
        text = markdown(report)
        gates = {row.sentence for view in report.runs for row in view.gates}
        for words in re.findall(r"[Aa]bout [0-9,]+ more (?:case|cluster)s?", text):
            assert any(words in sentence for sentence in gates), "one forecast, that of its gate"


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


@pytest.mark.nightly
def test_a_long_comment_is_cut_between_rows_and_says_so(large: Report) -> None:
    body = comment_body(large)
    assert MOST_CHARACTERS - 2_000 < len(body) <= MOST_CHARACTERS
    assert "more rows, see the job summary" in body
    shown = [line for line in body.split("\n") if line.startswith("| `ünïcode")]
    assert all(line.endswith(" |") for line in shown)
    assert body.count("<details>") == body.count("</details>")
    moved = [one.comparison.moved for one in large.runs[0].changes]
    left = sum(len(cases) for each in moved for cases in each.values()) - len(shown)
    assert f"… {left:,} more rows" in body
    assert "table" in page(body).elements


@pytest.mark.nightly
def test_a_long_summary_is_cut_by_bytes(large: Report) -> None:
    assert len(markdown(large).encode()) > 500_000
    text = job_summary(large, used=600_000)
    assert MOST_BYTES - 602_000 < len(text.encode()) <= MOST_BYTES - 600_000
    assert "more rows, see the artifacts" in text
    assert len(job_summary(large, used=MOST_BYTES)) < 200


@pytest.mark.nightly
def test_what_does_not_fit_at_all_is_counted(failing: Report) -> None:
    many = Report(failing.runs * 400)
    body = comment_body(many)
    assert len(body) <= MOST_CHARACTERS
    assert "more sections, see the job summary" in body


def test_a_heading_is_the_score_where_no_gate_decided_and_amber_where_something_is_worse() -> None:
    assert headline("pass") == "✅ edison: pass"
    assert headline("pass", amber=True) == "⚠️ edison: pass, with a regression"
    assert headline("skipped", ungated="score 57.0") == "📏 edison: score 57.0"
    assert headline("skipped") == "⏭️ edison: skipped"


def test_a_passing_run_with_a_regression_is_amber_everywhere(shelf: Shelf) -> None:
    plot = Plot(drop=0.0, cases=40, gates=GATES[1:])
    report = shelf.add(plot)
    assert "## ✅ edison: pass\n" in markdown(report)
    note = "More cases break than chance gives: 14 newly failing, 4 fixed of 94 cases."
    (view,) = report.head_runs
    view.notes = (note,)
    view.headline = headline_of(view)
    body = markdown(report)
    assert "## ⚠️ edison: pass, with a regression\n" in body
    assert f"**{note} " in body
    page = html_page(report, [PageRun(view, FailingCells((), 0), {}, ())])
    assert f'<p class="notice notice-odd"><strong>{note} ' in page
    assert document(report)["runs"][0]["notes"] == [note]
    (warning,) = [a for a in annotations_of(report, {}) if note in a.message]
    assert warning.level == "warning"
