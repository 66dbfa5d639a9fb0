"""Forms of review: grades of answers, and decisions about suggestions."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.config.calibration import SCALES, fits
from edison_ci.errors import UsageError
from edison_ci.features.review.actions import RejectedText, ReviewActions
from edison_ci.features.review.gradebook import HumanGrade
from edison_ci.features.review.suggestion_pages import edit_page
from edison_ci.store.cells import find_cell, run_of_cell
from edison_ci.store.database import open_reader
from edison_ci.store.suggestions import SuggestionStatus, find_suggestion
from edison_ci.web.page_context import Args, PageInstead
from edison_ci.web.pages.run import case_query, list_args

if TYPE_CHECKING:
    from edison_ci.config.calibration import ScaleName
    from edison_ci.features.review.actions import ActionResult
    from edison_ci.store.suggestions import Suggestion
    from edison_ci.web.forms import FormRequest

_MOST_BUDGET = 100
"""Dollars that a form may let a comparison spend; the budgets of the project hold as well."""

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
    try:
        budget = float(sent.form.text("budget"))
    except ValueError:
        budget = 0.0
    if not 0 < budget <= _MOST_BUDGET:
        raise UsageError(
            f"a budget is more than $0 and at most ${_MOST_BUDGET:g}", hint="go back and change it"
        )
    wanted = sent.path["suggestion"]
    job = actions_of(sent).by_hunk(sent.site, sent.actor, wanted, round(budget * 1e6))
    return f"{sent.links.to('suggestion', wanted, hunks=job.key)}#by-hunk"


def grade(sent: FormRequest) -> str:
    """Store a grade."""
    scale, number = _grade(sent.form)
    given = HumanGrade(scale, number, _field_text(sent.form, "note"))
    names = [name for name in sent.form.names() if name.startswith(_CRITERION)]
    values = {name.removeprefix(_CRITERION): sent.form.text(name) for name in names}
    scores = {name: text for name, text in values.items() if text}
    actions_of(sent).grade(sent.site, sent.actor, sent.path["cell"], given, scores)
    return _next_address(sent)


def flag(sent: FormRequest) -> str:
    """Flag an answer for review, or remove the flag."""
    given = HumanGrade(note=_field_text(sent.form, "note"), flag=sent.form.flag("flag"))
    actions_of(sent).grade(sent.site, sent.actor, sent.path["cell"], given, {})
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


def _field_text(form: Args, name: str) -> str:
    """Return the text of a field with LF line endings."""
    return form.text(name).replace("\r\n", "\n")


def _next_address(sent: FormRequest) -> str:
    """Return the address of the next page after grading."""
    form, cell, links = sent.form, sent.path["cell"], sent.links
    with closing(open_reader(sent.site.results)) as reader:
        run = run_of_cell(reader, cell) or ""
        case = find_cell(reader, run, cell).case_id
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
    wanted, status = sent.path["suggestion"], sent.form.text("status")
    done = actions_of(sent).approve(sent.site, sent.actor, wanted, status)
    return _suggestion_address(sent, done, _approval_text(done.suggestion))


def reject(sent: FormRequest) -> str:
    """Reject a suggestion with a reason."""
    wanted, status = sent.path["suggestion"], sent.form.text("status")
    reason = sent.form.text("reason")
    done = actions_of(sent).reject(sent.site, sent.actor, wanted, status, reason)
    return _suggestion_address(
        sent, done, "Rejected. The next refinement takes the reason into account."
    )


def comment(sent: FormRequest) -> str:
    """Comment on a suggestion."""
    text = _field_text(sent.form, "text")
    done = actions_of(sent).comment(sent.site, sent.actor, sent.path["suggestion"], text)
    return f"{_suggestion_address(sent, done, 'Your comment is stored.')}#comments"


def edit(sent: FormRequest) -> str:
    """Replace a suggestion by an edited one; a rejected text is shown again."""
    wanted, text = sent.path["suggestion"], sent.form.raw("text")
    try:
        done = actions_of(sent).edit(sent.site, sent.actor, wanted, text)
    except RejectedText as rejected:
        with closing(open_reader(sent.site.results)) as reader:
            one = find_suggestion(reader, wanted)
        raise PageInstead(edit_page(sent.links, one, rejected.text, rejected)) from None
    text = f"Saved as this suggestion, which is not measured. {wanted} is superseded."
    return _suggestion_address(sent, done, text)


def _approval_text(one: Suggestion) -> str:
    if one.status is SuggestionStatus.PROPOSED:
        return "Your approval is stored."
    if one.status is not SuggestionStatus.APPLIED:
        where = "its branch" if one.pull_request is None else "its pull request"
        return f"Approved. It is applied when {where} is merged."
    if one.commit_id is None:
        return f"Applied: `{one.path}` was changed."
    return f"Applied as commit `{one.commit_id[:8]}`."


def _suggestion_address(sent: FormRequest, done: ActionResult, text: str) -> str:
    key = sent.keep(text, *done.notes)
    return sent.links.to("suggestion", done.suggestion.id, messages=key)
