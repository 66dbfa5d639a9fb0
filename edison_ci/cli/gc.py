"""edison gc: old texts taken away."""

from __future__ import annotations

from dataclasses import asdict

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.operate.housekeeping import gc as collect_garbage
from edison_ci.operate.housekeeping import preview_gc
from edison_ci.operate.site import site_at


@click.command(cls=EdisonCommand)
@click.option("--dry-run", is_flag=True, help="Show what would go, and change nothing.")
@click.option("--vacuum", is_flag=True, help="Give the room back to the disk; takes a while.")
@click.pass_obj
def gc(state: State, dry_run: bool, vacuum: bool) -> None:
    """Take away texts older than retention_days.

    Answers lose their text, checks and judges their reasons; every number stays. Spared are younger
    runs, the newest complete run of each experiment, versions of prompts in production, and cells
    that were graded by hand or are in quarantine. No experiment may be running.
    settings.retention_days: 0 keeps texts for ever.

    Examples:
      edison gc --dry-run
      edison gc --vacuum
    """
    terminal = Terminal(state)
    site = site_at(state.entered(find_root(state.folder)))
    days = site.file.settings.retention_days
    before = site.results.stat().st_size if site.results.exists() else 0
    gone = preview_gc(site) if dry_run else collect_garbage(site, vacuum=vacuum)
    after = site.results.stat().st_size
    if terminal.json:
        told = {"retention_days": days, "dry_run": dry_run, **asdict(gone)}
        terminal.document({**told, "file_bytes": {"before": before, "after": after}})
    if days == 0:
        terminal.result("texts are kept for ever: settings.retention_days is 0")
        return
    verb = "would free" if dry_run else "freed"
    terminal.result(f"{verb} {counted(gone.texts, 'text')} ({gone.size_bytes:,} bytes)")
    terminal.result(f"{verb} {counted(gone.reasons, 'reason')}, {counted(gone.events, 'event')}")
    terminal.result(f"spared {counted(gone.spared_texts, 'text')} older than {days} days")
    if not dry_run and gone.texts and not vacuum:
        terminal.note("the room is used for new results; --vacuum gives it back to the disk")
