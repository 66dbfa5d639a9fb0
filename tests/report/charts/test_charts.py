"""Every chart: the same picture as before, labelled, escaped, allowed by a strict policy."""

from __future__ import annotations

import math
import os
from xml.etree import ElementTree as ET

import pytest

from docs.gallery import ARABIC, HEBREW, HOSTILE, LONG, charts
from edison_ci.report.charts.bars import Bar, Bars, Bin, bars, tenths
from edison_ci.report.charts.drawing import Drawing, Unit, shorten, width_of
from edison_ci.report.charts.estimates import Forest, GateLine, forest
from edison_ci.report.charts.heatmap import Field, HeatMap, heatmap
from edison_ci.report.charts.trend import (
    Happening,
    MarkKind,
    Series,
    Sparkline,
    Trend,
    TrendPoint,
    sparkline,
    trend,
)
from edison_ci.report.components import figure
from tests.report.conftest import GOLDEN

pytestmark = pytest.mark.daily

DRAWN = charts()
SVG = "{http://www.w3.org/2000/svg}"
LARGE = {"trend-many"}
"""Not kept: what tells about it are its points, which a test counts."""


def tree(drawing: Drawing) -> ET.Element:
    return ET.fromstring(drawing.svg)


def test_the_picture_is_the_same_as_before(subtests: pytest.Subtests) -> None:
    for name in sorted(set(DRAWN) - LARGE):
        with subtests.test(name=name):
            path = GOLDEN / "charts" / f"{name}.svg"
            text = str(DRAWN[name].svg).replace("><", ">\n<") + "\n"
            if os.environ.get("UPDATE_GOLDEN"):
                path.write_text(text, encoding="utf-8")
            assert path.read_text(encoding="utf-8") == text


def test_a_screen_reader_hears_a_title_and_what_it_shows(subtests: pytest.Subtests) -> None:
    for name in sorted(DRAWN):
        with subtests.test(name=name):
            root = tree(DRAWN[name])
            assert root.get("role") == "img"
            assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
            assert root[0].text
            assert root[1].text


def test_nothing_in_it_needs_more_than_a_strict_policy_allows(subtests: pytest.Subtests) -> None:
    for name in sorted(DRAWN):
        with subtests.test(name=name):
            allowed = {"svg", "title", "desc", "g", "text", "line", "path", "rect", "circle"}
            for piece in tree(DRAWN[name]).iter():
                assert piece.tag.removeprefix(SVG) in allowed
                assert not {
                    key for key in piece.attrib if key.startswith("on") or key in ("style", "href")
                }


def test_it_has_its_place_before_it_is_drawn(subtests: pytest.Subtests) -> None:
    for name in sorted(DRAWN):
        with subtests.test(name=name):
            root = tree(DRAWN[name])
            assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"


def test_marks_have_a_colour_without_the_stylesheet_too(subtests: pytest.Subtests) -> None:
    for name in sorted(DRAWN):
        with subtests.test(name=name):
            for piece in tree(DRAWN[name]).iter(f"{SVG}path"):
                assert piece.get("stroke") or piece.get("fill") == "currentColor"


def test_the_same_record_gives_the_same_picture() -> None:
    assert {name: drawing.svg for name, drawing in charts().items()} == {
        name: drawing.svg for name, drawing in DRAWN.items()
    }


def test_hostile_names_stay_text() -> None:
    svg = DRAWN["hostile"].svg
    assert "<script" not in svg
    assert "\u202e" not in svg
    assert "<script>alert(1)</script>" in "".join(tree(DRAWN["hostile"]).itertext())
    assert "<script" not in figure(DRAWN["hostile"])
    assert "alert(1)" in HOSTILE


def test_the_table_has_a_cell_for_each_column(subtests: pytest.Subtests) -> None:
    for name in sorted(DRAWN):
        with subtests.test(name=name):
            table = DRAWN[name].table
            assert {len(row) for row in table.rows} <= {len(table.columns)}


def test_the_table_says_what_the_picture_has_no_room_for() -> None:
    assert any(row[0] == LONG for row in DRAWN["pareto"].table.rows)
    assert LONG in DRAWN["heatmap"].table.rows[3][0]
    assert len(DRAWN["trend-many"].table.rows) == 1000


def test_a_label_that_is_cut_is_whole_when_pointed_at() -> None:
    texts = [t for t in tree(DRAWN["bars"]).iter(f"{SVG}text") if t.find(f"{SVG}title") is not None]
    assert [title.text for t in texts if (title := t.find(f"{SVG}title")) is not None] == [LONG]


def test_labels_from_right_to_left_start_on_their_right() -> None:
    (label,) = (t for t in tree(DRAWN["heatmap"]).iter(f"{SVG}text") if t.text == ARABIC)
    assert (label.get("direction"), label.get("text-anchor")) == ("rtl", None)
    assert HEBREW in "".join(tree(DRAWN["bars"]).itertext())


# --- single charts --------------------------------------------------------------------------------


def test_a_missing_value_is_a_gap_and_not_a_line() -> None:
    moments = tuple(
        TrendPoint(i, str(i), value) for i, value in enumerate((0.1, 0.2, math.nan, 0.4, 0.5))
    )
    svg = trend(Trend("t", (Series("a", moments),))).svg
    assert svg.count('class="c-line c-s1"') == 2
    assert svg.count("<circle") == 4


