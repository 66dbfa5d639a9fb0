"""Stored answers exported as a recording."""

from __future__ import annotations

import contextlib
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.operate.actors import Role
from edison_ci.providers.recording import FIRST_LINE, Recorded
from edison_ci.store.answers import newest_answers
from edison_ci.store.database import open_reader, synced

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from edison_ci.operate.site import Site


def export_recording(site: Site, path: Path) -> int:
    """Write the newest answer of every call to a recording; return how many there are."""
    site.require(Role.VIEWER, "cache export", site.file.results)
    if site.file.settings.private:
        raise UsageError(
            "this project is private: texts do not leave the results",
            hint="see settings.private in edison.yaml",
        )
    with closing(open_reader(site.results)) as connection:
        return write_over_recording(path, (one.line for one in stored_answers(connection)))


def stored_answers(connection: sqlite3.Connection) -> Iterator[Recorded]:
    """Yield the newest answer of every call, as a recording holds it."""
    for address, stored in newest_answers(connection):
        completion = stored.completion
        yield Recorded(
            address=address,
            take=stored.take,
            text=completion.text,
            tool_calls=completion.tool_calls,
            finish_reason=str(completion.finish_reason),
            tokens_in=completion.tokens_in,
            tokens_out=completion.tokens_out,
            latency_ms=completion.latency_ms,
            served_model=completion.served_model,
            cost_microusd=stored.cost_microusd,
        )


def write_over_recording(path: Path, lines: Iterable[str]) -> int:
    """Write a recording whole or not at all, over an older one at most; return its answers."""
    if path.exists() and not _is_recording(path):
        raise UsageError(f"{path} is there and is no recording", hint="write to another file")
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    count = 0
    try:
        with aside.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(f"{FIRST_LINE}\n")
            for line in lines:
                stream.write(f"{hidden(line)}\n")
                count += 1
        synced(aside)
        aside.replace(path)
        synced(path.parent)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="write it somewhere else"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
    return count


def _is_recording(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.readline(200).startswith(b'{"edison_recording"')
    except OSError:
        return False
