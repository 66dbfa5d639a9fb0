"""edison-ci: a prompt workbench that lives in a Git repository.

The public interface is what `__all__` lists; everything is loaded when it is first asked for, so
that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edison_ci.api.decisions import compare, gate
    from edison_ci.api.projects import load, validate
    from edison_ci.api.refinement import propose, refine_prompt
    from edison_ci.api.results import Result, render_report, result
    from edison_ci.api.runs import regrade, replay, resume, run
    from edison_ci.config.load import Experiment, Project, inspect_project, load_project
    from edison_ci.contracts import Provider
    from edison_ci.errors import (
        ConfigError,
        EdisonError,
        ExitCode,
        Location,
        Problem,
        ProjectNotFound,
        UsageError,
    )
    from edison_ci.execute.run_options import RunOptions
    from edison_ci.operate.sessions import SessionFactory
    from edison_ci.plan.plan import Plan, plan_run
    from edison_ci.plan.selection import Selection
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
    "Provider": "contracts",
    "Result": "api.results",
    "RunOptions": "execute.run_options",
    "Selection": "plan.selection",
    "SessionFactory": "operate.sessions",
    "UsageError": "errors",
    "compare": "api.decisions",
    "gate": "api.decisions",
    "inspect_project": "config.load",
    "load": "api.projects",
    "load_project": "config.load",
    "plan_run": "plan.plan",
    "propose": "api.refinement",
    "refine_prompt": "api.refinement",
    "regrade": "api.runs",
    "replay": "api.runs",
    "render_report": "api.results",
    "result": "api.results",
    "resume": "api.runs",
    "run": "api.runs",
    "validate": "api.projects",
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
    "Provider",
    "Result",
    "RunOptions",
    "Selection",
    "SessionFactory",
    "UsageError",
    "__version__",
    "compare",
    "gate",
    "inspect_project",
    "load",
    "load_project",
    "plan_run",
    "propose",
    "refine_prompt",
    "regrade",
    "render_report",
    "replay",
    "result",
    "resume",
    "run",
    "validate",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
