"""Messages posted to a webhook: as JSON with a signature, to Slack and to Microsoft Teams.

The URL is a secret: it comes from an environment variable, is never stored, and appears in no
error. The server is not trusted: it has ten seconds in all, redirects are not followed, and only
the start of its reply is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import ssl
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edison_ci import __version__
from edison_ci.api.notices import about, lines_of
from edison_ci.documents.secrets import remember
from edison_ci.errors import DeliveryError, UsageError
from edison_ci.git.host import is_loopback
from edison_ci.numeric import fixed
from edison_ci.providers.failures import retry_after_s
from edison_ci.providers.transport import verification
from edison_ci.sanitize import line

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from edison_ci.config.sections import Notification

TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 4_000
_SHOWN = 200
_WAIT_FOR_IT = frozenset({408, 425, 429})
_MESSAGE_FAULTS = frozenset({400, 413, 422})
_PREFIX = "whsec_"
_sending: ContextVar[bool] = ContextVar("sending", default=False)


def variable(name: str, environ: Mapping[str, str]) -> str:
    """Return the value of a variable, or of a sealed key; raises DeliveryError without one."""
    try:
        value = environ.get(name, "").strip()
    except UsageError as error:  # it is sealed, and cannot be opened here
        raise DeliveryError(error.message, hint=error.hint, unset=True) from None
    if not value:
        raise DeliveryError(
            f"{name} is not set", hint=f"export {name}, or add it as a secret", unset=True
        )
    return value


def webhook_url(name: str, environ: Mapping[str, str]) -> str:
    """Return the URL in a variable; raises DeliveryError if it cannot be used."""
    url = variable(name, environ)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    remember([url, url.partition("://")[2].partition("/")[2], parts.path, parts.query])
    if not host or parts.scheme not in {"http", "https"}:
        raise DeliveryError(f"{name} does not hold a URL", hint="set it to https://host/path")
    if parts.scheme == "http" and not is_loopback(host):
        raise DeliveryError(
            f"the URL in {name} is not encrypted", hint="use https:// (http only on this machine)"
        )
    return url


def host_of(name: str, environ: Mapping[str, str]) -> str:
    """Return the host of the URL in a variable; empty if there is none."""
    try:
        return urlsplit(webhook_url(name, environ)).hostname or ""
    except DeliveryError:
        return ""


async def post(
    recipient: Notification,
    message: Mapping[str, Any],
    environ: Mapping[str, str],
    now: dt.datetime,
) -> str:
    """Post a message and return what the server answered; raises DeliveryError."""
    assert recipient.webhook_env is not None
    url = webhook_url(recipient.webhook_env, environ)
    body = json.dumps(body_of(recipient.format, message), ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"edison-ci/{__version__}",
        "Accept-Encoding": "identity",
        "webhook-id": str(message["id"]),
        "webhook-timestamp": str(int(now.timestamp())),
    }
    if recipient.secret_env is not None:
        secret = variable(recipient.secret_env, environ)
        remember([secret])
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        headers["webhook-signature"] = signature(secret, signed)
    status, replied, after = await _exchange(url, headers, body, now)
    answer = line(replied.decode("utf-8", "replace").strip())[:_SHOWN]
    if 200 <= status < 300:
        return f"{status} {answer}".strip()
    raise _refused(status, answer, after, recipient.webhook_env)


def signature(secret: str, signed: bytes) -> str:
    """Return the signature of Standard Webhooks: `v1,` and HMAC-SHA256 in base64.

    A secret that starts with `whsec_` is base64, any other is taken as it is.
    """
    key = secret.encode()
    if secret.startswith(_PREFIX):
        try:
            # In any spelling: the receiver chose it, and nothing is compared with this text.
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            raise DeliveryError(
                "the signing secret starts with whsec_ and is not base64",
                hint="copy it again, or use a secret without that start",
            ) from None
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


async def _exchange(
    url: str, headers: Mapping[str, str], body: bytes, now: dt.datetime
) -> tuple[int, bytes, float | None]:
    """Return the status, the start of the body and the seconds to wait; raises DeliveryError."""
    import httpx

    logging.getLogger("httpx").addFilter(_without_url)  # added once, however often it is
    _sending.set(True)
    failed: DeliveryError
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx.AsyncClient(
                verify=verification(), follow_redirects=False, timeout=TIMEOUT_S
            ) as client,
            client.stream("POST", url, headers=headers, content=body) as reply,
        ):
            received = {name.lower(): value for name, value in reply.headers.items()}
            start = await _start(reply) if "content-encoding" not in received else b""
            return reply.status_code, start, retry_after_s(received, now)
    except (TimeoutError, httpx.TimeoutException):
        failed = DeliveryError(
            f"no answer within {fixed(TIMEOUT_S)} seconds",
            hint="check the network and the server",
        )
    except httpx.ConnectError as error:
        failed = _unconnected(error)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        failed = DeliveryError(f"the connection was interrupted: {line(_reason(error))}")
    finally:
        _sending.set(False)
    # Raised outside of `except`: a chained httpx exception would carry the URL.
    raise failed


def _without_url(_: logging.LogRecord) -> bool:
    """Whether httpx may log: it would log the URL of a webhook, which is a secret."""
    return not _sending.get()


async def _start(reply: Any) -> bytes:
    body = b""
    async for chunk in reply.aiter_raw():
        body += chunk[: MAX_REPLY_BYTES - len(body)]
        if len(body) >= MAX_REPLY_BYTES:
            break
    return body


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _unconnected(error: BaseException) -> DeliveryError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return DeliveryError(
                f"the certificate of the server is not valid: {line(cause.verify_message)}",
                hint="check the host in the URL; set SSL_CERT_FILE for an authority of your own",
            )
        if isinstance(cause, ssl.SSLError):
            return DeliveryError(
                f"the server does not speak TLS as expected: {line(_reason(cause))}",
                hint="check the scheme and the port of the URL",
            )
        cause = cause.__cause__ or cause.__context__
    return DeliveryError(
        f"cannot connect: {line(_reason(error))}", hint="check the network and the host of the URL"
    )


def _refused(status: int, reply: str, after: float | None, name: str) -> DeliveryError:
    answer = f"the server answered {status}" + (f": {reply}" if reply else "")
    if 300 <= status < 400:
        hint = f"redirects are not followed: set {name} to the final URL"
    elif status in {401, 403}:
        hint = f"the server does not accept the sender: check the URL in {name}"
    elif status in {404, 410}:
        hint = f"there is no such webhook (any more): check the URL in {name}"
    elif status >= 500 or status in _WAIT_FOR_IT:
        hint = "it is tried again later"
    else:
        hint = "check that format is what the server expects"
    return DeliveryError(
        answer, hint=hint, retry_after_s=after, this_message=status in _MESSAGE_FAULTS
    )


# Limits of Slack: 150 characters in a header, 3,000 in a section, 50 blocks, about 13,000 in all.
# A card of Teams may have 28 KB.
_SLACK_HEADER, _SLACK_SECTION, _SLACK_BLOCKS = 150, 3_000, 50
_MOST_CHARS, _MOST_BYTES = 10_000, 20_000


def body_of(kind: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request in one of the formats."""
    if kind == "slack":
        return _slack(message)
    if kind == "teams":
        return _teams(message)
    return dict(message)


