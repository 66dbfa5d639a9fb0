"""Which commands there are, how they are found, and how each ending becomes an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from edison_ci import __version__
from edison_ci.cli import admin, app
from edison_ci.cli.groups import EVERYDAY, RENAMED, commands
from edison_ci.cli.options import EdisonCommand
from edison_ci.errors import EdisonError, ExitCode, Location, UsageError
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

KEY = "sk-proj-" + "a1B2" * 8


def replace(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `edison admin schema` end in an error of any kind."""

    @click.command(cls=EdisonCommand)
    def broken() -> None:
        """Print the JSON Schema of a file kind."""
        raise error

    monkeypatch.setattr(admin, "schema", broken)


# --- which commands -------------------------------------------------------------------------------


def test_the_help_lists_every_command_once(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "--help")
    assert (done.code, done.err) == (0, "")
    listed = done.out.partition("\nMore")[2].partition("\nOptions:")[0]
    whole = re.sub(r"\n {8,}", " ", listed)  # a long line goes on below its section
    rows = dict(line.strip().split("  ", 1) for line in whole.splitlines()[1:] if line.strip())
    sections = {section: re.sub(r" \(.*?\)", "", names) for section, names in rows.items()}
    for name, entry in commands().items():
        if entry.section == EVERYDAY:
            assert done.out.count(f"\n  {name} ") == 1
            assert entry.line in done.out
        else:
            assert sections[entry.section].strip().split(", ").count(name) == 1
    assert sum(entry.section == EVERYDAY for entry in commands().values()) == 12


def test_the_help_tells_the_exit_codes(edison: Edison, folder: Folder) -> None:
    said = " ".join(edison(folder, "--help").out.split())
    for code in ExitCode:
        assert f" {int(code)} {re.split('[,:;]', code.meaning)[0]}" in said


ADDED_TO = ("admin", "dataset", "github", "import", "roles", "runs")
EVERY_ENTRY = {**commands(), **{f"{g} {n}": e for g in ADDED_TO for n, e in commands(g).items()}}


def test_the_line_about_a_command_is_the_first_of_its_own_help(subtests: pytest.Subtests) -> None:
    for name, entry in EVERY_ENTRY.items():
        with subtests.test(name=name):
            ctx = click.Context(app.edison)
            command: click.Command = app.edison
            for word in name.split():
                assert isinstance(command, click.Group)
                found = command.get_command(ctx, word)
                assert found is not None
                command = found
            assert str(command.help).splitlines()[0] == entry.line
            assert entry.line.endswith(".")


def test_no_command_prints_the_help_and_is_wrong_usage(edison: Edison, folder: Folder) -> None:
    done = edison(folder)
    assert done.code == 2
    assert done.out == ""
    assert done.err == edison(folder, "--help").out


def test_no_command_is_an_error_in_json(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "--json")
    assert json.loads(done.out)["error"]["message"] == "Missing command."


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["valdate"], "did you mean 'validate'?"),
        (["PLAN"], "did you mean 'plan'?"),
        (["compair"], "did you mean 'compare'?"),
        (["models", "xyz"], "commands: add, fetch, list, test"),
        (["models", "lst"], "did you mean 'list'?"),
        (["admin", "prices", "upd"], "did you mean 'update'?"),
    ],
)
def test_an_unknown_command_names_the_nearest(
    edison: Edison, folder: Folder, words: list[str], hint: str
) -> None:
    done = edison(folder, *words)
    assert done.code == 2
    assert f"error: unknown command {words[-1]!r}; {hint}" in done.err
    assert "--help" in done.err


