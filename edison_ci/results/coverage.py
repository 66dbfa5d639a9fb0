"""Coverage of a dataset: which values its cases have, and which are missing.

A value is covered if at least `at_least` cases have it. The values to cover are those of `coverage`
in the experiment; without it, the tags, entities and languages that occur, the lengths XS to L, the
difficulties 1 to 5, and clear and ambiguous inputs. The length, the language and the entities of a
case are measured; its tags, its difficulty and whether it is ambiguous are what its row says.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.language import language_of
from edison_ci.config.case_facts import length_of, words_in
from edison_ci.extras import PY3LANGID, command_for
from edison_ci.numeric import counted
from edison_ci.records import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.sections import CoverageTargets
    from edison_ci.records import Case

DIMENSIONS = ("tags", "entities", "lengths", "ambiguity", "languages", "difficulty")
ENTITIES = {
    "number": re.compile(r"(?<![\w.,:/-])\d[\d,.]*(?![\w:/%-])"),
    "date": re.compile(
        r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b|\b\d{1,2}(?:st|nd|rd|th)?\.? "
        r"(?:Jan|Feb|Mar|Apr|May|Mai|Jun|Jul|Aug|Sep|Oct|Okt|Nov|Dec|Dez)",
        re.I,
    ),
    "amount": re.compile(r"[$€£¥] ?\d|\d ?(?:[$€£¥]|\b(?:USD|EUR|GBP|euros?|dollars?)\b)", re.I),
    "percent": re.compile(r"\d ?%|\bpercent\b", re.I),
    "time": re.compile(r"\b\d{1,2}:\d{2}\b|\b\d{1,2} ?(?:am|pm)\b", re.I),
    "email": re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+"),
    "url": re.compile(r"\bhttps?://|\bwww\.", re.I),
}  # fmt: skip
AMBIGUITIES = ("clear", "ambiguous")
_LENGTHS = ("XS", "S", "M", "L")
_READ = 20_000
_DETECTED = 20_000
"""Cases whose language is detected; a million would take minutes."""
_MOST_VALUES = 200


class CaseValues(NamedTuple):
    """The values that a case covers, by dimension."""

    tags: tuple[str, ...]
    entities: tuple[str, ...]
    lengths: tuple[str, ...]
    ambiguity: tuple[str, ...]
    languages: tuple[str, ...]
    difficulty: tuple[str, ...]


def values_of(case: Case, *, detect: bool = True) -> CaseValues:
    """Return what a case covers."""
    whole = " ".join(map(plain_text, case.inputs.values()))[:_READ]
    language_told = case.metadata.get("language")
    spoken = {language_told} if isinstance(language_told, str) else set[str]()
    if detect and not spoken:
        texts = (value[:_READ] for value in case.inputs.values() if isinstance(value, str))
        spoken = {language for text in texts if (language := language_of(text)) is not None}
    ambiguous = "ambiguous" in case.tags or "ambiguous" in (
        case.metadata.get("ambiguity"), case.metadata.get("edge")
    )  # fmt: skip
    return CaseValues(
        case.tags,
        tuple(name for name, sign in ENTITIES.items() if sign.search(whole)),
        (length_of(words_in(case)),),
        (AMBIGUITIES[ambiguous],),
        tuple(sorted(spoken)),
        () if case.difficulty is None else (str(case.difficulty),),
    )


@dataclass(frozen=True, slots=True)
class DimensionCoverage:
    """The cases of each value to cover."""

    name: str
    counts: Mapping[str, int]
    at_least: int

    @property
    def missing(self) -> dict[str, int]:
        """How many cases each uncovered value lacks."""
        return {value: self.at_least - n for value, n in self.counts.items() if n < self.at_least}

    @property
    def covered(self) -> int:
        """The number of covered values."""
        return len(self.counts) - len(self.missing)

    @property
    def share(self) -> float | None:
        """The share of covered values; None if there is none to cover."""
        return self.covered / len(self.counts) if self.counts else None


@dataclass(slots=True)
class Coverage:
    """What the cases of a dataset cover."""

    targets: CoverageTargets | None
    cases: int = 0
    found: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in DIMENSIONS}
    )
    grid: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Cases by tag and difficulty."""
    wanted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The values to cover, where they are those of another count."""
    undetected: int = 0
    """Cases that name no language, and whose language was not looked for."""

    def add(self, case: Case) -> None:
        """Count a case."""
        self.cases += 1
        detect = self.cases <= _DETECTED and not PY3LANGID.fault()
        self.undetected += not (detect or isinstance(case.metadata.get("language"), str))
        values = values_of(case, detect=detect)
        for name, counter in self.found.items():
            counter.update(set(getattr(values, name)))
        for tag in set(values.tags) or {""}:
            for level in values.difficulty or ("",):
                self.grid[tag, level] += 1

    @property
    def languages_note(self) -> str:
        """Why languages are incomplete; empty if that of every case was looked for."""
        if not self.undetected:
            return ""
        cases = counted(self.undetected, "case")
        if fault := PY3LANGID.fault():
            lacking = f"{PY3LANGID.module} {fault}"
            return f"languages of {cases} are not detected: {lacking}: {command_for(PY3LANGID)}"
        return f"languages of {cases} are not detected, only those of the first {_DETECTED:,}"

    @property
    def at_least(self) -> int:
        """The cases that a value needs."""
        return 3 if self.targets is None else self.targets.at_least

    @property
    def dimensions(self) -> list[DimensionCoverage]:
        """The values to cover, by dimension; dimensions without any are left out."""
        dimensions = []
        for name in DIMENSIONS:
            counter = self.found[name]
            written = [str(target) for target in (getattr(self.targets, name, None) or ())]
            values = [*self.wanted.get(name, written or _usual(name, counter))]
            if values:
                counts = {value: counter[value] for value in values[:_MOST_VALUES]}
                dimensions.append(DimensionCoverage(name, counts, self.at_least))
        return dimensions

    @property
    def share(self) -> float | None:
        """The share of all values that are covered."""
        values = sum(len(dimension.counts) for dimension in self.dimensions)
        return sum(dimension.covered for dimension in self.dimensions) / values if values else None

    def rows(self, most: int) -> list[tuple[str, list[int]]]:
        """Return the cases of each tag by difficulty from 1 to 5, the largest tags first."""
        dimension = next(
            (one_dimension for one_dimension in self.dimensions if one_dimension.name == "tags"),
            None,
        )
        tags = [] if dimension is None else [*dimension.counts]
        tags.sort(key=lambda tag: (-self.found["tags"][tag], tag))
        return [(tag, [self.grid[tag, str(n)] for n in range(1, 6)]) for tag in tags[:most]]


def _usual(name: str, counter: Counter[str]) -> Iterable[str]:
    """Return the values to cover where the experiment names none."""
    if name == "lengths":
        return _LENGTHS
    if name == "difficulty":
        return map(str, range(1, 6))
    if name == "ambiguity":
        return AMBIGUITIES
    return (value for value, _ in sorted(counter.items(), key=lambda item: (-item[1], item[0])))


def coverage_of(
    cases: Iterable[Case], targets: CoverageTargets | None, like: Coverage | None = None
) -> Coverage:
    """Return what cases cover; with `like`, of the values that it is about."""
    values = (
        {}
        if like is None
        else {dimension.name: [*dimension.counts] for dimension in like.dimensions}
    )
    coverage = Coverage(targets, wanted=values)
    for case in cases:
        coverage.add(case)
    return coverage
