"""Calibration of judges: their agreement with people on labelled answers, and their approval."""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role, Site
from edison_ci.api import sessions as run_sessions
from edison_ci.config import calibration, project_files, requirements
from edison_ci.documents.record_json import Document, fields_of
from edison_ci.errors import CallFailed, UsageError
from edison_ci.execute import calibration as execute_calibration
from edison_ci.execute import standalone
from edison_ci.judges import approval as judge_approval
from edison_ci.judges import instructions
from edison_ci.judges import panel as judge_panel
from edison_ci.numeric import TOLERANCE, rounded
from edison_ci.results import human_grades, stored_runs
from edison_ci.stats import calibration as stat_calibration
from edison_ci.store import database, runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.access.site import Actor
    from edison_ci.config.calibration import ApprovalEntry
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.calibration import GradedAnswer, JudgeGrade
    from edison_ci.judges.approval import ApprovalStatus
    from edison_ci.judges.panel import Panel
    from edison_ci.results.human_grades import HumanGrades
    from edison_ci.stats.agreement import Agreement
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.calibration import JudgeCheck, JudgeTrust


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """Agreement of the judges of an experiment with people."""

    experiment: Experiment
    panel: Panel
    checked: execute_calibration.LabelCheck
    judges: Mapping[str, JudgeCheck]
    """By judge; the panel under '' if there are several."""
    criteria: Mapping[str, JudgeTrust]
    """Criteria of the panel, worst first."""
    standing: ApprovalStatus
    latest: tuple[str, HumanGrades | None]
    """The newest run of the experiment and its human grades; '' without a run."""
    written: bool = False

    @property
    def together(self) -> JudgeCheck:
        """The result of the panel, or of the only judge, which decides."""
        return self.judges.get("") or next(iter(self.judges.values()))

    @property
    def cases_needed(self) -> int | None:
        """About how many more cases an approval needs if the agreement stays as it is.

        None if it is approved, or if no number of cases would do.
        """
        bound = self.together.bound
        if self.standing.approved or bound is None:
            return None
        needed = bound.units_needed(self.standing.asked.min_kappa)
        return None if needed is None else max(0, needed - bound.units)

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        standing, checked, (run_id, human) = self.standing, self.checked, self.latest
        return {
            "experiment": self.experiment.id,
            **fields_of(standing, "rubric", "judges", "simulated"),
            "labels": {
                "file": standing.asked.labels,
                **fields_of(checked, "people", counted="labels", left_out="unused"),
            },
            "reports": [
                {"judge": name or None, **_check_json(check)} for name, check in self.judges.items()
            ],
            "criteria": [
                {
                    "name": name,
                    **_range(trust.interval),
                    **fields_of(trust, "n", "correlation", bias="value", close="agreement"),
                }
                for name, trust in self.criteria.items()
            ],
            "latest_run": {
                "run_id": run_id or None,
                "human": None if human is None else human.as_json(),
            },
            "judge_approval": {
                **fields_of(standing, "approved"),
                **fields_of(standing.asked, "min_n", floor="min_kappa"),
                **fields_of(self, "cases_needed", "written"),
                "reason": standing.reason or None,
            },
        }


def _check_json(check: JudgeCheck) -> Document:
    bound = check.bound
    return {
        **fields_of(check, "n", "cases", "close", "correlation", "sensitivity", "specificity"),
        "kappa": {
            **_agreement(check.kappa),
            "lower_bound": None if bound is None else bound.low,
            "units": 0 if bound is None else bound.units,
        },
        "alpha": _agreement(check.alpha),
        "bias": {"estimate": check.bias, **_range(check.bias_interval)},
        **dataclasses.asdict(check.counts),
    }


def _agreement(agreement: Agreement) -> Document:
    return {
        **fields_of(agreement, "n", "method", estimate="value"),
        **_range(agreement.interval),
    }


def _range(interval: Range | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"low": low, "high": high}


def calibrate(
    project: Project, name: str | None, *, ask: bool, dry_run: bool, offline: bool
) -> list[JudgeReport]:
    """Compare the judges of an experiment, or of all, with human grades, and approve them.

    With `ask`, judges are called where no reply is stored; with `dry_run`, no approval is written.
    """
    experiments = _calibrated(project, name)
    site = Site(project.root, project.file)
    if ask or not dry_run:
        site.require(Role.EDITOR, "calibrate")
    if ask:
        models = [model for experiment in experiments for model in experiment.judges]
        requirements.refuse(requirements.missing_for_models(models))
        stored_runs.ensure_results(site)
    reports = []
    for experiment in experiments:
        report = _report(project, experiment, ask=ask, offline=offline)
        if not dry_run and report.checked.answers:
            approval = _entry(project, report, site.now()[:10])
            file = write_approval(site, site.actor(), project, approval)
            project = dataclasses.replace(project, approvals=file)
            standing = judge_approval.approval_status(project, experiment)
            assert standing is not None  # it exists already
            report = dataclasses.replace(report, standing=standing, written=True)
        reports.append(report)
    return reports


