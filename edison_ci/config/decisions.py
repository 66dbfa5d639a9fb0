"""What an experiment may say about judging, safety, gates and stopping."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from edison_ci.names import did_you_mean
from edison_ci.shape import (
    UNIQUE,
    FilePath,
    Margin,
    MarginText,
    Name,
    Percent,
    Shape,
    Share,
    Shorthand,
    items,
    need_one_of,
    one_of_keys,
    report,
    short,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SAFETY_KINDS = ("pii", "jailbreak", "secrets", "moderation", "toxicity")
SCORE_METRICS = ("composite", "pass_rate", "win_rate", "errors")
AMOUNT_METRICS = ("cost_usd.mean", "latency_ms.p95", "tokens.mean")
NAMED_METRICS = ("criterion", "check", "grader", "safety")


# --- judges ---------------------------------------------------------------------------------------


class Pairwise(Shape):
    """A judge that compares two answers, in both orders."""

    by: Name = Field(description="Model that judges.")
    all_pairs: bool = Field(False, description="Every model against every other.")


class Grader(Shape):
    """A prompt of type grader as a part of the grade."""

    prompt: FilePath = Field(description="The grader prompt.")
    by: Name | None = Field(None, description="Model; defaults.judge by default.")
    weight: float = Field(1, ge=0, le=100, description="Weight in the composite.")
    threshold: float = Field(0.5, ge=0, le=1, description="Lowest passing score.")
    name: Name | None = Field(None, description="Name in reports; the prompt's id by default.")

    @property
    def known_as(self) -> str:
        """The name in reports and gates."""
        return self.name or self.prompt.rpartition("/")[2].removesuffix(".md")


GraderEntry = Annotated[Grader, Shorthand("prompt")]


class Judges(Shape):
    """Models that judge."""

    pointwise: Annotated[tuple[Name, ...], items(1, 5), UNIQUE] | None = Field(
        None, description="1 to 5 models that score the rubric; defaults.judge by default."
    )
    combine: Literal["mean", "median", "trimmed"] = Field(
        "mean", description="How several judges become one."
    )
    pairwise: Pairwise | None = Field(None, description="Head to head.")
    graders: Annotated[tuple[GraderEntry, ...], items(0, 10)] = Field(
        (), description="Grader prompts."
    )


# --- safety ---------------------------------------------------------------------------------------

Action = Literal["block", "flag", "off"]


class Moderation(Shape):
    """A screen by a model."""

    by: Name = Field(description="Model that screens.")
    action: Action = Field("flag", description="What a hit does.")
    threshold: float = Field(0.5, ge=0, le=1, description="Score from which it is a hit.")


class Safety(Shape):
    """Screens on every answer."""

    pii: Action = Field("off", description="E-mail, phone, SSN, IBAN, card, IP.")
    jailbreak: Action = Field("off", description="Patterns of jailbreaks.")
    secrets: Action = Field("off", description="Keys and tokens.")
    moderation: Moderation | None = Field(None, description="Moderation by a model.")
    toxicity: Moderation | None = Field(None, description="Toxicity by a model.")

    def active(self) -> set[str]:
        """Return the kinds that are switched on."""
        on = {kind for kind in ("pii", "jailbreak", "secrets") if getattr(self, kind) != "off"}
        by_model = {kind: getattr(self, kind) for kind in ("moderation", "toxicity")}
        return on | {kind for kind, screen in by_model.items() if screen and screen.action != "off"}


# --- gates ----------------------------------------------------------------------------------------


def _metric(value: str) -> str:
    family, dot, rest = value.partition(".")
    if value in SCORE_METRICS + AMOUNT_METRICS:
        return value
    if dot and rest and family in NAMED_METRICS:
        if family == "safety" and rest not in SAFETY_KINDS:
            hint = did_you_mean(rest, SAFETY_KINDS)
            raise wrong("metric", f"unknown safety kind {short(rest)}", hint)
        return value
    known = [*SCORE_METRICS, *AMOUNT_METRICS, *(f"{name}.NAME" for name in NAMED_METRICS)]
    raise wrong("metric", f"unknown metric {short(value)}", did_you_mean(value, known))


_METRIC_PATTERN = "^(?:{}|(?:criterion|check|grader)\\..+|safety\\.(?:{}))$".format(
    "|".join(name.replace(".", r"\.") for name in SCORE_METRICS + AMOUNT_METRICS),
    "|".join(SAFETY_KINDS),
)
Level = Annotated[float, Field(ge=0, le=1_000_000_000), Percent()]
Confidence = Annotated[float, Field(ge=0.5, lt=1), Percent(r"0*[5-9][0-9](?:\.[0-9]+)?")]
_BY_PEOPLE = r"^(?:composite|pass_rate|criterion\..+)$"
"""Metrics that people grade."""
_OF_COMPARISONS = ("margin", "fail_rule", "guarantee", "worst_case_drop")


class Gate(Shape):
    """A rule that decides PASS, FAIL or INCONCLUSIVE."""

    model_config = ConfigDict(
        json_schema_extra={
            **one_of_keys("at_least", "at_most", "no_worse_than"),
            "dependencies": {name: ["no_worse_than"] for name in _OF_COMPARISONS},
            "allOf": [
                {
                    "if": {
                        "required": ["metric"],
                        "properties": {"metric": {"enum": list(AMOUNT_METRICS)}},
                    },
                    "then": {
                        "properties": {
                            "at_least": {"type": "number"},
                            "at_most": {"type": "number"},
                            "margin": {"pattern": "%$"},
                        }
                    },
                    "else": {"properties": {"at_least": {"maximum": 1}, "at_most": {"maximum": 1}}},
                },
                {
                    "if": {
                        "required": ["if_unclear"],
                        "properties": {"if_unclear": {"const": "more_draws"}},
                    },
                    "then": {"required": ["no_worse_than"]},
                },
                {
                    "if": {"required": ["use"], "properties": {"use": {"const": "human"}}},
                    "then": {"properties": {"metric": {"pattern": _BY_PEOPLE}}},
                },
            ],
        }
    )

    metric: Annotated[str, Field(max_length=200), AfterValidator(_metric)] = Field(
        description="composite, pass_rate, criterion.NAME, check.NAME, grader.NAME, safety.KIND, "
        "win_rate, errors, cost_usd.mean, latency_ms.p95 or tokens.mean.",
        json_schema_extra={"pattern": _METRIC_PATTERN},
    )
    at_least: Level | None = Field(None, description="Floor, 80% or 0.8.")
    at_most: Level | None = Field(None, description="Ceiling, 5% or 0.05; an amount is a number.")
    no_worse_than: Literal["base"] | None = Field(None, description="Compare with the base.")
    margin: MarginText = Field(
        default_factory=lambda: Margin.model_construct(value=0.05),
        description="5pp (points) or 10% (relative); 10% by default for costs, latency, tokens.",
        json_schema_extra={"default": "5pp"},
    )
    confidence: Confidence = Field(0.95, description="1 - the chance of a false FAIL.")
    per: Literal["model", "overall"] = Field("model", description="One decision per model, or one.")
    fail_rule: Literal["beyond_zero", "beyond_margin"] = Field(
        "beyond_zero", description="What a drop must exceed to FAIL."
    )
    guarantee: Literal["exact", "strict"] = Field("exact", description="Kind of promise.")
    worst_case_drop: float = Field(1, ge=0, le=1, description="Most a single case can lose.")
    if_unclear: Literal["pass", "neutral", "fail", "more_draws"] = Field(
        "neutral", description="What an inconclusive gate does."
    )
    use: Literal["judge", "human"] = Field("judge", description="Whose grades count.")

    @field_validator("at_least", "at_most", mode="before")
    @classmethod
    def _amounts_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        metric = info.data.get("metric")
        if isinstance(value, str) and metric in AMOUNT_METRICS:
            hint = "write a number, such as 0.01 dollars, 2000 milliseconds or 300 tokens"
            raise wrong("type", f"{metric} is an amount, not a share", hint)
        return value

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        need_one_of(
            self,
            "at_least",
            "at_most",
            "no_worse_than",
            of="a gate",
            add="at_least: 80%, at_most: 5% or no_worse_than: base",
        )
        report([*self._wrong_levels(), *self._wrong_comparison(), *self._wrong_use()])
        return self

    def _wrong_use(self) -> Iterator[Exception]:
        if self.use == "human" and not re.match(_BY_PEOPLE, self.metric):
            hint = "people grade composite, pass_rate and criterion.NAME"
            yield wrong("metric", f"people do not grade {self.metric}", hint, at=("use",))

    def _wrong_levels(self) -> Iterator[Exception]:
        for name in ("at_least", "at_most"):
            level = getattr(self, name)
            if level is not None and level > 1 and self.metric not in AMOUNT_METRICS:
                hint = (
                    f"write {level:g}% or {level / 100:g}"
                    if 2 <= level <= 100
                    else "write 80% or 0.8"
                )
                yield wrong("range", f"{name} is {level:g}; at most 1, or 100%", hint, at=(name,))

    def _wrong_comparison(self) -> Iterator[Exception]:
        given = self.model_fields_set
        hint = "remove it, or compare with no_worse_than: base"
        if self.no_worse_than is None:
            for name in _OF_COMPARISONS:
                if name in given:
                    said = f"{name} has no meaning beside at_least or at_most"
                    yield wrong("gate", said, hint, at=(name,))
            if self.if_unclear == "more_draws":
                said = "more_draws has no meaning beside at_least or at_most"
                yield wrong("gate", said, hint, at=("if_unclear",))
        elif self.metric in AMOUNT_METRICS and "margin" in given and not self.margin.relative:
            said = f"{self.metric} has no points; its margin is relative"
            yield wrong("margin", said, "write 10%", at=("margin",))

    @property
    def effective_margin(self) -> Margin:
        """The margin: 5 points, or 10% for amounts, when none is written."""
        if self.metric in AMOUNT_METRICS and "margin" not in self.model_fields_set:
            return Margin(value=0.1, relative=True)
        return self.margin


# --- stopping, refining, watching -----------------------------------------------------------------


class Stop(Shape):
    """When a run or loop ends."""

    max_iterations: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None, description="Most iterations; defaults.max_iterations by default."
    )
    min_delta: float = Field(0.02, ge=0, le=1, description="Gain below which an iteration is idle.")
    window: int = Field(3, ge=1, le=10, description="Idle iterations in a row that end the loop.")
    budget_usd: Annotated[float, Field(ge=0.01, le=10_000)] | None = Field(
        None, description="Most this run or loop may spend; defaults.budget_usd by default."
    )
    daily_budget_usd: Annotated[float, Field(ge=0.01, le=10_000)] | None = Field(
        None, description="Most this experiment may spend since 00:00 UTC."
    )
    max_total_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Most tokens."
    )
    alert_at: float = Field(0.8, ge=0.5, le=1, description="Share of the budget that alerts once.")
    prune_weak_prompts: bool = Field(True, description="Drop prompts shown worse than the best.")
    stop_if_no_refinement: bool = Field(True, description="End when nothing is proposed.")
    adaptive_sampling: bool = Field(False, description="Stop early when it is already clear.")


class Refine(Shape):
    """How a refinement is asked for, and what it may change."""

    by: Name | None = Field(None, description="Model; defaults.refiner by default.")
    examples: int = Field(10, ge=1, le=10, description="Failing examples shown to the refiner.")
    candidates: int = Field(1, ge=1, le=5, description="Diffs asked for.")
    max_length_change: Share = Field(0.15, description="Change of length allowed, as a share.")
    max_length_chars: int = Field(300, ge=0, le=20_000, description="Or so many characters.")
    max_lines_change: Share = Field(0.2, description="Lines added and removed, as a share.")
    max_lines: int = Field(4, ge=0, le=1_000, description="Or so many lines.")
    max_removed_run: int = Field(5, ge=0, le=1_000, description="Consecutive lines removed.")
    max_copied_words: int = Field(
        8, ge=1, le=1_000, description="Words in a row that may be those of a case."
    )
    allow: Annotated[
        tuple[Literal["variables", "front_matter", "roles", "few_shots"], ...],
        items(0, 4),
        UNIQUE,
    ] = Field((), description="Parts that may change although they are locked.")


def _cron(value: str) -> str:
    from cronsim import CronSim, CronSimError  # small, and only for projects with schedules

    if len(value.split()) != 5:
        raise wrong(
            "cron",
            f"{short(value)} is not five fields",
            'write minute hour day month weekday, in UTC: "0 9 * * 1-5"',
        )
    try:
        import datetime as dt

        CronSim(value, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    except CronSimError as error:
        said = f"{short(value)} is not a schedule: {str(error).lower()}"
        hint = 'write minute hour day month weekday, in UTC: "0 9 * * 1-5"'
        raise wrong("cron", said, hint) from None
    return value


class Schedule(Shape):
    """When the experiment runs by itself."""

    name: Name = Field(description="Name.")
    cron: Annotated[str, Field(max_length=200), AfterValidator(_cron)] = Field(
        description="Five fields, UTC: minute hour day month weekday.",
        json_schema_extra={"pattern": r"^\s*\S+(?:\s+\S+){4}\s*$", "examples": ["0 9 * * 1-5"]},
    )
    enabled: bool = Field(True, description="Whether it runs.")


class Alerts(Shape):
    """When somebody is told that quality fell."""

    drop: Share = Field(0.1, description="Relative drop against the reference.")
    p: float = Field(0.001, gt=0, le=0.5, description="Chance of a false alarm per look.")
    predicted_below: Share | None = Field(None, description="Composite forecast to fall below.")
    error_rate: Share | None = Field(None, description="Share of cells in error.")
    latency_ms: Annotated[int, Field(ge=1, le=3_600_000)] | None = Field(
        None, description="95th percentile of latency."
    )
