"""numpy and scipy.special, loaded when a number is first worked out with them.

Most commands, and runs without gates, need no more than plain Python; loading these two would take
longer than all the rest of such a command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from scipy import special
else:

    class _Library:
        """A library that is imported when something of it is first asked for."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(import_module(self._name), name)
            setattr(self, name, found)
            return found

    np, special = _Library("numpy"), _Library("scipy.special")

__all__ = ["np", "special"]
