"""edison regrade: stored answers graded again, as a new run or as a second opinion."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from edison_ci import feature
from edison_ci.api import evaluation
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions, summary
from edison_ci.cli import sessions as cli_sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import requirements
from edison_ci.errors import CallFailed, ExitCode, UsageError
from edison_ci.execute import run_options, second_opinion
from edison_ci.numeric import counted, dollars, fixed, score
from edison_ci.results import run_result
from edison_ci.store import runs

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.regrade import StoredAnswers
    from edison_ci.execute.second_opinion import SecondGrade, SecondOpinion
    from edison_ci.store.runs import Run

_WORDS = {True: "pass", False: "fail", None: "-"}
ADVISORY = "advisory: the run, its grades and its verdict stay as they are"


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
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
def regrade(state: CliState, /, wanted: str | None, **given: Any) -> None:
    """Grade the stored answers of a run again.

    Uses the current checks, rubric, judges and gates. No new answers are requested; judges are
    called only where their question changed. RUN is an id, `latest` or the name of an experiment.
    The result is a new run; the old one stays as it is. Cells whose prompt, model or input changed
    since are left out.

    --no-cache asks the judges again about the same answers. Graded so from time to time, a run is
    an anchor: `edison alerts check` tells by it whether a judge changed, or a model did.

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
    part = second_opinion.GradedPart(
        given["judges"], given["rubric"], given["cases"], given["failed"]
    )
    with lookup.results_of(project) as reader:
        stored = lookup.find_run_or_newest(terminal, reader, wanted)
    if part and given["no_cache"]:
        raise UsageError(
            "--no-cache grades a whole run again",
            hint="leave out --judge, --rubric, --case, --failed",
        )
    if part:
        _second_opinion(state, terminal, project, stored, part, given)
        return
    grading = evaluation.GradingRequest(
        sessions.microusd(given["budget"]),
        allow_code=given["allow_code"],
        wait=given["wait"],
        reuse=not given["no_cache"],
    )
    factory = cli_sessions.session_factory(
        state, cli_sessions.PlanConfirmation(terminal, yes=given["yes"])
    )
    ended = evaluation.regrade_run(project, stored.id, grading, factory)
    feature.call("runs_ended", terminal, project, [ended.run_id])
    _finish_regrade(terminal, project, ended)


def _finish_regrade(terminal: Terminal, project: Project, ended: run_options.RunOutcome) -> None:
    kept = ended.stored_answers
    assert kept is not None  # a regrade always has them
    code = int(ended.exit_code)
    _note_left_out(terminal, kept)
    with lookup.results_of(project) as reader:
        result = run_result.RunResult(reader, runs.find_run(reader, ended.run_id))
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
    found = kept.gradable
    if found.changed:
        more = ", ..." if found.changed > len(found.examples) else ""
        said = "prompt, model or input changed since: "
        terminal.note(
            StyledText(f"{counted(found.changed, 'cell')} left out", ODD),
            f", {said}{', '.join(found.examples)}{more}",
        )
    if found.gone:
        said = ", their prompt, model or case no longer exists"
        terminal.note(StyledText(f"{counted(found.gone, 'cell')} left out", ODD), said)
    if found.missing:
        terminal.note(
            f"{counted(found.missing, 'cell')} of the current files are not in {kept.run.id}"
        )


# --- a second opinion -----------------------------------------------------------------------------


def _second_opinion(  # noqa: PLR0913 - the options of the command
    state: CliState,
    terminal: Terminal,
    project: Project,
    run: Run,
    part: second_opinion.GradedPart,
    given: dict[str, Any],
) -> None:
    run_sessions.require_editor(project, "regrade")
    project = run_options.allow_code(project) if given["allow_code"] else project
    variant = part.variant(project, project.experiment(run.experiment))
    requirements.refuse(requirements.missing(project, variant, calls=requirements.GRADING))
    with lookup.results_of(project) as reader:
        chosen = second_opinion.GradableTexts.of(reader, project, run, part)
    calls = second_opinion.judge_requests(project, variant, chosen.texts)
    cli_sessions.confirm_calls(terminal, project, calls, yes=given["yes"])
    found = second_opinion.grade_again(
        project,
        variant,
        chosen.texts,
        run_sessions.run_context(project, offline=state.offline),
        budget_microusd=sessions.microusd(given["budget"]),
    )
    if found.grades and len(found.failed) == len(found.grades):
        raise CallFailed(
            f"no judge graded an answer: {found.failed[0].why_not}", hint="see: edison models test"
        )
    if terminal.json:
        terminal.document(_opinion_json(run, variant, chosen, found))
    else:
        _show_opinion(terminal, run, variant, chosen, found)
    if found.exhausted:
        raise click.exceptions.Exit(ExitCode.BUDGET)


