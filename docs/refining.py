"""Writes the parts of docs/refining.md that come from the code; cog calls it."""

from __future__ import annotations

from docs.reference import code, table
from edison_ci.config.experiment import Refine
from edison_ci.proposals.guardrails import APPLIES, RULES

_APPLIES = (
    "It is a unified diff of this one file that fits exactly: every count right, every line "
    "of context where it says, nothing renamed, no mode changed, at most 100,000 characters."
)


def guardrails() -> str:
    """Return every guardrail with the keys that set its limit."""
    rows = [(code(APPLIES), _APPLIES, "")]
    rows += [(code(rule.name), rule.description, _limit(rule.limit)) for rule in RULES]
    return table(("guardrail", "what must hold", "set by"), rows)


def _limit(names: str) -> str:
    """Return the keys of a limit with their defaults."""
    said = []
    for name in filter(None, names.split(", ")):
        key, _, rest = name.partition(" ")
        default = Refine.model_fields[key].default
        shown = "" if default == () else f" ({default:g})"
        said.append(f"{code(f'refine.{key}')}{shown}{f' {rest}' if rest else ''}")
    return ", ".join(said)
