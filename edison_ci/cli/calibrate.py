"""edison calibrate: agreement of judges with human grades, and their approval for gates."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import file_edits
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, aligned, simulated_label
from edison_ci.config import calibration, project_files, requirements
from edison_ci.errors import CallFailed, UsageError
from edison_ci.execute import calibration as execute_calibration
from edison_ci.execute import standalone
from edison_ci.judges import approval as judge_approval
from edison_ci.judges import panel as judge_panel
from edison_ci.numeric import TOLERANCE, counted, fixed, rounded
from edison_ci.results import human_grades
from edison_ci.stats import calibration as stat_calibration
from edison_ci.stats import sampling
from edison_ci.store import database, runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.calibration import GradedAnswer, JudgeGrade
    from edison_ci.judges.approval import ApprovalStatus
    from edison_ci.judges.panel import Panel
    from edison_ci.results.human_grades import HumanGrades
    from edison_ci.stats.agreement import Agreement
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.calibration import JudgeCheck, JudgeTrust

_LISTED = 3


@dataclass(frozen=True, slots=True)
class _Report:
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


@click.command(cls=EdisonCommand)
@click.argument("name", required=False, metavar="[EXPERIMENT]")
@click.option("--ask", is_flag=True, help="Call the judges for answers they have not graded.")
@click.option("--dry-run", is_flag=True, help="Report only; do not write the approval.")
@click.pass_obj
def calibrate(state: CliState, name: str | None, ask: bool, dry_run: bool) -> None:
    """Compare judges with human grades, and approve them.

    Compares the current judges with people on the answers that people graded: agreement, bias,
    sensitivity and specificity, and the worst criteria. Stored judgments are used; --ask requests
    the missing ones. The approval is written to judge_approvals.yaml. If a rubric has
    `calibration`, its judges may decide gates only with an approval that reaches the required
    agreement and was made for the same models, rubric, instructions, objective and labels;
    otherwise their gates are advisory.

    Examples:
      edison calibrate
      edison calibrate support-reply --ask
      edison calibrate --dry-run --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state)
    experiments = _calibrated(project, name)
    site = sites.Site(project.root, project.file)
    if ask or not dry_run:
        site.require(sites.Role.EDITOR, "calibrate")
    if ask:
        models = [model for experiment in experiments for model in experiment.judges]
        requirements.refuse(requirements.missing_for_models(models))
    if not site.results.exists() and ask:
        database.open_database(site.results).close()
    reports = []
    for experiment in experiments:
        report = _report(state, project, experiment, ask=ask)
        if not dry_run and report.checked.answers:
            approval = _entry(project, report, site.now()[:10])
            file = file_edits.write_approval(site, site.actor(), project, approval)
            project = dataclasses.replace(project, approvals=file)
            standing = judge_approval.approval_status(project, experiment)
            assert standing is not None  # it exists already
            report = dataclasses.replace(report, standing=standing, written=True)
        reports.append(report)
    if terminal.json:
        terminal.document({"experiments": [_document(report) for report in reports]})
    else:
        for report in reports:
            _show(terminal, report)


def _calibrated(project: Project, name: str | None) -> list[Experiment]:
    """Return the experiments whose rubric requires an approval."""
    chosen = [project.experiment(name)] if name is not None else [*project.experiments.values()]
    found = [e for e in chosen if e.rubric is not None and e.rubric.calibration is not None]
    if not found:
        of = f"the rubric of {name}" if name else "no rubric"
        has = "has no calibration" if name else "has calibration"
        raise UsageError(
            f"{of} {has}",
            hint="add calibration: {labels: labels/NAME.jsonl} to the rubric, then: edison grade",
        )
    return found


def _report(state: CliState, project: Project, experiment: Experiment, *, ask: bool) -> _Report:
    panel, standing = (
        judge_panel.load_panel(project, experiment),
        judge_approval.approval_status(project, experiment),
    )
    assert panel is not None  # the rubric requires an approval
    assert standing is not None
    labels = project.labels[standing.asked.labels]
    if not labels.lines:
        raise UsageError(
            f"there are no human grades in {labels.path}",
            hint=f"grade {standing.asked.min_n} answers: edison grade {experiment.id}",
        )
    reader = database.open_reader(project.root / project.file.results)
    try:
        work = execute_calibration.Calibration(reader, project, experiment, panel, labels)
        checked = work.run(execute_calibration.ask_stored(reader))
        if ask and checked.unused.not_asked:
            try:
                checked = execute_calibration.check_with_calls(
                    work, run_sessions.run_context(project, offline=state.offline)
                )
            except standalone.NotAnswered as error:
                calls = checked.unused.not_asked * len(panel.judges)
                message = f"the judges could not be called: {error}"
                raise CallFailed(message, hint=error.hint(calls)) from None
        latest = _latest(reader, experiment.id)
    finally:
        reader.close()
    judges = {one.name: _check(checked.answers, one.name) for one in panel.judges}
    if len(judges) > 1:
        judges[""] = _check(checked.answers, "")
    criteria = stat_calibration.check_criteria(
        [one.human_criteria for one in checked.answers],
        [one.panel.criteria for one in checked.answers],
    )
    return _Report(experiment, panel, checked, judges, criteria, standing, latest)


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


