"""The models of a rubric file: criteria, scales and calibration."""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from edison_ci.config.project import Version
from edison_ci.numeric import exceeds, significant
from edison_ci.shape import PATH_PATTERN, FilePath, Name, Or, Shape, items, repeats, short, wrong

SCALES = ("0-1", "0-3", "0-5", "0-10", "0-100")
WEIGHT_TOLERANCE = 0.01
_SCORE = r"-?[0-9]+(?:\.[0-9]+)?"


def _criterion_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9 ]+", value) or not value.strip():
        raise wrong(
            "name", f"{short(value)} is not a name of a criterion", "use letters, digits and spaces"
        )
    return value


class Scale(Shape):
    """The range of scores a judge gives."""

    min: float = Field(0, ge=-1_000, le=1_000, description="Worst score.")
    max: float = Field(1, ge=-1_000, le=1_000, description="Best score.")
    labels: dict[str, Annotated[str, Field(min_length=1, max_length=500)]] = Field(
        default_factory=dict,
        max_length=101,
        description="Meaning of scores, by score.",
        json_schema_extra={"propertyNames": {"pattern": f"^{_SCORE}$"}},
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield the error of ends in the wrong order, and labels that are not on the scale."""
        if not self.min < self.max:
            yield wrong(
                "scale",
                f"min {self.min:g} is not below max {self.max:g}",
                "min is the worst score; for the reverse, set lower_is_better",
                at=("min",),
            )
            return
        for label in self.labels:
            if not re.fullmatch(_SCORE, label) or not self.min <= float(label) <= self.max:
                message = f"label {short(label)} is not a score of the scale"
                hint = f"write a number from {self.min:g} to {self.max:g}"
                yield wrong("scale", message, hint, at=("labels", label))


def _scale(value: Any) -> Any:
    if isinstance(value, str):
        if value not in SCALES:
            raise wrong(
                "scale",
                f"{short(value)} is not a scale",
                f"allowed: {', '.join(SCALES)} or {{min, max, labels}}",
            )
        low, _, high = value.partition("-")
        return {"min": float(low), "max": float(high)}
    return value


ScaleText = Annotated[Scale, BeforeValidator(_scale), Or({"enum": list(SCALES)})]


class Criterion(Shape):
    """One thing a judge scores."""

    name: Annotated[str, Field(min_length=1, max_length=50), AfterValidator(_criterion_name)] = (
        Field(description="Name.", json_schema_extra={"pattern": "^ *[A-Za-z0-9][A-Za-z0-9 ]*$"})
    )
    description: str = Field(
        min_length=10, max_length=500, description="Description for the judge."
    )
    weight: float = Field(gt=0, le=1, description="Weight in the composite.")
    scale: ScaleText = Field(
        default_factory=lambda: Scale.model_construct(min=0, max=5),
        description="Scale of the scores; default 0-5.",
        json_schema_extra={"default": "0-5"},
    )
    required: bool = Field(False, description="Whether the composite is missing if this score is.")
    min: float | None = Field(
        None,
        ge=0,
        le=1,
        description="A lower score (0-1) fails the case regardless of the composite.",
    )
    lower_is_better: bool = Field(False, description="Whether low scores are good.")

    @property
    def slug(self) -> str:
        """The name as it may be written in a gate."""
        return "-".join(self.name.lower().split())


def _labels_file(value: str) -> str:
    if not value.endswith(".jsonl"):
        raise wrong("labels", f"{short(value)} is not a labels file", "labels end in .jsonl")
    return value


LabelsPath = Annotated[
    FilePath,
    AfterValidator(_labels_file),
    Field(json_schema_extra={"pattern": PATH_PATTERN.replace("+$", r"*\.jsonl$")}),
]


class Calibration(Shape):
    """Requirements for judges that decide gates."""

    labels: LabelsPath = Field(description="Human grades, JSONL.")
    min_kappa: float = Field(
        0.6,
        ge=-1,
        le=1,
        description="Agreement with people (kappa) that its lower bound must reach.",
    )
    min_n: int = Field(50, ge=1, le=100_000, description="Minimum number of labels.")


class RubricFile(Shape):
    """rubrics/NAME.yaml: weighted criteria."""

    version: Version = 1
    rubric: Name = Field(description="Id; the name of the file without its suffix.")
    criteria: Annotated[tuple[Criterion, ...], items(2, 10)] = Field(description="What is scored.")
    normalize: bool = Field(False, description="Whether weights are scaled to sum to 1.")
    pass_at: float | None = Field(None, ge=0, le=1, description="Lowest passing composite (0-1).")
    calibration: Calibration | None = Field(
        None, description="Requirements for the approval of judges."
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield criteria of the same name, and weights that do not sum to 1."""
        hint = "give each criterion a distinct name; case and blanks are ignored"
        for index, _ in repeats(criterion.slug for criterion in self.criteria):
            message = f"criterion {self.criteria[index].name!r} is named twice"
            yield wrong("duplicate", message, hint, at=("criteria", index, "name"))
        total = math.fsum(criterion.weight for criterion in self.criteria)
        if not self.normalize and exceeds(abs(total - 1), WEIGHT_TOLERANCE):
            shares = ", ".join(
                f"{c.name} {significant(c.weight / total, 3)}" for c in self.criteria
            )
            yield wrong(
                "weights",
                f"weights sum to {significant(total, 4)}, not to 1",
                f"normalised: {shares}; or add normalize: true",
                at=("criteria",),
            )

    @property
    def can_fail(self) -> bool:
        """Whether an answer can fail by the scores of judges: whether there is a threshold."""
        return self.pass_at is not None or any(c.min is not None for c in self.criteria)

    def weights(self) -> dict[str, float]:
        """Return the weights, summing to 1, by criterion."""
        total = math.fsum(criterion.weight for criterion in self.criteria)
        return {criterion.name: criterion.weight / total for criterion in self.criteria}
