"""Suggestions made from candidates, and the history of earlier ones."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.api.notices import Notice
from edison_ci.features.refine.evidence import NOT_VERIFIED
from edison_ci.features.refine.refiner import RejectedSuggestion, instructions_version
from edison_ci.records import SuggestionStatus
from edison_ci.store.audit import add_audit
from edison_ci.store.database import open_for_change
from edison_ci.store.runs import add_event, simulation_label
from edison_ci.store.suggestions import (
    MadeBy,
    Suggestion,
    add_suggestion,
    list_suggestions,
    rejections,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.features.refine.evidence import Evidence
    from edison_ci.features.refine.refiner import RefinePrompt, RefinerReply
    from edison_ci.features.refine.trials import TrialResult
    from edison_ci.judges.judge import Judge
    from edison_ci.proposals.candidate import Candidate, RefineTarget
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.runs import Run

_MOST_TRIED = 5
"""Unsuccessful suggestions that are shown to a refiner."""


class Trial(NamedTuple):
    """A candidate that passed every guardrail, with its trial and evidence."""

    reply: RefinerReply
    result: TrialResult
    evidence: Evidence

    @property
    def gain(self) -> float:
        """Gain on the training cases, by which candidates are ranked."""
        train = self.evidence.train
        return float("-inf") if train is None or train.gain is None else train.gain


class History(NamedTuple):
    """Earlier suggestions for a prompt."""

    past: tuple[RejectedSuggestion, ...]
    """Suggestions that are shown to the refiner."""
    known: Mapping[str, str]
    """Prompt versions that must not be suggested again, with the reason."""


def history_of(connection: sqlite3.Connection, target: RefineTarget, *, force: bool) -> History:
    """Return the rejected suggestions, and those measured without a gain on the current prompt.

    With `force` the latter are left out, so that the same question finds the same stored reply. So
    is one that only lacked held-out cases: with more of them it may be verified.
    """
    name, prompt = target.experiment.id, target.prompt
    rejected = rejections(connection, name, prompt.id)
    tried: list[Suggestion] = []
    if not force:
        stored = list_suggestions(
            connection, experiment=name, prompt=prompt.id, statuses=(SuggestionStatus.TRIED,)
        )
        tried = [
            suggestion
            for suggestion in stored
            if suggestion.base_hash == prompt.version and not lacks_cases(suggestion)
        ]
    excluded = {
        suggestion.new_hash: f"the same change was {suggestion.status} before: "
        f"{suggestion.reason or 'no gain shown'}"
        for suggestion in (*tried, *rejected)
        if suggestion.new_hash is not None
    }
    return History(
        tuple(
            RejectedSuggestion.of(suggestion) for suggestion in (*rejected, *tried[:_MOST_TRIED])
        ),
        excluded,
    )


def lacks_cases(suggestion: Suggestion) -> bool:
    """Whether nothing but the number of held-out cases speaks against a tried suggestion."""
    return (suggestion.reason or "").startswith(NOT_VERIFIED)


def simulation_of(run: Run, refiner: Judge) -> str:
    """Return which parts of a measurement and of the refiner are simulated, as a label."""
    if not run.models:
        return run.simulation or ("simulated refiner" if refiner.model.simulated else "")
    return simulation_label({**run.models, "refiner": {refiner.name: refiner.model.simulated}})


@dataclass(frozen=True, slots=True)
class SuggestionMaker:
    """Makes suggestions from a refiner's replies to one question."""

    question: RefinePrompt
    simulation: str
    """Which parts are simulated, as a label; empty if none is."""
    now: str
    made_by: MadeBy = MadeBy.REFINE
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More keys for the evidence of a trial."""

    def from_trial(self, trial: Trial, *, forced: bool) -> Suggestion:
        """Return the suggestion of a measured candidate; proposed if it is proven or forced."""
        evidence = trial.evidence
        examples = [example.cell for example in self.question.weakness.examples]
        more = {"examples": examples, "instructions": instructions_version()}
        return self._suggestion(
            trial.reply.candidate,
            status=SuggestionStatus.PROPOSED
            if evidence.proven or forced
            else SuggestionStatus.TRIED,
            evidence={**evidence.as_json(), **more, **self.extra},
            forced=forced and not evidence.proven,
            runs=(trial.result.run_id,),
            cost_microusd=trial.reply.cost_microusd + trial.result.cost_microusd,
            reason=evidence.doubt or None,
        )

    def from_refusal(self, reply: RefinerReply) -> Suggestion:
        """Return the suggestion of a candidate that broke a guardrail."""
        return self._suggestion(
            reply.candidate,
            status=SuggestionStatus.REFUSED,
            cost_microusd=reply.cost_microusd,
            reason=reply.candidate.reason,
        )

    def _suggestion(
        self, candidate: Candidate, *, evidence: Mapping[str, Any] | None = None, **more: Any
    ) -> Suggestion:
        target = self.question.target
        label = {"simulation": self.simulation} if self.simulation else {}
        return Suggestion(
            experiment=target.experiment.id,
            prompt=str(target.prompt.id),
            path=target.prompt.path,
            base_hash=target.prompt.version,
            diff=candidate.diff,
            note=candidate.note,
            created_at=self.now,
            new_hash=candidate.version,
            targets=tuple(weak_one.name for weak_one in self.question.weakness.targets),
            guardrails=candidate.guardrails,
            simulated=bool(self.simulation),
            evidence={**(evidence or {}), **label},
            made_by=self.made_by,
            **more,
        )


def suggestion_notice(suggestion: Suggestion) -> Notice:
    """Return the notice about a suggestion that waits for a decision."""
    sentence = suggestion.evidence.get("sentence")
    mark = f" ({suggestion.simulation})" if suggestion.simulation else ""
    return Notice(
        "suggestion",
        f"{suggestion.experiment}: a change of {suggestion.prompt} is suggested{mark}",
        (
            *((str(sentence),) if sentence else ()),
            f"Look at it and decide: edison review show {suggestion.id}",
        ),
        suggestion.experiment,
        suggestion.runs[-1] if suggestion.runs else None,
        also=("review_needed",),
        texts=(suggestion.note, suggestion.diff),
    )


class SuggestionRecord(NamedTuple):
    """What is stored in the same transaction as suggestions."""

    run_id: str
    """The run that gets the event."""
    now: str
    audit: Callable[[Sequence[Suggestion]], AuditEntry] | None = None
    also: Callable[[sqlite3.Connection, Sequence[Suggestion]], None] = lambda *_: None


def store(
    path: Path, suggestions: Sequence[Suggestion], record: SuggestionRecord
) -> tuple[Suggestion, ...]:
    """Store suggestions with an event and an audit entry; return them as stored."""
    with open_for_change(path) as connection:
        # The best is first in the list and stored last, so that it is the newest row.
        last_first = {suggestion.hash: suggestion for suggestion in reversed(suggestions)}.values()
        stored = tuple(reversed([_store_one(connection, suggestion) for suggestion in last_first]))
        named = {
            "suggestions": [
                {"id": suggestion.id, "status": str(suggestion.status)} for suggestion in stored
            ]
        }
        add_event(connection, record.run_id, "refine:completed", named, record.now)
        if record.audit is not None:
            add_audit(connection, record.audit(stored))
        record.also(connection, stored)
    return stored


def _store_one(connection: sqlite3.Connection, suggestion: Suggestion) -> Suggestion:
    """Store a suggestion; a refused duplicate of a stored one changes nothing."""
    if suggestion.status is SuggestionStatus.REFUSED:
        stored = list_suggestions(
            connection, experiment=suggestion.experiment, prompt=suggestion.prompt
        )
        if any(
            old.hash == suggestion.hash and old.status is not SuggestionStatus.REFUSED
            for old in stored
        ):
            return suggestion
    return add_suggestion(connection, suggestion)
