"""Anchors of the audit: numbers and hashes of rows that are kept outside of the results file.

A signed Git tag is one, and so is the line in the comment of a pull request. Whoever cuts the end
off the log, or writes all of it anew, cannot change them with it. Rows that are younger than the
newest anchor are not covered by any.
"""

from __future__ import annotations

import re
import socket
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access.site import Role
from edison_ci.errors import UsageError
from edison_ci.git.command import run_git
from edison_ci.git.signed_tags import Signature, sign_tag, signed_tags
from edison_ci.store.audit import verify_audit, verify_copy, write_audit
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from edison_ci.access.site import Site
    from edison_ci.store.audit import Chain

FOLDER = "edison-audit"
"""Folder of the tags."""
_TITLE = "edison audit, form 1"
_LINE = re.compile(r"([1-9][0-9]{0,17})\s*:\s*([0-9a-f]{12,64})")
_HASH = re.compile(r"[0-9a-f]{64}")


class Anchor(NamedTuple):
    """What someone outside of the results file knows about the log."""

    name: str
    rows: int
    head: str
    """Hash of that row, or its first digits."""
    first: str = ""
    """Hash of the first row, which names the chain; empty if it is not known."""
    place: str = ""
    """Machine and file that it was made for; empty if they are not known."""
    signature: Signature = Signature.GOOD


class AnchorState(StrEnum):
    """Whether the log agrees with an anchor."""

    HELD = "held"
    SET_ASIDE = "set aside"
    """The row is in a copy that was made when a backup was restored."""
    OTHER = "of another log"
    CUT = "cut off"
    CHANGED = "changed"
    UNSIGNED = "badly signed"


PROBLEMS = frozenset({AnchorState.CUT, AnchorState.CHANGED, AnchorState.UNSIGNED})


class AnchorResult(NamedTuple):
    """An anchor, compared with the log."""

    anchor: Anchor
    state: AnchorState
    sentence: str


def parse_anchor(text: str) -> Anchor:
    """Return the anchor of a text such as 12:3f9a...; raises UsageError."""
    found = _LINE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(
            f"{text!r} is not the head of a log",
            hint="give the number of a row and at least 12 digits of its hash: 12:3f9a0c...",
        )
    return Anchor(f"--head {found[1]}", int(found[1]), found[2])


def anchor_in_comment(number: int, data: Mapping[str, Any]) -> Anchor | None:
    """Return the anchor in the data of a comment on a pull request; None if there is none."""
    told = data.get("audit")
    if not isinstance(told, dict):
        return None
    rows, head = told.get("rows"), told.get("head")
    if type(rows) is not int or rows < 1 or not isinstance(head, str) or not _HASH.fullmatch(head):
        return None
    return Anchor(f"the comment on pull request {number}", rows, head)


def make_anchor(site: Site) -> Anchor:
    """Sign a tag that holds the newest row of the log; raises UsageError."""
    actor = site.require(Role.EDITOR, "audit anchor", site.file.results)
    if run_git("rev-parse", "--git-dir", cwd=site.root).code:
        raise UsageError(
            "the project is not in a Git repository", hint="make one: git init; then commit"
        )
    with closing(open_reader(site.results)) as connection:
        chain = verify_audit(connection)
    if chain.problem:
        raise UsageError(
            f"the audit log is broken, so it is not anchored: {chain.problem}",
            hint="see: edison admin audit --verify",
        )
    if not chain.rows:
        raise UsageError("the audit log is empty", hint="anchor it when something was done")
    name = f"{FOLDER}/{chain.rows}-{chain.newest[:12]}"
    made = Anchor(name, chain.rows, chain.newest, chain.first, _place(site))
    if not run_git("rev-parse", "--verify", "--quiet", f"refs/tags/{name}", cwd=site.root).code:
        return made
    told = {"rows": made.rows, "head": made.head, "first": made.first, "place": made.place}
    lines = "\n".join(f"{key}: {value}" for key, value in told.items())
    sign_tag(site.root, name, f"{_TITLE}\n\n{lines}\n")
    after = {"rows": made.rows, "head": made.head}
    write_audit(site.results, site.entry(actor, "audit anchor", name, after=after))
    return made


def read_anchors(site: Site) -> list[Anchor]:
    """Return the anchors in the tags of the repository."""
    found = []
    for tag in signed_tags(site.root, FOLDER):
        title, _, body = tag.message.partition("\n\n")
        lines = (line.partition(": ")[::2] for line in body.splitlines())
        told = dict(reversed([*lines]))  # the first line of a name counts
        rows, head = told.get("rows", ""), told.get("head", "")
        readable = title == _TITLE and rows.isdecimal() and _HASH.fullmatch(head)
        rest = (told.get("first", ""), told.get("place", ""), tag.signature)
        found.append(
            Anchor(tag.name, int(rows), head, *rest)
            if readable
            else Anchor(tag.name, 0, "", signature=Signature.BAD)
        )
    return found


def compare_anchors(site: Site, chain: Chain, anchors: Iterable[Anchor]) -> list[AnchorResult]:
    """Return how the log agrees with each anchor."""
    return [_compared(site, chain, anchor) for anchor in anchors]


def _compared(site: Site, chain: Chain, anchor: Anchor) -> AnchorResult:
    name, rows = anchor.name, anchor.rows
    if anchor.signature is Signature.BAD:
        said = f"{name} is not signed, or was changed after it was signed"
        return AnchorResult(anchor, AnchorState.UNSIGNED, said)
    other = bool(anchor.first) and anchor.first != chain.first
    if other and anchor.place != _place(site):
        said = f"{name} is of another results file ({anchor.place})"
        return AnchorResult(anchor, AnchorState.OTHER, said)
    if not other and chain.hashes.get(rows, "-").startswith(anchor.head):
        return AnchorResult(anchor, AnchorState.HELD, f"row {rows} is the one that {name} holds")
    copy = _copy_with(site, anchor)
    if copy:
        said = f"row {rows}, which {name} holds, is in {copy}: a backup was restored after it"
        return AnchorResult(anchor, AnchorState.SET_ASIDE, said)
    if rows > chain.rows:
        said = f"the log ends at row {chain.rows}, but {name} holds row {rows}: its end was cut off"
        return AnchorResult(anchor, AnchorState.CUT, said)
    said = f"row {rows} is not the one that {name} holds: the log was written anew"
    return AnchorResult(anchor, AnchorState.CHANGED, said)


def _copy_with(site: Site, anchor: Anchor) -> str:
    """Return the name of a sound copy, kept when a backup was restored, that has the row."""
    for path in sorted(site.backups.glob("before-restore-*.db")):
        chain = verify_copy(path, [anchor.rows])
        if chain is None or chain.problem or anchor.rows not in chain.hashes:
            continue
        if chain.hashes[anchor.rows].startswith(anchor.head):
            return path.name
    return ""


def rows_of(anchors: Sequence[Anchor]) -> set[int]:
    """Return the rows that anchors hold."""
    return {anchor.rows for anchor in anchors}


def _place(site: Site) -> str:
    return f"{site.file.results} on {socket.gethostname()}"
