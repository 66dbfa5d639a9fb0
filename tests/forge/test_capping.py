"""Whatever is cut stays within the limit and leaves nothing open."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edison_ci.forge.capping import MAX_BODY_CHARS, capped, length


def test_a_text_that_fits_is_not_touched() -> None:
    text = "x" * MAX_BODY_CHARS
    assert capped(text) == text


def test_rows_are_counted_and_cut_between_lines() -> None:
    rows = [f"| case {number} | {'x' * 80} |" for number in range(1000)]
    cut = capped("\n".join(["| case | why |", "| --- | --- |", *rows]))
    kept = [line for line in cut.splitlines() if line.startswith("| case ")][1:]
    assert kept == rows[: len(kept)]
    assert cut.splitlines()[-1] == f"… {1000 - len(kept)} more rows"


def test_emoji_count_as_two() -> None:
    assert length("🙂") == 2
    assert length(capped("🙂\n" * 50_000)) <= MAX_BODY_CHARS


@pytest.mark.parametrize("fence", ["```", "~~~~", "`````text"])
def test_code_and_folds_are_closed(fence: str) -> None:
    head = f"<details><summary>x</summary>\n\n{fence}\n"
    cut = capped(head + "line\n" * 20_000, elsewhere="the artifact")
    closing = re.match(r"[`~]+", fence)
    assert closing is not None
    left = 20_000 - cut.count("line\n") + 1
    more = f"… {left:,} more lines, see the artifact"
    assert cut.endswith(f"\n{closing[0]}\n\n</details>\n\n{more}\n")


def test_a_shorter_fence_inside_does_not_close() -> None:
    cut = capped("````\n```\n" + "x\n" * 60_000)
    assert "\n````\n\n…" in cut


def test_one_endless_line_is_left_out() -> None:
    assert capped("x" * 100_000) == "\n… 1 more lines\n"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(
            ["```", "~~~", "````", "<details>", "</details>", "text", "| row |", "🙂" * 50, "> ```"]
        ),
        max_size=200,
    ),
    st.integers(1000, 3000),
)
def test_the_limit_always_holds(lines: list[str], limit: int) -> None:
    assert length(capped("\n".join(lines), limit, elsewhere="the summary")) <= limit
