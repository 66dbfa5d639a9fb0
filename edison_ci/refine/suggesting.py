"""Suggestions that are kept of candidates, and what is learnt from earlier ones."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.refine.asking import Past, instructions_version
from edison_ci.store.audit import add_audit
from edison_ci.store.database import changing
from edison_ci.store.events import add_event
from edison_ci.store.suggestions import (
    MadeBy,
    Status,
    Suggestion,
    add_suggestion,
    list_suggestions,
    rejections,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.refine.asking import Question, Reply
    from edison_ci.refine.candidate import Candidate, Subject
    from edison_ci.refine.evidence import Evidence
    from edison_ci.refine.trying import Tried
    from edison_ci.store.audit import AuditEntry

_MOST_TRIED = 5
"""Suggestions that did not help, of which a refiner is told."""


class Trial(NamedTuple):
    """A candidate that kept every guardrail, and what trying it showed."""

    reply: Reply
    tried: Tried
    evidence: Evidence

    @property
    def gain(self) -> float:
        """Its gain on the training cases, by which candidates are ranked."""
        train = self.evidence.train
        return float("-inf") if train is None or train.gain is None else train.gain


class History(NamedTuple):
    """What is known of earlier suggestions for a prompt."""

    past: tuple[Past, ...]
    """What a refiner is told of them."""
    known: Mapping[str, str]
    """Versions of the prompt that are out of the question, and why."""


def history_of(connection: sqlite3.Connection, subject: Subject, *, force: bool) -> History:
    """Return what was rejected, and what was tried in vain on the prompt as it is.

    Whoever forces wants what was tried in vain: then it is no lesson, and the same question finds
    the same reply.
    """
    name, prompt = subject.experiment.id, subject.prompt
    rejected = rejections(connection, name, prompt.id)
    tried: list[Suggestion] = []
    if not force:
        found = list_suggestions(
            connection, experiment=name, prompt=prompt.id, statuses=(Status.TRIED,)
        )
        tried = [one for one in found if one.base_hash == prompt.version]
    known = {
        one.new_hash: f"the same change was {one.status} before: {one.reason or 'no gain shown'}"
        for one in (*tried, *rejected)
        if one.new_hash is not None
    }
    return History(tuple(Past.of(one) for one in (*rejected, *tried[:_MOST_TRIED])), known)


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes suggestions of what a refiner replied to a question."""

    question: Question
    simulated: bool
    now: str
    made_by: MadeBy = MadeBy.REFINE
    told: Mapping[str, Any] = field(default_factory=dict)
    """What else goes with the evidence of what was tried."""

    def measured(self, trial: Trial, *, forced: bool) -> Suggestion:
        """Return a candidate that was tried; proposed if it is proven, or forced."""
        evidence = trial.evidence
        examples = [example.cell for example in self.question.weakness.examples]
        more = {"examples": examples, "instructions": instructions_version()}
        return self._made(
            trial.reply.candidate,
            status=Status.PROPOSED if evidence.proven or forced else Status.TRIED,
            evidence={**evidence.as_json(), **more, **self.told},
            forced=forced and not evidence.proven,
            runs=(trial.tried.run_id,),
            cost_microusd=trial.reply.cost_microusd + trial.tried.cost_microusd,
            reason=evidence.doubt or None,
        )

    def refused(self, reply: Reply) -> Suggestion:
        """Return a candidate that broke a guardrail."""
        return self._made(
            reply.candidate,
            status=Status.REFUSED,
            cost_microusd=reply.cost_microusd,
            reason=reply.candidate.reason,
        )

    def _made(self, candidate: Candidate, **more: Any) -> Suggestion:
        subject = self.question.subject
        return Suggestion(
            experiment=subject.experiment.id,
            prompt=str(subject.prompt.id),
            path=subject.prompt.path,
            base_hash=subject.prompt.version,
            diff=candidate.diff,
            note=candidate.note,
            created_at=self.now,
            new_hash=candidate.version,
            targets=tuple(target.name for target in self.question.weakness.targets),
            guardrails=candidate.guardrails,
            simulated=self.simulated,
            made_by=self.made_by,
            **more,
        )


class Keeping(NamedTuple):
    """What is written down together with suggestions."""

    run_id: str
    """The run whose watchers are told."""
    now: str
    audit: Callable[[Sequence[Suggestion]], AuditEntry] | None = None
    also: Callable[[sqlite3.Connection, Sequence[Suggestion]], None] = lambda *_: None


def keep(path: Path, suggestions: Sequence[Suggestion], told: Keeping) -> tuple[Suggestion, ...]:
    """Store suggestions together, tell those who watch the run, and return them as stored."""
    with changing(path) as connection:
        # The best comes first in the list and last into the table: it is the newest one there.
        last_first = {one.hash: one for one in reversed(suggestions)}.values()
        stored = tuple(reversed([_kept(connection, one) for one in last_first]))
        named = {"suggestions": [{"id": one.id, "status": str(one.status)} for one in stored]}
        add_event(connection, told.run_id, "refine:completed", named, told.now)
        if told.audit is not None:
            add_audit(connection, told.audit(stored))
        told.also(connection, stored)
    return stored


def _kept(connection: sqlite3.Connection, one: Suggestion) -> Suggestion:
    """Store a suggestion; one that is refused because it was there before changes nothing."""
    if one.status is Status.REFUSED:
        known = list_suggestions(connection, experiment=one.experiment, prompt=one.prompt)
        if any(old.hash == one.hash and old.status is not Status.REFUSED for old in known):
            return one
    return add_suggestion(connection, one)
