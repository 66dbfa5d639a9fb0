"""Drafts on a terminal: accepted, edited, redone or discarded, and written with an audit entry.

The commands of `edison assist` and the wizard show proposals and ask about them by `Questions`.
"""

from __future__ import annotations

import sys
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import load
from edison_ci.documents import decoding, files, marks, secrets, text_diff
from edison_ci.errors import ConfigError, EdisonError, Severity
from edison_ci.features.assist import drafting
from edison_ci.sanitize import line
from edison_ci.store import audit as store_audit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from edison_ci.cli.options import CliState
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.assist.commands import DraftOptions
    from edison_ci.features.assist.draft_kinds import Proposal, Proposals
    from edison_ci.features.assist.drafting import Draft, DraftTask


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A file as a proposal would make it, with others that go with it."""

    project: Project
    path: str
    text: str
    others: Mapping[str, str] = field(default_factory=dict)
    """Texts by path, of files that are written before it."""

    @property
    def before(self) -> str:
        """The text that is there; empty if there is none."""
        return self._before(self.path)

    def _before(self, path: str) -> str:
        tree = self.project.tree
        return decoding.decode(files.read(tree, path)) if tree.exists(path) else ""

    @property
    def texts(self) -> dict[str, str]:
        """All texts by path, in the order in which they are written."""
        return {**self.others, self.path: self.text}

    @property
    def diff(self) -> str:
        """The change of the files; empty if nothing changes."""
        return "".join(
            text_diff.diff_of(path, self._before(path), text) for path, text in self.texts.items()
        )

    def changed(self) -> Project:
        """Return the project with the files; raises ConfigError with what they make invalid."""
        tree = self.project.tree
        for path, text in self.texts.items():
            tree = files.OverlayTree(tree, path, text)
        project, problems = load.inspect_project(tree, root=self.project.root)
        _, earlier = load.inspect_project(self.project.tree)
        reported = {(problem.where.file, problem.code, problem.message) for problem in earlier}
        wrong = [
            problem
            for problem in problems
            if problem.severity is Severity.ERROR
            and (problem.where.file, problem.code, problem.message) not in reported
        ]
        if wrong or project is None:
            raise ConfigError(wrong or problems)
        return project

    def write(self, draft: Draft[object]) -> None:
        """Write the files, with an audit entry that names the model and the instructions."""
        self.changed()
        site = sites.Site(self.project.root, self.project.file)
        actor = site.require(sites.Role.EDITOR, "assist", self.path)
        after = {"model": draft.model, "instructions": draft.instructions[:12]}
        entry = site.entry(actor, "assist", self.path, after=after)
        for path, text in self.texts.items():
            place = files.in_repository(site.root, path)
            audit = (
                (lambda: store_audit.write_audit(site.results, entry))
                if path == self.path
                else None
            )
            files.replace_file(*place, text.encode("utf-8"), just_before=audit)


class GoBack(Exception):
    """The person wants the question before."""


class Later(Exception):
    """The person stops for now."""


@dataclass(frozen=True, slots=True)
class DraftStep:
    """What a step of the wizard offers, and what it does with what is accepted."""

    draft: Callable[[int], Sequence[Proposal]]
    """Returns proposals by number of the draft; raises EdisonError."""
    accept: Callable[[Proposal], None]
    """Takes a proposal; raises ConfigError, EdisonError or Fault with what is wrong."""
    own: Callable[[], Proposal | None]
    """Asks for a text of the person's own; None if there is none."""
    extension: str = ".yaml"
    redone: Callable[[], int] = lambda: 0
    """Returns the number of the next draft."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks a person at a terminal."""

    terminal: Terminal

    def ask(self, question: str, default: str = "") -> str:
        """Return the answer, or the default if it is empty; raises GoBack or Later."""
        while True:
            # The question may hold names of a file that is imported.
            answer: str = click.prompt(
                line(question), default=default, show_default=False, prompt_suffix=": ", err=True
            )
            answer = answer.strip()
            if answer.lower() == "b":
                raise GoBack
            if answer.lower() == "q":
                raise Later
            if not any(secrets.secrets_in(answer)):
                return answer
            self.wrong("this looks like a key, so it is not kept; keys stay in the environment")

    def ask_one_of(self, question: str, answers: Collection[str]) -> str:
        """Ask until the answer is one of these, in lower case; raises GoBack or Later."""
        while (answer := self.ask(question).lower()) not in answers:
            self.wrong(f"{answer!r} is none of these")
        return answer

    def edit(self, text: str, extension: str) -> str | None:
        """Return a text as a person changed it in an editor; None if it is the same."""
        try:
            edited = click.edit(text, extension=extension)
        except click.ClickException as error:
            self.wrong(f"{error.message}; set EDITOR to an editor that is installed")
            return None
        if edited is None or edited.strip() == text.strip():
            self.terminal.note("it was not changed")
            return None
        return edited

    def wrong(self, text: str) -> None:
        """Show what is wrong with an answer."""
        self.terminal.note(StyledText(text, BAD))

    def choose(self, answer: str, proposals: Sequence[Proposal], extension: str) -> Proposal | None:
        """Return the proposal that an answer such as "2", "a" or "e1" names, edited if it says so.

        Returns None, after saying why, if there is none.
        """
        digits = answer.removeprefix("e").removeprefix("a") or "1"
        place = int(digits) if digits.isascii() and digits.isdigit() else 0
        if not 1 <= place <= len(proposals):
            self.wrong(f"{answer!r} is none of these")
            return None
        chosen = proposals[place - 1]
        if not answer.startswith("e"):
            return chosen
        edited = self.edit(chosen.text, extension)
        return None if edited is None else replace(chosen, text=edited, by=None)

    def settle(self, step: DraftStep, current: Proposal | None, number: int) -> None:
        """Offer drafts until one is accepted; what was accepted before is offered first."""
        kept = current is not None
        proposals = [current] if current is not None else self._draft(step, number)
        while True:
            answer = self.ask(_question(len(proposals), kept=kept)).lower()
            if answer == "r":
                proposals, kept = self._draft(step, step.redone()), False
                continue
            chosen = step.own() if answer == "o" else self.choose(answer, proposals, step.extension)
            if chosen is not None and self._accepted(step, chosen):
                return

    def _draft(self, step: DraftStep, number: int) -> Sequence[Proposal]:
        try:
            proposals = step.draft(number)
        except EdisonError as error:
            self.failed(error)
            return ()
        self.show(proposals)
        return proposals

    def show(self, proposals: Sequence[Proposal]) -> None:
        """Print proposals, numbered if there are several."""
        for number, proposal in enumerate(proposals, start=1):
            if proposal.label:
                several = len(proposals) > 1
                head = f"{number}  {proposal.label}" if several else proposal.label
                self.terminal.result(StyledText(head, bold=True), hang=3)
            for row in proposal.summary or proposal.text.splitlines():
                self.terminal.result(f"  {row}", hang=4)
            self.terminal.result()

    def _accepted(self, step: DraftStep, chosen: Proposal) -> bool:
        try:
            step.accept(chosen)
        except ConfigError as error:
            self.terminal.problems(error.problems)
        except EdisonError as error:
            self.failed(error)
        except marks.Fault as fault:
            self.wrong(fault.message)
        else:
            return True
        return False

    def failed(self, error: EdisonError) -> None:
        """Show what went wrong, and what can be done about it."""
        self.wrong(error.message)
        if error.hint:
            self.terminal.note(f"  {error.hint}")


