"""A run whose gates pass begins with what is worse all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.report import run_document
from tests.results.test_triage import ended

if TYPE_CHECKING:
    from docs.gates import Results
    from edison_ci.results.run_result import RunResult


def decided(results: Results, verdict: str = "pass") -> RunResult:
    results.connection.execute(
        "update run set status = 'COMPLETED', verdict = ?, base_ref = 'main', base_commit = ?",
        (verdict, "a" * 40),
    )
    return ended(results)


def write(results: Results, broken: int, fixed: int, n: int = 94) -> None:
    for index in range(n):
        base, head = (0.2, 0.9) if index < fixed else (0.9, 0.9)
        results.both(f"case-{index:02}", base, 0.2 if fixed <= index < fixed + broken else head)


def test_broken_cases_come_first_in_an_amber_headline(results: Results) -> None:
    write(results, 14, 4)
    result = decided(results)
    note = "More cases break than chance gives: 14 newly failing, 4 fixed of 94 cases."
    assert result.notes == (note,)
    assert result.headline.verdict == "PASS"
    assert result.headline.amber
    assert result.headline.sentence.startswith(f"{note} support-reply is worse than main")
    assert run_document(result)["notes"] == [note]
    assert run_document(result)["verdict"] == "pass"


def test_a_worse_slice_comes_first_too(results: Results) -> None:
    for index in range(60):
        case, hard = f"case-{index:02}", index < 15
        results.both(case, 0.9, 0.7 if hard else 0.9 + index / 1_000)
        results.tag(case, *(["hard"] if hard else ["easy"]))
    result = decided(results)
    assert result.notes == ("Slice tag hard scores 20.0 points lower on the same 15 cases.",)
    assert result.headline.amber


def test_what_chance_gives_or_gates_report_is_no_note(results: Results) -> None:
    write(results, 9, 6)
    assert decided(results).notes == ()
    results.both("more", 0.9, 0.2)
    for index in range(10):
        results.both(f"more-{index}", 0.9, 0.2)
    assert decided(results).notes
    for verdict in ("fail", "inconclusive"):
        result = decided(results, verdict)
        assert (result.notes, result.headline.amber) == ((), False)


def test_a_run_without_gates_is_headed_by_its_score(results: Results) -> None:
    write(results, 0, 0)
    result = decided(results, "skipped")
    assert result.headline.verdict == ""
    assert str(result.headline).startswith("support-reply ")
    assert run_document(result)["verdict"] == "skipped"
