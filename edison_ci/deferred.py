"""Modules that are loaded when they are used, so that a command loads only what it runs.

Every package has `__getattr__ = submodules(__name__)`. Then

    from edison_ci.results import run_result            # loaded by its first attribute
    from edison_ci.results.run_result import RunResult  # loaded now

The first form is for what a command may need, the second for what it always needs and for what is
called very often: an attribute of a deferred module takes 0.2 microseconds more. Both are ordinary
imports to readers, type checkers and the tests of the architecture.
"""

from __future__ import annotations

import gc
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


async def load_ahead(modules: Iterable[ModuleType], waits: Callable[[], bool]) -> None:
    """Load modules one after the other, while other tasks of the loop wait for answers.

    Before, what start-up left behind, which is more than a run makes later, is given back.
    """
    from asyncio import sleep

    await sleep(_PAUSE_S)
    if waits():
        gc.unfreeze()
        gc.collect()
        gc.freeze()
    pending = deque(modules)
    while pending:
        await sleep(_PAUSE_S)
        if waits():
            _loaded(pending.popleft())


def _loaded(deferred: ModuleType) -> ModuleType:
    name = deferred.__name__
    return sys.modules.get(name) or importlib.import_module(name)
