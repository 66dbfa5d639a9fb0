"""The order, the ratios, the memory and the tables of `make bench-against`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.against import (
    COSTLY_ROWS,
    ROWS,
    Alternation,
    Comparison,
    Figure,
    Quartiles,
    Side,
    SidePages,
    Trial,
    floor_line,
    in_order,
    module_table,
    quartiles,
    rows_of,
    table,
    unmeasured_pages,
)
from benchmarks.measure import highest_mb, resident_mb

SIDES = (Side("ours", "new", Path("head")), Side("theirs", "old", Path("other")))
WALL = Figure(1, "wall", "{:.2f} s")
MEMORY = Figure(11, "memory", "{:.0f} MB")


def test_each_side_is_first_as_often_as_the_other() -> None:
    order = "".join(side.name[0] for n in range(4) for side in in_order(SIDES, n))
    assert order == "ottootto"


def test_quartiles_of_one_value_are_that_value() -> None:
    assert quartiles([3.0]) == Quartiles(3, 3, 3)
    assert quartiles([5, 1, 4, 2, 3]) == Quartiles(2, 3, 4)


def test_the_ratio_is_the_median_of_neighbours_not_the_ratio_of_medians() -> None:
    comparison = Comparison(WALL, ours=[1, 20, 3], theirs=[2, 10, 4])
    assert comparison.ratios == [0.5, 2, 0.75]
    assert table([comparison], SIDES)[-1] == (
        "| 1 | wall | 3.00 s | 4.00 s | 0.750 | 0.625 to 1.375 | 3 |"
    )


def test_trials_alternate_over_rounds_and_the_first_values_do_not_count() -> None:
    calls: list[str] = []

    def measure(side: Side) -> tuple[float, float]:
        calls.append(side.name[0])
        return len(calls), 10.0 * len(calls)

    alternation = Alternation(SIDES, [Trial((WALL, MEMORY), measure, pairs=3)])
    alternation.warm_up()
    alternation.round()
    alternation.round()
    assert "".join(calls) == "ot" + "otto" * 3
    wall, memory = alternation.comparisons.values()
    assert (wall.ours, wall.theirs) == ([3, 6, 7, 10, 11, 14], [4, 5, 8, 9, 12, 13])
    assert memory.ours[0] == 30
    assert alternation.failure_lines() == []


def test_what_one_side_cannot_do_is_shown_with_its_error() -> None:
    def measure(side: Side) -> tuple[float]:
        if side.name == "theirs":
            raise SystemExit("status failed:\nno such command")
        return (2.0,)

    alternation = Alternation(SIDES, [Trial((WALL,), measure)])
    alternation.warm_up()
    alternation.round()
    lines = table([*alternation.comparisons.values()], SIDES)
    assert lines[-1] == "| 1 | wall | 2.00 s | failed |  |  | 0 |"
    assert alternation.failure_lines() == [
        "Row 1, wall, failed with old: status failed: no such command"
    ]


def test_pages_of_one_side_are_named() -> None:
    root = Path()
    pages = {
        "ours": SidePages(root, {"home": "/", "models": "/models"}),
        "theirs": SidePages(root, {"home": "/"}),
    }
    assert unmeasured_pages(pages, SIDES) == ["Row 16, only in new and not measured: models."]


def test_modules_and_the_floor_have_their_lines() -> None:
    counts = [["288", "170", "171", "84", "286"], ["204", "129", "failed", "69", "201"]]
    assert module_table(counts, SIDES)[2:5] == [
        "| `run` | 288 | 204 |",
        "| `plan` | 170 | 129 |",
        "| `status` | 171 | failed |",
    ]
    assert "took 2.50 s for the calls of row 1: 1.25 of the ideal" in floor_line([2.4, 2.5, 2.6])


def test_rows_are_chosen_by_number() -> None:
    assert rows_of("1,16") == {1, 16}
    assert COSTLY_ROWS.issubset(ROWS)
    with pytest.raises(ValueError, match="no such row"):
        rows_of("1,3")


TREE = """
import os, subprocess, sys
room = bytearray(40_000_000)
if (fork := os.fork()) == 0:
    sys.stdin.read()
    os._exit(0)
child = "room = bytearray(40_000_000); print(flush=True); input()"
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
program = subprocess.Popen([sys.executable, "-c", child], **pipes)
program.stdout.readline()
print(flush=True)
sys.stdin.read()
program.communicate(b"\\n")
os.waitpid(fork, 0)
"""
"""A process with a child that is another program, and one that is not."""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of others is read from /proc")
def test_memory_of_a_tree_counts_a_fork_once_it_is_another_program() -> None:
    command = [sys.executable, "-c", TREE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert 80 < resident_mb(process.pid) < 120
        assert 40 < highest_mb(process.pid) < 80
        process.communicate()
    assert process.returncode == 0
    assert resident_mb(process.pid) == 0
