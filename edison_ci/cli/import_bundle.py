"""edison import bundle: runs of another machine, with all they rest on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.operate.bundles import take_in
from edison_ci.operate.site import site_at

if TYPE_CHECKING:
    from edison_ci.operate.bundles import BundledRun


@click.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Check it and show what is in it, change nothing.")
@click.pass_obj
def bundle(state: State, file: Path, dry_run: bool) -> None:
    """Take in runs that `report --format bundle` wrote.

    Everything is checked first: checksums, every page and row of the results in it, and that they
    were made by this version. Then the runs come in with their answers, grades, decisions and
    costs, all or none of them; a run that is here already stays as it is. Their answers are shown
    and graded anew, but never reused by other runs: a file from elsewhere may say anything.

    Examples:
      edison import bundle run.zip
      edison import bundle run.zip --dry-run --json
    """
    terminal = Terminal(state)
    site = site_at(state.entered(find_root(state.folder)))
    taken = take_in(site, state.folder / file, dry_run=dry_run)
    if terminal.json:
        runs = [_as_json(run, new=new) for new, runs in ((True, taken.new), (False, taken.known))
                for run in runs]  # fmt: skip
        terminal.document({"file": str(file), "dry_run": dry_run, "runs": runs})
        return
    for run in taken.new:
        word = Ink("would take in", ODD) if dry_run else Ink("took in", GOOD)
        simulated = Ink("  simulated", ODD) if run.simulated else ""
        terminal.result(word, f"  {_told(run)}", simulated)
    for run in taken.known:
        terminal.result(f"was here  {_told(run)}")
    if taken.new and not dry_run:
        terminal.note(f"Next: edison report {taken.new[-1].id}")


def _told(run: BundledRun) -> str:
    verdict = run.verdict or "not finished"
    return f"{run.id}  {run.experiment}  {verdict}  {counted(run.cells, 'cell')}"


def _as_json(run: BundledRun, *, new: bool) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "experiment": run.experiment,
        "verdict": run.verdict,
        "simulated": run.simulated,
        "cells": run.cells,
        "new": new,
    }
