"""The page of keys: what can be done without a mouse."""

from __future__ import annotations

from edison_ci.web.page_context import Look, Page

KEYS = (
    ("?", "Show this list"),
    ("g h", "Go to the experiments"),
    ("/", "Go to the search of the page"),
    ("j, k", "Go to the next, the previous row of the table"),
    ("Enter", "Open the row, or press the button that a key led to"),
    ("n, p", "Next, previous page, or case"),
    ("u", "Go up, to the page above"),
    ("Esc", "Leave a field, so that keys work again"),
)
"""On every page."""
SUGGESTION_KEYS = (
    (".", "Approve: leads to the button, Enter presses it"),
    (",", "Reject: leads to the reason"),
    ("e", "Edit"),
    ("c", "Write a comment"),
)
GRADING_KEYS = (
    ("1 ... 5", "Give a grade, and go on with the next answer"),
    ("+, -", "Pass, fail, where the scale is that"),
    ("g", "Write a number, where the scale is 0 to 1"),
    ("c", "Write a note"),
    ("f", "Flag it for a second look, and go on"),
    ("s", "Skip it"),
    ("b", "Back to the one before"),
)
GROUPS = (
    ("On every page", KEYS),
    ("On a suggestion", SUGGESTION_KEYS),
    ("While grading", GRADING_KEYS),
)
"""Keys, by where they work."""


def keys(look: Look) -> Page:
    """Return the keys that pages listen to."""
    del look
    return Page("help", "Keys", {"groups": GROUPS}, area="help")
