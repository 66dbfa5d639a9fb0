"""Labels files with human grades, and judge_approvals.yaml with the approvals of judges.

A line of a labels file is the grade of one person for one answer. Lines are only added; the last
grade of a person for an answer counts.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.config import problems as config_problems
from edison_ci.config.project import Version
from edison_ci.documents.decoding import text_lines
from edison_ci.documents.json_text import json_marks, parse_json
from edison_ci.documents.marks import Document, Fault
from edison_ci.documents.secrets import secrets_in
from edison_ci.errors import Location, Problem, Severity
from edison_ci.numeric import reaches
from edison_ci.records import canonical_json
from edison_ci.shape import (
    UNIQUE,
    Date,
    Name,
    Shape,
    TextPattern,
    if_key,
    items,
    repeats,
    short,
    some_of_keys,
    wrong,
)
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from edison_ci.config.rubric import RubricFile
    from edison_ci.documents.files import Tree


_SCHEMA = "# yaml-language-server: $schema=.edison/schemas/judge_approvals.schema.json"
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class ApprovalEntry(Shape):
    """Agreement of the judges of a rubric with people, and the exact configuration judged with."""

    rubric: Name = Field(description="Id of the rubric.")
    judges: Annotated[tuple[Name, ...], items(1, 5), UNIQUE] = Field(
        description="Models of the panel."
    )
    combine: Literal["mean", "median", "trimmed"] = Field(
        "mean", description="How the scores of several judges are combined."
    )
    models: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=400)], ...], items(0, 5)
    ] = Field((), description="The judges as PROVIDER/MODEL, for information.")
    models_hash: Hash = Field(description="sha256 of the models and parameters of the judges.")
    rubric_hash: Hash = Field(description="sha256 of criteria and weights.")
    instructions_hash: Hash = Field(description="sha256 of the instructions of the judges.")
    labels_hash: Hash = Field(description="sha256 of the labels used.")
    objective_hash: Hash | None = Field(
        None, description="sha256 of the objective that the judges see; none if they see none."
    )
    kappa: float | None = Field(
        None, ge=-1, le=1, description="Agreement with people (kappa); none if nothing varies."
    )
    lower_bound: float | None = Field(
        None, ge=-1, le=1, description="One-sided 95% lower bound of the agreement over cases."
    )
    n: Count = Field(description="Number of answers graded by people and judges.")
    cases: Count = Field(0, description="Number of cases, or of clusters of cases, of the answers.")
    floor: float = Field(ge=-1, le=1, description="Lower bound that is required.")
    min_n: int = Field(ge=1, le=100_000, description="Required number of labels.")
    bias: float | None = Field(
        None, ge=-1, le=1, description="Mean of judges minus people, 0-1; above 0 is lenient."
    )
    passes: Count = Field(0, description="Answers passed by people.")
    true_passes: Count = Field(0, description="Of these, passed by the judges.")
    fails: Count = Field(0, description="Answers failed by people.")
    true_fails: Count = Field(0, description="Of these, failed by the judges.")
    simulated: bool = Field(False, description="Whether a judge is simulated.")
    date: Date = Field(description="Date of the measurement.")

    def broken_rules(self) -> Iterator[Exception]:
        """Yield counts that are impossible."""
        for name, most in (("true_passes", self.passes), ("true_fails", self.fails)):
            if getattr(self, name) > most:
                message = f"{name} is {getattr(self, name)}, of {most}"
                yield wrong("range", message, "write it with: edison calibrate", at=(name,))

    @property
    def panel(self) -> tuple[str, tuple[str, ...], str]:
        """The rubric and judges it belongs to."""
        return self.rubric, tuple(sorted(self.judges)), self.combine

    @property
    def key(self) -> tuple[str, tuple[str, ...], str, str]:
        """The panel and the objective it belongs to."""
        return *self.panel, self.objective_hash or ""


class JudgeApprovalsFile(Shape):
    """judge_approvals.yaml: which judges may decide gates; written by edison calibrate."""

    version: Version = 1
    approvals: Annotated[tuple[ApprovalEntry, ...], items(0, 1_000)] = Field(
        (), description="One entry for each rubric, its judges and an objective."
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield approvals of the same judges."""
        for index, first in repeats(entry.key for entry in self.approvals):
            judges = f"these judges of {self.approvals[index].rubric}"
            message = f"{judges} already have an approval in entry {first + 1}"
            at = ("approvals", index, "rubric")
            yield wrong("duplicate", message, "keep the newer one", at=at)

    def with_approval(
        self, approval: ApprovalEntry, objectives: Collection[str]
    ) -> JudgeApprovalsFile:
        """Return the file with an approval added, or replaced for the same judges.

        Approvals of these judges for objectives that no experiment has any more are dropped.
        """
        others = [
            entry
            for entry in self.approvals
            if entry.key != approval.key
            and (entry.panel != approval.panel or entry.objective_hash in objectives)
        ]
        entries = sorted((*others, approval), key=lambda entry: entry.key)
        return JudgeApprovalsFile(version=1, approvals=tuple(entries))

    def text(self) -> str:
        """Return the text of the file; the same entries give the same bytes."""
        lines = [_SCHEMA, "# Written by `edison calibrate`; commit it.", "version: 1", "approvals:"]
        for entry in self.approvals:
            values = entry.model_dump(mode="json", exclude_none=True)
            for index, (name, value) in enumerate(values.items()):
                written = value if name == "date" else json.dumps(value, ensure_ascii=False)
                lines.append(f"{'  - ' if index == 0 else '    '}{name}: {written}")
        return "\n".join(lines if self.approvals else lines[:-1]) + "\n"

    def of(
        self, rubric: str, judges: tuple[str, ...], combine: str, objective: str | None
    ) -> ApprovalEntry | None:
        """Return the approval of the judges of a rubric, in any order.

        Without one for this objective, it is the newest for another one, which is stale.
        """
        panel = (rubric, tuple(sorted(judges)), combine)
        approvals = [entry for entry in self.approvals if entry.panel == panel]
        same = (entry for entry in approvals if entry.objective_hash == objective)
        return next(same, max(approvals, key=lambda entry: entry.date, default=None))


