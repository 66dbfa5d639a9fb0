"""The start of a loop: whether it may, and whether there is one to go on with."""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.errors import BusyError, Location, UsageError
from edison_ci.execute.budgets import caps_of, run_limit
from edison_ci.git.command import run_git
from edison_ci.loop.place import raised
from edison_ci.refine.evidence import split_cases
from edison_ci.refine.weaknesses import aside_in
from edison_ci.review.desk import needs_repository
from edison_ci.stats.convergence import FEWEST_SEARCH_CASES
from edison_ci.store.audit import add_audit
from edison_ci.store.database import changing
from edison_ci.store.loops import (
    Iteration,
    Loop,
    Point,
    iterations_of,
    last_loop,
    leave_loop,
    unfinished_run,
    write_iteration,
    write_loop,
)
from edison_ci.store.owners import only_one
from edison_ci.store.runs import find_run, move_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from edison_ci.loop.place import Place

FOLDER = "edison/loop"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks of a loop."""

    iterations: int | None = None
    budget_microusd: int | None = None
    auto: bool = False
    restart: bool = False
    """Whether a loop that is not done is left behind."""


@contextlib.contextmanager
def alone(place: Place) -> Iterator[None]:
    """Let no second loop of the experiment start meanwhile."""
    name = place.subject.experiment.id
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(only_one(place.desk.site.locks, f"{name}.loop", f"loop of {name}"))
        except BusyError:
            raise BusyError(
                f"a loop of {name} is at work already", hint="stop it with Ctrl-C there, or wait"
            ) from None
        yield


def begin(place: Place, wish: Wish, environ: Mapping[str, str] = os.environ) -> Loop:
    """Return the loop to go on with, or a new one."""
    place.results.parent.mkdir(parents=True, exist_ok=True)
    with changing(place.results) as connection:
        known = last_loop(connection, place.subject.experiment.id)
        if known is not None and known.point is not Point.DONE:
            if not wish.restart:
                return write_loop(connection, _gone_on(place, known, wish, environ))
            _leave(connection, place, known)
        auto = wish.auto
        head = _branch_base(place, environ) if auto else None
        loop = _new(place, wish, head)
        first = Iteration(1, place.subject.prompt.version, place.subject.text)
        write_loop(connection, loop)
        write_iteration(connection, loop, first)
        entity = f"{loop.experiment}/{loop.prompt}"
        after = {"loop": loop.id, "mode": loop.mode, "branch": loop.branch}
        add_audit(connection, place.desk.site.entry(place.actor, "loop", entity, after=after))
    return loop


def _new(place: Place, wish: Wish, head: str | None) -> Loop:
    subject, project = place.subject, place.project
    most = wish.iterations or place.stop.max_iterations or project.file.defaults.max_iterations
    now = place.desk.site.now()
    return Loop(
        id=f"loop-{formatting.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
        experiment=subject.experiment.id,
        prompt=str(subject.prompt.id),
        path=subject.prompt.path,
        mode="auto" if wish.auto else "review",
        point=Point.MEASURING,
        max_iterations=most,
        budget_microusd=_budget(place, wish.budget_microusd),
        started_at=now,
        branch=f"{FOLDER}/{subject.experiment.id}" if head is not None else None,
        base_commit=head,
    )


def _budget(place: Place, given: int | None) -> int:
    limit = run_limit(caps_of(place.project, place.subject.experiment, "", given))
    assert limit is not None, "stop.budget_usd has a default"
    return limit


def _gone_on(place: Place, known: Loop, wish: Wish, environ: Mapping[str, str]) -> Loop:
    name = known.experiment
    if known.prompt != place.subject.prompt.id:
        raise UsageError(
            f"the loop of {name} that is not done refines {known.prompt}",
            hint=f"name it with --prompt {known.prompt}, or leave it behind with --restart",
        )
    if wish.auto and known.mode != "auto":
        raise UsageError(
            f"the loop of {name} that is not done waits for people to decide",
            hint="go on without --auto-approve, or leave it behind with --restart",
        )
    if known.mode == "auto":
        refuse_auto(place, environ)
    budget = None if wish.budget_microusd is None else _budget(place, wish.budget_microusd)
    return raised(known, wish.iterations, budget)


def _leave(connection: sqlite3.Connection, place: Place, known: Loop) -> None:
    """Mark a loop as left behind, and let none of its runs wait."""
    now = place.desk.site.now()
    runs = [one.run_id for one in iterations_of(connection, known) if one.run_id][-1:]
    runs += filter(None, [unfinished_run(connection, known)])
    for run_id in runs:
        status = find_run(connection, run_id).status
        if status in ("REFINING", "REVIEWING"):
            move_run(run_id, "COMPLETED", now)(connection)
    leave_loop(connection, known, now=now)


# --- without a person -----------------------------------------------------------------------------


def refuse_auto(place: Place, environ: Mapping[str, str]) -> None:
    """Raise where nothing may be taken without a person."""
    if any(environ.get(name, "").lower() not in ("", "0", "false") for name in _CI):
        raise UsageError(
            "--auto-approve is refused in CI: there a person decides",
            hint="leave it out; edison propose --open-pr asks people",
        )
    if place.project.file.settings.require_review_approval:
        raise UsageError(
            "this project wants a person to approve every change",
            hint="set settings: {require_review_approval: false}, or leave --auto-approve out",
            where=Location("edison.yaml"),
        )


_CI = ("CI", "GITHUB_ACTIONS")


def _branch_base(place: Place, environ: Mapping[str, str]) -> str:
    """Return the commit that the branch of a new loop starts from."""
    refuse_auto(place, environ)
    subject, desk = place.subject, place.desk
    training = split_cases(subject)[0] - aside_in(subject)
    if len(training) < FEWEST_SEARCH_CASES:
        raise UsageError(
            f"--auto-approve needs {FEWEST_SEARCH_CASES} training cases, and there are "
            f"{len(training)}",
            hint="add cases, or let people decide: leave --auto-approve out",
        )
    repository = needs_repository(desk)
    head = repository.head()
    path = subject.prompt.path
    committed = None if head is None else repository.read(head, desk.in_repository(path))
    if head is None or committed != subject.text.encode("utf-8"):
        raise UsageError(
            f"{path} is not as it is in the last commit, from which the branch would start",
            hint="commit it first",
            where=Location(path),
        )
    if run_git("var", "GIT_COMMITTER_IDENT", cwd=repository.root).code:
        raise UsageError(
            "Git does not know who makes the commits of the loop",
            hint="tell it who you are: git config user.name and user.email",
        )
    branch = f"{FOLDER}/{subject.experiment.id}"
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{branch}")
    if run_git(*asked, cwd=repository.root).code == 0:
        raise UsageError(
            f"the branch {branch} of an earlier loop is there still",
            hint=f"merge it, then take it away: git branch -d {branch}; or drop it with -D",
        )
    return head
