"""edison quarantine: flaky cases are found, set aside with a last day, and never gate."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci import utc
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def day(offset: int) -> str:
    return (utc.now() + dt.timedelta(days=offset)).date().isoformat()


@pytest.fixture
def project(mini: Folder) -> Folder:
    """Twenty cases of which one, `bad`, always fails, and a gate that it would break."""
    rows = [{"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(19)]
    rows.append({"id": "bad", "input": {"name": "Bad"}, "expected": "nobody"})
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write("models.yaml", "small: {provider: sim, model: echo}\n")
    for old in ("rubric: rubrics/tone.yaml\n", "judges: {pointwise: [judge]}\n"):
        mini.edit("experiments/hello.yaml", old, "")
    mini.edit(
        "experiments/hello.yaml",
        "gates:\n  - {metric: composite, no_worse_than: base, margin: 10pp}\n",
        "gates:\n  - {metric: check.contains, at_least: 100%}\n",
    )
    return mini


def entry(case: str = "bad", until: str = "") -> str:
    return (
        "version: 1\ncases:\n"
        f"  - {{experiment: hello, case: {case}, reason: r, since: {day(-40)}, "
        f"until: {until or day(5)}, owner: me}}  # ours\n"
    )


def test_a_case_in_quarantine_runs_and_is_shown_and_never_gates(
    edison: Edison, project: Folder
) -> None:
    before = json.loads(edison(project, "run", "--json").out)["runs"][0]
    assert before["verdict"] != "pass"
    assert before["quarantined"] == []
    added = edison(project, "quarantine", "add", "hello", "bad", "--reason", "a bad case")
    assert added.code == 0, added.all
    done = edison(project, "run")
    assert "1 case in quarantine counts in no gate: bad" in done.out
    after = json.loads(edison(project, "status", "latest", "--json").out)["runs"][0]
    assert after["quarantined"] == ["bad"]
    assert after["cells"]["ok"] == 20, "it runs"
    assert after["pass_rate"]["n"] == 20 and after["pass_rate"]["estimate"] == 0.95, "it is shown"
    gates = {run["gates"][0]["n"]: run["gates"][0]["estimate"] for run in (before, after)}
    assert gates[19] == 1, "it does not gate"
    assert gates[20] == pytest.approx(0.95)


def test_adding_writes_the_file_with_reason_dates_and_owner(
    edison: Edison, project: Folder
) -> None:
    project.git("init", "-q")
    project.git("config", "user.email", "ada@example.com")
    done = edison(
        project, "quarantine", "add", "hello", "bad", "--reason", " it's:\n odd ", "--json"
    )
    told = json.loads(done.out)["added"]
    assert told == {
        "experiment": "hello", "case": "bad", "reason": "it's: odd", "since": day(0),
        "until": day(30), "owner": "ada@example.com", "days_left": 30, "expired": False,
    }  # fmt: skip
    assert project.read("quarantine.yaml").startswith("# yaml-language-server: $schema=")
    assert edison(project, "validate").code == 0
    listed = edison(project, "quarantine", "list").out
    assert "30 days" in listed and "it's: odd" in listed


def test_comments_and_formatting_of_the_user_stay(edison: Edison, project: Folder) -> None:
    mine = entry("c1") + "\n# the end\n"
    project.write("quarantine.yaml", mine)
    until = ("--until", day(3))
    assert edison(project, "quarantine", "add", "hello", "bad", "--reason", "r", *until).code == 0
    text = project.read("quarantine.yaml")
    assert text.startswith(entry("c1")) and text.endswith("\n# the end\n")
    assert f"until: {day(3)}" in text
    assert edison(project, "quarantine", "remove", "hello", "bad").code == 0
    assert project.read("quarantine.yaml") == mine


def test_changes_and_refusals_are_audited(edison: Edison, project: Folder) -> None:
    edison(project, "quarantine", "add", "hello", "bad", "--reason", "r")
    edison(project, "quarantine", "remove", "hello", "bad")
    project.write(
        "edison.yaml",
        "version: 1\nproject: mini\nmembers:\n  - {email: owner@example.com, role: owner}\n"
        "  - {email: test@example.com, role: reviewer}\n",
    )
    project.git("init", "-q")
    project.git("config", "user.email", "test@example.com")
    before = project.read("quarantine.yaml")
    refused = edison(project, "quarantine", "add", "hello", "bad", "--reason", "r")
    assert refused.code == 2
    assert "quarantine add needs an editor; test@example.com is a reviewer" in refused.err
    assert project.read("quarantine.yaml") == before
    with opened(project.path / ".edison/results.db") as connection:
        rows = connection.execute("select action, entity from audit order by seq").fetchall()
    assert rows == [
        ("quarantine add", "hello/bad"),
        ("quarantine remove", "hello/bad"),
        ("refused: quarantine add", "hello/bad"),
    ]


def test_past_its_last_day_the_file_is_invalid_and_can_still_be_mended(
    edison: Edison, project: Folder
) -> None:
    project.write("quarantine.yaml", entry(until=day(-1)))
    invalid = edison(project, "validate")
    assert invalid.code == 2 and f"ended on {day(-1)}" in invalid.out + invalid.err
    assert edison(project, "run").code == 2
    listed = edison(project, "quarantine", "list")
    assert "expired" in listed.out and "1 entry expired" in listed.err
    assert edison(project, "quarantine", "remove", "hello", "bad").code == 0
    assert edison(project, "validate").code == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["add", "hello", "nope", "--reason", "r"], "hello has no case 'nope'"),
        (["add", "helo", "bad", "--reason", "r"], "there is no experiment 'helo'"),
        (["add", "hello", "bad", "--reason", "  "], "the reason is empty"),
        (["add", "hello", "bad", "--reason", "r", "--until", "2020-01-01"], "is in the past"),
        (["add", "hello", "bad", "--reason", "r", "--until", "soon"], "does not match the format"),
        (["add", "hello", "bad"], "Missing option '--reason'"),
        (["add", "hello", "c1", "--reason", "r"], "'c1' of hello is in quarantine already, until"),
        (["remove", "hello", "bad"], "'bad' of hello is not in quarantine"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    edison: Edison, project: Folder, args: list[str], message: str
) -> None:
    project.write("quarantine.yaml", entry("c1"))
    done = edison(project, "quarantine", *args)
    assert done.code == 2
    assert message in done.err
    assert project.read("quarantine.yaml") == entry("c1")


def test_a_file_that_cannot_be_edited_safely_is_left_alone(edison: Edison, project: Folder) -> None:
    odd = "{version: 1, cases: []}\n"
    project.write("quarantine.yaml", odd)
    done = edison(project, "quarantine", "add", "hello", "bad", "--reason", "r")
    assert done.code == 2 and "cannot be edited safely" in done.err
    assert project.read("quarantine.yaml") == odd


def test_an_empty_quarantine_says_so(edison: Edison, project: Folder) -> None:
    assert "no case is in quarantine" in edison(project, "quarantine", "list").err
    assert json.loads(edison(project, "quarantine", "list", "--json").out)["cases"] == []


# --- suggest --------------------------------------------------------------------------------------


def flip(project: Folder, case: str, passed: int, score: float) -> None:
    """Let the newest answer to a case come out otherwise."""
    with opened(project.path / ".edison/results.db") as connection:
        connection.execute(
            "update cell set passed = ?, composite = ? where case_id = ? and "
            "run_id = (select id from run order by created_at desc, rowid desc limit 1)",
            (passed, score, case),
        )


def suggested(edison: Edison, project: Folder) -> dict[str, Any]:
    (found,) = json.loads(edison(project, "quarantine", "suggest", "--json").out)["experiments"]
    assert isinstance(found, dict)
    return found


def test_answers_that_disagree_over_takes_are_flaky(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    edison(project, "run", "-q", "--no-cache")
    flip(project, "c3", 0, 0.0)
    two = suggested(edison, project)
    assert (two["flaky"], two["questions"], two["too_few_answers"]) == ([], 0, 20)
    edison(project, "run", "-q", "--no-cache")
    found = suggested(edison, project)
    (flaky,) = found["flaky"]
    assert (flaky["case"], flaky["answers"], flaky["passed"]) == ("c3", 3, 2)
    assert (found["questions"], found["simulated"], flaky["quarantined"]) == (20, True, False)
    done = edison(project, "quarantine", "suggest")
    assert "1 flaky case by 20 questions with 3 or more answers" in done.out
    assert "c3  with small: 2 of 3 pass, scores 0 to 100" in done.out
    assert "edison quarantine add hello c3 --reason 'flaky: 2 of 3 answers pass'" in done.err
    assert "at least 20% of them come out otherwise" in done.err
    assert (
        "1 flaky case: answers to the same question disagree"
        in edison(project, "dataset", "health").out
    )


def test_repeats_of_one_run_disagree_too(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q", "--repeats", "3")
    with opened(project.path / ".edison/results.db") as connection:
        connection.execute("update cell set passed = 0 where case_id = 'c5' and repeat = 2")
    (flaky,) = suggested(edison, project)["flaky"]
    assert (flaky["case"], flaky["passed"], flaky["answers"]) == ("c5", 2, 3)


def test_an_answer_that_was_graded_both_ways_counts_for_both(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    edison(project, "run", "-q", "--no-cache")
    edison(project, "run", "-q")
    flip(project, "c7", 0, 0.9)
    (flaky,) = suggested(edison, project)["flaky"]
    assert (flaky["case"], flaky["answers"], flaky["passed"], flaky["regraded"]) == ("c7", 3, 2, 1)
    assert "1 graded both ways" in edison(project, "quarantine", "suggest").out


def test_answers_to_another_prompt_version_or_case_are_another_question(
    edison: Edison, project: Folder
) -> None:
    for _ in range(3):
        edison(project, "run", "-q", "--no-cache")
    flip(project, "c3", 0, 0.0)
    project.edit("prompts/hello.md", "friendly", "kind")
    edison(project, "run", "-q")
    assert suggested(edison, project)["flaky"] == []
    project.edit("prompts/hello.md", "kind", "friendly")
    project.edit("datasets/names.jsonl", '"P3"}, "expected": "P3"', '"P3"}, "expected": "P"')
    edison(project, "run", "-q")
    assert suggested(edison, project)["flaky"] == []


def test_so_many_flaky_cases_are_not_the_fault_of_the_cases(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q", "--repeats", "3")
    with opened(project.path / ".edison/results.db") as connection:
        connection.execute("update cell set passed = 0 where repeat = 2")
    done = edison(project, "quarantine", "suggest")
    assert "point to the prompt or the grading" in done.err


def test_without_a_run_there_is_nothing_to_suggest(edison: Edison, project: Folder) -> None:
    project.edison("run", "--limit", "1", "-q")
    done = edison(project, "quarantine", "suggest")
    assert done.code == 0
