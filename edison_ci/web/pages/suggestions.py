"""The pages of suggestions: changes of prompts that wait for a decision, and their evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.errors import EdisonError, UsageError
from edison_ci.results.case_answers import answers_by_id
from edison_ci.results.run_lists import experiments
from edison_ci.store.loops import loops_waiting_for
from edison_ci.store.suggestions import OPEN, Status, comments_of, find_suggestion, list_suggestions
from edison_ci.web.cache import kept_words
from edison_ci.web.page_context import Crumb, Links, Look, Page, Paging
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.review.actions import Permissions
    from edison_ci.store.suggestions import Suggestion


def editing(look: Look) -> Page:
    """Return the prompt as it would be with a suggestion, to be edited."""
    found = find_suggestion(look.connection, look.path["suggestion"])
    project = project_of(look)
    if look.actions is None or look.actor is None or project is None:
        hint = f"at a terminal: edison review edit {found.id}"
        raise UsageError("these pages only read, or the project cannot be read", hint=hint)
    return edit_page(look.links, found, look.actions.draft(project, look.actor, found))


def edit_page(links: Links, one: Suggestion, text: str, problem: EdisonError | None = None) -> Page:
    """Return the page with a text on it, and what is wrong with it."""
    return Page(
        "editing",
        f"Edit suggestion {one.id} for {one.prompt}",
        {"suggestion": one, "text": text, "problem": problem},
        crumbs=(
            Crumb("Suggestions", links.to("suggestions")),
            Crumb(one.id, links.to("suggestion", one.id)),
        ),
        area="suggestions",
    )


_MOST_EXAMPLES = 20
_SHOWN = ("open", "all", *map(str, Status))


class DiffLine(NamedTuple):
    """A line of a diff."""

    kind: str
    """added, removed, hunk or nothing."""
    sign: str
    text: str


def suggestions(look: Look) -> Page:
    """Return the suggestions that wait for somebody, or others."""
    status = look.args.choice("status", _SHOWN)
    experiment = look.args.text("experiment")
    wanted = {"open": tuple(sorted(OPEN)), "all": ()}.get(status) if status in _SHOWN[:2] else None
    statuses: Sequence[Status] = (Status(status),) if wanted is None else wanted
    found = list_suggestions(look.connection, experiment=experiment or None, statuses=statuses)
    paging = Paging.of(look.args, len(found))

    def again(**changes: Any) -> str:
        kept = {"status": status if status != "open" else "", "experiment": experiment}
        return look.links.to("suggestions", **{**kept, **changes})

    return Page(
        "suggestions",
        "Suggestions",
        {
            "suggestions": found[paging.offset : paging.offset + paging.per_page],
            "paging": paging,
            "again": again,
            "status": status,
            "statuses": _SHOWN,
            "experiment": experiment,
            "experiments": experiments(look.connection),
        },
        area="suggestions",
    )


def suggestion(look: Look) -> Page:
    """Return a suggestion: diff, note, evidence, guardrails and what people said."""
    found = find_suggestion(look.connection, look.path["suggestion"])
    return Page(
        "suggestion",
        f"Suggestion {found.id} for {found.prompt}",
        {
            "suggestion": found,
            "permissions": _permissions(look, found),
            "told": kept_words(look.args.text("told")),
            "open": found.status in OPEN,
            "loops": loops_waiting_for(look.connection, found.id),
            "diff": list(diff_lines(found.diff)),
            "comments": comments_of(look.connection, found),
            "examples": answers_by_id(look.connection, _examples(found)),
            "sides": [
                (name, found.evidence[name])
                for name in ("train", "holdout")
                if found.evidence.get(name)
            ],
        },
        crumbs=(Crumb("Suggestions", look.links.to("suggestions")),),
        area="suggestions",
    )


def _examples(found: Suggestion) -> list[str]:
    """Return the cells that the refiner was shown."""
    return [str(cell) for cell in found.evidence.get("examples") or ()][:_MOST_EXAMPLES]


def _permissions(look: Look, found: Suggestion) -> Permissions | None:
    """Return what whoever looks can do; None where the commands are shown instead."""
    if look.actions is None or look.actor is None:
        return None
    project = project_of(look)
    try:
        return look.actions.permissions(project, look.actor, found) if project is not None else None
    except (EdisonError, OSError):  # no Git, say: the page can be read all the same
        return None


def diff_lines(text: str) -> list[DiffLine]:
    """Return a unified diff line by line, without the names of its files."""
    found = []
    for line in text.splitlines():
        if line.startswith(("--- ", "+++ ", "diff ", "index ")):
            continue
        if line.startswith("@@"):
            found.append(DiffLine("hunk", "", line))
        elif line.startswith("+"):
            found.append(DiffLine("added", "+", line[1:]))
        elif line.startswith("-"):
            found.append(DiffLine("removed", "-", line[1:]))
        else:
            found.append(DiffLine("", " ", line[1:]))
    return found
