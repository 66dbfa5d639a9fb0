"""Files of labels: what may stand in them, and what their lines say.

A line is what one person said of one answer. Lines are only ever added; of two lines of one person
about one answer the later one counts.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from edison_ci._dataclass import dataclass
from edison_ci.config.problems import problems_of
from edison_ci.documents.decoding import text_lines
from edison_ci.documents.json_text import json_marks, parse_json
from edison_ci.documents.marks import Document, Fault
from edison_ci.documents.secrets import secrets_in
from edison_ci.errors import Location, Problem, Severity
from edison_ci.names import did_you_mean
from edison_ci.records import canonical_json
from edison_ci.rounding import reaches
from edison_ci.shape import Name, Shape, Written, short, some_of_keys, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.rubric import RubricFile
    from edison_ci.documents.files import Tree

MAX_BYTES = 50_000_000
MAX_LINES = 100_000
LONGEST_LINE = 2_000_000
MOST_PROBLEMS = 20
ScaleName = Literal["thumbs", "1-5", "0-1"]
SCALES: tuple[ScaleName, ...] = ("thumbs", "1-5", "0-1")
Hash = Annotated[str, Written("[0-9a-f]{64}", "a sha256", "write 64 hex digits", "hash")]
ShortHash = Annotated[str, Written("[0-9a-f]{16}", "a hash", "write 16 hex digits", "hash")]
HALF = 0.5
"""From where on a grade on a scale passes where the rubric has no pass_at."""


def share_of(scale: ScaleName, grade: float) -> float:
    """Return a grade as a share of its scale, 0 (worst) to 1 (best)."""
    return (grade - 1) / 4 if scale == "1-5" else float(grade)


def fits(scale: ScaleName, grade: float) -> bool:
    """Whether a grade is one of its scale."""
    if scale == "1-5":
        return grade in (1, 2, 3, 4, 5)
    return grade in (0, 1) if scale == "thumbs" else 0 <= grade <= 1


ALLOWED = {
    "thumbs": "0 (down) or 1 (up)",
    "1-5": "a whole number from 1 to 5",
    "0-1": "a number from 0 to 1",
}


MOST_OUTPUT_CHARS = 1_000_000
"""A longer answer is known by its hash alone."""


def answer_hash(output: str) -> str:
    """Return the hash by which an answer is known: of what a judge reads of it."""
    return hashlib.sha256(output.encode("utf-8", "surrogatepass")).hexdigest()


def _on(scale: str, grade: dict[str, Any]) -> dict[str, Any]:
    return {
        "if": {"required": ["scale"], "properties": {"scale": {"const": scale}}},
        "then": {"properties": {"grade": grade}},
    }


class Label(Shape):
    """One line of a labels file: what a person said of an answer."""

    model_config = ConfigDict(
        json_schema_extra={
            **some_of_keys("answer", "output"),
            "allOf": [
                _on("thumbs", {"enum": [0, 1]}),
                _on("1-5", {"enum": [1, 2, 3, 4, 5]}),
                _on("0-1", {"maximum": 1}),
            ],
        }
    )

    case: str = Field(min_length=1, max_length=200, description="Id of the case.")
    by: str = Field(min_length=1, max_length=200, description="Who graded.")
    scale: ScaleName = Field(description="What the grade is a number of.")
    grade: float = Field(ge=0, le=5, description="The grade; thumbs are 1 (up) and 0 (down).")
    criteria: dict[str, Annotated[float, Field(ge=-1_000, le=1_000)]] = Field(
        default_factory=dict,
        max_length=10,
        description="Scores by criterion, each on the scale that the rubric gives it.",
    )
    note: str = Field("", max_length=10_000, description="Why.")
    at: str = Field("", max_length=40, description="When, ISO-8601 in UTC.")
    answer: Hash | None = Field(None, description="sha256 of the output.")
    output: str | None = Field(
        None,
        max_length=MOST_OUTPUT_CHARS,
        description="The answer as a judge reads it; without it, it has to be in the results.",
    )
    case_hash: ShortHash | None = Field(
        None, description="Hash of input and expected output: it has to be the same case still."
    )
    experiment: Name | None = Field(None, description="Experiment it was graded in.")
    run: str | None = Field(None, min_length=1, max_length=100, description="Run it was in.")
    cell: str | None = Field(None, min_length=1, max_length=24, description="Cell it was in.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not fits(self.scale, self.grade):
            said = f"grade {self.grade:g} is not on the scale {self.scale}"
            raise wrong("scale", said, f"write {ALLOWED[self.scale]}", at=("grade",))
        if self.answer is None and self.output is None:
            hint = "add output, the answer's text, or answer, its sha256"
            raise wrong("missing", "it does not say which answer it is about", hint)
        if self.output is not None and self.answer not in (None, answer_hash(self.output)):
            hint = "remove answer, or put the text back"
            raise wrong("hash", "answer is not the sha256 of output", hint, at=("answer",))
        return self

    @property
    def score(self) -> float:
        """The grade from 0 (worst) to 1 (best)."""
        return share_of(self.scale, self.grade)

    @property
    def key(self) -> tuple[str, str]:
        """The answer it is about: case and hash."""
        return self.case, self.answer or answer_hash(self.output or "")

    def passed(self, pass_at: float | None) -> bool:
        """Whether the person would let it pass: a thumb says so itself."""
        if self.scale == "thumbs":
            return self.grade == 1
        return reaches(self.score, HALF if pass_at is None else pass_at)


class Placed(NamedTuple):
    """A label and the line it stands on."""

    label: Label
    line: int


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a file, as far as they could be read."""

    path: str
    lines: tuple[Placed, ...] = ()

    @property
    def counting(self) -> tuple[Label, ...]:
        """The last label of each person about each answer."""
        last = {(placed.label.key, placed.label.by): placed.label for placed in self.lines}
        return tuple(last.values())

    @property
    def hash(self) -> str:
        """sha256 of what the labels that count say; notes and names of runs are left out."""
        told = sorted(
            canonical_json(
                [*label.key, label.by, label.scale, label.grade, label.criteria, label.case_hash]
            )
            for label in self.counting
        )
        return hashlib.sha256("\n".join(told).encode("utf-8", "surrogatepass")).hexdigest()


