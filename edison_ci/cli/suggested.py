"""Suggestions on a terminal: diff, evidence and guardrails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.cli.progress import dollars
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, counted
from edison_ci.formatting import score
from edison_ci.stats.sentences import signed
from edison_ci.store.suggestions import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.store.suggestions import Suggestion

_COLORS = {
    Status.REFUSED: BAD,
    Status.TRIED: ODD,
    Status.PROPOSED: GOOD,
    Status.APPROVED: GOOD,
    Status.APPLIED: GOOD,
    Status.REJECTED: BAD,
}
_LISTED = 10
_LINES, _WIDTH = 60, 500
"""Lines of a diff and their length; nobody promises that one that was refused is short."""


def show_suggestion(terminal: Terminal, one: Suggestion) -> None:
    """Print all there is to know of a suggestion."""
    show_heading(terminal, one)
    if one.note:
        for line in one.note.split("\n"):
            terminal.result(f"  {line}")
    if one.status is Status.REFUSED:
        for rail in one.guardrails:
            if not rail.ok:
                terminal.result("  ", Ink(f"{rail.rule}: ", BAD), rail.detail)
    show_diff(terminal, one.diff, most=_LINES)
    show_evidence(terminal, one)
    if one.status is not Status.REFUSED:
        terminal.result(f"  guardrails: {_kept(one)}")


def show_heading(terminal: Terminal, one: Suggestion) -> None:
    """Print what became of a suggestion, in one line."""
    mark = (Ink("  simulated", ODD),) if one.simulated else ()
    unproven = (Ink("  unproven", BAD),) if one.forced else ()
    terminal.result(
        Ink(one.id, bold=True),
        "  ",
        Ink(str(one.status).upper(), _COLORS.get(one.status, ODD)),
        f"  {one.path}",
        *unproven,
        *mark,
    )


def show_diff(terminal: Terminal, diff: str, *, most: int) -> None:
    """Print a diff in colour, its first lines if it is long."""
    lines = diff.removesuffix("\n").split("\n")
    for whole in lines[:most]:
        line = whole if len(whole) <= _WIDTH else f"{whole[:_WIDTH]}..."
        head = line.startswith(("---", "+++", "@@"))
        color = {"+": GOOD, "-": BAD}.get(line[:1]) if not head else ODD
        terminal.result("  ", Ink(line, color) if color is not None else line)
    if len(lines) > most:
        terminal.result(f"  and {counted(len(lines) - most, 'line')} more")


def show_evidence(terminal: Terminal, one: Suggestion) -> None:
    """Print what trying a suggestion showed."""
    told = one.evidence
    if not told:
        return
    color = GOOD if one.proven else ODD
    terminal.result("  ", Ink(str(told.get("sentence", "")), color))
    _show_search(terminal, told.get("search"))
    rows: list[tuple[str, ...]] = [("", "", "before", "after", "change")]
    for word, key in (("unseen", "holdout"), ("training", "train")):
        part = told.get(key)
        if part:
            rows.append(("  ", f"{word}, {counted(part['n'], 'case')}", *_scores(part)))
    rows += [
        ("  ", f"  {part['name']}", *_change(part["before"], part["after"]))
        for part in told.get("criteria", ())
    ]
    if len(rows) > 1:
        terminal.table(rows, right=(2, 3, 4))
    if told.get("criteria"):
        terminal.result("    criteria, checks and graders are those of the training cases")
    for word, key in (("unseen", "holdout"), ("training", "train")):
        part = told.get(key)
        if part and part.get("head_to_head"):
            terminal.result(f"  head to head, {word} cases: {part['head_to_head']}")
        _show_moved(terminal, word, part)
    _show_price(terminal, one)


def _show_search(terminal: Terminal, search: Mapping[str, Any] | None) -> None:
    """Print that it is the best of many, and how often its unseen cases were looked at before."""
    if not search:
        return
    told = (
        f"  found by a search: {counted(search['generations'], 'generation')}, best of "
        f"{counted(search['measured'], 'version')} on the training cases"
    )
    if earlier := search["earlier_looks"]:
        told += f"; the unseen cases were looked at for {counted(earlier, 'other change')} before"
    terminal.result(told)


def _scores(part: Mapping[str, Any]) -> tuple[str, ...]:
    found = [part[side] and part[side]["estimate"] for side in ("before", "after")]
    difference = part["difference"]
    change = "-" if difference["estimate"] is None else signed(difference["estimate"])
    if difference["low"] is not None:
        change += f" ({signed(difference['low'])} to {signed(difference['high'])})"
    return (*map(score, found), change)


def _change(before: float | None, after: float | None) -> tuple[str, str, str]:
    change = "-" if before is None or after is None else signed(after - before)
    return (score(before), score(after), change)


def _show_moved(terminal: Terminal, word: str, part: Mapping[str, Any] | None) -> None:
    for what, color in (("fixed", GOOD), ("broken", BAD)):
        cases: Sequence[str] = part[what] if part else ()
        if cases:
            more = f" and {len(cases) - _LISTED:,} more" if len(cases) > _LISTED else ""
            terminal.result(
                "  ", Ink(f"{len(cases):,} {word} {what}: ", color),
                f"{', '.join(cases[:_LISTED])}{more}",
            )  # fmt: skip


def _show_price(terminal: Terminal, one: Suggestion) -> None:
    growth, cost = one.evidence.get("growth") or {}, one.evidence.get("cost_microusd") or {}
    said = []
    if growth:
        said.append(f"prompt {growth['chars']:+,} characters ({growth['percent']:+g}%)")
    before, after = cost.get("before"), cost.get("after")
    if before and after is not None:
        said.append(f"an answer {dollars(before)} to {dollars(after)}")
    said.append(f"asking and trying it cost {dollars(one.cost_microusd)}")
    terminal.result(f"  {'; '.join(said)}")


def _kept(one: Suggestion) -> str:
    broken = [rail.rule for rail in one.guardrails if not rail.ok]
    if broken:
        return f"broken: {', '.join(broken)}"
    search = one.evidence.get("search")
    limits = f", within {search['wider']} times the limits of refine" if search else ""
    return f"all {len(one.guardrails)} kept{limits}"