def _calibrated(project: Project, name: str | None) -> list[Experiment]:
    """Return the experiments whose rubric requires an approval."""
    chosen = [project.experiment(name)] if name is not None else [*project.experiments.values()]
    with_labels = [e for e in chosen if e.rubric is not None and e.rubric.calibration is not None]
    if not with_labels:
        of = f"the rubric of {name}" if name else "no rubric"
        has = "has no calibration" if name else "has calibration"
        raise UsageError(
            f"{of} {has}",
            hint="add calibration: {labels: labels/NAME.jsonl} to the rubric, then: edison grade",
        )
    return with_labels


def _report(project: Project, experiment: Experiment, *, ask: bool, offline: bool) -> JudgeReport:
    panel = judge_panel.load_panel(project, experiment)
    standing = judge_approval.approval_status(project, experiment)
    assert panel is not None  # the rubric requires an approval
    assert standing is not None
    labels = project.labels[standing.asked.labels]
    if not labels.lines:
        raise UsageError(
            f"there are no human grades in {labels.path}",
            hint=f"grade {standing.asked.min_n} answers: edison grade {experiment.id}",
        )
    with closing(database.open_reader(project.root / project.file.results)) as reader:
        work = execute_calibration.Calibration(reader, project, experiment, panel, labels)
        checked = work.run(execute_calibration.ask_stored(reader))
        if ask and checked.unused.not_asked:
            try:
                checked = execute_calibration.check_with_calls(
                    work, run_sessions.run_context(project, offline=offline)
                )
            except standalone.NotAnswered as error:
                calls = checked.unused.not_asked * len(panel.judges)
                message = f"the judges could not be called: {error}"
                raise CallFailed(message, hint=error.hint(calls)) from None
        latest = _latest(reader, experiment.id)
    judges = {judge.name: _check(checked.answers, judge.name) for judge in panel.judges}
    if len(judges) > 1:
        judges[""] = _check(checked.answers, "")
    criteria = stat_calibration.check_criteria(
        [answer.human_criteria for answer in checked.answers],
        [answer.panel.criteria for answer in checked.answers],
    )
    return JudgeReport(experiment, panel, checked, judges, criteria, standing, latest)


def _latest(reader: sqlite3.Connection, experiment: str) -> tuple[str, HumanGrades | None]:
    try:
        run = runs.find_run(reader, experiment)
    except UsageError:
        return "", None  # labels may come from elsewhere
    return run.id, human_grades.human_grades_of(reader, run)


def _check(answers: Sequence[GradedAnswer], judge: str) -> JudgeCheck:
    """Compare a judge, or the panel, with people."""

    def grade_of(answer: GradedAnswer) -> JudgeGrade | None:
        return answer.judges.get(judge) if judge else answer.panel

    return stat_calibration.check_judge(
        [
            stat_calibration.PairedGrade(
                a.case_id, a.human, s.score, a.human_pass, s.passed, a.thumbs, a.cluster
            )
            for a in answers
            if (s := grade_of(a)) is not None
        ]
    )


def _entry(project: Project, report: JudgeReport, day: str) -> ApprovalEntry:
    terms = judge_approval.judge_hashes(project, report.panel)
    check, asked = report.together, report.standing.asked
    return calibration.ApprovalEntry(
        rubric=report.panel.rubric.rubric,
        judges=report.standing.judges,
        combine=report.panel.combine,
        models=tuple(judge.label for judge in report.panel.judges),
        **{name: value for name, value in dataclasses.asdict(terms).items() if value is not None},
        n=check.n,
        floor=asked.min_kappa,
        min_n=asked.min_n,
        **dict(_measured(check)),
        **dataclasses.asdict(check.counts),
        simulated=report.standing.simulated,
        date=day,
    )


def _measured(check: JudgeCheck) -> Iterator[tuple[str, Any]]:
    """Yield what was measured, by its key in the approval."""
    if check.kappa.value is not None:
        yield "kappa", _rounded_down(check.kappa.value)
    if check.bound is not None:
        yield "lower_bound", _rounded_down(check.bound.low)
        yield "cases", check.bound.units
    if check.bias is not None:
        yield "bias", rounded(check.bias, 4)


def _rounded_down(kappa: float) -> float:
    """Round down, so that a value just below the floor does not reach it."""
    return math.floor(kappa * 10_000 + TOLERANCE) / 10_000


def write_approval(
    site: Site, actor: Actor, project: Project, approval: ApprovalEntry
) -> calibration.JudgeApprovalsFile:
    """Write an approval, replacing that of the same judges; return the new file."""
    approvals = project.approvals or calibration.JudgeApprovalsFile.model_construct()
    before = approvals.of(
        approval.rubric, approval.judges, approval.combine, approval.objective_hash
    )
    goals = {
        instructions.objective_hash(experiment.file.objective)
        for experiment in project.experiments.values()
    }
    changed = approvals.with_approval(approval, goals)
    entity = f"{approval.rubric} by {', '.join(approval.judges)}"
    entry = site.entry(
        actor,
        "calibrate",
        entity,
        before=None if before is None else before.model_dump(mode="json"),
        after=approval.model_dump(mode="json"),
    )
    site.replace(project_files.JUDGE_APPROVALS, changed.text(), entry)
    return changed
