"""edison assist: drafts of a model, accepted, edited, redone or discarded by a person."""

from __future__ import annotations

import sys
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci._dataclass import dataclass
from edison_ci.assist.draft_files import DraftFile
from edison_ci.assist.drafting import Drafter, assistant_of
from edison_ci.assist.improvement import FOCUS, improvement_kind, improvement_question
from edison_ci.assist.objectives import MOST, objective_kind, objective_question
from edison_ci.assist.prompts import PromptDraft, prompt_kind, prompt_question
from edison_ci.assist.rubrics import RUBRIC, rubric_question, rubric_text
from edison_ci.cli import sessions
from edison_ci.cli.lookup import find_experiment, open_project
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import read
from edison_ci.documents.yaml_edit import with_text
from edison_ci.errors import ConfigError, UsageError
from edison_ci.numeric import dollars
from edison_ci.operate.sessions import require_editor, run_context
from edison_ci.refine.candidate import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.assist.drafting import Draft, DraftKind, Question
    from edison_ci.config.load import Experiment, Project

_SHARED = (
    click.option("--by", metavar="MODEL", help="Model that drafts; default: defaults.assistant."),
    click.option("--yes", is_flag=True, help="Accept the first draft, and write it."),
)


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_SHARED):
        command = option(command)
    return command


