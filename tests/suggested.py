"""Puts suggestions into the results of the small project, as refining would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci.config.prompt import read_prompt
from edison_ci.documents.text_diff import diff_of
from edison_ci.records import SuggestionStatus
from edison_ci.store.database import open_for_change
from edison_ci.store.suggestions import Guardrail, Suggestion, add_suggestion, find_suggestion

if TYPE_CHECKING:
    from tests.conftest import Folder

PATH = "prompts/hello.md"
ADDED = "Be warm, and use the name once.\n"
EVIDENCE: dict[str, Any] = {
    "train": {
        "n": 40,
        "before": {"estimate": 0.61, "low": 0.55, "high": 0.67, "n": 40, "method": "wilson"},
        "after": {"estimate": 0.7, "low": 0.64, "high": 0.76, "n": 40, "method": "wilson"},
        "difference": {"estimate": 0.09, "low": 0.04, "high": 0.14, "p": 0.002, "method": "t"},
        "decision": "better",
        "sentence": "B is better.",
        "fixed": ["ada", "bo"],
        "newly_failing": ["cy"],
        "lower": [],
        "higher": [],
    },
    "holdout": {
        "n": 22,
        "before": {"estimate": 0.6, "low": 0.52, "high": 0.68, "n": 22, "method": "wilson"},
        "after": {"estimate": 0.648, "low": 0.56, "high": 0.72, "n": 22, "method": "wilson"},
        "difference": {"estimate": 0.048, "low": 0.009, "high": 0.087, "p": 0.02, "method": "t"},
        "decision": "better",
        "sentence": "B is better.",
        "fixed": ["dee"],
        "newly_failing": [],
        "lower": [],
        "higher": [],
    },
    "verified": True,
    "proven": True,
    "sentence": "On 22 held-out cases the new prompt is +4.8 (likely +0.9 to +8.7).",
    "criteria": [{"name": "Warmth", "kind": "criterion", "before": 0.4, "after": 0.62}],
    "cost_microusd": {"before": 80, "after": 88},
    "growth": {"chars": 32, "percent": 30.0, "lines_added": 1, "lines_removed": 0},
    "examples": [],
}


SEARCH: dict[str, Any] = {
    "id": "0123456789ab",
    "generations": 4,
    "tried": 32,
    "measured": 13,
    "refused": 2,
    "wider": 4,
    "earlier_comparisons": 2,
    "stopped_by": "converged",
}


def version_of(text: str, path: str = PATH) -> str:
    prompt, problems = read_prompt(text.encode(), path)
    assert prompt is not None, problems
    return prompt.version


def suggestion_for(folder: Folder, added: str = ADDED, **fields: Any) -> Suggestion:
    """Return a suggestion that adds lines to the end of the prompt as it is in the folder."""
    before = folder.read(PATH)
    after = before + added
    told: dict[str, Any] = {
        "experiment": "hello",
        "prompt": "hello",
        "path": PATH,
        "base_hash": version_of(before),
        "new_hash": version_of(after),
        "diff": diff_of(PATH, before, after),
        "note": "Warmth is weak: ask for it.",
        "status": SuggestionStatus.PROPOSED,
        "created_at": "2026-11-15T12:00:00.000Z",
        "targets": ("Warmth",),
        "guardrails": (Guardrail("length", True, "+32 characters of 107; at most 300"),),
        "evidence": EVIDENCE,
        "simulated": True,
        "cost_microusd": 1_234,
    }
    return replace(Suggestion(**told), **fields)


def keep(folder: Folder, suggestion: Suggestion) -> Suggestion:
    """Store a suggestion in the results of a project."""
    path = folder.path / ".edison/results.db"
    path.parent.mkdir(exist_ok=True)
    with open_for_change(path) as connection:
        return add_suggestion(connection, suggestion)


def stored(folder: Folder, suggestion: Suggestion) -> Suggestion:
    """Return a suggestion as it is stored by now."""
    with open_for_change(folder.path / ".edison/results.db") as connection:
        return find_suggestion(connection, suggestion.hash)
