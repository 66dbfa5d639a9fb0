"""Events and audit entries as sentences."""

from __future__ import annotations

import re
from typing import Any

import pytest

from edison_ci.results.history_words import audit_sentence, event_sentence
from edison_ci.store.audit import AuditEntry
from tests.conftest import ROOT


def entry(action: str, entity: str = "", **values: Any) -> AuditEntry:
    return AuditEntry("2026-11-17T10:00:00.000Z", "ada", "git", action, entity, **values)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("iteration:started", {"experiment": "e"}, "The run of e was started."),
        ("status:changed", {"from": "EXECUTING", "to": "JUDGING"}, "Answers are being judged."),
        (
            "run:progress",
            {"done": 1_200, "total": 2_000, "cost_microusd": 1_250_000},
            "1,200 of 2,000 cells are done, for $1.25.",
        ),
        (
            "run:completed",
            {"total": 1, "cells": {"ok": 1, "error": 0}, "cost_microusd": 0},
            "Done with 1 cell (1 ok), for $0.",
        ),
        (
            "cost:alert",
            {"budget": "stop.budget_usd", "used": 0.8},
            "80% of stop.budget_usd is used.",
        ),
        ("error", {"model": "m", "message": "QUOTA: none"}, "m was stopped: QUOTA: none."),
        (
            "iteration:completed",
            {"status": "COMPLETED", "seconds": 12.4},
            "The work ended as completed after 12 s.",
        ),
        (
            "refine:completed",
            {"suggestions": [{"id": "ab", "status": "proposed"}]},
            "1 change of the prompt suggested: ab (proposed).",
        ),
        (
            "aggregate:completed",
            {"interim": {"kind": "cases", "at": 20, "most": 40}, "verdict": "pass", "more": False},
            "An interim analysis after 20 of 40 cases says pass: this is enough.",
        ),
        ("run:progress", {"done": 1}, "run:progress: done 1"),
        ("new:kind", {"a": 1, "b": "x"}, "new:kind: a 1, b x"),
    ],
)
def test_an_event_is_a_sentence(kind: str, data: dict[str, Any], said: str) -> None:
    assert event_sentence(kind, data) == said


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            entry("grade", "cell ab", after={"score": 0.75, "scale": "1-5", "flagged": False}),
            "ada graded cell ab: 4 of 5.",
        ),
        (
            entry("grade", "cell ab", after={"score": None, "scale": "thumbs", "flagged": True}),
            "ada flagged cell ab for a second look.",
        ),
        (
            entry("review reject", "suggestion s", after={"status": "rejected", "reason": "wrong"}),
            "ada rejected suggestion s: wrong.",
        ),
        (
            entry("promote", "p", before="v1", after="v2"),
            "ada put version v2 of p in production, before v1.",
        ),
        (
            entry("sign in", after={"from": "10.0.0.1", "until": "x"}),
            "ada signed in from 10.0.0.1.",
        ),
        (
            entry("refused: review approve", "suggestion s", after="needs a reviewer"),
            "ada was refused review approve on suggestion s: needs a reviewer.",
        ),
        (
            entry("refused: sign in", after={"from": "10.0.0.1", "why": "wrong password"}),
            "ada could not sign in: wrong password.",
        ),
        (
            entry("push runs", "bundle 0a1b", after={"runs": ["r1"], "trusted": True}),
            "ada pushed run r1 as bundle 0a1b.",
        ),
        (
            entry("pull runs", "e.example.com", after={"runs": ["r1"], "trusted": False}),
            "ada pulled run r1 from e.example.com.",
        ),
        (entry("create project", "shop"), "ada made the project shop."),
        (entry("grade", "cell ab", after="tampered"), "ada used grade on cell ab."),
        (entry("something new", "there"), "ada used something new on there."),
    ],
)
def test_an_audit_entry_is_a_sentence(row: AuditEntry, said: str) -> None:
    assert audit_sentence(row) == said


def test_every_action_that_is_written_has_words_of_its_own() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "edison_ci").rglob("*.py")
    )
    written = set(re.findall(r"\.entry\(\s*[\w.()]+,\s*\"([a-z ]+)\"", sources))
    assert {"grade", "gc", "promote", "roles token"} <= written
    unknown = {each for each in written if f"used {each}" in audit_sentence(entry(each, "x", after={
        "score": 1.0, "scale": "thumbs", "until": "u", "reason": "r", "as": "s", "status": "t",
        "cutoff": "2026-01-01", "from": "f", "number": 1, "occasion": "o",
        "error": "e", "host": "h", "needed": 2, "role": "editor"}))}  # fmt: skip
    assert unknown == set()
