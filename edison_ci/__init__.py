"""edison-ci: a prompt workbench that lives in a Git repository.

The public interface is listed in `__all__`; features add the functions of their `library`. Names
are imported on first use, so that importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edison_ci.api.decisions import compare, gate
    from edison_ci.api.projects import load, validate
    from edison_ci.api.results import Result, regrade, render_report, replay, result, resume, run
    from edison_ci.api.sessions import SessionFactory
    from edison_ci.checks.evaluation import Grade, ParsedAnswer
    from edison_ci.checks.options import Check
    from edison_ci.config.load import Experiment, Project, inspect_project, load_project
    from edison_ci.contracts import (
        CallError,
        CriterionScore,
        ErrorKind,
        JudgePlugin,
        ModelSettings,
        Provider,
        ProviderPlugin,
        ScoredCriterion,
    )
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
    from edison_ci.plan.plan import Plan, plan_run
    from edison_ci.plan.selection import Selection
    from edison_ci.records import Case, Completion, Message, Request
    from edison_ci.report.files import Sources
    from edison_ci.report.reporters import Reporter
    from edison_ci.results.report import Report

__version__ = "0.1.0"

_HOMES = {
    name: home
    for home, names in {
        "api.decisions": "compare gate",
        "api.projects": "load validate",
        "api.results": "Result regrade render_report replay result resume run",
        "api.sessions": "SessionFactory",
        "checks.evaluation": "Grade ParsedAnswer",
        "checks.options": "Check",
        "config.load": "Experiment Project inspect_project load_project",
        "contracts": "CallError CriterionScore ErrorKind JudgePlugin ModelSettings Provider"
        " ProviderPlugin ScoredCriterion",
        "errors": "ConfigError EdisonError ExitCode Location Problem ProjectNotFound UsageError",
        "execute.run_options": "RunOptions",
        "plan.plan": "Plan plan_run",
        "plan.selection": "Selection",
        "records": "Case Completion Message Request",
        "report.files": "Sources",
        "report.reporters": "Reporter",
        "results.report": "Report",
    }.items()
    for name in names.split()
}

__all__ = [
    "CallError",
    "Case",
    "Check",
    "Completion",
    "ConfigError",
    "CriterionScore",
    "EdisonError",
    "ErrorKind",
    "ExitCode",
    "Experiment",
    "Grade",
    "JudgePlugin",
    "Location",
    "Message",
    "ModelSettings",
    "ParsedAnswer",
    "Plan",
    "Problem",
    "Project",
    "ProjectNotFound",
    "Provider",
    "ProviderPlugin",
    "Report",
    "Reporter",
    "Request",
    "Result",
    "RunOptions",
    "ScoredCriterion",
    "Selection",
    "SessionFactory",
    "Sources",
    "UsageError",
    "__version__",
    "compare",
    "gate",
    "inspect_project",
    "load",
    "load_project",
    "plan_run",
    "regrade",
    "render_report",
    "replay",
    "result",
    "resume",
    "run",
    "validate",
]


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    from edison_ci.deferred import submodules

    try:
        return submodules(__name__)(name)
    except AttributeError:
        if name.startswith("_"):
            raise
    from edison_ci.feature import library

    return library(name)
