"""Repeat the tests, and count which of them fail now and then.

    python -m tests.repeat N [ARGUMENTS OF PYTEST]

With `--tier daily` each repetition is what `make test` runs. Each has another seed of hashes and
the files of tests in another order, both of its number, so that a failure can be repeated:
`PYTHONHASHSEED=2 REPETITION=2 pytest -p tests.repeat ...`. The exit code is 1 if a test failed, and
that of pytest if it could not run them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

REPETITION = "REPETITION"
"""Variable with the number of a repetition."""
USUAL = ("-n", "3", "--dist", "worksteal")
"""Arguments of `make test`; a later `-n` counts more."""
_RAN = (0, 1)
"""Exit codes of pytest after it ran the tests, whether or not they passed."""


@dataclass(frozen=True)
class Report:
    """How the tests of one repetition ended."""

    passed: int
    skipped: int
    failed: tuple[str, ...]
    """Ids of the tests that failed, also while they were set up or torn down."""
    seconds: float


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.repeat", usage="%(prog)s N [ARGUMENTS OF PYTEST]")
    parser.add_argument("count", type=int)
    asked, arguments = parser.parse_known_args(argv)
    failures: dict[str, list[int]] = defaultdict(list)
    done = 0
    for number in range(1, asked.count + 1):
        code, report = repetition(number, arguments)
        if report is None:
            tell(f"repetition {number}: pytest ended with {code}, so the others are left out")
            break
        done = number
        tell(
            f"repetition {number} of {asked.count}: {report.passed:,} passed, {len(report.failed)} "
            f"failed, {report.skipped} skipped, {report.seconds:.0f} s"
        )
        for test in report.failed:
            failures[test].append(number)
    tell(summary(failures, done))
    if done < asked.count:
        return code
    return 1 if failures else 0


def repetition(number: int, arguments: Sequence[str]) -> tuple[int, Report | None]:
    """Run the tests once; return the exit code, and no report if they did not run."""
    with tempfile.TemporaryDirectory(prefix="edison-repeat-") as folder:
        file = Path(folder) / "junit.xml"
        reporting = ("-p", "tests.repeat", f"--junitxml={file}", "-o", "junit_family=xunit1")
        command = [sys.executable, "-m", "pytest", *USUAL, *reporting, *arguments]
        environment = {**os.environ, "PYTHONHASHSEED": str(number), REPETITION: str(number)}
        code = subprocess.run(command, env=environment, check=False).returncode
        return code, read_report(file) if code in _RAN else None


def read_report(file: Path) -> Report:
    """Return what a JUnit file of pytest says."""
    (suite,) = ElementTree.parse(file).getroot().iter("testsuite")
    outcomes: dict[str, set[str]] = defaultdict(set)
    for case in suite.iter("testcase"):
        outcomes[_test_id(case)].update(part.tag for part in case)
    failed = tuple(test for test, parts in outcomes.items() if parts & {"failure", "error"})
    skipped = sum("skipped" in parts for test, parts in outcomes.items() if test not in failed)
    passed = len(outcomes) - len(failed) - skipped
    return Report(passed, skipped, failed, float(suite.get("time", "0")))


def _test_id(case: ElementTree.Element) -> str:
    """Return the id by which pytest runs a test."""
    file, name = case.get("file", ""), case.get("name", "")
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".").split(".")
    return "::".join(filter(None, (file, *classes, name)))


def summary(failures: dict[str, list[int]], count: int) -> str:
    """Return a table of the tests that failed, most frequent first."""
    if not failures:
        return f"no test failed in {count} repetition{'s' * (count != 1)}"
    rows = sorted(failures.items(), key=lambda row: (-len(row[1]), row[0]))
    lines = [
        f"  {len(numbers)} of {count}  {test}  (repetition {', '.join(map(str, numbers))})"
        for test, numbers in rows
    ]
    return "\n".join(["failed at least once:", *lines])


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files come in the order of this repetition; what a file shares is still made once."""
    number = os.environ.get(REPETITION)
    if number is not None:
        files = sorted({item.path for item in items})
        Random(number).shuffle(files)
        places = {path: place for place, path in enumerate(files)}
        items.sort(key=lambda item: places[item.path])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
