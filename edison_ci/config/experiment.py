"""The models of an experiment file: prompts, data, models, grading, gates and stop rules."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from edison_ci import ranges
from edison_ci.checks.options import SCALAR, Check, CheckEntry
from edison_ci.config.project import Dollars, Iterations, Version, feature_sections
from edison_ci.config.screens import Safety
from edison_ci.plugins import Registry
from edison_ci.records import CaseKind
from edison_ci.shape import (
    PATH_PATTERN,
    UNIQUE,
    FilePath,
    Name,
    Shape,
    Share,
    Shorthand,
    VariableName,
    items,
    repeats,
    section,
    short,
    within,
    wrong,
)
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from edison_ci.config.gates import Gate
    from edison_ci.config.params import GridParams
    from edison_ci.config.project import FeatureSections
    from edison_ci.config.sections import CoverageTargets, Production, Schedule
else:
    Gate = section("edison_ci.config.gates", "Gate")
    GridParams = section("edison_ci.config.params", "GridParams")
    CoverageTargets = section("edison_ci.config.sections", "CoverageTargets")
    Production = section("edison_ci.config.sections", "Production")
    Schedule = section("edison_ci.config.sections", "Schedule")
    FeatureSections = feature_sections("experiment")


SCORE_METRICS = ("composite", "pass_rate", "flips", "win_rate", "errors")
AMOUNT_METRICS = ("cost_usd.mean", "latency_ms.p95", "tokens.mean")
NAMED_METRICS = ("criterion", "check", "grader", "safety")


class Pairwise(Shape):
    """A judge that compares two answers, in both orders."""

    by: Name = Field(description="Model that judges.")
    all_pairs: bool = Field(False, description="Compare every pair of models.")


class Grader(Shape):
    """A prompt of type grader as a component of the grade."""

    prompt: FilePath = Field(description="The grader prompt.")
    by: Name | None = Field(None, description="Model; default: defaults.judge.")
    weight: float = Field(1, ge=0, le=100, description="Weight in the composite.")
    threshold: float = Field(0.5, ge=0, le=1, description="Lowest passing score.")
    name: Name | None = Field(None, description="Name in reports; default: the id of the prompt.")

    @property
    def report_name(self) -> str:
        """The name in reports and gates."""
        return self.name or self.prompt.rpartition("/")[2].removesuffix(".md")


GraderEntry = Annotated[Grader, Shorthand("prompt")]


JUDGES = Registry("edison_ci.judges")
"""Judges of installed packages, each a `JudgePlugin`; none is built in."""


class Judges(Shape):
    """Models that judge."""

    pointwise: Annotated[tuple[Name, ...], items(1, 5), UNIQUE] | None = Field(
        None,
        description="1 to 5 models, or judges of plugins, that score the rubric; "
        "default: defaults.judge.",
    )
    combine: Literal["mean", "median", "trimmed"] = Field(
        "mean", description="How the scores of several judges are combined."
    )
    pairwise: Pairwise | None = Field(None, description="Pairwise comparison.")
    graders: Annotated[tuple[GraderEntry, ...], items(0, 10)] = Field(
        (), description="Grader prompts."
    )


class Stop(Shape):
    """Stop rules of a run or loop."""

    max_iterations: Iterations | None = Field(
        None, description="Maximum number of iterations; default: defaults.max_iterations."
    )
    min_delta: float = Field(
        0.02, ge=0, le=1, description="An iteration with a smaller gain counts as idle."
    )
    window: int = Field(
        3, ge=1, le=10, description="Consecutive idle iterations that end the loop."
    )
    budget_usd: Dollars | None = Field(
        None, description="Budget of a run or loop in dollars; default: defaults.budget_usd."
    )
    daily_budget_usd: Dollars | None = Field(
        None, description="Budget of the experiment per UTC day in dollars."
    )
    max_total_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Limit of tokens."
    )
    alert_at: float = Field(
        0.8, ge=0.5, le=1, description="Share of the budget at which an alert is sent, once."
    )
    prune_weak_prompts: bool = Field(
        True, description="Drop prompts that are significantly worse than the best."
    )
    stop_if_no_refinement: bool = Field(
        True, description="End the loop when no change is proposed."
    )
    adaptive_sampling: bool = Field(False, description="Stop early when the result is clear.")


class Refine(Shape):
    """Refinement of the prompt, and limits of its changes."""

    by: Name | None = Field(None, description="Model; default: defaults.refiner.")
    examples: int = Field(10, ge=1, le=10, description="Failing examples for the refiner.")
    candidates: Annotated[int, within(ranges.CANDIDATES)] = Field(
        1, description="Number of diffs to request."
    )
    max_length_change: Share = Field(0.15, description="Maximum change of length, as a share.")
    max_length_chars: int = Field(120, ge=0, le=20_000, description="Or in characters.")
    max_lines_change: Share = Field(
        0.2, description="Maximum of added and removed lines, as a share."
    )
    max_lines: int = Field(4, ge=0, le=1_000, description="Or in lines.")
    max_removed_run: int = Field(
        5, ge=0, le=1_000, description="Maximum of consecutive removed lines."
    )
    max_copied_words: int = Field(
        8, ge=1, le=1_000, description="Maximum of consecutive words copied from a case."
    )
    allow: Annotated[
        tuple[Literal["variables", "front_matter", "roles", "few_shots"], ...],
        items(0, 4),
        UNIQUE,
    ] = Field((), description="Locked parts that may change.")


class Alerts(Shape):
    """Conditions for alerts."""

    drop: Share = Field(0.1, description="Relative drop from the reference that is an ALERT.")
    false_alarm_years: float = Field(
        20.0,
        ge=1,
        le=1_000,
        description="Years between ALERTs without a cause, on average, at least.",
    )
    predicted_below: Share | None = Field(
        None, description="Alert if the composite falls and is forecast to fall below this."
    )
    error_rate: Share = Field(0.05, description="Share of calls with an error that is too high.")
    latency_ms: Annotated[int, Field(ge=1, le=3_600_000)] | None = Field(
        None, description="Latency that at most 5% of answers may exceed."
    )


_DIFFICULTY = re.compile(r"\s*(>=|<=|>|<|=|==)?\s*([1-5])\Z")
_WHERE = ("tags", "kind", "difficulty", "id", "metadata.KEY")


class DataLimits(Shape):
    """Limits of a dataset file."""

    max_rows: int = Field(1_000, ge=1, le=100_000_000, description="Maximum number of rows.")
    max_bytes: int = Field(
        10_000_000, ge=1, le=1_000_000_000_000, description="Maximum size in bytes."
    )


def _scalars(key: str, value: Any) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, str | int | float | bool) for v in values):
        hint = f"write {key}: VALUE or {key}: [VALUE, VALUE]"
        raise wrong("where", f"{key} takes a value or a list of values", hint, at=(key,))
    return tuple(values)


def _texts(key: str, value: Any) -> tuple[str, ...]:
    values = _scalars(key, value)
    if not all(isinstance(v, str) for v in values):
        raise wrong("where", f"{key} takes a text or a list of texts", "quote numbers", at=(key,))
    return values


def _difficulty(value: Any) -> tuple[str, int]:
    match = _DIFFICULTY.match(str(value)) if isinstance(value, int | str) else None
    if match is None or isinstance(value, bool):
        raise wrong(
            "where",
            f"difficulty is {short(value)}, not a level from 1 to 5",
            'write 3 or ">=3"',
            at=("difficulty",),
        )
    return (match.group(1) or "=").replace("==", "="), int(match.group(2))


def parse_where(value: Any) -> dict[str, tuple[Any, ...]]:
    """Return the conditions of `where`, each as a tuple of allowed values."""
    if not isinstance(value, dict):
        raise wrong("type", "where is a map", "write where: {tags: [billing]}")
    conditions: dict[str, tuple[Any, ...]] = {}
    for key, condition in value.items():
        if key in ("tags", "id"):
            conditions[key] = _texts(key, condition)
        elif key == "kind":
            conditions[key] = _texts(key, condition)
            for kind in conditions[key]:
                if kind not in list(CaseKind):
                    raise wrong(
                        "where",
                        f"unknown kind {short(kind)}",
                        did_you_mean(kind, list(CaseKind)),
                        at=(key,),
                    )
        elif key == "difficulty":
            conditions[key] = _difficulty(condition)
        elif key.startswith("metadata.") and key != "metadata.":
            conditions[key] = _scalars(key, condition)
        else:
            hint = did_you_mean(key, _WHERE)
            raise wrong("unknown-key", f"unknown key {short(key)}", hint, at=(key,))
    return conditions


def _one_or_more(item: dict[str, Any], description: str) -> dict[str, Any]:
    many = {"type": "array", "items": item, "minItems": 1}
    return {"anyOf": [item, many], "description": description}


Where = Annotated[
    dict[str, tuple[Any, ...]],
    BeforeValidator(parse_where),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "tags": _one_or_more({"type": "string"}, "Any of these tags."),
                "kind": _one_or_more({"enum": [*CaseKind]}, "Any of these kinds."),
                "difficulty": {
                    "anyOf": [
                        {"type": "integer", "minimum": 1, "maximum": 5},
                        {"type": "string", "pattern": f"^{_DIFFICULTY.pattern[:-2]}$"},
                    ],
                    "description": "1 to 5, or a comparison.",
                    "examples": [3, ">=3"],
                },
                "id": _one_or_more({"type": "string"}, "Any of these cases."),
            },
            "patternProperties": {"^metadata\\..+": _one_or_more(SCALAR, "Any of these values.")},
            "additionalProperties": False,
        }
    ),
]


def _data_file(value: str) -> str:
    if not value.endswith((".jsonl", ".csv", ".yaml", ".yml")):
        raise wrong(
            "dataset", f"{short(value)} is not a dataset", "datasets end in .jsonl, .csv or .yaml"
        )
    return value


DataPath = Annotated[
    FilePath,
    AfterValidator(_data_file),
    Field(json_schema_extra={"pattern": PATH_PATTERN.replace("+$", r"*\.(?:jsonl|csv|ya?ml)$")}),
]


class DatasetEntry(Shape):
    """One file of cases, and which of them are used."""

    tombstones: ClassVar[dict[str, str]] = {
        "description": "write it to NAME.about.yaml beside the file",
    }

    path: DataPath = Field(description="A .jsonl, .csv or .yaml file.")
    kind: Literal["golden", "synthetic", "adversarial"] = Field(
        "golden", description="Where the cases come from."
    )
    map: dict[str, VariableName] = Field(
        default_factory=dict, description="Columns renamed to variables of the prompt."
    )
    where: Where = Field(default_factory=dict, description="Which cases are used.")
    take: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None, description="A stable sample of this many cases."
    )
    limits: DataLimits = Field(
        default_factory=DataLimits.model_construct, description="Limits of the file."
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield columns that are renamed to the same variable."""
        columns = [*self.map]
        for index, first in repeats(self.map.values()):
            column = columns[index]
            message = f"{short(columns[first])} and {short(column)} are both renamed to"
            hint = "give each column a distinct name"
            yield wrong("map", f"{message} {self.map[column]!r}", hint, at=("map", column))


