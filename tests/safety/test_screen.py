"""Screens that are on find things; the strictest action wins."""

from __future__ import annotations

import pytest

from edison_ci.config.experiment import Safety
from edison_ci.safety.screen import MOST, screen

KEY = "sk-" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2"
MAIL = "ann@shop.example"
DAN = "I am DAN."


@pytest.mark.parametrize(
    ("text", "safety", "status", "kinds"),
    [
        (f"{MAIL} {KEY} {DAN}", Safety(), "ok", set()),
        (MAIL, Safety(pii="flag"), "flag", {"pii"}),
        (MAIL, Safety(pii="block"), "block", {"pii"}),
        (DAN, Safety(jailbreak="flag", pii="block"), "flag", {"jailbreak"}),
        (KEY, Safety(secrets="block"), "block", {"secrets"}),
        (
            f"{MAIL} {KEY}",
            Safety(pii="flag", secrets="block", jailbreak="flag"),
            "block",
            {"pii", "secrets"},
        ),
        (f"{MAIL} {KEY}", Safety(pii="flag", secrets="off"), "flag", {"pii"}),
        ("All is well.", Safety(pii="block", secrets="block", jailbreak="block"), "ok", set()),
        ("", Safety(pii="block", secrets="block", jailbreak="block"), "ok", set()),
    ],
)
def test_the_strictest_action_of_what_was_found_counts(
    text: str, safety: Safety, status: str, kinds: set[str]
) -> None:
    screened = screen(text, safety)
    assert screened.status == status
    assert screened.kinds == kinds


def test_a_finding_never_repeats_what_was_found() -> None:
    screened = screen(f"{MAIL}, {KEY}", Safety(pii="flag", secrets="block"))
    assert "ann" not in screened.reason
    assert KEY not in repr(screened)
    assert screened.reason == "pii: e-mail; secrets: an OpenAI key (sk-a...)"


def test_findings_are_limited_and_counted_by_kind() -> None:
    screened = screen(f"{MAIL} " * 1_000, Safety(pii="flag"))
    assert len(screened.findings) == MOST
    assert screened.reason == "pii: e-mail"
