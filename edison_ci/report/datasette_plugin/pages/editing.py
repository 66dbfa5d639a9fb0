"""The page on which somebody edits a suggestion before it is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.report.datasette_plugin.looking import Crumb, Links, Look, Page
from edison_ci.report.datasette_plugin.workspace import project_of
from edison_ci.store.suggestions import find_suggestion

if TYPE_CHECKING:
    from edison_ci.errors import EdisonError
    from edison_ci.store.suggestions import Suggestion


def editing(look: Look) -> Page:
    """Return the prompt as it would be with a suggestion, to be edited."""
    found = find_suggestion(look.connection, look.path["suggestion"])
    project = project_of(look)
    if look.clerk is None or look.actor is None or project is None:
        hint = f"at a terminal: edison review edit {found.id}"
        raise UsageError("these pages only read, or the project cannot be read", hint=hint)
    return edit_page(look.links, found, look.clerk.draft(project, look.actor, found))


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
