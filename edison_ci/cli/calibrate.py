"""edison calibrate: agreement of judges with human grades, and their approval for gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci.api import judge_calibration
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, aligned, simulated_label
from edison_ci.config import project_files
from edison_ci.judges import approval as judge_approval
from edison_ci.numeric import counted, fixed
from edison_ci.stats import corrected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.api.judge_calibration import JudgeReport
    from edison_ci.execute.calibration import LabelCheck
    from edison_ci.judges.approval import ApprovalStatus
    from edison_ci.stats.calibration import JudgeCheck

_LISTED = 3


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
    project = lookup.open_project(state, name)
    reports = judge_calibration.calibrate(
        project, name, ask=ask, dry_run=dry_run, offline=state.offline
    )
    if terminal.json:
        terminal.document({"experiments": [report.as_json() for report in reports]})
    else:
        for report in reports:
            _show(terminal, report)


def _show(terminal: Terminal, report: JudgeReport) -> None:
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
    for line in _left_out(checked):
        terminal.result(f"  {line}")
    if n:
        rows: list[tuple[str, ...]] = [
            ("", "agreement (kappa)", "judge - people", "close", "correlation", "passes", "fails")
        ]
        rows += [_row(name, check) for name, check in report.judges.items()]
        for row in aligned(rows):
            terminal.result(f"  {row}")
        _criteria(terminal, report)
    run_id, human = report.latest
    for score in human.scores if human is not None else ():
        for correction in score.corrections:
            about = f"run {run_id}, {score.prompt} with {score.model}"
            terminal.result(f"  {about}: {correction.sentence}")
    _show_approval(terminal, report)


def _row(name: str, check: JudgeCheck) -> tuple[str, ...]:
    bias = "-"
    if check.bias is not None:
        bias = f"{fixed(100 * check.bias, 1, signed=True)} points"
        if check.bias_interval is not None:
            low, high = (fixed(100 * end, 1, signed=True) for end in check.bias_interval)
            bias += f" ({low} to {high})"
    kappa = "-" if check.kappa.value is None else fixed(check.kappa.value, 2)
    if check.bound is not None:
        kappa += f" (at least {judge_approval.bound_text(check.bound.low)})"
    counts = check.counts
    return (
        name or "together",
        kappa,
        bias,
        "-" if check.close is None else f"{fixed(100 * check.close)}%",
        "-" if check.correlation is None else fixed(check.correlation, 2),
        f"{counts.true_passes} of {counts.passes} found" if counts.passes else "-",
        f"{counts.true_fails} of {counts.fails} found" if counts.fails else "-",
    )


def _criteria(terminal: Terminal, report: JudgeReport) -> None:
    for name, trust in list(report.criteria.items())[:_LISTED]:
        close = "" if trust.agreement is None else f"close on {fixed(100 * trust.agreement)}%, "
        bias = 0.0 if trust.value is None else trust.value
        terminal.result(
            f"    criterion {name}: {close}{fixed(100 * bias, 1, signed=True)} points "
            f"({counted(trust.n, 'label')})"
        )


def _left_out(checked: LabelCheck) -> Iterator[str]:
    """Yield which graded answers are left out, and what to do about it."""
    unused = checked.unused
    for count, why in (
        (unused.not_asked, "not judged by these judges yet: add --ask, or run edison regrade"),
        (unused.changed, "left out: the case changed since or no longer exists"),
        (unused.gone, "left out: its text is neither in the labels nor in the results"),
        (unused.failed, "left out: a judge could not grade it"),
    ):
        if count:
            yield f"{counted(count, 'labelled answer')} {why}"


def _show_approval(terminal: Terminal, report: JudgeReport) -> None:
    standing, n = report.standing, report.together.n
    asked = standing.asked
    if n < corrected.FEWEST_LABELS:
        more = asked.min_n - n
        terminal.result(
            f"  {counted(n, 'label')} are too few: {corrected.FEWEST_LABELS} are needed to "
            f"correct a score, {asked.min_n} for an approval."
        )
        if more > 0:
            terminal.result(f"  Continue with: edison grade {report.experiment.id} --limit {more}")
    if standing.approved:
        terminal.result("  ", StyledText("APPROVED", GOOD), f"  {_agreement_sentence(standing)}")
    else:
        color = ODD if report.written else BAD
        terminal.result("  ", StyledText("ADVISORY", color), f"  {standing.reason}")
        needed = report.cases_needed
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
