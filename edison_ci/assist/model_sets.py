"""Proposals of the models of an experiment: a fast, a balanced and a smart one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.assist.candidates import FEWEST, ModelCandidate, ReachableModels, need, with_models
from edison_ci.assist.draft_files import DraftFile
from edison_ci.assist.drafting import DoesNotFit, Question, list_kind, text_of
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import read
from edison_ci.documents.yaml_edit import with_value
from edison_ci.judges.instructions import FencedText
from edison_ci.judges.replies import object_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.assist.drafting import DraftKind
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Json

COUNTS = (FEWEST["generate"], 3)
ROLES = ("fast", "balanced", "smart")


class ModelDraft(NamedTuple):
    """A proposal of a model, and what speaks for it."""

    role: str
    candidate: ModelCandidate
    reason: str


def models_kind(reachable: ReachableModels) -> DraftKind[tuple[ModelDraft, ...]]:
    """Return the kind of a proposal out of these models; raises UsageError if they are too few."""
    need(reachable, COUNTS[0], "that generate")
    text: Json = {"type": "string"}
    item = object_schema(role={"enum": [*ROLES]}, model=text, reason=text)
    return list_kind("models", "models", item, partial(_read, reachable))


def models_question(objective: str, reachable: ReachableModels) -> Question:
    """Return what is asked for."""
    pieces = (
        FencedText("text", objective, "objective"),
        FencedText("text", reachable.listing, "models"),
    )
    fewest, most = COUNTS
    most = min(most, len(reachable.candidates))
    wanted = f"Propose {fewest} to {most} models" if most > fewest else f"Propose {fewest} models"
    return Question(pieces, f"The material ends here. {wanted}, cheapest first.")


def _read(reachable: ReachableModels, items: Sequence[Json]) -> tuple[ModelDraft, ...]:
    fewest, most = COUNTS
    if not fewest <= len(items) <= most:
        raise DoesNotFit(f"{len(items)} models; {fewest} to {most} were asked for")
    found = []
    for item in items:
        role, name = text_of(item, "role", (1, 40)), text_of(item, "model", (1, 200))
        candidate = reachable.find(name)
        if candidate is None:
            raise DoesNotFit(f"{name!r} is not one of the models")
        if role not in ROLES:
            raise DoesNotFit(f"{role!r} is none of {', '.join(ROLES)}")
        found.append(ModelDraft(role, candidate, text_of(item, "reason", (1, 500))))
    if len({each.role for each in found}) < len(found):
        raise DoesNotFit("two models have the same role")
    if len({each.candidate.id for each in found}) < len(found):
        raise DoesNotFit("a model is there twice")
    found.sort(key=lambda each: ROLES.index(each.role))
    prices = [each.candidate.usd_per_1k for each in found]
    if prices != sorted(prices):
        raise DoesNotFit(f"the {found[-1].role} model costs less than the {found[0].role} one")
    return tuple(found)


def models_file(
    project: Project, experiment: Experiment, chosen: Sequence[ModelDraft]
) -> DraftFile:
    """Return the experiment with the models, and models.yaml with those that it lacks."""
    candidates = [draft.candidate for draft in chosen]
    names: list[Json] = [each.name for each in candidates]
    before = decode(read(project.tree, experiment.path))
    text = with_value(before, "models", names, after="prompts")
    return DraftFile(project, experiment.path, text, with_models(project, candidates))