def test_a_former_name_tells_the_command_of_today(
    subtests: pytest.Subtests, edison: Edison, folder: Folder
) -> None:
    for name in RENAMED:
        with subtests.test(name=name):
            done = edison(folder, name, "anything", "--json")
            assert done.code == 2
            assert (
                json.loads(done.out)["error"]["message"]
                == f"edison {name} is now: edison " + (RENAMED[name])
            )
            ctx = click.Context(app.edison)
            command, *words = RENAMED[name].split()
            found = app.edison.get_command(ctx, command)
            if isinstance(found, click.Group):
                assert words[0] in found.list_commands(ctx)
            else:
                assert found is not None
                options = {option for param in found.params for option in param.opts}
                assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["validate", "--stric"], "--strict"),
        (["plan", "--shards", "0"], "1<=x<=256"),
        (["plan", "--shards", "257"], "1<=x<=256"),
        (["plan", "--shards", "two"], "two"),
        (["admin", "schema", "prompts"], "'prompts' is not one of"),
        (["admin", "completion", "tcsh"], "'tcsh' is not one of"),
        (["admin", "completion"], "Missing argument 'SHELL'. Choose from: bash, zsh, fish"),
        (["plan", "--shards"], "Option '--shards' requires an argument."),
        (["explain"], "Missing argument 'CELL'"),
        (["admin", "prices", "update"], "Missing option '--from'"),
        (["init", "--template", "nope"], "'nope' is not one of"),
    ],
    ids=" ".join,
)
def test_wrong_usage_says_what_is_wrong_and_where_help_is(
    edison: Edison, mini: Folder, words: list[str], said: str
) -> None:
    done = edison(mini, *words)
    assert done.code == 2
    assert said in done.err
    path = [word for word in words if word in {*commands(), *commands("admin"), "update"}]
    assert done.err.endswith(f"  see: edison {' '.join(path)} --help\n")
    assert done.out == ""
    assert "Traceback" not in done.err


@pytest.mark.parametrize("name", ["edison", "edison-ci"])
def test_the_version_is_told_by_each_name_of_the_program(name: str, folder: Folder) -> None:
    program = ROOT / ".venv" / "bin" / name
    if not program.exists():  # another environment: the scripts are beside its interpreter
        program = type(program)(sys.executable).parent / name
    for flag in ("--version", "-V"):
        done = subprocess.run([program, flag], capture_output=True, text=True, check=True)
        assert done.stdout == f"edison {__version__}\n"
    assert folder.edison("--version").out == f"edison {__version__}\n"
    assert folder.edison("-q", "--version").out == f"edison {__version__}\n"


# --- endings --------------------------------------------------------------------------------------


def test_a_bug_ends_in_70_with_one_paragraph(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(monkeypatch, KeyError("oops"))
    done = edison(folder, "admin", "schema")
    assert done.code == 70
    assert done.err == (
        "error: a bug in edison: KeyError: 'oops'\n"
        "  run again with --debug and report what it prints\n"
    )
    assert done.out == ""


@pytest.mark.parametrize(
    "error",
    [
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        MemoryError("no more"),
    ],
    ids=str,
)
def test_what_the_machine_refuses_is_no_bug(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    replace(monkeypatch, error)
    done = edison(folder, "admin", "schema")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"error: this machine refused a process, a thread, memory or a file: {error}\n"
        "  free some, or raise its limit (ulimit -a), and run the command again\n"
    )


def test_debug_shows_where_a_bug_is(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(monkeypatch, KeyError("oops"))
    done = edison(folder, "admin", "schema", "--debug")
    assert done.code == 70
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert "in broken" in done.err
    assert done.err.endswith("report what it prints\n")


@pytest.mark.parametrize("flags", [(), ("--debug",), ("--json",)], ids=str)
def test_a_bug_shows_no_secret(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    replace(monkeypatch, RuntimeError(f"cannot use {KEY}"))
    done = edison(folder, "admin", "schema", *flags)
    assert KEY not in done.all
    assert "sk-p..." in done.all


def test_a_bug_is_a_document_in_json(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(monkeypatch, KeyError("oops"))
    told = json.loads(edison(folder, "admin", "schema", "--json").out)
    assert told["error"]["code"] == "bug"
    assert told["exit_code"] == 70


class _OwnError(EdisonError):
    exit_code = ExitCode.NOT_MEASURED
    code = "own"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no", where=Location("a.yaml", 3, 4), hint="do"), 2),
        (_OwnError("no", where=Location("a.yaml", 3, 4), hint="do"), 3),
    ],
)
def test_an_error_says_where_what_and_what_to_do(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch, error: EdisonError, code: int
) -> None:
    replace(monkeypatch, error)
    done = edison(folder, "admin", "schema")
    assert (done.code, done.out) == (code, "")
    assert done.err == "error: a.yaml:3:4: no\n  do\n"
    assert "Traceback" in edison(folder, "--debug", "admin", "schema").err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.exceptions.Abort()])
