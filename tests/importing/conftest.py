"""The command, run in this process."""

from __future__ import annotations

from tests.cli.conftest import edison

__all__ = ["edison"]
