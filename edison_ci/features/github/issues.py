"""Alerts as issues on GitHub: one for each open condition and experiment, closed when it ends.

An issue is found again by a marker in its body, and counts only if someone who may write to the
repository, or its bot, opened it. A comment has the id of its message, so that it is made once.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import TYPE_CHECKING, Any

from edison_ci.api.notices import about, lines_of
from edison_ci.errors import DeliveryError, EdisonError, ForgeError, ForgeFault
from edison_ci.features.github.forge import GitHub
from edison_ci.git.forge import Timing
from edison_ci.git.host import RepositoryAddress, find_address
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.git.forge import Issue

_LIMIT_S = 30.0
_WAIT_S = 10.0
_TICKS = re.compile("`{3,}")
_TITLE_CHARS = 200


def issues_address(root: Path, environ: Mapping[str, str]) -> RepositoryAddress:
    """Return the repository whose issues are used; raises DeliveryError without a token."""
    try:
        return find_address(root, environ)
    except EdisonError as error:
        raise DeliveryError(error.message, hint=error.hint, unset=True) from None


async def tell_issue(root: Path, message: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Open or close the issue of a condition; return what was done. Raises DeliveryError."""
    address = issues_address(root, environ)
    try:
        async with (
            asyncio.timeout(_LIMIT_S),
            GitHub(address, timing=Timing(max_wait_s=_WAIT_S)) as github,
        ):
            return await (_open if message["open"] else _close)(github, message)
    except TimeoutError:
        failed = DeliveryError("GitHub did not answer in time", hint="it is tried again later")
    except ForgeError as error:
        failed = DeliveryError(
            line(error.message),
            hint=error.hint,
            this_message=error.fault is ForgeFault.INVALID,
        )
    raise failed


async def _open(github: GitHub, message: Mapping[str, Any]) -> str:
    issues = await _issues_of(github, message)
    if not issues:
        made = await github.create_issue(str(message["title"])[:_TITLE_CHARS], _body(message))
        return f"opened {made.url}"
    issue = issues[0]
    if _mark(message) in issue.body:
        return f"{issue.url} is open already"
    await _comment_once(github, issue, message)
    return f"added to {issue.url}"


async def _close(github: GitHub, message: Mapping[str, Any]) -> str:
    issues = await _issues_of(github, message)
    for issue in issues:
        await _comment_once(github, issue, message)
        await github.close_issue(issue.number)
    return f"closed {', '.join(issue.url for issue in issues)}" if issues else "no issue is open"


async def _comment_once(github: GitHub, issue: Issue, message: Mapping[str, Any]) -> None:
    mark = _mark(message)
    if not any(mark in comment.body for comment in await github.comments(issue.number)):
        await github.create_comment(issue.number, f"{_text(message)}\n\n{mark}\n")


async def _issues_of(github: GitHub, message: Mapping[str, Any]) -> list[Issue]:
    """Return the open issues of a condition, oldest first; there is more than one after a race."""
    marker = _marker(message)
    # At the end of the body: the text of another alert may quote a marker.
    issues = [
        issue
        for issue in await github.open_issues()
        if marker in issue.body.splitlines()[-2:] and issue.trusted
    ]
    return sorted(issues, key=lambda issue: issue.number)


def _marker(message: Mapping[str, Any]) -> str:
    """Return the line by which the issue of a condition is found again."""
    named = "\n".join(str(message[key] or "") for key in ("project", "experiment", "condition"))
    return f"<!-- edison-ci:alert:v1 {hashlib.sha256(named.encode()).hexdigest()[:32]} -->"


def _mark(message: Mapping[str, Any]) -> str:
    return f"<!-- edison-ci:message {message['id']} -->"


def _body(message: Mapping[str, Any]) -> str:
    end = "This issue is closed when the condition has ended."
    return f"{_text(message)}\n\n{end}\n\n{_marker(message)}\n{_mark(message)}\n"


def _text(message: Mapping[str, Any]) -> str:
    """Return the message in a code block: nothing in it is a link, a mention or a command."""
    text = "\n".join([str(message["title"]), "", *lines_of(message), "", about(message)])
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"
