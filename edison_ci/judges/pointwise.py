"""Pointwise judges: an answer, or a case as a question, scored by a model or by a plugin."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.experiment import JUDGES
from edison_ci.config.rubric import Criterion, Scale
from edison_ci.contracts import CallError, CriterionScore, JudgePlugin, ScoredCriterion
from edison_ci.documents.marks import shortened
from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.judges.instructions import (
    FencedText,
    case_pieces,
    fence_message,
    judge_hash,
    objective_pieces,
    plugin_hash,
    question_hash,
)
from edison_ci.judges.judge import Ask, Judge, ask_with_retry
from edison_ci.judges.replies import (
    MAX_REASON,
    CriterionReply,
    Failure,
    Missing,
    Verdict,
    call_failure,
    read_verdict,
    score_criterion,
    verdict_schema,
)
from edison_ci.numeric import rounded
from edison_ci.records import Message
from edison_ci.safety.redaction import Redact, keep_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.rubric import RubricFile
    from edison_ci.judges.instructions import Instructions
    from edison_ci.judges.judge import Ask
    from edison_ci.records import Case, Json, Request

CLOSING = (
    "The material ends here. Score the answer by every criterion and reply with the JSON object."
)


@dataclass(frozen=True, slots=True)
class JudgeScores:
    """The scores of one judge."""

    judge: str
    hash: str
    """Hash of instructions, rubric, objective, model and parameters."""
    verdict: Verdict | None
    failure: Failure | None = None
    """The problem with the last reply, if any; a verdict may still have some scores."""

    def missing(self, criterion: str) -> Failure | None:
        """Return why a criterion has no score from this judge; None if it has one."""
        if self.verdict is None:
            return self.failure
        return self.verdict.missing.get(criterion)


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A judge with its instructions and rubric, for one answer at a time."""

    judge: Judge
    rubric: RubricFile
    instructions: Instructions
    objective: str = ""
    """What the answers are for: context for the criteria, which alone are scored."""
    _system: str = field(init=False)
    _schema: Json = field(init=False)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        # Computed once, as only the material differs between calls.
        criteria, goal = self.rubric.criteria, self.objective
        system = self.instructions.message(criteria_text(criteria), objective=goal)
        object.__setattr__(self, "_system", system)
        object.__setattr__(self, "_schema", verdict_schema(criteria))
        digest = judge_hash(self.instructions, self.rubric, self.judge, objective=goal)
        object.__setattr__(self, "hash", digest)

    @property
    def name(self) -> str:
        """The judge's name in models.yaml."""
        return self.judge.name

    @property
    def label(self) -> str:
        """The name of the judge in its approval."""
        return f"{self.judge.model.provider}/{self.judge.model.model}"

    @property
    def simulated(self) -> bool:
        """Whether its scores come from the simulator."""
        return self.judge.model.simulated

    def terms(self) -> list[object]:
        """Return what its scores depend on, except rubric, objective and instructions."""
        return [self.judge.model.identity(), dict(self.judge.params)]

    def request(self, case: Case, output: str) -> Request:
        """Return the request for a verdict; it does not reveal the author of the output."""
        pieces = [
            *objective_pieces(self.objective),
            *case_pieces(case),
            FencedText("answer", output),
        ]
        asked = fence_message(self._system, pieces, CLOSING, seed=self.judge.params.get("seed"))
        messages = (Message("system", self._system), Message("user", asked))
        return self.judge.request(messages, schema=self._schema)

    async def judge_output(self, case: Case, output: str, ask: Ask) -> JudgeScores:
        """Return the scores of the judge; an unusable reply is a value, not an error."""
        outcome = await ask_with_retry(
            ask,
            self.judge,
            self.request(case, output),
            lambda completion: read_verdict(completion, self.rubric.criteria),
        )
        return JudgeScores(self.judge.name, self.hash, outcome.value, outcome.failure)


