"""Personal data taken out of texts before they are stored, for `redact_pii_before_storage`.

What models write is redacted as it arrives, before anybody grades, stores, records or shows it:
answers, judges' and refiners' replies, tool calls, and what an error repeats. So every file, page,
report and message has the redacted text, and regrading and reuse work on it too. Cases are redacted
where they are shown or quoted; models are sent them as they are. That a text had personal data can
still be told by the words that stand for it, such as `[E-MAIL]`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.plugins import later

if TYPE_CHECKING:
    from edison_ci.records import Case, Completion, Json

Redact: TypeAlias = Callable[[str], str]

# Loaded late: the patterns take longer to compile than a run without redaction has to wait.
_redact_pii = later("edison_ci.safety.pii:redact_pii")


class Settings(Protocol):
    """The settings of a project, as far as they matter here."""

    @property
    def redact_pii_before_storage(self) -> bool:
        """Whether personal data is taken out of what is stored and shown."""


def unchanged(text: str) -> str:
    """Return the text as it is: what a project without redaction does."""
    return text


def redaction(settings: Settings) -> Redact:
    """Return what a project does to a text before it is stored or shown."""
    return _redact_pii if settings.redact_pii_before_storage else unchanged


def redacted_value(value: Json, redact: Redact) -> Json:
    """Return a JSON value whose texts, names and whole numbers are redacted."""
    if isinstance(value, dict):
        return {redact(name): redacted_value(item, redact) for name, item in value.items()}
    if isinstance(value, list):
        return [redacted_value(item, redact) for item in value]
    if isinstance(value, str):
        return _redacted_text(value, redact)
    if isinstance(value, int) and not isinstance(value, bool):
        said = redact(str(value))
        return value if said == str(value) else said
    return value


def _redacted_text(text: str, redact: Redact) -> str:
    """Return a redacted text; one that is JSON stays JSON, though a number in it may go."""
    found = redact(text)
    if found == text or not text.lstrip().startswith(("{", "[")):
        return found
    try:
        value = parse_json(text)
    except Fault:
        return found
    return json.dumps(redacted_value(value, redact), ensure_ascii=False)


def redacted_completion(completion: Completion, redact: Redact) -> Completion:
    """Return an answer whose text and tool calls are redacted."""
    if redact is unchanged:
        return completion
    text = _redacted_text(completion.text, redact)
    tools = redacted_value(completion.tool_calls, redact)
    if (text, tools) == (completion.text, completion.tool_calls):
        return completion
    return replace(completion, text=text, tool_calls=tools)


def redacted_case(case: Case, redact: Redact) -> Case:
    """Return a case as it may be shown."""
    if redact is unchanged:
        return case
    inputs = {name: redacted_value(value, redact) for name, value in case.inputs.items()}
    metadata = {name: redacted_value(value, redact) for name, value in case.metadata.items()}
    expected = redacted_value(case.expected, redact)
    return replace(case, inputs=inputs, expected=expected, metadata=metadata)
