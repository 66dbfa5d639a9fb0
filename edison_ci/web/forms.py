"""Forms: who may send them, and how what they say is checked.

A form is posted to an address of its own, with `{{ csrftoken() }}` in a hidden field `csrftoken`:
Datasette 0.65 asks for it, 1.0 goes by where the browser says that the form came from, and so does
our guard. The role is looked at before the form is. What is done is done in a thread, and ends with
the address of the page to see next; an error becomes a page that says what to do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from datasette import Response

from edison_ci._dataclass import dataclass
from edison_ci.errors import EdisonError, UsageError
from edison_ci.web.databases import served_by
from edison_ci.web.identity import require, site_now
from edison_ci.web.page_context import Args, Links
from edison_ci.web.rendering import refused
from edison_ci.web.security import PAGE_HEADERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from edison_ci.operate.actors import Actor, Role
    from edison_ci.operate.site import Site
    from edison_ci.review.actions import ReviewActions

LONGEST = 20_000
"""Characters of a field that are read: a note, not a book."""
_MOST_FIELDS = 200


@dataclass(frozen=True, slots=True)
class Posted:
    """A form that somebody sent who may."""

    site: Site
    actor: Actor
    path: Mapping[str, str]
    """What the address names, such as a cell."""
    form: Args
    links: Links
    actions: ReviewActions | None = None
    """Who carries it out."""


class Post(NamedTuple):
    """An address that changes something."""

    pattern: str
    needs: Role
    action: str
    """What it is called in the audit, such as grade."""
    do: Callable[[Posted], str]
    """Changes it, audits that, and returns the address to see next."""
    longest: int = LONGEST
    """Characters of a field that are read."""
    of: str = ""
    """What the address names, as a refusal is audited."""


def posted(post: Post) -> Callable[..., Awaitable[Any]]:
    """Return what answers the address of a form."""

    async def view(datasette: Any, request: Any) -> Any:
        if request.method != "POST":
            headers = {**PAGE_HEADERS, "allow": "POST"}
            return Response.text("Only forms are sent here.\n", status=405, headers=headers)
        name = next(name for name in datasette.databases if not name.startswith("_"))
        links = Links(datasette.urls.path, name, several=False)
        try:
            address = await _done(datasette, request, post, links)
        except EdisonError as error:
            return await refused(datasette, request, links, error)
        return Response("", status=303, headers={**PAGE_HEADERS, "location": address})

    return view


async def _done(datasette: Any, request: Any, post: Post, links: Links) -> str:
    entity = f"{post.of} {', '.join(request.url_vars.values())}".strip()
    actor = await require(datasette, request, post.needs, post.action, entity)
    served = served_by(datasette)
    assert served is not None, "nobody else knows people"
    sent = Posted(
        site=await asyncio.to_thread(site_now, served.root),
        actor=actor,
        path=dict(request.url_vars),
        form=await form_of(request, longest=post.longest),
        links=links,
        actions=served.actions,
    )
    return await asyncio.to_thread(post.do, sent)


async def form_of(request: Any, *, longest: int = LONGEST) -> Args:
    """Return what a form says."""
    try:
        text = (await request.post_body()).decode("utf-8")
        pairs = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise UsageError(
            "the form cannot be read", hint="go back, load the page again, and send it once more"
        ) from None
    return Args(pairs, longest=longest)
