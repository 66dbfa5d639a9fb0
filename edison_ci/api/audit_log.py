"""The audit log: read, verified with its anchors, and exported."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import feature
from edison_ci.access import anchors as audit_anchors
from edison_ci.access.site import Role
from edison_ci.documents.record_json import Document, as_document, fields_of
from edison_ci.errors import EdisonError, StoreError, UsageError
from edison_ci.numeric import counted
from edison_ci.store import audit as store_audit
from edison_ci.store import database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.access.anchors import Anchor, AnchorResult
    from edison_ci.access.site import Site
    from edison_ci.store.audit import AuditHead, AuditRow, Chain


class LogPage(NamedTuple):
    """The newest rows of the log and, if it was verified, its chain and anchors."""

    rows: Sequence[AuditRow]
    chain: Chain | None = None
    anchors: Sequence[AnchorResult] = ()

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        chain = None
        if self.chain is not None:
            chain = {
                "ok": True,
                **fields_of(self.chain, "rows", "newest", "forgotten", clock_jumps="jumps"),
                "anchors": [
                    fields_of(result.anchor, "name", "rows", "head") | {"state": result.state}
                    for result in self.anchors
                ],
            }
        return {"rows": [row_json(row) for row in self.rows], "chain": chain}


def row_json(row: AuditRow) -> Document:
    """Return a row of the log with every field."""
    rest = fields_of(row, "nonce", "detail", "sha256")
    return {"seq": row.seq, **as_document(row.entry), **rest}


def read_log(site: Site, *, limit: int) -> LogPage:
    """Return the newest rows of the log, newest first."""
    with closing(database.open_reader(site.results)) as connection:
        return LogPage(store_audit.read_audit(connection, limit=limit))


def newest_row(site: Site, *, without: str = "") -> AuditHead | None:
    """Return the newest row of the log; None without one, or if it cannot be read.

    Rows whose action begins with `without` do not count.
    """
    if not site.results.exists():
        return None
    try:
        with closing(database.open_reader(site.results)) as connection:
            return store_audit.audit_head(connection, without=without)
    except EdisonError:
        return None


def verify_log(site: Site, heads: Sequence[Anchor], *, limit: int) -> LogPage:
    """Return the newest rows, with the chain compared with rows that were noted.

    Raises StoreError if a row was changed, or if the log and an anchor do not agree.
    """
    with closing(database.open_reader(site.results)) as connection:
        rows = store_audit.read_audit(connection, limit=limit)
        chain = store_audit.verify_audit(connection, {head.rows for head in heads})
    if chain.broken is not None:
        before = counted(chain.broken - 1, "row")
        raise StoreError(
            f"the audit log is broken: {chain.problem}",
            hint=f"{before} before it are intact; compare with a backup",
        )
    results = audit_anchors.compare_anchors(site, chain, heads)
    _refuse(results)
    return LogPage(rows, chain, results)


def _refuse(results: Sequence[AnchorResult]) -> None:
    wrong = [result for result in results if result.state in audit_anchors.PROBLEMS]
    if not wrong:
        return
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    raise StoreError(
        f"the audit log does not agree: {wrong[0].sentence}{more}", hint="compare with a backup"
    )


def head_in_pull_request(site: Site, number: int, author: str) -> Anchor:
    """Return the head of the log in a comment on a pull request; raises UsageError."""
    comments = feature.required("comment_data", "github")(site, number, author)
    heads = (audit_anchors.anchor_in_comment(number, data) for data in comments)
    head = next((head for head in heads if head is not None), None)
    if head is None:
        raise UsageError(
            f"pull request {number} has no comment by {author} with the head of a log",
            hint="name the account that comments: --author",
        )
    return head


def export_log(site: Site) -> Iterator[Document]:
    """Yield the form of the log and then every row, oldest first; the export is audited."""
    actor = site.require(Role.VIEWER, "export audit", site.file.results)
    site.note(site.entry(actor, "export audit", site.file.results))
    with database.open_for_reading(site.results) as connection:
        yield {"edison_audit": store_audit.FORM}
        for row in store_audit.all_audit(connection):
            yield row_json(row)
