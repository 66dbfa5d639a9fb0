"""Sanitizing of texts from files and models for terminals, logs and workflows.

Such texts may hold escape sequences that control a terminal, bidirectional marks that reorder a
line, lines that GitHub takes for commands, and misplaced keys.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any

from edison_ci.documents.secrets import redacted
from edison_ci.numeric import snap

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_RUN = re.compile(r"[\w.+/=-]+")
_START = re.compile(r"[\w+/=-]{4}")
_DOTS, _REST = "...", 8
"""A shortened secret: its start, dots, and the minimum of its end."""
_WRITTEN = frozenset({"input", "inputs", "expected", "metadata", "params", "tool_calls"})
"""Keys whose numbers are written by people and models, and keep all digits."""
_COMMAND = re.compile(r"(?m)^([^\S\n]*+)(?=::)|(?<=#)(?=#\[)")


def clean(text: str) -> str:
    """Return a text without control sequences; line breaks stay."""
    return _UNSAFE.sub(lambda match: f"\\u{{{ord(match.group()):x}}}", text)


def line(text: str) -> str:
    """Return a text on one line, sanitized and redacted."""
    return clean(redacted(text)).replace("\n", "\\n")


def lines(text: str) -> str:
    """Return a text of several lines, sanitized and redacted."""
    return clean(redacted(text))


def without_pieces(text: str) -> str:
    """Return the text of an error without the ends of a secret shortened in its middle.

    The rest no longer looks like a secret, so every text shortened like this is cut.
    """
    text = redacted(text)
    return _RUN.sub(_without_end, text) if _DOTS in text else text


def _without_end(match: re.Match[str]) -> str:
    run = match.group()
    start = _START.search(run)
    if start is None or run.rfind(_DOTS, start.end(), len(run) - _REST) < 0:
        return run
    return run[: start.end()] + _DOTS


def json_text(value: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return sanitized JSON without secrets; other texts stay exact.

    Computed numbers lose the digits that differ between machines.
    """
    text = json.dumps(_redacted(value), indent=indent, ensure_ascii=ascii_only, default=str)
    text = _UNSAFE.sub(lambda match: json.dumps(match.group())[1:-1], text)
    return text.replace("##[", "#\\u0023[")


# Cached, because a million lines share a few keys.
_key = functools.lru_cache(maxsize=1_000)(redacted)


def _redacted(value: Any, *, written: bool = False) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {
            _key(str(key)): _redacted(item, written=written or key in _WRITTEN)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(item, written=written) for item in value]
    return snap(value) if isinstance(value, float) and not written else value


def in_actions() -> bool:
    """Whether this runs in GitHub Actions, which parses the output."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def folder_in_checkout(root: Path | None) -> str:
    """Return the path of the project in the checkout, the prefix of paths in annotations."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if root is None or not workspace:
        return ""
    folder = os.path.relpath(root.resolve(), os.path.realpath(workspace))
    return "" if folder == "." or folder.startswith("..") else f"{folder}/"


def without_commands(text: str) -> str:
    """Return a text without active workflow commands (`::name::` or `##[name]`)."""
    return _COMMAND.sub(r"\1\\", text)


def workflow_command(
    name: str, message: str, properties: Mapping[str, object] | None = None
) -> str:
    """Return a command for the runner of GitHub; properties without a value are left out."""
    written = {key: value for key, value in (properties or {}).items() if value is not None}
    listed = ",".join(f"{key}={_property(lines(str(value)))}" for key, value in written.items())
    return f"::{name}{f' {listed}' if listed else ''}::{_data(lines(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