def _entry(project: Project, report: _Report, day: str) -> calibration.ApprovalEntry:
    terms, found, asked = (
        judge_approval.judge_hashes(project, report.panel),
        report.together,
        report.standing.asked,
    )
    measured: dict[str, Any] = {}
    if found.kappa.value is not None:
        measured["kappa"] = _rounded_down(found.kappa.value)
    if found.bound is not None:
        measured["lower_bound"] = _rounded_down(found.bound.low)
        measured["cases"] = found.bound.units
    if found.bias is not None:
        measured["bias"] = rounded(found.bias, 4)
    return calibration.ApprovalEntry(
        rubric=report.panel.rubric.rubric,
        judges=report.standing.judges,
        combine=report.panel.combine,
        models=tuple(judge.label for judge in report.panel.judges),
        **{name: value for name, value in dataclasses.asdict(terms).items() if value is not None},
        n=found.n,
        floor=asked.min_kappa,
        min_n=asked.min_n,
        **measured,
        **dataclasses.asdict(found.counts),
        simulated=report.standing.simulated,
        date=day,
    )


def _rounded_down(kappa: float) -> float:
    """Round down, so that a value just below the floor does not reach it."""
    return math.floor(kappa * 10_000 + TOLERANCE) / 10_000


def _cases_needed(report: _Report) -> int | None:
    """Return about how many more cases an approval needs if the agreement stays as it is.

    None if it is approved, or if no number of cases would do.
    """
    bound, asked = report.together.bound, report.standing.asked
    if report.standing.approved or bound is None:
        return None
    needed = bound.units_needed(asked.min_kappa)
    return None if needed is None else max(0, needed - bound.units)


# --- as JSON --------------------------------------------------------------------------------------


def _document(report: _Report) -> dict[str, Any]:
    standing, checked = report.standing, report.checked
    return {
        "experiment": report.experiment.id,
        "rubric": standing.rubric,
        "judges": list(standing.judges),
        "simulated": standing.simulated,
        "labels": {
            "file": standing.asked.labels,
            "counted": checked.labels,
            "people": checked.people,
            "left_out": dataclasses.asdict(checked.unused),
        },
        "reports": [
            {"judge": name or None, **_check_json(found)} for name, found in report.judges.items()
        ],
        "criteria": [
            {
                "name": name,
                "n": trust.n,
                "bias": trust.value,
                **_range(trust.interval),
                "close": trust.agreement,
                "correlation": trust.correlation,
            }
            for name, trust in report.criteria.items()
        ],
        "latest_run": {
            "run_id": report.latest[0] or None,
            "human": None if report.latest[1] is None else report.latest[1].as_json(),
        },
        "judge_approval": {
            "approved": standing.approved,
            "reason": standing.reason or None,
            "cases_needed": _cases_needed(report),
            "floor": standing.asked.min_kappa,
            "min_n": standing.asked.min_n,
            "written": report.written,
        },
    }


def _check_json(found: JudgeCheck) -> dict[str, Any]:
    return {
        "n": found.n,
        "cases": found.cases,
        "kappa": {
            **_agreement(found.kappa),
            "lower_bound": None if found.bound is None else found.bound.low,
            "units": 0 if found.bound is None else found.bound.units,
        },
        "alpha": _agreement(found.alpha),
        "bias": {"estimate": found.bias, **_range(found.bias_interval)},
        "close": found.close,
        "correlation": found.correlation,
        "sensitivity": found.sensitivity,
        "specificity": found.specificity,
        **dataclasses.asdict(found.counts),
    }


def _agreement(found: Agreement) -> dict[str, Any]:
    return {"estimate": found.value, **_range(found.interval), "n": found.n, "method": found.method}


def _range(found: Range | None) -> dict[str, float | None]:
    return {"low": None, "high": None} if found is None else {"low": found.low, "high": found.high}


# --- as text --------------------------------------------------------------------------------------


