"""Plugins that are not installed, offered to this process as if they were."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from edison_ci.plugins import Registry


def offer(monkeypatch: pytest.MonkeyPatch, registry: Registry, **kinds: type) -> None:
    """Let a registry find these classes, by name, as those of an installed package."""

    class Point(EntryPoint):
        def load(self) -> type:
            return kinds[self.name]

    points = {name: Point(name, f"package:{kind.__name__}", "") for name, kind in kinds.items()}
    monkeypatch.setitem(vars(registry), "_installed", points)
