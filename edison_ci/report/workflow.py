"""Commands of GitHub Actions, and nothing that somebody else wrote.

A step speaks to its runner by lines on stdout and by files. Whatever a line or a value holds, it is
one command or none, and one output.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.sanitize import lines, without_commands

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOKEN = re.compile(r"[A-Za-z0-9_]{32,100}")


def command(name: str, message: str, properties: Mapping[str, object] | None = None) -> str:
    """Return a workflow command; properties without a value are left out."""
    told = {key: value for key, value in (properties or {}).items() if value is not None}
    listed = ",".join(f"{key}={_property(lines(str(value)))}" for key, value in told.items())
    return f"::{name}{f' {listed}' if listed else ''}::{_data(lines(message))}"


def unheard(text: str, token: str) -> str:
    """Return a text between lines that make the runner ignore whatever commands are in it.

    The token has to be drawn anew each time; a text that knows it could end the silence.
    """
    if not _TOKEN.fullmatch(token) or token in text:
        raise UsageError("the token that stops commands is in the text", hint="draw another one")
    # Runners that do not know the command, and other readers of logs, see broken commands.
    body = without_commands(lines(text)).rstrip("\n")
    return f"::stop-commands::{token}\n{body}\n::{token}::"


def outputs(values: Mapping[str, str], delimiter: str) -> str:
    """Return what is added to GITHUB_OUTPUT; the delimiter has to be drawn anew each time."""
    if not _TOKEN.fullmatch(delimiter):
        raise UsageError("the delimiter is too easy to guess", hint="draw 32 hex digits")
    pieces = []
    for name, value in values.items():
        if not _NAME.fullmatch(name) or delimiter in value:
            raise UsageError(f"the output {name!r} cannot be written", hint="draw another one")
        pieces.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(pieces)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
