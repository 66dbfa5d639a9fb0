"""Forms of review: grades, decisions about suggestions, edited prompts and counterexamples.

A refused text is shown again with the reason, so that nothing that was written is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci import utc
from edison_ci.api.counterexamples import CaseEntry
from edison_ci.config.calibration import SCALES, fits
from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.review.actions import RejectedText, ReviewActions
from edison_ci.features.review.cell_pages import case_page
from edison_ci.features.review.grading import HumanGrade
from edison_ci.features.review.prompt_drafts import ChosenCells, EditedPrompt, cost_words
from edison_ci.features.review.prompt_editor import EditorState, editor_page, save_page
from edison_ci.features.review.suggestion_pages import edit_page
from edison_ci.records import SuggestionStatus
from edison_ci.results.stored_runs import cell_by_start, open_results
from edison_ci.web.page_context import Args, PageInstead
from edison_ci.web.pages.run import case_query, list_args
from edison_ci.web.pages.steering import budget_of
from edison_ci.web.workspace import project_in

if TYPE_CHECKING:
    from edison_ci.config.calibration import ScaleName
    from edison_ci.config.load import Project
    from edison_ci.features.review.actions import ActionResult
    from edison_ci.store.suggestions import Suggestion
    from edison_ci.web.forms import FormRequest

_THUMBS = {"up": 1.0, "down": 0.0}
_CRITERION = "criterion."


def actions_of(sent: FormRequest) -> ReviewActions:
    """Return what a person may do with this form."""
    return ReviewActions(sent.can.offline)


def rerun(sent: FormRequest) -> str:
    """Request another answer for a cell."""
    grid = actions_of(sent).rerun(sent.site, sent.actor, sent.path["cell"])
    return f"{sent.links.to('cell', sent.path['cell'], again=grid.key)}#again"


def by_hunk(sent: FormRequest) -> str:
    """Ask which line of a suggestion fixed or broke which cases."""
    budget = budget_of(sent.form.text("budget"))
    suggestion = sent.path["suggestion"]
    job = actions_of(sent).by_hunk(sent.site, sent.actor, suggestion, budget)
    return f"{sent.links.to('suggestion', suggestion, hunks=job.key)}#by-hunk"


def grade(sent: FormRequest) -> str:
    """Store a grade."""
    scale, number = _grade(sent.form)
    human_grade = HumanGrade(scale, number, _lines(sent.form.text("note")))
    names = [name for name in sent.form.names() if name.startswith(_CRITERION)]
    values = {name.removeprefix(_CRITERION): sent.form.text(name) for name in names}
    scores = {name: text for name, text in values.items() if text}
    actions_of(sent).grade(sent.site, sent.actor, sent.path["cell"], human_grade, scores)
    return _next_address(sent)


def flag(sent: FormRequest) -> str:
    """Flag an answer for review, or remove the flag."""
    human_grade = HumanGrade(note=_lines(sent.form.text("note")), flag=sent.form.flag("flag"))
    actions_of(sent).grade(sent.site, sent.actor, sent.path["cell"], human_grade, {})
    return _next_address(sent)


def _grade(form: Args) -> tuple[ScaleName, float]:
    text = form.text("grade")
    if text in _THUMBS:
        return "thumbs", _THUMBS[text]
    scale: ScaleName = next((scale for scale in SCALES if scale == form.text("scale")), "1-5")
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not fits(scale, number):
        raise UsageError(
            f"{text!r} is not on the scale {scale}", hint="go back and enter another grade"
        )
    return scale, number


def _next_address(sent: FormRequest) -> str:
    """Return the address of the next page after grading."""
    form, cell, links = sent.form, sent.path["cell"], sent.links
    with open_results(sent.site.results) as reader:
        place = cell_by_start(reader, cell)
    assert place is not None, "it was just graded"
    run, case = place[0], place[1].case_id
    if form.text("to") == "queue":
        scale, only = form.text("scale"), form.text("only")
        kept = {"scale": scale if scale != "1-5" else "", "only": only if only != "new" else ""}
        return links.to("run", run, "grade", done=cell, **kept)
    if form.text("to") == "run":
        page = form.whole("page", 1)
        listed = {**list_args(case_query(form)), "page": page if page > 1 else ""}
        return f"{links.to('run', run, **listed)}#b-{cell}"
    if form.text("to") == "case":
        return f"{links.to('run', run, 'case', case=case, pick=form.texts('pick'))}#a-{cell}"
    return f"{links.to('cell', cell)}#people"


def approve(sent: FormRequest) -> str:
    """Approve a suggestion."""
    suggestion, status = sent.path["suggestion"], sent.form.text("status")
    done = actions_of(sent).approve(sent.site, sent.actor, suggestion, status)
    return _suggestion_address(sent, done, _approval_text(done.suggestion))


def reject(sent: FormRequest) -> str:
    """Reject a suggestion with a reason."""
    suggestion, status = sent.path["suggestion"], sent.form.text("status")
    reason = sent.form.text("reason")
    done = actions_of(sent).reject(sent.site, sent.actor, suggestion, status, reason)
    return _suggestion_address(
        sent, done, "Rejected. The next refinement takes the reason into account."
    )


def comment(sent: FormRequest) -> str:
    """Comment on a suggestion."""
    text = _lines(sent.form.text("text"))
    done = actions_of(sent).comment(sent.site, sent.actor, sent.path["suggestion"], text)
    return f"{_suggestion_address(sent, done, 'Your comment is stored.')}#comments"


def edit(sent: FormRequest) -> str:
    """Replace a suggestion by an edited one; a rejected text is shown again."""
    suggestion, text = sent.path["suggestion"], sent.form.raw("text")
    try:
        done = actions_of(sent).edit(sent.site, sent.actor, suggestion, text)
    except RejectedText as rejected:
        page = edit_page(sent.links, rejected.suggestion, rejected.text, rejected)
        raise PageInstead(page) from None
    text = f"Saved as this suggestion, which is not measured. {suggestion} is superseded."
    return _suggestion_address(sent, done, text)


def _approval_text(suggestion: Suggestion) -> str:
    if suggestion.status is SuggestionStatus.PROPOSED:
        return "Your approval is stored."
    if suggestion.status is not SuggestionStatus.APPLIED:
        where = "its branch" if suggestion.pull_request is None else "its pull request"
        return f"Approved. It is applied when {where} is merged."
    if suggestion.commit_id is None:
        return f"Applied: `{suggestion.path}` was changed."
    return f"Applied as commit `{suggestion.commit_id[:8]}`."


def _suggestion_address(sent: FormRequest, done: ActionResult, text: str) -> str:
    key = sent.keep(text, *done.notes)
    return sent.links.to("suggestion", done.suggestion.id, messages=key)


def count(sent: FormRequest) -> dict[str, Any]:
    """Return variables, characters and tokens of a text, and what a try of it would cost."""
    draft = _edited(sent).draft(_project(sent))
    counts = draft.counts()
    cost = ""
    if not counts.problems:
        try:
            chosen = _chosen(sent)
            cases = chosen.found(draft.target.project, draft.target.experiment)
            answers = len(cases) * len(chosen.models)
            cost = f"{answers:,} answers, {cost_words(draft.cost(cases, chosen.models))}"
        except UsageError as error:
            cost = error.message
    return {**counts._asdict(), "cost": cost}


def draft(sent: FormRequest) -> str:
    """Check an edited text, and lead to the page that shows its changes."""
    edited = _edited(sent)
    try:
        checked = edited.draft(_project(sent))
        if not checked.changed:
            raise UsageError(f"{checked.path} was not changed", hint="edit the text first")
        _ = checked.prompt  # raises if it is not valid
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
    entry = CaseEntry(inputs, _lines(form.raw("expected")), form.raw("note"))
    suggestion = form.text("suggestion")
    try:
        done = actions_of(sent).add_case(sent.site, sent.actor, cell, entry)
    except EdisonError as error:
        with open_results(sent.site.results) as reader:
            page = case_page(
                sent.links,
                _project(sent),
                reader,
                cell,
                entry=entry,
                problem=error,
                suggestion=suggestion,
            )
        raise PageInstead(page) from None
    place = ("suggestion", suggestion) if suggestion else ("cell", cell)
    return sent.links.to(*place, messages=sent.keep(*done.notes))


def _lines(text: str) -> str:
    """Return the text of a field with LF line endings."""
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
    with open_results(sent.site.results) as reader:
        return PageInstead(editor_page(sent.links, _project(sent), reader, state))
