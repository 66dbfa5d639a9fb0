"""Drafts of prompts: a text that a person edits, checked, tried on cases, and proposed.

A draft is in no file. The project is loaded with it in place of the prompt's file, so that it is
checked as if it were committed. It is proposed as one commit on a new branch, with a pull
request where there is a forge; the default branch and the working tree stay as they are.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.api.file_edits import with_key
from edison_ci.api.try_grid import MOST_CASES, MOST_MODELS
from edison_ci.config.cases import STATIC
from edison_ci.config.expected_form import Detected, notes_on
from edison_ci.config.tokens import ESTIMATE, counter_for
from edison_ci.errors import UsageError
from edison_ci.execute.tasks import Task
from edison_ci.numeric import dollar_range
from edison_ci.plan.plan import estimate_cases
from edison_ci.plan.selection import find_case, find_configuration
from edison_ci.proposals.candidate import experiment_with, target_of
from edison_ci.proposals.file_proposal import ChangeText, checked_note, propose_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.errors import Problem
    from edison_ci.plan.estimate import CostRange
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.proposals.context import ReviewContext
    from edison_ci.proposals.file_proposal import Proposed
    from edison_ci.records import Case


class DraftCounts(NamedTuple):
    """What an editor shows about a text while it is written."""

    variables: tuple[str, ...]
    characters: int
    tokens: int
    exact: bool
    """Whether the tokens were counted with the tokenizer of the first model."""
    expects: str
    """The form of answers that the text asks for: none, response, json or response+json."""
    notes: tuple[str, ...]
    """Where that form was found, or is only mentioned, and the key that changes it."""
    requests: tuple[int, ...]
    """Lines of the file that ask for the form."""
    problems: tuple[str, ...]
    """Why it cannot be used, with lines; empty if it can."""


@dataclass(frozen=True)
class Draft:
    """An edited text of a prompt's file."""

    target: RefineTarget
    text: str
    experiment: Experiment | None
    """The experiment with this text only; None if the project is then invalid."""
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, project: Project, experiment: Experiment, prompt: str, text: str) -> Draft:
        """Return a text as a draft of a prompt of the experiment."""
        target = target_of(project, experiment, prompt)
        changed, problems = experiment_with(target, text)
        return cls(target, text, changed, problems)

    @property
    def path(self) -> str:
        """The path of the prompt's file."""
        return self.target.prompt.path

    @property
    def changed(self) -> bool:
        """Whether it differs from the file."""
        return self.text != self.target.text

    @property
    def saved(self) -> str:
        """The text as it is proposed: with the form of answers where its words only name one."""
        detected = self.prompt.detected
        return with_key(self.text, "expect", detected.form) if detected.mentions else self.text

    @property
    def prompt(self) -> Prompt:
        """The prompt with this text; raises UsageError if it is not valid."""
        return self.usable.prompts[0]

    @property
    def usable(self) -> Experiment:
        """The experiment with this text; raises UsageError if it is not valid."""
        if self.experiment is None:
            listed = "; ".join(self._problem_lines)
            raise UsageError(f"the text is not a valid prompt: {listed}", hint="correct it first")
        return self.experiment

    @cached_property
    def _problem_lines(self) -> tuple[str, ...]:
        return tuple(
            f"line {problem.where.line}: {problem.message}"
            if problem.where.file == self.path and problem.where.line
            else problem.message
            for problem in self.problems[:5]
        )

    def counts(self) -> DraftCounts:
        """Return variables, characters and tokens of the text."""
        models = self.target.experiment.models
        counter = counter_for(models[0][1]) if models else ESTIMATE
        prompt = self.experiment.prompts[0] if self.experiment is not None else None
        detected = Detected("") if prompt is None else prompt.detected
        return DraftCounts(
            variables=tuple(prompt.inputs) if prompt is not None else (),
            characters=len(self.text),
            tokens=counter.of_messages([section.template.source for section in prompt.sections])
            if prompt is not None
            else counter.count(self.text),
            exact=counter.exact,
            expects=detected.form,
            notes=tuple(
                f"line {note.line}: {note.sentence}; {note.hint}" for note in notes_on(detected)
            ),
            requests=tuple(m.line for m in detected.mentions if m.requested),
            problems=self._problem_lines,
        )

    def cost(self, cases: Sequence[Case], models: Sequence[str]) -> CostRange | None:
        """Return what a try would cost, with grading; None if a price is unknown."""
        return estimate_cases(self.target.project, self.usable, cases, models)


class EditedPrompt(NamedTuple):
    """A text that a person wrote for a prompt of an experiment."""

    prompt: str
    """Id of the prompt."""
    experiment: str
    text: str
    base: str = ""
    """Version of the prompt that was edited; empty for the current one."""

    def draft(self, project: Project) -> Draft:
        """Return the text as a draft; raises UsageError if the prompt has changed meanwhile."""
        experiment = project.experiment(self.experiment)
        text = self.text.replace("\r\n", "\n")  # browsers send form text with CRLF
        draft = Draft.of(project, experiment, self.prompt, text)
        if self.base and self.base != draft.target.prompt.version:
            raise UsageError(
                f"{draft.path} has changed since the page was opened",
                hint="copy your text, and edit the current version",
            )
        return draft


class ChosenCells(NamedTuple):
    """Cases and models that a person chose to try."""

    cases: tuple[str, ...]
    models: tuple[str, ...]

    def found(self, project: Project, experiment: Experiment) -> list[Case]:
        """Return the chosen cases; raises UsageError for one that is not there, or too many."""
        for names, most, word in (
            (self.cases, MOST_CASES, "case"),
            (self.models, MOST_MODELS, "model"),
        ):
            if not names:
                raise UsageError(f"no {word} is chosen", hint=f"choose at least one {word}")
            if len(names) > most:
                raise UsageError(
                    f"{len(names)} {word}s are chosen; a try has at most {most}",
                    hint="for more, use an experiment: edison run",
                )
        if not experiment.file.data:
            return [STATIC]
        cases: dict[str, Case | None] = dict.fromkeys(self.cases)
        for case in project.cases(experiment):
            if case.id in cases:
                cases[case.id] = case
            if all(cases.values()):
                break
        missing = next((name for name, case in cases.items() if case is None), None)
        if missing is not None:
            find_case(project, experiment, missing)  # raises, with the nearest name
        return [case for case in cases.values() if case is not None]

    def tasks(self, project: Project, experiment: Experiment) -> list[Task]:
        """Return the calls of a try."""
        prompt, cases = experiment.prompts[0], self.found(project, experiment)
        chosen = [find_configuration(experiment, prompt, name) for name in self.models]
        return [Task(prompt, model, case, 0) for case in cases for model in chosen if model]


def cost_words(cost: CostRange | None) -> str:
    """Return an estimated cost in words."""
    if cost is None:
        return "unknown: a model has no price"
    if cost.high <= 0:
        return "nothing"
    return f"about {dollar_range(cost.low, cost.high)}"


def propose_draft(review: ReviewContext, draft: Draft, note: str, person: str) -> Proposed:
    """Put a draft on a new branch and open a pull request, where there is a forge."""
    note, prompt = checked_note(note), draft.prompt
    if not draft.changed:
        raise UsageError(f"{draft.path} was not changed", hint="edit the text first")
    return propose_file(
        review,
        draft.path,
        before=draft.target.text.encode("utf-8"),
        after=draft.saved.encode("utf-8", "surrogatepass"),
        about=ChangeText(f"edison/edit/{prompt.id}", f"Change {prompt.id}", note, person),
    )
