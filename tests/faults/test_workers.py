"""Runs on workers of this machine: the same results as here, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.stage import name_of, with_code, with_reasons
from tests.faults.test_worker_process import KEY, keyed
from tests.loopback.script import rule
from tests.timing import poll

if TYPE_CHECKING:
    from tests.faults.conftest import MakeStage

pytest.importorskip("distributed")

from benchmarks.cluster import children, verdict, writers

pytestmark = pytest.mark.daily


def cluster_of(pid: int) -> list[int]:
    """Return the scheduler and the workers of a run; [] before all have started."""
    crews = children(pid)
    return children(crews[0]) if crews else []


def test_workers_find_what_one_process_finds(make_stage: MakeStage) -> None:
    stage = make_stage(cases=20, concurrency=3)
    last = rule(model="small-1", contains=name_of(19), held=True)
    stage.script(last, rule(model="small-1", latency_s=0.3))
    expected = stage.undisturbed_run()
    keyed(stage)
    run = stage.start("run", "--on", "local:2", "--json", env={"WORKER_KEY": KEY})
    poll("answers arrive", lambda: len(stage.server.ledger_rows()) > 3)
    assert writers(stage.folder.path) == {run.pid}
    poll("it is told", lambda: "worker local-2: " in stage.edison("status", "latest").out)
    steered = stage.edison("runs", "steer", "--concurrency", "small=2")
    assert "small makes 2 calls at once at each worker, before 3" in steered.all
    stage.server.release()
    done = run.wait()
    assert done.code == 0, done.all
    assert "cells\nworkers: 2 workers for the calls: local-1, local-2\n" in done.err
    assert stage.results() == expected.results
    (found,) = json.loads(done.out)["runs"]
    assert len(found.pop("steered")) == 1 and expected.document.pop("steered") == []
    assert verdict(found) == verdict(expected.document)
    stage.check_settled(lost=0)
    assert 3 < stage.server.peak <= 2 * 2 * 3, "its limit counts for each worker, and for the judge"
    sent = {request.headers.get("authorization") for request in stage.server.requests}
    assert sent == {f"Bearer {KEY}"}
    assert KEY not in done.all
    told = stage.rows("select data from event where type = 'run:progress' order by seq desc")
    workers = next(found for (data,) in told if (found := json.loads(data)["workers"]))
    assert [worker["name"] for worker in workers] == ["local-1", "local-2"]
    assert sum(worker["answered"] for worker in workers) > 0
    assert ", at 2 workers" in stage.edison("runs", "watch", "latest").out


@pytest.mark.nightly
def test_killed_workers_and_a_killed_coordinator_change_nothing(make_stage: MakeStage) -> None:
    stage = make_stage(cases=30, concurrency=2)
    last = rule(model="small-1", contains=name_of(29), held=True)
    stage.script(last, rule(model="small-1", latency_s=0.3))
    expected = stage.undisturbed()
    temporary = stage.logs.parent / "temporary"
    temporary.mkdir()
    run = stage.start("run", "--on", "local:3", env={"TMPDIR": str(temporary)})
    poll("answers arrive", lambda: len(stage.server.ledger_rows()) > 8)
    _, victim, *others = cluster_of(run.pid)
    assert len(others) == 2
    os.kill(victim, signal.SIGKILL)
    run.until_it_says("local-1 is gone")
    poll("it goes on", lambda: len(stage.server.ledger_rows()) > 20)
    crew = children(run.pid)
    run.send(signal.SIGKILL)
    run.wait()
    poll("the workers end too", lambda: not any(map(_alive, [*crew, *others])))
    assert not list(temporary.glob("edison-*")), "keys of a cluster are gone with it"
    stage.server.release()
    done = stage.edison("resume", "--on", "local:1")
    assert done.code == 0, done.all
    assert stage.results() == expected
    stage.check_settled(lost=2 * 3 * 2)


@pytest.mark.nightly
def test_code_is_run_at_workers_and_again_when_one_dies(make_stage: MakeStage) -> None:
    stage = make_stage(cases=6)
    expected = with_code(stage)
    run = stage.start("run", "--on", "local:2", "--allow-code", "--json")
    poll("workers have started", lambda: len(cluster_of(run.pid)) == 3)
    _, victim, _ = cluster_of(run.pid)
    code = poll("it runs code", lambda: _stopped_in_code(victim))
    os.kill(victim, signal.SIGKILL)
    run.until_it_says(" of it will be run again; 1 worker left")
    poll("its code ends with it", lambda: not _alive(code))
    done = run.wait()
    assert done.code == 0, done.all
    assert with_reasons(stage) == expected
    stage.check_settled(lost=2 * 2)
    told = stage.rows("select data from event where type = 'run:progress' order by seq desc")
    (left,) = next(found for (data,) in told if (found := json.loads(data)["workers"]))
    assert left["name"] == "local-2" and left["checked"] > 2 and left["unable"] == ""


@pytest.mark.nightly
def test_a_budget_is_never_passed_by_all_workers_together(make_stage: MakeStage) -> None:
    stage = make_stage(cases=20, concurrency=3, judged=False)
    expected = stage.undisturbed()
    half = sum(row[11] for row in expected) // 2
    done = stage.edison("run", "--on", "local:2", "--budget", f"{half / 1_000_000:.6f}")
    assert done.code == 4, done.all
    assert 0 < stage.server.ledger_total() <= half
    done = stage.edison("resume", "--budget", "1")
    assert done.code == 0, done.all
    assert stage.results() == expected
    stage.check_settled(lost=0)


def _stopped_in_code(worker: int) -> int:
    """Stop a worker while it runs code, and return the process of that; 0 if it runs none."""
    if not _code_of(worker):
        return 0
    os.kill(worker, signal.SIGSTOP)
    poll("it stops", lambda: _state(worker) == "T")
    if not (code := _code_of(worker)):
        os.kill(worker, signal.SIGCONT)
    return code


def _code_of(worker: int) -> int:
    for child in children(worker):
        with contextlib.suppress(OSError):
            if b"/checks/tone.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    return 0


def _alive(pid: int) -> bool:
    return _state(pid) not in ("", "Z")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
