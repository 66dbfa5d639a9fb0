"""Forgetting: removal of the texts of a case or of a person; numbers and verdicts stay.

Every column of text is listed here, once: it holds texts, which are emptied; or names, by which
numbers are found and which stay, but are reported; or nothing that people write. The answers of a
cell and everything that was said about them go together: what is said of a person need not name
them.

SQLite leaves removed rows in the file until their place is used again, and in its log. So removed
bytes are overwritten, and the file is rewritten. Copies are rewritten aside and put in place
whole: a process that is killed leaves the old copy or the new one.
"""

from __future__ import annotations

import json
import sqlite3
import unicodedata
import uuid
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError
from edison_ci.store.answers import answers_in_use
from edison_ci.store.audit import FORGET, add_audit
from edison_ci.store.database import copy_to, open_reader, store_error, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from edison_ci.store.audit import AuditEntry

TEXTS: dict[str, dict[str, str]] = {
    "cell": {"reason": "null"},
    "fallback_answer": {"reason": "''"},
    "component": {"reason": "''"},
    "judge_score": {"reason": "''"},
    "comparison": {"ab_reason": "''", "ba_reason": "''"},
    "manual_grade": {"note": "''"},
    "question_score": {"reason": "''"},
    "answer_text": {"text": "", "tool_calls": "", "details": ""},
    "attempt": {"error": "null"},
    "batch": {"status": "''"},
    "steering": {"said": "''"},
    "schedule_fire": {"reason": "''"},
    "event": {"data": "'{}'"},
    "duty": {"detail": "''"},
    "alert": {"sentence": "'(forgotten)'", "detail": "'{}'", "closed_why": "''", "note": "''"},
    "alert_mute": {"reason": "''"},
    "suggestion": {
        "diff": "''",
        "note": "'(forgotten)'",
        "targets": "'[]'",
        "guardrails": "'[]'",
        "evidence": "'{}'",
        "reason": "null",
    },
    "suggestion_comment": {"text": "'(forgotten)'"},
    "notification": {"message": "'{}'", "error": "''"},
    "loop": {"evidence": "'{}'"},
    "loop_iteration": {"text": "''", "dropped": "null"},
    "audit": {"before": "", "after": ""},
}
"""Columns with texts, and what is put in their place; rows of the two without it are their own."""

NAMES: dict[str, tuple[str, ...]] = {
    "run": ("experiment", "snapshot", "labels", "models", "base_ref"),
    "steering": ("what", "by"),
    "run_origin": ("ran_by", "ran_on", "source", "brought_by"),
    "start_request": ("experiment", "by"),
    "cell": ("prompt", "model", "case_id", "cluster"),
    "run_case": ("case_id", "tags"),
    "question_score": ("experiment", "case_id", "judge", "criterion"),
    "component": ("name",),
    "judge_score": ("judge", "criterion"),
    "comparison": ("judge",),
    "fallback_answer": ("model",),
    "judgment": ("model",),
    "attempt": ("experiment", "model"),
    "batch": ("model", "scopes"),
    "schedule_fire": ("experiment", "schedule"),
    "schedule_watch": ("experiment", "schedule"),
    "scheduler": ("host",),
    "answer": ("served_model",),
    "booked": ("scope",),
    "audit": ("actor", "entity", "host"),
    "alert": ("experiment", "acknowledged_by"),
    "alert_mute": ("experiment", "actor"),
    "decision": ("prompt", "model", "sentence", "gate", "detail"),
    "manual_grade": ("experiment", "case_id", "actor", "criteria"),
    "judge_approval": ("judges", "reason"),
    "suggestion": (
        *("experiment", "prompt", "path", "branch", "pull_request_url", "decided_by", "author"),
    ),
    "suggestion_approval": ("actor",),
    "suggestion_comment": ("actor",),
    "notification": ("recipient", "address"),
    "loop": ("experiment", "prompt", "branch"),
    "loop_iteration": ("prompt", "path"),
    "rollup_model": ("prompt", "model"),
    "rollup_case": ("case_id",),
    "rollup_mark": ("value", "case_id"),
    "rollup_marked": ("value",),
    "rollup_component": ("prompt", "model", "name"),
    "rollup_component_total": ("name",),
    "rollup_reliability": ("prompt", "model"),
    "rollup_slice": ("prompt", "model", "value"),
    "rollup_spending": ("model",),
    "rollup_paid": ("prompt", "model"),
}
"""Columns with names that numbers are found by; they stay."""

