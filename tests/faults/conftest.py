"""Projects on a loopback server, and processes to break."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.conftest import Folder
from tests.faults.stage import Shape, Stable, Stage
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class MakeStage(Protocol):
    """Makes a project with a server of its own."""

    def __call__(self, **shape: Any) -> Stage: ...


@pytest.fixture(scope="session")
def stable() -> Iterator[Stable]:
    """Starts processes quickly."""
    found = Stable()
    yield found
    found.close()


@pytest.fixture
def make_stage(stable: Stable, tmp_path: Path) -> Iterator[MakeStage]:
    """Make projects with servers of their own."""
    with ExitStack() as stack:

        def make(**shape: Any) -> Stage:
            place = tmp_path / f"stage-{len(list(tmp_path.iterdir()))}"
            (place / "project").mkdir(parents=True)
            made = Shape(**shape)
            dollars = made.dollars_in
            server = LoopbackServer(
                ledger=place / "ledger.jsonl", price_in=dollars, price_out=2 * dollars
            )
            stack.enter_context(server)
            stage = Stage(Folder(place / "project"), server, stable, made, place / "logs")
            stage.build()
            return stage

        yield make


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """A project of six cases with a check and a judge, two calls at once."""
    return make_stage()
