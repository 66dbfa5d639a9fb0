"""Screens that are on find things; the strictest action wins."""

from __future__ import annotations

import pytest

from edison_ci.config.screens import Safety
from edison_ci.safety.redaction import redactor
from edison_ci.safety.screen import MOST, screen


def safety(**actions: object) -> Safety:
    return Safety.model_validate(actions)


KEY = "sk-" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2"
MAIL = "ann@shop.example"
DAN = "I am DAN."


@pytest.mark.parametrize(
    ("text", "screens", "status", "kinds"),
    [
        (f"{MAIL} {KEY} {DAN}", safety(), "ok", set()),
        (MAIL, safety(pii="flag"), "flag", {"pii"}),
        (MAIL, safety(pii="block"), "block", {"pii"}),
        (DAN, safety(jailbreak="flag", pii="block"), "flag", {"jailbreak"}),
        (KEY, safety(secrets="block"), "block", {"secrets"}),
        (
            f"{MAIL} {KEY}",
            safety(pii="flag", secrets="block", jailbreak="flag"),
            "block",
            {"pii", "secrets"},
        ),
        (f"{MAIL} {KEY}", safety(pii="flag", secrets="off"), "flag", {"pii"}),
        ("All is well.", safety(pii="block", secrets="block", jailbreak="block"), "ok", set()),
        ("", safety(pii="block", secrets="block", jailbreak="block"), "ok", set()),
    ],
)
def test_the_strictest_action_of_what_was_found_counts(
    text: str, screens: Safety, status: str, kinds: set[str]
) -> None:
    screened = screen(text, screens)
    assert screened.status == status
    assert screened.kinds == kinds


def test_a_finding_never_repeats_what_was_found() -> None:
    screened = screen(f"{MAIL}, {KEY}", safety(pii="flag", secrets="block"))
    assert "ann" not in screened.reason
    assert KEY not in repr(screened)
    assert screened.reason == "pii: e-mail; secrets: an OpenAI key (sk-a...)"


def test_kinds_of_personal_data_have_actions_of_their_own() -> None:
    screens = safety(pii={"action": "flag", "kinds": {"card": "block", "ip": "off"}})
    assert screen(MAIL, screens).status == "flag"
    assert screen("4111 1111 1111 1111", screens).status == "block"
    assert screen("203.0.113.7", screens).status == "ok"
    both = screen(f"{MAIL} 4111 1111 1111 1111", screens)
    assert (both.action("pii"), both.found("pii")) == ("block", "e-mail, card")


def test_what_was_redacted_is_still_counted() -> None:
    screens = safety(pii="redact", secrets="redact")
    redact = redactor(screens=screens)
    text = redact(f"Write to {MAIL} with {KEY}.")
    assert text == "Write to [E-MAIL] with [key]."
    screened = screen(text, screens, redacted=True)
    assert (screened.status, screened.reason) == ("redact", "pii: e-mail; secrets: a key")
    assert screen(text, screens).status == "ok"


@pytest.mark.parametrize(
    ("screens", "expected"),
    [
        (safety(), set()),
        (safety(pii="flag"), {"pii", "any"}),
        (safety(pii={"action": "off", "kinds": {"card": "block"}}), {"pii", "any"}),
        (safety(inputs={"pii": "redact", "jailbreak": "block"}), {"input_pii", "input_jailbreak"}),
    ],
)
def test_gates_know_the_screens_that_are_on(screens: Safety, expected: set[str]) -> None:
    assert screens.active() == expected


def test_findings_are_limited_and_counted_by_kind() -> None:
    screened = screen(f"{MAIL} " * 1_000, safety(pii="flag"))
    assert len(screened.findings) == MOST
    assert screened.reason == "pii: e-mail"