MAX_BYTES = 50_000_000
MAX_LINES = 100_000
LONGEST_LINE = 2_000_000
MOST_PROBLEMS = 20
ScaleName = Literal["thumbs", "1-5", "0-1"]
SCALES: tuple[ScaleName, ...] = ("thumbs", "1-5", "0-1")
Hash = Annotated[str, TextPattern("[0-9a-f]{64}", "a sha256", "write 64 hex digits", "hash")]
ShortHash = Annotated[str, TextPattern("[0-9a-f]{16}", "a hash", "write 16 hex digits", "hash")]
HALF = 0.5
"""Lowest passing grade of each scale, if the rubric has no pass_at."""


def share_of(scale: ScaleName, grade: float) -> float:
    """Return a grade as a share of its scale, 0 (worst) to 1 (best)."""
    return (grade - 1) / 4 if scale == "1-5" else float(grade)


def fits(scale: ScaleName, grade: float) -> bool:
    """Whether a grade is on its scale."""
    if scale == "1-5":
        return grade in (1, 2, 3, 4, 5)
    return grade in (0, 1) if scale == "thumbs" else 0 <= grade <= 1


ALLOWED = {
    "thumbs": "0 (down) or 1 (up)",
    "1-5": "a whole number from 1 to 5",
    "0-1": "a number from 0 to 1",
}


MOST_OUTPUT_CHARS = 1_000_000
"""Longer answers are stored as a hash only."""


def answer_hash(output: str) -> str:
    """Return the hash of an answer, of the text that judges read."""
    return hashlib.sha256(output.encode("utf-8", "surrogatepass")).hexdigest()


def _on(scale: str, grade: dict[str, Any]) -> dict[str, Any]:
    return if_key("scale", {"const": scale}, {"properties": {"grade": grade}})


class Label(Shape):
    """One line of a labels file: the grade of a person for an answer."""

    model_config = ConfigDict(
        json_schema_extra={
            **some_of_keys("answer", "output"),
            "allOf": [
                _on("thumbs", {"enum": [0, 1]}),
                _on("1-5", {"enum": [1, 2, 3, 4, 5]}),
                _on("0-1", {"type": "number", "maximum": 1}),
            ],
        }
    )

    case: str = Field(min_length=1, max_length=200, description="Id of the case.")
    by: str = Field(min_length=1, max_length=200, description="Who graded.")
    scale: ScaleName = Field(description="Scale of the grade.")
    grade: float = Field(ge=0, le=5, description="The grade; thumbs are 1 (up) and 0 (down).")
    criteria: dict[str, Annotated[float, Field(ge=-1_000, le=1_000)]] = Field(
        default_factory=dict,
        max_length=10,
        description="Scores by criterion, each on the scale of the rubric.",
    )
    note: str = Field("", max_length=10_000, description="Why.")
    at: str = Field("", max_length=40, description="Time, ISO-8601 in UTC.")
    answer: Hash | None = Field(None, description="sha256 of the output.")
    output: str | None = Field(
        None,
        max_length=MOST_OUTPUT_CHARS,
        description="The answer as judges read it; without it, it must be in the results.",
    )
    case_hash: ShortHash | None = Field(
        None, description="Hash of input and expected output, to detect an edited case."
    )
    experiment: Name | None = Field(None, description="Experiment of the answer.")
    run: str | None = Field(None, min_length=1, max_length=100, description="Run of the answer.")
    cell: str | None = Field(None, min_length=1, max_length=24, description="Cell of the answer.")

    def broken_rules(self) -> Iterator[Exception]:
        """Yield a grade that is not on its scale, and an answer that cannot be identified."""
        if not fits(self.scale, self.grade):
            message = f"grade {self.grade:g} is not on the scale {self.scale}"
            yield wrong("scale", message, f"write {ALLOWED[self.scale]}", at=("grade",))
        if self.answer is None and self.output is None:
            hint = "add output, the answer's text, or answer, its sha256"
            yield wrong("missing", "the label does not identify its answer", hint)
        if self.output is not None and self.answer not in (None, answer_hash(self.output)):
            hint = "remove answer, or restore the text"
            yield wrong("hash", "answer is not the sha256 of output", hint, at=("answer",))

    @property
    def score(self) -> float:
        """The grade from 0 (worst) to 1 (best)."""
        return share_of(self.scale, self.grade)

    @property
    def key(self) -> tuple[str, str]:
        """The answer it belongs to: case and hash."""
        return self.case, self.answer or answer_hash(self.output or "")

    def passed(self, pass_at: float | None) -> bool:
        """Whether the grade passes; thumbs up always does."""
        if self.scale == "thumbs":
            return self.grade == 1
        return reaches(self.score, HALF if pass_at is None else pass_at)


