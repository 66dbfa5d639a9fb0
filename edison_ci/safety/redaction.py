"""Redaction of personal data and keys before a text is stored, or sent to a model.

Texts of models are redacted on arrival, before they are graded, stored, recorded or shown: answers,
replies of judges and refiners, tool calls, and texts quoted in errors. So every file, page, report
and message has the redacted text, and regrading and reuse work on it too. The setting
`redact_pii_before_storage` does it for a project, and `redact` in the safety screens of an
experiment for its runs. With the setting, cases are redacted where they are shown or quoted, and
models get them unchanged; screens of inputs redact them as they are read, for models too.
Replacements such as `[E-MAIL]` still show that a text had personal data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import masked
from edison_ci.safety import names

if TYPE_CHECKING:
    from edison_ci.records import Case, Completion, Json
    from edison_ci.safety.screen import ScreenActions

Redact: TypeAlias = Callable[[str], str]


class RedactionSettings(Protocol):
    """The setting of a project that enables redaction."""

    @property
    def redact_pii_before_storage(self) -> bool:
        """Whether personal data is redacted before texts are stored and shown."""


def keep_text(text: str) -> str:
    """Return the text unchanged, for a project without redaction."""
    return text


def redactor(
    settings: RedactionSettings | None = None, screens: ScreenActions | None = None
) -> Redact:
    """Return what is applied to texts by the settings of a project, and by some screens."""
    kinds = frozenset[str]() if screens is None else screens.pii.redacted_kinds()
    names_by = None if screens is None else screens.pii.names_by
    if settings is not None and settings.redact_pii_before_storage:
        kinds = frozenset(names.PII_KINDS)
    secrets = screens is not None and screens.secrets == "redact"
    if not kinds:
        return masked if secrets else keep_text
    # Imported here because it compiles patterns, which takes time.
    from edison_ci.safety.pii import redact_pii

    redact = partial(redact_pii, kinds=kinds, names_by=names_by)
    return (lambda text: redact(masked(text))) if secrets else redact


def redact_value(value: Json, redact: Redact) -> Json:
    """Return a JSON value with its strings, keys and integers redacted."""
    if isinstance(value, dict):
        return {redact(name): redact_value(item, redact) for name, item in value.items()}
    if isinstance(value, list):
        return [redact_value(item, redact) for item in value]
    if isinstance(value, str):
        return _redact_text(value, redact)
    if isinstance(value, int) and not isinstance(value, bool):
        text = redact(str(value))
        return value if text == str(value) else text
    return value


def _redact_text(text: str, redact: Redact) -> str:
    """Return a redacted text; JSON stays valid JSON, though a number may become a string."""
    redacted = redact(text)
    if redacted == text or not text.lstrip().startswith(("{", "[")):
        return redacted
    try:
        value = parse_json(text)
    except Fault:
        return redacted
    return json.dumps(redact_value(value, redact), ensure_ascii=False)


def redact_completion(completion: Completion, redact: Redact) -> Completion:
    """Return an answer with its texts redacted."""
    if redact is keep_text:
        return completion
    text = _redact_text(completion.text, redact)
    tools = redact_value(completion.tool_calls, redact)
    details = redact_value(completion.details, redact)
    if (text, tools, details) == (completion.text, completion.tool_calls, completion.details):
        return completion
    return replace(completion, text=text, tool_calls=tools, details=details)


def redact_case(case: Case, redact: Redact) -> Case:
    """Return a case with its values redacted."""
    if redact is keep_text:
        return case
    inputs = {name: redact_value(value, redact) for name, value in case.inputs.items()}
    metadata = {name: redact_value(value, redact) for name, value in case.metadata.items()}
    expected = redact_value(case.expected, redact)
    return replace(case, inputs=inputs, expected=expected, metadata=metadata)
