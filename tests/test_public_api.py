"""What others may import."""

from __future__ import annotations

import edison_ci

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    assert edison_ci.__all__ == PUBLIC


def test_every_public_name_can_be_had() -> None:
    for name in PUBLIC:
        assert getattr(edison_ci, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(edison_ci, "nothing_of_this_name")
