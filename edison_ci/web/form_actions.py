"""Actions of the forms: grades, flags, approvals, rejections, comments and edits.

What is written in a form is carried out by the review actions, and the answer is the address of the
page to see next. Addresses are made here and never taken from the form.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.config.labels import SCALES, fits
from edison_ci.errors import UsageError
from edison_ci.operate.gradebook import Given
from edison_ci.review.actions import Refused
from edison_ci.store.cells import find_cell, run_of_cell
from edison_ci.store.database import open_reader
from edison_ci.store.suggestions import Status, find_suggestion
from edison_ci.web.cache import keep_words
from edison_ci.web.page_context import ShownInstead
from edison_ci.web.pages.suggestions import edit_page

if TYPE_CHECKING:
    from edison_ci.config.labels import ScaleName
    from edison_ci.review.actions import Done, ReviewActions
    from edison_ci.store.suggestions import Suggestion
    from edison_ci.web.forms import Posted
    from edison_ci.web.page_context import Args

# What is written in a form becomes a wish, the clerk carries it out, and the answer is the address
# of the page to see next. Addresses are made here and never taken from the form.
_THUMBS = {"up": 1.0, "down": 0.0}
_CRITERION = "criterion."


def _actions(sent: Posted) -> ReviewActions:
    assert sent.actions is not None, "who knows people can act for them"
    return sent.actions


# --- grades ---------------------------------------------------------------------------------------


def grade(sent: Posted) -> str:
    """Write down a grade."""
    scale, number = _grade(sent.form)
    said = Given(scale, number, _words(sent.form, "note"))
    names = [name for name in sent.form.names() if name.startswith(_CRITERION)]
    told = {name.removeprefix(_CRITERION): sent.form.text(name) for name in names}
    scored = {name: text for name, text in told.items() if text}
    _actions(sent).grade(sent.site, sent.actor, sent.path["cell"], said, scored)
    return _after(sent)


def flag(sent: Posted) -> str:
    """Flag an answer for a second look, or take the flag back."""
    said = Given(note=_words(sent.form, "note"), flag=sent.form.flag("flag"))
    _actions(sent).grade(sent.site, sent.actor, sent.path["cell"], said, {})
    return _after(sent)


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
        raise UsageError(f"{text!r} is not on the scale {scale}", hint="go back, and give another")
    return scale, number


def _words(form: Args, name: str) -> str:
    """Return what somebody wrote, with the ends of lines as everywhere else."""
    return form.text(name).replace("\r\n", "\n")


def _after(sent: Posted) -> str:
    """Return the page on which somebody goes on."""
    form, cell, links = sent.form, sent.path["cell"], sent.links
    with closing(open_reader(sent.site.results)) as reader:
        run = run_of_cell(reader, cell) or ""
        case = find_cell(reader, run, cell).case_id
    if form.text("to") == "queue":
        scale, only = form.text("scale"), form.text("only")
        kept = {"scale": scale if scale != "1-5" else "", "only": only if only != "new" else ""}
        return links.to("run", run, "grade", done=cell, **kept)
    if form.text("to") == "case":
        return f"{links.to('run', run, 'case', case=case, pick=form.texts('pick'))}#a-{cell}"
    return f"{links.to('cell', cell)}#people"


# --- suggestions ----------------------------------------------------------------------------------


def approve(sent: Posted) -> str:
    """Take a suggestion."""
    wanted, seen = sent.path["suggestion"], sent.form.text("seen")
    done = _actions(sent).approve(sent.site, sent.actor, wanted, seen)
    return _decided(sent, done, _approved(done.suggestion))


def reject(sent: Posted) -> str:
    """Leave a suggestion, and say why."""
    wanted, seen = sent.path["suggestion"], sent.form.text("seen")
    reason = sent.form.text("reason")
    done = _actions(sent).reject(sent.site, sent.actor, wanted, seen, reason)
    return _decided(sent, done, "Rejected. The next refinement is told why.")


def comment(sent: Posted) -> str:
    """Say something about a suggestion."""
    text = _words(sent.form, "text")
    done = _actions(sent).comment(sent.site, sent.actor, sent.path["suggestion"], text)
    return f"{_decided(sent, done, 'Your comment is kept.')}#comments"


def edit(sent: Posted) -> str:
    """Put an edited suggestion in the place of one; a text that is not taken is shown again."""
    wanted, text = sent.path["suggestion"], sent.form.raw("text")
    try:
        done = _actions(sent).edit(sent.site, sent.actor, wanted, text)
    except Refused as refused:
        with closing(open_reader(sent.site.results)) as reader:
            one = find_suggestion(reader, wanted)
        raise ShownInstead(edit_page(sent.links, one, refused.text, refused)) from None
    said = f"Saved as this suggestion, which was not measured. {wanted} is superseded."
    return _decided(sent, done, said)


def _approved(one: Suggestion) -> str:
    if one.status is not Status.APPLIED:
        return "Approved. It is applied once its pull request is merged."
    if one.commit_id is None:
        return f"Applied: `{one.path}` was changed."
    return f"Applied as commit `{one.commit_id[:8]}`."


def _decided(sent: Posted, done: Done, said: str) -> str:
    told = keep_words((said, *done.notes))
    return sent.links.to("suggestion", done.suggestion.id, told=told)
