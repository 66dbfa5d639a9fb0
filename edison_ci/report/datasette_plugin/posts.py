"""Which forms are there, at which address, and who may send them?"""

from __future__ import annotations

from edison_ci.operate.actors import Role
from edison_ci.plugins import later
from edison_ci.report.datasette_plugin.guarding import MOST_SENT
from edison_ci.report.datasette_plugin.posting import LONGEST, Post
from edison_ci.report.datasette_plugin.routing import PREFIX

_ACTING = "edison_ci.report.datasette_plugin.acting"


def _form(path: str, needs: Role, action: str, place: str, *, longest: int = LONGEST) -> Post:
    of = path.split("/")[1]
    return Post(f"^{PREFIX}{path}$", needs, action, later(f"{_ACTING}:{place}"), longest, of)


_CELL = "/cell/(?P<cell>[0-9a-f]{12,64})"
_SUGGESTION = "/suggestion/(?P<suggestion>[^/]+)"

POSTS = (
    _form(f"{_CELL}/grade", Role.REVIEWER, "grade", "grade"),
    _form(f"{_CELL}/flag", Role.REVIEWER, "grade", "flag"),
    _form(f"{_SUGGESTION}/approve", Role.REVIEWER, "review approve", "approve"),
    _form(f"{_SUGGESTION}/reject", Role.REVIEWER, "review reject", "reject"),
    _form(f"{_SUGGESTION}/comment", Role.REVIEWER, "review comment", "comment"),
    _form(f"{_SUGGESTION}/edited", Role.EDITOR, "review edit", "edit", longest=MOST_SENT),
)
"""Every address that changes something."""
