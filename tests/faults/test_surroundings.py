"""Faults 60, 62 and 63: odd terminals, little memory, and nothing to do."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.stage import figure
from tests.peak import MEASURED
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.conftest import Folder
    from tests.faults.conftest import MakeStage
    from tests.faults.stage import Stage

pytestmark = pytest.mark.daily

LONG = os.environ.get("FAULTS") == "long"
CELLS = 50_000 if LONG else 3_000
MOST_MB = 300


# --- 60: terminals --------------------------------------------------------------------------------


def shell(stage: Stage, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell with the real command as $EDISON."""
    edison = f"{sys.executable} -P -m edison_ci"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=stage.folder.path,
        env={**os.environ, "EDISON": edison, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def whole(stage: Stage) -> None:
    """Nothing was lost: every cell is there."""
    newest = "(select id from run order by rowid desc limit 1)"
    assert stage.count(f"cell where status = 'ok' and run_id = {newest}") == stage.shape.cases
    assert stage.one("select status from run order by rowid desc limit 1") == "COMPLETED"


@pytest.mark.nightly
def test_fault_60_a_reader_that_leaves_after_one_line(stage: Stage) -> None:
    done = shell(stage, "$EDISON run | head -1")
    assert done.stdout == "hello  COMPLETED\n"
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr
    whole(stage)


@pytest.mark.nightly
def test_fault_60_a_reader_that_is_gone_before_the_start(stage: Stage) -> None:
    for arguments in (("run",), ("run", "--json")):
        done = stage.edison(*arguments, closed_stdout=True)
        assert "Traceback" not in done.err
        assert "bug in edison" not in done.err
        whole(stage)
    closed = shell(stage, "$EDISON run >&-")
    assert "Traceback" not in closed.stderr
    whole(stage)


@pytest.mark.nightly
def test_fault_60_a_locale_that_is_not_utf_8(stage: Stage) -> None:
    stage.folder.edit("experiments/hello.yaml", "Greet people", "Grüße 你好 people")
    row = {"id": "größe", "input": {"name": "P000", "note": "Zoë 你好"}, "expected": "a"}
    stage.folder.write("datasets/hello.jsonl", json.dumps(row, ensure_ascii=False) + "\n")
    stage.shape.cases = 1
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = shell(stage, "$EDISON run --json", **env)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        json.loads(done.stdout)
        done = shell(stage, "$EDISON status latest", **env, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        whole(stage)


@pytest.mark.nightly
def test_fault_60_a_terminal_one_column_wide(stage: Stage) -> None:
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edison_ci", "run"],
            cwd=stage.folder.path,
            env={**os.environ, "COLUMNS": "1", "LINES": "1", "TERM": "xterm"},
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # Linux says so when the last one has left
                break
            if not data:
                break
            shown += data
        assert process.wait(PATIENCE_S) == 0, shown.decode()
    finally:
        os.close(leader)
    assert b"Traceback" not in shown
    assert b"COMPLETED" in shown.replace(b"\r\n", b"")
    whole(stage)


@pytest.mark.nightly
def test_fault_60_no_terminal_at_all_shows_lines_and_no_codes(stage: Stage) -> None:
    done = shell(stage, "$EDISON run </dev/null 2>&1", TERM="dumb")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    whole(stage)


# --- 62: memory -----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_fault_62_many_cells_in_little_memory(mini: Folder) -> None:
    """Peak memory of the real command, in the long form with ten times the cells."""
    with (mini.path / "datasets/names.jsonl").open("w") as stream:
        for i in range(CELLS):
            row = {"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"}
            stream.write(json.dumps(row) + "\n")
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    mini.edit(
        "experiments/hello.yaml",
        "dataset: datasets/names.jsonl",
        f"datasets: [{{path: datasets/names.jsonl, limits: {{max_rows: {CELLS}}}}}]",
    )
    peak_file = mini.path / "peak"
    done = subprocess.run(
        [sys.executable, "-P", "-c", MEASURED, "run", "--json", "-q"],
        cwd=mini.path,
        env={**os.environ, "PEAK_FILE": str(peak_file)},
        capture_output=True,
        text=True,
        timeout=1800 if LONG else PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["cells"]["ok"] == CELLS
    peak_mb = int(peak_file.read_text()) // 1024
    figure(f"{CELLS} cells: peak {peak_mb} MB, {run['wall_s']:.1f} s")
    assert peak_mb < MOST_MB


# --- 63: nothing to do ----------------------------------------------------------------------------


def document(stage: Stage, *argv: str, code: int) -> dict[str, Any]:
    done = stage.edison(*argv, "--json")
    assert done.code == code, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_fault_63_no_cells_are_refused_in_words(stage: Stage) -> None:
    stage.folder.write("datasets/hello.jsonl", "")
    told = document(stage, "run", code=2)
    assert told["exit_code"] == 2
    assert told["error"]["message"]
    told = document(stage, "run", "--case", "nobody", code=2)
    assert told["error"]["message"]
    assert stage.server.requests == []


def test_fault_63_all_cells_skipped_is_a_verdict_of_its_own(stage: Stage) -> None:
    rows = [{"id": f"c{i}", "input": {"other": "x"}, "expected": "a"} for i in range(4)]
    rows.append({"id": "whole", "input": {"name": "Ada"}, "expected": "a"})
    stage.folder.write("datasets/hello.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    lacking = [word for i in range(4) for word in ("--case", f"c{i}")]
    told = document(stage, "run", *lacking, code=0)
    assert told["verdict"] == "skipped"
    (run,) = told["runs"]
    assert (run["verdict"], run["cells"]["skipped"], run["composite"]) == ("skipped", 4, None)
    shown = stage.edison("run", *lacking).out
    assert "nothing was graded" in shown
    assert "4 skipped" in shown
    assert stage.server.requests == []
    assert stage.edison("run", "--strict", *lacking).code == 2


def test_fault_63_all_cells_reused_is_a_run_like_any_other(stage: Stage) -> None:
    first = document(stage, "run", code=0)
    again = document(stage, "run", code=0)
    (before,), (after,) = first["runs"], again["runs"]
    assert after["calls"]["made"] == 0
    assert after["calls"]["reused"] >= 6
    assert (after["verdict"], after["composite"]) == (before["verdict"], before["composite"])
    assert again["verdict"] == first["verdict"]
    assert len(stage.server.requests) == 12


def test_fault_63_nothing_affected_is_skipped_and_said(make_stage: MakeStage) -> None:
    stage = make_stage(cases=1)
    stage.folder.git("init", "--quiet", "--initial-branch=main")
    stage.folder.git("add", "--all")
    stage.folder.git("commit", "--quiet", "--message", "start")
    told = document(stage, "run", "--changed-since", "main", code=0)
    assert (told["verdict"], told["runs"]) == ("skipped", [])
    assert "affected" in stage.edison("run", "--changed-since", "main").err
