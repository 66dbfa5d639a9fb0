"""What is there to say of the judges of a run: whom they prefer, and whether they agree?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.frozen import dataclass
from edison_ci.results.head_to_head import head_to_head
from edison_ci.results.pairwise import matches_of
from edison_ci.results.panel_agreement import panel_agreement

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.results.head_to_head import HeadToHead
    from edison_ci.results.panel_agreement import PanelAgreement


@dataclass(frozen=True, slots=True)
class JudgesSaid:
    """What the judges of a run say beside its scores."""

    matches: tuple[HeadToHead, ...]
    """By prompt and pair of systems."""
    agreement: PanelAgreement | None
    """None with fewer than two judges."""

    def as_json(self) -> dict[str, Any]:
        """Return it with the keys it has in the document of a run."""
        return {
            "head_to_head": [match.as_json() for match in self.matches],
            "judge_agreement": None if self.agreement is None else self.agreement.as_json(),
        }


def judges_said(connection: sqlite3.Connection, run_id: str) -> JudgesSaid:
    """Return what the judges of a run say."""
    rows = connection.execute(
        "select distinct case_id, cluster from cell where run_id = ? and cluster is not null",
        (run_id,),
    )
    clusters = dict(rows.fetchall())
    return JudgesSaid(
        tuple(head_to_head(match, clusters) for match in matches_of(connection, run_id)),
        panel_agreement(connection, run_id),
    )