def _show_opinion(
    terminal: Terminal,
    run: Run,
    variant: Experiment,
    chosen: second_opinion.GradableTexts,
    found: SecondOpinion,
) -> None:
    judges = ", ".join([*(model.name for model in variant.judges), *variant.judge_plugins])
    rubric = variant.rubric.rubric if variant.rubric is not None else ""
    mark = simulated_label(run.simulation or any(model.simulated for model in variant.judges))
    terminal.result(
        StyledText(run.experiment, bold=True),
        StyledText("  ADVISORY", ODD),
        f"  {counted(len(found.grades), 'answer')} of {run.id} graded by {judges}, rubric {rubric}",
        *mark,
    )
    rows: list[tuple[str, ...]] = [("", "stored", "", "now", "", "why")]
    rows += [_opinion_row(one) for one in found.grades]
    terminal.table(rows, right=(1, 3))
    means = found.means()
    if means is not None:
        flipped = [one for one in found.graded if one.flipped]
        passing = sum(one.grade.passed is True for one in flipped)
        change = GOOD if means[1] > means[0] else BAD if means[1] < means[0] else None
        terminal.result(
            f"mean {fixed(100 * means[0], 1)} stored, ",
            StyledText(f"{fixed(100 * means[1], 1)} now", change),
            f"; {passing:,} would pass now and did not, {len(flipped) - passing:,} would fail now",
        )
    for count, why in (
        (chosen.changed, "prompt or case changed since"),
        (chosen.gone, "text no longer stored"),
    ):
        if count:
            terminal.note(StyledText(f"{counted(count, 'answer')} left out", ODD), f", {why}")
    if found.exhausted:
        terminal.note(f"{found.exhausted} is used up: the same command continues")
    terminal.result(StyledText(ADVISORY, ODD))
    if found.usage is not None:
        usage = found.usage
        terminal.note(
            f"{counted(usage.bought, 'call')} made, {usage.reused:,} reused; "
            f"{dollars(usage.cost_microusd)}"
        )


def _opinion_row(one: SecondGrade) -> tuple[str, ...]:
    cell, grade = one.text.cell, one.grade
    weakest = min(
        (part for part in grade.components if part.kind == "criterion" and part.score is not None),
        key=lambda part: part.score if part.score is not None else math.inf,
        default=None,
    )
    why = one.why_not or grade.reason
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


def _opinion_json(
    run: Run, variant: Experiment, chosen: second_opinion.GradableTexts, found: SecondOpinion
) -> dict[str, Any]:
    means = found.means()
    return {
        "advisory": True,
        "run_id": run.id,
        "experiment": run.experiment,
        "judges": [*(model.name for model in variant.judges), *variant.judge_plugins],
        "rubric": variant.rubric.rubric if variant.rubric is not None else None,
        "simulated": run.simulated or any(model.simulated for model in variant.judges),
        "answers": [
            {
                "cell": one.text.cell.id[:12],
                "case": one.text.cell.case_id,
                "prompt": one.text.cell.prompt,
                "model": one.text.cell.model,
                "repeat": one.text.cell.repeat,
                "before": {
                    "composite": one.text.cell.composite,
                    "passed": one.text.cell.passed,
                },
                "after": {
                    "status": one.grade.status,
                    "composite": one.grade.composite,
                    "passed": one.grade.passed,
                    "reason": one.why_not or one.grade.reason,
                    "components": [
                        {
                            "name": part.name,
                            "kind": part.kind,
                            "score": part.score,
                            "passed": part.passed,
                            "status": part.status,
                            "reason": part.reason,
                        }
                        for part in one.grade.components
                    ],
                },
            }
            for one in found.grades
        ],
        "mean": None if means is None else {"before": means[0], "after": means[1]},
        "flipped": sum(one.flipped for one in found.grades),
        "left_out": {"changed": chosen.changed, "gone": chosen.gone},
        "exhausted": found.exhausted or None,
        "calls": None if found.usage is None else found.usage.bought,
        "cost_microusd": None if found.usage is None else found.usage.cost_microusd,
    }
