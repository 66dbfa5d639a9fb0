"""Drafts of prompts: a text that a person edits, checked, tried on cases, and proposed.

A draft is in no file. The project is loaded with it in place of the prompt's file, so that it is
checked as if it were committed. It is proposed as one commit on a branch of its own, with a pull
request where there is a forge; the default branch and the working tree stay as they are.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.tokens import ESTIMATE, counter_for
from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.git.command import remote_of
from edison_ci.git.forge import Change, ProposalAction
from edison_ci.numeric import dollar_range
from edison_ci.plan.plan import estimate_cases
from edison_ci.proposals.candidate import experiment_with, target_of
from edison_ci.proposals.context import needs_repository
from edison_ci.proposals.proposal import base_with, propose_files
from edison_ci.report.markdown import fenced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.errors import Problem
    from edison_ci.git.forge import ProposalResult
    from edison_ci.plan.estimate import CostRange
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.proposals.context import ReviewContext
    from edison_ci.records import Case

FEWEST_NOTE_CHARS, MOST_NOTE_CHARS = 10, 500
"""Length of the note of a change, which is the text of its pull request."""
_TITLE_CHARS = 72


class DraftCounts(NamedTuple):
    """What an editor tells about a text while it is written."""

    variables: tuple[str, ...]
    characters: int
    tokens: int
    exact: bool
    """Whether the tokens were counted with the tokenizer of the first model."""
    expects: str
    """The form of answers that the text asks for: none, response, json or response+json."""
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
    def prompt(self) -> Prompt:
        """The prompt with this text; raises UsageError if it is not valid."""
        return self.usable.prompts[0]

    @property
    def usable(self) -> Experiment:
        """The experiment with this text; raises UsageError if it is not valid."""
        if self.experiment is None:
            listed = "; ".join(self._told)
            raise UsageError(f"the text is not a valid prompt: {listed}", hint="correct it first")
        return self.experiment

    @cached_property
    def _told(self) -> tuple[str, ...]:
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
        return DraftCounts(
            variables=tuple(prompt.inputs) if prompt is not None else (),
            characters=len(self.text),
            tokens=counter.of_messages([each.template.source for each in prompt.sections])
            if prompt is not None
            else counter.count(self.text),
            exact=counter.exact,
            expects=prompt.expect if prompt is not None else "",
            problems=self._told,
        )

    def cost(self, cases: Sequence[Case], models: Sequence[str]) -> CostRange | None:
        """Return what a try would cost, with grading; None if a price is unknown."""
        return estimate_cases(self.target.project, self.usable, cases, models)


def cost_words(cost: CostRange | None) -> str:
    """Return an estimated cost in words."""
    if cost is None:
        return "unknown: a model has no price"
    if cost.high <= 0:
        return "nothing"
    return f"about {dollar_range(cost.low, cost.high)}"


# --- proposing ------------------------------------------------------------------------------------


class Proposed(NamedTuple):
    """A change that was put on a branch, and what to do next."""

    result: ProposalResult
    base: str
    """The branch that it would be merged into."""
    notes: tuple[str, ...]
    """What happened and the next step, as sentences; an address stands alone."""


def checked_note(note: str) -> str:
    """Return the note of a change; raises UsageError if it is too short or too long."""
    text = note.replace("\r\n", "\n").strip()
    if FEWEST_NOTE_CHARS <= len(text) <= MOST_NOTE_CHARS:
        return text
    raise UsageError(
        f"the note has {len(text):,} characters; {FEWEST_NOTE_CHARS} to {MOST_NOTE_CHARS} are "
        "needed",
        hint="say what the change is for: it becomes the text of the pull request",
    )


def propose_draft(review: ReviewContext, draft: Draft, note: str, person: str) -> Proposed:
    """Put a draft on a branch of its own and open a pull request, where there is a forge."""
    note, prompt = checked_note(note), draft.prompt
    if not draft.changed:
        raise UsageError(f"{draft.path} was not changed", hint="edit the text first")
    return propose_file(
        review,
        draft.path,
        before=draft.target.text.encode("utf-8"),
        after=draft.text.encode("utf-8", "surrogatepass"),
        about=ChangeText(f"edison/edit/{prompt.id}", f"Change {prompt.id}", note, person),
    )


class ChangeText(NamedTuple):
    """Branch and texts of a change by a person."""

    branch: str
    """The start of its name; the start of the key follows."""
    subject: str
    """The start of the title; the note follows."""
    note: str
    person: str
    ending: str = ""
    """The last sentences of the pull request; by default that an editor made it on the pages."""


def propose_file(
    review: ReviewContext, path: str, *, before: bytes, after: bytes, about: ChangeText
) -> Proposed:
    """Propose another content of a file, which is `before` at the tip of the base."""
    needs_repository(review)
    place = review.in_repository(path)
    base, commit = base_with(review, path, before)
    key = hashlib.sha256(b"\0".join([place.encode(), before, after])).hexdigest()[:16]
    first = " ".join(about.note.split("\n")[0].split())
    title = f"{about.subject}: {first}"
    if len(title) > _TITLE_CHARS:
        title = f"{title[: _TITLE_CHARS - 3].rstrip()}..."
    by = about.ending or f"Edited on the pages by {about.person}."
    measured = "; the run of this pull request measures it" if not about.ending else ""
    change = Change(
        branch=f"{about.branch}-{key[:8]}",
        base=base,
        base_commit=commit,
        files={place: after},
        key=key,
        title=hidden(title),
        message=hidden(f"{about.note}\n\n{by}"),
        body=hidden(f"{fenced(about.note)}\n\n{by} It changes `{place}` only{measured}.\n"),
    )
    result = asyncio.run(propose_files(review, change))
    return Proposed(result, base, next_steps(review, base, result))


def next_steps(review: ReviewContext, base: str, result: ProposalResult) -> tuple[str, ...]:
    """Return what became of a proposed change and what to do next; an address stands alone."""
    branch, pull = f"`{result.branch}`", result.pull_request
    if pull is not None:
        again = result.action is ProposalAction.UNCHANGED
        state = (
            "" if pull.state == "open" else f", which is {'merged' if pull.merged else 'closed'}"
        )
        done = f"The change is already pull request #{pull.number}" if again else (
            f"Pull request #{pull.number} is open, from the branch {branch} to `{base}`"
        )  # fmt: skip
        return (f"{done}{state}.", pull.url)
    repository = review.repository
    assert repository is not None, "a change needs one"
    commit = result.commit[:8]
    if review.hosting.remote is None:
        remote = remote_of(repository.root)
        here = f"The change is on the branch {branch} of this repository, as commit `{commit}`."
        if remote is not None:
            push = f"`git push {remote} {result.branch}`"
            return (here, f"Nothing was sent. Push it and open a pull request: {push}")
        merge = f"`git switch {base} && git merge {result.branch}`"
        return (here, f"There is no remote. Once it is reviewed: {merge}")
    pushed = f"The change is on the branch {branch} of `{review.hosting.remote}`, as `{commit}`."
    link = review.hosting.compare_url(base, result.branch)
    if link is None:
        return (pushed, f"Open a pull request from it to `{base}` where the repository is hosted.")
    why = "There is no GitHub token, so no pull request was opened"
    if review.hosting.address is not None:
        why = "GitHub did not allow to open a pull request"
    return (pushed, f"{why}. Open it here:", link)
