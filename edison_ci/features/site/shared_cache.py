"""Access to the shared cache of a project: its address, its token, and who may write to it.

In a job for a proposal the entry of the base counts, so that a pull request names neither another
server nor another token, and nothing is written. Elsewhere answers are written where the private
key is set whose public key `.edison/trust.yaml` lists.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edison_ci import __version__
from edison_ci.config.trust import belongs_to_connection, origin, trust_hint
from edison_ci.documents import signatures
from edison_ci.documents.secrets import remember
from edison_ci.errors import TrustError, UsageError
from edison_ci.providers import shared_cache
from edison_ci.providers.transport import (
    Service,
    allowed_reach,
    host_of,
    is_loopback,
    proxy_for,
    refusal_reason,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Project
    from edison_ci.config.sections import SharedCacheEntry
    from edison_ci.config.trust import TrustFile

_HEADER = re.compile(r"([A-Za-z0-9-]{1,100}): ([\x21-\x7e][\x20-\x7e]*)")


def cache_access(
    project: Project, environ: Mapping[str, str], *, offline: bool
) -> shared_cache.CacheAccess | None:
    """Return the access to the shared cache of a project on the terms of its base.

    None if it has none, if the variable of its address is not set here, or if `offline` forbids it.
    """
    entry = project.file.cache
    if entry is None or project.file.settings.private:
        return None
    try:
        url = environ.get(entry.url_env, "").strip()
        if not url:
            return None
        service = _service(entry, url, project.trust, environ)
        if offline and not is_loopback(service.url):
            return None
        return shared_cache.CacheAccess(
            service,
            urlsplit(url).query,
            project.trust.results.public_keys,
            None if project.proposed else _signer(project.trust, environ),
            entry.unsigned == "replay",
        )
    except UsageError as error:
        return shared_cache.CacheAccess(None, problem=f"{error.message} ({error.hint})")


def _service(
    entry: SharedCacheEntry, url: str, trust: TrustFile, environ: Mapping[str, str]
) -> Service:
    """Return the server of the cache; raises UsageError if it may not be used."""
    try:
        parts, place = urlsplit(url), origin(url)
    except ValueError:
        parts, place = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UsageError(
            f"{entry.url_env} does not hold a URL", hint="set it to https://HOST/PATH, without user"
        )
    remember([parts.query])
    if parts.scheme == "http" and not is_loopback(url):
        raise UsageError(
            f"the URL in {entry.url_env} is not encrypted",
            hint="use https:// (http only on this machine)",
        )
    reach = allowed_reach(url, trust, environ)
    if reason := refusal_reason(host_of(url), reach):
        raise UsageError(f"{place} {reason}", hint=f"set {entry.url_env} to another server")
    return Service(
        url=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        headers={"User-Agent": f"edison-ci/{__version__}", **_token(entry, url, trust, environ)},
        secrets=tuple(filter(None, (parts.query, environ.get(entry.token_env or "")))),
        proxy=proxy_for(url, environ),
        ca_file=environ.get("SSL_CERT_FILE") or None,
        reach=reach,
        most_bytes=shared_cache.MOST_BYTES,
    )


def _token(
    entry: SharedCacheEntry, url: str, trust: TrustFile, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the header with the token; raises UsageError if it may not be sent."""
    name = entry.token_env
    if name is None:
        return {}
    if not trust.allows(name, url, "cache"):
        raise TrustError(
            f"{name} would be sent to {origin(url)}, which is not trusted",
            hint=trust_hint(name, url),
        )
    value = environ.get(name, "").strip()
    if not value:
        raise UsageError(
            f"{name} is not set", hint=f"set it, or seal it: edison secrets seal {name}"
        )
    remember([value])
    header = _HEADER.fullmatch(value)
    if header is not None and not belongs_to_connection(header[1]):
        return {header[1]: header[2]}
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise UsageError(
            f"{name} holds neither a token nor a header", hint="write TOKEN, or NAME: VALUE"
        )
    return {"Authorization": f"Bearer {value}"}


def _signer(trust: TrustFile, environ: Mapping[str, str]) -> signatures.Signer | None:
    """Return what signs answers; None without a private key whose public key is trusted."""
    private = environ.get(signatures.VARIABLE, "")
    signer = signatures.Signer(private) if private.strip() else None
    trusted = signer is not None and signer.public in trust.results.public_keys
    return signer if trusted else None
