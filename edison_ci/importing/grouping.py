"""Groups of cases that can be one experiment.

A test of promptfoo brings its own assertions; checks of an experiment hold for all of its cases. An
assertion with a value becomes a check that takes the value from the case, and is skipped for cases
that have none. One without a value (is-json, latency) cannot do that, so cases that differ in such
ones, or in their prompts or models, become experiments of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.importing.fidelity import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.importing.drafts import Draft, ModelDraft, Part, PromptDraft
    from edison_ci.importing.fidelity import Fidelity

MOST_GROUPS = 20
_AT_ONCE = 10
"""Prompts, and models, that an experiment takes."""

Choice = tuple[tuple[str, ...], tuple[str, ...]]
"""Prompts, and the models that get them."""
Chosen = tuple[tuple[str, ...] | None, tuple[str, ...]]
"""Prompts and models that a case is for."""


@dataclass(slots=True)
class Group:
    """Cases that share prompts, models and assertions without a value."""

    prompts: tuple[str, ...]
    models: tuple[str, ...]
    drafts: list[Draft] = field(default_factory=list)


def grouped(
    drafts: Sequence[Draft],
    prompts: Sequence[PromptDraft],
    models: Sequence[ModelDraft],
    fidelity: Fidelity,
) -> list[Group]:
    """Return the experiments that the cases make, in the order of their first cases."""
    kept = _common_signatures(drafts)
    chosen: dict[Chosen, list[Choice]] = {}
    groups: dict[tuple[Choice, tuple[str, ...]], Group] = {}
    for draft in drafts:
        signature = _signature(draft)
        if signature not in kept:
            draft.parts = [part for part in draft.parts if not _refused(part, fidelity)]
            signature = ()
        key = (draft.prompts, draft.models)
        if key not in chosen:
            chosen[key] = _choices(draft, prompts, models, fidelity)
        for choice in chosen[key]:
            group = groups.setdefault((choice, signature), Group(*choice))
            group.drafts.append(draft)
    return [part for group in groups.values() for part in _small(group)]


def _signature(draft: Draft) -> tuple[str, ...]:
    return tuple(part.key for part in draft.parts if not part.arguments)


def _common_signatures(drafts: Sequence[Draft]) -> set[tuple[str, ...]]:
    """Return the combinations of assertions without a value that get an experiment."""
    counted = Counter(_signature(draft) for draft in drafts)
    return {signature for signature, _ in counted.most_common(MOST_GROUPS)} | {()}


def _refused(part: Part, fidelity: Fidelity) -> bool:
    if part.arguments:
        return False
    if part.node is not None:
        note = f"tests differ in more than {MOST_GROUPS} ways in assertions without a value"
        fidelity.again(Status.UNSUPPORTED, part.node, "", note)
    return True


def _choices(
    draft: Draft,
    prompts: Sequence[PromptDraft],
    models: Sequence[ModelDraft],
    fidelity: Fidelity,
) -> list[Choice]:
    """Return which prompts go to which models; models that take the same prompts together."""
    mine = [p for p in prompts if draft.prompts is None or p.id in draft.prompts]
    found: dict[tuple[str, ...], list[ModelDraft]] = {}
    for model in models:
        if model.name not in draft.models:
            continue
        taken = tuple(p.id for p in mine if model.prompts is None or _takes(model, p))
        if taken:
            found.setdefault(taken, []).append(model)
    return [(taken, _distinct(same, fidelity)) for taken, same in found.items()]


def _distinct(models: list[ModelDraft], fidelity: Fidelity) -> tuple[str, ...]:
    """Return the names of models that are not the same call as one before."""
    found: list[ModelDraft] = []
    for model in models:
        twin = next((each for each in found if each.entry == model.entry), None)
        if twin is None:
            found.append(model)
        elif model.node is not None:
            note = (
                f"the same call as {twin.name}, so it is not made twice; for more answers set draws"
            )
            fidelity.again(Status.APPROXIMATED, model.node, model.mark, note)
    return tuple(model.name for model in found)


def _takes(model: ModelDraft, prompt: PromptDraft) -> bool:
    wanted = model.prompts or ()
    return any(
        label == want or label.startswith(f"{want}:") or want in (f"file://{label}", label)
        for label in prompt.labels
        for want in (each.removesuffix("*").removesuffix(":") for each in wanted)
    )


def _small(group: Group) -> list[Group]:
    """Return groups that an experiment can hold."""
    return [
        Group(group.prompts[p : p + _AT_ONCE], group.models[m : m + _AT_ONCE], group.drafts)
        for p in range(0, len(group.prompts), _AT_ONCE)
        for m in range(0, len(group.models), _AT_ONCE)
    ]
