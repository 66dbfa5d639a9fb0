"""The group of commands, and how a command ends.

Commands live in modules of their own, imported only when asked for; this table carries their
one-line descriptions so that `edison --help` imports none of them.
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
from click.shell_completion import CompletionItem, shell_complete

from edison_ci import __version__
from edison_ci.cli.options import EdisonGroup, State
from edison_ci.cli.terminal import Terminal, flush
from edison_ci.documents.secrets import HidingStream, learn
from edison_ci.errors import ConfigError, EdisonError, ExitCode, Location, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Entry(NamedTuple):
    """Where a command is and what it does."""

    section: str
    place: str
    line: str


COMMANDS = {
    "demo": Entry("Start", "demo:demo", "See it work, offline, in a minute."),
    "init": Entry("Start", "init:init", "Make a project that runs offline at once."),
    "import": Entry("Start", "import_:import_", "Take over what other tools or machines wrote."),
    "validate": Entry("Start", "validate:validate", "Check every file, line by line."),
    "plan": Entry("Start", "plan:plan", "Show what a run would do and cost."),
    "render": Entry("Start", "render:render", "Show exactly what a model would be sent."),
    "try": Entry("Start", "try_one:try_one", "Send one case once, and show the answer."),
    "run": Entry("Run", "run:run", "Evaluate, and store every answer."),
    "resume": Entry("Run", "run:resume", "Go on with a run that stopped."),
    "status": Entry("Run", "status:status", "Show the last runs, or one in full."),
    "watch": Entry("Run", "status:watch", "Follow a run that goes on elsewhere."),
    "pause": Entry("Run", "status:pause", "Stop a run so that it can go on later."),
    "cancel": Entry("Run", "status:cancel", "Stop a run for good."),
    "merge": Entry("Run", "merge:merge", "Put the shards of a run together, and decide."),
    "rerun": Entry("Run", "try_one:rerun", "Buy a further answer to one cell."),
    "compare": Entry("Decide", "compare:compare", "Say whether B is better than A."),
    "ab": Entry("Decide", "compare:ab", "Say which of two prompts is better."),
    "gate": Entry("Decide", "compare:gate", "Say what the gates of today say of a run."),
    "explain": Entry("Decide", "explain:explain_cell", "Show why a cell passed or failed."),
    "bisect": Entry("Decide", "bisect:bisect", "Find the commit that broke a case."),
    "regrade": Entry("Decide", "regrade:regrade", "Grade the answers of a run anew."),
    "quarantine": Entry(
        "Decide", "quarantine:quarantine", "Set flaky cases aside, with a reason and a last day."
    ),
    "refine": Entry("Improve", "refine:refine", "Suggest a small change to a prompt, with proof."),
    "propose": Entry(
        "Improve", "propose:propose", "Put a suggestion on a branch, and open a pull request."
    ),
    "review": Entry("Improve", "review:review", "Decide about suggested changes of prompts."),
    "loop": Entry("Improve", "loop:loop", "Run and refine until it gets no better."),
    "optimize": Entry(
        "Improve", "optimize:optimize", "Search for a better prompt over generations."
    ),
    "promote": Entry(
        "Improve", "promote:promote", "Mark the version of a prompt that is in production."
    ),
    "report": Entry(
        "Read", "report:report", "Write what a run found as a page, a table or a document."
    ),
    "grade": Entry("Decide", "grade:grade", "Grade answers by hand."),
    "calibrate": Entry("Decide", "calibrate:calibrate", "Hold judges to what people say."),
    "leaderboard": Entry("Read", "leaderboard:leaderboard", "Rank models and prompt versions."),
    "costs": Entry("Read", "costs:costs", "Show what was spent, and how much of each limit."),
    "recommend": Entry("Read", "recommend:recommend", "Say which model to use, and why."),
    "trends": Entry("Read", "trends:trends", "Show score, cost and latency from run to run."),
    "history": Entry("Read", "history:history", "Show the versions of a prompt and how each did."),
    "diff": Entry("Read", "diff:diff", "Compare two versions of a prompt."),
    "dataset": Entry("Read", "dataset:dataset", "Show cases, count them, and look for bad ones."),
    "serve": Entry("Share", "serve:serve", "Show the results as pages in a browser."),
    "roles": Entry("Share", "roles:roles", "Say who may sign in to the pages, and how."),
    "github": Entry("Share", "github:github", "Report on a pull request, from a job on GitHub."),
    "models": Entry("Look up", "models:models", "List the models of the project."),
    "prices": Entry("Look up", "prices:prices", "Show or update the price table."),
    "schema": Entry("Look up", "schema:schema", "Print the JSON Schema of a file kind."),
    "doctor": Entry("Look up", "doctor:doctor", "Check this machine and this project."),
    "completion": Entry("Look up", "completion:completion", "Print a shell's completion."),
    "cache": Entry("Look after", "cache:cache", "Show, clear or export the stored answers."),
    "gc": Entry("Look after", "gc:gc", "Take away texts older than retention_days."),
    "audit": Entry("Look after", "audit:audit", "Show who changed what, newest first."),
    "db": Entry("Look after", "db:db", "Check, upgrade, back up and sign the results."),
}
"""Every command that works, in the order of the help."""

COMPLETE = "_EDISON_COMPLETE"
"""Variable by which a shell asks for completions."""


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
        """Return the commands and options that start so, without importing any command."""
        names = (name for name in COMMANDS if name.startswith(incomplete))
        found = [CompletionItem(name, help=COMMANDS[name].line) for name in names]
        # The options are those of any command.
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            entries = [(name, e.line) for name, e in COMMANDS.items() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(entries)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the exit codes mean."""
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
      edison init my-prompts     make a project that runs offline
      edison validate            check every file
      edison plan                show what a run would do and cost
      edison run                 evaluate, and store every answer
    """


def run(args: list[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code."""
    if instruction := os.environ.get(COMPLETE):
        sys.exit(shell_complete(edison, {}, "edison", COMPLETE, instruction))
    learn(os.environ)
    with _hiding():
        _run(list(sys.argv[1:] if args is None else args))


@contextlib.contextmanager
def _hiding() -> Iterator[None]:
    """Let no secret through to the streams, whoever writes to them."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (None if stream is None else HidingStream(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _run(words: list[str]) -> NoReturn:
    state = State()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupted)
    try:
        code = _invoke(words, state)
        flush(sys.stdout)
    except BaseException as error:  # the one place where every ending is turned into words
        # Whoever wants JSON wants it of a command line too that could not be read to its end.
        state.json = state.json or "--json" in words
        code = _told(error, state, words)
    flush(sys.stderr)
    sys.exit(code)


def _told(error: BaseException, state: State, words: list[str]) -> int:
    try:
        code = _ending(error, state, words)
        flush(sys.stdout)
    except UsageError as full:  # once more: what cannot be written is thrown away from now on
        code = _ending(full, state, words)
    return code


def _interrupted(_signal: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def _invoke(words: list[str], state: State) -> int:
    with edison.make_context("edison", words, obj=state) as ctx:
        edison.invoke(ctx)
    return ExitCode.DONE


def _ending(error: BaseException, state: State, words: list[str]) -> int:
    terminal = Terminal(state)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return ExitCode.DONE  # whoever read the help has seen enough
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
        from edison_ci.store.database import unreadable

        error = unreadable(error)
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
    """Return every command by its words, imported; for documentation and tests."""
    ctx = click.Context(edison, info_name="edison")
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = edison.get_command(ctx, name)
        assert command is not None, name
        found[name] = command
        below = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {word}": each for word, each in below.items()}
    return found
