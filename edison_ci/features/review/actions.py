"""Actions of the pages: approve, reject, edit, comment, grade, try and propose.

They call the same functions as the commands, with the person who is signed in as the actor. The
GitHub token of the server belongs to the person who started it, so a remote user decides about a
pull request on GitHub instead. A change that a remote editor makes is proposed with the account of
the server, and names the editor.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.access.site import REMOTE, Role, find_member, require_role
from edison_ci.api.counterexamples import CaseEntry, add_counterexample, origin_of
from edison_ci.api.try_grid import TryGrid, start_try
from edison_ci.config.load import load_project
from edison_ci.documents.decoding import decode
from edison_ci.documents.text_diff import diff_of
from edison_ci.errors import DecidedAlready, EdisonError, RoleError, UsageError
from edison_ci.execute.standalone import task_of_cell
from edison_ci.features.review.decision import approve, approve_on_branch, comment, reject
from edison_ci.features.review.grading import (
    GradeBook,
    GradingQueue,
    criterion_score,
    labels_of,
)
from edison_ci.features.review.hunk_blame import BlameJob, start_blame
from edison_ci.features.review.prompt_drafts import propose_draft
from edison_ci.proposals.approvals import is_author, stored_approvals
from edison_ci.proposals.context import ReviewContext
from edison_ci.proposals.prompt_file import base_data, edit_suggestion, may_edit, text_to_edit
from edison_ci.records import OPEN_STATUSES, SuggestionStatus
from edison_ci.results.stored_runs import cell_by_start, open_results
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run
from edison_ci.store.suggestions import Suggestion, decided_already

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.access.site import Actor, Site
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.review.grading import HumanGrade
    from edison_ci.features.review.prompt_drafts import ChosenCells, EditedPrompt
    from edison_ci.proposals.file_proposal import Proposed
    from edison_ci.store.cells import CellRow
    from edison_ci.store.manual_grades import ManualGrade
    from edison_ci.store.runs import Run


class Option(NamedTuple):
    """An action on a suggestion: whether it is possible, and its effect or the obstacle."""

    allowed: bool
    text: str
    """What will happen, or why it is not possible, as a sentence."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Possible actions of a person on a suggestion."""

    approve: Option
    reject: Option
    edit: Option
    comment: Option


