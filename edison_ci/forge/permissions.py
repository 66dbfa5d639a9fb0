"""Permissions that a workflow has to grant."""

from __future__ import annotations

from edison_ci.errors import ForgeError, ForgeFault

COMMENT = {"contents": "read", "pull-requests": "write"}
"""What the job that evaluates a pull request needs."""
PROPOSE = {"contents": "write", "pull-requests": "write"}
"""What the job that opens pull requests needs."""


def block(permissions: dict[str, str]) -> str:
    """Return permissions as they are written in a workflow."""
    return "\n".join(["permissions:", *(f"  {name}: {how}" for name, how in permissions.items())])


def advice(error: ForgeError, needed: dict[str, str], *, untrusted: bool = False) -> str:
    """Return what to do about a refusal, in words."""
    if error.fault is not ForgeFault.FORBIDDEN:
        return error.hint
    if "locked" in error.message:
        return "the conversation is locked: nothing can be written there"
    if untrusted:
        return (
            "pull requests from forks and from Dependabot get a token that may only read, "
            "whatever the workflow says: the result is in the job summary"
        )
    return f"add this to the job in the workflow:\n\n{block(needed)}"
