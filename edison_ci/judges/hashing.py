"""Hashes by which grades are comparable: instructions, rubric, model and parameters."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.prompt import Prompt
    from edison_ci.config.rubric import Criterion, RubricFile
    from edison_ci.judges.asking import Judge
    from edison_ci.judges.briefing import Briefing


def rubric_hash(rubric: RubricFile) -> str:
    """Return the sha256 of what is scored and how it is added up; the licence is left out."""
    return _digest(_rubric(rubric))


def judge_hash(
    briefing: Briefing, rubric: RubricFile | None, judge: Judge, *, objective: str = ""
) -> str:
    """Return the sha256 over instructions, rubric, the judge's identity and its parameters.

    Without a rubric, the objective is what a pairwise judge goes by.
    """
    yardstick = _rubric(rubric) if rubric else objective
    return _digest([briefing.message(), yardstick, *_judge(judge)])


def question_hash(
    briefing: Briefing, criteria: Sequence[Criterion], objective: str, judge: Judge
) -> str:
    """Return the sha256 over instructions, criteria, objective, the judge and its parameters."""
    asked = [criterion.model_dump(mode="json") for criterion in criteria]
    return _digest([briefing.message(), asked, objective, *_judge(judge)])


def grader_hash(prompt: Prompt, judge: Judge) -> str:
    """Return the sha256 over a grader prompt, its scale, the judge's identity and parameters."""
    scale = prompt.header.scale
    scaled = scale.model_dump(mode="json") if scale else None
    return _digest([prompt.version, scaled, *_judge(judge)])


def panel_hash(hashes: list[str], combine: str) -> str:
    """Return the sha256 over all judges of a panel and how they are combined."""
    return _digest([sorted(hashes), combine])


def _rubric(rubric: RubricFile) -> object:
    return {
        "criteria": [criterion.model_dump(mode="json") for criterion in rubric.criteria],
        "weights": {name: round(weight, 9) for name, weight in rubric.weights().items()},
        "pass_at": rubric.pass_at,
    }


def _judge(judge: Judge) -> list[object]:
    return [judge.model.identity(), dict(judge.params)]


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
