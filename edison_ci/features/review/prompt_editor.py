"""The editor of a prompt: a text with what it asks for, tried on chosen cases, and proposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.access.site import Role, require_role
from edison_ci.api.try_grid import MOST_CASES, MOST_MODELS, find_try
from edison_ci.config.cases import STATIC
from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.review.prompt_drafts import ChosenCells, EditedPrompt, cost_words
from edison_ci.proposals.file_proposal import FEWEST_NOTE_CHARS, MOST_NOTE_CHARS
from edison_ci.report.components import diff_view
from edison_ci.results.run_lists import last_complete
from edison_ci.results.run_result import RunResult
from edison_ci.results.stored_runs import find_current_run
from edison_ci.web.page_context import MOST_CELLS, Crumb, Page, PageContext
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.api.try_grid import TryGrid
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.review.prompt_drafts import Draft
    from edison_ci.web.page_context import Links

_LISTED = 50
"""Cases to choose from; others are named."""
_FIRST = 3
"""Cases that are chosen at first."""
_VARIABLES = r"\{\{.*?\}\}|\{%.*?%\}"
_BRACES = r"\{[A-Za-z_][A-Za-z0-9_]*\}"


class EditorState(NamedTuple):
    """What a person has entered into the editor."""

    edited: EditedPrompt
    cases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    grid: TryGrid | None = None
    problem: EdisonError | None = None
    forgotten: bool = False
    """Whether the page names a grid that is no longer there."""


class CaseChoice(NamedTuple):
    """A case to choose."""

    id: str
    why: str
    """Why it failed in the newest run; empty if it did not, or was not measured."""


def edit(context: PageContext) -> Page:
    """Return the editor with the current text, or a text that was tried."""
    project = _project(context)
    actor, args, name = context.actor, context.args, context.path["prompt"]
    assert actor is not None, "checked by _project"
    experiment = _experiment(project, name, args.text("experiment"))
    prompt = next(candidate for candidate in experiment.prompts if candidate.id == name)
    text = context.memory.draft(args.text("draft"), actor.name)
    base = args.text("base") if text is not None else prompt.version
    if text is None:
        draft = EditedPrompt(name, experiment.id, "").draft(project)
        text = draft.target.text
    grid = find_try(args.text("grid"), actor.name)
    state = EditorState(
        EditedPrompt(name, experiment.id, text, base),
        tuple(args.texts("case")),
        tuple(args.texts("model")),
        grid,
        forgotten=bool(args.text("grid")) and grid is None,
    )
    return editor_page(context.links, project, context.connection, state)


def may_edit(context: PageContext) -> bool:
    """Whether the visitor may edit prompts here."""
    return context.may(Role.EDITOR) and project_of(context) is not None


def _project(context: PageContext) -> Project:
    project, name = project_of(context), context.path["prompt"]
    if context.actions is None or context.actor is None or project is None:
        raise UsageError(
            "editing is not possible on these pages", hint=f"edit the file of the prompt {name!r}"
        )
    require_role(context.actor, Role.EDITOR, "edit prompt", project.file.members)
    return project


def _experiment(project: Project, prompt: str, preferred: str) -> Experiment:
    using = _experiments(project, prompt)
    if not using:
        raise UsageError(
            f"no experiment uses the prompt {prompt!r}",
            hint="add it to prompts: of an experiment",
        )
    return next((experiment for experiment in using if experiment.id == preferred), using[0])


def _experiments(project: Project, prompt: str) -> list[Experiment]:
    return [
        experiment
        for experiment in project.experiments.values()
        if any(prompt == used.id for used in experiment.prompts)
    ]


def editor_page(
    links: Links, project: Project, connection: sqlite3.Connection, state: EditorState
) -> Page:
    """Return the editor."""
    edited = state.edited
    experiment = _experiment(project, edited.prompt, edited.experiment)
    draft = edited._replace(base="").draft(project)
    choices = list(_choices(project, experiment, connection))
    models = [name for name, _, _ in experiment.models]
    listed = {choice.id for choice in choices}
    cases = state.cases or tuple(choice.id for choice in choices[:_FIRST])
    chosen = state.models or tuple(models[:MOST_MODELS])
    braces = draft.target.prompt.header.syntax == "braces"
    return Page(
        "prompt_edit",
        f"Edit prompt {edited.prompt}",
        {
            "state": state,
            "draft": draft,
            "counts": draft.counts(),
            "experiment": experiment,
            "experiments": _experiments(project, edited.prompt),
            "choices": choices,
            "cases": cases,
            "unlisted": [case for case in cases if case not in listed],
            "models": models,
            "chosen": chosen,
            "cost": _cost(draft, cases, chosen),
            "most": (MOST_CASES, MOST_MODELS),
            "static": not experiment.file.data,
            "variables": _BRACES if braces else _VARIABLES,
            "grid": state.grid,
        },
        crumbs=_crumbs(links, edited.prompt),
        area="prompts",
    )


def _cost(draft: Draft, cases: tuple[str, ...], models: tuple[str, ...]) -> str:
    """Return what a try of the choice costs, in words; empty if it is unknown."""
    if draft.problems:
        return ""
    try:
        chosen = ChosenCells(cases, models).found(draft.target.project, draft.target.experiment)
        answers = len(chosen) * len(models)
        return f"{answers:,} answers, {cost_words(draft.cost(chosen, models))}"
    except EdisonError:
        return ""


def _choices(
    project: Project, experiment: Experiment, connection: sqlite3.Connection
) -> Iterator[CaseChoice]:
    """Yield cases to choose: those that fail in the newest run first, then the first ones."""
    if not experiment.file.data:
        yield CaseChoice(str(STATIC.id), "")
        return
    failing = _failing(experiment, connection)
    there: dict[str, str] = {}
    if searchable(project, experiment.id):
        first: list[str] = []
        for case in project.cases(experiment):
            if case.id in failing:
                there[case.id] = failing[case.id]
            elif len(first) < _LISTED:
                first.append(case.id)
            elif len(there) == len(failing):
                break
        there = {case: failing[case] for case in failing if case in there}
        there |= dict.fromkeys(first[: _LISTED - len(there)], "")
    yield from (CaseChoice(case, why) for case, why in there.items())


def _failing(experiment: Experiment, connection: sqlite3.Connection) -> dict[str, str]:
    newest = last_complete(connection, experiment.id)
    if newest is None:
        return {}
    run = find_current_run(connection, newest)
    if run.cells_planned > MOST_CELLS:
        return {}
    triage = RunResult(connection, run).triage()
    return {failing.case: failing.why for failing in triage.worst} if triage is not None else {}


def save(context: PageContext) -> Page:
    """Return the changes of a text, with the form that proposes it."""
    project, actor, args = _project(context), context.actor, context.args
    assert actor is not None, "checked by _project"
    name = context.path["prompt"]
    text = context.memory.draft(args.text("draft"), actor.name)
    if text is None:
        raise UsageError(
            "the edited text is no longer here", hint="go back to the editor, and save it again"
        )
    edited = EditedPrompt(name, args.text("experiment"), text, args.text("base"))
    return save_page(context.links, project, edited)


def save_page(
    links: Links,
    project: Project,
    edited: EditedPrompt,
    *,
    note: str = "",
    problem: EdisonError | None = None,
) -> Page:
    """Return the changes of a text with a note, and what is wrong with them, if anything."""
    draft = edited._replace(base="").draft(project)
    before = draft.target.text
    values: dict[str, Any] = {
        "edited": edited,
        "path": draft.path,
        "changes": diff_view(before, draft.saved),
        "grown": len(draft.saved) - len(before),
        "note": note,
        "limits": (FEWEST_NOTE_CHARS, MOST_NOTE_CHARS),
        "problem": problem,
    }
    crumbs = (
        *_crumbs(links, edited.prompt),
        Crumb("Edit", links.to("prompt", edited.prompt, "edit")),
    )
    return Page("prompt_save", f"Save prompt {edited.prompt}", values, crumbs, "prompts")


def _crumbs(links: Links, prompt: str) -> tuple[Crumb, ...]:
    return Crumb("Prompts", links.to("prompts")), Crumb(prompt, links.to("prompt", prompt))
