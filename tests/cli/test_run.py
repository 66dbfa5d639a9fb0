"""edison run, resume, status, watch, pause, cancel: the engine from the outside."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.api.evaluation import most_important
from edison_ci.store.liveness import experiment_lock
from tests import forked, holding
from tests.opened import opened
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 40
PRICED = (
    "small: {provider: sim, model: small, limits: {concurrency: 4},"
    " price: {in: 1, out: 2}}\njudge: {provider: sim, model: judge}\n"
)


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project of 40 cases that checks alone grade."""
    rows = (
        {"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}", "tags": [f"t{i % 2}"]}
        for i in range(CASES)
    )
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    return mini


def rows(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def document(text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


# --- what a run shows -----------------------------------------------------------------------------


def test_a_run_tells_scores_with_their_intervals_and_what_it_cost(
    edison: Edison, project: Folder
) -> None:
    done = edison(project, "run")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "hello  COMPLETED  simulated"
    assert lines[1].startswith("  hello v1 (")
    assert "40 cells: 40 ok" in done.out
    assert "40 calls made, 0 reused" in done.out
    assert "hello: 40 cases, 40 cells  simulated" in done.err


def test_the_document_has_the_promised_keys(edison: Edison, project: Folder) -> None:
    told = document(edison(project, "run", "--json").out)
    assert (told["schema_version"], told["exit_code"]) == (1, 0)
    (run,) = told["runs"]
    promised = (
        "run_id experiment trigger status verdict simulated partial stopped_by prompts composite "
        "pass_rate against gates cells calls cost_microusd tokens wall_s models"
    )
    assert set(promised.split()) <= run.keys()
    assert run["cells"] == {
        "total": CASES, "ok": CASES, "malformed": 0, "error": 0, "blocked": 0, "skipped": 0,
    }  # fmt: skip
    assert run["calls"] == {
        "made": CASES,
        "reused": 0,
        "shared": 0,
        "retried": 0,
        "unknown": 0,
        "estimated": 0,
    }
    assert run["models"][0]["latency_ms"]["p95"] is None, (
        "40 calls say nothing of a 95th percentile"
    )
    composite = run["composite"]
    assert 0 <= composite["low"] <= composite["estimate"] <= composite["high"] <= 1
    assert composite["n"] == CASES


def test_a_second_run_costs_nothing_and_says_the_same(edison: Edison, project: Folder) -> None:
    first = document(edison(project, "run", "--json").out)["runs"][0]
    again = document(edison(project, "run", "--json").out)["runs"][0]
    assert again["calls"] == {
        "made": 0,
        "reused": CASES,
        "shared": 0,
        "retried": 0,
        "unknown": 0,
        "estimated": 0,
    }
    assert again["composite"] == first["composite"]
    fresh = document(edison(project, "run", "--no-cache", "--json").out)["runs"][0]
    assert fresh["calls"]["made"] == CASES
    assert rows(project, "select max(answer_no) from answer") == [(1,)]


def test_only_cells_that_changed_are_bought(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    text = project.read("datasets/names.jsonl").replace('"P7"}, "expected"', '"Pip"}, "expected"')
    project.write("datasets/names.jsonl", text)
    told = document(edison(project, "run", "--json").out)["runs"][0]
    assert (told["calls"]["made"], told["calls"]["reused"]) == (1, CASES - 1)


@pytest.mark.parametrize(
    ("flags", "cells", "partial"),
    [
        (["--case", "c3", "--case", "c5"], 2, True),
        (["--tag", "t1"], CASES // 2, True),
        (["--limit", "7"], 7, True),
        (["--repeats", "2"], 2 * CASES, False),
        (["--model", "small"], CASES, False),
    ],
)
def test_a_part_can_be_run(
    edison: Edison, project: Folder, flags: list[str], cells: int, partial: bool
) -> None:
    (run,) = document(edison(project, "run", "--json", *flags).out)["runs"]
    assert (run["cells"]["ok"], run["partial"]) == (cells, partial)


def test_shards_together_are_the_whole(edison: Edison, project: Folder) -> None:
    for index in (1, 2, 3):
        assert edison(project, "run", "-q", "--shard", f"{index}/3").code == 0
    assert rows(project, "select count(*), count(distinct case_id) from cell") == [(CASES, CASES)]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "smal"], "did you mean 'small'?"),
        (["--case", "nobody"], "hello has no case 'nobody'"),
        (["--case", "c0", "--tag", "t1"], "no case of hello is chosen"),
        (["--shard", "5/3"], "'5/3' is not a shard"),
        (["nothere"], "there is no experiment 'nothere'"),
        (["--repeats", "0"], "0 is not in the range"),
    ],
)
def test_a_wrong_choice_is_told_before_anything_is_made(
    edison: Edison, project: Folder, flags: list[str], said: str
) -> None:
    done = edison(project, "run", *flags)
    assert done.code == 2
    assert said in done.err
    assert not (project.path / ".edison/results.db").exists()