FIXED: dict[str, tuple[str, ...]] = {
    "run": (
        *("id", "trigger", "status", "verdict", "plan_hash", "stopped_by", "base_commit"),
        *("commit_id", "shard", "loop", "owner", "wanted", "created_at", "finished_at"),
    ),
    "steering": ("run_id", "asked_at", "taken_at"),
    "run_origin": ("run_id", "ran_as", "way", "brought_at", "signed_by"),
    "start_request": ("key", "run_id", "plan_hash", "asked_at", "workflow_url", "accepted_at"),
    "cell": ("id", "run_id", "side", "version", "request_hash", "status", "error", "case_hash"),
    "fallback_answer": ("cell_id", "request_hash", "status"),
    "run_case": ("run_id", "kind"),
    "component": ("cell_id", "kind", "status"),
    "judgment": ("cell_id", "request_hash"),
    "question_score": ("case_hash", "hash", "status", "request_hash", "judged_at"),
    "judge_score": ("cell_id", "missing"),
    "comparison": (
        *("a_cell", "b_cell", "run_id", "judge_hash", "status", "ab_winner", "ba_winner", "own"),
    ),
    "attempt": (
        *("request_hash", "run_id", "loop", "phase", "state", "owner", "sent_at", "done_at"),
        "origin",
    ),
    "batch": ("id", "run_id", "state", "remote_id", "created_at", "checked_at"),
    "batch_request": ("batch_id", "left_out"),
    "schedule_fire": (
        *("due_at", "last_due_at", "state", "owner", "run_id", "resume_at", "claimed_at"),
        "ended_at",
    ),
    "schedule_watch": ("cron", "watched_until"),
    "scheduler": ("owner", "started_at", "seen_at", "stopped_at"),
    "answer": ("request_hash", "finish_reason", "cost_kind", "left_out", "created_at"),
    "answer_text": ("request_hash", "sha256"),
    "booked": ("day",),
    "event": ("time", "run_id", "type"),
    "duty": ("name", "due_at", "started_at", "ended_at", "outcome", "done_at"),
    "audit": ("time", "known_by", "action", "nonce", "run_id", "detail", "sha256"),
    "alert": (
        *("condition", "level", "run_id", "opened_at", "seen_at", "closed_at"),
        *("acknowledged_at", "told_level", "told_at"),
    ),
    "alert_mute": ("condition", "until", "made_at"),
    "decision": ("run_id", "metric", "verdict", "decided_at"),
    "manual_grade": ("cell_id", "request_hash", "scale", "graded_at", "origin"),
    "judge_approval": ("run_id",),
    "suggestion": (
        *("id", "hash", "base_hash", "new_hash", "status", "commit_id", "decided_at"),
        *("edited_from", "runs", "made_by", "created_at"),
    ),
    "suggestion_approval": ("suggestion", "made_at"),
    "suggestion_comment": ("suggestion", "made_at"),
    "notification": ("id", "occasion", "state", "digest", "created_at", "due_at", "done_at"),
    "loop": ("id", "mode", "point", "base_commit", "stopped_by", "started_at", "finished_at"),
    "loop_iteration": ("loop", "version", "run_id", "suggestion", "outcome", "pending"),
    "rollup_run": ("run_id", "side", "composite_method", "pass_method"),
    "rollup_model": ("run_id", "side", "version", "composite_method", "pass_method"),
    "rollup_case": ("run_id", "side"),
    "rollup_mark": ("run_id", "side", "kind"),
    "rollup_marked": ("run_id", "side", "kind"),
    "rollup_component": ("run_id", "side", "kind", "bins"),
    "rollup_component_total": ("run_id", "side", "kind"),
    "rollup_reliability": ("run_id", "side", "method"),
    "rollup_slice": ("run_id", "side", "dimension", "composite_method", "pass_method"),
    "rollup_spending": ("run_id", "day", "phase"),
    "rollup_calls": ("run_id",),
    "rollup_paid": ("run_id",),
}
"""Columns of ids, hashes, times and fixed words."""

_OF_CELLS = {
    "cell": "id",
    "fallback_answer": "cell_id",
    "component": "cell_id",
    "judge_score": "cell_id",
    "manual_grade": "cell_id",
    "comparison": "a_cell",
}
_OWN_WAY = ("answer_text", "audit")
_LEFT = ".forgetting"
"""Suffix of the file that a copy is rewritten in."""