def _fitting(message: Mapping[str, Any]) -> list[str]:
    """Return the paragraphs of a message, as many as a chat takes."""
    paragraphs: list[str] = []
    chars, size = _MOST_CHARS, _MOST_BYTES
    for text in lines_of(message):
        if not text.strip():
            continue
        kept = _cut(text, max(0, min(chars, size // 4, _SLACK_SECTION)))
        if len(kept) <= 3:
            break
        paragraphs.append(kept)
        chars, size = chars - len(kept), size - len(kept.encode())
    return paragraphs


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: max(0, limit - 3)]}..."


def _slack(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return Block Kit blocks of plain text, in which nothing is a link or a mention."""

    def plain(text: str, limit: int) -> dict[str, Any]:
        return {"type": "plain_text", "text": _cut(text, limit), "emoji": False}

    sections = [
        {"type": "section", "text": plain(text, _SLACK_SECTION)} for text in _fitting(message)
    ]
    title = str(message["title"])
    escaped = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {
        "text": escaped,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "header", "text": plain(title, _SLACK_HEADER)},
            *sections[: _SLACK_BLOCKS - 2],
            {"type": "context", "elements": [plain(about(message), _SLACK_SECTION)]},
        ],
    }


def _teams(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return an Adaptive Card as workflows of Teams take it.

    Text blocks render Markdown, runs of a rich text block do not.
    """

    def plain(text: str, **style: Any) -> dict[str, Any]:
        run = {"type": "TextRun", "text": text, **style}
        return {"type": "RichTextBlock", "inlines": [run]}

    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            plain(_cut(str(message["title"]), 300), weight="Bolder", size="Medium"),
            *map(plain, _fitting(message)),
            plain(about(message), isSubtle=True, size="Small"),
        ],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {
        "type": "message",
        "attachments": [{"contentType": kind, "contentUrl": None, "content": card}],
    }
