"""Every range of every field: proved at its ends, and equal to what the contract promises."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError

from edison_ci.checks.options import REGISTRY, Check
from edison_ci.config.experiment import (
    Alerts,
    DataLimits,
    DatasetEntry,
    ExperimentFile,
    Grader,
    Judges,
    Refine,
    RubricUse,
    Split,
    Stop,
)
from edison_ci.config.gates import Gate, Margin
from edison_ci.config.model_entry import Limits
from edison_ci.config.models import DEFAULT_PARAMS, MAX_CONFIGURATIONS
from edison_ci.config.params import GridParams, Params
from edison_ci.config.project import Defaults, ProjectFile, Settings, slug
from edison_ci.config.prompt import PromptHeader
from edison_ci.config.rubric import SCALES, WEIGHT_TOLERANCE, Calibration, Criterion, RubricFile
from edison_ci.config.screens import Moderation, PersonalData, Safety
from edison_ci.config.sections import Notification, Schedule, Smtp
from edison_ci.config.trust import TrustedCode, TrustFile
from edison_ci.config.validation import MIN_HOLDOUT
from tests.config.shapes import (
    Bound,
    Step,
    adapter,
    all_shapes,
    beyond,
    bounds_of,
    limits_of,
    property_schema,
    sample,
    texts,
    validator_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.shape import Shape

BOUNDS = [
    bound
    for shape in all_shapes()
    for name in shape.model_fields
    for bound in bounds_of(shape, name)
]

ERRORS = {
    "ge": "greater_than_equal",
    "gt": "greater_than",
    "le": "less_than_equal",
    "lt": "less_than",
    "min_length": "too_short",
    "max_length": "too_long",
}

OUT_OF_REACH = {
    "Calibration.labels-min_length-1": "a file of labels has a suffix",
    "DatasetEntry.path-min_length-1": "a dataset's path has a suffix",
    "ExperimentFile.dataset-min_length-1": "a dataset's path has a suffix",
    "Production.files-min_length-1": "a file of answers has a suffix",
}
"""Ends of a range that another rule of the same value forbids."""

WITHOUT_SCHEMA = {"Margin"}
"""Shapes that are never written as a map: a margin is a text such as 5pp."""


def at_the_end(bound: Bound) -> Iterator[Any]:
    """Yield values at the end of a range; one of them must be accepted."""
    if bound.keyword in ("ge", "le"):
        yield bound.limit
    elif bound.keyword in ("gt", "lt"):
        yield beyond(bound.limit, bound.type, up=bound.keyword == "gt")
    else:
        yield from sized(bound, bound.limit)


def past_the_end(bound: Bound) -> Iterator[Any]:
    """Yield the nearest values out of a range; all of them must be refused."""
    if bound.keyword in ("ge", "le"):
        yield beyond(bound.limit, bound.type, up=bound.keyword == "le")
    elif bound.keyword in ("gt", "lt"):
        yield bound.limit
    elif bound.keyword == "max_length":
        yield from sized(bound, bound.limit + 1)
    elif bound.limit > 0:
        yield from sized(bound, bound.limit - 1)


def sized(bound: Bound, size: int) -> Iterator[Any]:
    arguments = get_args(bound.type)
    if get_origin(bound.type) is tuple:
        yield [sample(arguments[0], index=index) for index in range(size)]
    elif get_origin(bound.type) is dict:
        yield {keys(bound, arguments[0], i): sample(arguments[1]) for i in range(size)}
    elif size == 0:
        yield ""
    else:
        yield from texts(size)


def keys(bound: Bound, kind: Any, index: int) -> Any:
    return str(index) if bound.field == "labels" else sample(kind, index=index)


def placed(bound: Bound, value: Any) -> Any:
    """Return the value of the whole field that has this value at the bounded place."""
    field = bound.shape.model_fields[bound.field]
    if not bound.steps:
        return value
    assert len(bound.steps) == 1, "lists of lists have no range so far"
    if bound.steps == ("item",):
        return [value]
    kind = next(k for k in _parts(field.annotation) if get_origin(k) is dict)
    key_type, value_type = get_args(kind)
    if bound.steps == ("key",):
        return {value: sample(value_type)}
    return {keys(bound, key_type, 0): value}


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)


@cache
def validator_of(shape: type[Shape], name: str) -> TypeAdapter[Any]:
    field = shape.model_fields[name]
    return adapter(field.annotation, tuple(field.metadata))


def refusals(bound: Bound, value: Any) -> set[str]:
    try:
        validator_of(bound.shape, bound.field).validate_python(value)
    except ValidationError as error:
        return {item["type"] for item in error.errors()}
    return set()


@pytest.mark.parametrize("keyword", ERRORS)
def test_every_range_holds_at_its_end_in_the_model_and_in_the_schema(
    subtests: pytest.Subtests, keyword: str
) -> None:
    bounds = [bound for bound in BOUNDS if bound.keyword == keyword]
    assert bounds
    for bound in bounds:
        with subtests.test(str(bound)):
            inside = [placed(bound, value) for value in at_the_end(bound)]
            outside = [placed(bound, value) for value in past_the_end(bound)]
            accepted = [value for value in inside if not refusals(bound, value)]
            assert bool(accepted) is (str(bound) not in OUT_OF_REACH)
            for value in outside:
                assert any(ERRORS[keyword] in kind for kind in refusals(bound, value)), value
            schema = property_schema(bound.shape, bound.key)
            assert (schema is None) is (bound.shape.__name__ in WITHOUT_SCHEMA)
            if schema is not None:
                validator = validator_for(schema)
                assert all(validator.is_valid(value) for value in accepted)
                assert not any(validator.is_valid(value) for value in outside)


def test_the_ranges_are_those_of_all_shapes() -> None:
    shapes = {bound.shape for bound in BOUNDS}
    checks = {REGISTRY.load(name) for name in REGISTRY.built_in}
    assert checks <= shapes, "every check has at least the ranges of weight and threshold"
    unbounded = {shape.__name__ for shape in all_shapes()} - {shape.__name__ for shape in shapes}
    assert unbounded == {
        *("ExpectedCall", "Input", "Safety"),
        *("AwsIdentity", "GoogleIdentity", "TrustedIdentities"),
    }
    assert {bound.keyword for bound in BOUNDS} == ERRORS.keys()
    assert len(BOUNDS) > 400


# --- the contract ---------------------------------------------------------------------------------


class Promise(NamedTuple):
    """What SPEC.md says about a field: its range, by keyword, and its default."""

    shape: type[Shape]
    field: str
    limits: dict[str, Any]
    default: Any = ...
    """... where the contract names none."""
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return f"{self.shape.__name__}.{self.field}" + "".join(f"[{step}]" for step in self.steps)


def between(low: Any, high: Any) -> dict[str, Any]:
    return {"ge": low, "le": high}


def long(low: int, high: int) -> dict[str, Any]:
    return {"min_length": low, "max_length": high}


CONTRACT = [
    # section 3, edison.yaml
    Promise(ProjectFile, "project", long(1, 100)),
    Promise(ProjectFile, "description", {"max_length": 1_000}),
    Promise(Defaults, "budget_usd", between(0.01, 10_000), 100),
    Promise(Defaults, "max_iterations", between(1, 100), 10),
    Promise(Settings, "allow_synthetic_datasets", {}, True),
    Promise(Settings, "require_review_approval", {}, True),
    Promise(Settings, "approvals", between(1, 10), 1),
    Promise(Settings, "retention_days", {"ge": 0}, 90),
    Promise(Settings, "backups", between(0, 10_000), 30),
    Promise(Settings, "reuse_days", {}, 30),
    Promise(Settings, "allow_code", {}, False),
    Promise(Settings, "redact_pii_before_storage", {}, False),
    Promise(Settings, "private", {}, False),
    Promise(Settings, "monthly_budget_usd", {}, None),
    Promise(Notification, "format", {}, "json"),
    Promise(Notification, "texts", {}, False),
    Promise(Smtp, "starttls", {}, True),
    # section 3, models.yaml
    Promise(Params, "temperature", between(0, 2)),
    Promise(Params, "max_tokens", between(1, 100_000)),
    Promise(Params, "top_p", between(0, 1)),
    Promise(Params, "frequency_penalty", between(-2, 2)),
    Promise(Params, "presence_penalty", between(-2, 2)),
    Promise(Params, "stop", {"max_length": 4}),
    Promise(GridParams, "temperature", between(0, 2), steps=("item",)),
    Promise(GridParams, "max_tokens", between(1, 100_000), steps=("item",)),
    Promise(GridParams, "top_p", between(0, 1), steps=("item",)),
    Promise(GridParams, "frequency_penalty", between(-2, 2), steps=("item",)),
    Promise(GridParams, "presence_penalty", between(-2, 2), steps=("item",)),
    Promise(GridParams, "stop", {"max_length": 4}),
    Promise(Limits, "concurrency", {}, 10),
    Promise(Limits, "rpm", {}, None),
    Promise(Limits, "tpm", {}, None),
    Promise(Limits, "timeout_s", {}, 60),
    Promise(Limits, "attempts", {}, 3),
    # section 3, prompts
    Promise(PromptHeader, "type", {}, "generator"),
    Promise(PromptHeader, "expect", {}, "auto"),
    Promise(PromptHeader, "syntax", {}, "jinja"),
    # section 3, rubrics
    Promise(RubricFile, "criteria", long(2, 10)),
    Promise(RubricFile, "normalize", {}, False),
    Promise(RubricFile, "pass_at", between(0, 1), None),
    Promise(Criterion, "name", long(1, 50)),
    Promise(Criterion, "description", long(10, 500)),
    Promise(Criterion, "weight", {"gt": 0, "le": 1}),
    Promise(Calibration, "min_kappa", {}, 0.6),
    Promise(Calibration, "min_n", {}, 50),
    # section 3, datasets
    Promise(DataLimits, "max_rows", {}, 1_000),
    Promise(DataLimits, "max_bytes", {}, 10_000_000),
    Promise(DatasetEntry, "kind", {}, "golden"),
    Promise(Split, "holdout", {}, 0.4),
    Promise(Split, "seed", {}, 0),
    # section 3, trust.yaml
    Promise(TrustFile, "builtin", {}, True),
    Promise(TrustedCode, "allow", {}, False),
    Promise(TrustedCode, "paths", {}, ()),
    Promise(TrustFile, "budget_usd_max", {}, None),
    # section 3, experiments
    Promise(ExperimentFile, "objective", long(20, 2_000)),
    Promise(ExperimentFile, "models", long(1, 10)),
    Promise(ExperimentFile, "repeats", between(1, 100), 1),
    Promise(ExperimentFile, "max_errors", between(0, 1), 0.2),
    Promise(Judges, "pointwise", long(1, 5)),
    Promise(Judges, "combine", {}, "mean"),
    Promise(Schedule, "enabled", {}, True),
    Promise(Alerts, "drop", {}, 0.1),
    Promise(Alerts, "false_alarm_years", {"ge": 1, "le": 1_000}, 20.0),
    Promise(Refine, "examples", {"le": 10}, 10),
    # section 6
    Promise(Check, "threshold", between(0, 1), None),
    Promise(Grader, "weight", {}, 1),
    Promise(Grader, "threshold", between(0, 1), 0.5),
    Promise(RubricUse, "weight", {}, 1),
    Promise(Moderation, "threshold", between(0, 1)),
    Promise(Safety, "jailbreak", {}, "off"),
    Promise(PersonalData, "action", {}, "flag"),
    # section 7
    Promise(Gate, "confidence", {}, 0.95),
    Promise(Gate, "margin", {}, Margin(value=0.05)),
    Promise(Margin, "value", between(0, 1)),
    Promise(Gate, "per", {}, "model"),
    Promise(Gate, "fail_rule", {}, "beyond_zero"),
    Promise(Gate, "guarantee", {}, "exact"),
    Promise(Gate, "worst_case_drop", between(0, 1), 1),
    Promise(Gate, "if_unclear", {}, "neutral"),
    Promise(Stop, "max_iterations", between(1, 100), None),
    Promise(Stop, "min_delta", between(0, 1), 0.02),
    Promise(Stop, "window", between(1, 10), 3),
    Promise(Stop, "budget_usd", between(0.01, 10_000), None),
    Promise(Stop, "daily_budget_usd", {}, None),
    Promise(Stop, "max_total_tokens", {"le": 10_000_000}, None),
    Promise(Stop, "alert_at", between(0.5, 1), 0.8),
    Promise(Stop, "prune_weak_prompts", {}, True),
    Promise(Stop, "stop_if_no_refinement", {}, True),
    Promise(Stop, "adaptive_sampling", {}, False),
    # section 8
    Promise(Refine, "candidates", between(1, 5)),
    Promise(Refine, "max_length_change", between(0, 1), 0.15),
    Promise(Refine, "max_length_chars", {}, 120),
    Promise(Refine, "max_lines_change", between(0, 1), 0.2),
    Promise(Refine, "max_lines", {}, 4),
    Promise(Refine, "max_removed_run", {}, 5),
    Promise(Refine, "allow", {}, ()),
]
"""Stop's own limits default to those of the project, which have the contract's numbers."""


def test_the_contract_s_numbers_are_the_models_numbers(subtests: pytest.Subtests) -> None:
    for promise in CONTRACT:
        with subtests.test(str(promise)):
            found = limits_of(promise.shape, promise.field, *promise.steps)
            assert {key: found.get(key) for key in promise.limits} == promise.limits
            if promise.default is not ...:
                field = promise.shape.model_fields[promise.field]
                default = field.get_default(call_default_factory=True)
                assert (type(default), default) == (type(promise.default), promise.default)


def test_no_promise_is_made_twice() -> None:
    assert len({str(promise) for promise in CONTRACT}) == len(CONTRACT)


def test_numbers_of_the_contract_that_no_field_carries() -> None:
    assert DEFAULT_PARAMS == {"temperature": 1.0, "max_tokens": 4096}
    assert MAX_CONFIGURATIONS == 10
    assert SCALES == ("0-1", "0-3", "0-5", "0-10", "0-100")
    assert WEIGHT_TOLERANCE == 0.01
    assert MIN_HOLDOUT == 16
    assert len(slug("a" * 100)) == 50
