"""Gates of an experiment file: a metric, and the level or the base that it is compared with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from edison_ci.config.experiment import AMOUNT_METRICS, NAMED_METRICS, SCORE_METRICS
from edison_ci.config.screens import SAFETY_KINDS
from edison_ci.shape import (
    PERCENT,
    TO_100,
    Percent,
    Shape,
    if_key,
    need_one_of,
    one_of_keys,
    short,
    wrong,
)
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

_POINTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*pp\Z")


class Margin(Shape):
    """A non-inferiority margin."""

    value: float = Field(ge=0, le=1, description="The margin as a share.")
    relative: bool = Field(
        False, description="Whether it is relative to the base value instead of points."
    )


def parse_margin(value: object) -> object:
    """Return the margin written as `5pp` (points) or `10%` (relative)."""
    if isinstance(value, str):
        if match := _POINTS.match(value):
            return {"value": float(match.group(1)) / 100}
        if match := PERCENT.match(value):
            return {"value": float(match.group(1)) / 100, "relative": True}
    raise wrong("margin", f"{short(value)} is not a margin", "write 5pp (points) or 10% (relative)")


MarginText = Annotated[
    Margin,
    BeforeValidator(parse_margin),
    WithJsonSchema(
        {"type": "string", "pattern": rf"^{TO_100}\s*(?:pp|%)$", "examples": ["5pp", "10%"]}
    ),
]


def _metric(value: str) -> str:
    family, dot, rest = value.partition(".")
    if value in SCORE_METRICS + AMOUNT_METRICS:
        return value
    if dot and rest and family in NAMED_METRICS:
        if family == "safety" and rest not in SAFETY_KINDS:
            hint = did_you_mean(rest, SAFETY_KINDS)
            raise wrong("metric", f"unknown safety kind {short(rest)}", hint)
        return value
    metrics = [*SCORE_METRICS, *AMOUNT_METRICS, *(f"{name}.NAME" for name in NAMED_METRICS)]
    raise wrong("metric", f"unknown metric {short(value)}", did_you_mean(value, metrics))


_OWN_NAMES = tuple(name for name in NAMED_METRICS if name != "safety")
_METRICS: list[JsonValue] = [
    # An editor offers what is listed, and the examples as a start of what is not.
    {"enum": [*SCORE_METRICS, *AMOUNT_METRICS, *(f"safety.{kind}" for kind in SAFETY_KINDS)]},
    {
        "pattern": rf"^(?:{'|'.join(_OWN_NAMES)})\..+$",
        "examples": [f"{name}.NAME" for name in _OWN_NAMES],
    },
]
Level = Annotated[float, Field(ge=0, le=1_000_000_000), Percent()]
Confidence = Annotated[float, Field(ge=0.5, lt=1), Percent(r"0*[5-9][0-9](?:\.[0-9]+)?")]
_BY_PEOPLE = r"^(?:composite|pass_rate|criterion\..+)$"
"""Metrics for human grades."""
_EVERYTHING: list[JsonValue] = [0, 1, "0%", "100%"]
"""Ceilings of flips that nothing could keep, or nothing could miss."""
_SHARE: JsonValue = {"anyOf": [{"type": "string"}, {"type": "number", "maximum": 1}]}
_OF_COMPARISONS = ("margin", "fail_rule", "guarantee", "worst_case_drop", "slices")
_OF_CASES = r"^(?:composite|pass_rate|(?:criterion|check|grader)\..+)$"
"""Metrics that have slices."""


_TAG = r"^[A-Za-z0-9][A-Za-z0-9._/+-]*$"


def _tag(value: str) -> str:
    if not re.match(_TAG, value):
        raise wrong("gate", f"{short(value)} is not the name of a tag", "write a tag, such as v1.4")
    return value


class Anchor(Shape):
    """A fixed version to compare with."""

    anchor: Annotated[str, Field(max_length=200), AfterValidator(_tag)] = Field(
        description="A Git tag on the default branch.", json_schema_extra={"pattern": _TAG}
    )


def _reference(value: Any) -> Any:
    if isinstance(value, str) and value not in ("base", "production"):
        message = f"no_worse_than is {short(value)}; it is base, production or a tag"
        raise wrong("gate", message, f"write base, production or {{anchor: {value}}}")
    return value if isinstance(value, str | Anchor) else Anchor.model_validate(value)


Reference = Annotated[Literal["base", "production"] | Anchor, BeforeValidator(_reference)]


class Gate(Shape):
    """A rule that decides PASS, FAIL or INCONCLUSIVE."""

    model_config = ConfigDict(
        json_schema_extra={
            **one_of_keys("at_least", "at_most", "no_worse_than"),
            "dependencies": {name: ["no_worse_than"] for name in _OF_COMPARISONS},
            "allOf": [
                {
                    **if_key(
                        "metric",
                        {"enum": list(AMOUNT_METRICS)},
                        {
                            "properties": {
                                "at_least": {"type": "number"},
                                "at_most": {"type": "number"},
                                "margin": {"type": "string", "pattern": "%$"},
                            }
                        },
                    ),
                    "else": {"properties": {"at_least": _SHARE, "at_most": _SHARE}},
                },
                if_key(
                    "if_unclear",
                    {"const": "more_repeats"},
                    {
                        "required": ["no_worse_than"],
                        "properties": {"no_worse_than": {"const": "base"}, "slices": False},
                    },
                ),
                {
                    "if": {"required": ["slices"]},
                    "then": {
                        "properties": {
                            "metric": {"type": "string", "pattern": _OF_CASES},
                            "use": {"const": "judge"},
                        }
                    },
                },
                {
                    "if": {"properties": {"metric": {"const": "win_rate"}}},
                    "then": {"properties": {"no_worse_than": {"const": "base"}}},
                },
                if_key(
                    "metric",
                    {"const": "flips"},
                    {
                        "required": ["at_most"],
                        "properties": {"at_most": {"not": {"enum": _EVERYTHING}}},
                    },
                ),
                {
                    "if": {"required": ["net"]},
                    "then": {"properties": {"metric": {"const": "flips"}}},
                },
                if_key(
                    "use",
                    {"const": "human"},
                    {"properties": {"metric": {"type": "string", "pattern": _BY_PEOPLE}}},
                ),
            ],
        }
    )

    metric: Annotated[str, Field(max_length=200), AfterValidator(_metric)] = Field(
        description="composite, pass_rate, flips, criterion.NAME, check.NAME, grader.NAME, "
        "safety.KIND, win_rate, errors, cost_usd.mean, latency_ms.p95 or tokens.mean.",
        json_schema_extra={"anyOf": _METRICS},
    )
    at_least: Level | None = Field(None, description="Minimum, 80% or 0.8.")
    at_most: Level | None = Field(
        None, description="Maximum, 5% or 0.05; a number for costs, latency and tokens."
    )
    no_worse_than: Reference | None = Field(
        None, description="Compare with base, with production, or with {anchor: TAG}."
    )
    margin: MarginText = Field(
        default_factory=lambda: Margin.model_construct(value=0.05),
        description="Non-inferiority margin: 5pp (points) or 10% (relative; default of amounts).",
        json_schema_extra={"default": "5pp"},
    )
    confidence: Confidence = Field(0.95, description="1 - the probability of a false FAIL.")
    slices: Literal["worst"] | None = Field(
        None, description="Decide by the worst tag that has at least 10 cases."
    )
    per: Literal["model", "overall"] = Field(
        "model", description="One decision for each model, or one for all."
    )
    fail_rule: Literal["beyond_zero", "beyond_margin"] = Field(
        "beyond_zero", description="What a drop must exceed to FAIL."
    )
    guarantee: Literal["exact", "strict"] = Field("exact", description="Kind of guarantee.")
    worst_case_drop: float = Field(1, ge=0, le=1, description="Largest drop of a single case.")
    net: bool = Field(
        False,
        description="flips, one answer a case: newly failing cases less fixed ones count.",
    )
    if_unclear: Literal["pass", "neutral", "fail", "more_repeats"] = Field(
        "neutral", description="Result of an inconclusive gate."
    )
    use: Literal["judge", "human"] = Field("judge", description="Whose grades are used.")

    @field_validator("at_least", "at_most", mode="before")
    @classmethod
    def _amounts_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        metric = info.data.get("metric")
        if isinstance(value, str) and metric in AMOUNT_METRICS:
            hint = "write a number, such as 0.01 dollars, 2000 milliseconds or 300 tokens"
            raise wrong("type", f"{metric} is an amount, not a share", hint)
        return value

    def broken_rules(self) -> Iterator[Exception]:
        """Yield what does not fit together; only that, if it has not exactly one rule."""
        need_one_of(
            self,
            "at_least",
            "at_most",
            "no_worse_than",
            of="a gate",
            add="at_least: 80%, at_most: 5% or no_worse_than: base",
        )
        yield from self._wrong_levels()
        yield from self._wrong_comparison()
        yield from self._wrong_flips()
        yield from self._wrong_use()

    def _wrong_flips(self) -> Iterator[Exception]:
        if self.metric != "flips":
            if "net" in self.model_fields_set:
                message = f"net has no effect on {self.metric}"
                yield wrong("gate", message, "remove it, or gate flips", at=("net",))
            return
        hint = "write at_most: 2%"
        if self.at_most is None:
            name = "no_worse_than" if self.no_worse_than is not None else "at_least"
            message = f"flips compare head and base by themselves and take no {name}"
            yield wrong("gate", message, hint, at=(name,))
        elif not 0 < self.at_most < 1:
            message = f"at_most is {100 * self.at_most:g}%, which no number of cases can show"
            yield wrong("range", message, hint, at=("at_most",))

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
        written = self.model_fields_set
        hint = "remove it, or compare with no_worse_than: base"
        if self.no_worse_than is None:
            for name in _OF_COMPARISONS:
                if name in written:
                    message = f"{name} has no effect with at_least or at_most"
                    yield wrong("gate", message, hint, at=(name,))
            if self.if_unclear == "more_repeats":
                message = "more_repeats has no effect with at_least or at_most"
                yield wrong("gate", message, hint, at=("if_unclear",))
            return
        if self.metric in AMOUNT_METRICS and "margin" in written and not self.margin.relative:
            message = f"{self.metric} has no points; its margin is relative"
            yield wrong("margin", message, "write 10%", at=("margin",))
        if self.slices is not None and (
            self.use == "human" or not re.match(_OF_CASES, self.metric)
        ):
            what = "human grades" if self.use == "human" else self.metric
            hint = "gate slices on composite, pass_rate, criterion.NAME, check.NAME or grader.NAME"
            yield wrong("gate", f"slices has no effect on {what}", hint, at=("slices",))
        if self.fixed is not None and self.metric == "win_rate":
            message = "win_rate is judged against the base only"
            yield wrong("gate", message, "write no_worse_than: base", at=("no_worse_than",))
        if self.if_unclear == "more_repeats" and (self.slices or self.fixed):
            what = "slices" if self.slices else "a fixed version"
            message = f"more_repeats has no effect on {what}"
            yield wrong("gate", message, "write if_unclear: neutral", at=("if_unclear",))

    @property
    def compares(self) -> bool:
        """Whether it needs a base."""
        return self.no_worse_than is not None or self.metric == "flips"

    @property
    def counts(self) -> bool:
        """Whether it counts and does not infer: every case must pass."""
        return self.metric == "pass_rate" and self.at_least == 1

    @property
    def fixed(self) -> str | None:
        """The fixed version that it compares with: `production` or a tag; None for the base."""
        named = self.no_worse_than
        if isinstance(named, Anchor):
            return f"tag {named.anchor}"
        return None if named == "base" else named

    @property
    def effective_margin(self) -> Margin:
        """The margin; default 5 points, or 10% for amounts."""
        if self.metric in AMOUNT_METRICS and "margin" not in self.model_fields_set:
            return Margin(value=0.1, relative=True)
        return self.margin
