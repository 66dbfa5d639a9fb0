"""What others may import."""

from __future__ import annotations

import pytest

import edison_ci
from edison_ci import feature

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


@pytest.mark.parametrize("name", ["propose", "refine_prompt"])
def test_a_function_of_a_feature_is_there_while_the_feature_is_on(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert getattr(edison_ci, name).__module__ == "edison_ci.features.refine.library"
    monkeypatch.setenv(feature.WITHOUT, "refine")
    with pytest.raises(AttributeError, match=f"{name}'; the feature refine is switched off by"):
        getattr(edison_ci, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(edison_ci, "nothing_of_this_name")
