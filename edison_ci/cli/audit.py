"""edison audit: who changed what, and whether the record of it is whole."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.errors import StoreError
from edison_ci.operate.site import site_at
from edison_ci.store.audit import AuditRow, Chain, read_audit, verify_audit
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(cls=EdisonCommand)
@click.option(
    "--verify", is_flag=True, help="Check the chain of hashes; end with 3 if it is broken."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many of the newest rows to show.",
)
@click.pass_obj
def audit(state: State, verify: bool, limit: int) -> None:
    """Show who changed what, newest first.

    Every refusal and every change to the results has a row. Rows are only added, and each carries a
    hash over the row before it: --verify names the first row that is not what it was. Keep the
    newest hash somewhere else to notice that the whole chain was written anew.

    Examples:
      edison audit
      edison audit --verify
      edison audit --limit 100 --json
    """
    terminal = Terminal(state)
    site = site_at(state.entered(find_root(state.folder)))
    with closing(open_reader(site.results)) as connection:
        rows = read_audit(connection, limit=limit)
        chain = verify_audit(connection) if verify else None
    if chain is not None and chain.broken is not None:
        raise StoreError(
            f"the audit is broken: {chain.problem}",
            hint=f"{counted(chain.rows, 'row')} before it can be trusted; compare with a backup",
        )
    if terminal.json:
        terminal.document({"rows": [_as_json(row) for row in rows], "chain": _chain(chain)})
        return
    _show(terminal, rows)
    if chain is not None:
        terminal.result(f"{counted(chain.rows, 'row')}, none changed; newest hash {chain.newest}")


def _show(terminal: Terminal, rows: Sequence[AuditRow]) -> None:
    if not rows:
        terminal.note("nothing was changed or refused yet")
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
