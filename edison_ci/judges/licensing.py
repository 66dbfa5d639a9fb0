"""Whether the judges of a rubric may decide a gate.

They may while their agreement with people, measured on the labels that are there with the very
models, rubric and instructions that judge now, keeps the floor that the rubric sets. Whatever of
that changed since makes the licence stale: then their gates are advisory.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.labels import Labels
from edison_ci.judges.hashing import rubric_hash
from edison_ci.judges.judging import panel_of
from edison_ci.records import canonical_json
from edison_ci.rounding import fixed, reaches
from edison_ci.store.judge_approvals import ApprovalRow, write_approval

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from edison_ci.config.decisions import Gate
    from edison_ci.config.licences import Licence
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import Calibration, RubricFile
    from edison_ci.judges.judging import Panel


# It is written down with the run, so that whoever looks at it later sees what held then, and how
# far its judges agreed with people.
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


@dataclass(frozen=True, slots=True)
class Terms:
    """With what exactly answers are judged, in hashes."""

    models_hash: str
    rubric_hash: str
    instructions_hash: str
    labels_hash: str


_CHANGED = {
    "models_hash": "the judge's model or parameters",
    "rubric_hash": "the rubric",
    "instructions_hash": "the judge's instructions",
    "labels_hash": "the labels",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether the judges of an experiment may decide, and why not."""

    rubric: str
    judges: tuple[str, ...]
    asked: Calibration
    licence: Licence | None
    """The one on file, stale or not."""
    reason: str = ""
    """Why they may not decide; '' if they may."""
    stale: bool = False
    """Whether what the licence says is about other judges, another rubric or other labels."""
    simulated: bool = False

    @property
    def licensed(self) -> bool:
        """Whether they may decide a gate."""
        return not self.reason

    @property
    def why(self) -> str:
        """Why they may not decide, as a sentence has it; '' if they may."""
        who = "judge" if len(self.judges) == 1 else "judges"
        names = ", ".join(map(repr, self.judges))
        return f"{who} {names} may not decide ({self.reason})" if self.reason else ""


def terms_of(project: Project, panel: Panel) -> Terms:
    """Return with what exactly a panel judges."""
    judges = sorted(
        canonical_json([j.judge.model.identity(), dict(j.judge.params)]) for j in panel.judges
    )
    calibration = panel.rubric.calibration
    labels = project.labels.get(calibration.labels) if calibration is not None else None
    return Terms(
        models_hash=_digest([judges, panel.combine]),
        rubric_hash=rubric_hash(panel.rubric),
        instructions_hash=panel.judges[0].briefing.version,
        labels_hash=(labels or Labels("")).hash,
    )


def standing_of(project: Project, experiment: Experiment) -> Standing | None:
    """Return whether the judges of an experiment may decide; None if nobody asks for a licence."""
    panel = panel_of(project, experiment)
    if panel is None or panel.rubric.calibration is None or not panel.judges:
        return None
    names = tuple(one.judge.name for one in panel.judges)
    asked = panel.rubric.calibration
    licence = project.licences.of(panel.rubric.rubric, names, panel.combine)
    simulated = any(one.judge.model.provider == "sim" for one in panel.judges)
    standing = Standing(panel.rubric.rubric, names, asked, licence, simulated=simulated)
    again = f"edison calibrate {experiment.id}"
    if licence is None:
        return replace(standing, reason=f"no licence yet: {again}")
    terms = terms_of(project, panel)
    changed = [
        said for name, said in _CHANGED.items() if getattr(licence, name) != getattr(terms, name)
    ]
    if changed:
        said = f"stale licence, {' and '.join(changed)} changed since {licence.date}: {again}"
        return replace(standing, reason=said, stale=True)
    return replace(standing, reason=_short_of(licence, asked))


def _short_of(licence: Licence, asked: Calibration) -> str:
    """Return what a licence that is about the right things lacks; '' if nothing."""
    if licence.n < asked.min_n:
        return f"{licence.n} labels, {asked.min_n} are needed"
    if licence.kappa is None:
        return "agreement with people cannot be told: nothing varies"
    if not reaches(licence.kappa, asked.min_kappa):
        kappa = fixed(licence.kappa, 2)
        return f"agreement with people is {kappa}, the floor is {asked.min_kappa:g}"
    return ""


def rests_on_judges(gate: Gate, experiment: Experiment) -> bool:
    """Whether the judges of the rubric decide a gate, alone or with others."""
    use, rubric = experiment.file.rubric, experiment.rubric
    if gate.use == "human" or use is None or rubric is None:
        return False
    if gate.metric == "composite":
        return use.weight > 0
    if gate.metric == "pass_rate":
        return can_fail(rubric)
    return gate.metric.startswith("criterion.")


def can_fail(rubric: RubricFile) -> bool:
    """Whether an answer can fail by what judges say."""
    return rubric.pass_at is not None or any(c.min is not None for c in rubric.criteria)


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
