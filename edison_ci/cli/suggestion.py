"""Suggestions on a terminal: diff, evidence and guardrails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, simulated_label
from edison_ci.numeric import counted, dollars, rounded, score
from edison_ci.records import Move
from edison_ci.stats import sentences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.store.suggestions import Suggestion

_COLORS = {
    "refused": BAD,
    "tried": ODD,
    "proposed": GOOD,
    "approved": GOOD,
    "applied": GOOD,
    "rejected": BAD,
}
_LISTED = 10
_LINES, _WIDTH = 60, 500
"""Maximum number and length of the lines of a diff; a refused one may be long."""


def show_suggestion(terminal: Terminal, suggestion: Suggestion) -> None:
    """Print a suggestion with its diff, evidence and guardrails."""
    show_heading(terminal, suggestion)
    if suggestion.note:
        for line in suggestion.note.split("\n"):
            terminal.result(f"  {line}")
    if suggestion.refused:
        for rail in suggestion.guardrails:
            if not rail.ok:
                terminal.result("  ", StyledText(f"{rail.rule}: ", BAD), rail.detail)
    show_diff(terminal, suggestion.diff, most=_LINES)
    show_evidence(terminal, suggestion)
    if not suggestion.refused:
        terminal.result(f"  guardrails: {_guardrail_status(suggestion)}")


def show_heading(terminal: Terminal, suggestion: Suggestion) -> None:
    """Print id, status and path of a suggestion, in one line."""
    mark = simulated_label(suggestion.simulation)
    unproven = (StyledText("  unproven", BAD),) if suggestion.forced else ()
    terminal.result(
        StyledText(suggestion.id, bold=True),
        "  ",
        StyledText(str(suggestion.status).upper(), _COLORS.get(suggestion.status, ODD)),
        f"  {suggestion.path}",
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


def show_evidence(terminal: Terminal, suggestion: Suggestion) -> None:
    """Print the results of testing a suggestion."""
    evidence = suggestion.evidence
    if not evidence:
        return
    color = GOOD if suggestion.proven else ODD
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
    _show_cost(terminal, suggestion)


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
    estimates = [part[side] and part[side]["estimate"] for side in ("before", "after")]
    difference = part["difference"]
    change = "-" if difference["estimate"] is None else sentences.signed(difference["estimate"])
    if difference["low"] is not None:
        change += (
            f" ({sentences.signed(difference['low'])} to {sentences.signed(difference['high'])})"
        )
    return (*map(score, estimates), change)


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


def _show_cost(terminal: Terminal, suggestion: Suggestion) -> None:
    growth, cost = (
        suggestion.evidence.get("growth") or {},
        suggestion.evidence.get("cost_microusd") or {},
    )
    facts = []
    if growth:
        facts.append(
            f"prompt {growth['chars']:+,} characters ({rounded(growth['percent'], 1):+g}%)"
        )
    before, after = cost.get("before"), cost.get("after")
    if before and after is not None:
        facts.append(f"an answer {dollars(before)} to {dollars(after)}")
    facts.append(f"finding and testing it cost {dollars(suggestion.cost_microusd)}")
    terminal.result(f"  {'; '.join(facts)}")


def _guardrail_status(suggestion: Suggestion) -> str:
    broken = [rail.rule for rail in suggestion.guardrails if not rail.ok]
    if broken:
        return f"broken: {', '.join(broken)}"
    search = suggestion.evidence.get("search")
    limits = f", within {search['wider']} times the limits of refine" if search else ""
    return f"all {len(suggestion.guardrails)} kept{limits}"
