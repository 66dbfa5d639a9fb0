"""The report as one HTML file that opens anywhere.

The stylesheet is in the file, and a policy names its hash: nothing else is applied, fetched or run,
whatever a model or a file has written. The markup comes from the components of our pages rather
than from templates: templates would need Jinja, which is at home where prompts are rendered, and a
text can be marked as safe in one by mistake.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.report.charts.drawing import Column, DataTable
from edison_ci.report.components import badge, data_table, notice, scrolled
from edison_ci.report.html.run import run_page
from edison_ci.report.markup import Html, element, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.records import Case
    from edison_ci.results.cells import Failing
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

_SIMULATED = "Answers and grades come from a simulator and say nothing about real models."


class Shown(NamedTuple):
    """What a page shows of a run."""

    view: RunResult
    failing: Failing
    cases: Mapping[str, Case]
    """What was asked in the cases whose answers are shown, as far as it is still known."""


def html_page(report: Report, runs: Sequence[Shown], *, unfolded: bool = False) -> str:
    """Return the whole file; `unfolded` for paper, where nothing opens."""
    told_of = (run_page(*shown, unfolded=unfolded) for shown in runs)
    return whole_page(_title(report), [*_opening(report), *told_of], _top(report))


def result_html(view: RunResult, failing: Failing) -> str:
    """Return one run for a notebook: its own stylesheet, and nothing that is run."""
    style = Html(f"<style>{stylesheet()}</style>")
    return str(element("div", style, run_page(view, failing, {}), class_="edison-result"))


def whole_page(title: str, content: Sequence[Html | None], top: Html | None = None) -> str:
    """Return a file that needs no other, with something on it."""
    style = stylesheet()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        Html(f"<style>{style}</style>"),
    )
    main = element("main", *content, class_="page", id="main")
    told = "Made by edison from what is stored. Numbers in brackets are 95% intervals."
    body = element("body", top, main, element("footer", told, class_="footer"))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def stylesheet() -> str:
    """Return the stylesheet of all pages."""
    place = files("edison_ci.report").joinpath("static", "edison.css")
    return place.read_text(encoding="utf-8")


def policy(style: str) -> str:
    """Return what a browser may do with the file: apply this one stylesheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _title(report: Report) -> str:
    names = ", ".join(dict.fromkeys(view.run.experiment for view in report.runs)) or "edison"
    return f"{names}: {report.verdict or 'not finished'}"


def _top(report: Report) -> Html:
    links = (
        element("li", element("a", _name(view), href=f"#run-{view.run.id}")) for view in report.runs
    )
    skip = element("a", "Skip to the content", href="#main", class_="skip-link")
    brand = element("span", "edison", class_="brand")
    nav = element("nav", element("ul", *links, class_="nav"), aria_label="Runs")
    inner = element("div", brand, nav if len(report.runs) > 1 else None, class_="topbar-inner")
    return element("header", skip, inner, class_="topbar")


def _name(view: RunResult) -> str:
    on = ", on the material of the base" if view.on == "base" else ""
    return f"{view.run.experiment}{on}"


def _opening(report: Report) -> Iterator[Html]:
    """Yield what must be read before any number."""
    if report.failure:
        yield notice("bad", badge("error"), " ", report.failure)
    if report.simulated:
        yield notice("odd", element("strong", "Simulated. "), _SIMULATED)
    if not report.runs and not report.failure:
        yield notice("none", "Nothing was affected, so nothing was run.")
    for view in report.runs:
        if view.material:
            yield _material(view)


def _material(view: RunResult) -> Html:
    how = "Both sides were measured on the material of head only."
    if view.twice:
        how = "Both sides were measured on the material of head and on that of the base; the worse "
        how += "verdict counts."
    said = f"What {view.run.experiment} is measured with has changed. "
    rows = tuple((change.place, change.before, change.after) for change in view.material)
    table = DataTable((Column("what"), Column("base"), Column("head")), rows)
    return notice(
        "odd", element("p", element("strong", said), how),
        joined([scrolled(data_table(table), "Changed material")]),
    )  # fmt: skip
