"""Jobs of the worker process: searching patterns, validating by schemas, and parsing SQL.

This file runs on its own (`python -I worker_jobs.py`), so it imports nothing of the package. It
reads requests from standard input, each a line with a length and that many bytes of JSON, and
answers each with a line of JSON. The kernel kills it when a job takes too much processor time, also
if its parent has ended.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import runpy
import signal
import sqlite3
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MEMORY = 1 << 30
_NOT_PARSED = re.compile(
    r"syntax error|unrecognized token|incomplete input|one statement at a time|too (?:large|big)"
    r"|stack overflow|too many|null character"
)
_NO_STATEMENT = re.compile(r"(?:[\s;]|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")


def search(pattern: str, text: str) -> list[str] | None:
    """Return the start of the first match in a list, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match = re.compile(pattern).search(text)
    return None if match is None else [match.group()[:200]]


@cache
def _json_schema() -> dict[str, Any]:
    """Return the globals of `json_schema.py`, the only module that makes validators."""
    return runpy.run_path(str(Path(__file__).with_name("json_schema.py")))


def schema(schema: Any, value: Any) -> list[str] | None:
    """Return path and message of the first error of a value, or None."""
    library = _json_schema()
    error = next(library["validator"](schema).iter_errors(value), None)
    return None if error is None else [error.json_path[:100], library["message_of"](error)[:200]]


def sql(statement: str) -> str | None:
    """Return why a text is not one statement of SQL, or None.

    The statement is prepared on an empty database and never run: executemany() with no rows steps
    nothing. An error about a missing table or function means that the statement was parsed.
    """
    if _NO_STATEMENT.fullmatch(statement):
        return "there is no statement"
    if not _NO_STATEMENT.fullmatch(_after_first(statement)):
        return "there is more than one statement"
    database = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1_000_000)
        database.set_authorizer(_allow)
        database.executemany(statement, ())
    except (sqlite3.Error, sqlite3.Warning) as error:
        return str(error)[:200] if _NOT_PARSED.search(str(error)) else None
    finally:
        database.close()
    return None


def _after_first(statement: str) -> str:
    """Return what follows the first statement.

    SQLite reports a missing table before it looks at what follows, so that alone is no check.
    """
    for semicolon in re.finditer(";", statement):
        if sqlite3.complete_statement(statement[: semicolon.end()]):
            return statement[semicolon.end() :]
    return ""


def _allow(action: int, *_: Any) -> int:
    """Deny pragmas: some take effect when they are prepared, for the whole process."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_PRAGMA else sqlite3.SQLITE_OK


JOBS: dict[str, Callable[..., Any]] = {"search": search, "schema": schema, "sql": sql}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a job, or its failure."""
    try:
        return {"found": JOBS[request["job"]](*request["arguments"])}
    except MemoryError:
        return {"failed": "it needs too much memory"}
    except RecursionError:
        return {"failed": "it is nested too deeply"}
    except Exception as error:  # any error that a pattern or a schema of a user causes
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    """Answer requests until the input ends."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        request = json.loads(sys.stdin.buffer.read(int(line)))
        signal.setitimer(signal.ITIMER_PROF, request["limit_s"])
        reply = answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
