"""edison admin audit: the audit log, its verification, its anchors and its export."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edison_ci import feature
from edison_ci.access import anchors as audit_anchors
from edison_ci.access import site as sites
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal, screen_width
from edison_ci.config import load
from edison_ci.errors import StoreError, UsageError
from edison_ci.numeric import counted
from edison_ci.records import canonical_json
from edison_ci.store import audit as store_audit
from edison_ci.store import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.access.site import Site

_MOST_JUMPS = 5
_WIDE = 120
"""Columns from which times and entities are shown whole."""


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
def audit(state: CliState, /, **given: Any) -> None:
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
    if given["verify"] and given["jsonl"]:
        raise UsageError("--verify and --jsonl cannot be combined", hint="give one")
    if (given["heads"] or given["pr"]) and not given["verify"]:
        raise UsageError("--head and --pr need --verify", hint="add --verify")
    site = sites.open_site(state.enter_project(load.find_root(state.folder)))
    if given["jsonl"]:
        _export(terminal, site)
    else:
        known = [audit_anchors.parse_anchor(text) for text in given["heads"]]
        if given["pr"]:
            known.append(_of_pull_request(state, site, given["pr"], given["author"]))
        _show_log(terminal, site, known if given["verify"] else None, given["limit"])


def _show_log(
    terminal: Terminal, site: Site, known: Sequence[audit_anchors.Anchor] | None, limit: int
) -> None:
    chain, results = None, []
    with closing(database.open_reader(site.results)) as connection:
        rows = store_audit.read_audit(connection, limit=limit)
        if known is not None:
            chain = store_audit.verify_audit(connection, {anchor.rows for anchor in known})
    if chain is not None and chain.broken is not None:
        before = counted(chain.broken - 1, "row")
        raise StoreError(
            f"the audit log is broken: {chain.problem}",
            hint=f"{before} before it are intact; compare with a backup",
        )
    if chain is not None and known is not None:
        results = audit_anchors.compare_anchors(site, chain, known)
        _refuse(results)
    if terminal.json:
        told = None if chain is None else _chain(chain, results)
        terminal.document({"rows": [_as_json(row) for row in rows], "chain": told})
        return
    _show(terminal, rows)
    if chain is not None:
        _tell(terminal, chain, results)


def _refuse(results: Sequence[audit_anchors.AnchorResult]) -> None:
    wrong = [one for one in results if one.state in audit_anchors.PROBLEMS]
    if not wrong:
        return
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    raise StoreError(
        f"the audit log does not agree: {wrong[0].sentence}{more}", hint="compare with a backup"
    )


def _tell(
    terminal: Terminal, chain: store_audit.Chain, results: Sequence[audit_anchors.AnchorResult]
) -> None:
    terminal.result(f"{counted(chain.rows, 'row')}, none changed; newest hash {chain.newest}")
    if chain.forgotten:
        terminal.result(f"{counted(chain.forgotten, 'row')} without details: they were forgotten")
    for jump in chain.jumps[:_MOST_JUMPS]:
        terminal.result(f"the clock went back at row {jump.seq}, from {jump.before} to {jump.time}")
    if len(chain.jumps) > _MOST_JUMPS:
        terminal.result(f"and {len(chain.jumps) - _MOST_JUMPS} more times")
    for result in results:
        terminal.result(result.sentence)
    if not results:
        terminal.note(f"note elsewhere, for --head: {chain.rows}:{chain.newest[:16]}")


def _export(terminal: Terminal, site: Site) -> None:
    actor = site.require(sites.Role.VIEWER, "export audit", site.file.results)
    site.note(site.entry(actor, "export audit", site.file.results))
    with database.open_for_reading(site.results) as connection:
        terminal.raw(canonical_json({"edison_audit": store_audit.FORM}))
        for row in store_audit.all_audit(connection):
            terminal.raw(canonical_json(_as_json(row)))


def _of_pull_request(state: CliState, site: Site, number: int, author: str) -> audit_anchors.Anchor:
    if state.offline:
        raise UsageError("network access is disabled by --offline", hint="use --head instead")
    read = feature.required("comment_data", "github")
    heads = (audit_anchors.anchor_in_comment(number, data) for data in read(site, number, author))
    found = next((head for head in heads if head is not None), None)
    if found is None:
        raise UsageError(
            f"pull request {number} has no comment by {author} with the head of a log",
            hint="name the account that comments: --author",
        )
    return found


def _show(terminal: Terminal, rows: Sequence[store_audit.AuditRow]) -> None:
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


def _as_json(row: store_audit.AuditRow) -> dict[str, Any]:
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
        "nonce": row.nonce,
        "detail": row.detail,
        "sha256": row.sha256,
    }


def _chain(
    chain: store_audit.Chain, results: Sequence[audit_anchors.AnchorResult]
) -> dict[str, Any]:
    return {
        "ok": True,
        "rows": chain.rows,
        "newest": chain.newest,
        "forgotten": chain.forgotten,
        "clock_jumps": [jump._asdict() for jump in chain.jumps],
        "anchors": [
            {
                "name": one.anchor.name,
                "rows": one.anchor.rows,
                "head": one.anchor.head,
                "state": str(one.state),
            }
            for one in results
        ],
    }