def _show(terminal: Terminal, report: _Report) -> None:
    standing, checked = report.standing, report.checked
    mark = simulated_label(standing.simulated)
    judges = ", ".join(standing.judges)
    terminal.result(
        StyledText(report.experiment.id, bold=True),
        f"  rubric {standing.rubric}, judged by {judges}",
        *mark,
    )
    n = len(checked.answers)
    people = "1 person" if checked.people == 1 else f"{checked.people:,} people"
    terminal.result(f"  {counted(n, 'answer')} graded by {people} and judged")
    for line in _note_left_out(checked, report.experiment.id):
        terminal.result(f"  {line}")
    if n:
        rows: list[tuple[str, ...]] = [
            ("", "agreement (kappa)", "judge - people", "close", "correlation", "passes", "fails")
        ]
        rows += [_row(name, found) for name, found in report.judges.items()]
        for row in aligned(rows):
            terminal.result(f"  {row}")
        _criteria(terminal, report)
    run_id, said = report.latest
    for score in said.scores if said is not None else ():
        for found in score.corrections:
            terminal.result(f"  run {run_id}, {score.prompt} with {score.model}: {found.sentence}")
    _show_approval(terminal, report)


def _row(name: str, found: JudgeCheck) -> tuple[str, ...]:
    bias = "-"
    if found.bias is not None:
        bias = f"{fixed(100 * found.bias, 1, signed=True)} points"
        if found.bias_interval is not None:
            low, high = (fixed(100 * end, 1, signed=True) for end in found.bias_interval)
            bias += f" ({low} to {high})"
    kappa = "-" if found.kappa.value is None else fixed(found.kappa.value, 2)
    if found.bound is not None:
        kappa += f" (at least {judge_approval.bound_text(found.bound.low)})"
    counts = found.counts
    return (
        name or "together",
        kappa,
        bias,
        "-" if found.close is None else f"{fixed(100 * found.close)}%",
        "-" if found.correlation is None else fixed(found.correlation, 2),
        f"{counts.true_passes} of {counts.passes} found" if counts.passes else "-",
        f"{counts.true_fails} of {counts.fails} found" if counts.fails else "-",
    )


def _criteria(terminal: Terminal, report: _Report) -> None:
    for name, trust in list(report.criteria.items())[:_LISTED]:
        close = "" if trust.agreement is None else f"close on {fixed(100 * trust.agreement)}%, "
        bias = 0.0 if trust.value is None else trust.value
        terminal.result(
            f"    criterion {name}: {close}{fixed(100 * bias, 1, signed=True)} points "
            f"({counted(trust.n, 'label')})"
        )


def _note_left_out(checked: execute_calibration.LabelCheck, experiment: str) -> list[str]:
    """Print which graded answers are left out, and what to do about it."""
    left = checked.unused
    told = (
        (left.not_asked, "not judged by these judges yet: add --ask, or run edison regrade"),
        (left.changed, "left out: the case changed since or no longer exists"),
        (left.gone, "left out: its text is neither in the labels nor in the results"),
        (left.failed, "left out: a judge could not grade it"),
    )
    return [f"{counted(count, 'labelled answer')} {why}" for count, why in told if count]


def _show_approval(terminal: Terminal, report: _Report) -> None:
    standing, n = report.standing, report.together.n
    asked = standing.asked
    if n < sampling.FEWEST_LABELS:
        more = asked.min_n - n
        terminal.result(
            f"  {counted(n, 'label')} are too few: {sampling.FEWEST_LABELS} are needed to "
            f"correct a score, {asked.min_n} for an approval."
        )
        if more > 0:
            terminal.result(f"  Continue with: edison grade {report.experiment.id} --limit {more}")
    if standing.approved:
        terminal.result("  ", StyledText("APPROVED", GOOD), f"  {_agreement_sentence(standing)}")
    else:
        color = ODD if report.written else BAD
        terminal.result("  ", StyledText("ADVISORY", color), f"  {standing.reason}")
        needed = _cases_needed(report)
        if needed:
            terminal.result(
                f"  About {counted(needed, 'more labelled case')} would do if the agreement stays "
                "as it is."
            )
        elif needed is None and report.together.bound is not None:
            terminal.result(
                "  The agreement itself is below the floor: more labels alone will not do."
            )
    if report.written:
        terminal.note(f"wrote {project_files.JUDGE_APPROVALS}: commit it with {asked.labels}")


def _agreement_sentence(standing: ApprovalStatus) -> str:
    approval = standing.approval
    assert approval is not None  # it is approved
    return f"{judge_approval.agreement_words(approval)}, the floor is {standing.asked.min_kappa:g}"
