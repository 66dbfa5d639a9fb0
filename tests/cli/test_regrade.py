"""edison regrade: new grades for old answers, and no answer bought."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 12
DOWN = (
    "small: {provider: sim, model: small}\n"
    "judge: {provider: openai_compatible, base_url: 'http://127.0.0.1:9/v1', model: judge,"
    " price: free, limits: {attempts: 1}}\n"
)


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project of 12 cases with a check and a judge."""
    write_cases(mini, CASES)
    return mini


def write_cases(folder: Folder, count: int) -> None:
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(count))
    folder.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def calls(folder: Folder, phase: str) -> int:
    return int(ask(folder, f"select count(*) from attempt where phase = '{phase}'")[0][0])


def regraded(edison: Edison, folder: Folder, *args: str, code: int = 0) -> dict[str, Any]:
    done = edison(folder, "regrade", "latest", "--json", *args)
    assert done.code == code, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_changed_checks_make_a_new_run_of_the_same_answers(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    cells = (
        "select case_id, request_hash, answer_no, composite, passed from cell where run_id = '{}'"
    )
    ((first,),) = ask(project, "select id from run")
    before = ask(project, cells.format(first))
    project.edit("experiments/hello.yaml", "checks:\n", "checks:\n  - words: {max: 1}\n")
    told = regraded(edison, project)
    (run,) = told["runs"]
    assert (run["trigger"], run["status"], run["simulated"]) == ("regrade", "COMPLETED", True)
    assert run["calls"] == {
        "made": 0,
        "reused": 2 * CASES,
        "shared": 0,
        "retried": 0,
        "unknown": 0,
        "estimated": 0,
    }
    assert (run["pass_rate"]["estimate"], run["partial"]) == (0.0, False)
    assert told["regraded"]["run_id"] == first
    assert ask(project, cells.format(first)) == before, "what was found stays as it was"
    after = ask(project, cells.format(run["run_id"]))
    assert sorted(row[:3] for row in after) == sorted(row[:3] for row in before)


def test_only_judges_whose_question_changed_are_asked(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    project.edit("rubrics/tone.yaml", "Sounds friendly and warm.", "Sounds like a good friend.")
    (run,) = regraded(edison, project)["runs"]
    assert run["calls"]["made"] == CASES
    assert (calls(project, "generate"), calls(project, "judge")) == (CASES, 2 * CASES)


def test_another_objective_is_another_judge(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    before = (calls(project, "generate"), calls(project, "judge"))
    project.edit("experiments/hello.yaml", "objective: ", "objective: In verse. ")
    regraded(edison, project)
    assert (calls(project, "generate"), calls(project, "judge")) == (before[0], 2 * before[1])
    first, second = (run for (run,) in ask(project, "select id from run order by rowid"))
    refused = edison(project, "compare", first, second)
    assert (refused.code, "not measured alike: objective differ" in refused.err) == (2, True)


def test_the_answers_are_those_of_the_run_and_not_newer_ones(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    edison(project, "rerun", "latest", "--cell", "c3@small#0", "-q")
    (run,) = regraded(edison, project)["runs"]
    takes = ask(project, f"select distinct answer_no from cell where run_id = '{run['run_id']}'")
    assert takes == [(0,)]


def test_cells_that_changed_are_left_out_and_named(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    text = project.read("datasets/names.jsonl").replace('"name": "P7"', '"name": "Pip"')
    text = "".join(line for line in text.splitlines(keepends=True) if '"c5"' not in line)
    project.write("datasets/names.jsonl", text + '{"id": "new", "input": {"name": "N"}}\n')
    told = regraded(edison, project)
    (run,) = told["runs"]
    assert told["regraded"]["left_out"] == {
        "changed": 1, "gone": 1, "missing": 1, "cells": ["c7@small#0"],
    }  # fmt: skip
    assert (run["cells"]["total"], run["cells"]["ok"]) == (CASES - 2, CASES - 2)
    assert run["partial"], "it must not serve as a base for others"
    assert "c7@small#0" not in edison(project, "regrade", "latest").err
    assert calls(project, "generate") == CASES


def test_an_expected_output_may_change(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    text = project.read("datasets/names.jsonl").replace('"expected": "P7"', '"expected": "Nobody"')
    project.write("datasets/names.jsonl", text)
    (run,) = regraded(edison, project)["runs"]
    (part,) = (part for part in run["components"] if part["name"] == "contains expected")
    assert part["graded"] - part["passed"] == 1


def test_nothing_is_graded_when_every_cell_changed(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    project.edit("prompts/hello.md", "friendly", "warm")
    done = edison(project, "regrade", "latest")
    assert (done.code, "no cell of run" in done.err) == (2, True)
    assert len(ask(project, "select id from run")) == 1


def test_gates_decide_and_set_the_exit_code(edison: Edison, project: Folder) -> None:
    assert edison(project, "run", "-q").code == 0
    project.edit(
        "experiments/hello.yaml", "gates:\n", "gates:\n  - {metric: pass_rate, at_least: 90%}\n"
    )
    project.edit("experiments/hello.yaml", "checks:\n", "checks:\n  - words: {max: 1}\n")
    told = regraded(edison, project, code=1)
    assert (told["verdict"], told["exit_code"]) == ("fail", 1)
    assert ask(project, "select verdict from run order by rowid") == [("skipped",), ("fail",)]


def test_answers_are_kept_while_the_judge_is_down_and_graded_later(
    edison: Edison, project: Folder
) -> None:
    write_cases(project, 3)
    working = project.read("models.yaml")
    project.write("models.yaml", DOWN)
    done = edison(project, "run", "--json")
    assert (done.code, json.loads(done.out)["verdict"]) == (3, "error"), done.all
    (clients,) = (run["clients"] for run in json.loads(done.out)["runs"])
    assert clients["stopped"]["judges"].startswith("none answered; ")
    assert ask(project, "select count(*) from answer") == [(3,)]
    done = edison(project, "run")
    assert "judges stopped: none answered; " in done.out
    assert "0 of 0 fail" not in done.out
    assert "Next: The judge judge gave no score." in done.err.splitlines()[-1]
    assert "; then: edison resume " in done.err
    assert "with another judge: edison regrade " in done.err
    project.write("models.yaml", working)
    (run,) = regraded(edison, project)["runs"]
    assert (run["status"], run["composite"]["n"], run["calls"]["made"]) == ("COMPLETED", 3, 3)
    assert calls(project, "generate") == 3


def test_an_answer_that_is_gone_is_an_error_that_names_its_cell(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    with opened(project.path / ".edison/results.db") as connection:
        gone = "select request_hash from cell where case_id = 'c4'"
        connection.execute(f"delete from answer_text where request_hash in ({gone})")
    (run,) = regraded(edison, project)["runs"]
    assert (run["cells"]["ok"], run["cells"]["error"]) == (CASES - 1, 1)
    ((reason,),) = ask(project, "select reason from cell where status = 'error'")
    assert "the text of c4@small#0 of run" in reason
    assert calls(project, "generate") == CASES


def test_a_budget_pauses_it_and_resume_goes_on_without_asking_for_answers(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    project.edit("models.yaml", "model: judge}", "model: judge, price: {in: 1, out: 1}}")
    project.edit("rubrics/tone.yaml", "Sounds friendly and warm.", "Sounds like a good friend.")
    assert edison(project, "regrade", "latest", "-q", "--budget", "0.012").code == 4
    ((left,),) = ask(project, "select count(*) from cell where run_id in (select id from run "
                              "where trigger = 'regrade')")  # fmt: skip
    assert left < CASES
    assert edison(project, "resume", "-q").code == 4, "the budget it was started with stays"
    done = edison(project, "resume", "--budget", "1", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["trigger"], run["cells"]["ok"]) == (0, "regrade", CASES)
    assert calls(project, "generate") == CASES


def test_both_sides_of_a_comparison_are_graded_again(edison: Edison, project: Folder) -> None:
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    project.edit("prompts/hello.md", "friendly", "warm")
    edison(project, "run", "-q", "--against", "main")
    project.edit("experiments/hello.yaml", "checks:\n", "checks:\n  - words: {max: 1}\n")
    (run,) = regraded(edison, project)["runs"]
    assert run["cells"]["ok"] == 2 * CASES
    assert run["against"]["difference"]["n"] == CASES
    assert calls(project, "generate") == 2 * CASES


def test_a_run_knows_its_commit_only_when_its_files_are_committed(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    edison(project, "run", "-q")
    project.edit("prompts/hello.md", "friendly", "warm")
    edison(project, "run", "-q")
    head = project.git("rev-parse", "HEAD")
    assert ask(project, "select commit_id from run order by rowid") == [(None,), (head,), (None,)]


def test_a_run_whose_judge_was_down_is_resumed_without_generating_again(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(
        "models.yaml",
        "small: {provider: sim, model: small}\n"
        "judge: {provider: openai_compatible, base_url_env: JUDGE_URL, model: judge,"
        " price: free, limits: {attempts: 1}}\n",
    )
    write_cases(project, 3)
    monkeypatch.setenv("JUDGE_URL", "http://127.0.0.1:9/v1")
    assert edison(project, "run").code == 3
    said = {name: {"score": 4, "reason": "fine"} for name in ("Warmth", "Brevity")}
    script = [rule(text=json.dumps({"scores": said, "flags": []}))]
    with LoopbackServer(script) as server:
        monkeypatch.setenv("JUDGE_URL", server.openai_url)
        done = edison(project, "resume", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["status"], run["composite"]["n"]) == (0, "COMPLETED", 3)
    assert run["cells"]["ok"] == 3
    assert (calls(project, "generate"), len(server.requests)) == (3, 3)
