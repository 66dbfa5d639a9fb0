"""Components: what is in their markup, for eyes and for ears."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from docs.gallery import HEBREW, charts, page
from edison_ci.report import components as ui

pytestmark = pytest.mark.daily


def words(markup: str) -> str:
    return "".join(ET.fromstring(markup).itertext())


def test_a_status_is_a_word_with_a_shape(subtests: pytest.Subtests) -> None:
    for word in ui.STATUSES:
        with subtests.test(word=word):
            made = ui.badge(word)
            assert words(made) == word
            assert made.count("<path") == 1


def test_shapes_tell_the_verdicts_apart() -> None:
    verdicts = ("pass", "fail", "inconclusive", "skipped", "error")
    assert len({ui.status_of(word).shape for word in verdicts}) == len(verdicts)


def test_an_unknown_status_is_shown_as_it_is() -> None:
    assert words(ui.badge("<odd>")) == "<odd>"


def test_an_outcome_says_its_word_to_those_who_hear() -> None:
    assert words(ui.outcome("failed", "20.0")) == "20.0 failed"


def test_a_chart_has_its_data_behind_it() -> None:
    made = ui.figure(charts()["forest"])
    assert "<details><summary>Data</summary>" in made
    assert HEBREW in made[made.index("<details>") :]


def test_a_chart_without_data_has_no_empty_table() -> None:
    assert "<table" not in ui.figure(charts()["trend-none"])


def test_a_diff_has_signs_and_the_numbers_of_lines() -> None:
    made = str(ui.diff_view("a\nb\nc", "a\nB\nc"))
    rows = [words(row.replace("&", "")) for row in made.split("<tr")[1:] for row in [f"<tr{row}"]
            for row in [row[: row.index("</tr>") + 5]]]  # fmt: skip
    assert rows == ["lines 1 to 3", "11 a", "2-removedb", "2+addedB", "33 c"]


def test_what_hides_in_a_text_is_shown_and_joiners_stay() -> None:
    made = ui.text_box("a\u202eb\x00c \u0645\u06cc\u200c\u062e")
    assert "\\u{202e}" in made
    assert "\\u{0}" in made
    assert "\u200c" in made
    assert 'dir="auto"' in made


def test_an_empty_text_is_said() -> None:
    assert words(ui.text_box(" \n")) == "(empty)"


@pytest.mark.parametrize("text", ["a" * 5_001, "line\n" * 61])
def test_a_long_text_is_folded_and_says_that_there_is_more(text: str) -> None:
    assert f"Show all {len(text):,} characters" in words(ui.text_box(text))
    assert text in ui.text_box(text)
    assert "<details" not in ui.text_box(text[:250])


def test_a_pager_says_where_one_is() -> None:
    made = ui.pager(range(20, 40), 37, previous="?page=1", following=None)
    assert "21 to 37 of 37" in made
    assert made.count("<a ") == 1
    assert 'aria-disabled="true"' in made


def test_the_gallery_shows_every_status_and_every_chart() -> None:
    shown = page()
    for word in ui.STATUSES:
        assert f">{word}</span>" in shown
    for name in charts():
        assert f'id="{name}"' in shown or name.startswith(("sparkline", "interval"))