def criteria_text(criteria: Sequence[Criterion], weights: Mapping[str, float] | None = None) -> str:
    """Return the criteria for a judge; only a pairwise judge gets weights."""
    lines = []
    for criterion in criteria:
        scale = criterion.scale
        entry: dict[str, Json] = {"name": criterion.name, "description": criterion.description}
        if weights is None:
            entry |= {"min": _plain(scale.min), "max": _plain(scale.max)}
            if scale.labels:
                entry["labels"] = dict(scale.labels)
            if criterion.lower_is_better:
                entry["note"] = "Low scores are good."
        else:
            entry["weight"] = rounded(weights[criterion.name], 3)
        lines.append(json.dumps(entry, ensure_ascii=False))
    return "Criteria:\n\n[\n" + ",\n".join(lines) + "\n]"


def _plain(number: float) -> float:
    return int(number) if number == int(number) else number


OVERALL = "overall"
"""The criterion by which questions are sorted."""
QUESTION_CLOSING = (
    "The material ends here. Score the question by every criterion and reply with the JSON object."
)


def _question_criterion(name: str, description: str, low: str, high: str) -> Criterion:
    scale = Scale(min=1, max=10, labels={"1": low, "10": high})
    return Criterion(name=name, description=description, weight=0.2, scale=scale)


QUESTION_CRITERIA = (
    _question_criterion(
        "clarity",
        "Whether it is clear what is asked, and whether a right answer can be told from a wrong "
        "one with what the question and its reference say.",
        "nobody could say what is wanted",
        "it can be understood in one way only",
    ),
    _question_criterion(
        "difficulty",
        "How hard it is to answer well. Hard is neither good nor bad.",
        "any model gets it right",
        "an expert has to think about it",
    ),
    _question_criterion(
        "relevance",
        "Whether it tests what the objective is about, as it would come up in real use.",
        "it has nothing to do with the objective",
        "exactly what the objective is for",
    ),
    _question_criterion(
        "originality",
        "Whether it asks something that a usual question for this objective does not.",
        "the first question that anybody would write",
        "it shows something that others do not",
    ),
    _question_criterion(
        OVERALL,
        "How much the test set gains by this question, all in all.",
        "it should be taken out",
        "it should be in every test set for this objective",
    ),
)
"""Default criteria for questions."""

STATEMENT = "statement"
"""Name under which a judge scores a sentence; its scores are stored under the sentence."""
MIN_STATEMENT, MAX_STATEMENT = 10, 400
"""Characters of a sentence."""


def statement_of(text: str) -> str:
    """Return a free sentence in one line, with an end: no name of a criterion has a full stop."""
    line = " ".join(text.split())
    return f"{line}." if line[-1:].isalnum() else line


def is_statement(criterion: str) -> bool:
    """Whether the name of a stored score is a free sentence."""
    return not re.fullmatch(r"[A-Za-z0-9 ]+", criterion)


def statement_criteria(statement: str) -> tuple[Criterion, ...]:
    """Return the only criterion by which questions are held to a sentence."""
    return (
        _question_criterion(
            STATEMENT,
            f"How far this is true of the question: {statement}",
            "it is not true",
            "it is wholly true",
        ),
    )


@dataclass(frozen=True, slots=True)
class QuestionJudge:
    """A judge with its instructions and criteria, for one case at a time."""

    judge: Judge
    criteria: tuple[Criterion, ...]
    objective: str
    instructions: Instructions
    statement: str = ""
    """The sentence that the only criterion is about; empty for a rubric."""
    _system: str = field(init=False)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        system = self.instructions.message(criteria_text(self.criteria))
        object.__setattr__(self, "_system", system)
        made = question_hash(self.instructions, self.criteria, self.objective, self.judge)
        object.__setattr__(self, "hash", made)

    def stored_name(self, criterion: Criterion) -> str:
        """Return the name under which the scores of a criterion are stored."""
        return self.statement or criterion.name

    def request(self, case: Case) -> Request:
        """Return the request for a verdict on a case."""
        pieces = [*objective_pieces(self.objective), *case_pieces(case)]
        asked = fence_message(
            self._system, pieces, QUESTION_CLOSING, seed=self.judge.params.get("seed")
        )
        return self.judge.request((Message("system", self._system), Message("user", asked)))

    async def judge_case(self, case: Case, ask: Ask) -> JudgeScores:
        """Return the scores of the judge; an unusable reply is a value, not an error."""
        outcome = await ask_with_retry(
            ask,
            self.judge,
            self.request(case),
            lambda completion: read_verdict(completion, self.criteria),
        )
        return JudgeScores(self.judge.name, self.hash, outcome.value, outcome.failure)