class Option(NamedTuple):
    """A draft that can be accepted."""

    label: str
    text: str
    """What is shown, and edited."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Assistance:
    """One question to a model, and what becomes of its drafts."""

    terminal: Terminal
    project: Project
    drafter: Drafter
    kind: DraftKind[Any]
    question: Question
    options: Callable[[Any], Sequence[Option]]
    file: Callable[[Option], DraftFile]
    """Returns the file that an accepted draft makes."""
    extension: str = ".md"
    told: dict[str, Any] = field(default_factory=dict)
    as_diff: bool = False
    """Whether a draft is shown as a diff, and not as its text."""

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
        if self.terminal.json:
            if yes:
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
                    "written": yes,
                    **self.told,
                }
            )
            return
        self._show(draft, options)
        if yes:
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
            if self.as_diff:
                self._show_diff(self.file(option).diff)
            else:
                for line in option.text.splitlines():
                    self.terminal.result(f"  {line}")
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
            made.check()
        except ConfigError as error:
            self.terminal.problems(error.problems)
            return False
        if made.before:
            self._show_diff(made.diff)
            if made.diff and not click.confirm(f"Change {made.path}?", default=True, err=True):
                return False
        made.write(draft)
        self._written(made)
        return True

    def _show_diff(self, diff: str) -> None:
        colors = {"+": GOOD, "-": BAD}
        for line in diff.splitlines():
            self.terminal.result(StyledText(line, colors.get(line[:1])))

    def _written(self, made: DraftFile) -> None:
        self.terminal.result("  ", StyledText("wrote", GOOD), f" {made.path}")


@click.group(cls=EdisonGroup)
def assist() -> None:
    """Draft an objective, a rubric, prompts or a change, for you to accept.

    A model writes drafts; each becomes a file only if you accept it. The cost is shown first, and a
    stored draft of the last hour costs nothing. On a terminal you accept, edit, redo or discard;
    elsewhere drafts are printed, and --yes writes the first one. The instructions of a draft can be
    replaced by a file of the project: assist/objective.md and so on.

    Examples:
      edison assist objective --hints "answer customers' mails, kind and short"
      edison assist objective --improve
      edison assist rubric --yes
      edison assist prompts --constrain "at most 80 words"
      edison assist improve --focus "shorter replies"
    """


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--hints", default="", metavar="TEXT", help="Notes on what the prompt is for.")
@click.option(
    "--count", type=click.IntRange(1, MOST), default=3, show_default=True, help="Number of drafts."
)
@click.option("--improve", is_flag=True, help="Improve the objective that is there.")
@click.option("--detail", is_flag=True, help="Write longer objectives.")
@_shared
@click.pass_obj
def objective(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft the objective of an experiment, each with a focus of its own.

    The notes have 10 to 500 characters. The accepted objective is written to the experiment; its
    comments stay.

    Examples:
      edison assist objective --hints "openings of short stories" --count 5
      edison assist objective support-reply --improve --detail
    """
    terminal, project, chosen = _opened(state, experiment, "assist objective")
    current = chosen.file.objective if given["improve"] else ""
    if given["improve"] and not current:
        raise UsageError(f"{chosen.id} has no objective", hint="write one: leave out --improve")
    question = objective_question(
        given["hints"].strip(), given["count"], current, detail=given["detail"]
    )
    before = decode(read(project.tree, chosen.path))

    def file(option: Option) -> DraftFile:
        changed = with_text(before, "objective", option.text, after="experiment")
        return DraftFile(project, chosen.path, changed)

    Assistance(
        terminal,
        project,
        _drafter(state, project, given["by"]),
        objective_kind(given["count"]),
        question,
        lambda drafts: [Option(draft.focus, draft.text) for draft in drafts],
        file,
        extension=".txt",
        told={"experiment": chosen.id},
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--name", metavar="NAME", help="Name of the rubric; default: the experiment's.")
@_shared
@click.pass_obj
def rubric(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft a rubric from the objective of an experiment.

    It has 4 to 6 criteria from 0 to 5, none of which weighs more than 40%. A rubric that is there
    is changed only after its diff was shown.

    Examples:
      edison assist rubric
      edison assist rubric support-reply --name tone
    """
    terminal, project, chosen = _opened(state, experiment, "assist rubric")
    objective = _objective(chosen)
    name = given["name"] or chosen.id
    path = f"{project.file.paths.rubrics}/{name}.yaml"

    Assistance(
        terminal,
        project,
        _drafter(state, project, given["by"]),
        RUBRIC,
        rubric_question(objective),
        lambda drafts: [Option(path, rubric_text(name, drafts))],
        lambda chosen: DraftFile(project, path, chosen.text),
        extension=".yaml",
        told={"experiment": chosen.id},
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option(
    "--constrain", "constraints", multiple=True, metavar="TEXT",
    help="What every prompt has to say; repeatable.",
)  # fmt: skip
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME",
    help="Input of the prompt; repeatable; default: those of the experiment's first prompt.",
)  # fmt: skip
@_shared
@click.pass_obj
def prompts(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft prompts in three styles from the objective and the rubric of an experiment.

    The styles are structured, conversational and minimal, each with what speaks for it. An accepted
    prompt becomes a file of its own; add it to the prompts of the experiment to compare it.

    Examples:
      edison assist prompts
      edison assist prompts support-reply --constrain "at most 80 words"
    """
    terminal, project, chosen = _opened(state, experiment, "assist prompts")
    objective = _objective(chosen)
    inputs = given["inputs"] or [*chosen.prompts[0].inputs]
    rubric = chosen.rubric
    criteria = [f"{each.name}: {each.description}" for each in rubric.criteria] if rubric else []

    def file(option: Option) -> DraftFile:
        name = f"{chosen.id}-{option.name}"
        text = PromptDraft(option.name, option.text.strip(), "").file_text(name)
        return DraftFile(project, f"{project.file.paths.prompts}/{name}.md", text)

    Assistance(
        terminal,
        project,
        _drafter(state, project, given["by"]),
        prompt_kind(inputs),
        prompt_question(objective, criteria, inputs, given["constraints"]),
        lambda drafts: [
            Option(f"{each.style}: {each.rationale}", each.text, each.style) for each in drafts
        ],
        file,
        told={"experiment": chosen.id},
    ).settle(yes=given["yes"])


@assist.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--prompt", metavar="NAME", help="Prompt to improve, if there are several.")
@click.option(
    "--focus", required=True, metavar="TEXT", help="What is to be better, in 3 to 500 characters."
)
@_shared
@click.pass_obj
def improve(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Draft a small change to a prompt, before it is measured.

    The change keeps the guardrails of `edison refine`: inputs, front matter and headings stay, and
    few lines change. Nothing is known about its effect until a run compares it; `edison refine`
    suggests changes from failing cases, and measures them.

    Examples:
      edison assist improve --focus "shorter replies"
      edison assist improve support-reply --focus "quote the policy"
    """
    terminal, project, chosen = _opened(state, experiment, "assist improve")
    fewest, most = FOCUS
    focus = given["focus"].strip()
    if not fewest <= len(focus) <= most:
        raise UsageError(f"--focus has {len(focus):,} characters; {fewest} to {most} fit")
    target = target_of(project, chosen, given["prompt"])
    Assistance(
        terminal,
        project,
        _drafter(state, project, given["by"]),
        improvement_kind(target),
        improvement_question(target, focus),
        lambda draft: [Option(draft.note, draft.text)],
        lambda option: DraftFile(project, target.prompt.path, option.text),
        told={"experiment": chosen.id, "prompt": target.prompt.id},
        as_diff=True,
    ).settle(yes=given["yes"])


def _objective(experiment: Experiment) -> str:
    if not experiment.file.objective:
        hint = f"write one: edison assist objective {experiment.id}"
        raise UsageError(f"{experiment.id} has no objective", hint=hint)
    return experiment.file.objective


def _opened(
    state: CliState, experiment: str | None, action: str
) -> tuple[Terminal, Project, Experiment]:
    terminal, project = Terminal(state), open_project(state)
    chosen = find_experiment(project, experiment)
    require_editor(project, action)
    return terminal, project, chosen


def _drafter(state: CliState, project: Project, by: str | None) -> Drafter:
    return Drafter(project, assistant_of(project, by), run_context(project, offline=state.offline))
