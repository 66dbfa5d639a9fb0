"""The tables of commands, and groups that import a command when it is run.

The tables hold the one-line descriptions, so that help and completion import no command.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from edison_ci.cli.options import EdisonGroup

if TYPE_CHECKING:
    from collections.abc import Mapping


class Entry(NamedTuple):
    """A command in a table: its section of the help, where it is defined, and its line."""

    section: str
    place: str
    line: str
    takes: str = ""
    """The kind of names that its first argument takes; see `NAMED_BY`."""


COMMANDS = {
    "init": Entry("Everyday", "cli.init:init", "Create a project that runs offline."),
    "validate": Entry("Everyday", "cli.validate:validate", "Check every file of the project."),
    "plan": Entry("Everyday", "cli.plan:plan", "Show what a run would do and cost.", "experiments"),
    "try": Entry(
        "Everyday",
        "cli.try_one:try_one",
        "Send one case to a model and show the answer.",
        "prompts",
    ),
    "run": Entry(
        "Everyday", "cli.run:run", "Evaluate experiments and store every answer.", "experiments"
    ),
    "status": Entry(
        "Everyday", "cli.status:status", "List recent runs, or show one in detail.", "runs"
    ),
    "explain": Entry(
        "Everyday", "cli.explain:explain_cell", "Explain why a cell passed or failed.", "cells"
    ),
    "compare": Entry(
        "Everyday", "cli.compare:compare", "Compare two runs, refs or prompt versions.", "runs"
    ),
    "report": Entry(
        "Everyday",
        "cli.report:report",
        "Write a report on a run: HTML, Markdown, CSV, PDF and others.",
        "runs",
    ),
    "refine": Entry(
        "Everyday",
        "features.refine.commands:refine",
        "Suggest a small change to a prompt, tested on held-out cases.",
        "experiments",
    ),
    "serve": Entry("Everyday", "cli.serve:serve", "Serve the results as web pages."),
    "models": Entry(
        "Everyday", "cli.models:models", "List, add or test the models of the project."
    ),
    "demo": Entry(
        "Set up",
        "features.simulator.demo_command:demo",
        "Show the whole workflow in a temporary project, offline.",
    ),
    "assist": Entry(
        "Set up",
        "features.assist.commands:assist",
        "Draft an objective, a rubric, prompts or settings, for you to accept.",
    ),
    "import": Entry(
        "Set up",
        "features.importing.commands:import_",
        "Import files of other tools, answers, traces or bundles.",
    ),
    "dataset": Entry(
        "Set up",
        "features.datasets.commands:dataset",
        "Show, count, check and change the cases of a dataset.",
    ),
    "doctor": Entry("Set up", "cli.doctor:doctor", "Check this machine and this project."),
    "github": Entry(
        "Set up",
        "features.github.commands:github",
        "Report on a pull request from a GitHub Actions job.",
    ),
    "roles": Entry("Team", "cli.roles:roles", "Manage who may sign in to the pages."),
    "secrets": Entry(
        "Team", "cli.secret_keys:secrets", "Seal keys in the repository, list and test them."
    ),
    "trust": Entry("Team", "cli.trust:trust", "Show and edit which key may be sent to which host."),
    "worker": Entry(
        "Team",
        "features.cluster.commands:worker",
        "Make calls for runs of other machines, and connect the machines.",
    ),
    "push": Entry("Team", "features.site.commands:push", "Send runs to a site of a team.", "runs"),
    "pull": Entry(
        "Team",
        "features.site.commands:pull",
        "Fetch runs of this project from a site of a team.",
        "runs",
    ),
    "resume": Entry("Runs", "cli.run:resume", "Resume a run that stopped.", "runs"),
    "rerun": Entry("Runs", "cli.try_one:rerun", "Request another answer for one cell.", "runs"),
    "runs": Entry("Runs", "cli.runs:runs", "Follow, steer, pause, cancel and merge runs."),
    "schedule": Entry(
        "Runs",
        "features.monitor.schedule_commands:schedule",
        "List, edit and carry out schedules of runs.",
    ),
    "regrade": Entry(
        "Grades", "cli.regrade:regrade", "Grade the stored answers of a run again.", "runs"
    ),
    "grade": Entry(
        "Grades", "features.review.grade_command:grade", "Grade answers by hand.", "runs"
    ),
    "calibrate": Entry(
        "Grades",
        "cli.calibrate:calibrate",
        "Compare judges with human grades, and approve them.",
        "experiments",
    ),
    "quarantine": Entry(
        "Grades", "cli.quarantine:quarantine", "Exclude flaky cases from the gates until a date."
    ),
    "leaderboard": Entry(
        "Results",
        "cli.leaderboard:leaderboard",
        "Rank models and prompt versions, recommend one, or rank writers of cases.",
        "experiments",
    ),
    "trends": Entry(
        "Results", "cli.trends:trends", "Show score, cost and latency over runs.", "experiments"
    ),
    "alerts": Entry(
        "Results",
        "features.monitor.alert_commands:alerts",
        "Check for falls, errors and other conditions that need attention.",
    ),
    "notifications": Entry(
        "Results",
        "features.monitor.notification_commands:notifications",
        "List, test and send notifications.",
    ),
    "costs": Entry(
        "Results", "cli.costs:costs", "Show spending and how much of each budget is used."
    ),
    "bisect": Entry(
        "Results", "cli.bisect:bisect", "Find the commit that broke a case.", "experiments"
    ),
    "history": Entry(
        "Improve",
        "cli.versions:history",
        "List the versions of a prompt with their scores.",
        "prompts",
    ),
    "diff": Entry(
        "Improve",
        "cli.versions:diff",
        "Compare the text and the scores of two prompt versions.",
        "prompts",
    ),
    "review": Entry(
        "Improve", "features.review.commands:review", "Review suggested prompt changes."
    ),
    "propose": Entry(
        "Improve",
        "features.review.commands:propose",
        "Push a suggestion to a branch and open a pull request.",
    ),
    "loop": Entry(
        "Improve",
        "features.refine.loop_command:loop",
        "Run and refine repeatedly until the score converges.",
        "experiments",
    ),
    "optimize": Entry(
        "Improve",
        "features.refine.commands:optimize",
        "Search for a better prompt over several generations.",
        "experiments",
    ),
    "promote": Entry(
        "Improve",
        "cli.versions:promote",
        "Mark a prompt version as the one in production.",
        "prompts",
    ),
    "admin": Entry("Admin", "cli.admin:admin", "Look after stored results, prices and the shell."),
}
"""Every command, in the order of the help."""

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

TABLES = {
    "runs": {
        "status": Entry(
            "Commands", "cli.status:status", "List recent runs, or show one in detail.", "runs"
        ),
        "watch": Entry("Commands", "cli.control:watch", "Follow a run of another process.", "runs"),
        "pause": Entry("Commands", "cli.control:pause", "Pause a run; it can be resumed.", "runs"),
        "resume": Entry("Commands", "cli.run:resume", "Resume a run that stopped.", "runs"),
        "cancel": Entry("Commands", "cli.control:cancel", "Cancel a run for good.", "runs"),
        "steer": Entry(
            "Commands",
            "cli.steer:steer",
            "Change a run while it goes on, or show its state.",
            "runs",
        ),
        "merge": Entry(
            "Commands", "cli.merge:merge", "Merge the shards of a run and evaluate its gates."
        ),
    },
    "admin": {
        "db": Entry(
            "Results",
            "features.upkeep.commands:db",
            "Check, back up, restore and sign the results file.",
        ),
        "cache": Entry(
            "Results", "features.upkeep.commands:cache", "Show, clear or export stored answers."
        ),
        "gc": Entry(
            "Results", "features.upkeep.commands:gc", "Delete texts older than retention_days."
        ),
        "audit": Entry("Results", "cli.audit:audit", "Show the audit log, newest first."),
        "forget": Entry(
            "Results",
            "features.upkeep.forget_command:forget_texts",
            "Remove the texts of a case or of a person.",
        ),
        "bundle": Entry(
            "Results",
            "features.upkeep.bundle_command:bundle",
            "Bundle a whole project, or restore one.",
        ),
        "metrics": Entry(
            "Results",
            "features.monitor.metrics_command:metrics",
            "Print metrics for Prometheus, as the pages serve them.",
        ),
        "prices": Entry("Set up", "cli.prices:prices", "Show or update the price table."),
        "schema": Entry("Set up", "cli.schema:schema", "Print the JSON Schema of a file kind."),
        "completion": Entry(
            "Set up", "cli.admin:completion", "Print the completion script of a shell."
        ),
    },
    "dataset": {
        "add": Entry(
            "Commands",
            "features.datasets.edit_commands:add",
            "Add a case to a dataset, from values or from an answer.",
            "experiments",
        ),
        "adversarial": Entry(
            "Commands",
            "features.assist.adversarial_command:adversarial",
            "Have models write cases that the prompt is likely to fail on.",
            "experiments",
        ),
        "coverage": Entry(
            "Commands",
            "features.assist.coverage_commands:coverage",
            "Show which tags, lengths, languages and difficulties the cases cover.",
            "experiments",
        ),
        "edit": Entry(
            "Commands",
            "features.datasets.edit_commands:edit",
            "Edit a case, by options or in $EDITOR.",
            "cases",
        ),
        "fill": Entry(
            "Commands",
            "features.assist.coverage_commands:fill",
            "Have models write cases for what the dataset does not cover.",
            "experiments",
        ),
        "generate": Entry(
            "Commands",
            "features.assist.generate_command:generate",
            "Have models write cases for an experiment, for you to accept.",
            "experiments",
        ),
        "health": Entry(
            "Commands",
            "features.datasets.commands:health",
            "Find duplicate, contradictory, flaky, weak and useless cases.",
            "experiments",
        ),
        "import": Entry(
            "Commands",
            "features.importing.dataset_command:import_cases",
            "Import rows of a CSV, JSON, JSONL or YAML file as cases.",
        ),
        "judge": Entry(
            "Commands",
            "features.datasets.judge_command:judge",
            "Rate the quality of the questions with judges.",
            "experiments",
        ),
        "remove": Entry(
            "Commands",
            "features.datasets.edit_commands:remove",
            "Remove cases from their dataset.",
            "cases",
        ),
        "show": Entry(
            "Commands",
            "features.datasets.commands:show",
            "Show the first cases of an experiment.",
            "experiments",
        ),
        "stats": Entry(
            "Commands",
            "features.datasets.commands:stats",
            "Count the cases by tag, difficulty, kind and length.",
            "experiments",
        ),
        "tag": Entry(
            "Commands",
            "features.datasets.edit_commands:tag",
            "Tag the cases of an experiment, all or some of them.",
            "experiments",
        ),
        "verify": Entry(
            "Commands",
            "features.assist.verify_command:verify_cases",
            "Agree with expected answers that models wrote.",
            "experiments",
        ),
    },
    "github": {
        "annotations": Entry(
            "Commands",
            "features.github.commands:show_annotations",
            "Print annotations on the lines that a change touched.",
            "runs",
        ),
        "approvals": Entry(
            "Commands",
            "features.github.approvals_command:approvals",
            "Check that enough people have approved a pull request.",
        ),
        "comment": Entry(
            "Commands",
            "features.github.comment_command:comment",
            "Post a report as a comment on a pull request, or update it.",
            "runs",
        ),
        "event": Entry(
            "Commands",
            "features.github.commands:event",
            "Show the event of this job, its mode, and what changed.",
        ),
        "run": Entry(
            "Commands",
            "features.github.run_command:run_job",
            "Evaluate the experiments that a change affects, and report on them.",
            "experiments",
        ),
        "summary": Entry(
            "Commands",
            "features.github.commands:show_summary",
            "Write the job summary and the outputs of the step.",
            "runs",
        ),
    },
}
"""Commands of the groups that import lazily, by the name of the group."""


class LazyGroup(EdisonGroup):
    """A group that imports a command when it is run."""

    def __init__(self, *args: Any, table: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command: click.Command = getattr(importlib.import_module(f"edison_ci.{module}"), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return matching commands and shared options, without importing any command."""
        names = (name for name in self.table if name.startswith(incomplete))
        found = [CompletionItem(name, help=self.table[name].line) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections."""
        for section in dict.fromkeys(entry.section for entry in self.table.values()):
            entries = [(name, e.line) for name, e in self.table.items() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(entries)
