"""What is done before the first visitor comes?

Whoever opens a page first would wait for what it imports, for its template and for the files of the
project.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from edison_ci import times
from edison_ci.report.datasette_plugin import pages
from edison_ci.report.datasette_plugin.workspace import project_in

if TYPE_CHECKING:
    from pathlib import Path

_HEAVY = ("numpy", "scipy.special")
"""What statistics import where they need it."""


def prepare(datasette: Any, root: Path) -> None:
    """Import what pages need, compile their templates and read the project."""
    project_in(root, times.now().date())
    for found in pkgutil.iter_modules(pages.__path__, f"{pages.__name__}."):
        importlib.import_module(found.name)
    for name in _HEAVY:
        importlib.import_module(name)
    # 1.0 has a function for it.
    ask = getattr(datasette, "get_jinja_environment", None)
    environment = ask() if ask is not None else datasette.jinja_env
    for name in environment.list_templates(filter_func=lambda name: name.startswith("edison/")):
        environment.get_template(name)
