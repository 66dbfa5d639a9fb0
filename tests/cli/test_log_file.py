"""Logs name the run and the cell, and a log file is bounded, shared and without secrets."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.cli import log_file
from edison_ci.cli.log_file import KEPT, LogFile
from edison_ci.errors import UsageError
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

SECRET = "sk-abcdefghijklmnopqrstuvwxyz123456"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def stored(folder: Folder, sql: str) -> set[str]:
    with opened(folder.path / ".edison/results.db") as connection:
        return {value for (value,) in connection.execute(sql)}


def test_records_of_a_run_name_the_run_and_the_cell(mini: Folder) -> None:
    done = mini.edison("run", "-vv", "--log-json")
    assert done.code == 0
    records = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    (run,) = stored(mini, "select id from run")
    begun, ended = (r for r in records if r["message"] in ("run begins", "run ended"))
    assert (begun["run_id"], begun["experiment"]) == (run, "hello")
    assert (ended["run_id"], ended["status"]) == (run, "COMPLETED")
    cells = [record for record in records if record["message"] == "cell"]
    assert {cell["cell_id"] for cell in cells} == stored(mini, "select id from cell")
    assert {cell["run_id"] for cell in cells} == {run}
    assert "cell_id" not in begun


def test_the_file_has_json_lines_whatever_stderr_has(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "run", "--log-file", "logs/edison.log")
    assert done.code == 0
    assert "run begins" not in done.err, "stderr stays as it was"
    path = mini.path / "logs/edison.log"
    assert [r["message"] for r in read(path)] == ["project", "run begins", "run ended"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    edison(mini, "run", "-vv", "--log-file", "logs/edison.log")
    assert "cell" in {record["message"] for record in read(path)}, "and more on request"


def test_a_file_that_cannot_be_written_is_refused_at_once(edison: Edison, mini: Folder) -> None:
    mini.write("taken", "a file")
    done = edison(mini, "validate", "--log-file", "taken/edison.log")
    assert done.code == 2
    assert "cannot write the log file" in done.err


# --- rotation -------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "MOST_BYTES", 1_000)


def record(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelname": "INFO"})


@pytest.mark.usefixtures("small")
def test_files_are_set_aside_by_size_and_the_oldest_go(tmp_path: Path) -> None:
    handler = LogFile(tmp_path / "edison.log")
    for number in range(100):
        handler.emit(record(f"{number:03d} {'x' * 95}"))
    sizes = [(tmp_path / f"edison.log.{n}").stat().st_size for n in range(1, KEPT + 1)]
    assert sizes == [1_000] * KEPT
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == [
        "edison.log", *(f"edison.log.{n}" for n in range(1, KEPT + 1)),
    ]  # fmt: skip
    assert (tmp_path / "edison.log").read_text().splitlines()[-1].startswith("099")
    assert (tmp_path / "edison.log.1").read_text().splitlines()[-1].startswith("089")


def test_files_are_kept_for_days_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "MOST_BYTES", 600)
    path = tmp_path / "edison.log"
    handler = LogFile(path, days=3)
    now = time.time()
    for age in (5, 2, 1):
        for number in range(15 if age == 2 else 1):
            handler.emit(record(f"{age} days ago, {number:03d} {'x' * 300}"))
        for file in tmp_path.glob("edison.log*"):
            if f"{age} days ago" in file.read_text():
                os.utime(file, (now - age * 86_400,) * 2)
    handler.emit(record("today"))
    kept = {file.name: file.read_text() for file in tmp_path.glob("edison.log*")}
    text = "".join(kept.values())
    assert "5 days ago" not in text
    assert all(f"2 days ago, {number:03d}" in text for number in range(15))
    assert len(kept) > KEPT + 1
    assert "today" in kept["edison.log"]
    assert "days ago" not in kept["edison.log"], "each day has a file of its own"


WRITER = """
import logging, sys
from pathlib import Path
from edison_ci.cli import log_file
log_file.MOST_BYTES, log_file.KEPT = 20_000, 50
handler = log_file.LogFile(Path(sys.argv[1]))
for number in range(300):
    handler.emit(logging.makeLogRecord({"msg": f"{sys.argv[2]}-{number} {'x' * 80}"}))
"""


def test_processes_that_share_a_file_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "edison.log"
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "abc"
    ]
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
    files = [each for each in tmp_path.iterdir() if each.suffix != ".lock"]
    assert len(files) > 3, "it was rotated meanwhile"
    lines = [line for each in files for line in each.read_text().splitlines()]
    assert {line.split()[0] for line in lines} == {f"{n}-{i}" for n in "abc" for i in range(300)}
    assert len(lines) == 900


def test_a_full_disk_stops_nothing_and_is_said_once(
    mini: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = LogFile(mini.path / "edison.log")

    def full(descriptor: int, line: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    for _ in range(3):
        handler.emit(record("lost"))
    monkeypatch.undo()
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_secrets_stay_out_of_the_file(edison: Edison, mini: Folder) -> None:
    edison(mini, "validate", "--log-file", "edison.log")
    logging.getLogger("edison_ci").warning("refused", extra={"reason": f"the key {SECRET}"})
    text = (mini.path / "edison.log").read_text()
    assert "refused" in text
    assert SECRET not in text


def test_a_folder_is_no_log_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the log file"):
        LogFile(tmp_path)
