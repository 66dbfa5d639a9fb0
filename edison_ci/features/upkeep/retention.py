"""Retention: removal of old texts.

Texts go, numbers stay: answers keep tokens, cost and latency, cells and components keep their
scores, rollups are not touched. Spared are younger runs, the newest complete run of each experiment
(others are compared with it), cells of versions in production, cells that a person graded, cases in
quarantine, and runs of open suggestions.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.access.site import BY_ITSELF
from edison_ci.numeric import counted
from edison_ci.records import OPEN_STATUSES, canonical_json
from edison_ci.store import audit, database, liveness
from edison_ci.store.answers import answers_in_use, columns
from edison_ci.store.runs import NO_TRIAL

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from edison_ci.access.site import Actor, Site


GRADED = ("grade", "manual_grade")
"""Tables whose `cell_id` spares a cell, once they exist."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Age from which texts are removed, and what is spared."""

    cutoff: str
    """ISO-8601 UTC; what is older goes."""
    quarantined: tuple[tuple[str, str], ...] = ()
    """Experiment and case."""
    production: tuple[tuple[str, str], ...] = ()
    """Prompt and version, by the start of its hash or by its label."""


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What was removed, or would be."""

    texts: int = 0
    size_bytes: int = 0
    reasons: int = 0
    """Reasons of checks and judges, which quote answers."""
    events: int = 0
    """Progress events of runs that ended long ago."""
    spared_texts: int = 0
    """Old texts that something still needs."""
    of_features: int = 0
    """Texts in files of features of packages."""

    @property
    def nothing(self) -> bool:
        """Whether nothing was old enough."""
        return not (self.texts or self.reasons or self.events or self.of_features)


def collectable(connection: sqlite3.Connection, retention: Retention) -> RetentionResult:
    """Return what `collect` would remove."""
    spared, values = _spared(connection, retention), _values(retention)
    if not connection.execute(_ANYTHING_OLD, values).fetchone()[0]:
        # What is spared need not be found, which is most of the work.
        return RetentionResult(reasons=_count(connection, _OLD_QUESTIONS, values))
    size = "length(cast(text as blob)) + coalesce(length(cast(tool_calls as blob)), 0)"
    texts = connection.execute(
        f"select count(*), coalesce(sum({size}), 0) from answer_text "
        f"where (request_hash, answer_no) in ({_old_answers(connection, spared)})",
        values,
    ).fetchone()
    old = connection.execute(
        "select count(*) from answer_text where (request_hash, answer_no) in "
        "(select request_hash, answer_no from answer where created_at < :cutoff)",
        values,
    ).fetchone()[0]
    cells = f"cell where reason is not null and id in ({_old_cells(spared)})"
    others = [f"{what} in ({_old_cells(spared)})" for what in _REASONS]
    return RetentionResult(
        texts=texts[0],
        size_bytes=texts[1],
        reasons=sum(_count(connection, rows, values) for rows in (cells, *others, _OLD_QUESTIONS)),
        events=_count(connection, f"event where {_OLD_EVENTS}", values),
        spared_texts=old - texts[0],
    )


def collect(connection: sqlite3.Connection, retention: Retention) -> RetentionResult:
    """Remove old texts in the current transaction."""
    collected = collectable(connection, retention)
    spared, values = _spared(connection, retention), _values(retention)
    if collected.texts:
        connection.execute(
            "delete from answer_text where (request_hash, answer_no) in "
            f"({_old_answers(connection, spared)})",
            values,
        )
    if collected.reasons:
        _empty_reasons(connection, _old_cells(spared), values)
    connection.execute(f"delete from event where {_OLD_EVENTS}", values)
    connection.execute("delete from schedule_fire where ended_at < :cutoff", values)
    # What waits is still to be sent; it is sent or given up within days.
    old = "created_at < :cutoff and state <> 'waiting'"
    connection.execute(f"delete from notification where {old}", values)
    return collected


def _empty_reasons(connection: sqlite3.Connection, chosen: str, values: dict[str, str]) -> None:
    for what in _REASONS:
        table, _, where = what.partition(" where ")
        emptied = "ab_reason = '', ba_reason = ''" if table == "comparison" else "reason = ''"
        connection.execute(f"update {table} set {emptied} where {where} in ({chosen})", values)
    connection.execute(
        f"update cell set reason = null where reason is not null and id in ({chosen})", values
    )
    table, _, where = _OLD_QUESTIONS.partition(" where ")
    connection.execute(f"update {table} set reason = '' where {where}", values)


_ANYTHING_OLD = (
    "select exists (select 1 from answer where created_at < :cutoff) "
    "or exists (select 1 from run where created_at < :cutoff)"
)
_IN_PRODUCTION = (
    "select c.id from json_each(:production) p "
    "join cell c on c.prompt = json_extract(p.value, '$[0]') join run r on r.id = c.run_id "
    "where instr(c.version, json_extract(p.value, '$[1]')) = 1 or c.side = 'head' and exists "
    "(select 1 from json_each(r.labels) l where l.key = c.prompt "
    "and l.value = json_extract(p.value, '$[1]'))"
)
_OLD_QUESTIONS = "question_score where reason <> '' and judged_at < :cutoff"
_REASONS = (
    "component where reason <> '' and cell_id",
    "judge_score where reason <> '' and cell_id",
    "fallback_answer where reason <> '' and cell_id",
    "comparison where ab_reason || ba_reason <> '' and a_cell",
)
"""Tables with reasons of checks and judges besides `cell`, and their column of cell ids."""
_OLD_EVENTS = (
    "type like '%:progress' and run_id in "
    "(select id from run where coalesce(finished_at, created_at) < :cutoff)"
)


def _spared(connection: sqlite3.Connection, retention: Retention) -> str:
    """Return SQL for the ids of cells that are spared."""
    newest = (
        "r.rowid = (select n.rowid from run n where n.experiment = r.experiment and n.complete = 1 "
        f"and n.{NO_TRIAL}"
        "{0} order by n.created_at desc, n.rowid desc limit 1)"
    )
    runs = f"r.created_at >= :cutoff or {newest.format('')}"
    # A filtered or simulated run never serves as a base for others, so it must not push one out.
    runs += f" or {newest.format(' and n.partial = 0 and n.simulated = 0')}"
    parts = [f"select c.id from cell c join run r on r.id = c.run_id where {runs}"]
    if retention.quarantined:
        parts.append(
            "select c.id from cell c join run r on r.id = c.run_id "
            "join json_each(:quarantined) q on json_extract(q.value, '$[0]') = r.experiment "
            "and json_extract(q.value, '$[1]') = c.case_id"
        )
    if retention.production:
        parts.append(_IN_PRODUCTION)
    waiting = ", ".join(f"'{status}'" for status in sorted(OPEN_STATUSES))
    parts.append(
        "select c.id from suggestion s join json_each(s.runs) j join cell c on c.run_id = j.value "
        f"where s.status in ({waiting})"
    )
    columns_of = columns(connection)
    parts += [
        f"select cell_id from {table}" for table in GRADED if "cell_id" in columns_of.get(table, ())
    ]
    return " union ".join(parts)


def _old_answers(connection: sqlite3.Connection, spared: str) -> str:
    # Not `not in`: SQLite would scan all of them for each answer that is not in use.
    return (
        "select request_hash, answer_no from answer where created_at < :cutoff "
        f"except select * from ({answers_in_use(connection, cells=spared)})"
    )


def _old_cells(spared: str) -> str:
    return (
        "select c.id from cell c join run r on r.id = c.run_id "
        f"where r.created_at < :cutoff except select * from ({spared})"
    )


def _values(retention: Retention) -> dict[str, str]:
    return {
        "cutoff": retention.cutoff,
        "quarantined": _json(retention.quarantined),
        "production": _json(retention.production),
    }


def _json(pairs: Iterable[tuple[str, str]]) -> str:
    return canonical_json([list(pair) for pair in pairs])


def _count(connection: sqlite3.Connection, rest: str, values: dict[str, str]) -> int:
    return int(connection.execute(f"select count(*) from {rest}", values).fetchone()[0])


def retention_policy(site: Site) -> Retention | None:
    """Return the retention of old texts by the settings; None keeps them."""
    days = site.file.settings.retention_days
    if days == 0:
        return None
    quarantined = tuple((entry.experiment, entry.case) for entry in site.quarantine())
    return Retention(site.days_ago(days), quarantined, site.production())


def preview_gc(site: Site) -> RetentionResult:
    """Return what `gc` would delete now."""
    retention = retention_policy(site)
    with closing(database.open_reader(site.results)) as connection:
        if retention is None:
            return RetentionResult()
        due = collectable(connection, retention)
    return replace(due, of_features=_of_features(site, retention))


def _of_features(site: Site, retention: Retention, *, remove: bool = False) -> int:
    wish = feature.Wish("before", retention.cutoff)
    return sum(feature.forget(site.root, wish, remove=remove).values())


def gc(site: Site, *, actor: Actor | None = None, vacuum: bool = False) -> RetentionResult:
    """Delete the texts that are older than the settings allow; without `actor`, a person does."""
    database.stored_version(site.results)
    actor = actor or site.require(sites.Role.ADMIN, "gc", site.file.results)
    retention = retention_policy(site)
    gone = RetentionResult()
    if retention is not None:
        with liveness.exclusive_access(site.results, site.locks, "gc") as connection:
            others = _of_features(site, retention, remove=True)
            gone = replace(collect(connection, retention), of_features=others)
            if not gone.nothing:
                details = {"cutoff": retention.cutoff, **asdict(gone)}
                audit.add_audit(
                    connection, site.entry(actor, "gc", site.file.results, after=details)
                )
    if vacuum:
        liveness.shrink(site.results, site.locks)
    return gone


def apply_retention(site: Site) -> str:
    """Delete old texts as the daily duty; return what was done, in words."""
    # Looked at first without the lock that keeps runs from starting.
    due = preview_gc(site)
    if due.nothing:
        return "nothing was old enough"
    gone = gc(site, actor=BY_ITSELF)
    return f"{counted(gone.texts + gone.of_features, 'text')} deleted"
