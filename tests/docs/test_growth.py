"""The page of growth is drawn from its record, and the record has what the page promises."""

from __future__ import annotations

import json

import pytest

from benchmarks.scale import PAGE, RECORD, chart, page

pytestmark = pytest.mark.daily


def test_the_page_is_what_the_record_says() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(record)
    cells = record["parts"]["cells"]
    assert [row["cells"] for row in cells] == [1_000, 10_000, 100_000, 1_000_000]
    assert all(row["alone_mb"] <= 110 for row in cells[:3])
    assert all(row["peak_mb"] <= 160 for row in cells)
    assert [row["workers"] for row in record["parts"]["workers"]] == [1, 2, 4, 8, 16]
    assert max(row["runs"] for row in record["parts"]["together"]) == 100
    assert max(row["experiments"] for row in record["parts"]["experiments"]) == 1_000


def test_bars_are_as_long_as_their_values() -> None:
    lines = chart("time", [("1", 1.0, "1 s"), ("10", 4.0, "4 s")])
    assert lines[2:4] == [f" 1  {'█' * 10} 1 s", f"10  {'█' * 40} 4 s"]