def test_a_model_without_a_price_is_refused_before_the_first_call(
    edison: Edison, project: Folder
) -> None:
    project.write(
        "models.yaml",
        "small: {provider: openai_compatible, base_url: 'http://127.0.0.1:9/v1', model: x}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    done = edison(project, "run")
    assert done.code == 2
    assert "the price of small is unknown" in done.err
    assert "add price to models.yaml" in done.err
    assert not (project.path / ".edison/results.db").exists()


def test_strict_refuses_cases_that_would_be_skipped(edison: Edison, project: Folder) -> None:
    project.write(
        "datasets/names.jsonl", '{"id": "a", "input": {"name": "A"}, "expected": "A"}\n'
        '{"id": "b", "input": {"other": "B"}, "expected": "B"}\n',
    )  # fmt: skip
    done = edison(project, "run", "--strict")
    assert (done.code, "1 cell would be skipped" in done.err) == (2, True)
    (run,) = document(edison(project, "run", "--json").out)["runs"]
    assert (run["cells"]["ok"], run["cells"]["skipped"], run["composite"]["n"]) == (1, 1, 1)


def test_only_what_a_change_touches_is_run(edison: Edison, project: Folder) -> None:
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "start")
    done = edison(project, "run", "--changed-since", "main", "--json")
    assert (done.code, document(done.out)["runs"]) == (0, [])
    assert document(done.out)["verdict"] == "skipped"
    project.edit("prompts/hello.md", "friendly", "warm")
    done = edison(project, "run", "--changed-since", "main", "--json")
    assert [run["experiment"] for run in document(done.out)["runs"]] == ["hello"]


@pytest.mark.parametrize(
    ("codes", "wins"),
    [([0, 1, 5], 1), ([3, 1], 3), ([4, 3, 1], 4), ([130, 4], 130), ([2, 130], 2), ([70, 2], 70),
     ([5, 0], 5), ([], 0)],
)  # fmt: skip
def test_exit_codes_have_an_order(codes: list[int], wins: int) -> None:
    assert most_important(codes) == wins


# --- looking at runs ------------------------------------------------------------------------------


def test_status_lists_runs_and_shows_one(edison: Edison, project: Folder) -> None:
    assert edison(project, "status").code == 2
    edison(project, "run", "-q", "--limit", "3")
    edison(project, "run", "-q")
    listed = edison(project, "status").out.splitlines()
    assert listed[0].split() == [
        "run", "experiment", "trigger", "status", "verdict", "score", "cells", "cost",
        "prompt",
    ]  # fmt: skip
    assert len(listed) == 3
    assert "40/40" in listed[1]
    shown = edison(project, "status", "latest").out
    assert shown.startswith("hello  COMPLETED  simulated\n")
    told = document(edison(project, "status", "hello", "--json").out)
    assert told["runs"][0]["cells"]["ok"] == CASES
    assert edison(project, "status", "nothing").code == 2


