"""Registries of plugins: classes by name, built in and installed."""

from __future__ import annotations

import importlib
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

T = TypeVar("T")


@dataclass(frozen=True)
class Registry:
    """Names of one kind of plugin: built-ins as "module:name", others by entry point.

    Nothing is imported before it is needed, and installed packages are searched only for names that
    are not built in.
    """

    group: str
    built_in: dict[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return every known name, sorted."""
        return sorted({*self.built_in, *self._installed})

    def load(self, name: str) -> Any:
        """Return the object of this name, or None."""
        target = self.built_in.get(name)
        if target is not None:
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)
        point = self._installed.get(name)
        if point is None:
            return None
        try:
            return point.load()
        except Exception as error:  # third-party code may raise any exception
            raise UsageError(
                f"the plugin {point.value} for {name!r} cannot be loaded: "
                f"{type(error).__name__}: {error}",
                hint="reinstall or uninstall its package",
            ) from error

    def load_class(self, name: str, contract: Callable[..., T]) -> type[T] | None:
        """Return the class of this name, or None; raises UsageError if it breaks the contract.

        The contract is a class, typed as a callable because it may be abstract.
        """
        assert isinstance(contract, type)
        loaded: Any = self.load(name)
        if loaded is None:
            return None
        broken = ""
        if not (isinstance(loaded, type) and issubclass(loaded, contract)):
            broken = f"is not a subclass of {contract.__module__}.{contract.__name__}"
        elif lacking := sorted(getattr(loaded, "__abstractmethods__", ())):
            broken = f"does not define {', '.join(lacking)}"
        if broken:
            target = self.built_in.get(name) or self._installed[name].value
            raise UsageError(
                f"the plugin {target} for {name!r} {broken}",
                hint="reinstall or uninstall its package",
            )
        kind: type[T] = loaded
        return kind

    def package(self, name: str) -> str | None:
        """Return name and version of the package that provides a name; None if built in."""
        point = None if name in self.built_in else self._installed.get(name)
        if point is None:
            return None
        return f"{point.dist.name} {point.dist.version}" if point.dist else point.value

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # 60 ms, and rarely needed

        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self.built_in:
                raise UsageError(
                    f"the plugin {point.value} has the name {point.name!r}, which is built in",
                    hint="uninstall its package",
                )
            if point.name in points:
                raise UsageError(
                    f"two plugins of {self.group} have the name {point.name!r}",
                    hint=f"uninstall one of {points[point.name].value} and {point.value}",
                )
            points[point.name] = point
        return points
