"""Sign-in to the pages, and out again."""

from __future__ import annotations

import asyncio
import re
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from datasette import Response

from edison_ci.errors import EdisonError
from edison_ci.operate.accounts import Accounts, NotSignedIn
from edison_ci.operate.actors import member_of
from edison_ci.web.databases import served_by
from edison_ci.web.forms import form_of
from edison_ci.web.identity import (
    address_of,
    cookie_name,
    session_cookie,
    site_now,
    who,
)
from edison_ci.web.page_context import Links, Page
from edison_ci.web.rendering import refused, rendered
from edison_ci.web.routing import LONGEST_NEXT, SIGN_IN, SIGN_OUT
from edison_ci.web.security import PAGE_HEADERS

if TYPE_CHECKING:
    from edison_ci.operate.accounts import SignedIn
    from edison_ci.web.databases import Served
    from edison_ci.web.page_context import Args

_AT_ONCE = asyncio.Semaphore(2)
"""Passwords that are looked at together: each takes memory on purpose."""
_LONGEST_NAME = 320
_WRONG = "That name and password do not fit."


async def sign_in(datasette: Any, request: Any) -> Any:
    """Show the form, or let somebody in who fills it in rightly."""
    links = _links(datasette)
    if request.method != "POST":
        wanted = safe_next(request.args.get("next") or "", datasette.urls.path("/"))
        if await who(datasette, request) is not None:
            return _gone_to(wanted or links.to())
        return await _form(datasette, request, {"next": wanted})
    try:
        form = await form_of(request)
        found = await _tried(datasette, request, form)
    except EdisonError as error:
        return await refused(datasette, request, links, error)
    wanted = safe_next(form.text("next"), datasette.urls.path("/"))
    if isinstance(found, NotSignedIn):
        kept = {"next": wanted, "name": form.text("name")[:_LONGEST_NAME], "wrong": _WRONG}
        return await _form(datasette, request, kept, wait_s=found.wait_s, status=403)
    return _gone_to(wanted or links.to(), _cookie(_served(datasette), found))


async def _tried(datasette: Any, request: Any, form: Args) -> SignedIn | NotSignedIn:
    served = _served(datasette)
    accounts = Accounts(await asyncio.to_thread(site_now, served.root))
    # The session that a browser had before ends: whoever knew it is not taken along.
    before = session_cookie(served, request.scope)
    async with _AT_ONCE:
        found = await asyncio.to_thread(
            accounts.sign_in,
            form.text("name"),
            form.raw("password"),
            address=address_of(served, request.scope),
            remember=form.flag("remember"),
        )
    if before and not isinstance(found, NotSignedIn):
        await asyncio.to_thread(accounts.end, before)
    return found


async def _form(
    datasette: Any, request: Any, kept: dict[str, str], *, wait_s: int = 0, status: int = 200
) -> Any:
    if wait_s:
        minutes = -(-wait_s // 60)
        kept["wrong"] = f"Too many attempts. Try again in {minutes} min."
        status = 429
    page = Page("sign_in", "Sign in", {"kept": kept, "bare": True})
    response = await rendered(datasette, request, _links(datasette), page, status)
    if wait_s:
        response.headers["retry-after"] = str(wait_s)
    return response


async def sign_out(datasette: Any, request: Any) -> Any:
    """End the session of whoever asks, or all their sessions."""
    if request.method != "POST":
        headers = {**PAGE_HEADERS, "allow": "POST"}
        return Response.text("Only forms are sent here.\n", status=405, headers=headers)
    served, actor = _served(datasette), await who(datasette, request)
    assert actor is not None, "the guard lets nobody else through"
    form = await form_of(request)
    accounts = Accounts(await asyncio.to_thread(site_now, served.root))
    cookie = session_cookie(served, request.scope)
    everywhere = form.flag("everywhere")
    await asyncio.to_thread(accounts.sign_out, actor, cookie, everywhere=everywhere)
    return _gone_to(datasette.urls.path(SIGN_IN), _cookie(served, None))


async def you(datasette: Any, request: Any) -> Any:
    """Show who is signed in, what they may do, and where else they are."""
    served, actor = _served(datasette), await who(datasette, request)
    assert actor is not None, "the guard lets nobody else through"
    accounts = Accounts(await asyncio.to_thread(site_now, served.root))
    member = member_of(actor.identity, accounts.site.file.members)
    found = await asyncio.to_thread(accounts.access)
    access = next((each for each in found if each.member is member), None)
    page = Page("you", actor.name, {"access": access})
    return await rendered(datasette, request, _links(datasette), page)


def safe_next(wanted: str, root: str) -> str:
    """Return the address to go on to, if it is one of ours; '' otherwise."""
    # Browsers take // and backslashes for another host, and leave blanks out.
    if len(wanted) > LONGEST_NEXT or re.search(r"^//|[^\x21-\x7e]|\\", wanted):
        return ""
    parts = urlsplit(wanted)
    if parts.scheme or parts.netloc or not wanted.startswith(root):
        return ""
    if f"/{parts.path.strip('/')}".endswith((SIGN_IN, SIGN_OUT)):
        return ""
    return wanted


def _served(datasette: Any) -> Served:
    served = served_by(datasette)
    assert served is not None, "nobody else has these pages"
    return served


def _links(datasette: Any) -> Links:
    name = next(name for name in datasette.databases if not name.startswith("_"))
    return Links(datasette.urls.path, name, several=False)


def _gone_to(address: str, cookie: str = "") -> Any:
    headers = {**PAGE_HEADERS, "location": address, "cache-control": "private, no-store"}
    if cookie:
        headers["set-cookie"] = cookie
    return Response("", status=303, headers=headers)


def _cookie(served: Served, signed: SignedIn | None) -> str:
    """Return the header that sets our cookie, or takes it away."""
    jar: SimpleCookie = SimpleCookie()
    name = cookie_name(served)
    jar[name] = signed.cookie if signed else ""
    jar[name]["max-age"] = int(signed.lasts.total_seconds()) if signed else 0
    jar[name]["path"] = "/"
    jar[name]["httponly"] = True
    # Not Strict: whoever follows a link from a pull request would have to sign in again.
    jar[name]["samesite"] = "Lax"
    if served.door.tls:
        jar[name]["secure"] = True
    return jar[name].OutputString()
