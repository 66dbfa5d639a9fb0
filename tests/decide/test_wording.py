"""Sentences and their numbers stay as they are; UPDATE_GOLDEN=1 rewrites what is kept of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from docs.gates import EXAMPLES, decided

GOLDEN = Path(__file__).parent / "golden"


def rounded(value: object) -> object:
    """Return a document whose floats do not depend on the last digits of a processor."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_said_as_before(name: str) -> None:
    decision = decided(name)
    document = {
        "verdict": decision.verdict,
        "exit_code": int(decision.exit_code),
        "gates": [rounded(row.as_json()) for row in decision.rows],
    }
    text = json.dumps(document, indent=2) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_nothing_is_kept_that_no_example_says() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(EXAMPLES)