class RejectedText(UsageError):
    """An edited text that was not accepted; it is shown again with the reason."""

    def __init__(self, reason: str, suggestion: Suggestion, text: str, *, hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.suggestion, self.text = suggestion, text


class ActionResult(NamedTuple):
    """Outcome of an action."""

    suggestion: Suggestion
    """Its current state; after an edit, the new suggestion."""
    notes: tuple[str, ...] = ()
    """Further messages for the person."""


_deciding, _grading = threading.Lock(), threading.Lock()
"""One decision and one grade at a time, so that a double click makes one commit and no error."""


@dataclass(frozen=True, slots=True)
class ReviewActions:
    """Carries out review actions in a project."""

    offline: bool = False

    def permissions(self, project: Project, actor: Actor, suggestion: Suggestion) -> Permissions:
        """Return which actions on a suggestion are possible for a person."""
        review = self._review(project, actor)
        blocker = _blocker(review, actor, suggestion)
        reject = (
            blocker
            or _foreign_pull_request(actor, suggestion)
            or Option(True, _reject_text(suggestion))
        )
        return Permissions(
            approve=blocker
            or _foreign_pull_request(actor, suggestion)
            or _several_people(review, actor, suggestion)
            or _approve_option(self._proposing(project, actor), suggestion),
            reject=reject,
            edit=_not_allowed(review, actor, Role.EDITOR, "review edit") or blocker or _EDIT_OPTION,
            comment=_not_allowed(review, actor, Role.REVIEWER, "review comment")
            or Option(True, _comment_text(review, suggestion)),
        )

    def approve(self, site: Site, actor: Actor, suggestion_id: str, seen: str) -> ActionResult:
        """Approve a suggestion; a repeated approval by the same person changes nothing."""
        with _deciding:
            review, suggestion = self._find(site, actor, suggestion_id)
            done_before = (
                suggestion.status in (SuggestionStatus.APPROVED, SuggestionStatus.APPLIED)
                and suggestion.decided_by == actor.name
            )
            if done_before and str(suggestion.status) != seen:
                return ActionResult(suggestion)
            _refuse_changed(suggestion, seen)
            _refuse_foreign(actor, suggestion)
            if suggestion.pull_request is None and review.repository is not None:
                done = asyncio.run(
                    approve_on_branch(self._proposing(review.project, actor), suggestion)
                )
            else:
                done = asyncio.run(approve(review, suggestion))
        return ActionResult(done.suggestion, done.notes)

    def reject(
        self, site: Site, actor: Actor, suggestion_id: str, seen: str, reason: str
    ) -> ActionResult:
        """Reject a suggestion with a reason."""
        with _deciding:
            review, suggestion = self._find(site, actor, suggestion_id)
            if (
                suggestion.status is SuggestionStatus.REJECTED
                and suggestion.decided_by == actor.name
            ):
                return ActionResult(suggestion)
            _refuse_changed(suggestion, seen)
            _refuse_foreign(actor, suggestion)
            done = asyncio.run(reject(review, suggestion, reason))
        return ActionResult(done.suggestion, done.notes)

    def comment(self, site: Site, actor: Actor, suggestion_id: str, text: str) -> ActionResult:
        """Comment on a suggestion."""
        with _deciding:
            review, suggestion = self._find(site, actor, suggestion_id)
            last = review.comments(suggestion)[-1:]
            if [(earlier.actor, earlier.text) for earlier in last] == [(actor.name, text.strip())]:
                return ActionResult(suggestion)
            done = asyncio.run(comment(review, suggestion, text))
        return ActionResult(done.suggestion, done.notes)

    def draft(self, project: Project, actor: Actor, suggestion_id: str) -> tuple[Suggestion, str]:
        """Return a suggestion, and the prompt with it applied, for editing."""
        review = self._review(project, actor)
        suggestion = review.find(suggestion_id)
        may_edit(review, suggestion)
        return suggestion, text_to_edit(review, suggestion)

    def edit(self, site: Site, actor: Actor, suggestion_id: str, text: str) -> ActionResult:
        """Replace a suggestion by an edited one; raises RejectedText if the text is refused."""
        text = text.replace("\r\n", "\n")  # browsers send form text with CRLF
        with _deciding:
            review, suggestion = self._find(site, actor, suggestion_id)
            if earlier := _earlier_edit(review, suggestion, text):
                return ActionResult(earlier)
            by = may_edit(review, suggestion)
            try:
                new = edit_suggestion(review, by, suggestion, text)
            except DecidedAlready:
                raise
            except UsageError as error:
                raise RejectedText(error.message, suggestion, text, hint=error.hint) from None
        note = f"Update its branch: `edison propose {new.id} --open-pr`"
        return ActionResult(new, (note,) if new.branch is not None else ())

    def grade(
        self,
        site: Site,
        actor: Actor,
        cell: str,
        human_grade: HumanGrade,
        criteria: Mapping[str, str],
    ) -> ManualGrade:
        """Store a person's grade of a cell's answer, unless it equals their last one."""
        project = load_project(site.root)
        run, _ = _cell_of(site, cell)
        with _grading, closing(open_reader(site.results)) as reader:
            experiment = project.experiment(run.experiment)
            human_grade = dataclasses.replace(
                human_grade, criteria=_criterion_scores(experiment, criteria)
            )
            book = GradeBook(site, actor, labels_of(experiment))
            queue = GradingQueue(project, run, reader, book, seed=0)
            return queue.enter(queue.find(cell), human_grade, once=True)

    def try_prompt(
        self, site: Site, actor: Actor, edited: EditedPrompt, chosen: ChosenCells
    ) -> TryGrid:
        """Send chosen cases to chosen models with an edited prompt; answers come in a thread."""
        project = load_project(site.root)
        draft = edited.draft(project)
        experiment = draft.usable
        tasks = chosen.tasks(project, experiment)
        grid = TryGrid(actor.name, f"prompt {edited.prompt}", tasks)
        after = {
            "version": draft.prompt.version[:12],
            "cases": [*chosen.cases],
            "models": [*chosen.models],
        }
        start_try(project, experiment, grid, offline=self.offline)
        site.note(site.entry(actor, "try", f"prompt {edited.prompt}", after=after))
        return grid

    def save_prompt(self, site: Site, actor: Actor, edited: EditedPrompt, note: str) -> Proposed:
        """Propose an edited prompt as a pull request, or as a branch where there is no forge."""
        with _deciding:
            project = load_project(site.root)
            review = self._proposing(project, actor)
            done = propose_draft(review, edited.draft(project), note, actor.name)
        site.note(site.entry(actor, "edit prompt", f"prompt {edited.prompt}", after=_audited(done)))
        return done

    def add_case(self, site: Site, actor: Actor, cell: str, entry: CaseEntry) -> Proposed:
        """Propose a counterexample to a cell's case, for the dataset that has the case."""
        with _deciding:
            project = load_project(site.root)
            run, row = _cell_of(site, cell)
            origin = origin_of(project, project.experiment(run.experiment), row.case_id)
            review = self._proposing(project, actor)
            done = add_counterexample(review, origin, entry, actor.name)
        after = {"case": str(row.case_id), "dataset": origin.entry.path, **_audited(done)}
        site.note(site.entry(actor, "add case", f"cell {row.id[:12]}", after=after))
        return done

    def rerun(self, site: Site, actor: Actor, cell: str) -> TryGrid:
        """Request another answer for a cell; the results of its run do not change."""
        project = load_project(site.root)
        run, row = _cell_of(site, cell)
        experiment = project.experiment(run.experiment)
        task = task_of_cell(project, experiment, row)
        grid = TryGrid(actor.name, f"cell {row.id[:12]}", [task])
        start_try(project, experiment, grid, offline=self.offline, reuse=False)
        entry = site.entry(actor, "rerun", f"cell {row.id[:12]}")
        site.note(dataclasses.replace(entry, run_id=run.id))
        return grid

    def by_hunk(
        self, site: Site, actor: Actor, suggestion_id: str, budget_microusd: int
    ) -> BlameJob:
        """Ask which line of a suggestion fixed or broke which cases; answers come in a thread."""
        review, suggestion = self._find(site, actor, suggestion_id)
        job = start_blame(review, suggestion, actor.name, budget_microusd, offline=self.offline)
        after = {"budget_microusd": budget_microusd}
        site.note(site.entry(actor, "compare by hunk", f"suggestion {suggestion.id}", after=after))
        return job

    def _review(self, project: Project, actor: Actor) -> ReviewContext:
        remote = actor.identity.known_by in REMOTE
        return ReviewContext.of(project, offline=self.offline or remote, actor=actor)

    def _proposing(self, project: Project, actor: Actor) -> ReviewContext:
        """Return the context in which changes are proposed, with the account of the server."""
        return ReviewContext.of(project, offline=self.offline, actor=actor)

    def _find(
        self, site: Site, actor: Actor, suggestion_id: str
    ) -> tuple[ReviewContext, Suggestion]:
        review = self._review(load_project(site.root), actor)
        return review, review.find(suggestion_id)


def _cell_of(site: Site, cell: str) -> tuple[Run, CellRow]:
    with open_results(site.results) as reader:
        place = cell_by_start(reader, cell)
        if place is None:
            raise UsageError(f"there is no cell {cell!r}", hint="open it from the page of its run")
        return find_run(reader, place[0]), place[1]


def _audited(done: Proposed) -> dict[str, Any]:
    pull = done.result.pull_request
    return {
        "branch": done.result.branch,
        "commit": done.result.commit[:12],
        "pull_request": None if pull is None else pull.url,
    }


def _criterion_scores(experiment: Experiment, values: Mapping[str, str]) -> dict[str, float]:
    """Return scores by criterion, each on the scale of the rubric."""
    rubric = experiment.rubric
    criteria = {
        criterion.slug: criterion for criterion in (rubric.criteria if rubric is not None else ())
    }
    unknown = values.keys() - criteria.keys()
    if unknown:
        hint = "the rubric has changed: reload the page"
        raise UsageError(f"unknown criterion {min(unknown)!r}", hint=hint)
    return {
        criteria[slug].name: criterion_score(criteria[slug], text) for slug, text in values.items()
    }


def _earlier_edit(review: ReviewContext, suggestion: Suggestion, text: str) -> Suggestion | None:
    """Return an earlier edit of a suggestion to the same text."""
    if suggestion.status is not SuggestionStatus.SUPERSEDED:
        return None
    made = review.suggestions(prompt=suggestion.prompt)
    made = [edit for edit in made if edit.edited_from == suggestion.id]
    if not made:
        return None
    diff = diff_of(suggestion.path, decode(base_data(review, suggestion)), text)
    return next((edit for edit in made if edit.diff == diff), None)


def _refuse_changed(suggestion: Suggestion, seen: str) -> None:
    if str(suggestion.status) != seen:
        raise decided_already(suggestion)


_EDIT_OPTION = Option(
    True,
    "The saved text is checked against the guardrails and stored as a new, unmeasured suggestion; "
    "this one is marked as superseded.",
)


def _not_allowed(review: ReviewContext, actor: Actor, role: Role, action: str) -> Option | None:
    try:
        require_role(actor, role, action, review.site.file.members)
    except RoleError as refused:
        return Option(False, f"{refused.message}: {refused.hint}.")
    return None


def _blocker(review: ReviewContext, actor: Actor, suggestion: Suggestion) -> Option | None:
    """Return why no decision is possible; None if one is."""
    if refused := _not_allowed(review, actor, Role.REVIEWER, "review"):
        return refused
    if suggestion.status not in OPEN_STATUSES:
        return Option(False, f"It is already {suggestion.status}.")
    try:
        review.refuse_while_running(suggestion)
    except EdisonError as busy:
        return Option(False, f"{busy.message}.")
    return None


def _several_people(review: ReviewContext, actor: Actor, suggestion: Suggestion) -> Option | None:
    """Return what an approval means while others have to approve as well; None for the last."""
    file = review.project.file
    if file.settings.approvals == 1 or suggestion.status is not SuggestionStatus.PROPOSED:
        return None
    if is_author(review, actor, suggestion):
        return Option(False, "You edited it, so other reviewers have to approve it.")
    if suggestion.pull_request is not None and suggestion.branch is not None:
        return None  # GitHub counts
    count = stored_approvals(review, suggestion)
    member = find_member(actor.identity, file.members)
    if member is not None and str(member.github or member.email) in count.by and not count.enough:
        return Option(False, f"You approved it: {count.words}. Another reviewer has to as well.")
    if len(count.by) + 1 < count.needed:
        return Option(True, f"Stores your approval: {count.words} so far.")
    return None


def _approve_option(review: ReviewContext, suggestion: Suggestion) -> Option:
    if suggestion.status is SuggestionStatus.TRIED:
        command = f"`edison propose {suggestion.id} --force`"
        return Option(False, f"It is not shown to help. To propose it anyway: {command}.")
    if suggestion.status is SuggestionStatus.APPROVED and suggestion.pull_request is not None:
        where = f"pull request {suggestion.pull_request}"
        return Option(False, f"It is approved: merge {where}, then run `edison review sync`.")
    if suggestion.pull_request is not None:
        return _on_pull_request(review, suggestion)
    if review.repository is None:
        return Option(
            True, f"Changes `{suggestion.path}`, without a commit: there is no Git repository."
        )
    if suggestion.status is SuggestionStatus.APPROVED:
        where = f"the branch `{suggestion.branch}`"
        return Option(False, f"It is approved: merge {where}, then run `edison review sync`.")
    opens = "and opens a pull request"
    if review.hosting.address is None:
        opens = "without a pull request: there is no GitHub token"
    return Option(
        True,
        f"Puts the change of `{suggestion.path}` on a separate branch, {opens}. It is applied "
        "when that is merged.",
    )


def _on_pull_request(review: ReviewContext, suggestion: Suggestion) -> Option:
    if review.hosting.address is None:
        return Option(
            False,
            f"It is pull request {suggestion.pull_request}, but there is no GitHub token here: "
            "decide on GitHub, then run `edison review sync`.",
        )
    if suggestion.branch is None:
        where = f"pull request {suggestion.pull_request}"
        return Option(True, f"Marks it as approved; accept the suggested lines in {where}.")
    return Option(
        True,
        f"Adds your approving review to pull request {suggestion.pull_request}, "
        "without merging it.",
    )


def _reject_text(suggestion: Suggestion) -> str:
    note = "The next refinement takes the reason into account."
    if suggestion.pull_request is not None and suggestion.branch is not None:
        return f"Closes pull request {suggestion.pull_request} with your reason. {note}"
    return f"Marks it as rejected. {note}"


def _comment_text(review: ReviewContext, suggestion: Suggestion) -> str:
    stored = "Stored with the suggestion"
    if suggestion.pull_request is None or review.hosting.address is None:
        return f"{stored}."
    return f"{stored} and posted on pull request {suggestion.pull_request}."


def _foreign_pull_request(actor: Actor, suggestion: Suggestion) -> Option | None:
    """Return why a remote user cannot decide about a pull request here."""
    if suggestion.pull_request is None or actor.identity.known_by not in REMOTE:
        return None
    return Option(
        False,
        f"It is pull request {suggestion.pull_request}, and the GitHub token of this server is "
        "not yours: decide on GitHub, then run `edison review sync`.",
    )


def _refuse_foreign(actor: Actor, suggestion: Suggestion) -> None:
    if _foreign_pull_request(actor, suggestion) is not None:
        raise UsageError(
            f"suggestion {suggestion.id} is pull request {suggestion.pull_request}, and the GitHub "
            "token of this server is not yours",
            hint=f"decide at {suggestion.pull_request_url}, then run edison review sync",
        )
