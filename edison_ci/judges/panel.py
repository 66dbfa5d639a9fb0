"""All judges and graders of an experiment, and the combination of their scores.

`ExperimentJudges` is the entry to this package: created once for a run, called once for an answer.
It calls no provider itself: the caller passes the function that does.

By STATS.md sections 2 and 3: scores are normalised to 0-1, judges are combined to one score for
each criterion, criteria to the composite. Missing scores are left out and shown, never counted as
zero, and the pass is decided here from numbers, never by a judge.

A grader prompt is written by the user: it sees the variables of the case, the output and the
expected output. Its reply is a number on its scale, yes or no, pass or fail, true or false, or JSON
with a score; anything else is a judge error.
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.rubric import Scale
from edison_ci.documents.marks import shortened
from edison_ci.judges import instructions as judge_instructions
from edison_ci.judges import judge as judge_judge
from edison_ci.judges import moderation, pointwise, replies
from edison_ci.judges import pairwise as judge_pairwise
from edison_ci.numeric import fixed, mean, reaches, weighted_mean
from edison_ci.safety.redaction import redactor
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.config.rubric import Criterion, RubricFile
    from edison_ci.records import Case, Completion, Json, Request


Combine = Literal["mean", "median", "trimmed"]

MIN_COVERAGE = 0.5
TRIM = 0.2
_MAX_REASON = 1_000


class Spread(NamedTuple):
    """The spread of the scores of judges, on 0-1."""

    range: float
    sd: float
    """Sample standard deviation."""


@dataclass(frozen=True, slots=True)
class DisputeThresholds:
    """The thresholds from which on judges disagree."""

    range: float = 0.5
    sd: float = 0.25

    def between(self, spread: Spread | None) -> bool:
        """Whether judges disagree; a single judge never does."""
        if spread is None:
            return False
        return reaches(spread.range, self.range) or reaches(spread.sd, self.sd)


@dataclass(frozen=True, slots=True)
class CriterionGrade:
    """The combined grade of all judges for one criterion."""

    name: str
    score: float | None
    """0-1; None if no judge scored it."""
    weight: float
    """Share of the rubric."""
    passed: bool | None
    """Whether it reaches its `min`; None if that is unknown, or if it has none."""
    reason: str
    by_judge: Mapping[str, float]
    spread: Spread | None = None
    """None with fewer than two judges."""
    disputed: bool = False


@dataclass(frozen=True, slots=True)
class RubricGrade:
    """The grade of one answer by a rubric."""

    composite: float | None
    passed: bool | None
    coverage: float
    """Share of the weights that was scored."""
    criteria: tuple[CriterionGrade, ...]
    flags: tuple[str, ...] = ()
    reason: str = ""
    """Why there is no composite."""

    @property
    def disputed(self) -> bool:
        """Whether the judges disagree on a criterion."""
        return any(criterion.disputed for criterion in self.criteria)


def combine_scores(scores: Sequence[float], how: Combine) -> float | None:
    """Return one score for the scores of several judges; None if there is none."""
    if not scores:
        return None
    if how == "median":
        return statistics.median(scores)
    kept = sorted(scores)
    if how == "trimmed":
        dropped = int(TRIM * len(kept))
        kept = kept[dropped : len(kept) - dropped]
    return mean(kept)


def score_spread(scores: Sequence[float]) -> Spread | None:
    """Return how far the scores are apart; None if there are fewer than two."""
    if len(scores) < 2:
        return None
    return Spread(max(scores) - min(scores), statistics.stdev(scores))


def grade_rubric(
    rubric: RubricFile,
    judge_scores: Sequence[pointwise.JudgeScores],
    combine: Combine = "mean",
    dispute: DisputeThresholds | None = None,
) -> RubricGrade:
    """Return the grade by a rubric from the scores of its judges."""
    weights, dispute = rubric.weights(), dispute or DisputeThresholds()
    criteria = tuple(
        _criterion(criterion, weights[criterion.name], judge_scores, combine, dispute)
        for criterion in rubric.criteria
    )
    flags = {flag for o in judge_scores if o.verdict is not None for flag in o.verdict.flags}
    coverage, composite = _composite(criteria)
    reason = _why_missing(rubric, criteria, coverage)
    if reason:
        return RubricGrade(None, None, coverage, criteria, tuple(sorted(flags)), reason)
    passed = _decide_pass(rubric, criteria)
    return RubricGrade(composite, passed, coverage, criteria, tuple(sorted(flags)))


def _criterion(
    criterion: Criterion,
    weight: float,
    judge_scores: Sequence[pointwise.JudgeScores],
    combine: Combine,
    dispute: DisputeThresholds,
) -> CriterionGrade:
    by_judge: dict[str, float] = {}
    reasons: list[tuple[str, str]] = []
    for judge_score in judge_scores:
        reply = judge_score.verdict.scores.get(criterion.name) if judge_score.verdict else None
        if reply is not None:
            by_judge[judge_score.judge] = reply.share
            reasons.append((judge_score.judge, reply.reason))
        elif failure := judge_score.missing(criterion.name):
            reasons.append((judge_score.judge, f"{failure.kind}: {failure.reason}"))
    scores = list(by_judge.values())
    score, spread = combine_scores(scores, combine), score_spread(scores)
    return CriterionGrade(
        name=criterion.name,
        score=score,
        weight=weight,
        passed=_reaches_min(criterion, score),
        reason=_join_reasons(reasons, alone=len(judge_scores) == 1),
        by_judge=by_judge,
        spread=spread,
        disputed=dispute.between(spread),
    )


def _reaches_min(criterion: Criterion, score: float | None) -> bool | None:
    if criterion.min is None or score is None:
        return None
    return reaches(score, criterion.min)


def _join_reasons(reasons: Iterable[tuple[str, str]], *, alone: bool) -> str:
    parts = [text if alone else f"{judge}: {text}" for judge, text in reasons if text]
    return shortened("; ".join(parts), _MAX_REASON)


def _composite(criteria: Sequence[CriterionGrade]) -> tuple[float, float | None]:
    scored = [(c.weight, c.score) for c in criteria if c.score is not None]
    return math.fsum(weight for weight, _ in scored), weighted_mean(scored)


def _why_missing(rubric: RubricFile, criteria: Sequence[CriterionGrade], coverage: float) -> str:
    """Return why there is no composite, or ''."""
    lost = [grade for grade in criteria if grade.score is None]
    required = {criterion.name for criterion in rubric.criteria if criterion.required}
    for criterion in lost:
        if criterion.name in required:
            return f"required criterion {criterion.name} has no score: {criterion.reason}"
    if not reaches(coverage, MIN_COVERAGE):
        why = lost[0].reason if lost else "no criteria"
        return f"only {fixed(100 * coverage)}% of the rubric was scored: {why}"
    return ""


def _decide_pass(rubric: RubricFile, criteria: Sequence[CriterionGrade]) -> bool | None:
    """Return whether an answer passes; None if a missing score could change that.

    Otherwise a judge that fails on the hardest criterion would turn a failing answer into a pass.
    """
    if any(criterion.passed is False for criterion in criteria):
        return False
    scored = math.fsum(c.weight * c.score for c in criteria if c.score is not None)
    unknown = math.fsum(c.weight for c in criteria if c.score is None)
    if rubric.pass_at is not None:
        if not reaches(scored + unknown, rubric.pass_at):
            return False
        if not reaches(scored, rubric.pass_at):
            return None if unknown else False
    floors = {criterion.name for criterion in rubric.criteria if criterion.min is not None}
    return None if any(c.passed is None for c in criteria if c.name in floors) else True


_WORDS = {"yes": 1.0, "pass": 1.0, "true": 1.0, "no": 0.0, "fail": 0.0, "false": 0.0}
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_FENCE = re.compile(r"```[a-z]{0,10}\n(.*)\n```", re.DOTALL)
_TRIMMED = " \t\r\n\"'`*_."
_LONGEST_WORD = 100


@dataclass(frozen=True, slots=True)
class GraderGrade:
    """The grade of one answer by a grader."""

    score: float | None
    """0-1; None without one."""
    reason: str
    status: str
    """ok, error, or skipped if the case lacks a variable of the prompt."""


@dataclass(frozen=True, slots=True)
class PromptGrader:
    """A grader prompt and its model."""

    name: str
    prompt: Prompt
    judge: judge_judge.Judge
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", judge_instructions.grader_hash(self.prompt, self.judge))

    @classmethod
    def of(cls, name: str, prompt: Prompt, model: Model) -> PromptGrader:
        """Return a grader; parameters: front matter over models.yaml over defaults of judges."""
        return cls(name, prompt, judge_judge.Judge.of(model, prompt.header.written_params))

    @property
    def scale(self) -> Scale:
        """The scale of the reply."""
        return self.prompt.header.scale or Scale()

    def request(self, case: Case, output: str) -> Request:
        """Return the request; raises MissingValueError or RenderError."""
        # The output is never parsed as a template, and has no invisible characters.
        variables: dict[str, Json] = {
            **case.variables,
            "output": judge_instructions.escape_invisible(output),
        }
        return self.judge.request(self.prompt.render(variables), form=self.prompt.output)

    async def grade(self, case: Case, output: str, ask: judge_judge.Ask) -> GraderGrade:
        """Return the grade; an unusable reply is a value, not an error."""
        try:
            request = self.request(case, output)
        except MissingValueError as error:
            return GraderGrade(None, str(error), "skipped")
        except RenderError as error:
            return GraderGrade(None, str(error), "error")
        outcome = await judge_judge.ask_with_retry(
            ask, self.judge, request, lambda completion: read_grade(completion, self.scale)
        )
        if outcome.value is None:
            failure = outcome.failure
            reason = f"{failure.kind}: {failure.reason}" if failure else "no score"
            return GraderGrade(None, reason, "error")
        return GraderGrade(outcome.value.share, outcome.value.reason, "ok")


def read_grade(completion: Completion, scale: Scale) -> replies.Outcome[replies.CriterionReply]:
    """Return the score in the reply of a grader."""
    if len(completion.text) > replies.MAX_REPLY:
        reason = f"the reply has {len(completion.text):,} characters"
        return replies.Outcome(None, replies.Failure(replies.Missing.JUDGE_ERROR, reason))
    text = replies.strip_thinking(completion.text)
    fenced = _FENCE.fullmatch(text)
    word = (fenced[1] if fenced else text).strip(_TRIMMED)
    if len(word) <= _LONGEST_WORD:
        if word.lower() in _WORDS:
            share = _WORDS[word.lower()]
            return replies.Outcome(
                replies.CriterionReply(scale.min + share * (scale.max - scale.min), share)
            )
        if _NUMBER.fullmatch(word):
            return _score_outcome(float(word), scale)
    reply = replies.reply_object(completion, "score")
    if isinstance(reply, replies.Failure):
        return replies.Outcome(None, reply if "{" in text else _not_a_grade(reply, scale))
    return _score_outcome(reply["score"], scale, replies.read_reason(reply))


def _score_outcome(
    value: Json, scale: Scale, reason: str = ""
) -> replies.Outcome[replies.CriterionReply]:
    raw = replies.check_scale(value, scale, "the answer")
    if isinstance(raw, replies.Failure):
        return replies.Outcome(None, raw)
    return replies.Outcome(replies.CriterionReply(raw, replies.scale_share(raw, scale), reason))


def _not_a_grade(failure: replies.Failure, scale: Scale) -> replies.Failure:
    if not failure.reason.startswith("the reply holds no"):
        return failure
    reason = (
        f"the reply is not a number from {scale.min:g} to {scale.max:g}, yes or no, "
        'pass or fail, true or false, or JSON {"score", "reason"}'
    )
    return replies.Failure(failure.kind, reason)


__all__ = [
    "ExperimentJudges",
    "JudgeComponent",
    "JudgeGrades",
    "moderators",
    "pairwise_judge",
]


@dataclass(frozen=True, slots=True)
class JudgeComponent:
    """One component of a grade, with the fields of a stored component."""

    name: str
    kind: str
    """rubric, criterion or grader."""
    score: float | None
    passed: bool | None
    """None also with a score: without a threshold, or if a missing criterion could change it."""
    weight: float
    status: str
    """ok, error or skipped."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JudgeGrades:
    """The grades of one answer by judges and graders."""

    components: tuple[JudgeComponent, ...]
    """The rubric and the graders, which decide composite and pass."""
    criteria: tuple[JudgeComponent, ...] = ()
    """The criteria of the rubric, for display; they are not added again."""
    flags: tuple[str, ...] = ()
    disputed: bool = False
    judge_scores: tuple[pointwise.JudgeScores, ...] = ()
    """The scores of each judge."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A rubric, its judges and how they are combined."""

    rubric: RubricFile
    weight: float
    judges: tuple[pointwise.Pointwise | pointwise.InstalledJudge, ...]
    combine: Combine

    @property
    def hash(self) -> str:
        """Hash of everything that its grades depend on."""
        return judge_instructions.panel_hash([judge.hash for judge in self.judges], self.combine)


