"""How is the picture of a run made from what is stored?

Nothing is measured or decided here: numbers come from the summary of the run, sentences from the
decisions that were stored, and comparisons from `decide`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from edison_ci.config.decisions import Gate
from edison_ci.errors import UsageError
from edison_ci.formatting import counted
from edison_ci.results.case_filter import Roll
from edison_ci.results.companions import companion_of
from edison_ci.results.comparison import Setting, stand
from edison_ci.results.comparison_sample import Choice
from edison_ci.results.decisions import decisions_of
from edison_ci.results.judges import judges_said
from edison_ci.results.leaderboard import Place, standing_of
from edison_ci.results.material_changes import material_changes, replaced_in
from edison_ci.results.run_result import LISTED, summarize
from edison_ci.results.snapshot import UNDECIDED, kept_snapshot, material_of
from edison_ci.results.view import Change, Files, Finding, Report, RunView
from edison_ci.results.weak_prompts import weak_prompts
from edison_ci.rounding import fixed
from edison_ci.store.comparisons import any_comparison
from edison_ci.store.opinions import several_judges

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.results.decisions import GateRow
    from edison_ci.results.leaderboard import Standing as Measured
    from edison_ci.results.run_result import RunSummary
    from edison_ci.store.runs import Run


def report_of(connection: sqlite3.Connection, runs: Iterable[Run], failure: str = "") -> Report:
    """Return the report on runs; each brings the run on the base's material that belongs to it."""
    pairs = [(run, companion_of(connection, run)) for run in runs]
    led = {companion.id for _, companion in pairs if companion is not None}
    views: list[RunView] = []
    for run, companion in pairs:
        if run.id in led:
            continue  # it comes with the run that it belongs to
        views.append(view_of(connection, run, companion))
        if companion is not None:
            views.append(view_of(connection, companion))
    return Report(tuple(views), failure)


def view_of(connection: sqlite3.Connection, run: Run, companion: Run | None = None) -> RunView:
    """Return the picture of one run; `companion` is the same on the base's material."""
    snapshot = kept_snapshot(run)
    aside = frozenset(str(case) for case in snapshot.get("quarantine.yaml") or ())
    summary, gates = _summary(connection, run), decisions_of(connection, run.id)
    clusters = _clusters(connection, run)
    on = material_of(run)
    changed = material_changes(connection, run, companion) if on == "head" else ()
    scores = tuple(_scores(connection, run, Roll(clusters)))
    findings = tuple(_findings(connection, run))
    missing = tuple(_missing(summary, gates, aside))
    weak = weak_prompts(connection, run) if len(summary.prompts) > 1 else ()
    setting = Setting(tuple(_gates(gates)), clusters, aside)
    return RunView(
        summary=summary,
        gates=gates,
        scores=scores,
        changes=tuple(_changes(connection, run, scores, setting)),
        weak=weak,
        findings=findings,
        missing=missing,
        on=on,
        material=changed,
        replaced=replaced_in(run),
        twice=companion is not None,
        quarantined=aside,
        files=_files(run, snapshot),
    )


def _summary(connection: sqlite3.Connection, run: Run) -> RunSummary:
    """Return the numbers of a run, with what its judges say beside the scores, if anything."""
    summary = summarize(connection, run)
    if any_comparison(connection, run.id) or several_judges(connection, run.id):
        return replace(summary, judges=judges_said(connection, run.id))
    return summary


def _clusters(connection: sqlite3.Connection, run: Run) -> dict[str, str]:
    rows = connection.execute(
        "select distinct case_id, cluster from cell where run_id = ? and cluster is not null",
        (run.id,),
    )
    return dict(rows.fetchall())


def _scores(connection: sqlite3.Connection, run: Run, roll: Roll) -> Iterator[Measured]:
    """Yield what each prompt version with a model is worth, head before base."""
    rows = connection.execute(
        "select distinct side, prompt, version, model from cell where run_id = ? "
        "order by side desc, prompt, model",
        (run.id,),
    )
    for side, prompt, version, model in rows.fetchall():
        label = run.labels.get(prompt) if side == "head" else None
        place = Place(run, side, prompt, version, model)
        yield standing_of(connection, place, roll, label)


def _changes(
    connection: sqlite3.Connection, run: Run, scores: Sequence[Measured], setting: Setting
) -> Iterator[Change]:
    sides = {
        side: {(s.place.prompt, s.place.model) for s in scores if s.place.side == side}
        for side in ("base", "head")
    }
    for prompt, model in sorted(sides["base"] & sides["head"]):
        base, head = (
            Choice(side, run, side=side, prompt=prompt, models=(model,))
            for side in ("base", "head")
        )
        try:
            yield Change(prompt, model, stand(connection, base, head, setting))
        except UsageError:
            continue  # no case in common: the gates have said so


