"""Review actions of the pages: approve, reject, edit, comment and grade, as the commands do.

By the functions that the commands call, as the person who asks. The token of this machine belongs
to whoever serves: who signed in from elsewhere decides about a pull request there, as themselves.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.load import load_project
from edison_ci.documents.decoding import decode
from edison_ci.errors import EdisonError, RoleError, UsageError
from edison_ci.operate.actors import Role, refuse_below
from edison_ci.operate.gradebook import GradeBook
from edison_ci.refine.patch import diff_of
from edison_ci.review.booth import Booth, criterion_score, labels_of
from edison_ci.review.deciding import approve, discuss, reject
from edison_ci.review.desk import Desk
from edison_ci.review.editing import base_data, edited, may_edit, text_to_edit
from edison_ci.review.ways import current_branch
from edison_ci.store.cells import find_cell, run_of_cell
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run
from edison_ci.store.suggestions import (
    OPEN,
    DecidedAlready,
    Status,
    Suggestion,
    comments_of,
    decided_already,
    list_suggestions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.operate.actors import Actor
    from edison_ci.operate.gradebook import Given
    from edison_ci.operate.site import Site
    from edison_ci.store.grades import ManualGrade


class Option(NamedTuple):
    """Something that can be done about a suggestion, or why it cannot."""

    open: bool
    says: str
    """What will happen, or what stands in the way, as a sentence."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What somebody can do about a suggestion here and now."""

    approve: Option
    reject: Option
    edit: Option
    comment: Option


