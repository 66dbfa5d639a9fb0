"""Sign-in, sign-out and account pages."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from datasette import Response

from edison_ci import utc
from edison_ci.access.accounts import SHORTEST, Accounts, SignInFailure, sign_in_names
from edison_ci.access.github_oauth import SignInAttempt
from edison_ci.access.site import find_member
from edison_ci.documents.decoding import decode_base64url, encode_base64url
from edison_ci.errors import EdisonError
from edison_ci.sanitize import line
from edison_ci.web.databases import settings_of
from edison_ci.web.forms import form_of
from edison_ci.web.identity import (
    address_of,
    cookie_name,
    cookie_value,
    current_actor,
    current_site,
    header,
    session_cookie,
)
from edison_ci.web.page_context import (
    GITHUB_CALLBACK,
    LONGEST_NEXT,
    SIGN_IN,
    SIGN_IN_GITHUB,
    SIGN_OUT,
    Links,
    Page,
)
from edison_ci.web.rendering import render_error, render_page
from edison_ci.web.security import PAGE_HEADERS, Once

if TYPE_CHECKING:
    from edison_ci.access.accounts import SignInSuccess
    from edison_ci.web.databases import ServerSettings
    from edison_ci.web.page_context import Args

_AT_ONCE = asyncio.Semaphore(2)
"""Concurrent password checks: each uses much memory on purpose."""
_GITHUB_S = 20.0
"""Longest time for the requests to GitHub: a person waits."""
_LONGEST_NAME = 320
_WRONG = "Wrong name or password."


async def sign_in(datasette: Any, request: Any) -> Any:
    """Show the sign-in form, or sign in."""
    links = _links(datasette)
    if request.method != "POST":
        next_page = safe_next(request.args.get("next") or "", datasette.urls.path("/"))
        if await current_actor(datasette, request) is not None:
            return _redirect(next_page or links.to())
        return await _form(datasette, request, {"next": next_page})
    try:
        form = await form_of(request)
        result = await _attempt(datasette, request, form)
    except EdisonError as error:
        return await render_error(datasette, request, links, error)
    next_page = safe_next(form.text("next"), datasette.urls.path("/"))
    if isinstance(result, SignInFailure):
        values = {"next": next_page, "name": form.text("name")[:_LONGEST_NAME], "wrong": _WRONG}
        return await _form(datasette, request, values, wait_s=result.wait_s, status=403)
    return _redirect(next_page or links.to(), _cookie(_settings(datasette), result))


async def _attempt(datasette: Any, request: Any, form: Args) -> SignInSuccess | SignInFailure:
    settings = _settings(datasette)
    accounts = Accounts(await asyncio.to_thread(current_site, settings.home))
    # The earlier session of the browser ends, against session fixation.
    before = session_cookie(settings, request.scope)
    async with _AT_ONCE:
        result = await asyncio.to_thread(
            accounts.sign_in,
            form.text("name"),
            form.raw("password"),
            address=address_of(settings, request.scope),
            remember=form.flag("remember"),
        )
    if before and not isinstance(result, SignInFailure):
        await asyncio.to_thread(accounts.end, before)
    return result


async def _form(
    datasette: Any, request: Any, values: dict[str, str], *, wait_s: int = 0, status: int = 200
) -> Any:
    settings = _settings(datasette)
    if settings.access.github is not None:
        query = f"?{urlencode({'next': values['next']})}" if values["next"] else ""
        values["github"] = datasette.urls.path(SIGN_IN_GITHUB) + query
    if wait_s:
        minutes = -(-wait_s // 60)
        values["wrong"] = f"Too many attempts. Try again in {minutes} min."
        status = 429
    page = Page("sign_in", "Sign in", {"form": values, "bare": True})
    response = await render_page(datasette, request, _links(datasette), page, status)
    if wait_s:
        response.headers["retry-after"] = str(wait_s)
    return response


_MINUTES_10_S = 600
_ended = Once(time.monotonic)
"""States for which an answer came."""


async def start_github(datasette: Any, request: Any) -> Any:
    """Send the browser to GitHub; it keeps what the answer has to fit."""
    settings = _settings(datasette)
    assert settings.access.github is not None, "the route is there only then"
    next_page = safe_next(request.args.get("next") or "", datasette.urls.path("/"))
    attempt = SignInAttempt.new()
    target = settings.access.github.authorize_url(attempt, _callback(datasette, request))
    began, page = int(utc.now().timestamp()), encode_base64url(next_page.encode())
    kept = f"{attempt.state}~{attempt.verifier}~{page}~{began}"
    return _with_attempt(settings, _redirect(target), f"{kept}~{_signature(settings, kept)}")


def _signature(settings: ServerSettings, kept: str) -> str:
    """Return what shows that this server began an attempt."""
    return hmac.digest(settings.key, f"GitHub {kept}".encode(), "sha256").hex()


def _attempt_of(datasette: Any, request: Any) -> tuple[SignInAttempt, str] | None:
    """Return the attempt that this browser began here, and the page that it wants.

    None unless this server signed the cookie in the last ten minutes, and the answer has its
    state; an answer counts once.
    """
    settings = _settings(datasette)
    cookie = cookie_value(request.scope, _github_cookie_name(settings))
    kept, _, signature = cookie.rpartition("~")
    if not hmac.compare_digest(signature.encode(), _signature(settings, kept).encode()):
        return None
    state, verifier, page, began = kept.split("~")
    fits = hmac.compare_digest(state.encode(), (request.args.get("state") or "").encode())
    recent = 0 <= utc.now().timestamp() - int(began) <= _MINUTES_10_S
    if not (state and verifier and fits and recent and _ended.is_first("github", state)):
        return None
    return SignInAttempt(state, verifier), decode_base64url(page).decode()


async def end_github(datasette: Any, request: Any) -> Any:
    """Sign in the account that GitHub names, if the answer belongs to this browser."""
    settings, links = _settings(datasette), _links(datasette)
    app = settings.access.github
    assert app is not None, "the route is there only then"
    begun = _attempt_of(datasette, request)
    if begun is None:
        return await _no_github(datasette, request, "The sign-in took too long. Try again.")
    attempt, next_page = begun
    if request.args.get("error") or not request.args.get("code"):
        return await _no_github(datasette, request, "GitHub was not allowed to sign you in.")
    accounts = Accounts(await asyncio.to_thread(current_site, settings.home))
    address = address_of(settings, request.scope)
    blocked = await asyncio.to_thread(accounts.begin_github, address)
    if blocked is not None:
        return await _form(datasette, request, {"next": ""}, wait_s=blocked.wait_s)
    try:
        async with _AT_ONCE, asyncio.timeout(_GITHUB_S):
            account = await app.account(
                request.args["code"], attempt, _callback(datasette, request)
            )
    except TimeoutError:
        return await _no_github(datasette, request, "GitHub did not answer in time.")
    except EdisonError as error:
        return await _no_github(datasette, request, f"{line(error.message)}.")
    before = session_cookie(settings, request.scope)
    done = await asyncio.to_thread(accounts.sign_in_github, account, address)
    if isinstance(done, SignInFailure):
        return await _no_github(datasette, request, done.why)
    if before:
        await asyncio.to_thread(accounts.end, before)
    return _with_attempt(settings, _redirect(next_page or links.to(), _cookie(settings, done)))


def _callback(datasette: Any, request: Any) -> str:
    """Return the address to which GitHub sends the browser back; the host was checked."""
    scheme = "https" if _settings(datasette).access.tls else "http"
    host = header(request.scope, b"host").casefold()
    return f"{scheme}://{host}{datasette.urls.path(GITHUB_CALLBACK)}"


async def _no_github(datasette: Any, request: Any, why: str) -> Any:
    response = await _form(datasette, request, {"next": "", "wrong": why}, status=403)
    return _with_attempt(_settings(datasette), response)


def _github_cookie_name(settings: ServerSettings) -> str:
    return "__Host-edison_github" if settings.access.tls else "edison_github"


def _with_attempt(settings: ServerSettings, response: Any, kept: str = "") -> Any:
    """Return a response that lets the browser keep an attempt, or forget it."""
    response.set_cookie(
        _github_cookie_name(settings),
        kept,
        max_age=_MINUTES_10_S if kept else 0,
        secure=settings.access.tls,
        httponly=True,
        samesite="lax",  # GitHub's redirect is a navigation from another site
    )
    return response


async def sign_out(datasette: Any, request: Any) -> Any:
    """End the current session of the visitor, or all of them."""
    if request.method != "POST":
        headers = {**PAGE_HEADERS, "allow": "POST"}
        return Response.text("Use POST to submit a form.\n", status=405, headers=headers)
    settings, actor = _settings(datasette), await current_actor(datasette, request)
    assert actor is not None, "the security check requires sign-in"
    form = await form_of(request)
    accounts = Accounts(await asyncio.to_thread(current_site, settings.home))
    cookie = session_cookie(settings, request.scope)
    everywhere = form.flag("everywhere")
    await asyncio.to_thread(accounts.sign_out, actor, cookie, everywhere=everywhere)
    return _redirect(datasette.urls.path(SIGN_IN), _cookie(settings, None))


async def invitation(datasette: Any, request: Any) -> Any:
    """Show the form in which an invited member sets a password, or set it."""
    settings, links = _settings(datasette), _links(datasette)
    accounts = Accounts(await asyncio.to_thread(current_site, settings.home))
    values = {"key": request.args.get("key") or ""}
    try:
        if request.method == "POST":
            form = await form_of(request)
            values["key"], password = form.raw("key"), form.raw("password")
            await asyncio.to_thread(accounts.invited, values["key"])
            if password != form.raw("again"):
                values["wrong"] = "The two passwords differ."
            else:
                async with _AT_ONCE:
                    await asyncio.to_thread(accounts.accept, values["key"], password)
                return _redirect(datasette.urls.path(SIGN_IN))
        member = await asyncio.to_thread(accounts.invited, values["key"])
    except EdisonError as error:
        try:
            member = await asyncio.to_thread(accounts.invited, values["key"])
        except EdisonError:
            return await render_error(datasette, request, links, error)
        values["wrong"] = f"{error.message[:1].upper()}{error.message[1:]}: {error.hint}."
    values |= {"name": sign_in_names(member)[0], "role": member.role, "shortest": str(SHORTEST)}
    page = Page("invitation", "Set your password", {"form": values, "bare": True})
    status = 403 if "wrong" in values else 200
    return await render_page(datasette, request, links, page, status)


async def you(datasette: Any, request: Any) -> Any:
    """Show the account: role, sessions and tokens."""
    settings, actor = _settings(datasette), await current_actor(datasette, request)
    assert actor is not None, "the security check requires sign-in"
    accounts = Accounts(await asyncio.to_thread(current_site, settings.home))
    member = find_member(actor.identity, accounts.site.file.members)
    assert member is not None, "only members are signed in"
    access = await asyncio.to_thread(accounts.access_of, member)
    page = Page("you", actor.name, {"access": access})
    return await render_page(datasette, request, _links(datasette), page)


def safe_next(address: str, root: str) -> str:
    """Return the next address if it is on this server; else ''."""
    # Browsers treat // and backslashes as another host, and drop whitespace.
    if len(address) > LONGEST_NEXT or re.search(r"^//|[^\x21-\x7e]|\\", address):
        return ""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not address.startswith(root):
        return ""
    if f"/{parts.path.strip('/')}".endswith((SIGN_IN, SIGN_OUT)):
        return ""
    return address


def _settings(datasette: Any) -> ServerSettings:
    settings = settings_of(datasette)
    assert settings is not None, "only edison serve has these pages"
    return settings


def _links(datasette: Any) -> Links:
    name = next(name for name in datasette.databases if not name.startswith("_"))
    return Links(datasette.urls.path, name, several=False)


def _redirect(address: str, cookie: str = "") -> Any:
    headers = {**PAGE_HEADERS, "location": address, "cache-control": "private, no-store"}
    if cookie:
        headers["set-cookie"] = cookie
    return Response("", status=303, headers=headers)


def _cookie(settings: ServerSettings, signed: SignInSuccess | None) -> str:
    """Return the header that sets or removes the session cookie."""
    jar: SimpleCookie = SimpleCookie()
    name = cookie_name(settings)
    jar[name] = signed.cookie if signed else ""
    jar[name]["max-age"] = int(signed.lasts.total_seconds()) if signed else 0
    jar[name]["path"] = "/"
    jar[name]["httponly"] = True
    # Not Strict: links from a pull request would require another sign-in.
    jar[name]["samesite"] = "Lax"
    if settings.access.tls:
        jar[name]["secure"] = True
    return jar[name].OutputString()
