"""Screens: whether a text may be shown, and what in it is worth a second look."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import secrets_in
from edison_ci.plugins import later

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Finding", "Screened", "screen"]

Action = Literal["block", "flag", "off"]
Status = Literal["block", "flag", "ok"]

# Loaded late: their patterns take longer to compile than a run without screens has to wait.
_personal_data = later("edison_ci.safety.pii:personal_data")
_marks_in = later("edison_ci.safety.pii:marks_in")
_jailbreaks = later("edison_ci.safety.jailbreak:jailbreaks")

MOST = 20
"""Findings of a kind that are told."""


class Actions(Protocol):
    """What an experiment does about each kind."""

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
    """One thing that a screen found; of personal data it says the kind only."""

    kind: str
    """pii, jailbreak or secrets."""
    what: str
    action: Action


@dataclass(frozen=True, slots=True)
class Screened:
    """What all screens say of a text."""

    status: Status
    findings: tuple[Finding, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that were found, for `safety.KIND`."""
        return frozenset(finding.kind for finding in self.findings)

    @property
    def reason(self) -> str:
        """What was found, in words."""
        said = dict.fromkeys(f"{finding.kind}: {finding.what}" for finding in self.findings)
        return "; ".join(said)


def screen(text: str, actions: Actions, *, redacted: bool = False) -> Screened:
    """Return what the screens find that are switched on, and the strictest thing to do about it.

    In a text that was redacted the words that stand for personal data count as such.
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
    return Screened("block" if "block" in done else "flag" if done else "ok", findings)


def _pii(text: str) -> Iterator[str]:
    return (found.what for found in _personal_data(text))


def _redacted_pii(text: str) -> Iterator[str]:
    return itertools.chain(_marks_in(text), _pii(text))


def _secrets(text: str) -> Iterator[str]:
    return (fault.message.removeprefix("this looks like ") for fault in secrets_in(text))