def test_watch_tells_what_happened_to_a_run_that_is_over(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    out = edison(project, "runs", "watch", "--json").out
    events = [json.loads(line) for line in out.splitlines()]
    assert [sorted(event) for event in events[:1]] == [["data", "run_id", "seq", "time", "type"]]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "iteration:started"
    assert kinds[-1] == "iteration:completed"
    assert {"run:progress", "run:completed", "status:changed", "aggregate:completed"} <= set(kinds)
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(seqs)
    later = edison(project, "runs", "watch", "--json", "--since", str(seqs[-2])).out
    assert [json.loads(line)["seq"] for line in later.splitlines()] == seqs[-1:]


def test_an_alert_comes_once_when_a_budget_is_nearly_used_up(
    edison: Edison, project: Folder
) -> None:
    project.write("models.yaml", PRICED.replace("limits", "params: {max_tokens: 40}, limits"))
    project.edit("experiments/hello.yaml", "gates:", "stop: {alert_at: 0.5}\ngates:")
    done = edison(project, "run", "--budget", "0.001")
    assert done.code == 4
    assert "of --budget is used" in done.err
    edison(project, "resume", "--budget", "0.0011")
    alerts = rows(project, "select data from event where type = 'cost:alert'")
    assert len(alerts) == 1


# --- processes ------------------------------------------------------------------------------------


@pytest.fixture
def running(project: Folder) -> Iterator[subprocess.Popen[str]]:
    """A real process in the middle of a run, which gets no more answers until it is let go."""
    project.write("models.yaml", PRICED)
    process = holding.start(project, "run", calls=4)
    poll("four cells are there", lambda: process.poll() or cells(project) == 4)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=PATIENCE_S)


def cells(project: Folder) -> int:
    """Return how many cells there are, 0 while there is no file or nothing in it."""
    if not (project.path / ".edison/results.db").exists():
        return 0  # connecting would make it
    try:
        return int(rows(project, "select count(*) from cell")[0][0])
    except sqlite3.OperationalError:
        return 0


def test_a_run_can_be_paused_from_elsewhere_and_goes_on(
    edison: Edison, project: Folder, running: subprocess.Popen[str]
) -> None:
    assert "PAUSED" in holding.stopped(project, running, "pause")
    assert (
        rows(
            project, "select distinct state from attempt where state not in ('settled', 'released')"
        )
        == []
    )
    assert edison(project, "runs", "pause").code == 2
    done = edison(project, "resume", "--json")
    assert done.code == 0
    assert document(done.out)["runs"][0]["cells"]["ok"] == CASES


def test_a_cancelled_run_keeps_its_answers_and_is_final(
    edison: Edison, project: Folder, running: subprocess.Popen[str]
) -> None:
    assert document(holding.stopped(project, running, "cancel", "--json"))["status"] == "CANCELLED"
    kept = rows(project, "select count(*) from answer")[0][0]
    assert kept >= 4
    assert edison(project, "resume").code == 2
    (run,) = document(edison(project, "run", "--json").out)["runs"]
    assert run["calls"]["reused"] == kept


def test_a_second_run_is_refused_and_names_the_first(
    edison: Edison, project: Folder, running: subprocess.Popen[str]
) -> None:
    (run_id,) = rows(project, "select id from run")[0]
    done = edison(project, "run")
    assert done.code == 2
    assert run_id in done.err
    assert "--wait" in done.err


def test_a_killed_run_is_seen_as_paused_and_resumed_to_the_same_result(
    edison: Edison, project: Folder, running: subprocess.Popen[str]
) -> None:
    running.send_signal(signal.SIGKILL)
    running.wait(timeout=PATIENCE_S)
    told = document(edison(project, "status", "latest", "--json").out)["runs"][0]
    assert (told["status"], told["stopped_by"]) == ("PAUSED", "killed")
    resumed = document(edison(project, "resume", "--json").out)["runs"][0]
    assert (resumed["status"], resumed["cells"]["ok"]) == ("COMPLETED", CASES)
    whole = document(edison(project, "run", "--json").out)["runs"][0]
    assert whole["composite"] == resumed["composite"]
    assert rows(project, "select count(*) from attempt where state = 'reserved'") == [(0,)]


def test_ctrl_c_drains_and_tells_how_to_go_on(
    project: Folder, running: subprocess.Popen[str]
) -> None:
    running.send_signal(signal.SIGINT)
    said = holding.heard(running, "stopping:")
    holding.let_go(project)
    out, rest = running.communicate(timeout=PATIENCE_S)
    err = said + rest
    assert running.returncode == 130
    assert "PAUSED (SIGINT)" in out
    assert re.search(r"stopping: finishing \d calls? in flight; press Ctrl-C again", err)
    assert "Continue with: edison resume" in err


