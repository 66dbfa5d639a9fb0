"""edison calibrate: agreement of judges with people, and whether they may gate."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, aligned, counted
from edison_ci.config import needs
from edison_ci.config.licences import LICENCES, Licence
from edison_ci.config.load import find_root, load_project
from edison_ci.errors import CallFailed, UsageError
from edison_ci.execute.calibration import Calibrating, Checked, asked_now, stored_only
from edison_ci.execute.standalone import NotAnswered
from edison_ci.judges.judging import panel_of
from edison_ci.judges.licensing import standing_of, terms_of
from edison_ci.operate.actors import Role
from edison_ci.operate.quarantining import write_licence
from edison_ci.operate.sessions import tools_for
from edison_ci.operate.site import Site
from edison_ci.results.human_grades import people_of
from edison_ci.rounding import TOLERANCE, fixed, rounded
from edison_ci.stats.judge_check import Graded, check_criteria, check_judge
from edison_ci.stats.sampling import FEWEST_LABELS
from edison_ci.store.database import open_database, open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.calibration import Judged, Said
    from edison_ci.judges.judging import Panel
    from edison_ci.judges.licensing import Standing
    from edison_ci.results.human_grades import People
    from edison_ci.stats.agreement import Agreement
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.calibration import JudgeTrust
    from edison_ci.stats.judge_check import JudgeCheck

_LISTED = 3


@dataclass(frozen=True, slots=True)
class _Report:
    """How the judges of an experiment do."""

    experiment: Experiment
    panel: Panel
    checked: Checked
    judges: Mapping[str, JudgeCheck]
    """By name; all together under '' if there are several."""
    criteria: Mapping[str, JudgeTrust]
    """Of all judges together, worst first."""
    standing: Standing
    latest: tuple[str, People | None]
    """The newest run of the experiment, and what people said of it; '' without a run."""
    written: bool = False

    @property
    def together(self) -> JudgeCheck:
        """What all judges come to together: what decides."""
        return self.judges.get("") or next(iter(self.judges.values()))


@click.command(cls=EdisonCommand)
@click.argument("name", required=False, metavar="[EXPERIMENT]")
@click.option("--ask", is_flag=True, help="Ask judges about answers they never graded.")
@click.option("--dry-run", is_flag=True, help="Only report; write no licence.")
@click.pass_obj
def calibrate(state: State, name: str | None, ask: bool, dry_run: bool) -> None:
    """Hold judges to what people say.

    It puts the answers that people labelled before the judges of today: agreement, bias,
    sensitivity and specificity, and the worst criteria. What judges said before is not bought
    again; --ask buys the rest. Then it writes the licence to licences.yaml. A rubric with
    `calibration` lets judges decide a gate only with a licence that keeps its floor and that is
    about the same models, rubric, instructions and labels; otherwise their gates are advisory.

    Examples:
      edison calibrate
      edison calibrate support-reply --ask
      edison calibrate --dry-run --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    experiments = _meant(project, name)
    site = Site(project.root, project.file)
    if ask or not dry_run:
        site.require(Role.EDITOR, "calibrate")
    if ask:
        models = [model for experiment in experiments for model in experiment.judges]
        needs.refuse(needs.missing_for_models(models))
    if not site.results.exists() and ask:
        open_database(site.results).close()
    reports = []
    for experiment in experiments:
        report = _report(state, project, experiment, ask=ask)
        if not dry_run and report.checked.answers:
            licence = _licence(project, report, site.now()[:10])
            file = write_licence(site, site.actor(), project.licences, licence)
            project = dataclasses.replace(project, licences=file)
            standing = standing_of(project, experiment)
            assert standing is not None  # it was there before
            report = dataclasses.replace(report, standing=standing, written=True)
        reports.append(report)
    if terminal.json:
        terminal.document({"experiments": [_document(report) for report in reports]})
    else:
        for report in reports:
            _show(terminal, report)


def _meant(project: Project, name: str | None) -> list[Experiment]:
    """Return the experiments whose rubric asks for a licence."""
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


def _report(state: State, project: Project, experiment: Experiment, *, ask: bool) -> _Report:
    panel, standing = panel_of(project, experiment), standing_of(project, experiment)
    assert panel is not None  # the rubric asks for a licence
    assert standing is not None
    labels = project.labels[standing.asked.labels]
    if not labels.lines:
        raise UsageError(
            f"there are no labels in {labels.path}",
            hint=f"grade {standing.asked.min_n} answers: edison grade {experiment.id}",
        )
    reader = open_reader(project.root / project.file.results)
    try:
        work = Calibrating(reader, project, experiment, panel, labels)
        checked = work.run(stored_only(reader))
        if ask and checked.left.not_asked:
            try:
                checked = asked_now(work, tools_for(project, offline=state.offline))
            except NotAnswered as error:
                raise CallFailed(f"the judges could not be asked: {error}") from None
        latest = _latest(reader, experiment.id)
    finally:
        reader.close()
    judges = {one.judge.name: _check(checked.answers, one.judge.name) for one in panel.judges}
    if len(judges) > 1:
        judges[""] = _check(checked.answers, "")
    criteria = check_criteria(
        [one.human_criteria for one in checked.answers],
        [one.panel.criteria for one in checked.answers],
    )
    return _Report(experiment, panel, checked, judges, criteria, standing, latest)


