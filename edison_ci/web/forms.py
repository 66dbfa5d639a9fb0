"""Forms of the pages: permission checks, parsing, and the actions they carry out.

A form is posted to its own address with `{{ csrftoken() }}` in the hidden field `csrftoken`:
Datasette 0.65 checks it, 1.0 and the security check of `edison serve` check the origin. The role is
checked before the form is read. The action runs in a thread and returns the next address; an error
becomes a page with a hint. Addresses are built here and never taken from a form.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from datasette import Response

from edison_ci import ranges
from edison_ci._dataclass import dataclass
from edison_ci.errors import EdisonError, UsageError
from edison_ci.web.databases import settings_of
from edison_ci.web.identity import current_site, require
from edison_ci.web.page_context import Args, Links
from edison_ci.web.rendering import render_error
from edison_ci.web.security import PAGE_HEADERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from edison_ci.access.site import Actor, Role, Site
    from edison_ci.web.cache import PageMemory
    from edison_ci.web.databases import Actions


LONGEST = ranges.COMMENT_CHARS
"""Most characters of a field."""
_MOST_FIELDS = 200


@dataclass(frozen=True, slots=True)
class FormRequest:
    """A form from a visitor with the required role."""

    site: Site
    actor: Actor
    path: Mapping[str, str]
    """Path parameters of the address, such as cell."""
    form: Args
    links: Links
    memory: PageMemory
    """What the pages of the server remember."""
    actions: Actions | None = None
    """How the action is carried out."""

    def keep(self, *messages: str) -> str:
        """Keep messages for the next page; return their key for its address."""
        return self.memory.keep_messages(messages)

    @property
    def can(self) -> Actions:
        """How the server carries out actions."""
        assert self.actions is not None, "edison serve always has actions"
        return self.actions


class FormRoute(NamedTuple):
    """An address that changes something."""

    pattern: str
    needs: Role
    action: str
    """Its name in the audit, such as grade."""
    do: Callable[[FormRequest], str | dict[str, Any]]
    """Carries out the action, with an audit entry, and returns the next address, or JSON."""
    longest: int = LONGEST
    """Most characters of a field."""
    of: str = ""
    """Kind of the path parameter, for the audit of a refusal."""


def form_view(post: FormRoute) -> Callable[..., Awaitable[Any]]:
    """Return the view of a form route."""

    async def view(datasette: Any, request: Any) -> Any:
        if request.method != "POST":
            headers = {**PAGE_HEADERS, "allow": "POST"}
            return Response.text("Use POST to submit a form.\n", status=405, headers=headers)
        name = next(name for name in datasette.databases if not name.startswith("_"))
        links = Links(datasette.urls.path, name, several=False)
        try:
            done = await _carry_out(datasette, request, post, links)
        except EdisonError as error:
            return await render_error(datasette, request, links, error)
        if isinstance(done, dict):
            return Response.json(done, headers=dict(PAGE_HEADERS))
        return Response("", status=303, headers={**PAGE_HEADERS, "location": done})

    return view


async def _carry_out(
    datasette: Any, request: Any, post: FormRoute, links: Links
) -> str | dict[str, Any]:
    entity = f"{post.of} {', '.join(request.url_vars.values())}".strip()
    actor = await require(datasette, request, post.needs, post.action, entity)
    settings = settings_of(datasette)
    assert settings is not None, "only edison serve has forms"
    sent = FormRequest(
        site=await asyncio.to_thread(current_site, settings.root),
        actor=actor,
        path=dict(request.url_vars),
        form=await form_of(request, longest=post.longest),
        links=links,
        memory=settings.memory,
        actions=settings.actions,
    )
    return await asyncio.to_thread(post.do, sent)


async def form_of(request: Any, *, longest: int = LONGEST) -> Args:
    """Parse a form."""
    try:
        text = (await request.post_body()).decode("utf-8")
        pairs = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise UsageError(
            "the form cannot be read", hint="reload the page and submit it again"
        ) from None
    return Args(pairs, longest=longest)
