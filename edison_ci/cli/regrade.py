"""edison regrade: stored answers graded again, as a new run or as a second opinion."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from edison_ci import feature
from edison_ci.api import evaluation, regrading
from edison_ci.api.regrading import RegradeRequest
from edison_ci.cli import lookup, sessions, summary
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.errors import ExitCode
from edison_ci.numeric import counted, dollars, fixed, score
from edison_ci.results import stored_runs

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.execute.existing_answers import StoredAnswers
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.execute.second_opinion import SecondGrade
    from edison_ci.store.runs import Run

_WORDS = {True: "pass", False: "fail", None: "-"}
ADVISORY = "advisory: the run, its grades and its verdict stay as they are"


@click.command(cls=EdisonCommand)
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="NAME",
    help="Grade by this model of models.yaml, advisory; repeatable.",
)
@click.option("--rubric", metavar="NAME", help="Grade by this rubric, a name or a file, advisory.")
@click.option(
    "--case", "cases", multiple=True, metavar="ID", help="Grade this case, advisory; repeatable."
)
@click.option("--failed", is_flag=True, help="Grade answers that did not pass, advisory.")
@click.option("--no-cache", is_flag=True, help="Ask judges again even where a reply is stored.")
@sessions.budget
@sessions.yes
@sessions.allow_code
@click.option("--wait", is_flag=True, help="Wait until another run of the experiment has ended.")
@click.pass_obj
@takes(RegradeRequest)
def regrade(state: CliState, request: RegradeRequest) -> None:
    """Grade the stored answers of a run again.

    Uses the current checks, rubric, judges and gates. No new answers are requested; judges are
    called only where their question changed. RUN is an id, `latest` or the name of an experiment.
    The result is a new run; the old one stays as it is. Cells whose prompt, model or input changed
    since are left out.

    --no-cache asks the judges again about the same answers. Graded so from time to time, a run is
    an anchor: `edison alerts check` uses it to see whether a judge or a model changed.

    --judge, --rubric, --case and --failed grade a part, or by another judge or rubric. That is a
    second opinion: it is printed beside the stored grades, makes no run, and changes no grade, gate
    or verdict. Replies of the judges are stored, so asking again costs nothing.

    Examples:
      edison regrade
      edison regrade support-reply --budget 1 --json
      edison regrade 20261101T020000-4f1c2a --no-cache
      edison regrade --judge large --failed
      edison regrade --rubric support-strict --case return-how
    """
    terminal = Terminal(state)
    project = lookup.open_project(state)
    with stored_runs.open_runs(project) as runs:
        stored = lookup.find_run_or_newest(terminal, runs, request.run)
    request.refuse_mixed()
    if request.part:
        _second_opinion(state, terminal, project, stored, request)
        return
    confirmation = sessions.PlanConfirmation(terminal, yes=request.yes)
    factory = sessions.session_factory(state, confirmation)
    ended = evaluation.regrade_run(project, stored.id, request.options, factory)
    feature.call("runs_ended", terminal, project, [ended.run_id])
    _finish_regrade(terminal, project, ended)


def _finish_regrade(terminal: Terminal, project: Project, ended: RunOutcome) -> None:
    kept = ended.stored_answers
    assert kept is not None  # a regrade always has them
    code = int(ended.exit_code)
    _note_left_out(terminal, kept)
    with stored_runs.open_runs(project) as runs:
        result = runs.result(ended.run_id)
        if terminal.json:
            about = {"run_id": kept.run.id, "left_out": kept.gradable.as_json()}
            terminal.document(
                {**summary.document([result], code, [ended.progress]), "regraded": about}
            )
        else:
            summary.show_run(terminal, result, ended.progress)
    if code:
        raise click.exceptions.Exit(code)


def _note_left_out(terminal: Terminal, kept: StoredAnswers) -> None:
    """Print which cells are not graded again, and why."""
    gradable = kept.gradable
    if gradable.changed:
        more = ", ..." if gradable.changed > len(gradable.examples) else ""
        why = "prompt, model or input changed since: "
        terminal.note(
            StyledText(f"{counted(gradable.changed, 'cell')} left out", ODD),
            f", {why}{', '.join(gradable.examples)}{more}",
        )
    if gradable.gone:
        why = ", their prompt, model or case no longer exists"
        terminal.note(StyledText(f"{counted(gradable.gone, 'cell')} left out", ODD), why)
    if gradable.missing:
        terminal.note(
            f"{counted(gradable.missing, 'cell')} of the current files are not in {kept.run.id}"
        )


def _second_opinion(
    state: CliState, terminal: Terminal, project: Project, run: Run, request: RegradeRequest
) -> None:
    plan = regrading.plan_opinion(project, run, request)
    sessions.confirm_calls(terminal, plan.project, plan.calls(), yes=request.yes)
    advice = plan.grade(offline=state.offline, budget_microusd=request.budget_microusd)
    if terminal.json:
        terminal.document(advice.as_json())
    else:
        _show_opinion(terminal, advice)
    if advice.opinion.exhausted:
        raise click.exceptions.Exit(ExitCode.BUDGET)


def _show_opinion(terminal: Terminal, advice: regrading.Opinion) -> None:
    run, opinion = advice.run, advice.opinion
    mark = simulated_label(run.simulation or advice.simulated)
    terminal.result(
        StyledText(run.experiment, bold=True),
        StyledText("  ADVISORY", ODD),
        f"  {counted(len(opinion.grades), 'answer')} of {run.id} graded by "
        f"{', '.join(advice.judges)}, rubric {advice.rubric or ''}",
        *mark,
    )
    rows: list[tuple[str, ...]] = [("", "stored", "", "now", "", "why")]
    rows += [_opinion_row(second) for second in opinion.grades]
    terminal.table(rows, right=(1, 3))
    means = opinion.means()
    if means is not None:
        flipped = [second for second in opinion.graded if second.flipped]
        passing = sum(second.grade.passed is True for second in flipped)
        change = GOOD if means[1] > means[0] else BAD if means[1] < means[0] else None
        terminal.result(
            f"mean {fixed(100 * means[0], 1)} stored, ",
            StyledText(f"{fixed(100 * means[1], 1)} now", change),
            f"; {passing:,} would pass now and did not, {len(flipped) - passing:,} would fail now",
        )
    for count, why in (
        (advice.texts.changed, "prompt or case changed since"),
        (advice.texts.gone, "text no longer stored"),
    ):
        if count:
            terminal.note(StyledText(f"{counted(count, 'answer')} left out", ODD), f", {why}")
    if opinion.exhausted:
        terminal.note(f"{opinion.exhausted} is used up: the same command continues")
    terminal.result(StyledText(ADVISORY, ODD))
    if opinion.usage is not None:
        usage = opinion.usage
        terminal.note(
            f"{counted(usage.bought, 'call')} made, {usage.reused:,} reused; "
            f"{dollars(usage.cost_microusd)}"
        )


def _opinion_row(second: SecondGrade) -> tuple[str, ...]:
    cell, grade = second.text.cell, second.grade
    weakest = min(
        (part for part in grade.components if part.kind == "criterion" and part.score is not None),
        key=lambda part: part.score if part.score is not None else math.inf,
        default=None,
    )
    why = second.why_not or grade.reason
    if not why and weakest is not None:
        why = f"{weakest.name} {score(weakest.score)}: {weakest.reason}"
    return (
        f"{cell.case_id}@{cell.model}#{cell.repeat}",
        score(cell.composite),
        _WORDS[cell.passed],
        score(grade.composite),
        _WORDS[grade.passed],
        why,
    )
