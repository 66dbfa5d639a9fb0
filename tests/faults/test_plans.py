"""Faults 47 to 52: clocks, prices, files and stored answers that change under a run."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from tests.loopback.script import rule
from tests.timing import poll

if TYPE_CHECKING:
    from tests.faults.conftest import MakeStage
    from tests.faults.stage import Stage

pytestmark = pytest.mark.daily


def killed(stage: Stage, nth: int = 3) -> None:
    done = stage.edison("run", point="answered", model="small", nth=nth)
    assert done.code == -signal.SIGKILL, done.all


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 86_400.0 * 40, -86_400.0 * 40])
def test_fault_47_a_clock_that_jumps_changes_no_result_and_no_duration(
    stage: Stage, jump_s: float
) -> None:
    expected = stage.undisturbed()
    run = stage.run_json("run", jump_s=jump_s)
    stage.check_settled(lost=0)
    assert stage.results() == expected
    assert 0 < run["wall_s"] < 1800
    assert all(
        0 <= latency < 1_800_000 for (latency,) in stage.rows("select latency_ms from answer")
    )


@pytest.mark.nightly
@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_fault_47_a_clock_that_jumps_between_run_and_resume_buys_nothing_twice(
    stage: Stage, jump_s: float
) -> None:
    expected = stage.undisturbed()
    killed(stage)
    done = stage.edison("resume", jump_s=jump_s)
    assert done.code == 0, done.all
    stage.check_settled(lost=4)
    assert stage.results() == expected


@pytest.mark.nightly
@pytest.mark.parametrize("jump_s", [-3600.0, -86_400.0 * 40])
def test_fault_47_new_answers_are_bought_once_though_the_clock_went_back(
    stage: Stage, jump_s: float
) -> None:
    expected = stage.undisturbed()
    done = stage.edison("run", "--no-cache", point="graded", model="small", nth=4, jump_s=jump_s)
    assert done.code == -signal.SIGKILL, done.all
    stored = stage.count("answer")
    done = stage.edison("resume", jump_s=jump_s)
    assert done.code == 0, done.all
    assert stored > 0
    stage.check_settled(lost=4)
    assert stage.results() == expected


def test_fault_48_a_model_without_a_price_is_refused_before_the_first_call(stage: Stage) -> None:
    text = stage.folder.read("models.yaml").replace("price: {in: 1, out: 2}, ", "", 1)
    stage.folder.write("models.yaml", text)
    done = stage.edison("run")
    assert done.code == 2
    assert "the price of small is unknown" in done.err
    assert "add price to models.yaml" in done.err
    assert stage.server.requests == []
    assert not stage.database.exists()


def test_fault_49_a_price_that_changes_counts_for_new_calls_only(stage: Stage) -> None:
    killed(stage)
    settled = "select id, est_microusd, cost_microusd from attempt where state = 'settled'"
    before, first = stage.rows(settled), stage.booked()
    last = stage.one("select max(id) from attempt")
    stage.models(price="{in: 10, out: 20}")
    done = stage.edison("resume")
    assert done.code == 0, done.all
    assert "prices changed" in done.err
    assert "small" in done.err
    after = stage.rows(settled)
    assert after[: len(before)] == before, "what is booked stays as it was"
    assert stage.booked() > first
    dearer = stage.rows(
        "select distinct cost_microusd = 10 * (tokens_in + 2 * tokens_out) from answer "
        f"where attempt > {last}"
    )
    assert dearer == [(1,)]
    assert stage.count("cell where status = 'ok'") == 6


def test_fault_49_a_price_and_something_else_is_refused(stage: Stage) -> None:
    killed(stage)
    stage.models(price="{in: 10, out: 20}")
    stage.dataset("hello", range(1, 7))
    attempts = stage.count("attempt")
    done = stage.edison("resume")
    assert done.code == 2, done.all
    assert "has changed" in done.err
    assert stage.count("attempt") == attempts


CHANGES = {
    "prompts/hello.md": ("friendly", "grumpy", "prompts/hello.md"),
    "rubrics/tone.yaml": ("friendly and warm", "icy", "rubrics/tone.yaml"),
    "experiments/hello.yaml": ("contains:", "icontains:", "experiments/hello.yaml"),
    "models.yaml": ("model: small-1", "model: small-2", "models.yaml: small"),
    "datasets/hello.jsonl": ("P002", "P999", "cases"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("file", CHANGES)
def test_fault_50_files_that_changed_are_named_and_the_run_not_resumed(
    stage: Stage, file: str
) -> None:
    expected = stage.undisturbed()
    killed(stage)
    old, new, told = CHANGES[file]
    stage.folder.edit(file, old, new)
    attempts = stage.count("attempt")
    done = stage.edison("resume")
    assert done.code == 2, done.all
    assert f"has changed: {told}" in done.err
    assert "edison run" in done.err
    assert stage.count("attempt") == attempts
    stage.folder.edit(file, new, old)
    assert stage.edison("resume").code == 0
    assert stage.results() == expected


@pytest.mark.parametrize("how", ["edited", "removed", "gone"])
def test_fault_51_a_dataset_that_changes_does_not_change_a_run(stage: Stage, how: str) -> None:
    expected = stage.undisturbed()
    go = threading.Event()
    stage.script(rule(model="small-1", until=go))
    running = stage.start("run")
    poll("calls are in flight", lambda: stage.server.in_flight == 2)
    path = stage.folder.path / "datasets/hello.jsonl"
    if how == "gone":
        path.unlink()
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if how == "edited":
            rows[4]["input"]["name"] = "Somebody else"
            rows[5]["expected"] = "zzz"
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in rows[: None if how == "edited" else 3])
        )
    go.set()
    done = running.wait()
    assert done.code == 0, done.all
    assert stage.results() == expected


def test_fault_51_a_killed_run_on_a_changed_dataset_says_so(stage: Stage) -> None:
    killed(stage)
    stage.dataset("hello", range(5))
    done = stage.edison("resume")
    assert done.code == 2
    assert "has changed: cases" in done.err


@pytest.mark.nightly
def test_fault_52_an_answer_that_was_tampered_with_is_bought_again(make_stage: MakeStage) -> None:
    stage = make_stage()
    expected = stage.undisturbed()
    assert stage.edison("run").code == 0
    connection = sqlite3.connect(stage.database)
    request_hash, text = connection.execute(
        "select t.request_hash, t.text from answer_text t join cell c using (request_hash, "
        "answer_no) "
        "where c.case_id = 'c2'"
    ).fetchone()
    connection.execute(
        "update answer_text set text = 'The best answer ever' where request_hash = ?",
        (request_hash,),
    )
    connection.commit()
    connection.close()
    calls = stage.server.chats
    done = stage.edison("run")
    assert done.code == 0, done.all
    assert "tampered" in done.err
    assert stage.server.chats - calls == 1, "the judge's verdict on the same text is still good"
    assert stage.rows(
        f"select answer_no, text from answer_text where request_hash = '{request_hash}'"
    ) == [
        (0, "The best answer ever"),
        (1, text),
    ]
    assert [cell[6:10] for cell in stage.results()] == [cell[6:10] for cell in expected]
    assert "tampered" not in stage.edison("run").err
