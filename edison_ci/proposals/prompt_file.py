"""The prompt file that a suggestion changes: its versions, the applied change, and edits by hand.

A suggestion was reviewed and measured on one version of a prompt and applies to that version only.
Guardrails are checked again, because the results may come from another machine. An edit by hand is
checked like a model's diff and becomes a new, unmeasured suggestion; the old one is superseded.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.access.site import Role
from edison_ci.config.prompt import read_prompt
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.text_diff import diff_of
from edison_ci.errors import UsageError
from edison_ci.numeric import rounded
from edison_ci.plan.versions import short
from edison_ci.proposals.candidate import RefineTarget, with_prompt
from edison_ci.proposals.context import entity_of
from edison_ci.proposals.guardrails import GuardrailContext, check_diff
from edison_ci.records import OPEN_STATUSES, SuggestionStatus
from edison_ci.store.audit import add_audit
from edison_ci.store.database import open_for_change
from edison_ci.store.suggestions import Suggestion, add_suggestion, decided_already, move_suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.access.site import Actor
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.marks import Json
    from edison_ci.proposals.candidate import Candidate
    from edison_ci.proposals.context import ReviewContext


def prompt_in(project: Project, path: str, data: bytes | None) -> Prompt | None:
    """Parse a prompt file; None if it is missing or invalid."""
    return None if data is None else read_prompt(data, path, partial(_json, project))[0]


def is_base(project: Project, suggestion: Suggestion, data: bytes | None) -> bool:
    """Whether a file is the version that the suggestion changes."""
    prompt = prompt_in(project, suggestion.path, data)
    return prompt is not None and prompt.version == suggestion.base_hash


def is_result(project: Project, suggestion: Suggestion, data: bytes | None) -> bool:
    """Whether a file is the version that the suggestion produces."""
    prompt = prompt_in(project, suggestion.path, data)
    return prompt is not None and prompt.version == suggestion.new_hash


def experiment_of(project: Project, suggestion: Suggestion) -> Experiment:
    """Return the experiment of a suggestion; raises UsageError if it no longer has the prompt."""
    experiment = project.experiment(suggestion.experiment)
    if suggestion.path not in {prompt.path for prompt in experiment.prompts}:
        raise UsageError(
            f"suggestion {suggestion.id} is for {suggestion.path}, "
            f"which is not a prompt of {experiment.id}",
            hint="make a new suggestion: edison refine",
        )
    return experiment


def apply_suggestion(project: Project, suggestion: Suggestion, data: bytes) -> bytes:
    """Return the file with the suggestion applied; raises UsageError if a guardrail fails."""
    candidate = check_suggestion(project, suggestion, data, suggestion.diff)
    if not candidate.ok or candidate.change is None:
        raise UsageError(
            f"suggestion {suggestion.id} is not allowed here: {candidate.reason}",
            hint="make a new suggestion: edison refine",
        )
    if suggestion.new_hash is not None and candidate.version != suggestion.new_hash:
        raise UsageError(
            f"suggestion {suggestion.id} no longer produces the version that was measured",
            hint="a file that the prompt uses has changed; make a new suggestion: edison refine",
        )
    return candidate.change.text.encode("utf-8", "surrogatepass")


def check_suggestion(project: Project, suggestion: Suggestion, data: bytes, diff: str) -> Candidate:
    """Check a diff of the suggestion's file against the guardrails."""
    prompt = prompt_in(project, suggestion.path, data)
    if prompt is None or prompt.version != suggestion.base_hash:
        raise stale_suggestion(suggestion, prompt)
    experiment = experiment_of(project, suggestion)
    target = RefineTarget(project, with_prompt(experiment, prompt), data.decode("utf-8"))
    background = GuardrailContext(
        cases=lambda: project.cases(experiment), made_by=suggestion.made_by
    )
    return check_diff(target, diff, suggestion.note, background)


def stale_suggestion(suggestion: Suggestion, prompt: Prompt | None, where: str = "") -> UsageError:
    """Return the error for a suggestion whose prompt has changed."""
    now = "is missing or invalid" if prompt is None else f"is {short(prompt.version)}"
    place = f" on {where}" if where else ""
    return UsageError(
        f"suggestion {suggestion.id} changes {suggestion.path} in version "
        f"{short(suggestion.base_hash)}, but{place} it {now}",
        hint="make a new suggestion with edison refine, or restore that version",
    )


def _json(project: Project, file: str) -> Json:
    return read_json(read(project.tree, file), file).value


