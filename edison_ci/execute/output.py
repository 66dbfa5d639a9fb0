"""What did the model answer, once its wrapping is taken off?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from edison_ci.records import Json

_THINKING = re.compile(r"<thinking>(.*?)</thinking>", re.DOTALL | re.IGNORECASE)
_RESPONSE = re.compile(r"<response>(.*?)</response>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Output:
    """An answer taken apart; `raw` is kept, `text` is what counts."""

    raw: str
    text: str
    thinking: str = ""
    value: Json = None
    """The parsed JSON, when JSON was expected."""
    malformed: str = ""
    """Why the answer is not of the expected shape; '' if it is."""


def parse_output(raw: str, expect: str) -> Output:
    """Take `<thinking>` off, and the response or JSON out, as the prompt expects them."""
    thinking = "\n".join(part.strip() for part in _THINKING.findall(raw))
    text = _THINKING.sub("", raw).strip() if thinking else raw
    if expect in ("response", "response+json"):
        found = _RESPONSE.findall(text)
        if len(found) != 1:
            what = "no <response> section" if not found else f"{len(found)} <response> sections"
            return Output(raw, text, thinking, malformed=what)
        text = found[0].strip()
    if expect not in ("json", "response+json"):
        return Output(raw, text, thinking)
    fenced = _FENCE.match(text)
    try:
        value = parse_json((fenced.group(1) if fenced else text).strip())
    except Fault as fault:
        return Output(raw, text, thinking, malformed=fault.message)
    return Output(raw, text, thinking, value)
