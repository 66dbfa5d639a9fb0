"""edison loop: run, refine and review repeatedly, until the score converges."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.api import rankings
from edison_ci.cli import lookup, suggestion
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.sessions import PlanConfirmation, cost_options, microusd, refining_factory
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.decide import recommendation
from edison_ci.documents import record_json
from edison_ci.errors import OutOfBudget
from edison_ci.features.refine import library
from edison_ci.features.refine import loop_report as report
from edison_ci.features.refine import loop_runner as runner
from edison_ci.features.refine import loop_start as start
from edison_ci.features.refine.commands import announce_loop, iterations_option, prompt_option
from edison_ci.numeric import change, dollars, score
from edison_ci.proposals import candidate, context
from edison_ci.records import SuggestionStatus
from edison_ci.report import files as report_files
from edison_ci.report import pdf as report_pdf
from edison_ci.report.document import plain_rows

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.features.refine.loop_report import LoopReport, PromptCourse
    from edison_ci.store.suggestions import Suggestion


@dataclass(frozen=True, slots=True)
class LoopCommandRequest:
    """The prompts to improve, and the limits of the loop."""

    experiment: str | None
    prompt: str | None
    iterations: int | None
    auto_approve: bool
    restart: bool
    pdf: bool
    budget: float | None
    yes: bool
    allow_code: bool


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@prompt_option
@iterations_option
@click.option("--auto-approve", is_flag=True, help="Apply proven suggestions on a separate branch.")
@click.option("--restart", is_flag=True, help="Abandon an unfinished loop and start a new one.")
@click.option("--pdf", is_flag=True, help="Also write the final report as a PDF.")
@cost_options
@click.pass_obj
@takes(LoopCommandRequest)
def loop(state: CliState, request: LoopCommandRequest) -> None:
    """Run and refine repeatedly until the score converges.

    An iteration is a run, the stop rules, and a suggested change that is tested. Several prompts
    are refined together, unless --prompt names one; one that is shown to be worse than the best is
    dropped. Then the loop waits for a review: decide with `edison review`, and run the same command
    again. With
    --auto-approve it applies proven suggestions itself, on the branch edison/loop/EXPERIMENT; your
    branch and files stay as they are. This is not allowed in CI, and only if the project sets
    require_review_approval to false.

    After an interruption the same command continues. In the end the best prompt is compared with
    the first one on held-out cases, and a report is written to .edison/loops/. EXPERIMENT may be
    left out if there is one.

    Examples:
      edison loop
      edison loop support-reply --iterations 5 --budget 2
      edison loop support-reply --auto-approve
      edison loop support-reply --restart --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state, request.experiment)
    experiment = lookup.find_experiment(project, request.experiment)
    first = request.prompt or experiment.prompts[0].id
    permitted = library.refine_request(project, "loop", experiment.id, first)
    confirmation = PlanConfirmation(terminal, yes=request.yes)
    place = _place(state, confirmation, permitted, request)
    if request.pdf:
        report_pdf.find_browser()
    loop_request = start.LoopRequest(
        request.iterations,
        microusd(request.budget),
        auto=request.auto_approve,
        restart=request.restart,
    )
    with start.exclusive(place):
        target = replace(place.targets[0], experiment=place.experiment)
        announce_loop(confirmation, target)
        looper = runner.LoopRunner(place, start.begin(place, loop_request))
        try:
            done = looper.run()
        except OutOfBudget as error:
            _show_exhausted(terminal, looper, error)
            raise
    if done:
        _show_end(terminal, looper, pdf=request.pdf)
    else:
        _show_waiting(terminal, looper)
    feature.call("command_ended", terminal, permitted.site)


def _place(
    state: CliState,
    confirmation: PlanConfirmation,
    permitted: library.RefineRequest,
    request: LoopCommandRequest,
) -> start.LoopContext:
    project, target, terminal = permitted.project, permitted.target, confirmation.terminal
    # On the terms of a proposal the experiment may be another one.
    experiment = project.experiment(target.experiment.id)
    names = [request.prompt] if request.prompt else [prompt.id for prompt in experiment.prompts]
    return start.LoopContext(
        review=context.ReviewContext.of(project, offline=state.offline),
        targets=tuple(
            replace(candidate.target_of(project, experiment, name), holdout=target.holdout)
            for name in names
        ),
        refiner=permitted.refiner,
        open_context=partial(refining_factory(state, confirmation).context, project),
        actor=permitted.actor,
        audit=lambda of, made: replace(permitted, action="refine", target=of).audit_entry(made),
        advise=lambda connection: _advice(connection, project, target.experiment.id),
        on_step=lambda line: terminal.note(f"  {line}"),
        candidates=target.limits.candidates,
        allow_code=request.allow_code,
    )


def _advice(connection: sqlite3.Connection, project: Project, name: str) -> list[str]:
    advice = recommendation.advice_on(connection, project, name)
    return [] if advice is None else rankings.recommendation_sentences(advice)