def test_waiting_for_another_run_is_said(project: Folder) -> None:
    with experiment_lock(project.path / ".edison/locks", "hello", "the-first"):
        second = forked.Popen(
            [sys.executable, "-P", "-m", "edison_ci", "run", "--wait", "--limit", "1"],
            cwd=project.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        said = second.stderr.readline()
    _, err = second.communicate(timeout=PATIENCE_S)
    assert said == "waiting for run the-first to end; stop waiting with Ctrl-C\n"
    assert second.returncode == 0, err


@pytest.mark.parametrize(
    ("stop", "flags", "said"),
    [
        (
            "",
            ["--budget", "0.001"],
            "Continue with a larger budget: edison resume {id} --budget 0.",
        ),
        (
            "budget_usd: 0.01",
            [],
            "Raise stop.budget_usd to 1.58, then: edison run hello (stored answers",
        ),
        (
            "daily_budget_usd: 0.01",
            [],
            "Continue tomorrow (UTC) with: edison resume {id}; "
            "or raise stop.daily_budget_usd to 1.58, then: ",
        ),
        ("max_total_tokens: 600", [], "Raise stop.max_total_tokens, then: edison run hello"),
    ],
)
def test_what_a_budget_stopped_says_what_to_change(
    edison: Edison, project: Folder, stop: str, flags: list[str], said: str
) -> None:
    price, most = "price: {in: 100, out: 200}", "params: {max_tokens: 40}"
    project.write("models.yaml", f"small: {{provider: sim, model: small, {price}, {most}}}\n")
    if stop:
        project.edit("experiments/hello.yaml", "gates:", f"stop: {{{stop}}}\ngates:")
    if flags:
        project.edit("models.yaml", "in: 100, out: 200", "in: 10, out: 20")
    done = edison(project, "run", *flags)
    assert done.code == 4, done.all
    (run_id,) = rows(project, "select id from run")[0]
    assert said.format(id=run_id) in done.err
    assert f"Continue with: edison resume {run_id}" not in done.err


def test_a_small_limit_of_tokens_is_used_up_by_the_calls_that_fit(
    edison: Edison, project: Folder
) -> None:
    rows_of_data = (
        json.dumps({"id": f"p{n}", "input": {"name": f"P{n}"}, "expected": f"P{n}"}) + "\n"
        for n in range(60)
    )
    project.write("datasets/names.jsonl", "".join(rows_of_data))
    project.edit("experiments/hello.yaml", "gates:", "stop: {max_total_tokens: 500}\ngates:")
    done = edison(project, "run")
    assert done.code == 4, done.all
    assert "What is left of the tokens is less than the next prompt has." in done.err
    ((answers, tokens, longest),) = rows(
        project,
        "select count(*), sum(tokens_in + tokens_out), max(tokens_in + tokens_out) from answer",
    )
    assert answers > 5, "a call of few tokens has room, however long its answer might be"
    assert 500 - longest < tokens < 500 + longest, "used up, but for one answer"


def test_a_larger_budget_as_told_goes_on(edison: Edison, project: Folder) -> None:
    most = "price: {in: 1, out: 2}, params: {max_tokens: 40}"
    project.write("models.yaml", f"small: {{provider: sim, model: small, {most}}}\n")
    done = edison(project, "run", "--budget", "0.001")
    assert done.code == 4
    told = done.err.rpartition("Continue with a larger budget: edison ")[2].split()
    assert edison(project, *told).code == 0


def test_a_dataset_edited_while_a_run_goes_on_does_not_change_it(
    project: Folder, running: subprocess.Popen[str]
) -> None:
    project.write("datasets/names.jsonl", '{"id": "x", "input": {"name": "X"}, "expected": "X"}\n')
    holding.let_go(project)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert rows(project, "select count(*), min(status) from cell") == [(CASES, "ok")]
    assert rows(project, "select count(*) from cell where case_id = 'x'") == [(0,)]
    assert not (project.path / ".edison/snapshots/hello").exists()


def test_a_run_whose_files_changed_is_not_resumed(
    edison: Edison, project: Folder, running: subprocess.Popen[str]
) -> None:
    running.kill()
    running.wait(timeout=PATIENCE_S)
    project.edit("prompts/hello.md", "friendly", "grumpy")
    done = edison(project, "resume")
    assert done.code == 2
    assert "has changed: prompts/hello.md" in done.err


def test_watching_runs_again_when_a_file_changes_and_survives_a_mistake(project: Folder) -> None:
    process = forked.Popen(
        [sys.executable, "-P", "-m", "edison_ci", "run", "--watch", "--limit", "3"],
        cwd=project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout)
        seen = heard_until(lines, "waiting for a change")
        assert any("3 calls made" in line for line in seen)
        project.edit("prompts/hello.md", "{{ name }}", "{{ nam }}")
        seen = heard_until(lines, "waiting for a change")
        assert any("did you mean 'name'?" in line for line in seen)
        project.edit("prompts/hello.md", "{{ nam }}", "dear {{ name }}")
        seen = heard_until(lines, "waiting for a change")
        assert any("3 calls made" in line for line in seen)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 130
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def heard_until(lines: Iterator[str], end: str) -> list[str]:
    found = []
    for line in lines:
        found.append(line)
        if end in line:
            return found
    raise AssertionError("".join(found))


# --- small mercies --------------------------------------------------------------------------------


def test_a_run_can_be_stopped_while_a_file_is_half_edited(
    edison: Edison, project: Folder, running: subprocess.Popen[str]
) -> None:
    project.write("prompts/hello.md", "---\nid: [\n")
    assert edison(project, "status").code == 0
    assert "PAUSED" in holding.stopped(project, running, "pause")


def test_a_recording_that_could_not_be_written_is_refused_before_anything_is_paid(
    edison: Edison, project: Folder
) -> None:
    done = edison(project, "run", "--record", "no/such/folder/answers.jsonl")
    assert (done.code, "no recording can be written" in done.err) == (2, True)
    assert not (project.path / ".edison/results.db").exists()


def test_a_replay_costs_nothing_names_what_it_lacks_and_leaves_the_books_in_order(
    edison: Edison, project: Folder
) -> None:
    project.write("models.yaml", PRICED)
    edison(project, "run", "-q", "--record", "answers.jsonl")
    lines = project.read("answers.jsonl").splitlines(keepends=True)
    assert lines[0] == '{"edison_recording": 1}\n'
    assert len(lines) == CASES + 1
    (whole,) = document(edison(project, "run", "--replay", "answers.jsonl", "--json").out)["runs"]
    assert (whole["cells"]["ok"], whole["cost_microusd"], whole["calls"]["made"]) == (CASES, 0, 0)
    project.write("answers.jsonl", "".join(lines[:-1]))
    done = edison(project, "run", "--replay", "answers.jsonl")
    assert "COMPLETED  simulated  replayed" in done.out
    assert "1 skipped" in done.out
    assert "@small: the recording has no answer to request" in done.out
    assert edison(project, "admin", "db", "check").code == 0
    (live,) = document(edison(project, "run", "--json").out)["runs"]
    assert live["calls"] == {
        "made": 0,
        "reused": CASES,
        "shared": 0,
        "retried": 0,
        "unknown": 0,
        "estimated": 0,
    }
    assert rows(project, "select count(*) from cell c join answer a using "
                "(request_hash, answer_no) where "
                f"run_id = '{live['run_id']}' and cost_kind = 'replayed'") == [(0,)]  # fmt: skip


def test_a_run_with_too_many_errors_says_so(edison: Edison, project: Folder) -> None:
    project.write(
        "models.yaml",
        "small: {provider: sim, model: small, options: {error_rate: 1}, limits: {attempts: 1}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    project.edit("experiments/hello.yaml", "gates:", "max_errors: 10%\ngates:")
    done = edison(project, "run", "--limit", "3")
    assert done.code == 3
    assert "cells in error, max_errors is 10%" in done.out
    assert rows(project, "select verdict, complete from run") == [("error", 0)]