def _gates(rows: Iterable[GateRow]) -> Iterator[Gate]:
    """Yield the gates that say which difference of the composite matters, as files write them."""
    for row in rows:
        if row.metric != "composite" or "no_worse_than" not in row.gate:
            continue
        written = {"metric": row.metric, "no_worse_than": row.gate["no_worse_than"]}
        margin = row.gate.get("margin")
        if margin:
            unit = "%" if margin["relative"] else "pp"
            written["margin"] = f"{100 * float(margin['value']):g}{unit}"
        yield Gate.model_validate(written)


def _findings(connection: sqlite3.Connection, run: Run) -> Iterator[Finding]:
    rows = connection.execute(
        "select p.name, p.kind, case when c.status = 'blocked' then 'block' else 'flag' end, "
        "c.prompt, c.model, c.case_id from cell c join part p on p.cell_id = c.id "
        "and p.kind in ('safety', 'flag') and p.status = 'ok' "
        "where c.run_id = ? and c.side = 'head' group by 1, 2, 3, 4, 5, 6 "
        "order by 3, p.kind desc, p.name, c.prompt, c.model, c.case_id",
        (run.id,),
    )
    return (Finding(*row) for row in rows.fetchall())


def _files(run: Run, snapshot: Mapping[str, Any]) -> Files:
    own = {place: value for place, value in snapshot.items() if not place.startswith("base: ")}
    for place, value in own.items():
        if isinstance(value, dict) and value.get("experiment") == run.experiment:
            paths = [str(path) for path in value.get("prompts", ())]
            prompts = {PurePosixPath(path).stem: path for path in paths}
            models = (p.partition(": ")[0] for p, v in own.items() if _is_model(p, v))
            return Files(place, next(models, ""), prompts)
    return Files()


def _is_model(place: str, value: Any) -> bool:
    return ": " in place and isinstance(value, list) and bool(value) and isinstance(value[0], dict)


# --- what the numbers do not tell -----------------------------------------------------------------


def _missing(summary: RunSummary, gates: Sequence[GateRow], aside: frozenset[str]) -> Iterator[str]:
    run, cells = summary.run, summary.cells
    done = sum(count for name, count in cells.items() if name != "total")
    if run.status != "COMPLETED":
        by = f", stopped by {run.stopped_by}" if run.stopped_by else ""
        yield f"The run is {run.status}{by}: {done:,} of {cells['total']:,} cells are done."
    if cells["error"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in summary.error_kinds.items())
        yield f"{cells['error']:,} of {cells['total']:,} cells ended in an error ({kinds})."
    yield from _bounds(summary)
    for part in summary.parts:
        if part.errors:
            yield f"No grade by {part.kind} {part.name}: {counted(part.errors, 'answer')}."
    if cells["skipped"]:
        shown = "; ".join(f"{case}: {reason}" for case, reason in summary.skips)
        more = ", ..." if cells["skipped"] > LISTED else ""
        yield f"Skipped: {counted(cells['skipped'], 'cell')}. {shown}{more}"
    if run.partial or run.shard is not None:
        yield _part(run)
    if aside:
        are = "is" if len(aside) == 1 else "are"
        yield f"{counted(len(aside), 'case')} {are} in quarantine: run and shown, but never gating."
    if summary.calls["unknown"]:
        lost = counted(summary.calls["unknown"], "call")
        yield f"Of unknown fate, and counted at the most they can cost: {lost}."
    if run.status == "COMPLETED" and not gates and run.shard is None:
        yield "The experiment has no gates, so nothing was decided."


def _part(run: Run) -> str:
    if run.shard is None:
        return "Only a part of the cases was run."
    return f"Shard {run.shard.replace('/', ' of ')}: this is a part of a run. {UNDECIDED}"


def _bounds(summary: RunSummary) -> Iterator[str]:
    """Say where scores lie, whatever the answers that are missing are worth."""
    several = len(summary.by_model) > 1
    for found in summary.breakdown.bounds:
        worst, best = found.composite_worst, found.composite_best
        if worst is None or best is None or several != bool(found.model):
            continue
        who = f"the score of {found.prompt} with {found.model}" if several else "the score"
        without = counted(found.missing, "answer")
        yield (
            f"With {without} missing, {who} lies between {fixed(100 * worst, 1)} and "
            f"{fixed(100 * best, 1)}."
        )
