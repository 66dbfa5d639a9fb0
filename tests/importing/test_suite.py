"""Cells of __expected are assertions."""

from __future__ import annotations

from typing import Any

import pytest

from edison_ci.importing.suite import parse_assertion


@pytest.mark.parametrize(
    ("cell", "assertion"),
    [
        ("Paris", {"type": "equals", "value": "Paris"}),
        ("contains: Paris", {"type": "contains", "value": "Paris"}),
        ("not-contains:Paris", {"type": "not-contains", "value": "Paris"}),
        ("is-json", {"type": "is-json"}),
        (
            "similar(0.8): Hello there",
            {"type": "similar", "value": "Hello there", "threshold": 0.8},
        ),
        ("latency(500)", {"type": "latency", "threshold": 500.0}),
        ("grade: is kind", {"type": "llm-rubric", "value": "is kind"}),
        ("llm-rubric: a: b", {"type": "llm-rubric", "value": "a: b"}),
        ("fn: output > 1", {"type": "javascript", "value": " output > 1"}),
        ("python: x", {"type": "python", "value": " x"}),
        ("Note: this is a text", {"type": "equals", "value": "Note: this is a text"}),
        ("file://check.js", {"type": "javascript", "value": "//check.js"}),
        ("perplexity(5)", {"type": "perplexity", "threshold": 5.0}),
    ],
)
def test_a_cell_is_read_as_promptfoo_reads_it(cell: str, assertion: dict[str, Any]) -> None:
    assert parse_assertion(cell) == assertion
