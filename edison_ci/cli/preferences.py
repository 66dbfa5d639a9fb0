"""How is a ranking by preference shown?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.cli.terminal import ODD, Ink
from edison_ci.plan.versions import short
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.results.leaderboard import Key, Preferences, Standing
    from edison_ci.stats.ranking import Placed


def show_preferences(terminal: Terminal, found: Preferences, rows: Sequence[Standing]) -> None:
    """Print who stands where by what the judge prefers, with the ranks each may have."""
    ranking = found.ranking
    names = _names(found, rows)
    about = f"head to head, by {found.judge}"
    mark = (Ink("  simulated", ODD),) if found.simulated else ()
    if len(ranking.islands) > 1:
        islands = "; ".join(", ".join(names[name] for name in island) for island in ranking.islands)
        said = f"{about}: no joint ranking: never compared with each other: {islands}"
        terminal.result(said, *mark)
        return
    terminal.result(f"{about}: {ranking.method}, {ranking.n:,} cases or clusters", *mark)
    beats = f"beats {names[found.baseline]}"
    table: list[tuple[str, ...]] = [("rank", "", "Elo-like", beats)]
    table += [_row(placed, names, found.baseline) for placed in ranking.placed]
    terminal.table(table)
    for note in ranking.notes:
        for name, shown in names.items():
            note = note.replace(name, shown)
        terminal.note(note)


def _row(placed: Placed, names: dict[str, str], baseline: str) -> tuple[str, ...]:
    best, worst = placed.best_rank, placed.worst_rank
    likely = ""
    if placed.interval is not None:
        likely = f" (likely {fixed(placed.interval.low)} to {fixed(placed.interval.high)})"
    chance = "-"
    if placed.beats_baseline is not None and placed.system != baseline:
        chance = f"{fixed(100 * placed.beats_baseline)}%"
    return (
        str(best) if best == worst else f"{best}-{worst}",
        names[placed.system],
        f"{fixed(placed.value)}{likely}",
        chance,
    )


def _names(found: Preferences, rows: Sequence[Standing]) -> dict[str, str]:
    """Return what systems are called, as short as they can be told apart."""
    played = {name: found.names[name] for island in found.ranking.islands for name in island}
    labels = {(row.place.prompt, row.place.version): row.label for row in rows}
    several = len({key.prompt for key in played.values()}) > 1
    versions = len({key[:2] for key in played.values()}) > 1

    def shown(key: Key) -> str:
        words = [key.model]
        if versions:
            version = labels.get((key.prompt, key.version)) or short(key.version)
            words.append(f"{key.prompt} {version}" if several else version)
        return " ".join(words)

    return {name: shown(key) for name, key in played.items()}
