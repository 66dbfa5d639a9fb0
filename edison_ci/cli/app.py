"""The `edison` command: its table of commands, exit codes and shell completion.

Commands live in modules of their own that are imported when a command is run. The table holds
their one-line descriptions, so that `edison --help` imports none of them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from edison_ci import __version__
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import Terminal, flush, write
from edison_ci.documents.secrets import RedactingStream, learn
from edison_ci.errors import ConfigError, EdisonError, ExitCode, Location, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Entry(NamedTuple):
    """A command in the table: its section, where it is defined, and its description."""

    section: str
    place: str
    line: str


COMMANDS = {
    "demo": Entry("Start", "demo:demo", "Show the whole workflow in a temporary project, offline."),
    "init": Entry("Start", "init:init", "Create a project that runs offline."),
    "import": Entry(
        "Start",
        "import_:import_",
        "Import files of other tools, answers, traces or bundles.",
    ),
    "validate": Entry("Start", "validate:validate", "Check every file of the project."),
    "plan": Entry("Start", "plan:plan", "Show what a run would do and cost."),
    "render": Entry("Start", "plan:render", "Show the exact request for one case."),
    "try": Entry("Start", "try_one:try_one", "Send one case to a model and show the answer."),
    "run": Entry("Run", "run:run", "Evaluate experiments and store every answer."),
    "resume": Entry("Run", "run:resume", "Resume a run that stopped."),
    "status": Entry("Run", "status:status", "List recent runs, or show one in detail."),
    "watch": Entry("Run", "status:watch", "Follow a run of another process."),
    "pause": Entry("Run", "status:pause", "Pause a run; it can be resumed."),
    "cancel": Entry("Run", "status:cancel", "Cancel a run for good."),
    "merge": Entry("Run", "merge:merge", "Merge the shards of a run and evaluate its gates."),
    "rerun": Entry("Run", "try_one:rerun", "Request another answer for one cell."),
    "compare": Entry("Decide", "compare:compare", "Compare two runs, refs or prompt versions."),
    "ab": Entry("Decide", "compare:ab", "Compare two prompts head to head."),
    "gate": Entry("Decide", "compare:gate", "Re-evaluate a stored run with the current gates."),
    "explain": Entry("Decide", "explain:explain_cell", "Explain why a cell passed or failed."),
    "bisect": Entry("Decide", "bisect:bisect", "Find the commit that broke a case."),
    "regrade": Entry("Decide", "run:regrade", "Grade the stored answers of a run again."),
    "quarantine": Entry(
        "Decide",
        "quarantine:quarantine",
        "Exclude flaky cases from the gates until a date.",
    ),
    "grade": Entry("Decide", "grade:grade", "Grade answers by hand."),
    "calibrate": Entry(
        "Decide", "calibrate:calibrate", "Compare judges with human grades, and approve them."
    ),
    "refine": Entry(
        "Improve", "refine:refine", "Suggest a small change to a prompt, tested on held-out cases."
    ),
    "propose": Entry(
        "Improve", "review:propose", "Push a suggestion to a branch and open a pull request."
    ),
    "review": Entry("Improve", "review:review", "Review suggested prompt changes."),
    "loop": Entry("Improve", "loop:loop", "Run and refine repeatedly until the score converges."),
    "optimize": Entry(
        "Improve", "refine:optimize", "Search for a better prompt over several generations."
    ),
    "promote": Entry(
        "Improve", "versions:promote", "Mark a prompt version as the one in production."
    ),
    "report": Entry(
        "Report", "report:report", "Write a report on a run: HTML, Markdown, CSV, PDF and others."
    ),
    "leaderboard": Entry("Report", "leaderboard:leaderboard", "Rank models and prompt versions."),
    "costs": Entry("Report", "costs:costs", "Show spending and how much of each budget is used."),
    "recommend": Entry(
        "Report", "leaderboard:recommend", "Recommend a model by score, cost and latency."
    ),
    "trends": Entry("Report", "trends:trends", "Show score, cost and latency over runs."),
    "history": Entry(
        "Report", "versions:history", "List the versions of a prompt with their scores."
    ),
    "diff": Entry(
        "Report", "versions:diff", "Compare the text and the scores of two prompt versions."
    ),
    "dataset": Entry("Report", "dataset:dataset", "Show, count and check the cases of a dataset."),
    "serve": Entry("Share", "serve:serve", "Serve the results as web pages."),
    "roles": Entry("Share", "roles:roles", "Manage who may sign in to the pages."),
    "github": Entry(
        "Share", "github:github", "Report on a pull request from a GitHub Actions job."
    ),
    "models": Entry("Set up", "models:models", "List or test the models of the project."),
    "prices": Entry("Set up", "prices:prices", "Show or update the price table."),
    "schema": Entry("Set up", "schema:schema", "Print the JSON Schema of a file kind."),
    "doctor": Entry("Set up", "doctor:doctor", "Check this machine and this project."),
    "completion": Entry("Set up", "app:completion", "Print the completion script of a shell."),
    "cache": Entry("Maintain", "db:cache", "Show, clear or export stored answers."),
    "gc": Entry("Maintain", "db:gc", "Delete texts older than retention_days."),
    "audit": Entry("Maintain", "audit:audit", "Show the audit log, newest first."),
    "db": Entry("Maintain", "db:db", "Check, upgrade, back up and sign the results file."),
}
"""Every command, in the order of the help."""

COMPLETE = "_EDISON_COMPLETE"
"""Environment variable by which a shell requests completions."""


class LazyGroup(EdisonGroup):
    """A group that imports a command when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command: click.Command = getattr(importlib.import_module(f"edison_ci.cli.{module}"), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return matching commands and shared options, without importing any command."""
        names = (name for name in COMMANDS if name.startswith(incomplete))
        found = [CompletionItem(name, help=COMMANDS[name].line) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            entries = [(name, e.line) for name, e in COMMANDS.items() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(entries)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), code.meaning) for code in ExitCode])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "EDISON"},
)
@click.version_option(
    __version__, "-V", "--version", prog_name="edison", message="%(prog)s %(version)s"
)
def edison() -> None:
    """Evaluate and refine prompts that live in a Git repository.

    Examples:
      edison init my-prompts     create a project that runs offline
      edison validate            check every file
      edison plan                show what a run would do and cost
      edison run                 evaluate, and store every answer
    """


def run(args: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its exit code."""
    if instruction := os.environ.get(COMPLETE):
        sys.exit(shell_complete(edison, {}, "edison", COMPLETE, instruction))
    learn(os.environ)
    with _redacted_streams():
        _run(list(sys.argv[1:] if args is None else args))


@contextlib.contextmanager
def _redacted_streams() -> Iterator[None]:
    """Redact secrets from everything that is written to stdout and stderr."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        None if stream is None else RedactingStream(stream) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _run(words: list[str]) -> NoReturn:
    state = CliState()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupted)
    try:
        code = _invoke(words, state)
        flush(sys.stdout)
    except BaseException as error:  # the one place where every exception becomes a message
        # A command line that could not be parsed may ask for JSON further on.
        state.json = state.json or "--json" in words
        code = _report_failure(error, state, words)
    flush(sys.stderr)
    sys.exit(code)


def _report_failure(error: BaseException, state: CliState, words: list[str]) -> int:
    try:
        code = _exit_code(error, state, words)
        flush(sys.stdout)
    except UsageError as full:  # stdout cannot be written: report that instead, on stderr
        code = _exit_code(full, state, words)
    return code


def _interrupted(_signal: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def _invoke(words: list[str], state: CliState) -> int:
    with edison.make_context("edison", words, obj=state) as ctx:
        edison.invoke(ctx)
    return ExitCode.DONE


def _exit_code(error: BaseException, state: CliState, words: list[str]) -> int:
    terminal = Terminal(state)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return ExitCode.DONE  # the reader, such as `head`, has seen enough
    if isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
        terminal.note("stopped")
        return ExitCode.PAUSED
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not state.json:
        click.echo(error.format_message(), err=True)
        return ExitCode.INVALID
    if isinstance(error, click.ClickException):
        return terminal.failure(_usage(error, words), ExitCode.INVALID)
    if state.debug:
        terminal.traceback(error)
    if type(error).__module__ == "sqlite3":
        from edison_ci.store.database import unknown_store_error

        error = unknown_store_error(error)
    if isinstance(error, ConfigError):
        return terminal.invalid(error)
    if isinstance(error, EdisonError):
        where = error.where or Location("")
        problem = Problem(where, error.code, error.message, error.hint)
        return terminal.failure(problem, error.exit_code)
    said = f"a bug in edison: {type(error).__name__}: {error}"
    hint = "run again with --debug and report what it prints"
    return terminal.failure(Problem(Location(""), "bug", said, hint), ExitCode.BUG)


def _usage(error: click.ClickException, words: list[str]) -> Problem:
    ctx = getattr(error, "ctx", None)
    named = [word for word in words if word in COMMANDS][:1]
    path = ctx.command_path if ctx is not None else " ".join(["edison", *named])
    no_words = isinstance(error, click.exceptions.NoArgsIsHelpError)
    said = "Missing command." if no_words else " ".join(error.format_message().split())
    return Problem(Location(""), "usage", said, f"see: {path} --help")


def all_commands() -> dict[str, click.Command]:
    """Import and return every command by its full name; for documentation and tests."""
    ctx = click.Context(edison, info_name="edison")
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = edison.get_command(ctx, name)
        assert command is not None, name
        found[name] = command
        below = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {word}": each for word, each in below.items()}
    return found


SHELLS = ("bash", "zsh", "fish")


@click.command(cls=EdisonCommand)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    SHELL is bash, zsh or fish. The script asks edison for completions, so it stays valid when
    commands are added.

    Examples:
      edison completion bash >> ~/.bashrc
      edison completion zsh > "${fpath[1]}/_edison"
      edison completion fish > ~/.config/fish/completions/edison.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    source = kind(ctx.find_root().command, {}, "edison", COMPLETE)
    # Only the template: click's `source()` starts bash to check its version.
    write(sys.stdout, source.source_template % source.source_vars())
