"""Certificates by which httpx verifies servers, read once."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def verification() -> ssl.SSLContext:
    """Return what httpx verifies servers by; reading the certificates takes 30 ms each time."""
    return _verification(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _verification(*_: str | None) -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()
