"""What does a gate say whose judge may not decide?

Everything it would have said, and that it is only advice: the row counts as skipped, so it neither
fails nor passes a run, whatever `if_unclear` asks for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.results.decisions import GateRow


def advised(row: GateRow, unlicensed: Mapping[str, str]) -> GateRow:
    """Return a row as advice if judges without a licence would decide it."""
    reason = unlicensed.get(row.metric)
    if reason is None or row.verdict == "skipped" or row.gate.get("use") == "human":
        return row
    sentence = f"Advisory only, would be {row.verdict}: {row.sentence} The {reason}."
    advice = {"would_be": row.verdict, "reason": reason}
    return replace(
        row, verdict="skipped", sentence=sentence, detail={**row.detail, "advisory": advice}
    )
