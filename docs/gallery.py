"""Every chart and every component on one page, to look at: `make gallery`.

Nothing of it is kept. With `--shots` a headless Chromium, if there is one, takes pictures of it:
light, dark, 768 pixels wide, and as a PDF. The tests draw the same charts.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from edison_ci.report import components as ui
from edison_ci.report.charts.bars import Bar, Bars, Histogram, bars, histogram, tenths
from edison_ci.report.charts.drawing import Unit
from edison_ci.report.charts.estimates import (
    Forest,
    GateLine,
    Pareto,
    ParetoPoint,
    Range,
    forest,
    interval,
    pareto,
)
from edison_ci.report.charts.heatmap import Field, HeatMap, heatmap
from edison_ci.report.charts.trend import (
    Rule,
    Series,
    Sparkline,
    Trend,
    TrendPoint,
    sparkline,
    trend,
)
from edison_ci.report.markup import element, join

if TYPE_CHECKING:
    from edison_ci.report.charts.drawing import Drawing

STYLE = Path(__file__).parent.parent / "edison_ci" / "report" / "static" / "edison.css"
LONG = "a-very-long-model-name-with-everything[temperature=0.3,max_tokens=2048,top_p=0.95]"
HEBREW = "תשובה ללקוח (2)"
ARABIC = "الرد على العميل"
HOSTILE = "<script>alert(1)</script>\"&'\u202e]]>"


def _moments(start: float, step: float, *, many: int = 12) -> tuple[TrendPoint, ...]:
    found = []
    for i in range(many):
        value = min(max(start + step * i + 0.03 * math.sin(3 * i), 0.0), 1.0)
        half = 0.05 + 0.02 * (i % 3)
        low, high = max(value - half, 0.0), min(value + half, 1.0)
        found.append(TrendPoint(float(i), f"Nov {i + 1}", value, low, high, f"run {i + 1}"))
    return tuple(found)


def _gaps(moments: tuple[TrendPoint, ...]) -> tuple[TrendPoint, ...]:
    return tuple(
        TrendPoint(m.at, m.label, math.nan if i in (4, 5) else m.value, m.low, m.high)
        for i, m in enumerate(moments)
    )


def charts() -> dict[str, Drawing]:
    """Return charts of every kind: usual ones, and those with nothing, one, or odd values."""
    small, large = _moments(0.58, 0.018), _gaps(_moments(0.7, 0.012))
    scores = [((i * 37) % 101) / 100 for i in range(160)] + [0.8, 0.85, 0.9] * 25
    counts = [sum(min(int(score * 10), 9) == i for score in scores) for i in range(10)]
    grid = (
        ("shipping", (Field(0.82, 14), Field(0.91, 14), Field(0.4, 14, "below"))),
        ("refunds", (Field(0.35, 9, "below"), Field(0.74, 9), Field(0.66, 9))),
        (f"{ARABIC}", (Field(0.05, 2), None, Field(math.nan, 3))),
        (LONG, (Field(0.55, 21), Field(0.97, 21, "above"), Field(0.61, 21))),
    )
    lines = (
        GateLine("composite, support-reply with small", "pass", 0.021, -0.018, 0.06, -0.1),
        GateLine("composite, support-reply with large", "fail", -0.14, -0.2, -0.08, -0.1),
        GateLine(f"composite, {HEBREW}", "inconclusive", -0.04, -0.15, 0.07, -0.1),
        GateLine("criterion.Empathy, support-reply with small", "skipped", None),
    )
    levels = (
        GateLine("pass_rate, support-reply with small", "pass", 0.82, 0.71, 0.9, 0.6),
        GateLine("errors, support-reply with large", "fail", 0.31, 0.22, 0.42, 0.2, above=False),
    )
    costs = (
        Bar("small", (180_000, 42_000, 9_000)),
        Bar(LONG, (940_000, 61_000, None)),
        Bar(HEBREW, (0, 12_000, 0)),
        Bar("unknown price", (None, None, None)),
    )
    days = tuple(
        Bar(f"Nov {i + 1}", (40_000 + 9_000 * (i % 5), 12_000 + 3_000 * (i % 3))) for i in range(24)
    )
    moved = tuple(
        Bar(f"case-{i}", (change,)) for i, change in enumerate((0.4, 0.22, 0.05, -0.1, -0.35))
    )
    spots = (
        ParetoPoint("small", 90, 0.71, 0.63, 0.79, front=True),
        ParetoPoint("medium", 410, 0.84, 0.77, 0.9, front=True),
        ParetoPoint("large", 1400, 0.88, 0.81, 0.93, front=True),
        ParetoPoint("old-medium", 620, 0.75, 0.66, 0.83),
        ParetoPoint(LONG, 700, 0.755, 0.7, 0.8),
        ParetoPoint("unpriced", None, 0.9),
    )
    both = (Series("small", small), Series("large", large))
    rules = (Rule("gate", 0.6),)
    thousand = Series("nightly", _moments(0.5, 0.0004, many=1000))
    return {
        "trend": trend(Trend("Composite by run", both, rules=rules)),
        "trend-one": trend(Trend("Composite, one run", (Series("small", small[:1]),))),
        "trend-none": trend(Trend("Composite, no runs", ())),
        "trend-many": trend(Trend("Composite, 1,000 runs", (thousand,))),
        "trend-cost": trend(
            Trend(
                "Cost of a run",
                (Series("all", tuple(TrendPoint(m.at, m.label, 2e6 * (m.value or 0))
                                for m in small)),),
                Unit.DOLLARS,
            )
        ),
        "histogram": histogram(
            Histogram("Empathy", tenths(counts), mean=0.563)
        ),
        "histogram-none": histogram(Histogram("Accuracy", tenths([0] * 10))),
        "heatmap": heatmap(HeatMap("Score by tag and model", ("small", "large", LONG), grid)),
        "heatmap-none": heatmap(HeatMap("Score by tag and model", (), ())),
        "bars": bars(
            Bars("Cost by model", costs, parts=("generate", "judge", "compare"))
        ),
        "bars-days": bars(
            Bars("Cost by day", days, parts=("generate", "judge"), vertical=True)
        ),
        "bars-change": bars(Bars("Cases that moved", moved, Unit.CHANGE)),
        "bars-none": bars(Bars("Cost by model", ())),
        "pareto": pareto(Pareto("Worth and cost", spots)),
        "pareto-none": pareto(Pareto("Worth and cost", ())),
        "sparkline": sparkline(Sparkline("Composite", tuple(m.value for m in large))),
        "sparkline-one": sparkline(Sparkline("Composite", (0.7,))),
        "sparkline-none": sparkline(Sparkline("Composite", (None, math.inf))),
        "interval": interval(Range("small", 0.71, 0.63, 0.79)),
        "interval-none": interval(Range("small", None)),
        "forest": forest(Forest("Gates against the base", lines)),
        "forest-levels": forest(Forest("Gates on levels", levels, Unit.SHARE)),
        "forest-none": forest(Forest("Gates", ())),
        "hostile": bars(Bars(HOSTILE, (Bar(HOSTILE, (1.0,)),), parts=(HOSTILE,))),
    }  # fmt: skip


# --- the page -------------------------------------------------------------------------------------


def page() -> Markup:
    """Return the page with everything on it."""
    drawn = charts()
    figures = [
        element("div", ui.figure(drawing), class_="panel", id=name)
        for name, drawing in drawn.items()
        if not name.startswith(("sparkline", "interval"))
    ]
    body = join(
        [
            _top(),
            element(
                "main", _header(), _cards(drawn), _gates(drawn), _table(drawn), _controls(),
                ui.section("Texts", _texts()), ui.section("Charts", element("div", *figures,
                class_="columns")), class_="page", id="main",
            ),
            element("footer", "Nothing on this page is real.", class_="footer"),
        ]
    )  # fmt: skip
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "Gallery"),
        element("link", rel="stylesheet", href="edison.css"),
    )
    return Markup(f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n")


def _top() -> Markup:
    words = ("Experiments", "Leaderboard", "Costs", "Suggestions", "Alerts", "Audit")
    links = (
        element("li", element("a", word, href="#main", aria_current="page" if not i else None))
        for i, word in enumerate(words)
    )
    brand = element("a", "edison", href="#main", class_="brand")
    nav = element("nav", element("ul", *links, class_="nav"), aria_label="Pages of edison")
    skip = element("a", "Skip to the content", href="#main", class_="skip-link")
    inner = element("div", brand, nav, class_="topbar-inner")
    return element("header", skip, inner, class_="topbar")


def _header() -> Markup:
    title = element(
        "div", element("h1", "support-reply"), ui.badge("inconclusive", large=True),
        ui.badge("simulated", large=True),
        element("div", element("a", "Compare", href="#main", class_="button"),
                element("a", "Start a run", href="#main", class_="button button-main"),
                class_="page-actions"),
        class_="page-title",
    )  # fmt: skip
    steps = (
        element("li", element("a", "Experiments", href="#main")),
        element("li", "support-reply"),
    )
    crumbs = element("nav", element("ol", *steps), class_="crumbs", aria_label="Breadcrumbs")
    lead = element("p", "Answer customers briefly, kindly and correctly.", class_="page-lead")
    words = " ".join(("pass", "fail", "error"))
    all_badges = element("p", *(join([ui.badge(word), " "]) for word in ui.STATUSES))
    return element(
        "header", crumbs, title, lead, all_badges, class_="page-header", aria_label=words
    )


def _cards(drawn: dict[str, Drawing]) -> Markup:
    return ui.cards(
        [
            ui.Card("Composite", "71.5", "of 100", "63.1 to 78.8", drawn["sparkline"]),
            ui.Card("Change against base", "-4.0", "points", "-15.0 to +7.0"),
            ui.Card("Pass rate", "82%", "of 120", "74 to 88"),
            ui.Card("Cost", "$0.001240", note="$0.000310 saved by reuse"),
            ui.Card("Latency", "1,006", "ms", "p95 2,410 ms"),
        ]
    )


def _gates(drawn: dict[str, Drawing]) -> Markup:
    said = (
        ("pass", "composite, small", "No worse than the base: +2.1 points (-1.8 to +6.0)."),
        ("fail", "composite, large", "Worse than the base by 14.0 points (8.0 to 20.0)."),
        ("inconclusive", f"composite, {HEBREW}", "Cannot tell yet: about 140 more cases."),
    )
    rows = (
        element(
            "li", ui.badge(verdict), element("span", what, class_="what"),
            element("span", why, class_="why"),
        )
        for verdict, what, why in said
    )  # fmt: skip
    sentences = element("div", element("ul", *rows, class_="gates"), class_="panel panel-flush")
    plot = element("div", ui.figure(drawn["forest"]), class_="panel")
    return ui.section("Gates", element("div", sentences, plot, class_="stack"))


def _table(drawn: dict[str, Drawing]) -> Markup:
    head = ("prompt with model", "score", "", "", "pass rate", "cost", "p50")
    classes = (None, "num", "ci", None, "num", "num", "num")
    cells = (
        element("th", words or element("span", "interval", class_="visually-hidden"), scope="col",
                class_=class_)
        for words, class_ in zip(head, classes, strict=True)
    )  # fmt: skip
    rows = (
        ("support-reply, small", "71.5", "63.1 to 78.8", "82%", "$0.000090", "201 ms"),
        ("support-reply, large", "8.0", "1.2 to 19.0", "100%", "$0.001400", "1,006 ms"),
        (f"{HEBREW}, {LONG}", "100.0", "96.4 to 100.0", "7%", "$12.40", "12,301 ms"),
    )
    body = (
        element(
            "tr", element("th", element("bdi", name), scope="row"),
            element("td", score, class_="num"), element("td", ci, class_="ci"),
            element("td", drawn["interval"].svg),
            *(element("td", each, class_="num") for each in rest),
        )
        for name, score, ci, *rest in rows
    )  # fmt: skip
    table = element("table", element("thead", element("tr", *cells)), element("tbody", *body),
                    class_="data")  # fmt: skip
    outcomes = ("passed", "failed", "error", "malformed", "blocked", "skipped")
    grid = element(
        "table",
        element("thead", element("tr", element("th", "case", scope="col"),
                *(element("th", word, scope="col", class_="num") for word in outcomes))),
        element("tbody", element("tr", element("th", "late-parcel", scope="row"),
                *(element("td", ui.outcome(word, "84.0")) for word in outcomes))),
        class_="data grid",
    )  # fmt: skip
    wrapped = [
        element("div", ui.scrolled(each, "table"), class_="data-wrap") for each in (table, grid)
    ]
    page = ui.pager(range(0, 20), 137, previous=None, following="#main")
    return ui.section("Tables", element("div", *wrapped, page, class_="stack"))


def _controls() -> Markup:
    fields = (
        element("div", element("label", "Text", for_="q"),
                element("input", type="search", id="q", name="q"), class_="field grow"),
        element("div", element("label", "Model", for_="model"),
                element("select", element("option", "all models"), id="model"), class_="field"),
        element("div", element("input", type="checkbox", id="failed"),
                element("label", "failed only", for_="failed"), class_="field field-inline"),
        element("button", "Show", type="submit", class_="button button-main"),
    )  # fmt: skip
    filters = element("form", *fields, class_="filters", role="search")
    metrics = ("grade", "tokens", "cost", "latency")
    switch = element(
        "nav",
        *(element("a", word, href="#main", aria_current="true" if word == "cost" else None)
          for word in metrics),
        class_="switch", aria_label="Metric",
    )  # fmt: skip
    tabs = element(
        "ul",
        *(element("li", element("a", word, href="#main",
                                aria_current="page" if word == "Cases" else None))
          for word in ("Cases", "Criteria")),
        class_="tabs",
    )  # fmt: skip
    said = ui.notice("odd", element("strong", "Simulated. "), "No model was called.")
    nothing = ui.empty_state(
        "No suggestions yet", "Ask for one: ", element("code", "edison refine")
    )
    known = ui.facts([("run", "01HX4Q"), ("commit", "1165bd7"), ("keys", element("kbd", "?"))])
    return ui.section("Controls", element("div", tabs, filters, switch, said, nothing, known,
                                          element("progress", value=40, max=100, aria_label="done"),
                                          class_="stack"))  # fmt: skip


def _texts() -> Markup:
    before = "You answer customers.\nBe brief.\nNever promise a date.\n"
    after = "You answer customers.\nBe brief and kind.\nNever promise a date.\nSign as Support.\n"
    hebrew = "שלום, החבילה שלך תגיע ביום שישי (12.11)."
    boxes = [
        ui.text_box("Sorry for the delay!\n\tYour parcel arrives on Friday.", label="small"),
        ui.text_box(hebrew, label="large", prose=True),
        ui.text_box(HOSTILE + "A" * 400, label="hostile"),
    ]
    sides = element("div", *boxes, class_="side-by-side")
    case = element(
        "details", element("summary", ui.badge("failed"), element("span", "refund", class_="name"),
        element("span", "20.0 of 100", class_="end")), element("div", boxes[0], class_="case-body"),
        class_="case", open=True,
    )  # fmt: skip
    return element("div", sides, ui.diff_view(before, after), case, class_="stack")


# --- pictures -------------------------------------------------------------------------------------


def shoot(folder: Path, name: str = "gallery") -> None:
    """Take pictures of the page as a reader sees it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return
    address = (folder / f"{name}.html").absolute().as_uri()
    usual = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    dark = "--blink-settings=preferredColorScheme=0"
    shots = {
        "light": ["--window-size=1280,5200"],
        "dark": ["--window-size=1280,5200", dark],
        "768": ["--window-size=768,7600"],
    }
    for word, options in shots.items():
        place = folder / f"{name}-{word}.png"
        subprocess.run([*usual, *options, f"--screenshot={place}", address], check=True,
                       capture_output=True, timeout=120)  # fmt: skip
    subprocess.run(
        [*usual, "--no-pdf-header-footer", f"--print-to-pdf={folder / f'{name}.pdf'}", address],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip


def main() -> None:
    """Write the page, and pictures of it if they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shots", action="store_true", help="take pictures with Chromium")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / "gallery.html").write_text(page(), encoding="utf-8")
    shutil.copyfile(STYLE, given.folder / "edison.css")
    if given.shots:
        shoot(given.folder)


if __name__ == "__main__":
    main()
