"""Completion scripts that really complete."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.groups import COMMANDS, TABLES
from edison_ci.resources import KINDS

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

SHELLS = {"bash": "complete -o nosort -F", "zsh": "#compdef edison", "fish": "complete --no-files"}


@pytest.fixture
def program(folder: Folder) -> Folder:
    """A folder with `edison` in it, to be put on PATH."""
    path = folder.write("bin/edison", f'#!/bin/sh\nexec {sys.executable} -P -m edison_ci "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


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
        (["edison", ""], [f"plain,{name}" for name in COMMANDS]),
        (["edison", "p"], [f"plain,{name}" for name in COMMANDS if name.startswith("p")]),
        (["edison", "--off"], ["plain,--offline"]),
        (["edison", "plan", "--ch"], ["plain,--changed-since"]),
        (["edison", "admin", "schema", ""], [f"plain,{kind}" for kind in KINDS]),
        (["edison", "models", "l"], ["plain,list"]),
        (["edison", "admin", ""], [f"plain,{name}" for name in TABLES["admin"]]),
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


def test_zsh_and_fish_show_what_a_command_does(folder: Folder) -> None:
    line = COMMANDS["plan"].line
    assert asked(folder, "zsh", "edison", "plan") == ["plain", "plan", line]
    assert asked(folder, "fish", "edison", "plan") == [f"plain,plan\t{line}"]
