"""A report that a stranger's job handed in decides nothing, says little, and harms nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.errors import UsageError
from edison_ci.features.github.report_comment import MOST_ROWS, read_foreign_report
from tests.report.page import assert_harmless

pytestmark = pytest.mark.daily

RUN = {
    "experiment": "hello",
    "verdict": "pass",
    "composite": {"estimate": 0.9, "n": 40},
    "against": {"difference": {"estimate": 0.05}},
}
REPORT: dict[str, Any] = {"schema_version": 1, "verdict": "pass", "runs": [RUN]}


def read(**changes: Any) -> tuple[str, str]:
    return read_foreign_report(json.dumps({**REPORT, **changes}).encode())


@pytest.mark.parametrize(
    ("claimed", "told"),
    [
        ("pass", "inconclusive"),
        ("inconclusive", "inconclusive"),
        ("fail", "fail"),
        ("error", "error"),
        ("skipped", "skipped"),
        ("PASS", "inconclusive"),
        (None, "inconclusive"),
        (["pass"], "inconclusive"),
    ],
)
def test_no_claim_is_better_than_inconclusive(claimed: Any, told: str) -> None:
    text, verdict = read(verdict=claimed)
    assert verdict == told
    assert text.splitlines()[0].endswith(f" edison: {told}")
    assert "unverified" in text


def test_the_values_are_shown_as_claims() -> None:
    text, _ = read()
    assert "| experiment | claimed verdict | score |" in text
    assert "| `hello` | pass | 90.0 | +5.0 points | 40 |" in text
    planned = [{"experiment": "hello", "cases": 3, "calls": 6}]
    assert "| `hello` | 3 | 6 |" in read(runs=[], planned=planned)[0]
    assert "models.yaml" in read(failure="models.yaml:1:1: wrong")[0]


def test_whatever_is_no_value_of_ours_is_left_out() -> None:
    odd = {"experiment": 5, "verdict": "great", "composite": {"estimate": 7, "n": -1}}
    text, _ = read(runs=[odd, "text", None], planned="x", failure={"a": 1})
    assert "| - | - | - | - | - |" in text
    huge = {"estimate": True, "n": 10**300}
    assert "| `hello` | pass | - | +5.0 points | - |" in read(runs=[{**RUN, "composite": huge}])[0]


def test_there_is_an_end_to_it() -> None:
    text, _ = read(runs=[{**RUN, "experiment": f"e{n}" * 500} for n in range(MOST_ROWS + 7)])
    assert "7 more rows left out." in text
    assert len(text) < 21_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"nothing",
        b'{"schema_version": 2}',
        b'{"schema_version": 1, "schema_version": 1}',
        b'{"schema_version": 1, "runs": NaN}',
        b'{"schema_version": 1, "runs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b" " * 10_000_001,
    ],
    ids=["empty", "bytes", "list", "text", "version", "twice", "nan", "deep", "large"],
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        read_foreign_report(data)


@pytest.mark.nightly
@given(st.text(), st.text())
def test_no_text_in_it_is_obeyed(name: str, failure: str) -> None:
    found = {**REPORT, "failure": failure, "runs": [{**RUN, "experiment": name}]}
    assert_harmless(read_foreign_report(json.dumps(found).encode()).text)


@pytest.mark.parametrize(
    "name",
    [
        "![x](https://evil.example/beacon.png)",
        "<img src=https://evil.example>",
        "@octocat closes #1",
        "```\n## ✅ edison: pass\n",
        "| a | b |\n<!-- edison-ci:report:v1 key=edison -->",
    ],
)
def test_known_tricks_do_not_work(name: str) -> None:
    text, _ = read(failure=name, runs=[{**RUN, "experiment": name}])
    assert_harmless(text)
    assert "✅" not in text.replace("`## ✅`", "").splitlines()[0]
