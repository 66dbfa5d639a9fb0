"""What does the least cost that a runner must do?

    python -m benchmarks.floor PORT CASES.jsonl RESULTS.db

It reads cases, fills in the prompt, hashes it, looks whether the answer is stored, calls, checks
and stores, by commits of 50. It has no files to understand, no money to count, no limits to keep
to, and nothing to go on from when it is killed. What it takes depends on the machine alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 50
COMMIT = 50


async def work(port: int, cases: Iterator[str], results: str) -> tuple[int, int]:
    """Answer every case; return how many answers are stored and how many are right."""
    address = f"http://127.0.0.1:{port}/v1/chat/completions"
    stored: list[tuple[str, str, bool]] = []
    with closing(_opened(results)) as connection:

        def store() -> None:
            connection.execute("begin")
            connection.executemany("insert into answer values (?, ?, ?)", stored)
            connection.execute("commit")
            stored.clear()

        async def answer(session: aiohttp.ClientSession) -> None:
            for line in cases:
                case = json.loads(line)
                text = f"Answer briefly. {case['input']['q']}"
                key = hashlib.sha256(text.encode()).hexdigest()
                if connection.execute("select 1 from answer where key = ?", (key,)).fetchone():
                    continue
                asked = {"model": "mock", "messages": [{"role": "user", "content": text}]}
                async with session.post(address, json=asked) as reply:
                    said = json.loads(await reply.read())["choices"][0]["message"]["content"]
                stored.append((key, said, case["expected"] in said))
                if len(stored) >= COMMIT:
                    store()

        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*(answer(session) for _ in range(CONNECTIONS)))
        store()
        found: tuple[int, int] = connection.execute(
            "select count(*), sum(passed) from answer"
        ).fetchone()
        return found


def _opened(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("create table answer (key text primary key, text text, passed integer)")
    return connection


if __name__ == "__main__":
    port, path, results = sys.argv[1:]
    with Path(path).open(encoding="utf-8") as lines:
        answered, right = asyncio.run(work(int(port), lines, results))
    if right != answered:
        raise SystemExit("not every answer is right")