def read_labels(tree: Tree, path: str) -> tuple[Labels, list[Problem]]:
    """Return the labels of a file, and everything wrong with it, line by line."""
    problems: list[Problem] = []
    found = tuple(_lines(tree, path, problems))
    if len(problems) > MOST_PROBLEMS:
        message = f"{len(problems) - MOST_PROBLEMS} more problems in this file"
        where = problems[MOST_PROBLEMS].where
        more = Problem(where, "more", message, "mend the first ones")
        problems = [*problems[:MOST_PROBLEMS], more]
    return Labels(path, found), problems


def _lines(tree: Tree, path: str, problems: list[Problem]) -> Iterator[Placed]:
    try:
        stream = tree.open(path, max_bytes=MAX_BYTES)
    except Fault as fault:
        problems.append(Problem(Location(path), fault.code, fault.message, fault.hint))
        return
    with stream:
        for number, text in enumerate(text_lines(stream, longest=LONGEST_LINE), 1):
            if number > MAX_LINES:
                said = f"{path} has more than {MAX_LINES:,} lines"
                hint = "leave out old ones"
                problems.append(Problem(Location(path, number, 1), "size", said, hint))
                return
            try:
                if isinstance(text, Fault):
                    raise text
                if not text.isspace():
                    label = _label(path, number, text.rstrip("\r\n"), problems)
                    if label is not None:
                        yield Placed(label, number)
            except Fault as fault:
                where = Location(path, number, fault.at[1] + 1)
                problems.append(Problem(where, fault.code, fault.message, fault.hint))


def _label(path: str, number: int, text: str, problems: list[Problem]) -> Label | None:
    value = parse_json(text)
    if not isinstance(value, dict):
        raise Fault("type", "it is not an object", "each line is one JSON object")
    for secret in secrets_in(text):
        where = Location(path, number, secret.at[1] + 1)
        problems.append(Problem(where, secret.code, secret.message, secret.hint))
    try:
        return Label.model_validate(value)
    except ValidationError as error:
        document = Document(path, value, json_marks(text), number)
        problems += problems_of(error, document)
        return None


def criteria_problems(labels: Labels, rubric: RubricFile) -> Iterator[Problem]:
    """Yield what labels say about criteria that the rubric does not have, or not on such a scale.

    Criteria come and go while labels stay, so an unknown one is no more than a warning.
    """
    known = {criterion.name: criterion for criterion in rubric.criteria}
    for placed in labels.lines:
        for name, raw in placed.label.criteria.items():
            where = Location(labels.path, placed.line, 1)
            if name not in known:
                hint = did_you_mean(name, known) or "it no longer counts"
                said = f"the rubric has no criterion {short(name)}"
                yield Problem(where, "labels", said, hint, Severity.WARNING)
                continue
            scale = known[name].scale
            if not scale.min <= raw <= scale.max:
                said = f"{name} is {raw:g}, its scale is {scale.min:g} to {scale.max:g}"
                yield Problem(where, "labels", said, "mend the grade, or leave it out")


def criterion_shares(label: Label, rubric: RubricFile) -> Mapping[str, float]:
    """Return what a person said by criterion, each from 0 (worst) to 1 (best)."""
    found = {}
    for criterion in rubric.criteria:
        raw, scale = label.criteria.get(criterion.name), criterion.scale
        if raw is not None and scale.min <= raw <= scale.max:
            share = (raw - scale.min) / (scale.max - scale.min)
            found[criterion.name] = 1 - share if criterion.lower_is_better else share
    return found
