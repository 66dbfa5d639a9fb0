"""Registries of plugins: classes by name, built in and installed."""

from __future__ import annotations

import importlib
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def later(target: str) -> Callable[..., Any]:
    """Return a function of ours that is imported when it is first called, as "module:name"."""
    module, _, name = target.partition(":")

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call


@dataclass(frozen=True)
class Registry:
    """Names of one kind of plugin: built-ins as "module:Class", others by entry point.

    Nothing is imported before it is asked for, and installed packages are searched only for a name
    that is not built in.
    """

    group: str
    built_in: dict[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return every known name, sorted."""
        return sorted({*self.built_in, *self._installed})

    def load(self, name: str) -> Any:
        """Return the class of this name, or None if there is none."""
        target = self.built_in.get(name)
        if target is not None:
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)
        found = self._installed.get(name)
        if found is None:
            return None
        try:
            return found.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the plugin {found.value} that offers {name!r} cannot be loaded: {error}",
                hint="reinstall or uninstall the package it is from",
            ) from error

    @cached_property
    def _installed(self) -> dict[str, Any]:
        from importlib.metadata import entry_points  # 60 ms, and rarely needed

        found: dict[str, Any] = {}
        for point in entry_points(group=self.group):
            if point.name in self.built_in:
                raise UsageError(
                    f"the plugin {point.value} calls itself {point.name!r}, which is built in",
                    hint="uninstall the package it is from",
                )
            if point.name in found:
                raise UsageError(
                    f"two plugins of {self.group} call themselves {point.name!r}",
                    hint=f"uninstall one of {found[point.name].value} and {point.value}",
                )
            found[point.name] = point
        return found