UNMEASURED = "Edited by hand after it was measured, and not measured again."


class GuardrailsBroken(UsageError):
    """An edited prompt that breaks guardrails."""


def may_edit(review: ReviewContext, suggestion: Suggestion) -> Actor:
    """Return the acting person; raises if they or the suggestion do not permit an edit."""
    actor = review.require(Role.EDITOR, "review edit", suggestion)
    if suggestion.status not in OPEN_STATUSES:
        raise decided_already(suggestion)
    review.refuse_while_running(suggestion)
    return actor


def text_to_edit(review: ReviewContext, suggestion: Suggestion) -> str:
    """Return the text of the prompt with the suggestion applied."""
    return decode(apply_suggestion(review.project, suggestion, base_data(review, suggestion)))


def edit_suggestion(
    review: ReviewContext, actor: Actor, suggestion: Suggestion, text: str
) -> Suggestion:
    """Store an edited suggestion and supersede the original."""
    before = base_data(review, suggestion)
    diff = diff_of(suggestion.path, decode(before), text)
    if not diff:
        raise UsageError("the edited prompt equals the original", hint="reject it instead")
    candidate = check_suggestion(review.project, suggestion, before, diff)
    if not candidate.ok:
        broken = "; ".join(f"{rail.rule}: {rail.detail}" for rail in candidate.guardrails
                           if not rail.ok)  # fmt: skip
        raise GuardrailsBroken(f"the edited prompt breaks guardrails: {broken}")
    new = dataclasses.replace(_suggestion(review, suggestion, candidate), author=actor.name)
    if new.hash == suggestion.hash:
        raise UsageError(
            "nothing was changed", hint=f"approve it: edison review approve {suggestion.id}"
        )
    with open_for_change(review.site.results) as connection:
        stored = add_suggestion(connection, new)
        if stored.status is not SuggestionStatus.PROPOSED:
            raise UsageError(f"that is suggestion {stored.id}, which is {stored.status}")
        reason = f"edited into suggestion {new.id}"
        move_suggestion(connection, suggestion, SuggestionStatus.SUPERSEDED, reason=reason)
        entry = review.site.entry(actor, "review edit", entity_of(suggestion), after={"as": new.id})
        add_audit(connection, entry)
    return stored


def _suggestion(review: ReviewContext, suggestion: Suggestion, candidate: Candidate) -> Suggestion:
    assert candidate.change is not None, "a candidate that passes was applied"
    change = candidate.change
    length = len(change.target.text)
    grown = len(change.text) - length
    evidence = {
        "proven": False,
        "verified": False,
        "sentence": UNMEASURED,
        "growth": {
            "chars": grown,
            "percent": rounded(100 * grown / length, 1) if length else 0.0,
            "lines_added": len(change.patch.added),
            "lines_removed": len(change.patch.removed),
        },
        "examples": suggestion.evidence.get("examples", []),
    }
    return dataclasses.replace(
        suggestion,
        diff=candidate.diff,
        hash="",
        new_hash=candidate.version,
        guardrails=candidate.guardrails,
        evidence=evidence,
        status=SuggestionStatus.PROPOSED,
        forced=True,
        created_at=review.site.now(),
        edited_from=suggestion.id,
        commit_id=None,
        cost_microusd=0,
        runs=(),
        decided_by=None,
        decided_at=None,
        reason=None,
    )


def base_data(review: ReviewContext, suggestion: Suggestion) -> bytes:
    """Return the file in the version that the suggestion changes, from the tree or from Git."""
    prompt = None
    for data in _stored_versions(review, suggestion):
        if is_base(review.project, suggestion, data):
            return data
        prompt = prompt or prompt_in(review.project, suggestion.path, data)
    raise stale_suggestion(suggestion, prompt)


def _stored_versions(review: ReviewContext, suggestion: Suggestion) -> Iterator[bytes]:
    path = review.project.root / suggestion.path
    if path.is_file() and not path.is_symlink():
        yield path.read_bytes()
    repository = review.repository
    if repository is None:
        return
    default = repository.default_branch()
    tips = [repository.head(), repository.resolve(default) if default else None]
    for commit in filter(None, tips):
        data = repository.read(commit, review.in_repository(suggestion.path))
        if data is not None:
            yield data


def read_edited(data: bytes) -> str:
    """Decode an edited file."""
    try:
        return decode(data).replace("\r\n", "\n")
    except Fault as fault:
        raise UsageError(f"the edited prompt cannot be read: {fault.message}") from None
