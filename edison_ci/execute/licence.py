"""What are the judges of a run allowed to decide, and what is kept of that?

It is written down with the run, so that whoever looks at it later sees what held then, and how far
its judges agreed with people.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.judges.licensing import Standing, rests_on_judges, standing_of
from edison_ci.store.judge_approvals import ApprovalRow, write_approval

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Experiment, Project


@dataclass(frozen=True, slots=True)
class RunLicence:
    """The licence under which a run is judged."""

    experiment: Experiment
    standing: Standing | None
    """None when the rubric asks for no licence."""

    @classmethod
    def of(cls, project: Project, experiment: Experiment) -> RunLicence:
        """Return the licence of an experiment's judges by the files of a project."""
        return cls(experiment, standing_of(project, experiment))

    def unlicensed(self, gates: Iterable[Gate]) -> dict[str, str]:
        """Return the metrics of gates that only advise, and why."""
        why = "" if self.standing is None else self.standing.why
        found = (gate.metric for gate in gates if rests_on_judges(gate, self.experiment))
        return dict.fromkeys(found, why) if why else {}

    def note(self, run_id: str) -> Callable[[sqlite3.Connection], None]:
        """Return the operation that writes down what the judges of a run were allowed."""
        standing = self.standing
        if standing is None:
            return write_approval(run_id, None)
        known = None if standing.stale else standing.licence
        counts = (0, 0, 0, 0)
        if known is not None:
            counts = (known.passes, known.true_passes, known.fails, known.true_fails)
        row = ApprovalRow(
            json.dumps(standing.judges),
            standing.licensed,
            standing.reason,
            None if known is None else known.kappa,
            0 if known is None else known.n,
            standing.asked.min_kappa,
            *counts,
        )
        return write_approval(run_id, row)