def _question(proposals: int, *, kept: bool) -> str:
    rest = "r drafts again" if kept else "r redoes"
    rest += ", o writes your own, b goes back"
    if proposals == 0:
        return f"r tries again, {rest.partition(', ')[2]}"
    if proposals == 1:
        return f"Enter {'keeps' if kept else 'accepts'}, e edits, {rest}"
    return f"1 to {proposals} accepts (Enter: 1), e1 edits, {rest}"


class TrialReport(NamedTuple):
    """What a draft does when it is tried."""

    document: dict[str, Any]
    lines: list[str]


@dataclass(frozen=True, slots=True)
class DraftSession:
    """The experiment that drafts are for, and the model that writes them."""

    terminal: Terminal
    project: Project
    experiment: Experiment
    drafter: drafting.Drafter
    yes: bool

    @classmethod
    def open(cls, state: CliState, options: DraftOptions, action: str) -> DraftSession:
        """Return the session of a command; raises UsageError."""
        terminal, project = Terminal(state), lookup.open_project(state, options.experiment)
        experiment = lookup.find_experiment(project, options.experiment)
        run_sessions.require_editor(project, action)
        assistant = drafting.assistant_of(project, options.by)
        context = run_sessions.run_context(project, offline=state.offline)
        drafter = drafting.Drafter(project, assistant, context)
        return cls(terminal, project, experiment, drafter, options.yes)

    def file(self, path: str, text: str) -> DraftFile:
        """Return a file of the project with another text."""
        return DraftFile(self.project, path, text)


