"""The loopback server as a fixture.

`from tests.loopback.fixture import loopback` in a test module or conftest makes it known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[LoopbackServer]:
    """A server that answers well until `loopback.script` says otherwise."""
    with LoopbackServer(ledger=tmp_path / "ledger.jsonl") as server:
        yield server