class CaseName(NamedTuple):
    """A case, of one experiment or of all."""

    case_id: str
    experiment: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The texts to forget."""

    texts: tuple[str, ...] = ()
    """A text that has one of these goes, in any column."""
    cases: frozenset[CaseName] = frozenset()
    cells: frozenset[str] = frozenset()
    """Cells that another file named."""
    answers: frozenset[tuple[str, int]] = frozenset()
    """Answers that another file named."""
    names: bool = False
    """Whether to look for the texts in names too, which stay."""

    def matches(self) -> Callable[[object], bool]:
        """Return whether a text is to be forgotten."""
        needles = tuple({form for text in self.texts for form in _forms(text)})

        def has(value: object) -> bool:
            if not isinstance(value, str) or not needles:
                return False
            folded = _folded(value)
            return any(needle in folded for needle in needles)

        return has


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a file has of a selection, or had."""

    counts: Mapping[str, int]
    """Rows by table, or by table and column."""
    cells: frozenset[str] = frozenset()
    answers: frozenset[tuple[str, int]] = frozenset()
    audit_rows: tuple[int, ...] = ()
    names: Mapping[str, int] | None = None
    """Rows by table and column of names, which stay."""

    @property
    def rows(self) -> int:
        """How many rows had a text."""
        return sum(self.counts.values())


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _forms(text: str) -> Iterator[str]:
    """Yield a text as it is, and as JSON writes it."""
    for escape in (False, True):
        yield _folded(json.dumps(text, ensure_ascii=escape)[1:-1])
    yield _folded(text)


def find_texts(connection: sqlite3.Connection, selection: Selection) -> Forgotten:
    """Return what a file has of a selection; only temporary tables are written."""
    _choose(connection, selection)
    counts: Counter[str] = Counter()
    for table, column, where in _places():
        count = _number(connection, f"select count(*) from {table} where {where}")
        counts[f"{table}.{column}"] = count
    counts["answer_text"] = _number(connection, f"select count(*) from answer_text where {_GONE}")
    rows = tuple(seq for (seq,) in connection.execute(_AUDIT_ROWS, (FORGET,)))
    counts["audit"] = len(rows)
    cells = frozenset(cell for (cell,) in connection.execute("select id from temp.forgotten_cell"))
    answers = frozenset(
        (request_hash, number)
        for request_hash, number in connection.execute("select * from temp.forgotten_answer")
    )
    names = _names(connection) if selection.names else None
    return Forgotten({key: n for key, n in counts.items() if n}, cells, answers, rows, names)


_GONE = "(request_hash, answer_no) in (select request_hash, answer_no from temp.forgotten_answer)"
_AUDIT_ROWS = (
    "select seq from audit where nonce is not null and coalesce(before, after) is not null "
    "and action <> ? and (has(before) or has(after) or entity in "
    "(select 'cell ' || substr(id, 1, 12) from temp.forgotten_cell)) order by seq"
)


def _choose(connection: sqlite3.Connection, selection: Selection) -> None:
    """Fill the temporary tables of the cells and answers to forget."""
    connection.create_function("has", 1, selection.matches(), deterministic=True)
    connection.execute("pragma temp_store = memory")
    for table, columns in (
        ("forgotten_cell", "id text primary key"),
        ("forgotten_answer", "request_hash text, answer_no integer, primary key (1, 2)"),
    ):
        columns = columns.replace("(1, 2)", "(request_hash, answer_no)")
        connection.execute(f"drop table if exists temp.{table}")
        connection.execute(f"create temp table {table} ({columns})")
    add_cell = "insert or ignore into temp.forgotten_cell "
    add_answer = "insert or ignore into temp.forgotten_answer "
    connection.executemany(f"{add_cell} values (?)", [(cell,) for cell in selection.cells])
    connection.executemany(f"{add_answer} values (?, ?)", [*selection.answers])
    for case in selection.cases:
        connection.execute(
            f"{add_cell} select c.id from cell c join run r on r.id = c.run_id "
            "where c.case_id = ?1 and (?2 is null or r.experiment = ?2)",
            case,
        )
        connection.execute(
            f"{add_answer} select request_hash, answer_no from question_score "
            "where answer_no is not null and case_id = ?1 and (?2 is null or experiment = ?2)",
            case,
        )
    if selection.texts:
        connection.execute(
            f"{add_answer} select request_hash, answer_no from answer_text "
            "where has(text) or has(tool_calls) or has(details)"
        )
        for table, key in _OF_CELLS.items():
            condition = " or ".join(f"has({column})" for column in TEXTS[table])
            connection.execute(f"{add_cell} select {key} from {table} where {condition}")
    used = answers_in_use(connection, cells="select id from temp.forgotten_cell")
    links = (("cell", "id"), ("judgment", "cell_id"), ("fallback_answer", "cell_id"))
    added = 1
    while added:  # runs share answers, and cells have several
        added = 0
        for table, key in links:
            sql = f"{add_cell} select {key} from {table} where {_GONE}"
            added += connection.execute(sql).rowcount
        added += connection.execute(f"{add_answer} {used}").rowcount


