"""Completion scripts that really complete."""

from __future__ import annotations

import importlib
import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from edison_ci.cli.groups import commands
from edison_ci.cli.options import NameType
from edison_ci.resources import KINDS, MESSAGES

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

SHELLS = {"bash": "complete -o nosort -F", "zsh": "#compdef edison", "fish": "complete --no-files"}


@pytest.fixture
def program(folder: Folder) -> Folder:
    """A folder with `edison` in it, to be put on PATH."""
    path = folder.write("bin/edison", f'#!/bin/sh\nexec {sys.executable} -P -m edison_ci "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def ran(edison: Edison, mini: Folder) -> Folder:
    """A project with one run."""
    assert edison(mini, "run", "-q").code == 0
    return mini


def asked(folder: Folder, shell: str, *words: str) -> list[str]:
    """Ask as the script of a shell does; the last word is the one to complete."""
    env = {
        "_EDISON_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    done = folder.edison(env=env)
    assert done.code == 0, done.err
    return done.out.split("\n")[:-1] if done.out.strip() else []


@pytest.mark.parametrize(("shell", "sign"), SHELLS.items(), ids=list(SHELLS))
def test_every_shell_gets_its_script(edison: Edison, folder: Folder, shell: str, sign: str) -> None:
    done = edison(folder, "admin", "completion", shell)
    assert done.code == 0
    assert sign in done.out
    assert f"_EDISON_COMPLETE={shell}_complete" in done.out


def test_bash_completes_with_the_script(program: Folder) -> None:
    script = program.write("script.sh", program.edison("admin", "completion", "bash").out)
    lines = f"""
        source {script}
        COMP_WORDS=(edison va) COMP_CWORD=1
        _edison_completion edison
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", lines],
        env={**os.environ, "PATH": f"{program.path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["validate"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["edison", ""], [f"plain,{name}" for name in commands()]),
        (["edison", "p"], [f"plain,{name}" for name in commands() if name.startswith("p")]),
        (["edison", "--off"], ["plain,--offline"]),
        (["edison", "plan", "--ch"], ["plain,--changed-since"]),
        (["edison", "admin", "schema", ""], [f"plain,{kind}" for kind in (*KINDS, *MESSAGES)]),
        (["edison", "models", "l"], ["plain,list"]),
        (["edison", "admin", ""], [f"plain,{name}" for name in commands("admin")]),
        (["edison", "runs", "p"], ["plain,pause"]),
        (["edison", "-q", "admin", "completion", "z"], ["plain,zsh"]),
        (["edison", "init", "--template", "cu"], ["plain,customer-support"]),
        (["edison", "-C", "x"], ["dir,x"]),
        (["edison", "nonsense", "x"], []),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_can_follow(folder: Folder, words: list[str], found: list[str]) -> None:
    assert asked(folder, "bash", *words) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["edison", "run", ""], ["hello"]),
        (["edison", "run", "hello", "--limit", "3", "h"], ["hello"]),
        (["edison", "run", "--model", ""], ["small", "judge"]),
        (["edison", "run", "--case", "a"], ["ada"]),
        (["edison", "try", "--case", "b"], ["bo"]),
        (["edison", "try", ""], ["hello"]),
        (["edison", "history", "he"], ["hello"]),
        (["edison", "regrade", "--judge", "sm"], ["small"]),
        (["edison", "explain", "a"], ["ada"]),
        (["edison", "status", "l"], ["latest"]),
        (["edison", "runs", "watch", "h"], ["hello"]),
        (["edison", "compare", "--prompts", "he"], ["hello"]),
        (["edison", "quarantine", "add", "ad"], ["ada"]),
        (["edison", "-C", "../project", "-q", "run", "h"], ["hello"]),
        (["edison", "-C", "..", "run", "h"], []),
        (["edison", "run", "x"], []),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_names_of_the_project_are_offered(ran: Folder, words: list[str], found: list[str]) -> None:
    assert asked(ran, "bash", *words) == [f"plain,{name}" for name in found]


def test_runs_are_offered_by_their_ids(ran: Folder) -> None:
    (run,) = json.loads(ran.edison("status", "--json").out)["runs"]
    for words in (["status"], ["report"], ["explain", "ada", "--run"], ["runs", "pause"]):
        assert f"plain,{run['run_id']}" in asked(ran, "bash", "edison", *words, "")


@pytest.mark.parametrize("file", ["edison.yaml", "models.yaml", ".edison/results.db"])
def test_a_file_that_cannot_be_read_offers_nothing(ran: Folder, file: str) -> None:
    ran.write(file, b"\xff{")
    for words in (["run", "--model", ""], ["status", ""], ["explain", ""], ["run", ""]):
        asked(ran, "bash", "edison", *words)


def test_names_with_control_characters_are_not_offered(ran: Folder) -> None:
    ran.write("prompts/\x1b[31mred.md", "Hello\n")
    assert asked(ran, "bash", "edison", "try", "") == ["plain,hello"]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("jsonl", '{"id": "one", "name": "Ada"}\n\n{"name": "Bo"}\n'),
        ("csv", "name,id\nAda,one\nBo,\n"),
        ("yaml", "- {id: one, name: Ada}\n- {name: Bo}\n"),
    ],
)
def test_cases_come_from_every_kind_of_dataset(mini: Folder, suffix: str, text: str) -> None:
    path = next((mini.path / "datasets").iterdir())
    experiment = (mini.path / "experiments/hello.yaml").read_text(encoding="utf-8")
    named = experiment.replace(f"datasets/{path.name}", f"datasets/other.{suffix}")
    mini.write("experiments/hello.yaml", named)
    mini.write(f"datasets/other.{suffix}", text)
    assert asked(mini, "bash", "edison", "run", "--case", "") == ["plain,one"]


@pytest.mark.parametrize(
    "words",
    [["run", ""], ["explain", "a"], ["run", "--case", ""], ["status", ""], ["try", "--model", ""]],
    ids=" ".join,
)
def test_a_name_is_offered_without_the_command_that_takes_it(ran: Folder, words: list[str]) -> None:
    code = (
        "import sys\n"
        "from edison_ci.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print('LOADED', *sorted(sys.modules), file=sys.stderr)\n"
    )
    env = {
        **os.environ,
        "_EDISON_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["edison", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=ran.path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("plain,")
    loaded = set(done.stderr.rpartition("LOADED ")[2].split())
    assert "edison_ci.api.names" in loaded
    assert not loaded & {"pydantic", "numpy", "aiohttp", "jinja2", "asyncio"}
    assert not loaded & {f"edison_ci.cli.{name}" for name in ("run", "explain", "status")}


ADDED_TO = ("admin", "dataset", "github", "import", "roles", "runs")
EVERY_ENTRY = [
    *commands().items(),
    *(pair for group in ADDED_TO for pair in commands(group).items()),
]


def test_the_table_knows_what_a_command_takes(subtests: pytest.Subtests) -> None:
    for name, entry in EVERY_ENTRY:
        with subtests.test(name=name, place=entry.place):
            module, _, function = entry.place.partition(":")
            command = getattr(importlib.import_module(module), function)
            takes = [
                param.type.kinds
                for param in command.params
                if isinstance(param, click.Argument) and isinstance(param.type, NameType)
            ]
            assert entry.takes == (takes[0][0] if takes else ""), name


def test_zsh_and_fish_show_what_a_command_does(folder: Folder) -> None:
    line = commands()["plan"].line
    assert asked(folder, "zsh", "edison", "plan") == ["plain", "plan", line]
    assert asked(folder, "fish", "edison", "plan") == [f"plain,plan\t{line}"]
