"""Proposals of the judges of an experiment, and what each would score."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import utc
from edison_ci.documents import decoding, files, yaml_edit
from edison_ci.execute import runner, standalone
from edison_ci.features.assist import candidates as assist_candidates
from edison_ci.features.assist import draft_files, drafting
from edison_ci.judges import instructions, replies
from edison_ci.numeric import weighted_mean
from edison_ci.plan import selection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import RunContext
    from edison_ci.records import Json
    from edison_ci.store.judgments import JudgeScoreRow

MOST = 5
_COMBINE = ("mean", "median", "trimmed")
_FEWEST_TO_TRIM = 3


class JudgeDraft(NamedTuple):
    """A proposal of a judge, and what speaks for it."""

    candidate: assist_candidates.ModelCandidate
    reason: str


class PanelDraft(NamedTuple):
    """A proposal of judges."""

    judges: tuple[JudgeDraft, ...]
    combine: str
    pairwise: assist_candidates.ModelCandidate | None

    @property
    def candidates(self) -> list[assist_candidates.ModelCandidate]:
        """All models of the panel, each once."""
        found = [each.candidate for each in self.judges]
        return found if self.pairwise is None or self.pairwise in found else [*found, self.pairwise]


def judges_kind(reachable: assist_candidates.ReachableModels) -> drafting.DraftKind[PanelDraft]:
    """Return the kind of a proposal out of these models; raises UsageError if there is none."""
    assist_candidates.need(
        reachable, assist_candidates.FEWEST["judge"], "that judge, besides those that answer"
    )
    text: Json = {"type": "string"}
    schema = replies.object_schema(
        judges={"type": "array", "items": replies.object_schema(model=text, reason=text)},
        combine={"enum": [*_COMBINE]},
        pairwise=text,
    )
    return drafting.DraftKind("judges", "judges", schema, partial(_read, reachable))


def judges_question(
    objective: str, criteria: Sequence[str], reachable: assist_candidates.ReachableModels
) -> drafting.Question:
    """Return what is asked for."""
    pieces = (
        instructions.FencedText("text", objective, "objective"),
        instructions.FencedText("text", "\n".join(criteria), "criteria"),
        instructions.FencedText("text", reachable.listing, "models"),
    )
    return drafting.Question(pieces, "The material ends here. Propose the judges.")


def _read(reachable: assist_candidates.ReachableModels, reply: dict[str, Json]) -> PanelDraft:
    items = reply["judges"]
    if not isinstance(items, list) or not 1 <= len(items) <= MOST:
        raise drafting.DoesNotFit(f"judges is not a list of 1 to {MOST} models")
    judges = tuple(
        JudgeDraft(_known(reachable, drafting.text_of(item, "model", (1, 200))), _reason(item))
        for item in items
    )
    if len({each.candidate.id for each in judges}) < len(judges):
        raise drafting.DoesNotFit("a judge is there twice")
    combine = reply.get("combine")
    if combine not in _COMBINE:
        raise drafting.DoesNotFit(f"combine is none of {', '.join(_COMBINE)}")
    if combine != "mean" and len(judges) < _FEWEST_TO_TRIM:
        raise drafting.DoesNotFit(
            f"{combine} needs {_FEWEST_TO_TRIM} judges, and there are {len(judges)}"
        )
    pairwise = reply.get("pairwise") or ""
    if not isinstance(pairwise, str):
        raise drafting.DoesNotFit("pairwise is not the name of a model")
    compared = _known(reachable, pairwise.strip()) if pairwise.strip() else None
    return PanelDraft(judges, str(combine), compared)


def _reason(item: Json) -> str:
    return drafting.text_of(item, "reason", (1, 500))


def _known(
    reachable: assist_candidates.ReachableModels, name: str
) -> assist_candidates.ModelCandidate:
    candidate = reachable.find(name)
    if candidate is None:
        raise drafting.DoesNotFit(f"{name!r} is not one of the models")
    return candidate


def judges_file(
    project: Project, experiment: Experiment, panel: PanelDraft
) -> draft_files.DraftFile:
    """Return the experiment with the judges, and models.yaml with those that it lacks."""
    names: list[Json] = [each.candidate.name for each in panel.judges]
    given: dict[str, Json] = {"pointwise": names}
    if panel.combine != experiment.file.judges.combine:
        given["combine"] = panel.combine
    if panel.pairwise is not None:
        given["pairwise"] = {"by": panel.pairwise.name}
    before = decoding.decode(files.read(project.tree, experiment.path))
    text = yaml_edit.with_members(before, "judges", given, after="prompts")
    return draft_files.DraftFile(
        project, experiment.path, text, assist_candidates.with_models(project, panel.candidates)
    )


class JudgeTrial(NamedTuple):
    """What one judge scores for an answer."""

    name: str
    score: float | None
    """The weighted score, from 0 to 1; None if a criterion has none."""
    criteria: tuple[JudgeScoreRow, ...]


class PanelTrial(NamedTuple):
    """What the judges score for one answer."""

    case: str
    model: str
    answer: str
    reason: str
    """Why the answer was not judged; empty if it was."""
    judges: tuple[JudgeTrial, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the trial as it is printed with --json."""
        rows = [
            {
                "judge": each.name,
                "score": each.score,
                "criteria": [
                    {
                        "name": row.criterion,
                        "score": row.score,
                        "missing": row.missing,
                        "reason": row.reason,
                    }
                    for row in each.criteria
                ],
            }
            for each in self.judges
        ]
        return {**self._asdict(), "judges": rows}


def try_panel(
    project: Project, experiment: Experiment, case_id: str, context: RunContext
) -> PanelTrial:
    """Score the stored answer to a case, or a new one; raises CallError or NotAnswered."""
    prompt, case = experiment.prompts[0], selection.find_case(project, experiment, case_id)
    configuration = selection.find_configuration(experiment, prompt, None)
    assert configuration is not None, "an experiment has at least one model"
    assert experiment.rubric is not None, "judges score a rubric"
    reuse = dt.timedelta(days=project.file.settings.reuse_days)
    newer_than = utc.timestamp(context.now() - reuse)
    task = runner.Task(prompt, configuration, case, 0)
    tried = standalone.try_once(project, task, experiment, context, newer_than=newer_than)
    weights = {each.name: each.weight for each in experiment.rubric.criteria}
    rows = tried.grade.judge_scores
    judges = tuple(
        JudgeTrial(name, _weighted(mine, weights), mine)
        for name in dict.fromkeys(row.judge for row in rows)
        for mine in [tuple(row for row in rows if row.judge == name)]
    )
    text = tried.answer.completion.text
    reason = "" if judges else tried.grade.reason or "no judge answered"
    return PanelTrial(case.id, configuration.name, text, reason, judges)


def _weighted(rows: Sequence[JudgeScoreRow], weights: Mapping[str, float]) -> float | None:
    scored = [(weights[row.criterion], row.score) for row in rows if row.score is not None]
    return weighted_mean(scored) if len(scored) == len(weights) else None
