"""Which names did a prompt have before?

Git keeps no renames: it sees that a file went and a similar one came in the same commit. What it
sees there is what it shows people, so it is what we follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.git import run_git, text
from edison_ci.repository import MAX_HISTORY_COMMITS

if TYPE_CHECKING:
    from edison_ci.repository import Repository

MOST = 20
"""Names that are followed back."""


class Former(NamedTuple):
    """A name that a file had."""

    path: str
    until: str
    """The last commit, by first parents, in which it had it."""


def former_names(repository: Repository, path: str) -> list[Former]:
    """Return the names that a file had before this one, the last of them first."""
    head = repository.head()
    if head is None:
        return []
    answer = run_git(
        *("log", "--first-parent", "--follow", "--find-renames", "--raw", "-z", "--no-abbrev"),
        *("--no-ext-diff", "--no-textconv", "--diff-filter=R", "--format=%H %P"),
        *(f"--max-count={MAX_HISTORY_COMMITS}", head, "--", path),
        cwd=repository.root,
    )
    found: list[Former] = []
    wanted, fields = path, iter(text(answer.out).split("\0"))
    parent = ""
    for field in fields:
        if not field.lstrip("\n").startswith(":"):
            parent = field.strip().partition(" ")[2].partition(" ")[0]
            continue
        old, new = next(fields, ""), next(fields, "")
        if new == wanted and parent and len(found) < MOST:
            found.append(Former(old, parent))
            wanted = old
    return found
