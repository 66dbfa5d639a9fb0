"""Drafts on the terminal: what a model wrote is accepted, edited, redone or discarded."""

from __future__ import annotations

import sys
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.errors import ConfigError, UsageError
from edison_ci.features.assist import drafting
from edison_ci.numeric import dollars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.cli.options import CliState
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.draft_files import DraftFile
    from edison_ci.features.assist.drafting import Draft, DraftKind, Question

_SHARED = (
    click.option("--by", metavar="MODEL", help="Model that drafts; default: defaults.assistant."),
    click.option("--yes", is_flag=True, help="Accept the first draft, and write it."),
)


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every draft."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


class Option(NamedTuple):
    """A draft that can be accepted."""

    label: str
    text: str
    """What is shown, and edited."""
    name: str = ""
    notes: tuple[str, ...] = ()
    """What speaks for it, line by line."""


class TrialReport(NamedTuple):
    """What a draft does when it is tried."""

    document: dict[str, Any]
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Assistance:
    """One question to a model, and what becomes of its drafts."""

    terminal: Terminal
    project: Project
    drafter: drafting.Drafter
    kind: DraftKind[Any]
    question: Question
    options: Callable[[Any], Sequence[Option]]
    file: Callable[[Option], DraftFile]
    """Returns the file that an accepted draft makes."""
    extension: str = ".md"
    told: dict[str, Any] = field(default_factory=dict)
    as_diff: bool = False
    """Whether a draft is shown as a diff, and not as its text."""
    trial: Callable[[DraftFile], TrialReport] | None = None
    """Tries what a draft proposes, before it is decided."""

    def settle(self, *, yes: bool) -> None:
        """Draft until one is accepted or all are discarded."""
        first = self.drafter.models[0]
        request = self.drafter.request(first, self.kind, self.question)
        sessions.confirm_calls(self.terminal, self.project, [(first, request)], yes=yes)
        asks = sys.stdin.isatty() and sys.stdout.isatty() and not (yes or self.terminal.json)
        number = 0
        while True:
            draft = self.drafter.draft(self.kind, self.question, number)
            options = self.options(draft.value)
            if not asks:
                self._end(draft, options, yes=yes)
                return
            self._show(draft, options)
            if self._decided(draft, options):
                return
            number += 1

    def _end(self, draft: Draft[Any], options: Sequence[Option], *, yes: bool) -> None:
        """Print the drafts, and write the first one if that was asked for."""
        made = self.file(options[0])
        diff = made.diff
        tried = self.trial(made) if self.trial is not None and self.terminal.json else None
        if self.terminal.json:
            if yes and diff:
                made.write(draft)
            self.terminal.document(
                {
                    "drafts": [option._asdict() for option in options],
                    "model": draft.model,
                    "instead_of": draft.instead_of or None,
                    "simulated": self._simulated(draft),
                    "instructions": draft.instructions,
                    "cost_microusd": draft.cost_microusd,
                    "path": made.path,
                    "diff": diff,
                    "written": yes and bool(diff),
                    **self.told,
                    **(tried.document if tried is not None else {}),
                }
            )
            return
        self._show(draft, options)
        if yes and not diff:
            self.terminal.note("nothing is written")
        elif yes:
            if not self.as_diff:
                self._show_diff(diff)
            made.write(draft)
            self._written(made)
        else:
            self.terminal.note("nothing is written; accept the first one with --yes")

    def _simulated(self, draft: Draft[Any]) -> bool:
        return any(each.name == draft.model and each.simulated for each in self.drafter.models)

    def _show(self, draft: Draft[Any], options: Sequence[Option]) -> None:
        for number, option in enumerate(options, start=1):
            head = f"{number}  {option.label}" if len(options) > 1 else option.label
            self.terminal.result(StyledText(head, bold=True))
            for note in option.notes:
                self.terminal.result(f"  {note}", hang=4)
            if self.as_diff:
                self._show_diff(self.file(option).diff)
            else:
                for line in option.text.splitlines():
                    self.terminal.result(f"  {line}")
            self.terminal.result("")
            if self.trial is not None:
                for line in self.trial(self.file(option)).lines:
                    self.terminal.result(line, hang=4)
                self.terminal.result("")
        cost = dollars(draft.cost_microusd) if draft.bought else "stored, no cost"
        instead = (StyledText(f" instead of {draft.instead_of}", ODD),) if draft.instead_of else ()
        mark = simulated_label(self._simulated(draft))
        self.terminal.note(f"by {draft.model}", *instead, f"; {cost}", *mark)

    def _decided(self, draft: Draft[Any], options: Sequence[Option]) -> bool:
        """Ask what becomes of the drafts; return False for another draft."""
        several = len(options) > 1
        which = (
            f"1 to {len(options)} accepts, e1 edits the first" if several else "a accepts, e edits"
        )
        while True:
            said = click.prompt(f"{which}, r redoes, d discards", err=True).strip().lower()
            if said == "r":
                return False
            if said == "d":
                self.terminal.note("discarded; nothing is written")
                return True
            chosen = self._chosen(said, options)
            if chosen is not None and self._accepted(draft, chosen):
                return True

    def _chosen(self, said: str, options: Sequence[Option]) -> Option | None:
        digits = said.removeprefix("e").removeprefix("a") or "1"
        if not digits.isdigit() or not 1 <= int(digits) <= len(options) or not said:
            self.terminal.note(f"{said!r} is none of these")
            return None
        chosen = options[int(digits) - 1]
        if not said.startswith("e"):
            return chosen
        edited = click.edit(chosen.text, extension=self.extension)
        if edited is None:
            self.terminal.note("it was not changed")
            return None
        return chosen._replace(text=edited)

    def _accepted(self, draft: Draft[Any], chosen: Option) -> bool:
        made = self.file(chosen)
        try:
            made.changed()
        except ConfigError as error:
            self.terminal.problems(error.problems)
            return False
        if made.before:
            self._show_diff(made.diff)
            if made.diff and not click.confirm(f"Change {made.path}?", default=True, err=True):
                return False
        if made.diff:
            made.write(draft)
            self._written(made)
        else:
            self.terminal.note("nothing is written")
        return True

    def _show_diff(self, diff: str) -> None:
        colors = {"+": GOOD, "-": BAD}
        if self.as_diff and not diff:
            self.terminal.result("  this is what it has already; nothing would change")
        for line in diff.splitlines():
            self.terminal.result(StyledText(line, colors.get(line[:1])))

    def _written(self, made: DraftFile) -> None:
        for path in made.texts:
            self.terminal.result("  ", StyledText("wrote", GOOD), f" {path}")


def objective_of(experiment: Experiment) -> str:
    """Return the objective; raises UsageError without one."""
    if not experiment.file.objective:
        hint = f"write one: edison assist objective {experiment.id}"
        raise UsageError(f"{experiment.id} has no objective", hint=hint)
    return experiment.file.objective


def open_experiment(
    state: CliState, experiment: str | None, action: str
) -> tuple[Terminal, Project, Experiment]:
    """Return the terminal, the project and the experiment that a draft is for."""
    terminal, project = Terminal(state), lookup.open_project(state)
    chosen = lookup.find_experiment(project, experiment)
    run_sessions.require_editor(project, action)
    return terminal, project, chosen


def drafter_of(state: CliState, project: Project, by: str | None) -> drafting.Drafter:
    """Return what asks the model that drafts."""
    return drafting.Drafter(
        project,
        drafting.assistant_of(project, by),
        run_sessions.run_context(project, offline=state.offline),
    )