class Split(Shape):
    """Cases held out from refinement."""

    holdout: float = Field(0.4, ge=0, lt=1, description="Share of cases held out.")
    seed: int = Field(0, ge=0, le=2**53, description="Seed of the selection.")


DatasetEntries = Annotated[
    tuple[Annotated[DatasetEntry, Shorthand("path")], ...],
    items(1, 20),
]


class ModelUse(Shape):
    """A model of the registry, with parameters of the experiment."""

    use: Name = Field(description="Name in models.yaml.")
    params: GridParams | None = Field(None, description="Parameters; a list makes a grid.")


ModelUseEntry = Annotated[ModelUse, Shorthand("use")]


class RubricUse(Shape):
    """A rubric and its weight among the components of the grade."""

    path: FilePath = Field(description="The rubric.")
    weight: float = Field(1, ge=0, le=100, description="Weight in the composite.")


RubricEntry = Annotated[RubricUse, Shorthand("path")]


class ExperimentFile(Shape):
    """experiments/NAME.yaml: objective, prompts, data, models, grading, gates and stop rules."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["dataset", "datasets"]}})

    tombstones: ClassVar[dict[str, str]] = {
        "name": "write experiment: NAME; it is the name of the file",
        "prompt": "write prompts: [prompts/NAME.md]",
        "model": "write models: [NAME]",
        "judge": "write judges: {pointwise: [NAME]}",
        "assert": "write checks",
        "budget_usd": "put it under stop",
        "max_iterations": "put it under stop",
        "providers": "write models: [NAME]; providers are in models.yaml",
        "tests": "write dataset: datasets/NAME.jsonl",
        "graders": "put it under judges",
        "pairwise": "put it under judges",
    }

    version: Version = 1
    experiment: Name = Field(description="Id; the name of the file without its suffix.")
    title: str = Field("", max_length=200, description="Title in reports.")
    description: str = Field("", max_length=2_000, description="Description.")
    archived: bool = Field(False, description="Whether it is archived: kept, but no longer run.")
    objective: str = Field(
        min_length=20, max_length=2_000, description="What a good answer achieves."
    )
    prompts: Annotated[tuple[FilePath, ...], items(1, 10), UNIQUE] = Field(
        description="Prompts; several are compared with each other."
    )
    models: Annotated[tuple[ModelUseEntry, ...], items(1, 10)] | None = Field(
        None, description="Models that generate; default: defaults.model."
    )
    dataset: DataPath | None = Field(None, description="The file of cases.")
    datasets: DatasetEntries | None = Field(
        None, description="Several files, or files with conditions."
    )
    coverage: CoverageTargets | None = Field(
        None, exclude=True, description="Values that the cases are to cover; changes no result."
    )
    split: Split | None = Field(None, description="Cases held out from refinement.")
    repeats: Annotated[int, within(ranges.REPEATS)] = Field(1, description="Answers per case.")
    checks: Annotated[tuple[CheckEntry, ...], items(0, 100)] = Field(
        (), description="Grades without a model."
    )
    rubric: RubricEntry | None = Field(None, description="Criteria that judges score.")
    judges: Judges = Field(default_factory=Judges.model_construct, description="Models that judge.")
    safety: Safety = Field(
        default_factory=Safety.model_construct, description="Safety screens of every answer."
    )
    gates: Annotated[tuple[Gate, ...], items(0, 50)] = Field((), description="Gates.")
    max_errors: Share = Field(
        0.2,
        description="Largest share of cells with an error for a valid run, "
        "also of each prompt with a model on one side.",
    )
    stop: Stop = Field(default_factory=Stop.model_construct, description="Stop rules.")
    refine: Refine = Field(default_factory=Refine.model_construct, description="Refinement.")
    schedule: Annotated[tuple[Schedule, ...], items(0, 20)] = Field((), description="Schedules.")
    alerts: Alerts = Field(default_factory=Alerts.model_construct, description="Alerts.")
    production: Production | None = Field(
        None, description="Answers of production, of which a sample is graded."
    )
    tags: Annotated[tuple[Name, ...], items(0, 50), UNIQUE] = Field((), description="Tags.")
    features: FeatureSections = Field(
        {}, description="Sections of features from packages, by the name of the feature."
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield data that is given twice, repeated entries, and a grade without weights."""
        if self.dataset is not None and self.datasets is not None:
            message, hint = "dataset and datasets are both given", "list every file under datasets"
            yield wrong("exactly-one", message, hint, at=("dataset",))
        yield from self._repeated()
        yield from self._weightless()

    def _repeated(self) -> Iterator[Exception]:
        schedules, checks, graders = self.schedule, self.checks, self.judges.graders
        for index, _ in repeats(schedule.name for schedule in schedules):
            yield _same_name("schedules", schedules[index].name, ("schedule", index, "name"))
        for index, _ in repeats(check.name for check in checks):
            check = checks[index]
            yield _same_name("checks", check.name, ("checks", index, check.check, "name"))
        for index, _ in repeats(grader.report_name for grader in graders):
            name = graders[index].report_name
            yield _same_name("graders", name, ("judges", "graders", index))
        for index, _ in repeats(self.gates):
            message = f"this gate on {short(self.gates[index].metric)} is listed twice"
            yield wrong("duplicate", message, "remove one", at=("gates", index))

    def _weightless(self) -> Iterator[Exception]:
        """Refuse a grade in which every weight is 0: its composite would be 0/0."""
        graders = self.judges.graders
        if not (self.checks or self.rubric or graders):
            return
        default = 0 if self.rubric or graders else 1
        weights = [default if check.weight is None else check.weight for check in self.checks]
        weights += [grader.weight for grader in graders]
        weights += [self.rubric.weight] if self.rubric else []
        if not any(weights):
            yield wrong(
                "weights",
                "every component of the grade has weight 0, so there is no composite",
                "give the rubric, a grader or a check a weight above 0",
                at=("rubric",)
                if self.rubric
                else ("checks",)
                if self.checks
                else ("judges", "graders"),
            )

    @property
    def data(self) -> tuple[DatasetEntry, ...]:
        """The datasets, from `dataset` or `datasets`; empty if there are none."""
        if self.dataset is not None:
            return (DatasetEntry(path=self.dataset),)
        return self.datasets or ()

    @property
    def is_judged(self) -> bool:
        """Whether models score or compare its answers."""
        judges = self.judges
        return self.rubric is not None or bool(judges.graders or judges.pairwise)

    def named_checks(self) -> dict[str, Check]:
        """Return the checks by their names in reports: as written, or by what they check."""
        written = {check.name for check in self.checks}
        titles = Counter(check.title for check in self.checks if check.name is None)
        named: dict[str, Check] = {}
        for check in self.checks:
            title = check.title if titles[check.title] == 1 else check.long_title
            name, number = check.name or title, 2
            while name in named or (check.name is None and name in written):
                name, number = f"{title} ({number})", number + 1
            named[name] = check
        return named


def _same_name(what: str, name: str, at: tuple[str | int, ...]) -> Exception:
    hint = "give each a distinct name"
    return wrong("duplicate", f"two {what} are named {name!r}", hint, at=at)
