"""The figures of a running run, as texts: for its page, and for the events that update it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from edison_ci import utc
from edison_ci.numeric import duration
from edison_ci.results.live_progress import newest_cells, phases_of
from edison_ci.web import formats
from edison_ci.web.page_context import SHOWN_ID

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.results.live_progress import PhaseChange, Progress
    from edison_ci.store.runs import Run
    from edison_ci.web.page_context import Links

_QUIET_S = 60
"""Seconds without an event after which the page says so."""


def live_view(
    connection: sqlite3.Connection,
    run: Run,
    progress: Progress,
    changes: Sequence[PhaseChange],
    links: Links,
) -> dict[str, Any]:
    """Return everything that the page of an active run shows and updates."""
    now = utc.now()
    return {
        "texts": _texts(run, progress, changes, now),
        "bars": _bars(progress),
        "phases": [
            {
                "name": phase.status.lower(),
                "time": duration(phase.seconds),
                "current": phase.current,
            }
            for phase in phases_of(changes, now)
        ],
        "newest": [
            {
                "id": phase.about.id[:SHOWN_ID],
                "address": links.to("cell", phase.about.id[:SHOWN_ID]),
                "case": formats.text(phase.about.case),
                "model": formats.text(phase.about.model),
                "word": phase.about.word,
                "score": formats.points(phase.about.composite),
                "text": formats.shorten(phase.text or "", 200),
            }
            for phase in newest_cells(connection, run)
        ],
    }


def _texts(
    run: Run, progress: Progress, changes: Sequence[PhaseChange], now: dt.datetime
) -> dict[str, str]:
    phases = phases_of(changes, now)
    worked = sum(phase.seconds for phase in phases if phase.status != "PAUSED")
    errors = progress.cells.get("error", 0)
    return {
        "status": run.status.lower(),
        "done": f"{progress.done:,} of {formats.counted(progress.total, 'cell')} done",
        "errors": formats.counted(errors, "error") if errors else "",
        "elapsed": f"{duration(worked)} so far",
        "left": _left(progress, now),
        "cost": _against(
            formats.dollars(progress.cost_microusd),
            None if progress.budget_microusd is None else formats.dollars(progress.budget_microusd),
        ),
        "tokens": formats.tokens_in_out(progress.tokens_in, progress.tokens_out)
        if progress.budget_tokens is None
        else _against(formats.count(progress.booked_tokens), f"{progress.budget_tokens:,}"),
    }


def _left(progress: Progress, now: dt.datetime) -> str:
    """Return the time left, at the rate of the last minute; nothing is guessed without one."""
    silent = (now - dt.datetime.fromisoformat(progress.time)).total_seconds()
    if silent > _QUIET_S:
        return f"time left unknown: nothing new for {duration(silent)}"
    if progress.done >= progress.total:
        return "all cells are done: adding up"
    if progress.in_batch:
        return f"time left unknown: {formats.counted(progress.in_batch, 'cell')} in a batch"
    if progress.left_s is None:
        return "time left not known yet"
    return f"about {duration(max(progress.left_s - silent, 0))} left"


def _against(used: str, limit: str | None) -> str:
    return f"{used}, no limit" if limit is None else f"{used} of {limit}"


def _bars(progress: Progress) -> list[dict[str, Any]]:
    """Return a bar for each model, then the limits that there are."""
    progress_bars = [
        {
            "name": formats.text(model.name),
            "value": model.done,
            "max": model.planned,
            "text": f"{model.done:,} of {model.planned:,} {model.unit}"
            + (f", {formats.counted(model.errors, 'error')}" if model.errors else "")
            + (", stopped" if model.stopped else ""),
        }
        for model in progress.models
    ]
    limits = (
        ("cost", progress.cost_microusd, progress.budget_microusd, formats.dollars),
        ("tokens", progress.booked_tokens, progress.budget_tokens, formats.tokens),
    )
    for name, used, limit, write in limits:
        if limit:
            text = f"{formats.percent(used / limit)} of the limit of {write(limit)}"
            progress_bars.append(
                {"name": name, "value": min(used, limit), "max": limit, "text": text}
            )
    return progress_bars
