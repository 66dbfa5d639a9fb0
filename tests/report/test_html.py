"""The page of a run: what it says, that it needs nothing else, and that nobody obeys it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings

from edison_ci.records import Case, CaseId, CellStatus, Side
from edison_ci.report.html import PageRun, html_page, policy, stylesheet
from edison_ci.report.markdown_report import markdown
from edison_ci.results.cells import CellResult, Cells, ComponentResult, FailingCells, Grid, Square
from edison_ci.results.components import ScoreSpread
from edison_ci.results.report import Report
from edison_ci.results.samples import Variant
from edison_ci.results.spending import Cost
from tests.report.conftest import Half, Plot, Shelf, changed, everything, poisoned
from tests.report.test_hostile import NASTY, TEXTS

pytestmark = pytest.mark.daily


class Reader(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        links = ("href", "src", "action", "data", "srcset", "poster", "formaction")
        self.addresses |= {value or "" for name, value in attrs if name in links}

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.said).split())


def near(shelf: Shelf, report: Report) -> list[PageRun]:
    cells = Cells(shelf.connection)
    return [PageRun(view, cells.failing(view), {}) for view in report.runs]


@pytest.fixture
def shown(shelf: Shelf) -> tuple[Report, str]:
    report = shelf.add(*everything())
    return report, html_page(report, near(shelf, report))


def test_it_says_what_the_other_reports_say(shown: tuple[Report, str]) -> None:
    report, page = shown
    said = Reader(page).text
    view = report.head_runs[0]
    for row in view.gates:
        assert " ".join(row.sentence.split()) in said
    for text in view.missing:
        assert " ".join(text.split()) in said
    told = re.findall(r"Score ([\d.]+) \(", markdown(report))
    assert told
    assert all(score in said for score in told)
    assert f"{view.cells['error']} error" in said


def test_simulated_and_changed_material_are_told_before_any_score(
    shown: tuple[Report, str],
) -> None:
    said = Reader(shown[1]).text
    assert said.index("Simulated.") < said.index("has changed")
    assert said.index("has changed") < said.index("of 100")
    assert said.count("simulated") >= len(shown[0].runs)


def test_it_has_a_chart_for_the_gates_with_its_data(shown: tuple[Report, str]) -> None:
    _, page = shown
    assert "<figcaption>Change from base</figcaption>" in page
    assert page.count("<details><summary>Data</summary>") >= 3


def test_the_policy_allows_this_stylesheet_and_nothing_else(shown: tuple[Report, str]) -> None:
    _, page = shown
    style = page[page.index("<style>") + 7 : page.index("</style>")]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src &#39;none&#39;; style-src &#39;sha256-{digest}&#39;" in page
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert policy(stylesheet()) == policy(style)


def test_it_needs_no_network_and_no_script(shown: tuple[Report, str]) -> None:
    found = Reader(shown[1])
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(found.tags)
    assert all(address.startswith("#") for address in found.addresses)
    assert not {name for name in found.attributes if name.startswith("on") or name == "style"}


def test_every_class_on_it_has_a_rule(shown: tuple[Report, str]) -> None:
    page = shown[1][shown[1].index("</style>") :]
    classes = {name for value in re.findall(r'class="([^"]*)"', page) for name in value.split()}
    ruled = set(re.findall(r"\.([a-z][\w-]*)", stylesheet()))
    assert classes - ruled - {"outcome", "outcome-mark", "outcome-info"} == set()


def test_a_run_that_stopped_says_so(shelf: Shelf) -> None:
    report = shelf.add(Half(status="PAUSED", stopped_by="signal"))
    said = Reader(html_page(report, near(shelf, report))).text
    assert "paused" in said
    assert "20 of 80 cells are done" in said
    assert "No gates" in said


def test_what_failed_before_any_run_is_said() -> None:
    said = Reader(html_page(Report(failure="edison.yaml:1:10: no"), [])).text
    assert "edison.yaml:1:10: no" in said
    assert "No experiment is affected" in Reader(html_page(Report(), [])).text


def test_earlier_runs_are_drawn(shelf: Shelf) -> None:
    plots = [
        Plot(id=f"2026111{day}T090000-aaaaaa", time=f"2026-11-1{day}T09:00:00.000Z")
        for day in (3, 4, 5)
    ]
    report = shelf.add(*plots)
    page = html_page(report, near(shelf, report))
    assert "Score by run" in page
    assert page.count("2026-11-13") >= 1


# --- answers --------------------------------------------------------------------------------------


def cell(text: str | None, **more: object) -> CellResult:
    made = CellResult(
        "0a1b2c3d4e5f", Side.HEAD, "reply", "b7c1e290", "small", "refund", 0, CellStatus.OK, 0.2,
        False, None, "", 1240, "billed", 12, 34, 560, "stop", "sim", "c0ffee", text,
        (ComponentResult("polite", "check", 0.0, False, CellStatus.OK, "'sorry' is not in it"),),
    )  # fmt: skip
    return made._replace(**more)  # type: ignore[arg-type]  # a test says what it changes


def failing_page(report: Report, found: CellResult, case: Case | None = None) -> str:
    view = report.runs[0]
    cases: dict[str, Case] = {} if case is None else {case.id: case}
    nothing: dict[str, object] = {
        "grid": Grid((), (), 0),
        "spreads": (),
        "costs": (),
        "history": (),
    }
    shown = PageRun(changed(view, **nothing), FailingCells((found,), 1), cases)
    return html_page(replace(report, runs=(view,)), [shown])


def test_an_answer_that_fails_is_there_with_what_was_asked_and_why(failing: Report) -> None:
    case = Case(id=CaseId("refund"), inputs={"message": "Where is my money?"}, expected="14 days")
    said = Reader(failing_page(failing, cell("No."), case)).text
    for words in ("Where is my money?", "14 days", "No.", "'sorry' is not in it", "0a1b2c3d4e5f"):
        assert words in said


def test_a_blocked_answer_is_shown_to_nobody(failing: Report) -> None:
    page = failing_page(failing, cell(None, status="blocked", reason="blocked: secrets"))
    assert "was blocked and is not shown" in page


def test_a_very_long_answer_is_cut_and_says_so(failing: Report) -> None:
    page = failing_page(failing, cell("x" * 50_000))
    assert "the first 20,000 of 50,000 characters" in page
    assert "x" * 20_001 not in page


# --- hostile --------------------------------------------------------------------------------------


def hostile(report: Report, text: str) -> str:
    failing = FailingCells(
        (cell(text, case=text, reason=text, status="error", error=text, model=text),), 1
    )
    components = {
        "grid": Grid((Variant(text, text),), ((text, (Square(text, 0.5, 2),)),), 1),
        "spreads": (ScoreSpread("criterion", text, (0, 0, 0, 0, 0, 1, 0, 0, 0, 0), 0.5),),
        "costs": (Cost(text, text, 1, 0, 5, 1, 1),),
        "history": (),
    }
    case = Case(id=CaseId(text), inputs={"message": text, "b": [text]}, expected=text)
    runs = [PageRun(changed(view, **components), failing, {text: case}) for view in report.runs]
    return html_page(report, runs)


@pytest.fixture(scope="module")
def plain(failing: Report) -> list[str]:
    return Reader(hostile(poisoned(failing, "plain"), "plain")).tags


@pytest.mark.parametrize("text", [text for text in NASTY if text.strip()])
def test_a_nasty_text_adds_no_element(failing: Report, plain: list[str], text: str) -> None:
    found = Reader(hostile(poisoned(failing, text), text))
    known = [tag for tag in found.tags if tag != "title"]  # of a label that had to be cut
    assert known == [tag for tag in plain if tag != "title"]
    assert all(address.startswith("#") for address in found.addresses)


@pytest.mark.nightly
@given(text=TEXTS)
@settings(
    max_examples=15, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
def test_any_text_is_only_shown(failing: Report, text: str) -> None:
    found = Reader(hostile(poisoned(failing, text), text))
    assert not {"script", "img", "iframe", "object", "form", "base", "link"} & set(found.tags)
    assert found.tags.count("style") == 1
    assert not {name for name in found.attributes if name.startswith("on") or name == "style"}


# --- what is shown near ---------------------------------------------------------------------------


def test_the_worst_cases_come_first(shelf: Shelf) -> None:
    report = shelf.add(Plot(cases=12, lost=2, blocked=1, models=("small", "large")))
    view = report.runs[0]
    found, failing = view.grid, Cells(shelf.connection).failing(view)
    assert found.columns == (
        Variant("support-reply", "large"),
        Variant("support-reply", "small"),
    )
    assert (len(found.rows), found.cases) == (12, 12)
    outcomes = [square.outcome for _, (square, _) in found.rows if square]
    assert outcomes.count("error") == 2
    assert outcomes.count("blocked") == 1
    bad = [word in ("failed", "blocked") for word in outcomes]
    assert bad == sorted(bad, reverse=True), "what does not pass comes first"
    assert any(bad) and not all(bad)
    assert failing.total >= 2 * 2


def test_reasons_stay_in_a_private_project(shelf: Shelf) -> None:
    report = shelf.add(Plot(drop=0.4))
    view = report.runs[0]
    told = [
        component.reason for c in Cells(shelf.connection).of(view) for component in c.components
    ]
    assert "'sorry'?" in told
    private = Cells(shelf.connection, texts=False)
    assert {component.reason for c in private.of(view) for component in c.components} == {""}
    assert {c.text for c in private.of(view)} == {None}
