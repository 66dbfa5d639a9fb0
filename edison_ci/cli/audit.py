"""edison admin audit: the audit log, its verification, its anchors and its export."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import anchors as audit_anchors
from edison_ci.access import site as sites
from edison_ci.api import audit_log
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import Terminal, screen_width
from edison_ci.config import load
from edison_ci.errors import UsageError
from edison_ci.numeric import counted
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.store.audit import AuditRow

_MOST_JUMPS = 5
_WIDE = 120
"""Columns from which times and entities are shown whole."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What to do with the log, and what it is compared with."""

    verify: bool
    heads: tuple[str, ...]
    pr: int | None
    author: str
    jsonl: bool
    limit: int

    def refuse_mixed(self) -> None:
        """Raise UsageError for options that exclude each other."""
        if self.verify and self.jsonl:
            raise UsageError("--verify and --jsonl cannot be combined", hint="give one")
        if (self.heads or self.pr) and not self.verify:
            raise UsageError("--head and --pr need --verify", hint="add --verify")


@click.command(cls=EdisonCommand)
@click.option("--verify", is_flag=True, help="Verify the hash chain; exit code 3 if it is broken.")
@click.option(
    "--head",
    "heads",
    multiple=True,
    metavar="ROW:HASH",
    help="With --verify: a row that you noted before; repeatable.",
)
@click.option(
    "--pr",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="With --verify: compare with the comment on this pull request.",
)
@click.option(
    "--author",
    default="github-actions[bot]",
    show_default=True,
    metavar="LOGIN",
    help="With --pr: the account that commented.",
)
@click.option("--jsonl", is_flag=True, help="Print every row, oldest first, as JSON lines.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of rows to show.",
)
@click.pass_obj
@takes(AuditRequest)
def audit(state: CliState, request: AuditRequest) -> None:
    """Show the audit log, newest first.

    Every change to the results, every refusal, export and sign-in has a row. Rows are only added,
    and each has a hash over the row before it; --verify names the first row that was changed.

    A person who can write the file could rewrite the whole log, or cut off its end. The number and
    the hash of a row, kept elsewhere, show that: --head takes those that you noted, and --pr reads
    those in the comment on a pull request, with a token in GITHUB_TOKEN.

    --jsonl prints every field; docs/database.md shows how to verify such a file without edison.

    Examples:
      edison admin audit
      edison admin audit --verify
      edison admin audit --verify --head 12:3f9a0c51d2e7
      edison admin audit --jsonl > audit.jsonl
    """
    terminal = Terminal(state)
    request.refuse_mixed()
    site = sites.open_site(state.enter_project(load.find_root(state.folder)))
    if request.jsonl:
        for document in audit_log.export_log(site):
            terminal.raw(canonical_json(document))
    elif request.verify:
        heads = [audit_anchors.parse_anchor(text) for text in request.heads]
        if request.pr is not None:
            if state.offline:
                hint = "use --head instead"
                raise UsageError("network access is disabled by --offline", hint=hint)
            heads.append(audit_log.head_in_pull_request(site, request.pr, request.author))
        _show(terminal, audit_log.verify_log(site, heads, limit=request.limit))
    else:
        _show(terminal, audit_log.read_log(site, limit=request.limit))


def _show(terminal: Terminal, log: audit_log.LogPage) -> None:
    if terminal.json:
        terminal.document(log.as_json())
        return
    _show_rows(terminal, log.rows)
    chain = log.chain
    if chain is None:
        return
    terminal.result(f"{counted(chain.rows, 'row')}, none changed; newest hash {chain.newest}")
    if chain.forgotten:
        terminal.result(f"{counted(chain.forgotten, 'row')} without details: they were forgotten")
    for jump in chain.jumps[:_MOST_JUMPS]:
        terminal.result(f"the clock went back at row {jump.seq}, from {jump.before} to {jump.time}")
    if len(chain.jumps) > _MOST_JUMPS:
        terminal.result(f"and {len(chain.jumps) - _MOST_JUMPS} more times")
    for result in log.anchors:
        terminal.result(result.sentence)
    if not log.anchors:
        terminal.note(f"note elsewhere, for --head: {chain.rows}:{chain.newest[:16]}")


def _show_rows(terminal: Terminal, rows: Sequence[AuditRow]) -> None:
    if not rows:
        terminal.note("the audit log is empty")
        return
    table = [("no", "time", "actor", "known by", "action", "entity", "after")]
    narrow = (screen_width(sys.stdout) or _WIDE) < _WIDE
    for row in rows:
        entry = row.entry
        after = "(forgotten)" if row.nonce is None else _short(entry.after)
        time, what = entry.time, entry.entity
        if narrow:
            time, what = f"{time[:16]}Z", _short(what, 22)
        table.append((str(row.seq), time, entry.actor, entry.known_by, entry.action, what, after))
    terminal.table(table, right=(0,), drop=(6, 3))  # who did what to what stays


def _short(value: Any, most: int = 80) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."
