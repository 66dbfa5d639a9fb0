"""Approval of a job: whether a person let it run in an environment of GitHub."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from edison_ci.access import github_api
from edison_ci.errors import EdisonError
from edison_ci.git import host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.git.host import RepositoryAddress


def is_approved(environment: str, environ: Mapping[str, str]) -> bool:
    """Whether a person approved an environment for this workflow run, according to GitHub."""
    run = environ.get("GITHUB_RUN_ID", "")
    try:
        return run.isdecimal() and _approved(environment, host.repository_address(environ), run)
    except EdisonError:
        return False


@cache
def _approved(environment: str, address: RepositoryAddress, run: str) -> bool:
    asking = approved_by_person(environment, address, run)
    with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
        return thread.submit(asyncio.run, asking).result()


async def approved_by_person(environment: str, address: RepositoryAddress, run: str) -> bool:
    """Whether GitHub lists an approval of an environment for a workflow run."""
    async with github_api.Api(address) as api:
        reviews = await api.get("read the approvals", "actions", "runs", run, "approvals")
    return any(
        isinstance(review, dict)
        and review.get("state") == "approved"
        and any(entry.get("name") == environment for entry in review.get("environments") or ())
        for review in reviews
    )
