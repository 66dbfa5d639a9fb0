"""The page of keys: what can be done without a mouse?"""

from __future__ import annotations

from edison_ci.report.datasette_plugin.looking import Look, Page

KEYS = (
    ("?", "Show this list"),
    ("g h", "Go to the experiments"),
    ("/", "Go to the search of the page"),
    ("j, k", "Go to the next, the previous row of the table"),
    ("Enter", "Open the row"),
    ("n, p", "Next, previous page, or case"),
    ("u", "Go up, to the page above"),
)


def keys(look: Look) -> Page:
    """Return the keys that pages listen to."""
    del look
    return Page("help", "Keys", {"keys": KEYS}, area="help")