def test_what_happened_is_a_line_with_its_letter() -> None:
    moments = tuple(TrendPoint(i, str(i), 0.5) for i in range(4))
    happened = (
        Happening(1.0, MarkKind.PROMPT, "day 1, p.md"),
        Happening(1.0, MarkKind.ALERT, "day 1, drop"),
        Happening(2.0, MarkKind.MODEL, "day 2, small"),
    )
    drawn = trend(Trend("t", (Series("a", moments),), happenings=happened))
    lines = [g for g in tree(drawn).iter(f"{SVG}g") if g.find(f"{SVG}line") is not None]
    marked = [g for g in lines if "c-event" in (g.find(f"{SVG}line").get("class") or "")]  # type: ignore[union-attr]  # found above
    assert [g.find(f"{SVG}text").text for g in marked] == ["P!", "M"]  # type: ignore[union-attr]
    assert [g.find(f"{SVG}title").text for g in marked] == [  # type: ignore[union-attr]
        "new prompt version: day 1, p.md; alert opened: day 1, drop",
        "model changed: day 2, small",
    ]
    assert drawn.note == "P: new prompt version; M: model changed; !: alert opened."


def test_a_forecast_is_a_band_beyond_the_last_point() -> None:
    moments = tuple(TrendPoint(i, str(i), 0.9 - 0.01 * i) for i in range(4))
    ahead = tuple(TrendPoint(3 + i, f"+{i}", 0.87 - 0.01 * i, 0.8, 0.9) for i in range(3))
    drawn = trend(Trend("t", (Series("a", moments),), ahead=ahead))
    assert drawn.svg.count("c-band") == 1
    assert "Forecast: +2: 85" in drawn.svg
    without = trend(Trend("t", (Series("a", moments),)))
    assert "c-band" not in without.svg and without.note == ""


def test_a_thousand_runs_are_few_points() -> None:
    drawn = DRAWN["trend-many"]
    assert len(drawn.svg) < 30_000
    assert "mean of up to 5" in drawn.note
    assert "1,000 measurements" in drawn.svg


def test_an_axis_never_makes_noise_look_like_a_movement() -> None:
    moments = tuple(TrendPoint(i, str(i), 0.7 + 0.001 * i) for i in range(4))
    ys = [
        float(circle.get("cy") or 0)
        for circle in tree(trend(Trend("t", (Series("a", moments),)))).iter(f"{SVG}circle")
    ]
    assert max(ys) - min(ys) < 20


def test_counts_lie_in_bins_of_one_width() -> None:
    found = tenths([1, 1, 0, 2, 0, 0, 0, 1, 0, 1])
    assert found[0] == Bin(0.0, 0.1, 1)
    assert found[-1] == Bin(0.9, 1.0, 1)


def test_what_is_missing_in_a_grid_is_hatched_and_no_low_value() -> None:
    chart = HeatMap("g", ("a", "b"), (("x", (Field(0.0), None)),))
    drawn = heatmap(chart)
    assert drawn.svg.count(" c-h0") == 1
    assert drawn.svg.count("c-missing") == 1
    assert "x, b: not measured" in drawn.svg


def test_each_place_of_a_grid_prints_its_number() -> None:
    words = [t.text for t in tree(DRAWN["heatmap"]).iter(f"{SVG}text")]
    assert {"82.0", "35.0", "5.0", "97.0"} <= set(words)


def test_parts_of_a_bar_differ_in_strokes_and_not_only_in_colour() -> None:
    drawn = bars(Bars("b", (Bar("x", (1e6, 1e6)),), parts=("p", "q")))
    assert drawn.svg.count("c-hatch") == 2  # in the bar and in the legend


def test_an_unknown_amount_is_not_drawn_as_nothing() -> None:
    drawn = bars(Bars("b", (Bar("x", (None,)), Bar("y", (5e6,)))))
    assert ("x", "-") in drawn.table.rows
    assert drawn.svg.count("<rect") == 1


@pytest.mark.parametrize(
    ("verdict", "shape"),
    [("pass", "circle"), ("fail", "path"), ("inconclusive", "path"), ("skipped", "path")],
)
def test_each_verdict_has_a_word_and_a_shape(verdict: str, shape: str) -> None:
    drawn = forest(Forest("f", (GateLine("gate", verdict, 0.1, 0.0, 0.2, -0.1),)))
    words = [t.text for t in tree(drawn).iter(f"{SVG}text")]
    assert verdict in words
    marks = [p for p in tree(drawn).iter(f"{SVG}{shape}") if "c-mark" in (p.get("class") or "")]
    assert len(marks) == 1


def test_a_gate_on_costs_refuses_what_is_above() -> None:
    def strokes(above: bool) -> str:
        line = GateLine("g", "pass", 0.0, -0.05, 0.05, 0.1 if not above else -0.1, above=above)
        drawn = forest(Forest("f", (line,)))
        (path,) = (p for p in tree(drawn).iter(f"{SVG}path") if p.get("class") == "c-refused")
        return path.get("d") or ""

    def start(d: str) -> float:
        return float(d[1:].split(" ")[0])

    assert start(strokes(above=True)) < start(strokes(above=False))


def test_a_sparkline_shows_the_last_values() -> None:
    drawn = sparkline(Sparkline("s", tuple(i / 200 for i in range(200)), Unit.POINTS))
    assert "200" in drawn.table.rows[-1][0]
    assert "60 measurements, last 99.5" in drawn.svg


# --- texts that fit -------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["model", LONG, HEBREW, "日本語のとても長い名前です" * 3, ""])
def test_a_text_fits_its_room(words: str) -> None:
    shown = shorten(words, 80)
    assert width_of(shown) <= 80
    assert shown == words or shown.endswith("\u2026")
