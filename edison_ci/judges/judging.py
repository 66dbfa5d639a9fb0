"""All judges and graders of an experiment, on one answer.

The one door to this package: made once per run, asked once per answer. It calls no provider by
itself; whoever makes it hands in how models are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.judges.asking import Ask, Judge, both, side_by_side
from edison_ci.judges.briefing import brief
from edison_ci.judges.ensemble import Combine, CriterionGrade, RubricGrade, grade
from edison_ci.judges.graders import PromptGrader
from edison_ci.judges.hashing import panel_hash
from edison_ci.judges.moderation import Moderator
from edison_ci.judges.pairwise import Pairwise
from edison_ci.judges.pointwise import Opinion, Pointwise
from edison_ci.rounding import reaches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.rubric import RubricFile
    from edison_ci.records import Case

__all__ = ["Ask", "Judged", "JudgedPart", "Judging", "comparing", "moderating"]


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """One part of a grade, with the fields of a stored part."""

    name: str
    kind: str
    """rubric, criterion or grader."""
    score: float | None
    passed: bool | None
    """None also for a part that has a score: a missing criterion could still change the pass."""
    weight: float
    status: str
    """ok, error or skipped."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """What judges and graders say of one answer."""

    parts: tuple[JudgedPart, ...]
    """The rubric and the graders: what composite and pass are made of."""
    criteria: tuple[JudgedPart, ...] = ()
    """What the rubric's part is made of; to be shown, not to be added up again."""
    flags: tuple[str, ...] = ()
    disputed: bool = False
    opinions: tuple[Opinion, ...] = ()
    """What each judge said."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A rubric, its judges and how they become one."""

    rubric: RubricFile
    weight: float
    judges: tuple[Pointwise, ...]
    combine: Combine

    @property
    def hash(self) -> str:
        """Everything that makes its grades comparable."""
        return panel_hash([judge.hash for judge in self.judges], self.combine)


@dataclass(frozen=True, slots=True)
class WeightedGrader:
    """A grader and what its score counts for."""

    grader: PromptGrader
    weight: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Judging:
    """Judges the answers of one experiment."""

    ask: Ask
    panel: Panel | None = None
    graders: tuple[WeightedGrader, ...] = ()

    @classmethod
    def of(cls, project: Project, experiment: Experiment, ask: Ask) -> Judging | None:
        """Return the judging of an experiment; None if it has neither rubric nor graders."""
        panel, graders = panel_of(project, experiment), _graders(project, experiment)
        return cls(ask, panel, graders) if panel or graders else None

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that are asked."""
        judges = [pointwise.judge.name for pointwise in self.panel.judges] if self.panel else []
        return tuple(dict.fromkeys([*judges, *(g.grader.judge.name for g in self.graders)]))

    @property
    def hashes(self) -> Mapping[str, str]:
        """Return the hash of each part: only grades of equal hash may be compared."""
        found = {entry.grader.name: entry.grader.hash for entry in self.graders}
        return {self.panel.rubric.rubric: self.panel.hash, **found} if self.panel else found

    async def judge(self, case: Case, output: str) -> Judged:
        """Return what all say of an answer.

        A judge that fails is a part in error, never an exception; what `ask` raises beside
        CallError passes through.
        """
        opinions, parts = await both(self._opinions(case, output), self._grades(case, output))
        if self.panel is None:
            return Judged(tuple(parts))
        result = grade(self.panel.rubric, opinions, self.panel.combine)
        return Judged(
            (_rubric_part(self.panel, result), *parts),
            tuple(_criterion_part(criterion) for criterion in result.criteria),
            result.flags,
            result.disputed,
            tuple(opinions),
        )

    async def _opinions(self, case: Case, output: str) -> list[Opinion]:
        judges = self.panel.judges if self.panel else ()
        return await side_by_side([one.judge_output(case, output, self.ask) for one in judges])

    async def _grades(self, case: Case, output: str) -> list[JudgedPart]:
        return await side_by_side([self._graded(each, case, output) for each in self.graders])

    async def _graded(self, entry: WeightedGrader, case: Case, output: str) -> JudgedPart:
        found = await entry.grader.grade(case, output, self.ask)
        passed = None if found.score is None else reaches(found.score, entry.threshold)
        return JudgedPart(
            entry.grader.name,
            "grader",
            found.score,
            passed,
            entry.weight,
            found.status,
            found.reason,
        )


def _rubric_part(panel: Panel, result: RubricGrade) -> JudgedPart:
    status = "ok" if result.composite is not None else "error"
    return JudgedPart(
        panel.rubric.rubric,
        "rubric",
        result.composite,
        result.passed,
        panel.weight,
        status,
        result.reason,
    )


def _criterion_part(criterion: CriterionGrade) -> JudgedPart:
    return JudgedPart(
        criterion.name,
        "criterion",
        criterion.score,
        criterion.passed,
        criterion.weight,
        "ok" if criterion.score is not None else "error",
        criterion.reason,
    )


# --- from the files of a project ------------------------------------------------------------------


def panel_of(project: Project, experiment: Experiment) -> Panel | None:
    """Return the rubric of an experiment with its judges; None without a rubric."""
    use, rubric = experiment.file.rubric, experiment.rubric
    if use is None or rubric is None:
        return None
    briefing = brief("pointwise", project.tree)
    judges = tuple(Pointwise(Judge.of(model), rubric, briefing) for model in experiment.judges)
    return Panel(rubric, use.weight, judges, experiment.file.judges.combine)


def _graders(project: Project, experiment: Experiment) -> tuple[WeightedGrader, ...]:
    entries = zip(experiment.graders, experiment.file.judges.graders, strict=True)
    return tuple(
        WeightedGrader(
            PromptGrader.of(entry.known_as, prompt, _model(project, entry.by)),
            entry.weight,
            entry.threshold,
        )
        for prompt, entry in entries
    )


def _model(project: Project, name: str | None) -> Model:
    """Return a model by name, or the default judge; config has made sure that it is there."""
    return project.models[str(name or project.file.defaults.judge)]


def comparing(project: Project, experiment: Experiment) -> Pairwise | None:
    """Return the pairwise judge of an experiment, if it has one."""
    pairwise = experiment.file.judges.pairwise
    if pairwise is None:
        return None
    judge = Judge.of(_model(project, pairwise.by))
    briefing = brief("pairwise", project.tree)
    return Pairwise(judge, briefing, experiment.rubric, experiment.file.objective)


def moderating(project: Project, experiment: Experiment) -> tuple[Moderator, ...]:
    """Return the screens by a model that an experiment has switched on."""
    kinds: tuple[Literal["moderation", "toxicity"], ...] = ("moderation", "toxicity")
    found = []
    for kind in kinds:
        screen = getattr(experiment.file.safety, kind)
        if screen is not None and screen.action != "off":
            judge = Judge.of(_model(project, screen.by))
            briefing = brief(kind, project.tree)
            found.append(Moderator(judge, briefing, screen.action, screen.threshold))
    return tuple(found)