def _show_waiting(terminal: Terminal, looper: runner.LoopRunner) -> None:
    waiting = list(looper.suggestions().values())
    if terminal.json:
        documents = [pending.as_json() for pending in waiting]
        outcome = {"waits_for": documents[0], "suggestions": documents, "exit_code": 0}
        terminal.document({**_document(looper, "waiting"), **outcome})
        return
    for pending in waiting:
        terminal.result("")
        suggestion.show_suggestion(terminal, pending)
    terminal.result("")
    _show_iterations(terminal, looper)
    for pending in waiting:
        terminal.result(StyledText("waiting", ODD), f": {_waiting_reason(pending)}")
    for pending in waiting:
        if pending.status is SuggestionStatus.PROPOSED:
            terminal.note(f"accept it:  edison review approve {pending.id}")
            terminal.note(f'reject it:  edison review reject {pending.id} --reason "..."')
    terminal.note(f"then:       edison loop {looper.loop.experiment}")


def _waiting_reason(suggestion: Suggestion) -> str:
    if suggestion.status is SuggestionStatus.APPLIED:
        where = f" on {suggestion.branch}" if suggestion.branch is not None else ""
        missing = f"not in {suggestion.path} here: merge or pull it"
        return f"{suggestion.id} is applied{where}, but {missing}"
    if suggestion.status is SuggestionStatus.APPROVED:
        return f"{suggestion.id} is approved, but not merged yet"
    return f"{suggestion.id} needs a decision"


def _show_end(terminal: Terminal, looper: runner.LoopRunner, *, pdf: bool) -> None:
    final = looper.final
    assert final is not None, "a finished loop has its report"
    files = {file.kind: file.path for file in final.files}
    if pdf:
        target = files["report_html"].with_suffix(".pdf")
        page = files["report_html"].read_text(encoding="utf-8")
        report_files.write_whole(target, report_pdf.print_pdf(report_pdf.find_browser(), page))
        files["report_pdf"] = target
    if terminal.json:
        outcome = {**final.as_json(), "files": {kind: str(path) for kind, path in files.items()}}
        terminal.document({**_document(looper, "done"), **outcome, "exit_code": 0})
        return
    _show_final(terminal, looper, final)
    for path in files.values():
        terminal.note(f"wrote {os.path.relpath(path)}")


def _show_exhausted(terminal: Terminal, looper: runner.LoopRunner, error: OutOfBudget) -> None:
    """Print the results so far of a loop whose budget is used up."""
    loop = looper.loop
    error.hint = f"raise it to continue: edison loop {loop.experiment} --budget USD"
    if looper.final is None or terminal.json:
        return
    _show_final(terminal, looper, looper.final)
    for file in looper.final.files:
        terminal.note(f"wrote {os.path.relpath(file.path)}")


def _show_final(terminal: Terminal, looper: runner.LoopRunner, final: LoopReport) -> None:
    terminal.result("")
    _show_iterations(terminal, looper)
    terminal.result(
        StyledText(final.sentence, GOOD if final.proven else ODD),
        *simulated_label(final.loop.simulated),
    )
    for course in final.courses if len(final.loop.prompts) > 1 else ():
        terminal.result(_course_text(course))
    for line in final.advice:
        terminal.result(line)
    weak = ", ".join(f"{part.name} {score(part.score)}" for part in final.weaknesses)
    if weak:
        terminal.result(f"still weak: {weak}")
    spent = ", ".join(f"{part.phase} {dollars(part.microusd)}" for part in final.spending)
    terminal.result(f"cost {dollars(final.cost_microusd)} ({spent or 'no calls'})")
    for step in report.next_steps(final):
        terminal.note(f"next: {step}")


def _course_text(course: PromptCourse) -> str:
    """Return the result of one of several prompts, in one line."""
    name, holdout = course.first.prompt, course.holdout
    if course.dropped:
        return f"{course.dropped}"
    if not course.better:
        return f"{name}: no better version was found"
    scores = f"{score(course.first.score)} to {score(course.best.score)} on the training cases"
    if holdout is None or holdout["difference"]["estimate"] is None:
        return f"{name}: {scores}"
    difference = holdout["difference"]
    moved = change(difference["estimate"], difference["low"], difference["high"])
    return f"{name}: {scores}, {moved} on held-out cases"


def _show_iterations(terminal: Terminal, looper: runner.LoopRunner) -> None:
    table = report.iterations_table(looper.loop, looper.iterations()).without(["suggestion"])
    terminal.table(plain_rows(table), right=table.numeric)


def _document(looper: runner.LoopRunner, status: str) -> dict[str, Any]:
    loop = looper.loop
    return {
        **record_json.fields_of(
            loop, "experiment", "prompt", "point", "mode", "branch", "simulated",
            "max_iterations", "budget_microusd", loop="id",
        ),
        "status": status,
        "iterations": [
            {key: value for key, value in iteration._asdict().items() if key != "text"}
            for iteration in looper.iterations()
        ],
    }  # fmt: skip
