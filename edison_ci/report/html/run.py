"""The page of a run: verdict, numbers, gates, scores, and the change against the base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.formatting import NOTHING, change, counted, dollars, score, signed_span
from edison_ci.report.charts.forest import forest
from edison_ci.report.charts.interval import Range, interval
from edison_ci.report.charts.pareto import Pareto, Spot, pareto
from edison_ci.report.components import (
    Card,
    badge,
    cards,
    empty_state,
    facts,
    figure,
    notice,
    scrolled,
    section,
)
from edison_ci.report.gate_charts import forests_of, gate_name, one_prompt
from edison_ci.report.html.cases import failing_answers, grid_of, moved_cases
from edison_ci.report.html.parts import costs, history, kinds_of_cases, spreads
from edison_ci.report.markup import Html, element, joined
from edison_ci.report.sections import WORDS
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.records import Case
    from edison_ci.results.cells import Failing
    from edison_ci.results.leaderboard import Standing as Measured
    from edison_ci.results.run_result import Change, RunResult
    from edison_ci.stats.scores import Interval


def run_page(
    view: RunResult, failing: Failing, cases: Mapping[str, Case], *, unfolded: bool = False
) -> Html:
    """Return everything there is to say of a run; `unfolded` for paper, where nothing opens."""
    key = f"run-{view.run.id}"
    parts = (
        _header(view),
        cards(_cards(view)),
        _missing(view),
        _gates(view),
        _scores(view),
        _changes(view),
        moved_cases(view),
        failing_answers(failing, cases, unfolded=unfolded),
        spreads(view),
        kinds_of_cases(view),
        costs(view),
        history(view),
        grid_of(view.grid),
        _how(view),
    )
    return element("article", *parts, id=key, class_="run", aria_label=f"Run {view.run.id}")


def _header(view: RunResult) -> Html:
    run = view.run
    badges = (badge(label, large=True) for label in view.labels)
    verdict = badge(run.verdict or run.status.lower(), large=True)
    title = element("h1", element("bdi", run.experiment))
    on = ", on the material of the base" if view.on == "base" else ""
    lead = f"Run {run.id}, {run.created_at[:16].replace('T', ' ')} UTC{on}."
    against = view.against
    if against is not None and run.base_commit is not None:
        at = f"{run.base_ref} at {run.base_commit[:8]}"
        lead += f" Compared with {at} on {counted(against.n, 'case')}."
    said = element("p", lead, class_="page-lead")
    top = element("div", title, verdict, *badges, class_="page-title")
    return element("header", top, said, class_="page-header")


def _cards(view: RunResult) -> Iterator[Card]:
    summary, overall = view, view.overall
    yield Card("Score", _points(overall.composite), "of 100", _range(overall.composite))
    against = summary.against
    if against is not None and against.estimate is not None:
        moved = change(against.estimate, None, None).removesuffix(" points")
        ends = ""
        if against.low is not None and against.high is not None:
            ends = signed_span(against.low, against.high)
        yield Card("Change against base", moved, "points", ends)
    passed = overall.pass_rate
    share = NOTHING if passed is None else f"{fixed(100 * passed.estimate)}%"
    of = "" if passed is None else f"of {passed.n:,}"
    yield Card("Pass rate", share, of, _range(passed, digits=0))
    about = "~" if summary.calls["unknown"] else ""
    reused = f"{counted(summary.calls['made'], 'call')}, {summary.calls['reused']:,} reused"
    yield Card("Cost", f"{about}{dollars(summary.cost_microusd)}", note=reused)
    if overall.p50_ms is not None:
        late = "" if overall.p95_ms is None else f"p95 {overall.p95_ms:,} ms"
        yield Card("Latency, median", f"{overall.p50_ms:,}", "ms", late)
    cells = summary.cells
    odd = (f"{cells[word]:,} {word}" for word in ("malformed", "error", "blocked", "skipped")
           if cells[word])  # fmt: skip
    yield Card("Answers", f"{cells['ok']:,}", f"of {cells['total']:,}", ", ".join(odd))


def _points(found: Interval | None) -> str:
    return NOTHING if found is None else fixed(100 * found.estimate, 1)


def _range(found: Interval | None, *, digits: int = 1) -> str:
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return "1 case: no error bar"
    return f"{fixed(100 * found.low, digits)} to {fixed(100 * found.high, digits)}"


def _missing(view: RunResult) -> Html | None:
    """Say what the numbers do not tell, before they are read."""
    said = [*view.missing, *(rival.sentence for rival in view.weak_prompts)]
    if not said:
        return None
    items = (element("li", text) for text in said)
    told = element("strong", "What to know before reading on")
    return element("div", notice("none", told, element("ul", *items)), class_="section")


# --- gates ----------------------------------------------------------------------------------------


def _gates(view: RunResult) -> Html:
    if not view.gates:
        hint = joined(["Add ", element("code", "gates:"), " to the experiment."])
        return section("Gates", empty_state("No gates", "Nothing was decided. ", hint))
    short = one_prompt(view.gates)
    items = (
        element(
            "li",
            badge(row.word.lower()),
            element("span", element("bdi", gate_name(row, short=short)), class_="what"),
            element("span", row.sentence, class_="why"),
        )
        for row in view.gates
    )
    listed = element("div", element("ul", *items, class_="gates"), class_="panel panel-flush")
    plots = [
        element("div", figure(forest(chart)), class_="panel") for chart in forests_of(view.gates)
    ]
    return section("Gates", element("div", listed, *plots, class_="stack"))


# --- scores ---------------------------------------------------------------------------------------


def _scores(view: RunResult) -> Html | None:
    if not view.variants:
        return None
    heads = (
        ("prompt", None), ("version", None), ("model", None), ("score", "num"),
        ("95% interval", "ci"), ("0 to 100", None), ("passed", "num"), ("95% interval", "ci"),
        ("cost an answer", "num"), ("median", "num"), ("p95", "num"),
    )  # fmt: skip
    head = element("tr", *(element("th", word, scope="col", class_=c) for word, c in heads))
    body = element("tbody", *(_scored(measured) for measured in view.variants))
    table = element("table", element("thead", head), body, class_="data")
    wrapped = element("div", scrolled(table, "Scores"), class_="data-wrap")
    plot = _worth(view)
    return section("Scores", element("div", wrapped, plot, class_="stack"))


def _scored(measured: Measured) -> Html:
    place, composite, passed = measured.place, measured.composite, measured.pass_rate
    label = "base" if place.side == "base" else measured.label or ""
    short = place.version[:8]
    version = label if short in label else f"{label} {short}".strip()
    low, high = (None, None) if composite is None else (composite.low, composite.high)
    told = f"{place.prompt} with {place.model}"
    estimate = None if composite is None else composite.estimate
    bar = interval(Range(told, estimate, low, high))
    about = "~" if measured.estimated else ""
    share = NOTHING if passed is None else f"{fixed(100 * passed.estimate)}%"
    return element(
        "tr",
        element("th", element("bdi", place.prompt), scope="row"),
        element("td", version, class_="nowrap"),
        element("td", element("bdi", place.model), class_="name"),
        element("td", _points(composite), class_="num"),
        element("td", _range(composite), class_="ci"),
        element("td", bar.svg),
        element("td", share, class_="num"),
        element("td", _range(passed, digits=0), class_="ci"),
        element("td", f"{about}{dollars(measured.cost_microusd)}", class_="num"),
        *(element("td", _ms(value), class_="num") for value in (measured.p50_ms, measured.p95_ms)),
    )


def _ms(value: float | None) -> str:
    return NOTHING if value is None else f"{fixed(value, grouped=True)} ms"


def _worth(view: RunResult) -> Html | None:
    """Draw worth against cost where there is a choice, and somebody is paid."""
    heads = [m for m in view.variants if m.place.side == "head" and m.composite is not None]
    if len(heads) < 2 or not any(m.cost_microusd for m in heads):
        return None
    spots = tuple(
        Spot(
            m.place.model if len({h.place.prompt for h in heads}) == 1
            else f"{m.place.prompt}, {m.place.model}",
            m.cost_microusd,
            m.composite.estimate,
            m.composite.low,
            m.composite.high,
            front=not any(_beats(other, m) for other in heads),
        )
        for m in heads
        if m.composite is not None
    )  # fmt: skip
    drawn = pareto(Pareto("Score and cost of an answer", spots))
    return element("div", figure(drawn), class_="panel")


def _beats(other: Measured, one: Measured) -> bool:
    """Whether another is as good and as cheap, and better in one of them."""
    if None in (other.cost_microusd, one.cost_microusd, other.composite, one.composite):
        return False
    assert other.composite is not None and one.composite is not None
    a = (-(other.cost_microusd or 0), other.composite.estimate)
    b = (-(one.cost_microusd or 0), one.composite.estimate)
    return a != b and a[0] >= b[0] and a[1] >= b[1]


# --- against the base -----------------------------------------------------------------------------


def _changes(view: RunResult) -> Html | None:
    if not view.changes:
        return None
    heads = (
        ("prompt", None), ("model", None), ("base", "num"), ("head", "num"), ("change", "num"),
        ("95% interval", "ci"), ("decision", None), ("cases", "num"), ("fixed", "num"),
        ("broken", "num"),
    )  # fmt: skip
    head = element("tr", *(element("th", word, scope="col", class_=c) for word, c in heads))
    body = element("tbody", *(_changed(one) for one in view.changes))
    table = element("table", element("thead", head), body, class_="data")
    return section(
        "Change against the base",
        element("div", scrolled(table, "Change against the base"), class_="data-wrap"),
    )


def _changed(one: Change) -> Html:
    found = one.standing
    low, high = found.interval or (None, None)
    ends = NOTHING if low is None or high is None else signed_span(low, high)
    more = f", about {counted(found.n_more, 'more case')} would tell" if found.n_more else ""
    missing = f" ({found.missing:,} missing)" if found.missing else ""
    moved = change(found.estimate, None, None).removesuffix(" points")
    return element(
        "tr",
        element("th", element("bdi", one.prompt), scope="row"),
        element("td", element("bdi", one.model), class_="name"),
        *(element("td", score(value), class_="num") for value in found.scores),
        element("td", moved, class_="num"),
        element("td", ends, class_="ci"),
        element("td", f"{WORDS[found.verdict]}{more}"),
        element("td", f"{found.n:,}{missing}", class_="num"),
        element("td", f"{len(found.fixed):,}", class_="num"),
        element("td", f"{len(found.broken):,}", class_="num"),
    )


def _how(view: RunResult) -> Html:
    run, summary = view.run, view
    prompts = ", ".join(
        f"{prompt} {run.labels.get(prompt, '')} ({version[:8]})"
        for prompt, version in summary.prompts
    )
    known = [
        ("run", run.id),
        ("status", run.status),
        ("started by", run.trigger),
        ("started", run.created_at),
        ("ended", run.finished_at or NOTHING),
        ("commit", (run.commit_id or NOTHING)[:12]),
        ("base", f"{run.base_ref} {(run.base_commit or '')[:12]}" if run.base_ref else NOTHING),
        ("prompts", prompts or NOTHING),
        ("tokens", f"{summary.tokens_in:,} in, {summary.tokens_out:,} out"),
    ]
    return section("How it was measured", element("div", facts(known), class_="panel"))
