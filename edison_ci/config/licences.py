"""What may stand in licences.yaml: judges that have shown that they agree with people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from edison_ci.config.labels import Hash
from edison_ci.config.project import Version
from edison_ci.config.quarantine import Date
from edison_ci.shape import UNIQUE, Name, Shape, items, report, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

LICENCES = "licences.yaml"
_SCHEMA = "# yaml-language-server: $schema=.edison/schemas/licences.schema.json"
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class Licence(Shape):
    """How far the judges of a rubric agreed with people, and with what exactly they judged."""

    rubric: Name = Field(description="Id of the rubric.")
    judges: Annotated[tuple[Name, ...], items(1, 5), UNIQUE] = Field(
        description="Models that judge together."
    )
    combine: Literal["mean", "median", "trimmed"] = Field(
        "mean", description="How several judges become one."
    )
    models: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=400)], ...], items(0, 5)
    ] = Field((), description="What the judges are, as PROVIDER/MODEL; for people.")
    models_hash: Hash = Field(description="sha256 of the judges' models and parameters.")
    rubric_hash: Hash = Field(description="sha256 of what is scored and how it is added up.")
    instructions_hash: Hash = Field(description="sha256 of what the judges are told.")
    labels_hash: Hash = Field(description="sha256 of the labels that count.")
    kappa: float | None = Field(
        None, ge=-1, le=1, description="Agreement with people; none where nothing varies."
    )
    n: Count = Field(description="Answers that people and judges have graded.")
    floor: float = Field(ge=-1, le=1, description="Least agreement that was asked for.")
    min_n: int = Field(ge=1, le=100_000, description="Fewest labels that were asked for.")
    bias: float | None = Field(
        None, ge=-1, le=1, description="Mean of judges minus people, 0-1; above 0 is generous."
    )
    passes: Count = Field(0, description="Answers that people let pass.")
    true_passes: Count = Field(0, description="Of these, passed by the judges.")
    fails: Count = Field(0, description="Answers that people let fail.")
    true_fails: Count = Field(0, description="Of these, failed by the judges.")
    simulated: bool = Field(False, description="Whether a judge is simulated.")
    date: Date = Field(description="Day on which it was measured.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        report(self._impossible())
        return self

    def _impossible(self) -> Iterator[Exception]:
        for name, most in (("true_passes", self.passes), ("true_fails", self.fails)):
            if getattr(self, name) > most:
                said = f"{name} is {getattr(self, name)}, of {most}"
                yield wrong("range", said, "write it with: edison calibrate", at=(name,))

    @property
    def key(self) -> tuple[str, tuple[str, ...], str]:
        """Whose licence it is."""
        return self.rubric, tuple(sorted(self.judges)), self.combine


class LicencesFile(Shape):
    """licences.yaml: which judges may decide gates; written by edison calibrate."""

    version: Version = 1
    licences: Annotated[tuple[Licence, ...], items(0, 1_000)] = Field(
        (), description="One entry for each rubric and its judges."
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        report(self._repeated())
        return self

    def _repeated(self) -> Iterator[Exception]:
        seen: dict[object, int] = {}
        for index, entry in enumerate(self.licences):
            first = seen.setdefault(entry.key, index)
            if first != index:
                said = f"these judges of {entry.rubric} have a licence in entry {first + 1} already"
                hint = "keep the newer one"
                yield wrong("duplicate", said, hint, at=("licences", index, "rubric"))

    def with_licence(self, licence: Licence) -> LicencesFile:
        """Return the file with a licence in place of the one that the same judges had."""
        others = [entry for entry in self.licences if entry.key != licence.key]
        entries = sorted((*others, licence), key=lambda entry: entry.key)
        return LicencesFile(version=1, licences=tuple(entries))

    def text(self) -> str:
        """Return the file as it is written: the same entries are the same bytes."""
        lines = [_SCHEMA, "# Written by `edison calibrate`; commit it.", "version: 1", "licences:"]
        for entry in self.licences:
            told = entry.model_dump(mode="json", exclude_none=True)
            for index, (name, value) in enumerate(told.items()):
                shown = value if name == "date" else json.dumps(value, ensure_ascii=False)
                lines.append(f"{'  - ' if index == 0 else '    '}{name}: {shown}")
        return "\n".join(lines if self.licences else lines[:-1]) + "\n"

    def of(self, rubric: str, judges: tuple[str, ...], combine: str) -> Licence | None:
        """Return the licence of a rubric's judges, whatever their order."""
        key = (rubric, tuple(sorted(judges)), combine)
        return next((entry for entry in self.licences if entry.key == key), None)
