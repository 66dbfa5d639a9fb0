"""Runs on GitHub for a server without keys: it starts the workflow that takes an experiment.

The workflow runs on the default branch, with the keys of the repository. GitHub answers a dispatch
without an id, so the name of the request is an input that the workflow shows as its title. A
dispatch is sent once: if the reply is lost, it is not known whether the workflow runs, and nothing
is sent again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edison_ci.access.github_api import NoReplyError
from edison_ci.api.run_start import CannotStart, DispatchUnknown
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.features.github.forge import GitHub
from edison_ci.git.forge import Timing
from edison_ci.git.host import RUN_WORKFLOW
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.git.host import RepositoryAddress

LIMIT_S = 15.0
"""Longest time for each of the two requests."""
_WAIT_S = 5.0
"""Longest wait for a rate limit: a person waits for the page."""
_WRITE = "write it: edison init --github --workflow run, and commit it to the default branch"


def dispatch(
    address: RepositoryAddress, inputs: Mapping[str, str], *, limit_s: float = LIMIT_S
) -> None:
    """Start the workflow on the default branch.

    Raises CannotStart if it was not started, DispatchUnknown if that is not known.
    """
    asyncio.run(_dispatch(address, inputs, limit_s))


async def _dispatch(address: RepositoryAddress, inputs: Mapping[str, str], limit_s: float) -> None:
    async with GitHub(address, timing=Timing(max_wait_s=_WAIT_S)) as github:
        try:
            async with asyncio.timeout(limit_s):
                branch = await github.default_branch()
        except TimeoutError:
            refused = CannotStart("GitHub did not answer in time", hint="try again later")
        except ForgeError as error:
            refused = CannotStart(line(error.message), hint=_hint(error, address, ""))
        else:
            await _send(github, branch, inputs, limit_s)
            return
        raise refused


async def _send(github: GitHub, branch: str, inputs: Mapping[str, str], limit_s: float) -> None:
    failed: UsageError
    try:
        async with asyncio.timeout(limit_s):
            await github.dispatch_workflow(RUN_WORKFLOW, branch, inputs)
        return
    except TimeoutError:
        failed = DispatchUnknown("GitHub did not answer in time")
    except ForgeError as error:
        reason = line(error.message)
        if _may_have_started(error):
            failed = DispatchUnknown(reason)
        else:
            failed = CannotStart(reason, hint=_hint(error, github.address, branch))
    raise failed


def _may_have_started(error: ForgeError) -> bool:
    """Whether GitHub may have started the workflow, in spite of the error."""
    if isinstance(error, NoReplyError):
        return error.arrived
    return error.fault in (ForgeFault.UNAVAILABLE, ForgeFault.UNREADABLE)


def _hint(error: ForgeError, address: RepositoryAddress, branch: str) -> str:
    if error.fault is ForgeFault.FORBIDDEN:
        return error.hint or "the token needs the permission actions: write"
    if error.fault is ForgeFault.NOT_FOUND and branch:
        return f"{_WRITE} ({branch}); or give the token access to {address.repository}"
    if error.fault is ForgeFault.INVALID and branch:
        return f"the workflow on {branch} is switched off, or not ours: {_WRITE}"
    return error.hint
