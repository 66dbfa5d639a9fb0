"""Approval of judges: whether the judges of a rubric may decide a gate.

They may if the lower bound of their agreement with people reaches the minimum of the rubric,
measured on the current labels with the current models, rubric, instructions and objective. If one
of these has changed since, the approval is stale and their gates are advisory. Experiments with
different objectives that share a rubric have an approval each.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config import calibration as config_calibration
from edison_ci.judges import instructions, pointwise
from edison_ci.judges.panel import load_panel
from edison_ci.numeric import TOLERANCE, counted, fixed, reaches
from edison_ci.records import canonical_json
from edison_ci.store.judgments import ApprovalRow, write_approval

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from edison_ci.config.calibration import ApprovalEntry
    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import Calibration
    from edison_ci.judges.panel import Panel


# It is stored with the run, so that a later reader sees the agreement that applied to it.
@dataclass(frozen=True, slots=True)
class JudgeApproval:
    """The approval of the judges of a run."""

    experiment: Experiment
    standing: ApprovalStatus | None
    """None if the rubric requires no approval."""

    @classmethod
    def of(cls, project: Project, experiment: Experiment) -> JudgeApproval:
        """Return the approval of an experiment's judges by the files of a project."""
        return cls(experiment, approval_status(project, experiment))

    def unapproved(self, gates: Iterable[Gate]) -> dict[str, str]:
        """Return the metrics of gates that are advisory, with the reason."""
        why = "" if self.standing is None else self.standing.why
        metrics = (gate.metric for gate in gates if depends_on_judges(gate, self.experiment))
        return dict.fromkeys(metrics, why) if why else {}

    def note(self, run_id: str) -> Callable[[sqlite3.Connection], None]:
        """Return the operation that stores the approval with a run."""
        standing = self.standing
        if standing is None:
            return write_approval(run_id, None)
        approval = None if standing.stale else standing.approval
        counts = (0, 0, 0, 0)
        if approval is not None:
            counts = (approval.passes, approval.true_passes, approval.fails, approval.true_fails)
        row = ApprovalRow(
            json.dumps(standing.judges),
            standing.approved,
            standing.reason,
            None if approval is None else approval.kappa,
            None if approval is None else approval.lower_bound,
            0 if approval is None else approval.n,
            0 if approval is None else approval.cases,
            standing.asked.min_kappa,
            *counts,
        )
        return write_approval(run_id, row)


@dataclass(frozen=True, slots=True)
class JudgeHashes:
    """Hashes of everything that judges depend on."""

    models_hash: str
    rubric_hash: str
    instructions_hash: str
    labels_hash: str
    objective_hash: str | None
    """None if no judge of the panel sees the objective."""


_CHANGED = {
    "models_hash": "the judge's model, parameters or package",
    "rubric_hash": "the rubric",
    "instructions_hash": "the judge's instructions",
    "labels_hash": "the labels",
    "objective_hash": "the objective",
}


@dataclass(frozen=True, slots=True)
class ApprovalStatus:
    """Whether the judges of an experiment may decide a gate, and why not."""

    rubric: str
    judges: tuple[str, ...]
    asked: Calibration
    approval: ApprovalEntry | None
    """The one on file, stale or not."""
    reason: str = ""
    """Why they may not decide; '' if they may."""
    stale: bool = False
    """Whether the approval is about other judges, another rubric or other labels."""
    simulated: bool = False

    @property
    def approved(self) -> bool:
        """Whether they may decide a gate."""
        return not self.reason

    @property
    def why(self) -> str:
        """The reason as a sentence; empty if they may decide."""
        who = "judge" if len(self.judges) == 1 else "judges"
        names = ", ".join(map(repr, self.judges))
        return f"{who} {names} may not decide ({self.reason})" if self.reason else ""


def judge_hashes(project: Project, panel: Panel) -> JudgeHashes:
    """Return the hashes of a panel."""
    judges = sorted(canonical_json(judge.terms()) for judge in panel.judges)
    briefed = next(
        (judge for judge in panel.judges if isinstance(judge, pointwise.Pointwise)), None
    )
    calibration = panel.rubric.calibration
    labels = project.labels.get(calibration.labels) if calibration is not None else None
    return JudgeHashes(
        models_hash=_digest([judges, panel.combine]),
        rubric_hash=instructions.rubric_hash(panel.rubric),
        instructions_hash=briefed.instructions.version if briefed is not None else _digest(None),
        labels_hash=(labels or config_calibration.Labels("")).hash,
        objective_hash=instructions.objective_hash(briefed.objective)
        if briefed is not None
        else None,
    )


def approval_status(project: Project, experiment: Experiment) -> ApprovalStatus | None:
    """Return the approval status of an experiment; None if no approval is required."""
    panel = load_panel(project, experiment)
    if panel is None or panel.rubric.calibration is None or not panel.judges:
        return None
    names = tuple(judge.name for judge in panel.judges)
    asked = panel.rubric.calibration
    terms = judge_hashes(project, panel)
    file, rubric = project.approvals, panel.rubric.rubric
    approval = None if file is None else file.of(rubric, names, panel.combine, terms.objective_hash)
    simulated = any(judge.simulated for judge in panel.judges)
    standing = ApprovalStatus(panel.rubric.rubric, names, asked, approval, simulated=simulated)
    again = f"edison calibrate {experiment.id}"
    if approval is None:
        return replace(standing, reason=f"no approval yet: {again}")
    changed = [
        text for name, text in _CHANGED.items() if getattr(approval, name) != getattr(terms, name)
    ]
    if changed:
        reason = f"stale approval, {' and '.join(changed)} changed since {approval.date}: {again}"
        return replace(standing, reason=reason, stale=True)
    return replace(standing, reason=_shortfall(approval, asked, again))


def bound_text(low: float) -> str:
    """Return a lower bound, rounded down: one just below the floor does not read as the floor."""
    return fixed(math.floor(100 * low + TOLERANCE) / 100, 2)


def agreement_words(approval: ApprovalEntry) -> str:
    """Return the agreement of an approval with its lower bound, in words."""
    assert approval.kappa is not None and approval.lower_bound is not None  # both were measured
    return (
        f"agreement with people is {fixed(approval.kappa, 2)}, at least "
        f"{bound_text(approval.lower_bound)} "
        f"(one-sided 95%, {counted(approval.cases, 'case')})"
    )


def _shortfall(approval: ApprovalEntry, asked: Calibration, again: str) -> str:
    """Return why a current approval is not sufficient; empty if it is."""
    if approval.n < asked.min_n:
        return f"{approval.n} labels, {asked.min_n} are needed"
    if approval.kappa is None:
        return "agreement with people cannot be computed: nothing varies"
    if approval.lower_bound is None:
        return f"the approval has no lower bound of the agreement: {again}"
    if not reaches(approval.lower_bound, asked.min_kappa):
        return f"{agreement_words(approval)}, the floor is {asked.min_kappa:g}"
    return ""


def depends_on_judges(gate: Gate, experiment: Experiment) -> bool:
    """Whether a gate depends on the judges of the rubric."""
    use, rubric = experiment.file.rubric, experiment.rubric
    if gate.use == "human" or use is None or rubric is None:
        return False
    if gate.metric == "composite":
        return use.weight > 0
    if gate.metric in ("pass_rate", "flips"):
        return rubric.can_fail
    return gate.metric.startswith("criterion.")


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
