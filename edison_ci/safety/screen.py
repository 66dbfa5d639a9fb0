"""Screens: what to do about a text with personal data, secrets or signs of a jailbreak."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import secrets_in

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Finding", "ScreenResult", "screen"]

Action = Literal["block", "flag", "off"]
Status = Literal["block", "flag", "ok"]

MOST = 20
"""The most findings of a kind that are reported."""


class ScreenActions(Protocol):
    """The action of an experiment for each kind of finding."""

    @property
    def pii(self) -> Action:
        """Personal data."""

    @property
    def jailbreak(self) -> Action:
        """Signs of a jailbreak."""

    @property
    def secrets(self) -> Action:
        """Keys and tokens."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a screen; of personal data it has the kind only."""

    kind: str
    """pii, jailbreak or secrets."""
    what: str
    action: Action


@dataclass(frozen=True, slots=True)
class ScreenResult:
    """The findings of all screens in a text."""

    status: Status
    findings: tuple[Finding, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the findings, for `safety.KIND`."""
        return frozenset(finding.kind for finding in self.findings)

    @property
    def reason(self) -> str:
        """The findings in words, without duplicates."""
        texts = dict.fromkeys(f"{finding.kind}: {finding.what}" for finding in self.findings)
        return "; ".join(texts)


def screen(text: str, actions: ScreenActions, *, redacted: bool = False) -> ScreenResult:
    """Return the findings of the enabled screens, and the strictest of their actions.

    In a redacted text, replacements such as `[E-MAIL]` count as personal data.
    """
    findings = tuple(
        Finding(kind, what, action)
        for kind, finder, action in (
            ("pii", _redacted_pii if redacted else _pii, actions.pii),
            ("jailbreak", _jailbreaks, actions.jailbreak),
            ("secrets", _secrets, actions.secrets),
        )
        if action != "off"
        for what in itertools.islice(finder(text), MOST)
    )
    done = {finding.action for finding in findings}
    return ScreenResult("block" if "block" in done else "flag" if done else "ok", findings)


# Patterns are compiled with the first text that needs them, as most runs have no screen.


def _pii(text: str) -> Iterator[str]:
    from edison_ci.safety.pii import find_personal_data

    return (found.what for found in find_personal_data(text))


def _redacted_pii(text: str) -> Iterator[str]:
    from edison_ci.safety.pii import redaction_marks

    return itertools.chain(redaction_marks(text), _pii(text))


def _jailbreaks(text: str) -> Iterator[str]:
    from edison_ci.safety.jailbreaks import find_jailbreaks

    return find_jailbreaks(text)


def _secrets(text: str) -> Iterator[str]:
    return (fault.message.removeprefix("this looks like ") for fault in secrets_in(text))
