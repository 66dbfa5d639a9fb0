"""Missing history brought into a shallow clone."""

from __future__ import annotations

import logging
from pathlib import Path

from edison_ci.git.command import run_git

logger = logging.getLogger(__name__)

DEEPENINGS = ("--deepen=8", "--deepen=16", "--deepen=32", "--deepen=64", "--deepen=128")
"""Steps by which a shallow clone is deepened before all of it is fetched."""


def remote_of(root: Path, ref: str = "") -> str | None:
    """Return the remote that a ref names, else `origin`, else the first one."""
    remotes = run_git("remote", cwd=root).line.splitlines()
    named = next((remote for remote in remotes if ref.startswith(f"{remote}/")), None)
    return named or ("origin" if "origin" in remotes else next(iter(remotes), None))


def fetched_branch(root: Path, branch: str) -> str:
    """Return the ref of a branch as its remote has it, after fetching it if it is not here."""
    remote = remote_of(root)
    if remote is None:
        return f"refs/heads/{branch}"
    ref = f"refs/remotes/{remote}/{branch}"
    if run_git("rev-parse", "--verify", "--quiet", ref, cwd=root).code:
        fetch(root, remote, "--depth=1", wanted=f"+refs/heads/{branch}:{ref}")
    return ref


def deepen(root: Path, remote: str, more: str) -> bool:
    """Fetch more of the history behind what is here; tell whether that worked."""
    # Asking for the commits where history was cut off deepens just those lines. A remote that
    # no longer has one of them, or gives out branches only, is asked for what is configured.
    boundary = Path(root, run_git("rev-parse", "--git-path", "shallow", cwd=root).line)
    return fetch(root, remote, more, wanted=boundary.read_text()) or fetch(root, remote, more)


def fetch(root: Path, remote: str, depth: str, *, wanted: str = "") -> bool:
    """Fetch refspecs or commits, one a line; tell whether that worked."""
    answer = run_git(
        *("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance"),
        *("--no-write-fetch-head", "--upload-pack=git-upload-pack", depth, "--stdin"),
        *("--end-of-options", remote),
        cwd=root,
        stdin=wanted.encode(),
    )
    if answer.code:
        logger.warning("could not fetch", extra={"remote": remote, "reason": answer.reason})
    return answer.code == 0
