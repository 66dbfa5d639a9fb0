"""Modules that are loaded when they are used, so that a command loads only what it runs.

Every package has `__getattr__ = submodules(__name__)`. Then

    from edison_ci.results import run_result            # loaded by its first attribute
    from edison_ci.results.run_result import RunResult  # loaded now

The first form is for what a command may need, the second for what it always needs and for what is
called very often: an attribute of a deferred module takes 0.2 microseconds more. Both are ordinary
imports to readers, type checkers and the tests of the architecture.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import deque
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PAUSE_S = 0.02
"""Before a module is loaded ahead, so that other tasks come first."""


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package, which returns its modules without loading them."""
    # To ask the import system for each would cost ten times as much.
    with os.scandir(sys.modules[package].__path__[0]) as entries:
        names = {entry.name.removesuffix(".py") for entry in entries}

    def __getattr__(name: str) -> ModuleType:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return DeferredModule(f"{package}.{name}")

    return __getattr__


class DeferredModule(ModuleType):
    """Stands for a module until that is loaded, and forwards to it from then on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_loaded(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_loaded(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_loaded(self), name)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return _loaded(self).__doc__

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # what a module has is read-only
        return _loaded(self).__dict__


class NoPlugins(ModuleType):
    """Stands for the part of pydantic that finds plugins, where they are switched off.

    That part loads what reads the metadata of packages: 15 ms and 0.4 MB of every command. Should
    pydantic ask it for more, it is loaded.
    """

    def __init__(self) -> None:
        super().__init__("pydantic.plugin._loader")

    @staticmethod
    def get_plugins() -> tuple[()]:
        """Return no plugins."""
        return ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(self.__name__, None)
        return getattr(importlib.import_module(self.__name__), name)


async def load_ahead(modules: Iterable[ModuleType], waits: Callable[[], bool]) -> None:
    """Load modules one after the other, while other tasks of the loop wait for answers."""
    from asyncio import sleep

    pending = deque(modules)
    while pending:
        await sleep(_PAUSE_S)
        if waits():
            _loaded(pending.popleft())


def _loaded(deferred: ModuleType) -> ModuleType:
    name = deferred.__name__
    return sys.modules.get(name) or importlib.import_module(name)
