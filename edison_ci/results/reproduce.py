"""The command that repeats runs, with the options that they were started with."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from edison_ci.results.snapshot import snapshot_of
from edison_ci.store.runs import IMPORT, IMPORTED_ANSWERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.store.runs import Run

_ELSEWHERE = frozenset({IMPORT, *IMPORTED_ANSWERS, "replay", "refine"})
"""Triggers of runs that `edison run` on the files of their commit does not repeat."""
_SHORT = 12


def run_commands(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the commands that repeat runs; runs with the same options are one command."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for run in runs:
        if run.trigger not in _ELSEWHERE and not _kept(run).get("regrade"):
            found.setdefault(tuple(_options(run)), {})[run.experiment] = None
    return tuple(
        shlex.join(["edison", "run", *names, *options]) for options, names in found.items()
    )


def _options(run: Run) -> Iterator[str]:
    if run.base_commit is not None:
        yield from ("--against", run.base_commit[:_SHORT])
    chosen = _kept(run).get("selection") or {}
    for option, key in (("--model", "models"), ("--case", "cases"), ("--tag", "tags")):
        for value in chosen.get(key) or ():
            yield from (option, str(value))
    for option in ("limit", "repeats", "shard"):
        if chosen.get(option) is not None:
            yield from (f"--{option}", str(chosen[option]))


def _kept(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = snapshot_of(run).get("command line", {})
    return found
