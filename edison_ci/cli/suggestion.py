"""Suggestions on a terminal: diff, evidence and guardrails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, simulated_label
from edison_ci.numeric import counted, dollars, rounded, score
from edison_ci.records import Move
from edison_ci.stats import sentences
from edison_ci.store.suggestions import SuggestionStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.store.suggestions import Suggestion

_COLORS = {
    SuggestionStatus.REFUSED: BAD,
    SuggestionStatus.TRIED: ODD,
    SuggestionStatus.PROPOSED: GOOD,
    SuggestionStatus.APPROVED: GOOD,
    SuggestionStatus.APPLIED: GOOD,
    SuggestionStatus.REJECTED: BAD,
}
_LISTED = 10
_LINES, _WIDTH = 60, 500
"""Maximum number and length of the lines of a diff; a refused one may be long."""


def show_suggestion(terminal: Terminal, one: Suggestion) -> None:
    """Print a suggestion with its diff, evidence and guardrails."""
    show_heading(terminal, one)
    if one.note:
        for line in one.note.split("\n"):
            terminal.result(f"  {line}")
    if one.status is SuggestionStatus.REFUSED:
        for rail in one.guardrails:
            if not rail.ok:
                terminal.result("  ", StyledText(f"{rail.rule}: ", BAD), rail.detail)
    show_diff(terminal, one.diff, most=_LINES)
    show_evidence(terminal, one)
    if one.status is not SuggestionStatus.REFUSED:
        terminal.result(f"  guardrails: {_guardrail_status(one)}")


def show_heading(terminal: Terminal, one: Suggestion) -> None:
    """Print id, status and path of a suggestion, in one line."""
    mark = simulated_label(one.simulation)
    unproven = (StyledText("  unproven", BAD),) if one.forced else ()
    terminal.result(
        StyledText(one.id, bold=True),
        "  ",
        StyledText(str(one.status).upper(), _COLORS.get(one.status, ODD)),
        f"  {one.path}",
        *unproven,
        *mark,
    )


def show_diff(terminal: Terminal, diff: str, *, most: int) -> None:
    """Print a diff in color, only its first lines if it is long."""
    lines = diff.removesuffix("\n").split("\n")
    for whole in lines[:most]:
        line = whole if len(whole) <= _WIDTH else f"{whole[:_WIDTH]}..."
        head = line.startswith(("---", "+++", "@@"))
        color = {"+": GOOD, "-": BAD}.get(line[:1]) if not head else ODD
        terminal.result("  ", StyledText(line, color) if color is not None else line)
    if len(lines) > most:
        terminal.result(f"  and {counted(len(lines) - most, 'line')} more")


def show_evidence(terminal: Terminal, one: Suggestion) -> None:
    """Print the results of testing a suggestion."""
    evidence = one.evidence
    if not evidence:
        return
    color = GOOD if one.proven else ODD
    terminal.result("  ", StyledText(str(evidence.get("sentence", "")), color))
    _show_search(terminal, evidence.get("search"))
    rows: list[tuple[str, ...]] = [("", "", "before", "after", "change")]
    for word, key in (("unseen", "holdout"), ("training", "train")):
        part = evidence.get(key)
        if part:
            rows.append(("  ", f"{word}, {counted(part['n'], 'case')}", *_scores(part)))
    rows += [
        ("  ", f"  {part['name']}", *_change(part["before"], part["after"]))
        for part in evidence.get("criteria", ())
    ]
    if len(rows) > 1:
        terminal.table(rows, right=(2, 3, 4))
    if evidence.get("criteria"):
        terminal.result("    criteria, checks and graders are measured on the training cases")
    for word, key in (("unseen", "holdout"), ("training", "train")):
        part = evidence.get(key)
        if part and part.get("head_to_head"):
            terminal.result(f"  head to head, {word} cases: {part['head_to_head']}")
        _show_moved(terminal, word, part)
    _show_cost(terminal, one)


def _show_search(terminal: Terminal, search: Mapping[str, Any] | None) -> None:
    """Print the size of the search, and how often its held-out cases were used before."""
    if not search:
        return
    text = (
        f"  found by a search: {counted(search['generations'], 'generation')}, best of "
        f"{counted(search['measured'], 'version')} on the training cases"
    )
    if earlier := search["earlier_comparisons"]:
        text += f"; the unseen cases were used for {counted(earlier, 'other change')} before"
    terminal.result(text)


def _scores(part: Mapping[str, Any]) -> tuple[str, ...]:
    found = [part[side] and part[side]["estimate"] for side in ("before", "after")]
    difference = part["difference"]
    change = "-" if difference["estimate"] is None else sentences.signed(difference["estimate"])
    if difference["low"] is not None:
        change += (
            f" ({sentences.signed(difference['low'])} to {sentences.signed(difference['high'])})"
        )
    return (*map(score, found), change)


def _change(before: float | None, after: float | None) -> tuple[str, str, str]:
    change = "-" if before is None or after is None else sentences.signed(after - before)
    return (score(before), score(after), change)


def _show_moved(terminal: Terminal, word: str, part: Mapping[str, Any] | None) -> None:
    for move in Move:
        color = GOOD if move.better else BAD
        cases: Sequence[str] = part[move] if part else ()
        if cases:
            more = f" and {len(cases) - _LISTED:,} more" if len(cases) > _LISTED else ""
            terminal.result(
                "  ", StyledText(f"{len(cases):,} {word} {move.words}: ", color),
                f"{', '.join(cases[:_LISTED])}{more}",
            )  # fmt: skip


def _show_cost(terminal: Terminal, one: Suggestion) -> None:
    growth, cost = one.evidence.get("growth") or {}, one.evidence.get("cost_microusd") or {}
    said = []
    if growth:
        said.append(f"prompt {growth['chars']:+,} characters ({rounded(growth['percent'], 1):+g}%)")
    before, after = cost.get("before"), cost.get("after")
    if before and after is not None:
        said.append(f"an answer {dollars(before)} to {dollars(after)}")
    said.append(f"finding and testing it cost {dollars(one.cost_microusd)}")
    terminal.result(f"  {'; '.join(said)}")


def _guardrail_status(one: Suggestion) -> str:
    broken = [rail.rule for rail in one.guardrails if not rail.ok]
    if broken:
        return f"broken: {', '.join(broken)}"
    search = one.evidence.get("search")
    limits = f", within {search['wider']} times the limits of refine" if search else ""
    return f"all {len(one.guardrails)} kept{limits}"