class LabelLine(NamedTuple):
    """A label with its line number."""

    label: Label
    line: int


@dataclass(frozen=True, slots=True)
class Labels:
    """The valid labels of a file."""

    path: str
    lines: tuple[LabelLine, ...] = ()

    @property
    def current(self) -> tuple[Label, ...]:
        """The last label of each person for each answer."""
        last = {(placed.label.key, placed.label.by): placed.label for placed in self.lines}
        return tuple(last.values())

    @property
    def hash(self) -> str:
        """sha256 of the current labels, without notes and runs."""
        facts = sorted(
            canonical_json(
                [*label.key, label.by, label.scale, label.grade, label.criteria, label.case_hash]
            )
            for label in self.current
        )
        return hashlib.sha256("\n".join(facts).encode("utf-8", "surrogatepass")).hexdigest()


def read_labels(tree: Tree, path: str) -> tuple[Labels, list[Problem]]:
    """Return the labels of a file, and its problems by line."""
    problems: list[Problem] = []
    lines = tuple(_lines(tree, path, problems))
    if len(problems) > MOST_PROBLEMS:
        message = f"{len(problems) - MOST_PROBLEMS} more problems in this file"
        where = problems[MOST_PROBLEMS].where
        more = Problem(where, "more", message, "fix the first ones")
        problems = [*problems[:MOST_PROBLEMS], more]
    return Labels(path, lines), problems


def _lines(tree: Tree, path: str, problems: list[Problem]) -> Iterator[LabelLine]:
    try:
        stream = tree.open(path, max_bytes=MAX_BYTES)
    except Fault as fault:
        problems.append(Problem(Location(path), fault.code, fault.message, fault.hint))
        return
    with stream:
        for number, text in enumerate(text_lines(stream, longest=LONGEST_LINE), 1):
            if number > MAX_LINES:
                message = f"{path} has more than {MAX_LINES:,} lines"
                hint = "remove old ones"
                problems.append(Problem(Location(path, number, 1), "size", message, hint))
                return
            try:
                if isinstance(text, Fault):
                    raise text
                if not text.isspace():
                    label = _label(path, number, text.rstrip("\r\n"), problems)
                    if label is not None:
                        yield LabelLine(label, number)
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
        problems += config_problems.problems_of(error, document)
        return None


def criteria_problems(labels: Labels, rubric: RubricFile) -> Iterator[Problem]:
    """Yield problems of criteria that the rubric does not have, or has on another scale.

    Criteria change while labels stay, so an unknown criterion is only a warning.
    """
    criteria = {criterion.name: criterion for criterion in rubric.criteria}
    for placed in labels.lines:
        for name, raw in placed.label.criteria.items():
            where = Location(labels.path, placed.line, 1)
            if name not in criteria:
                hint = did_you_mean(name, criteria) or "its score is ignored"
                message = f"the rubric has no criterion {short(name)}"
                yield Problem(where, "labels", message, hint, Severity.WARNING)
                continue
            scale = criteria[name].scale
            if not scale.min <= raw <= scale.max:
                message = f"{name} is {raw:g}, its scale is {scale.min:g} to {scale.max:g}"
                yield Problem(where, "labels", message, "fix the score, or remove it")


def criterion_shares(label: Label, rubric: RubricFile) -> Mapping[str, float]:
    """Return the scores by criterion, each from 0 (worst) to 1 (best)."""
    shares = {}
    for criterion in rubric.criteria:
        raw, scale = label.criteria.get(criterion.name), criterion.scale
        if raw is not None and scale.min <= raw <= scale.max:
            share = (raw - scale.min) / (scale.max - scale.min)
            shares[criterion.name] = 1 - share if criterion.lower_is_better else share
    return shares
