"""Audit of files that would send a key to a host that is not trusted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edison_ci.access.site import open_site
from edison_ci.errors import EdisonError
from edison_ci.store.audit import read_audit
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from edison_ci.errors import Problem


def audit_untrusted(root: Path, problems: Iterable[Problem]) -> None:
    """Write a row of the audit for each key that files would send to a host that is not trusted.

    The same row is not written twice in succession: files are validated with every save.
    """
    refused = [problem for problem in problems if problem.code == "trust"]
    if not refused:
        return
    with contextlib.suppress(EdisonError):  # the problems themselves are raised in any case
        site = open_site(root)
        if not site.results.exists():
            return
        with contextlib.closing(open_reader(site.results)) as connection:
            newest = [row.entry for row in read_audit(connection, limit=len(refused))]
        told = [(entry.actor, entry.action, entry.entity, entry.after) for entry in newest]
        for each in refused:
            row = site.entry(
                site.actor(), "refused: send a key", each.where.file, after=each.message
            )
            if (row.actor, row.action, row.entity, row.after) not in told:
                site.note(row)
