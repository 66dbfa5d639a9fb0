"""Screens: what to do about a text with personal data, secrets or signs of a jailbreak."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import MASK, secrets_in
from edison_ci.safety.names import PII_KINDS, load_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Finding", "ScreenResult", "prepare_screens", "screen"]

Action = Literal["block", "flag", "redact", "off"]
Status = Literal["block", "flag", "redact", "ok"]
STRICTEST: tuple[Status, ...] = ("block", "flag", "redact")
"""Actions, the strictest first."""
MOST = 20
"""The most findings of a kind that are reported."""


class PiiActions(Protocol):
    """The action of an experiment for each kind of personal data."""

    @property
    def names_by(self) -> str | None:
        """The pipeline of spaCy that finds names."""

    def action_of(self, kind: str) -> Action:
        """Return the action for a kind."""

    def redacted_kinds(self) -> frozenset[str]:
        """Return the kinds that are redacted."""


class ScreenActions(Protocol):
    """The action of an experiment for each kind of finding."""

    @property
    def pii(self) -> PiiActions:
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
        return "; ".join(f"{kind}: {self.found(kind)}" for kind in sorted(self.kinds))

    def action(self, kind: str) -> Status:
        """Return the strictest action for a kind that was found."""
        done = {finding.action for finding in self.findings if finding.kind == kind}
        return next(action for action in STRICTEST if action in done)

    def found(self, kind: str) -> str:
        """Return what was found of a kind, without duplicates."""
        return ", ".join(dict.fromkeys(f.what for f in self.findings if f.kind == kind))


def prepare_screens(actions: ScreenActions) -> None:
    """Load what the screens need and what takes longer than a text may; raises UsageError."""
    if actions.pii.names_by is not None:
        load_pipeline(actions.pii.names_by)


def screen(text: str, actions: ScreenActions, *, redacted: bool = False) -> ScreenResult:
    """Return the findings of the enabled screens, and the strictest of their actions.

    In a redacted text, replacements such as `[E-MAIL]` and `[KEY]` count as what they replace.
    """
    findings = [*_pii_findings(text, actions.pii, redacted=redacted)]
    if actions.jailbreak != "off":
        signs = itertools.islice(_jailbreaks(text), MOST)
        findings += (Finding("jailbreak", what, actions.jailbreak) for what in signs)
    if actions.secrets != "off":
        secrets = itertools.islice(_secrets(text, redacted=redacted), MOST)
        findings += (Finding("secrets", what, actions.secrets) for what in secrets)
    done = {finding.action for finding in findings}
    status: Status = next((action for action in STRICTEST if action in done), "ok")
    return ScreenResult(status, tuple(findings))


# Patterns are compiled with the first text that needs them, as most runs have no screen.


def _pii_findings(text: str, actions: PiiActions, *, redacted: bool) -> Iterator[Finding]:
    if all(actions.action_of(kind) == "off" for kind in PII_KINDS):
        return
    from edison_ci.safety.pii import find_personal_data, redaction_marks

    kinds: Iterable[str] = (m.what for m in find_personal_data(text, actions.names_by))
    if redacted:
        kinds = itertools.chain(redaction_marks(text), kinds)
    findings = (Finding("pii", kind, actions.action_of(kind)) for kind in kinds)
    yield from itertools.islice((f for f in findings if f.action != "off"), MOST)


def _jailbreaks(text: str) -> Iterator[str]:
    from edison_ci.safety.jailbreaks import find_jailbreaks

    return find_jailbreaks(text)


def _secrets(text: str, *, redacted: bool) -> Iterator[str]:
    if redacted and MASK in text:
        yield "a key"
    for fault in secrets_in(text):
        yield fault.message.removeprefix("this looks like ")