@dataclass(frozen=True, slots=True)
class WeightedGrader:
    """A grader with its weight and threshold."""

    grader: PromptGrader
    weight: float
    threshold: float


@dataclass(frozen=True, slots=True)
class ExperimentJudges:
    """Judges the answers of one experiment."""

    ask: judge_judge.Ask
    panel: Panel | None = None
    graders: tuple[WeightedGrader, ...] = ()

    @classmethod
    def of(
        cls, project: Project, experiment: Experiment, ask: judge_judge.Ask
    ) -> ExperimentJudges | None:
        """Return the judges of an experiment; None if it has neither rubric nor graders."""
        panel, graders = load_panel(project, experiment), _graders(project, experiment)
        return cls(ask, panel, graders) if panel or graders else None

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that are called."""
        panel = self.panel.judges if self.panel else ()
        judges = [judge.name for judge in panel if isinstance(judge, pointwise.Pointwise)]
        return tuple(dict.fromkeys([*judges, *(g.grader.judge.name for g in self.graders)]))

    def set_up(self) -> None:
        """Create the objects of installed judges; raises UsageError if one fails."""
        for judge in self.panel.judges if self.panel else ():
            if isinstance(judge, pointwise.InstalledJudge):
                judge.plugin  # noqa: B018  # created at its first access

    @property
    def hashes(self) -> Mapping[str, str]:
        """Hash of each component: only grades of equal hash are comparable."""
        by_grader = {entry.grader.name: entry.grader.hash for entry in self.graders}
        return {self.panel.rubric.rubric: self.panel.hash, **by_grader} if self.panel else by_grader

    async def judge(self, case: Case, output: str) -> JudgeGrades:
        """Return the grades of an answer.

        A judge that fails is a component in error, never an exception; errors of `ask` other than
        CallError are passed on.
        """
        judge_scores, components = await judge_judge.run_both(
            self._judge_scores(case, output), self._grades(case, output)
        )
        if self.panel is None:
            return JudgeGrades(tuple(components))
        result = grade_rubric(self.panel.rubric, judge_scores, self.panel.combine)
        return JudgeGrades(
            (_rubric_component(self.panel, result), *components),
            tuple(_criterion_component(criterion) for criterion in result.criteria),
            result.flags,
            result.disputed,
            tuple(judge_scores),
        )

    async def _judge_scores(self, case: Case, output: str) -> list[pointwise.JudgeScores]:
        judges = self.panel.judges if self.panel else ()
        return await judge_judge.run_concurrently(
            [judge.judge_output(case, output, self.ask) for judge in judges]
        )

    async def _grades(self, case: Case, output: str) -> list[JudgeComponent]:
        return await judge_judge.run_concurrently(
            [self._grade_one(entry, case, output) for entry in self.graders]
        )

    async def _grade_one(self, entry: WeightedGrader, case: Case, output: str) -> JudgeComponent:
        grade = await entry.grader.grade(case, output, self.ask)
        passed = None if grade.score is None else reaches(grade.score, entry.threshold)
        return JudgeComponent(
            entry.grader.name,
            "grader",
            grade.score,
            passed,
            entry.weight,
            grade.status,
            grade.reason,
        )


def _rubric_component(panel: Panel, result: RubricGrade) -> JudgeComponent:
    status = "ok" if result.composite is not None else "error"
    return JudgeComponent(
        panel.rubric.rubric,
        "rubric",
        result.composite,
        result.passed,
        panel.weight,
        status,
        result.reason,
    )


def _criterion_component(criterion: CriterionGrade) -> JudgeComponent:
    return JudgeComponent(
        criterion.name,
        "criterion",
        criterion.score,
        criterion.passed,
        criterion.weight,
        "ok" if criterion.score is not None else "error",
        criterion.reason,
    )


def load_panel(project: Project, experiment: Experiment) -> Panel | None:
    """Return the rubric of an experiment with its judges; None without a rubric."""
    use, rubric = experiment.file.rubric, experiment.rubric
    if use is None or rubric is None:
        return None
    instructions = judge_instructions.load_instructions("pointwise", project.tree)
    goal = experiment.file.objective
    judges = tuple(
        pointwise.Pointwise(judge_judge.Judge.of(model), rubric, instructions, goal)
        for model in experiment.judges
    )
    redact = redactor(project.file.settings, experiment.file.safety)
    others = tuple(
        pointwise.InstalledJudge(name, rubric, redact) for name in experiment.judge_plugins
    )
    return Panel(rubric, use.weight, (*judges, *others), experiment.file.judges.combine)


def _graders(project: Project, experiment: Experiment) -> tuple[WeightedGrader, ...]:
    entries = zip(experiment.graders, experiment.file.judges.graders, strict=True)
    return tuple(
        WeightedGrader(
            PromptGrader.of(entry.report_name, prompt, _model(project, entry.by)),
            entry.weight,
            entry.threshold,
        )
        for prompt, entry in entries
    )


def _model(project: Project, name: str | None) -> Model:
    """Return a model by name, or the default judge; config has checked that it exists."""
    return project.models[str(name or project.file.defaults.judge)]


def pairwise_judge(project: Project, experiment: Experiment) -> judge_pairwise.Pairwise | None:
    """Return the pairwise judge of an experiment, if it has one."""
    pairwise = experiment.file.judges.pairwise
    if pairwise is None:
        return None
    judge = judge_judge.Judge.of(_model(project, pairwise.by))
    instructions = judge_instructions.load_instructions("pairwise", project.tree)
    return judge_pairwise.Pairwise(
        judge, instructions, experiment.rubric, experiment.file.objective
    )


def moderators(project: Project, experiment: Experiment) -> tuple[moderation.Moderator, ...]:
    """Return the enabled screens by a model of an experiment."""
    kinds: tuple[Literal["moderation", "toxicity"], ...] = ("moderation", "toxicity")
    moderators = []
    for kind in kinds:
        screen = getattr(experiment.file.safety, kind)
        if screen is not None and screen.action != "off":
            judge = judge_judge.Judge.of(_model(project, screen.by))
            instructions = judge_instructions.load_instructions(kind, project.tree)
            moderators.append(
                moderation.Moderator(judge, instructions, screen.action, screen.threshold)
            )
    return tuple(moderators)
