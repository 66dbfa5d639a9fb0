"""How the runner of GitHub Actions reads what a step prints: a port of its two parsers.

`ActionCommand.TryParseV2` reads `::name key=value,...::data` at the start of a line,
`ActionCommand.TryParse` reads `##[name key=value;...]data` anywhere in it; the first one that
succeeds counts. While commands are stopped only the token is heard. Lines end at CR, LF or both, as
.NET reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

KNOWN = frozenset(
    [
        "error",
        "warning",
        "notice",
        "debug",
        "group",
        "endgroup",
        "add-mask",
        "set-output",
        "save-state",
        "set-env",
        "add-path",
        "echo",
        "stop-commands",
        "add-matcher",
        "remove-matcher",
        "internal-set-repo-path",
    ]
)


class Command(NamedTuple):
    """What the runner would do."""

    name: str
    properties: dict[str, str]
    data: str


def parse(line: str, known: frozenset[str] = KNOWN) -> Command | None:
    return _second(line, known) or _first(line, known)


def _second(line: str, known: frozenset[str]) -> Command | None:
    message = line.lstrip()
    if not message.startswith("::"):
        return None
    end = message.find("::", 2)
    if end < 0:
        return None
    info = message[2:end]
    name, _, listed = info.partition(" ")
    if name.lower() not in known:
        return None
    properties = {}
    for each in listed.strip().split(","):
        key, equals, value = each.partition("=")
        if each and equals:
            properties[key] = _unescaped(value, "%3A:", "%2C,")
    return Command(name.lower(), properties, _unescaped(message[end + 2 :]))


def _first(line: str, known: frozenset[str]) -> Command | None:
    start = line.find("##[")
    end = line.find("]", start)
    if start < 0 or end < 0:
        return None
    name, _, listed = line[start + 3 : end].partition(" ")
    if name.lower() not in known:
        return None
    properties = {}
    for each in listed.split(";"):
        key, equals, value = each.partition("=")
        if each and equals:
            properties[key] = value
    return Command(name.lower(), properties, line[end + 1 :])


def _unescaped(text: str, *more: str) -> str:
    for pair in ("%0D\r", "%0A\n", *more, "%25%"):
        text = text.replace(pair[:3], pair[3:])
    return text


@dataclass
class Runner:
    """A step's output, as far as it was read."""

    done: list[Command] = field(default_factory=list)
    token: str | None = None

    def read(self, text: str) -> list[Command]:
        """Obey what is printed; return the commands that were obeyed."""
        for line in re.split("\r\n|\r|\n", text):
            known = frozenset({self.token.lower()}) if self.token else KNOWN
            command = parse(line, known)
            if command is None:
                continue
            if self.token:
                self.token = None
            elif command.name == "stop-commands":
                self.token = command.data
            else:
                self.done.append(command)
        return self.done


def read_outputs(text: str) -> dict[str, str]:
    """Read a file of outputs, as `FileCommandManager` does."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line:
            continue
        name, heredoc, delimiter = line.partition("<<")
        if not heredoc or ("=" in line and line.index("=") < line.index("<<")):
            name, _, value = line.partition("=")
            found[name] = value
            continue
        value_lines = []
        while lines[at] != delimiter:
            value_lines.append(lines[at])
            at += 1
        at += 1
        found[name] = "\n".join(value_lines)
    return found