@dataclass(frozen=True, slots=True)
class DraftDialog:
    """One draft: asked for, shown, and written if it is accepted."""

    session: DraftSession
    task: DraftTask[Proposals]
    file: Callable[[Proposal], DraftFile]
    """Returns the file that an accepted proposal makes."""
    extension: str = ".md"
    present: Callable[[Proposal], Proposal] = lambda proposal: proposal
    """Completes what the model proposed."""
    facts: dict[str, Any] = field(default_factory=dict)
    """More of the JSON document."""
    as_diff: bool = False
    """Whether a proposal is shown as a diff, and not as its text."""
    trial: Callable[[DraftFile], TrialReport] | None = None
    """Tries what is proposed, before it is decided."""

    @property
    def _terminal(self) -> Terminal:
        return self.session.terminal

    def settle(self) -> None:
        """Draft until a proposal is accepted or all are discarded."""
        terminal, yes = self._terminal, self.session.yes
        job = drafting.DraftJob(self.session.drafter, self.task)
        sessions.confirm_calls(terminal, self.session.project, [job.call], yes=yes)
        asks = sys.stdin.isatty() and sys.stdout.isatty() and not (yes or terminal.json)
        number = 0
        while True:
            draft = self.session.drafter.draft(self.task, number)
            proposals = [self.present(proposal) for proposal in draft.value]
            if terminal.json:
                self._document(draft, proposals)
                return
            self._show(draft, proposals)
            if not asks:
                self._end(draft, self.file(proposals[0]))
                return
            if self._decided(draft, proposals):
                return
            number += 1

    def _document(self, draft: Draft[Any], proposals: Sequence[Proposal]) -> None:
        """Print the drafts as JSON, and write the first one if that was asked for."""
        made = self.file(proposals[0])
        diff = made.diff
        trial = self.trial(made).document if self.trial is not None else {}
        writes = self.session.yes and bool(diff)
        if writes:
            made.write(draft)
        keys = ("label", "text", "name", "notes")
        self._terminal.document(
            {
                "drafts": [{key: getattr(draft, key) for key in keys} for draft in proposals],
                "model": draft.model,
                "instead_of": draft.instead_of or None,
                "simulated": self._simulated(draft),
                "instructions": draft.instructions,
                "cost_microusd": draft.cost_microusd,
                "path": made.path,
                "diff": diff,
                "written": writes,
                "experiment": self.session.experiment.id,
                **self.facts,
                **trial,
            }
        )

    def _end(self, draft: Draft[Any], made: DraftFile) -> None:
        """Write a file if that was asked for."""
        if not self.session.yes:
            self._terminal.note("nothing is written; accept the first one with --yes")
            return
        if made.diff and not self.as_diff:
            self._show_diff(made.diff)
        self._write(draft, made)

    def _write(self, draft: Draft[Any], made: DraftFile) -> None:
        if not made.diff:
            self._terminal.note("nothing is written")
            return
        made.write(draft)
        for path in made.texts:
            self._terminal.result("  ", StyledText("wrote", GOOD), f" {path}")

    def _simulated(self, draft: Draft[Any]) -> bool:
        models = self.session.drafter.models
        return any(model.name == draft.model and model.simulated for model in models)

    def _show(self, draft: Draft[Any], proposals: Sequence[Proposal]) -> None:
        terminal = self._terminal
        for number, proposal in enumerate(proposals, start=1):
            head = f"{number}  {proposal.label}" if len(proposals) > 1 else proposal.label
            terminal.result(StyledText(head, bold=True))
            for note in proposal.notes:
                terminal.result(f"  {note}", hang=4)
            if self.as_diff:
                self._show_diff(self.file(proposal).diff)
            else:
                for text in proposal.text.splitlines():
                    terminal.result(f"  {text}")
            terminal.result("")
            if self.trial is not None:
                for text in self.trial(self.file(proposal)).lines:
                    terminal.result(text, hang=4)
                terminal.result("")
        instead = (StyledText(f" instead of {draft.instead_of}", ODD),) if draft.instead_of else ()
        mark = simulated_label(self._simulated(draft))
        terminal.note(f"by {draft.model}", *instead, f"; {draft.price}", *mark)

    def _decided(self, draft: Draft[Any], proposals: Sequence[Proposal]) -> bool:
        """Ask which proposal is accepted; return False for another draft."""
        several = len(proposals) > 1
        every = f"1 to {len(proposals)} accepts, e1 edits the first"
        which = every if several else "a accepts, e edits"
        questions = Questions(self._terminal)
        while True:
            answer = click.prompt(f"{which}, r redoes, d discards", err=True).strip().lower()
            if answer == "r":
                return False
            if answer == "d":
                self._terminal.note("discarded; nothing is written")
                return True
            chosen = questions.choose(answer, proposals, self.extension)
            if chosen is not None and self._accepted(draft, self.file(chosen)):
                return True

    def _accepted(self, draft: Draft[Any], made: DraftFile) -> bool:
        try:
            made.changed()
        except ConfigError as error:
            self._terminal.problems(error.problems)
            return False
        if made.before:
            diff = made.diff
            self._show_diff(diff)
            if diff and not click.confirm(f"Change {made.path}?", default=True, err=True):
                return False
        self._write(draft, made)
        return True

    def _show_diff(self, diff: str) -> None:
        colors = {"+": GOOD, "-": BAD}
        if self.as_diff and not diff:
            self._terminal.result("  this is what it has already; nothing would change")
        for text in diff.splitlines():
            self._terminal.result(StyledText(text, colors.get(text[:1])))
