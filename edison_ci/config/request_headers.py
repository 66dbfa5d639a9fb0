"""Request headers that files may set: a closed list, and forms of names and values.

A request carries a key, and some headers decide where it ends or who it seems to come from. So a
file may set the headers of the list, and those that `services` of `.edison/trust.yaml` adds for a
host, but never those that belong to the connection or to proxies.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from edison_ci.shape import TextPattern, short, wrong

USUAL = frozenset(
    {
        "accept", "accept-language", "anthropic-version", "api-key", "apikey", "authorization",
        "http-referer", "ocp-apim-subscription-key", "openai-organization", "openai-project",
        "private-token", "user-agent", "x-access-token", "x-api-key", "x-auth-token",
        "x-correlation-id", "x-goog-api-key", "x-key", "x-request-id", "x-title",
    }
)  # fmt: skip
"""Headers that every entry may set, in lower case: keys, and what services ask of their callers."""
_OF_THE_CONNECTION = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|upgrade|te|trailer|via|expect|"
    r"forwarded|x-forwarded(?:-.*)?|proxy(?:-.*)?|cookie2?",
    re.IGNORECASE,
)


def belongs_to_connection(name: str) -> bool:
    """Whether no file may set a header, whatever `.edison/trust.yaml` says."""
    return _OF_THE_CONNECTION.fullmatch(name) is not None


def _name(value: str) -> str:
    if belongs_to_connection(value):
        said = f"the header {value} belongs to the connection or to proxies: no file may set it"
        raise wrong("request-header", said, "remove it")
    return value


HeaderName = Annotated[
    str,
    Field(max_length=100),
    TextPattern(
        # A server may read an underscore as a hyphen.
        "[A-Za-z0-9-]+",
        "the name of a header",
        "use letters, digits and '-'",
        "request-header",
    ),
    AfterValidator(_name),
]
HeaderValue = Annotated[
    str,
    TextPattern(
        r"[\x20-\x7e]*", "the value of a header", "use printable ASCII only", "request-header"
    ),
]


def distinct(headers: dict[str, str]) -> dict[str, str]:
    """Return headers; raises if one is set twice, in other letters."""
    names: dict[str, str] = {}
    for name in headers:
        if (first := names.setdefault(name.lower(), name)) != name:
            said = f"{short(first)} and {short(name)} are the same header"
            raise wrong("duplicate", said, "remove one", at=(name,))
    return headers
