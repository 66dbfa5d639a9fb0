"""How are the judges of a run shown: whom they prefer, and whether they agree?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.cli.terminal import ODD, Ink, aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.results.judges import JudgesSaid, PanelAgreement
    from edison_ci.results.pairwise import HeadToHead

_MOST_APART = 5


def show_judges(terminal: Terminal, said: JudgesSaid | None) -> None:
    """Print whom judges prefer and whether they agree, where anybody knows."""
    if said is None:
        return
    prompts = len({found.match.prompt for found in said.matches}) > 1
    models = len({found.match.a.model for found in said.matches}) > 1
    for found in said.matches:
        _show_match(terminal, found, prompts=prompts, models=models)
    for prompt in dict.fromkeys(found.match.prompt for found in said.matches):
        among = [f for f in said.matches if f.match.prompt == prompt and f.among_models]
        if len(among) > 1:
            _show_matrix(terminal, prompt if prompts else "", among)
    if said.agreement is not None:
        _show_agreement(terminal, said.agreement)


def _show_match(
    terminal: Terminal, found: HeadToHead, *, prompts: bool = False, models: bool = False
) -> None:
    match = found.match
    about = match.prompt if prompts else ""
    if models and match.a.side != match.b.side:
        about = f"{about} with {match.a.model}".strip()
    tally = f"won {found.won:,}, lost {found.lost:,}, tied {found.tied:,}"
    lead = f"{about}: " if about else ""
    terminal.result(f"  {lead}{found.sentence}")
    names = " against ".join(found.names)
    terminal.result(f"    {names}: {tally}; compared by {found.judge}")
    for warning in found.warnings:
        terminal.result("    ", Ink("careful: ", ODD), warning)


def _show_matrix(terminal: Terminal, prompt: str, matches: Sequence[HeadToHead]) -> None:
    """Print who won, lost and tied against whom."""
    columns = list(dict.fromkeys(found.match.b.model for found in matches))
    counts = {
        (found.match.a.model, found.match.b.model): f"{found.won:,}-{found.lost:,}-{found.tied:,}"
        for found in matches
    }
    table = [(f"{prompt} won-lost-tied".strip(), *(f"against {name}" for name in columns))]
    for name in dict.fromkeys(found.match.a.model for found in matches):
        table.append((name, *(counts.get((name, column), "") for column in columns)))
    for line in aligned(table):
        terminal.result(f"    {line}")


def show_preference(terminal: Terminal, found: HeadToHead, a: str, b: str) -> None:
    """Print which of two is preferred head to head, by these names."""
    terminal.result(f"head to head: {found.said_of(a, b)}")
    for warning in found.warnings:
        terminal.result("  ", Ink("careful: ", ODD), warning)


def _show_agreement(terminal: Terminal, found: PanelAgreement) -> None:
    for sentence in found.sentences:
        terminal.result(f"  {sentence}")
    for apart in found.apart[:_MOST_APART]:
        terminal.result(f"    apart: {apart.said}")
    if len(found.apart) > _MOST_APART:
        terminal.result(f"    and {len(found.apart) - _MOST_APART:,} more")