logger = logging.getLogger(__name__)

LIMIT_S = 60.0
"""The longest time of a plugin for one answer."""


@dataclass(frozen=True)
class InstalledJudge:
    """A judge of another package with its rubric, used like a model that judges."""

    name: str
    """Its entry point, and its name in results."""
    rubric: RubricFile
    redact: Redact = keep_text
    """Redacts its reasons, which may quote the case."""
    package: str = field(init=False)
    """Name and version of the package: another version may score differently."""
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        package = JUDGES.package(self.name) or self.name
        object.__setattr__(self, "package", package)
        object.__setattr__(self, "hash", plugin_hash(self.name, package, self.rubric))

    @property
    def label(self) -> str:
        """The name of the judge in its approval."""
        return self.package

    @property
    def simulated(self) -> bool:
        """Whether its scores come from the simulator."""
        return False

    def terms(self) -> list[object]:
        """Return what its scores depend on, except the rubric."""
        return [self.name, self.package]

    @cached_property
    def plugin(self) -> JudgePlugin:
        """The object of the plugin; raises UsageError if it cannot be created."""
        kind = JUDGES.load_class(self.name, JudgePlugin)
        assert kind is not None, "config has made sure that it is installed"
        try:
            return kind()
        except Exception as error:  # code of another package, which may raise anything
            raise UsageError(
                f"the judge {self.name!r} of {self.package} cannot be set up: "
                f"{type(error).__name__}: {error}",
                hint="reinstall the package, or leave it out of judges: {pointwise: [...]}",
            ) from error

    async def judge_output(self, case: Case, output: str, _ask: Ask) -> JudgeScores:
        """Return the judge's scores; a failure of the plugin is a value, not an error."""
        criteria = [_criterion_for_plugin(criterion) for criterion in self.rubric.criteria]
        try:
            async with asyncio.timeout(LIMIT_S):
                scores = await self.plugin.judge(case, output, criteria)
            verdict = self._verdict(scores)
        except CallError as error:
            return JudgeScores(self.name, self.hash, None, call_failure(error))
        except TimeoutError:
            failure = Failure(Missing.TIMEOUT, f"no scores within {LIMIT_S:g} s")
            return JudgeScores(self.name, self.hash, None, failure)
        except Exception as error:  # code of another package; the run must continue
            logger.debug("a judge failed", exc_info=True, extra={"judge": self.name})
            reason = self._shorten(f"{type(error).__name__}: {error}")
            return JudgeScores(self.name, self.hash, None, Failure(Missing.JUDGE_ERROR, reason))
        first = next(iter(verdict.missing.values()), None)
        return JudgeScores(self.name, self.hash, verdict if verdict.scores else None, first)

    def _verdict(self, plugin_scores: Mapping[str, CriterionScore]) -> Verdict:
        names = {criterion.name for criterion in self.rubric.criteria}
        if unknown := sorted(map(str, plugin_scores.keys() - names)):
            raise ValueError(f"it scores {unknown[0]!r}, which is no criterion of the rubric")
        scores: dict[str, CriterionReply] = {}
        missing: dict[str, Failure] = {}
        for criterion in self.rubric.criteria:
            reply = self._score(plugin_scores.get(criterion.name), criterion)
            if isinstance(reply, Failure):
                missing[criterion.name] = reply
            else:
                scores[criterion.name] = reply
        return Verdict(scores, missing)

    def _score(self, score: object, criterion: Criterion) -> CriterionReply | Failure:
        if score is None:
            return Failure(Missing.JUDGE_ERROR, f"{criterion.name} has no score")
        if not isinstance(score, CriterionScore):
            reason = f"the score of {criterion.name} is a {type(score).__name__}, no CriterionScore"
            return Failure(Missing.JUDGE_ERROR, reason)
        return score_criterion(criterion, score.score, self._shorten(score.reason))

    def _shorten(self, reason: object) -> str:
        return shortened(self.redact(hidden(str(reason))).strip(), MAX_REASON)


def _criterion_for_plugin(criterion: Criterion) -> ScoredCriterion:
    scale = criterion.scale
    return ScoredCriterion(
        criterion.name, criterion.description, scale.min, scale.max, criterion.lower_is_better
    )
