"""When are the certificates loaded by which connections are checked?

Before the first encrypted connection, and not before: it takes 50 ms, which a model on this machine
does not need. aiohttp loads them twice when it is imported, unless it is imported in here.
"""

from __future__ import annotations

import contextlib
import ssl
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return the TLS context that trusts the certificates of a file."""
    return ssl.create_default_context(cafile=ca_file)


@contextlib.contextmanager
def certificates_when_needed() -> Iterator[None]:
    """Let contexts that are made within load the system's certificates with their first use."""
    kind: Any = ssl.SSLContext
    load = kind.set_default_verify_paths
    kind.set_default_verify_paths = lambda context: _with_first_use(context, load)
    try:
        yield
    finally:
        kind.set_default_verify_paths = load


def _with_first_use(context: Any, load: Any) -> None:
    """Have a context load its certificates when it is to encrypt a connection."""

    def wrap_bio(*args: Any, **kwargs: Any) -> Any:
        if "wrap_bio" in vars(context):
            load(context)
            del context.wrap_bio
        return context.wrap_bio(*args, **kwargs)

    context.wrap_bio = wrap_bio
