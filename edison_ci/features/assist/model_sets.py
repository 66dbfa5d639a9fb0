"""Proposals of the models of an experiment: a fast, a balanced and a smart one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents import decoding, files, yaml_edit
from edison_ci.features.assist import draft_files, drafting
from edison_ci.features.assist.candidates import (
    FEWEST,
    ModelCandidate,
    ReachableModels,
    need,
    with_models,
)
from edison_ci.judges import instructions, replies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.drafting import DraftKind
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
    item = replies.object_schema(role={"enum": [*ROLES]}, model=text, reason=text)
    return drafting.list_kind("models", "models", item, partial(_read, reachable))


def models_question(objective: str, reachable: ReachableModels) -> drafting.Question:
    """Return what is asked for."""
    pieces = (
        instructions.FencedText("text", objective, "objective"),
        instructions.FencedText("text", reachable.listing, "models"),
    )
    fewest, most = COUNTS
    most = min(most, len(reachable.candidates))
    wanted = f"Propose {fewest} to {most} models" if most > fewest else f"Propose {fewest} models"
    return drafting.Question(pieces, f"The material ends here. {wanted}, cheapest first.")


def _read(reachable: ReachableModels, items: Sequence[Json]) -> tuple[ModelDraft, ...]:
    fewest, most = COUNTS
    if not fewest <= len(items) <= most:
        raise drafting.DoesNotFit(f"{len(items)} models; {fewest} to {most} were asked for")
    found = []
    for item in items:
        role, name = (
            drafting.text_of(item, "role", (1, 40)),
            drafting.text_of(item, "model", (1, 200)),
        )
        candidate = reachable.find(name)
        if candidate is None:
            raise drafting.DoesNotFit(f"{name!r} is not one of the models")
        if role not in ROLES:
            raise drafting.DoesNotFit(f"{role!r} is none of {', '.join(ROLES)}")
        found.append(ModelDraft(role, candidate, drafting.text_of(item, "reason", (1, 500))))
    if len({each.role for each in found}) < len(found):
        raise drafting.DoesNotFit("two models have the same role")
    if len({each.candidate.id for each in found}) < len(found):
        raise drafting.DoesNotFit("a model is there twice")
    found.sort(key=lambda each: ROLES.index(each.role))
    prices = [each.candidate.usd_per_1k for each in found]
    if prices != sorted(prices):
        raise drafting.DoesNotFit(
            f"the {found[-1].role} model costs less than the {found[0].role} one"
        )
    return tuple(found)


def models_file(
    project: Project, experiment: Experiment, chosen: Sequence[ModelDraft]
) -> draft_files.DraftFile:
    """Return the experiment with the models, and models.yaml with those that it lacks."""
    candidates = [draft.candidate for draft in chosen]
    names: list[Json] = [each.name for each in candidates]
    before = decoding.decode(files.read(project.tree, experiment.path))
    text = yaml_edit.with_value(before, "models", names, after="prompts")
    return draft_files.DraftFile(project, experiment.path, text, with_models(project, candidates))