# Deciding is built on top of reporting, so pages cannot reach it: `edison serve` hands a clerk in.
# Without one, pages show the commands instead.
class Refused(UsageError):
    """A text that was not taken; whoever wrote it gets it back with the reason."""

    def __init__(self, reason: str, text: str, *, hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.text = text


class Done(NamedTuple):
    """What came of a decision."""

    suggestion: Suggestion
    """As it is now; after an edit, the new one."""
    notes: tuple[str, ...] = ()
    """What else somebody should know."""


_deciding, _grading = threading.Lock(), threading.Lock()
"""One decision at a time, and one grade: who clicks twice is to get one commit, and no error."""


@dataclass(frozen=True, slots=True)
class ReviewActions:
    """Carries out decisions at the desk of a project."""

    offline: bool = False

    # --- suggestions ------------------------------------------------------------------------------

    def permissions(self, project: Project, actor: Actor, one: Suggestion) -> Permissions:
        """Return what somebody can do about a suggestion."""
        desk = self._desk(project, actor)
        stop = _stopped(desk, actor, one)
        reject_way = stop or _foreign(actor, one) or Option(True, _rejecting(one))
        return Permissions(
            approve=stop or _foreign(actor, one) or _approving(desk, one),
            reject=reject_way,
            edit=_not_allowed(desk, actor, Role.EDITOR, "review edit") or stop or _EDITING,
            comment=_not_allowed(desk, actor, Role.REVIEWER, "review comment")
            or Option(True, _commenting(desk, one)),
        )

    def approve(self, site: Site, actor: Actor, wanted: str, seen: str) -> Done:
        """Take a suggestion."""
        with _deciding:
            desk, one = self._seen(site, actor, wanted)
            taken = one.status in (Status.APPROVED, Status.APPLIED) and one.decided_by == actor.name
            if taken and str(one.status) != seen:
                return Done(one)
            _refuse_changed(one, seen)
            _refuse_foreign(actor, one)
            done = asyncio.run(approve(desk, one))
        return Done(done.suggestion, done.notes)

    def reject(self, site: Site, actor: Actor, wanted: str, seen: str, reason: str) -> Done:
        """Leave a suggestion, and say why."""
        with _deciding:
            desk, one = self._seen(site, actor, wanted)
            if one.status is Status.REJECTED and one.decided_by == actor.name:
                return Done(one)
            _refuse_changed(one, seen)
            _refuse_foreign(actor, one)
            done = asyncio.run(reject(desk, one, reason))
        return Done(done.suggestion, done.notes)

    def comment(self, site: Site, actor: Actor, wanted: str, text: str) -> Done:
        """Say something about a suggestion."""
        with _deciding:
            desk, one = self._seen(site, actor, wanted)
            last = desk.read(lambda connection: comments_of(connection, one))[-1:]
            if [(each.actor, each.text) for each in last] == [(actor.name, text.strip())]:
                return Done(one)
            done = asyncio.run(discuss(desk, one, text))
        return Done(done.suggestion, done.notes)

    def draft(self, project: Project, actor: Actor, one: Suggestion) -> str:
        """Return the prompt as it would be, for somebody who may edit it."""
        desk = self._desk(project, actor)
        may_edit(desk, one)
        return text_to_edit(desk, one)

    def edit(self, site: Site, actor: Actor, wanted: str, text: str) -> Done:
        """Put an edited suggestion in the place of one; a text that is not taken is given back."""
        text = text.replace("\r\n", "\n")  # as browsers send what people write
        with _deciding:
            desk, one = self._seen(site, actor, wanted)
            if found := _edited_before(desk, one, text):
                return Done(found)
            by = may_edit(desk, one)
            try:
                new = edited(desk, by, one, text)
            except DecidedAlready:
                raise
            except UsageError as error:
                raise Refused(error.message, text, hint=error.hint) from None
        note = f"Put it on its branch: `edison propose {new.id} --open-pr`"
        return Done(new, (note,) if new.branch is not None else ())

    # --- grades -----------------------------------------------------------------------------------

    def grade(
        self, site: Site, actor: Actor, cell: str, given: Given, criteria: Mapping[str, str]
    ) -> ManualGrade:
        """Write down what somebody says of the answer of a cell, unless they just said it."""
        project = load_project(site.root)
        with _grading, closing(open_reader(site.results)) as reader:
            run_id = run_of_cell(reader, cell)
            if run_id is None:
                raise UsageError(f"there is no cell {cell!r}", hint="open it from its run")
            run = find_run(reader, run_id)
            experiment = project.experiment(run.experiment)
            given = dataclasses.replace(given, criteria=_scored(experiment, criteria))
            book = GradeBook(site, actor, labels_of(experiment))
            booth = Booth(project, run, reader, book, seed=0)
            return booth.enter(booth.named(find_cell(reader, run.id, cell)), given, once=True)

    # ----------------------------------------------------------------------------------------------

    def _desk(self, project: Project, actor: Actor) -> Desk:
        away = actor.identity.known_by == "web"
        return Desk.of(project, offline=self.offline or away, actor=actor)

    def _seen(self, site: Site, actor: Actor, wanted: str) -> tuple[Desk, Suggestion]:
        desk = self._desk(load_project(site.root), actor)
        return desk, desk.find(wanted)


def _scored(experiment: Experiment, said: Mapping[str, str]) -> dict[str, float]:
    """Return scores by criterion, each on the scale of the rubric."""
    rubric = experiment.rubric
    known = {each.slug: each for each in (rubric.criteria if rubric is not None else ())}
    unknown = said.keys() - known.keys()
    if unknown:
        hint = "the rubric has changed: load the page again"
        raise UsageError(f"there is no criterion {min(unknown)!r}", hint=hint)
    return {known[slug].name: criterion_score(known[slug], text) for slug, text in said.items()}


def _edited_before(desk: Desk, one: Suggestion, text: str) -> Suggestion | None:
    """Return what somebody made of a suggestion with the same text before."""
    if one.status is not Status.SUPERSEDED:
        return None
    made = desk.read(lambda connection: list_suggestions(connection, prompt=one.prompt))
    made = [each for each in made if each.edited_from == one.id]
    if not made:
        return None
    diff = diff_of(one.path, decode(base_data(desk, one)), text)
    return next((each for each in made if each.diff == diff), None)


def _refuse_changed(one: Suggestion, seen: str) -> None:
    if str(one.status) != seen:
        raise decided_already(one)


# --- what can be done -----------------------------------------------------------------------------

_EDITING = Option(
    True,
    "What you save is held to the guardrails again. It becomes a suggestion of its own that was "
    "not measured, and this one is superseded.",
)


def _not_allowed(desk: Desk, actor: Actor, role: Role, action: str) -> Option | None:
    try:
        refuse_below(actor, role, action, desk.site.file.members)
    except RoleError as refused:
        return Option(False, f"{refused.message}: {refused.hint}.")
    return None


def _stopped(desk: Desk, actor: Actor, one: Suggestion) -> Option | None:
    """Return what stands in the way of any decision."""
    if refused := _not_allowed(desk, actor, Role.REVIEWER, "review"):
        return refused
    if one.status not in OPEN:
        return Option(False, f"It is {one.status} already.")
    try:
        desk.refuse_while_running(one)
    except EdisonError as busy:
        return Option(False, f"{busy.message}.")
    return None


def _approving(desk: Desk, one: Suggestion) -> Option:
    if one.status is Status.TRIED:
        insist = f"`edison propose {one.id} --force`"
        return Option(False, f"It was not shown to help. To insist on it: {insist}.")
    if one.status is Status.APPROVED and one.pull_request is not None:
        where = f"pull request {one.pull_request}"
        return Option(False, f"It is approved; merge {where}, then `edison review sync`.")
    if one.pull_request is not None:
        return _on_pull_request(desk, one)
    branch = current_branch(desk.repository) if desk.repository is not None else None
    if desk.repository is None:
        return Option(True, f"`{one.path}` is changed. There is no Git repository, so no commit.")
    if branch is None:
        return Option(False, "No branch is checked out, so the commit would be on none.")
    return Option(True, f"One commit on the branch `{branch}` here changes `{one.path}`.")


def _on_pull_request(desk: Desk, one: Suggestion) -> Option:
    if desk.hosting.address is None:
        return Option(
            False,
            f"It is pull request {one.pull_request}, and there is no token for GitHub here: decide "
            "there, then `edison review sync`.",
        )
    if one.branch is None:
        there = f"accept the lines in pull request {one.pull_request}"
        return Option(True, f"It is written down as approved; {there}.")
    return Option(
        True,
        f"Pull request {one.pull_request} gets an approving review of yours. It is not merged.",
    )


def _rejecting(one: Suggestion) -> str:
    told = "The next refinement is told why."
    if one.pull_request is not None and one.branch is not None:
        return f"Pull request {one.pull_request} is closed with your reason. {told}"
    return f"It is written down, and nothing changes. {told}"


def _commenting(desk: Desk, one: Suggestion) -> str:
    kept = "It is kept with the suggestion"
    if one.pull_request is None or desk.hosting.address is None:
        return f"{kept}."
    return f"{kept}, and shown on pull request {one.pull_request}."


def _foreign(actor: Actor, one: Suggestion) -> Option | None:
    """Return why somebody who is elsewhere cannot decide about a pull request here."""
    if one.pull_request is None or actor.identity.known_by != "web":
        return None
    return Option(
        False,
        f"It is pull request {one.pull_request}, and the token of this server is not yours: decide "
        "there as yourself, then `edison review sync`.",
    )


def _refuse_foreign(actor: Actor, one: Suggestion) -> None:
    if _foreign(actor, one) is not None:
        raise UsageError(
            f"suggestion {one.id} is pull request {one.pull_request}, and the token of this server "
            "is not yours",
            hint=f"decide at {one.pull_request_url}, then: edison review sync",
        )
