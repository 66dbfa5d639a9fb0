"""The tables of commands, and groups that import a command when it is run.

The tables hold the one-line descriptions, so that help and completion import no command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from edison_ci import feature
from edison_ci.cli.options import EdisonGroup
from edison_ci.feature import Command

if TYPE_CHECKING:
    from collections.abc import Iterator


_Sections = dict[str, dict[str, tuple[str, ...]]]


def _commands(sections: _Sections) -> dict[str, Command]:
    """Return commands from their sections, by name: place in this package, line, what they take."""
    return {
        name: Command(section, f"edison_ci.cli.{place}", *words)
        for section, entries in sections.items()
        for name, (place, *words) in entries.items()
    }


COMMANDS = _commands(
    {
        "Everyday": {
            "init": ("init:init", "Create a project that runs offline."),
            "validate": ("validate:validate", "Check every file of the project."),
            "plan": ("plan:plan", "Show what a run would do and cost.", "experiments"),
            "try": ("try_one:try_one", "Send one case to a model and show the answer.", "prompts"),
            "run": ("run:run", "Evaluate experiments and store every answer.", "experiments"),
            "status": ("status:status", "List recent runs, or show one in detail.", "runs"),
            "explain": ("explain:explain_cell", "Explain why a cell passed or failed.", "cells"),
            "compare": ("compare:compare", "Compare two runs, refs or prompt versions.", "runs"),
            "report": (
                "report:report",
                "Write a report on a run: HTML, Markdown, CSV, PDF and others.",
                "runs",
            ),
            "serve": ("serve:serve", "Serve the results as web pages."),
            "models": ("models:models", "List, add or test the models of the project."),
        },
        "Set up": {
            "doctor": ("doctor:doctor", "Check this machine and this project."),
        },
        "Team": {
            "roles": ("roles:roles", "Manage who may sign in to the pages."),
            "secrets": ("secret_keys:secrets", "Seal keys in the repository, list and test them."),
            "trust": ("trust:trust", "Show and edit which key may be sent to which host."),
        },
        "Runs": {
            "resume": ("run:resume", "Resume a run that stopped.", "runs"),
            "rerun": ("try_one:rerun", "Request another answer for one cell.", "runs"),
            "runs": ("groups:runs", "Follow, steer, pause, cancel and merge runs."),
        },
        "Grades": {
            "regrade": ("regrade:regrade", "Grade the stored answers of a run again.", "runs"),
            "calibrate": (
                "calibrate:calibrate",
                "Compare judges with human grades, and approve them.",
                "experiments",
            ),
            "quarantine": (
                "quarantine:quarantine",
                "Exclude flaky cases from the gates until a date.",
            ),
        },
        "Results": {
            "leaderboard": (
                "leaderboard:leaderboard",
                "Rank models and prompt versions, or recommend one.",
                "experiments",
            ),
            "trends": ("trends:trends", "Show score, cost and latency over runs.", "experiments"),
            "costs": ("costs:costs", "Show spending and how much of each budget is used."),
            "bisect": ("bisect:bisect", "Find the commit that broke a case.", "experiments"),
        },
        "Improve": {
            "history": (
                "versions:history",
                "List the versions of a prompt with their scores.",
                "prompts",
            ),
            "diff": (
                "versions:diff",
                "Compare the text and the scores of two prompt versions.",
                "prompts",
            ),
            "promote": (
                "versions:promote",
                "Mark a prompt version as the one in production.",
                "prompts",
            ),
        },
        "Admin": {
            "admin": ("groups:admin", "Look after stored results, prices and the shell."),
        },
    }
)
"""Commands of the program, in the order of the help; features add theirs."""

EVERYDAY = "Everyday"
"""The section whose commands the help describes; it only names those of the others."""

RENAMED = {
    "ab": "compare --prompts PROMPT_A PROMPT_B",
    "gate": "compare --gates RUN",
    "recommend": "leaderboard --recommend",
    "render": "try PROMPT --dry-run",
    "merge": "runs merge SHARD.db...",
    **{name: f"runs {name}" for name in ("watch", "pause", "cancel")},
    **{
        name: f"admin {name}"
        for name in ("cache", "gc", "db", "audit", "forget", "prices", "schema", "completion")
    },
}
"""Former names of commands, and what to type instead."""

GROUPS = {
    "runs": _commands(
        {
            "Commands": {
                "status": ("status:status", "List recent runs, or show one in detail.", "runs"),
                "watch": ("control:watch", "Follow a run of another process.", "runs"),
                "pause": ("control:pause", "Pause a run; it can be resumed.", "runs"),
                "resume": ("run:resume", "Resume a run that stopped.", "runs"),
                "cancel": ("control:cancel", "Cancel a run for good.", "runs"),
                "steer": (
                    "control:steer",
                    "Change a running run, or show its state.",
                    "runs",
                ),
                "merge": ("merge:merge", "Merge the shards of a run and evaluate its gates."),
            },
        }
    ),
    "admin": _commands(
        {
            "Results": {
                "audit": ("audit:audit", "Show the audit log, newest first."),
            },
            "Set up": {
                "prices": ("prices:prices", "Show or update the price table."),
                "schema": ("admin:schema", "Print the JSON Schema of a file kind."),
                "completion": ("admin:completion", "Print the completion script of a shell."),
            },
        }
    ),
}
"""Commands of the groups that import lazily, by the name of the group; features add theirs."""


def commands(group: str = "") -> dict[str, Command]:
    """Return the commands of a group, or of the program: its own first, then those of features."""
    own = GROUPS.get(group, {}) if group else COMMANDS
    return {**own, **feature.commands(group)}


class LazyGroup(EdisonGroup):
    """A group that imports a command when it is run; features add commands to it."""

    @property
    def _above(self) -> str:
        return "" if self.name == "edison" else str(self.name)

    @property
    def table(self) -> dict[str, Command]:
        """The commands that are not imported yet."""
        return commands(self._above)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        names = [*self.commands, *self.table]
        return sorted(names) if self.commands else names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        entry = self._own(cmd_name) or self.table.get(cmd_name)
        if not isinstance(entry, Command):
            return entry
        command: click.Command = feature.load(entry.place)
        return command

    def _own(self, name: str) -> click.Command | Command | None:
        """Return what the core has by this name, for which no feature is looked at."""
        table = GROUPS.get(self._above, {}) if self._above else COMMANDS
        return self.commands.get(name) or table.get(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; raises UsageError if its feature is switched off."""
        if not args or ctx.resilient_parsing or self._own(args[0]):
            return click.Group.resolve_command(self, ctx, args)
        if name := feature.feature_with(f"{self._above} {args[0]}".strip()):
            raise click.UsageError(feature.off_hint(name), ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return matching commands and shared options, without importing any command."""
        lines = dict(self._lines(ctx))
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        matching = [CompletionItem(name, help=lines[name]) for name in names]
        return matching + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections."""
        table, sections = self.table, dict[str, list[tuple[str, str]]]()
        for name, line in self._lines(ctx):
            title = table[name].section if name in table else "Commands"
            sections.setdefault(title, []).append((name, line))
        for title, entries in sections.items():
            with formatter.section(title):
                formatter.write_dl(entries)

    def _lines(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Yield each name with the line of its help."""
        table = self.table
        for name in self.list_commands(ctx):
            own = self.commands.get(name)
            yield name, table[name].line if own is None else own.get_short_help_str(limit=100)


@click.group(cls=LazyGroup)
def runs() -> None:
    """Follow, steer, pause, cancel and merge runs.

    Examples:
      edison runs status
      edison runs watch
      edison runs steer --concurrency small=20
      edison runs pause support-reply
      edison runs merge shards/*.db
    """


@click.group(cls=LazyGroup)
def admin() -> None:
    """Look after stored results, prices and the shell.

    Examples:
      edison admin db check
      edison admin cache stats
      edison admin audit --verify
      edison admin completion bash >> ~/.bashrc
    """
