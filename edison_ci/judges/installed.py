"""Judges of other packages: code that scores an answer by the criteria of a rubric."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.experiment import JUDGES
from edison_ci.contracts import CallError, CriterionScore, JudgePlugin, ScoredCriterion
from edison_ci.documents.marks import shortened
from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.judges.instructions import plugin_hash
from edison_ci.judges.pointwise import JudgeScores
from edison_ci.judges.replies import (
    MAX_REASON,
    CriterionReply,
    Failure,
    Missing,
    Verdict,
    call_failure,
    score_criterion,
)
from edison_ci.safety.redaction import Redact, keep_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.rubric import Criterion, RubricFile
    from edison_ci.judges.judge import Ask
    from edison_ci.records import Case

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
        criteria = [_plain(criterion) for criterion in self.rubric.criteria]
        try:
            async with asyncio.timeout(LIMIT_S):
                said = await self.plugin.judge(case, output, criteria)
            verdict = self._verdict(said)
        except CallError as error:
            return JudgeScores(self.name, self.hash, None, call_failure(error))
        except TimeoutError:
            failure = Failure(Missing.TIMEOUT, f"no scores within {LIMIT_S:g} s")
            return JudgeScores(self.name, self.hash, None, failure)
        except Exception as error:  # code of another package; the run must go on
            logger.debug("a judge failed", exc_info=True, extra={"judge": self.name})
            reason = self._shorten(f"{type(error).__name__}: {error}")
            return JudgeScores(self.name, self.hash, None, Failure(Missing.JUDGE_ERROR, reason))
        first = next(iter(verdict.missing.values()), None)
        return JudgeScores(self.name, self.hash, verdict if verdict.scores else None, first)

    def _verdict(self, said: Mapping[str, CriterionScore]) -> Verdict:
        known = {criterion.name for criterion in self.rubric.criteria}
        if unknown := sorted(map(str, said.keys() - known)):
            raise ValueError(f"it scores {unknown[0]!r}, which is no criterion of the rubric")
        scores: dict[str, CriterionReply] = {}
        missing: dict[str, Failure] = {}
        for criterion in self.rubric.criteria:
            found = self._score(said.get(criterion.name), criterion)
            if isinstance(found, Failure):
                missing[criterion.name] = found
            else:
                scores[criterion.name] = found
        return Verdict(scores, missing)

    def _score(self, found: object, criterion: Criterion) -> CriterionReply | Failure:
        if found is None:
            return Failure(Missing.JUDGE_ERROR, f"{criterion.name} has no score")
        if not isinstance(found, CriterionScore):
            said = f"the score of {criterion.name} is a {type(found).__name__}, no CriterionScore"
            return Failure(Missing.JUDGE_ERROR, said)
        return score_criterion(criterion, found.score, self._shorten(found.reason))

    def _shorten(self, reason: object) -> str:
        return shortened(self.redact(hidden(str(reason))).strip(), MAX_REASON)


def _plain(criterion: Criterion) -> ScoredCriterion:
    scale = criterion.scale
    return ScoredCriterion(
        criterion.name, criterion.description, scale.min, scale.max, criterion.lower_is_better
    )
