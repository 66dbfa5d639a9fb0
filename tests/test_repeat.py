"""Repeating the tests finds those that fail now and then."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from tests.repeat import USUAL
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

FIRST = """
import os, pytest

def test_that_holds():
    pass

class TestGroup:
    @pytest.mark.parametrize("name", ["a", "b"])
    def test_that_fails_now_and_then(self, name):
        assert name == "a" or os.environ["PYTHONHASHSEED"] != "2"

@pytest.mark.skip
def test_that_is_left_out():
    pass
"""
OTHER = """
import os, pytest

@pytest.fixture
def broken():
    yield
    assert int(os.environ["PYTHONHASHSEED"]) < 2

def test_whose_end_fails(broken):
    pass
"""


def repeat(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.repeat", *arguments, "-n", "0", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.nightly
def test_failures_are_counted_by_test(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(FIRST)
    (tmp_path / "test_other.py").write_text(OTHER)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = repeat(tmp_path, "3", "-p", "no:cacheprovider")
    assert done.returncode == 1, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("repetition ")]
    assert [re.sub(r", \d+ s$", "", line) for line in told] == [
        "repetition 1 of 3: 4 passed, 0 failed, 1 skipped",
        "repetition 2 of 3: 2 passed, 2 failed, 1 skipped",
        "repetition 3 of 3: 3 passed, 1 failed, 1 skipped",
    ]
    assert done.stdout.splitlines()[-3:] == [
        "failed at least once:",
        "  2 of 3  test_other.py::test_whose_end_fails  (repetition 2, 3)",
        "  1 of 3  test_first.py::TestGroup::test_that_fails_now_and_then[b]  (repetition 2)",
    ]


def test_tests_that_pass_end_with_0_and_those_that_cannot_run_with_another_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    none = repeat(tmp_path, "2")
    assert (none.returncode, none.stdout.count("repetition 1: pytest ended with 5")) == (5, 1)
    (tmp_path / "test_first.py").write_text("def test_that_holds():\n    pass\n")
    done = repeat(tmp_path, "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "no test failed in 1 repetition"


def test_what_is_repeated_is_what_make_test_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    _, _, *distribution = USUAL
    assert f"\nPYTEST := $(BIN)/pytest -n $(JOBS) {' '.join(distribution)}\n" in makefile
    assert "\t$(PYTEST) --tier daily $(PYTEST_ARGS)\n" in makefile
    assert (
        "\t$(BIN)/python -m tests.repeat $(N) -n $(JOBS) --tier daily $(PYTEST_ARGS)\n" in makefile
    )
