"""How does the breakdown of a run look on a terminal: in a few lines, or as a table?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.cli.terminal import BAD, ODD, Ink, counted
from edison_ci.config.facets import SIZES
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.results.part_scores import PartSpread
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.slices import Facet, Reliability, Shown

_LISTED = 3
_ORDER = {value: place for place, value in enumerate(("easy", "medium", "hard", "golden", *SIZES))}
_FACETS = ("kind", "difficulty", "length", "tag")
FEWEST = 10
"""Cases below which a part of them is shown without a word on it."""


def show_breakdown(terminal: Terminal, summary: RunResult, *, facets: bool = True) -> None:
    """Print what is missing, how draws agree, and the kinds of cases that stand out."""
    found = summary.breakdown
    several = len(summary.models) > 1
    for sentence in summary.bounds:
        terminal.result("  ", Ink(sentence, ODD))
    most = max((each.k for each in found.reliability), default=0)
    for each in found.reliability:
        if each.k == most and each.model:
            _reliability(terminal, each, several=several)
    if facets:
        _outstanding(terminal, summary, several=several)
    aside = sorted(summary.quarantined)
    if aside:
        names = ", ".join(aside[:_LISTED]) + (" and more" if len(aside) > _LISTED else "")
        verb = "counts" if len(aside) == 1 else "count"
        terminal.result(f"  {counted(len(aside), 'case')} in quarantine {verb} in no gate: {names}")


def _reliability(terminal: Terminal, found: Reliability, *, several: bool) -> None:
    who = f"{found.model}: " if several else ""
    draws = "both" if found.k == 2 else f"all {found.k}"
    terminal.result(
        f"  {who}{draws} draws pass in "
        f"{_percent(found.pass_all, found.pass_all_low, found.pass_all_high)} of "
        f"{counted(found.n, 'case')}, at least one in "
        f"{_percent(found.pass_any, found.pass_any_low, found.pass_any_high)}"
    )


def _percent(estimate: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{fixed(100 * estimate)}%"
    return f"{fixed(100 * estimate)}% ({fixed(100 * low)} to {fixed(100 * high)})"


def _outstanding(terminal: Terminal, summary: RunResult, *, several: bool) -> None:
    """Print the weakest kinds of cases among those that stand out."""
    out = summary.outstanding
    weak = [facet for facet in out if (facet.difference or 0) < 0]
    for facet in weak[:_LISTED]:
        who = f" with {facet.model}" if several else ""
        terminal.result(
            "  weak",
            Ink(f"  {facet.facet} {facet.value}", BAD),
            f"{who}: {_points(facet.composite)}, {fixed(-100 * (facet.difference or 0), 1)} points "
            f"below the other cases ({counted(facet.cases, 'case')})",
        )
    if out:
        told = _allowed(len(out), out[0].family)
        terminal.note(f"  {told}: edison status {summary.run.id} --facets")


def _allowed(count: int, family: int) -> str:
    """Return how many comparisons were made, and how many stand out in spite of that."""
    made = f"{counted(family, 'comparison')} of kinds of cases {'was' if family == 1 else 'were'}"
    verb = "stands" if count == 1 else "stand"
    return f"{made} made; after allowing for that, {count:,} {verb} out"


def _points(found: Shown) -> str:
    return "-" if found.estimate is None else fixed(100 * found.estimate, 1)


# --- the table ------------------------------------------------------------------------------------


def show_facets(terminal: Terminal, summary: RunResult) -> None:
    """Print how every kind of case came out, by prompt and model."""
    found = [facet for facet in summary.breakdown.facets if facet.model]
    if not found:
        terminal.note("nothing is known of the kinds of its cases")
        return
    several = len({(facet.prompt, facet.model) for facet in found}) > 1
    for who in dict.fromkeys((facet.prompt, facet.model) for facet in found):
        if several:
            terminal.result("")
            terminal.result(Ink(f"{who[0]} with {who[1]}", bold=True))
        mine = [facet for facet in found if (facet.prompt, facet.model) == who]
        titles = ("", "", "cases", "score", "passed", "against the rest", "")
        terminal.table([titles, *map(_row, sorted(mine, key=_place))], right=(2, 5))
    told = _allowed(len(summary.outstanding), found[0].family)
    terminal.note(
        f"{told} (Benjamini-Hochberg, 10%). Kinds of fewer than {FEWEST} "
        "cases, or clusters of them, are not compared."
    )


def _place(facet: Facet) -> tuple[int, int, int, str]:
    order = _FACETS.index(facet.facet) if facet.facet in _FACETS else len(_FACETS)
    return order, _ORDER.get(facet.value, len(_ORDER)), -facet.cases, facet.value


def _row(facet: Facet) -> tuple[str, ...]:
    composite, rate = facet.composite, facet.pass_rate
    score = _points(composite)
    if composite.low is not None and composite.high is not None:
        score += f" ({fixed(100 * composite.low, 1)} to {fixed(100 * composite.high, 1)})"
    passed = "-" if rate.estimate is None else _percent(rate.estimate, rate.low, rate.high)
    rest = "" if facet.difference is None else fixed(100 * facet.difference, 1, signed=True)
    word = "stands out" if facet.stands_out else "" if facet.p is not None else "not compared"
    return (facet.facet, facet.value, f"{facet.cases:,}", score, passed, rest, word)


def spread_of(parts: Sequence[PartSpread], name: str, kind: str) -> str:
    """Return between which scores a part lies, and how far they are from their mean."""
    same = [part for part in parts if (part.name, part.kind) == (name, kind) and part.n]
    lows = [part.low for part in same if part.low is not None]
    highs = [part.high for part in same if part.high is not None]
    if not lows or not highs:
        return ""
    sds = [part.sd for part in same]
    sd = f", sd {fixed(100 * sds[0])}" if len(sds) == 1 and sds[0] is not None else ""
    return f"from {fixed(100 * min(lows))} to {fixed(100 * max(highs))}{sd}"