def test_an_interruption_ends_in_130(
    edison: Edison, folder: Folder, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    replace(monkeypatch, error)
    done = edison(folder, "admin", "schema")
    assert (done.code, done.out, done.err) == (130, "", "stopped\n")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_real_process_in_130(mini: Folder, name: str) -> None:
    mini.git("init", "--quiet")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    # A git that signals the process which started it: certainly in the middle of a command.
    fake = mini.write("bin/git", f"#!/bin/sh\nkill -{name[3:]} $PPID\nexec tail -f /dev/null\n")
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    done = mini.edison("plan", "--changed-since", "HEAD", env={"PATH": path})
    assert (done.code, done.out, done.err) == (130, "", "stopped\n")


def test_an_interruption_before_the_start_ends_in_130_too(folder: Folder) -> None:
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "sys.argv = ['edison', 'validate']\n"
        "from edison_ci.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=folder.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_handler_of_a_signal_is_set_for_the_main_thread_only(
    edison: Edison, folder: Folder
) -> None:
    edison(folder, "admin", "schema")
    assert signal.getsignal(signal.SIGTERM) is app._interrupted


# --- streams that are not as one would like -------------------------------------------------------


def shell(folder: Folder, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -P -m edison_ci"
    return subprocess.run(
        ["bash", "-c", line.replace("edison", program, 1)],
        cwd=folder.path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


@pytest.mark.parametrize("words", ["models --json", "--help", "admin schema experiment"])
def test_a_reader_that_goes_away_is_no_error(mini: Folder, words: str) -> None:
    done = shell(mini, f"edison {words} | head -0; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_a_reader_that_goes_away_does_not_change_the_exit_code(mini: Folder) -> None:
    mini.edit("edison.yaml", "version: 1", "version: 2")
    done = shell(mini, "edison validate -q --json | head -0; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("words", ["models", "nonsense"])
def test_closed_streams_give_no_traceback(mini: Folder, words: str, closed: str) -> None:
    done = shell(mini, f"edison {words} {closed}")
    assert done.returncode == (2 if words == "nonsense" else 0)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.nightly
def test_a_full_disk_is_said(mini: Folder) -> None:
    done = shell(mini, "edison models > /dev/full")
    assert done.returncode == 2
    assert done.stderr == (
        "error: the result cannot be written: No space left on device\n  write to another place\n"
    )


@pytest.mark.parametrize("full", ["> /dev/full", "2> /dev/full", "> /dev/full 2>&1"])
def test_an_error_that_cannot_be_told_is_still_an_exit_code(mini: Folder, full: str) -> None:
    done = shell(mini, f"edison nonsense --json {full}")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_remarks_and_results_come_in_the_order_in_which_they_were_written(mini: Folder) -> None:
    done = shell(mini, "edison try hello --dry-run 2>&1")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("hello v1")
    assert lines[2].startswith("--- user")
    assert lines[-1].endswith("(about 4 bytes a token)")
    done = shell(mini, "edison init new 2>&1")
    assert done.stdout.index("wrote edison.yaml") < done.stdout.index("Next:")


@pytest.mark.nightly
def test_a_narrow_locale_is_no_error(support: Folder) -> None:
    words = "edison try support-reply --dry-run --case return-how"
    done = shell(support, words, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "Customer: Jo\\xe3o" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize(
    "words", ["try --dry-run support-reply --case return-how", "plan", "--help"]
)
def test_what_an_encoding_lacks_is_escaped(
    edison: Edison, support: Folder, encoding: str, words: str
) -> None:
    assert edison(support, *words.split(), encoding=encoding).code == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_the_same_in_every_locale(edison: Edison, support: Folder, encoding: str) -> None:
    words = ("try", "--dry-run", "support-reply", "--case", "return-how", "--json")
    told = json.loads(edison(support, *words, encoding=encoding).out)
    assert "João" in told["messages"][1]["content"]


@pytest.mark.parametrize("width", ["1", "10", "500"])
@pytest.mark.parametrize("words", ["--help", "plan --help", "plan", "nonsense"])
def test_any_width_is_good_enough(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, words: str, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    done = edison(mini, *words.split())
    assert done.code == (2 if words == "nonsense" else 0)


@pytest.mark.nightly
def test_a_command_line_that_is_not_utf_8_is_no_bug(mini: Folder) -> None:
    done = shell(mini, "edison plan $'\\xff\\xfe'")
    assert done.returncode == 2
    assert "there is no experiment" in done.stderr
    done = shell(mini, "edison plan --json $'\\xff\\xfe'")
    assert json.loads(done.stdout)["exit_code"] == 2


def test_a_folder_that_was_removed_is_no_bug(mini: Folder) -> None:
    done = shell(mini, "mkdir gone && cd gone && rmdir ../gone && edison validate")
    assert done.returncode == 2
    assert "error:" in done.stderr