def _places() -> Iterator[tuple[str, str, str]]:
    """Yield table, column and condition of the texts that are emptied."""
    for table, columns in TEXTS.items():
        for column in columns if table not in _OWN_WAY else ():
            where = f"has({column})"
            if key := _OF_CELLS.get(table):
                where += f" or {key} in (select id from temp.forgotten_cell)"
            if table == "comparison":
                where += " or b_cell in (select id from temp.forgotten_cell)"
            if table == "question_score":
                where += f" or {_GONE}"
            yield table, column, f"({where}) and {column} is not {TEXTS[table][column]}"


def _names(connection: sqlite3.Connection) -> dict[str, int]:
    numbers = {}
    for table, columns in NAMES.items():
        for column in columns:
            numbers[f"{table}.{column}"] = _number(
                connection, f"select count(*) from {table} where has({column})"
            )
    return {name: number for name, number in numbers.items() if number}


def _number(connection: sqlite3.Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])


def texts_of_case(
    connection: sqlite3.Connection, case: CaseName, *, others: bool = False
) -> Iterator[str]:
    """Yield the answers to a case, or to all other cases."""
    rows = connection.execute(
        "select distinct t.text from cell c join run r on r.id = c.run_id "
        "join answer_text t on t.request_hash = c.request_hash and t.answer_no = c.answer_no "
        "where (c.case_id = ?1 and (?2 is null or r.experiment = ?2)) <> ?3",
        (*case, others),
    )
    return (text for (text,) in rows)


def remove_texts(
    connection: sqlite3.Connection, selection: Selection, entry: Callable[[Any], AuditEntry]
) -> Forgotten:
    """Remove the texts in the current transaction, with a row of the audit that counts them."""
    connection.execute("pragma secure_delete = 1")
    forgotten = find_texts(connection, selection)
    for table, column, where in _places():
        connection.execute(f"update {table} set {column} = {TEXTS[table][column]} where {where}")
    connection.execute(f"delete from answer_text where {_GONE}")
    connection.execute(
        "update notification set state = 'failed', error = 'forgotten', done_at = due_at "
        "where state = 'waiting' and message = '{}'"
    )
    connection.executemany(
        "update audit set before = null, after = null, nonce = null where seq = ?",
        [(seq,) for seq in forgotten.audit_rows],
    )
    if forgotten.rows:
        details = {"removed": dict(forgotten.counts), "audit_rows": list(forgotten.audit_rows)}
        add_audit(connection, entry(details))
    return forgotten


def overwrite_removed(path: Path) -> None:
    """Rewrite the results file, so that nothing that was removed is left in it or in its log."""
    try:
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("pragma secure_delete = 1")
            connection.execute("vacuum")
            busy = connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
    except sqlite3.Error as error:
        raise store_error(error, path) from None
    if busy:
        raise StoreError(
            f"another process reads {path.name}, so removed texts are still in its log",
            hint="stop edison serve and other readers, then run the same command again",
        )


def rewrite_copy(path: Path, selection: Selection, entry: Callable[[Any], AuditEntry]) -> Forgotten:
    """Remove the texts from a copy of the results, and put the new copy in its place."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{_LEFT}")
    try:
        with closing(open_reader(path)) as source:
            source.execute("pragma query_only = 0")  # or no copy is made
            copy_to(source, aside)
        with closing(sqlite3.connect(aside, isolation_level=None)) as connection:
            with transaction(connection):
                forgotten = remove_texts(connection, selection, entry)
            copy_to(connection, path)
    except sqlite3.Error as error:
        raise store_error(error, path) from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            aside.with_name(aside.name + suffix).unlink(missing_ok=True)
    return forgotten


def find_in_copy(path: Path, selection: Selection) -> Forgotten:
    """Return what a copy of the results has of a selection; raises StoreError or UsageError."""
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("pragma query_only = 0")  # or there are no temporary tables
            return find_texts(connection, selection)
    except sqlite3.Error as error:
        raise store_error(error, path) from None


def half_done(folders: Iterable[Path]) -> list[Path]:
    """Return what a process that was killed while it rewrote a copy has left."""
    return [path for folder in folders for path in folder.glob(f".*{_LEFT}*")]
