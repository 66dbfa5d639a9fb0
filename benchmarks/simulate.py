"""Do the methods of edison_ci.stats keep their promises? Simulated, as a Markdown table.

    python -m benchmarks.simulate [--quick] [--runs N] [--only NAME] [--write docs/statistics.md]

The full form has 10,000 data sets in every cell, so a share near 5% is known to about 0.4 points
(two standard errors); --quick has 400. `--write` replaces what stands between the marks in the
file. `--only` renews one table that has random numbers of its own, and leaves the others.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import (
    simulate_alerts,
    simulate_cells,
    simulate_edges,
    simulate_harm,
    simulate_items,
    simulate_regressions,
    simulate_trials,
    simulate_watching,
)
from benchmarks.simulate_figures import Figures, Setting
from benchmarks.simulate_repeated import repeated_inputs

SEED = 20260101
FULL, QUICK = 10_000, 400
START, END = "<!-- figures: python -m benchmarks.simulate -->", "<!-- end of figures -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} runs a cell, not {FULL}")
    parser.add_argument("--runs", type=int, help="runs a cell")
    parser.add_argument("--write", type=Path, help="file whose marked part is replaced")
    tables = (
        *simulate_trials.TABLES,
        *simulate_alerts.TABLES,
        *simulate_regressions.TABLES,
    )
    own = {table.__name__: table for table in tables}
    parser.add_argument("--only", choices=own, help="one table that can be renewed by itself")
    args = parser.parse_args()
    runs = args.runs or (QUICK if args.quick else FULL)
    found = own[args.only](Setting(runs, np.random.default_rng(SEED))) if args.only else None
    text = report(runs) if found is None else markdown(found)
    print(text)
    if args.write:
        before = args.write.read_text(encoding="utf-8")
        after = replaced(before, text) if found is None else renewed(before, found)
        args.write.write_text(after, "utf-8")


def report(runs: int) -> str:
    parts = [f"{runs:,} simulated data sets in every cell, seed {SEED}."]
    start = time.monotonic()
    setting = Setting(runs, np.random.default_rng(SEED))
    tables = (
        *simulate_cells.TABLES,
        *simulate_edges.TABLES,
        *simulate_harm.TABLES,
        *simulate_regressions.TABLES,
        *simulate_watching.TABLES,
        repeated_inputs,
        *simulate_trials.TABLES,
        *simulate_items.TABLES,
        *simulate_alerts.TABLES,
    )
    for table in tables:
        figures = table(setting)
        parts.append(markdown(figures))
        print(f"{figures.title}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    return "\n\n".join(parts)


def markdown(figures: Figures) -> str:
    lines = [
        f"### {figures.title}",
        "",
        f"Promised: {figures.promise}.",
        "",
        f"| {' | '.join((figures.first, *figures.columns))} |",
        f"| --- |{' ---: |' * len(figures.columns)}",
        *(f"| {' | '.join(row)} |" for row in figures.rows),
    ]
    return "\n".join(lines)


def replaced(text: str, part: str) -> str:
    """Return the text with the part between the marks replaced."""
    before, found, rest = text.partition(START)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"the file has no marks {START!r} and {END!r}")
    return f"{before}{START}\n\n{part}\n\n{END}{after}"


def renewed(text: str, figures: Figures) -> str:
    """Return the text with one table renewed, or added as the last one."""
    before, closed, after = text.partition(END)
    heading, old, rest = before.partition(f"### {figures.title}\n")
    if not closed or START not in before:
        raise SystemExit(f"the file has no marks {START!r} and {END!r}")
    _, following, others = rest.partition("\n### ") if old else ("", "", "")
    tail = f"### {others.rstrip()}\n\n" if following else ""
    return f"{heading.rstrip()}\n\n{markdown(figures)}\n\n{tail}{END}{after}"


if __name__ == "__main__":
    main()
