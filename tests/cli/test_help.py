"""Every command explains itself, with examples that work."""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest

from edison_ci.cli.app import all_commands, edison
from edison_ci.cli.options import CliState, Helpful

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

ALL = all_commands()
EXAMPLES = [
    (words, example)
    for words, command in {"": edison, **ALL}.items()
    if isinstance(command, Helpful)
    for example in command.examples
]


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help_with_examples(
    subtests: pytest.Subtests, edison: Edison, folder: Folder, flag: str
) -> None:
    for words in ["", *ALL]:
        with subtests.test(f"edison {words}"):
            done = edison(folder, *words.split(), flag)
            assert (done.code, done.err) == (0, "")
            assert done.out.startswith(f"Usage: {' '.join(['edison', *words.split()])} ")
            if words:
                assert "\nExamples:\n  edison" in done.out
                assert "\nShared options:\n  -C, --directory DIR" in done.out
            assert "\\b" not in done.out
            assert "\x08" not in done.out
            assert max(map(len, done.out.splitlines())) <= 80


def test_the_request_of_a_command_has_a_field_for_each_of_its_options() -> None:
    taking = {
        words: command for words, command in ALL.items() if hasattr(command.callback, "takes")
    }
    assert "bisect" in taking
    for words, command in taking.items():
        options = {param.name for param in command.params if param.expose_value}
        record = getattr(command.callback, "takes")  # noqa: B009 - click has no such attribute
        assert {field.name for field in dataclasses.fields(record)} == options, words


def test_short_help_does_not_depend_on_who_asked_first() -> None:
    status = ALL["status"]
    option = status.get_help_option(click.Context(status))
    assert option is not None and option.opts == ["-h", "--help"]


def test_every_example_is_a_command_that_parses(subtests: pytest.Subtests) -> None:
    for words, example in EXAMPLES:
        with subtests.test(example):
            # The top level explains its examples on the same line; shells redirect.
            line = re.split(r"  +| >>? ", example)[0]
            name, *args = shlex.split(line)
            assert name == "edison"
            assert args[: len(words.split())] == words.split()
            ctx: click.Context = click.Context(edison, info_name="edison", obj=CliState())
            command: click.Command = edison
            while isinstance(command, click.Group) and args and not args[0].startswith("-"):
                found = command.get_command(ctx, args.pop(0))
                assert found is not None
                command = found
            with command.make_context(command.name, args, parent=ctx):
                pass


def test_every_option_says_what_it_does(subtests: pytest.Subtests) -> None:
    for words, command in ALL.items():
        with subtests.test(words=words):
            for param in command.params:
                if isinstance(param, click.Option):
                    assert param.help and param.help.endswith("."), param.name


def test_the_help_of_the_program_fits_one_screen(edison: Edison, folder: Folder) -> None:
    assert len(edison(folder, "--help").out.splitlines()) <= 45
