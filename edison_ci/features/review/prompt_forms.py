"""Forms of the editor of a prompt and of counterexamples: count, try, and propose.

A refused text is shown again with the reason, so that nothing that was written is lost.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from edison_ci import utc
from edison_ci.api.counterexamples import CaseEntry
from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.review.actions import ChosenCells, EditedPrompt
from edison_ci.features.review.counterexample_page import case_page
from edison_ci.features.review.prompt_drafts import cost_words
from edison_ci.features.review.prompt_editor import EditorState, editor_page, save_page
from edison_ci.features.review.review_forms import actions_of
from edison_ci.store.database import open_reader
from edison_ci.web.page_context import PageInstead
from edison_ci.web.workspace import project_in

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.web.forms import FormRequest


def count(sent: FormRequest) -> dict[str, Any]:
    """Return variables, characters and tokens of a text, and what a try of it would cost."""
    draft = _edited(sent).draft(_project(sent))
    found = draft.counts()
    cost = ""
    if not found.problems:
        try:
            chosen = _chosen(sent)
            cases = chosen.found(draft.target.project, draft.target.experiment)
            answers = len(cases) * len(chosen.models)
            cost = f"{answers:,} answers, {cost_words(draft.cost(cases, chosen.models))}"
        except UsageError as error:
            cost = error.message
    return {**found._asdict(), "cost": cost}


def draft(sent: FormRequest) -> str:
    """Check an edited text, and lead to the page that shows its changes."""
    edited = _edited(sent)
    try:
        found = edited.draft(_project(sent))
        if not found.changed:
            raise UsageError(f"{found.path} was not changed", hint="edit the text first")
        _ = found.prompt  # raises if it is not valid
    except EdisonError as error:
        raise _editor(sent, edited, error) from None
    key = sent.memory.keep_draft(edited.text, sent.actor.name)
    kept = {"draft": key, "experiment": edited.experiment, "base": edited.base}
    return sent.links.to("prompt", edited.prompt, "save", **kept)


def try_(sent: FormRequest) -> str:
    """Send chosen cases to chosen models with the text, and lead to the grid of answers."""
    edited, chosen = _edited(sent), _chosen(sent)
    try:
        grid = actions_of(sent).try_prompt(sent.site, sent.actor, edited, chosen)
    except EdisonError as error:
        raise _editor(sent, edited, error) from None
    kept = {
        "draft": sent.memory.keep_draft(edited.text, sent.actor.name),
        "experiment": edited.experiment,
        "base": edited.base,
        "case": list(chosen.cases),
        "model": list(chosen.models),
    }
    return f"{sent.links.to('prompt', edited.prompt, 'edit', grid=grid.key, **kept)}#grid"


def resume(sent: FormRequest) -> str:
    """Lead back to the editor with the text."""
    edited = _edited(sent)
    kept = {"experiment": edited.experiment, "base": edited.base}
    key = sent.memory.keep_draft(edited.text, sent.actor.name)
    return sent.links.to("prompt", edited.prompt, "edit", draft=key, **kept)


def propose(sent: FormRequest) -> str:
    """Propose a text as a pull request; a refused note is shown again."""
    edited, note = _edited(sent), sent.form.raw("note")
    try:
        done = actions_of(sent).save_prompt(sent.site, sent.actor, edited, note)
    except EdisonError as error:
        page = save_page(sent.links, _project(sent), edited, note=note, problem=error)
        raise PageInstead(page) from None
    return sent.links.to("prompt", edited.prompt, messages=sent.keep(*done.notes))


_INPUT = "input."


def add_case(sent: FormRequest) -> str:
    """Propose a counterexample; what was refused is shown again."""
    form, cell = sent.form, sent.path["cell"]
    names = [name for name in form.names() if name.startswith(_INPUT)]
    inputs = {name.removeprefix(_INPUT): _lines(form.raw(name)) for name in names}
    given = CaseEntry(inputs, _lines(form.raw("expected")), form.raw("note"))
    suggestion = form.text("suggestion")
    try:
        done = actions_of(sent).add_case(sent.site, sent.actor, cell, given)
    except EdisonError as error:
        with closing(open_reader(sent.site.results)) as reader:
            page = case_page(
                sent.links,
                _project(sent),
                reader,
                cell,
                given=given,
                problem=error,
                suggestion=suggestion,
            )
        raise PageInstead(page) from None
    place = ("suggestion", suggestion) if suggestion else ("cell", cell)
    return sent.links.to(*place, messages=sent.keep(*done.notes))


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _edited(sent: FormRequest) -> EditedPrompt:
    form = sent.form
    text = _lines(form.raw("text"))
    return EditedPrompt(sent.path["prompt"], form.text("experiment"), text, form.text("base"))


def _chosen(sent: FormRequest) -> ChosenCells:
    more = [name for part in sent.form.texts("cases") for name in part.split(",")]
    cases = [*sent.form.texts("case"), *(name.strip() for name in more if name.strip())]
    return ChosenCells(tuple(dict.fromkeys(cases)), tuple(dict.fromkeys(sent.form.texts("model"))))


def _project(sent: FormRequest) -> Project:
    project = project_in(sent.site.root, utc.now().date())
    if project is None:
        raise UsageError("the project is not valid", hint="see: edison validate")
    return project


def _editor(sent: FormRequest, edited: EditedPrompt, error: EdisonError) -> PageInstead:
    """Return the editor with the text and what is wrong with it."""
    chosen = _chosen(sent)
    state = EditorState(edited, chosen.cases, chosen.models, problem=error)
    with closing(open_reader(sent.site.results)) as reader:
        return PageInstead(editor_page(sent.links, _project(sent), reader, state))
