"""edison cache: stored answers, and what they save."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.reading import simulated_mark
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.errors import UsageError
from edison_ci.operate.exporting import export_recording
from edison_ci.operate.housekeeping import Clearing, clear, preview_clear
from edison_ci.operate.site import Site, site_at
from edison_ci.store.answers import ModelCache, cache_stats
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.store.answers import Freed


@click.group(cls=EdisonGroup)
def cache() -> None:
    """Show, clear or export the stored answers.

    Examples:
      edison cache stats
      edison cache export recordings/all.jsonl
    """


@cache.command(cls=EdisonCommand)
@click.pass_obj
def stats(state: State) -> None:
    """Show what is stored and what using it again saved.

    By model: answers, how many still have their text, its size, when they were bought, what they
    cost, how often a cell uses one, and what the uses after the first would have cost.

    Examples:
      edison cache stats
      edison cache stats --json
    """
    terminal, site = Terminal(state), _site(state)
    with closing(open_reader(site.results)) as connection:
        models = cache_stats(connection)
    if terminal.json:
        terminal.document({"models": [asdict(one) for one in models], "total": _total(models)})
        return
    if not models:
        terminal.note("no answers are stored yet")
        return
    rows: list[tuple[str, ...]] = [
        ("model", "answers", "with text", "size", "oldest", "newest", "cost", "uses", "saved", "")
    ]
    rows += [_row(one) for one in models]
    terminal.table(rows, right=(1, 2, 3, 6, 7, 8))
    total = _total(models)
    used = f"{counted(total['answers'], 'answer')}, {counted(total['uses'], 'use')}"
    mark = simulated_mark(total["simulated"], total["answers"])
    terminal.result(
        f"{used}: reuse saved {dollars(total['saved_microusd'])}",
        *([Ink(f"  {mark}", ODD)] if mark else []),
    )


@cache.command("clear", cls=EdisonCommand)
@click.option("--all", "everything", is_flag=True, help="Also texts that cells of runs use.")
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(0, 36_500),
    metavar="DAYS",
    help="Only texts stored more than so many days ago.",
)
@click.option("--dry-run", is_flag=True, help="Show what would go, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def clear_cache(state: State, everything: bool, days: int | None, dry_run: bool, yes: bool) -> None:
    """Take away texts that no cell uses.

    Says first what would go, then asks. Tokens, cost and time of every answer stay for ever, and so
    do all scores; a call whose text is gone is made, and paid, again when it is needed. With --all
    the texts of runs go as well: their cells can no longer be read or graded anew.

    Examples:
      edison cache clear --dry-run
      edison cache clear --older-than 30 --yes
    """
    terminal, site = Terminal(state), _site(state)
    wanted = Clearing(everything, days)
    gone = preview_clear(site, wanted)
    cleared = False
    if gone.texts and not dry_run:
        if not yes:
            _ask(terminal, gone)
        gone, cleared = clear(site, wanted), True
    if terminal.json:
        terminal.document({"cleared": cleared, **asdict(gone)})
    what = f"{counted(gone.texts, 'text')} ({gone.size_bytes:,} bytes)"
    terminal.result(f"cleared {what}" if cleared else f"would clear {what}; nothing was changed")


@cache.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.pass_obj
def export(state: State, file: Path) -> None:
    """Write the newest answer of every call to a recording.

    A recording replays with `run --replay`: no key, no network, the same numbers. It holds answers,
    no prompts and no headers. A file that is no recording is not overwritten.

    Examples:
      edison cache export recordings/all.jsonl
    """
    terminal, site = Terminal(state), _site(state)
    path = state.folder / file
    count = export_recording(site, path)
    if terminal.json:
        terminal.document({"path": str(file), "answers": count, "size_bytes": path.stat().st_size})
    terminal.result(f"wrote {file}: {counted(count, 'answer')}")


def _site(state: State) -> Site:
    return site_at(state.entered(find_root(state.folder)))


def _ask(terminal: Terminal, gone: Freed) -> None:
    terminal.note(f"this takes away {counted(gone.texts, 'text')} ({gone.size_bytes:,} bytes)")
    if terminal.json or not sys.stdin.isatty():
        raise UsageError(
            f"{counted(gone.texts, 'text')} would go, and nobody can be asked",
            hint="look with --dry-run, then say --yes",
        )
    click.confirm("go on?", abort=True, err=True)


def _row(one: ModelCache) -> tuple[str, ...]:
    return (
        one.model,
        f"{one.answers:,}",
        f"{one.texts:,}",
        f"{one.size_bytes:,}",
        one.oldest[:10],
        one.newest[:10],
        dollars(one.cost_microusd),
        f"{one.uses:,}",
        dollars(one.saved_microusd),
        simulated_mark(one.simulated, one.answers),
    )


def _total(models: Sequence[ModelCache]) -> dict[str, int]:
    names = (
        *("answers", "texts", "size_bytes", "cost_microusd", "uses", "saved_microusd"),
        "simulated",
    )
    return {name: sum(getattr(one, name) for one in models) for name in names}