def _latest(reader: sqlite3.Connection, experiment: str) -> tuple[str, People | None]:
    try:
        run = find_run(reader, experiment)
    except UsageError:
        return "", None  # labels may come from elsewhere
    return run.id, people_of(reader, run)


def _check(answers: Sequence[Judged], judge: str) -> JudgeCheck:
    """Compare a judge, or all of them together, with people."""

    def said(answer: Judged) -> Said | None:
        return answer.judges.get(judge) if judge else answer.panel

    return check_judge(
        [
            Graded(a.case_id, a.human, s.score, a.human_pass, s.passed, a.thumbs)
            for a in answers
            if (s := said(a)) is not None
        ]
    )


def _licence(project: Project, report: _Report, day: str) -> Licence:
    terms, found, asked = terms_of(project, report.panel), report.together, report.standing.asked
    kappa, models = found.kappa.value, [one.judge.model for one in report.panel.judges]
    measured: dict[str, Any] = {}
    if kappa is not None:
        # Rounded down: what is not quite the floor must not become it.
        measured["kappa"] = math.floor(kappa * 10_000 + TOLERANCE) / 10_000
    if found.bias is not None:
        measured["bias"] = rounded(found.bias, 4)
    return Licence(
        rubric=report.panel.rubric.rubric,
        judges=report.standing.judges,
        combine=report.panel.combine,
        models=tuple(f"{model.provider}/{model.model}" for model in models),
        **dataclasses.asdict(terms),
        n=found.n,
        floor=asked.min_kappa,
        min_n=asked.min_n,
        **measured,
        **dataclasses.asdict(found.counts),
        simulated=report.standing.simulated,
        date=day,
    )


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
            "left_out": dataclasses.asdict(checked.left),
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
        "licence": {
            "licensed": standing.licensed,
            "reason": standing.reason or None,
            "floor": standing.asked.min_kappa,
            "min_n": standing.asked.min_n,
            "written": report.written,
        },
    }


def _check_json(found: JudgeCheck) -> dict[str, Any]:
    return {
        "n": found.n,
        "cases": found.cases,
        "kappa": _agreement(found.kappa),
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


# --- for people -----------------------------------------------------------------------------------


def _show(terminal: Terminal, report: _Report) -> None:
    standing, checked = report.standing, report.checked
    mark = (Ink("  simulated", ODD),) if standing.simulated else ()
    judges = ", ".join(standing.judges)
    terminal.result(
        Ink(report.experiment.id, bold=True),
        f"  rubric {standing.rubric}, judged by {judges}",
        *mark,
    )
    n = len(checked.answers)
    people = "1 person" if checked.people == 1 else f"{checked.people:,} people"
    terminal.result(f"  {counted(n, 'answer')} graded by {people} and judged")
    for line in _left(checked, report.experiment.id):
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
    _tell_standing(terminal, report)


def _row(name: str, found: JudgeCheck) -> tuple[str, ...]:
    bias = "-"
    if found.bias is not None:
        bias = f"{fixed(100 * found.bias, 1, signed=True)} points"
        if found.bias_interval is not None:
            low, high = (fixed(100 * end, 1, signed=True) for end in found.bias_interval)
            bias += f" ({low} to {high})"
    kappa = "-" if found.kappa.value is None else fixed(found.kappa.value, 2)
    if found.kappa.interval is not None:
        kappa += f" ({fixed(found.kappa.interval.low, 2)} to {fixed(found.kappa.interval.high, 2)})"
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


def _left(checked: Checked, experiment: str) -> list[str]:
    """Say which labelled answers do not count, and what to do about it."""
    left = checked.left
    told = (
        (left.not_asked, "never judged by these judges: add --ask, or edison regrade"),
        (left.changed, "left out: the case changed since, or is no longer there"),
        (left.gone, "left out: its text is neither in the labels nor in the results"),
        (left.failed, "left out: a judge could not grade it"),
    )
    return [f"{counted(count, 'labelled answer')} {why}" for count, why in told if count]


def _tell_standing(terminal: Terminal, report: _Report) -> None:
    standing, n = report.standing, report.together.n
    asked = standing.asked
    if n < FEWEST_LABELS:
        more = asked.min_n - n
        terminal.result(
            f"  {counted(n, 'label')} say little of a judge: {FEWEST_LABELS} are needed to "
            f"correct a score, {asked.min_n} for a licence."
        )
        if more > 0:
            terminal.result(f"  Go on with: edison grade {report.experiment.id} --limit {more}")
    if standing.licensed:
        terminal.result("  ", Ink("LICENSED", GOOD), f"  {_kept(standing)}")
    else:
        color = ODD if report.written else BAD
        terminal.result("  ", Ink("ADVISORY", color), f"  {standing.reason}")
    if report.written:
        terminal.note(f"wrote {LICENCES}: commit it with {asked.labels}")


def _kept(standing: Standing) -> str:
    licence = standing.licence
    assert licence is not None and licence.kappa is not None  # it is licensed
    return (
        f"agreement with people is {fixed(licence.kappa, 2)} on {counted(licence.n, 'answer')}, "
        f"the floor is {standing.asked.min_kappa:g}"
    )
