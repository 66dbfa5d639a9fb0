"""A strict GitHub, a client that does not really wait, and pull requests to try them on."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.features.github.forge import GitHub
from edison_ci.git.forge import Timing
from tests.features.github.fake_github import FakeGitHub
from tests.features.github.fake_state import Grant

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Clock:
    """A clock that only sleeping moves."""

    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    slept: list[float] = field(default_factory=list)

    def read(self) -> dt.datetime:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += dt.timedelta(seconds=seconds)

    @property
    def timing(self) -> Timing:
        return Timing(self.read, self.sleep)

    @property
    def waits(self) -> list[float]:
        """Sleeps that are not the second between two writes."""
        return [round(seconds, 3) for seconds in self.slept if round(seconds, 3) != 1.0]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake() -> Iterator[FakeGitHub]:
    """A GitHub with one open pull request, number 1, from the branch `topic`."""
    with FakeGitHub() as server:
        open_pull(server)
        yield server


@pytest.fixture
def github(fake: FakeGitHub, clock: Clock) -> GitHub:
    return GitHub(fake.address(), timing=clock.timing)


def open_pull(server: FakeGitHub, branch: str = "topic", **fields: Any) -> int:
    """Open a pull request as a person would, and return its number."""
    state = server.state
    main = state.refs["heads/main"]
    state.refs[f"heads/{branch}"] = state.put_commit("edit", state.commits[main]["tree"], [main])
    ada = Grant("ada", is_bot=False)
    pull = state.open_pull({"title": "Edit", "head": branch, "base": "main", **fields}, ada)
    return pull.number
