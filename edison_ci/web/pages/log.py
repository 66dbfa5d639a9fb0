"""The page of the log of a run: what happened to it, newest first."""

from __future__ import annotations

from typing import Any, NamedTuple

from edison_ci.store.events import count_events, newest_events
from edison_ci.web import formats
from edison_ci.web.page_context import Crumb, Look, Page, Paging, run_named
from edison_ci.web.pages.run import crumbs_of, head_of


class Line(NamedTuple):
    """An event in words."""

    seq: int
    time: str
    type: str
    said: str


def log(look: Look) -> Page:
    """Return the events of a run, newest first."""
    run = run_named(look, look.path["run"])
    paging = Paging.of(look.args, count_events(look.connection, run.id))
    found = newest_events(look.connection, run.id, limit=paging.per_page, offset=paging.offset)
    lines = [Line(each.seq, each.time, each.type, _said(each.type, each.data)) for each in found]

    def again(**changes: Any) -> str:
        return look.links.to("run", run.id, "log", **changes)

    return Page(
        "log",
        f"Log of {run.experiment}, run {run.id}",
        {**head_of(look, run, "log"), "events": lines, "paging": paging, "again": again},
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
        refresh_s=5 if run.moving else None,
    )


def _said(kind: str, data: dict[str, Any]) -> str:
    """Return an event as people read it."""
    if kind == "status:changed":
        return f"{data.get('from', '')} to {data.get('to', '')}".lower()
    if "done" in data and "total" in data:
        cost = formats.dollars(data.get("cost_microusd", 0))
        return f"{data['done']:,} of {formats.counted(data['total'], 'cell')}, {cost}"
    if kind == "cost:alert":
        return f"{data.get('budget')}: {formats.percent(data.get('used'))} used"
    return ", ".join(f"{key} {value}" for key, value in data.items())
