"""edison-ci: a prompt workbench that lives in a Git repository.

The public interface is what `__all__` lists; everything is loaded when it is first asked for, so
that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project, inspect_project, load_project
    from edison_ci.errors import (
        ConfigError,
        EdisonError,
        ExitCode,
        Location,
        Problem,
        ProjectNotFound,
        UsageError,
    )
    from edison_ci.plan.plan import Plan, plan
    from edison_ci.records import Case, Message

__version__ = "0.1.0"

_HOMES = {
    "Case": "records",
    "ConfigError": "errors",
    "EdisonError": "errors",
    "ExitCode": "errors",
    "Experiment": "config.load",
    "Location": "errors",
    "Message": "records",
    "Plan": "plan.plan",
    "Problem": "errors",
    "Project": "config.load",
    "ProjectNotFound": "errors",
    "UsageError": "errors",
    "inspect_project": "config.load",
    "load_project": "config.load",
    "plan": "plan.plan",
}

__all__ = [
    "Case",
    "ConfigError",
    "EdisonError",
    "ExitCode",
    "Experiment",
    "Location",
    "Message",
    "Plan",
    "Problem",
    "Project",
    "ProjectNotFound",
    "UsageError",
    "__version__",
    "inspect_project",
    "load_project",
    "plan",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
