"""Commands in what a user reads: found, and parsed as the terminal would."""

from __future__ import annotations

import re
import shlex

import click

from edison_ci.cli.app import edison

_COMMAND = re.compile(r"\bedison (?:[a-z-]+)(?: (?!\()[^\s;`()]*[^\s;,.:`()])*")


def commands_in(text: str) -> list[str]:
    """Return the commands of edison in a text, each without the prose after it."""
    return _COMMAND.findall(text)


def parsed(words: list[str]) -> list[str]:
    """Return the words of a command after its name, if it, its options and values exist.

    Raises what the terminal would print.
    """
    node: click.Command = edison
    context = click.Context(node, info_name="edison")
    while isinstance(node, click.Group) and words and not words[0].startswith("-"):
        name, found, rest = node.resolve_command(context, words)
        assert found is not None, words
        node, words = found, rest
        context = click.Context(node, info_name=name, parent=context)
    if isinstance(node, click.Group) and not words:
        return []  # its help
    node.make_context(context.info_name, list(words), parent=context.parent)
    return words


def assert_parses(command: str) -> None:
    """Fail unless the command, its options and its arguments exist."""
    program, *words = shlex.split(command)
    assert program == "edison"
    parsed(words)
