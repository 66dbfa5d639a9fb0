"""A document says the same in Markdown, in HTML and on a terminal."""

from __future__ import annotations

import pytest

from edison_ci.report import components, markdown
from edison_ci.report.document import (
    Bullets,
    Code,
    Column,
    Estimate,
    Name,
    Notice,
    Section,
    Sentence,
    Status,
    Table,
    change_of,
    latency_of,
    plain,
    plain_rows,
    rate_of,
    score_of,
)
from edison_ci.report.html import document_page
from edison_ci.stats.intervals import Interval

pytestmark = pytest.mark.daily

NASTY = "a`b <img src=x> | c"
SCORE = Interval(0.726, 0.666, 0.779, 40, "wilson")
ALONE = Interval(0.5, None, None, 1, "none")
TABLE = Table(
    (
        Column("case"),
        Column("change"),
        Column("base", numeric=True, detail=True),
        Column("score", numeric=True, split=("score", "95% CI")),
    ),
    ((Name(NASTY), Status("newly failing"), "81.4", score_of(SCORE)),),
)


def test_a_name_can_add_no_mark_anywhere() -> None:
    assert markdown.inline(Name(NASTY)) == "`` a`b <img src=x> | c ``"
    assert components.inline(Name(NASTY)) == "<bdi>a`b &lt;img src=x&gt; | c</bdi>"
    assert plain(("with ", Name(NASTY))) == f"with {NASTY}"


def test_a_sentence_quotes_names_between_backticks() -> None:
    text = Sentence("Failed gates: `a<b`.")
    assert markdown.inline(text) == "Failed gates: `a<b`."
    assert components.inline(text) == "Failed gates: <code>a&lt;b</code>."


def test_an_estimate_takes_two_cells_where_there_is_room() -> None:
    page = components.data_table(TABLE)
    assert '<th scope="col" class="ci">95% CI</th>' in page
    assert '<td class="num">72.6</td><td class="ci">66.6 to 77.9</td>' in page
    rows = markdown.fit([Section("Changes", table=TABLE)])
    assert "### Changes" in rows
    assert "| case | change | score |" in rows, "details are left out"
    assert "| newly failing | 72.6 (66.6 to 77.9) |" in rows
    assert plain_rows(TABLE.brief)[1][1:] == ("newly failing", "72.6 (66.6 to 77.9)")
    assert TABLE.numeric == [2, 3]


def test_an_estimate_says_what_is_missing() -> None:
    assert score_of(None) == rate_of(None) == Estimate("-", "", "-")
    assert score_of(ALONE) == Estimate(
        "50.0", "1 case: no error bar", "50.0 (1 case: no error bar)"
    )
    assert rate_of(ALONE) == Estimate("50%", "1 case: no error bar", "50% of 1")
    assert change_of(None, None, None) == Estimate("-", "-", "-")
    assert change_of(0.031, 0.004, 0.058).text == "+3.1 points (+0.4 to +5.8)"
    assert latency_of(840, None) == Estimate("840 ms", "-", "840 ms")


def test_a_document_has_the_same_parts_in_each_medium() -> None:
    sections = [
        Section(blocks=(Notice("Simulated", "These numbers are no evidence."),)),
        Section("Steps", (Bullets((Sentence("Run `edison`."), "Then wait.")),), level=2),
        Section("The change", (Code("-old\n+new", "diff"),), TABLE, level=2),
    ]
    text = markdown.document_text("Loop of hello", sections)
    assert text.startswith("# Loop of hello\n\n> **Simulated.** These numbers are no evidence.\n")
    assert "## Steps\n\n- Run `edison`.\n- Then wait.\n" in text
    assert "```diff\n-old\n+new\n```" in text
    page = document_page("Loop of hello", sections)
    assert "<strong>Simulated.</strong> These numbers are no evidence." in page
    assert "<li>Run <code>edison</code>.</li><li>Then wait.</li>" in page
    assert "-old\n+new</pre>" in page
