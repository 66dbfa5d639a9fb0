"""edison admin audit: the audit log and its verification."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.config.load import find_root
from edison_ci.errors import StoreError
from edison_ci.numeric import counted
from edison_ci.operate.site import open_site
from edison_ci.store.audit import AuditRow, Chain, read_audit, verify_audit
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(cls=EdisonCommand)
@click.option("--verify", is_flag=True, help="Verify the hash chain; exit code 3 if it is broken.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of rows to show.",
)
@click.pass_obj
def audit(state: CliState, verify: bool, limit: int) -> None:
    """Show the audit log, newest first.

    Every change to the results and every refusal has a row. Rows are only added, and each has a
    hash over the row before it; --verify names the first row that was changed. Keep the newest hash
    elsewhere to detect that the whole chain was rewritten.

    Examples:
      edison admin audit
      edison admin audit --verify
      edison admin audit --limit 100 --json
    """
    terminal = Terminal(state)
    site = open_site(state.enter_project(find_root(state.folder)))
    with closing(open_reader(site.results)) as connection:
        rows = read_audit(connection, limit=limit)
        chain = verify_audit(connection) if verify else None
    if chain is not None and chain.broken is not None:
        raise StoreError(
            f"the audit log is broken: {chain.problem}",
            hint=f"{counted(chain.rows, 'row')} before it are intact; compare with a backup",
        )
    if terminal.json:
        terminal.document({"rows": [_as_json(row) for row in rows], "chain": _chain(chain)})
        return
    _show(terminal, rows)
    if chain is not None:
        terminal.result(f"{counted(chain.rows, 'row')}, none changed; newest hash {chain.newest}")


def _show(terminal: Terminal, rows: Sequence[AuditRow]) -> None:
    if not rows:
        terminal.note("the audit log is empty")
        return
    table = [("no", "time", "actor", "known by", "action", "entity", "after")]
    for row in rows:
        entry = row.entry
        after = "" if entry.after is None else _short(entry.after)
        who = (entry.actor, entry.known_by, entry.action, entry.entity)
        table.append((str(row.seq), entry.time, *who, after))
    terminal.table(table, right=(0,))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _as_json(row: AuditRow) -> dict[str, Any]:
    entry = row.entry
    return {
        "seq": row.seq,
        "time": entry.time,
        "actor": entry.actor,
        "known_by": entry.known_by,
        "action": entry.action,
        "entity": entry.entity,
        "before": entry.before,
        "after": entry.after,
        "run_id": entry.run_id,
        "host": entry.host,
        "sha256": row.sha256,
    }


def _chain(chain: Chain | None) -> dict[str, Any] | None:
    return None if chain is None else {"ok": True, "rows": chain.rows, "newest": chain.newest}
