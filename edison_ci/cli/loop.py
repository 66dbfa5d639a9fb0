"""edison loop: run, refine, review, and again, until the prompt gets no better."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.asking import Asking
from edison_ci.cli.errands import (
    Outlook,
    announce,
    simulated,
    which_prompt,
)
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.reading import project_at
from edison_ci.cli.recommend import sentences
from edison_ci.cli.sessions import refining_factory
from edison_ci.cli.spending import microusd, spending
from edison_ci.cli.suggested import show_suggestion
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal
from edison_ci.decide.recommendation import Wishes, advise
from edison_ci.errors import OutOfBudget
from edison_ci.formatting import score
from edison_ci.loop.final import next_steps
from edison_ci.loop.looping import Looper
from edison_ci.loop.place import Place
from edison_ci.loop.starting import Wish, alone, begin
from edison_ci.plan.plan import bare_plan
from edison_ci.plan.versions import short
from edison_ci.plugins import later
from edison_ci.refine.asking import refiner_of
from edison_ci.refine.requests import RefineRequest, refine_request
from edison_ci.report.writing import write_whole
from edison_ci.results.case_filter import roll_of
from edison_ci.results.leaderboard import measurements_of
from edison_ci.review.desk import Desk
from edison_ci.store.suggestions import Status

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.loop.final import Final
    from edison_ci.refine.candidate import Subject
    from edison_ci.store.loops import Loop
    from edison_ci.store.suggestions import Suggestion

_find_browser = later("edison_ci.report.pdf:find_browser")
_printed = later("edison_ci.report.pdf:printed")


@click.command(cls=EdisonCommand)
@click.argument("experiment")
@which_prompt
@click.option("--iterations", type=click.IntRange(1, 100), metavar="N", help="Most iterations.")
@click.option("--auto-approve", is_flag=True, help="Take what is proven, on a branch of its own.")
@click.option("--restart", is_flag=True, help="Leave a loop behind that is not done.")
@click.option("--pdf", is_flag=True, help="Print the final report as a PDF too.")
@spending
@click.pass_obj
def loop(state: State, /, experiment: str, **given: Any) -> None:
    """Run and refine until it gets no better.

    An iteration is a run. Then the stop rules are asked, a better prompt is asked for and tried,
    and the loop waits for a person: decide with `edison review`, then give the same command again.
    With --auto-approve it takes what is proven by itself, on the branch edison/loop/EXPERIMENT;
    your branch and files stay as they are. That is refused in CI, and unless the project sets
    require_review_approval to false.

    Whatever stops it, the same command goes on where it was. In the end the best prompt meets the
    first one on cases that nobody learned from, and a report is written to .edison/loops/.

    Examples:
      edison loop support-reply
      edison loop support-reply --iterations 5 --budget 2
      edison loop support-reply --auto-approve
      edison loop support-reply --restart --json
    """
    terminal = Terminal(state)
    request = refine_request(project_at(state), "loop", experiment, given["prompt"])
    asking = Asking(terminal, yes=given["yes"])
    place = _place(state, asking, request, allow_code=given["allow_code"])
    if given["pdf"]:
        _find_browser()
    wish = Wish(
        given["iterations"],
        microusd(given["budget"]),
        auto=given["auto_approve"],
        restart=given["restart"],
    )
    with alone(place):
        _announce(asking, request.subject)
        looper = Looper(place, begin(place, wish))
        try:
            done = looper.go_on()
        except OutOfBudget as error:
            _give_up(terminal, looper, error)
            raise
    if done:
        _tell_end(terminal, looper, pdf=given["pdf"])
    else:
        _tell_waiting(terminal, looper)


def _place(state: State, asking: Asking, request: RefineRequest, *, allow_code: bool) -> Place:
    project, subject, terminal = request.project, request.subject, asking.terminal
    return Place(
        desk=Desk.of(project, offline=state.offline),
        subject=subject,
        refiner=refiner_of(request.model),
        opened=partial(refining_factory(state, asking).tools, project),
        actor=request.actor,
        audit=lambda of, made: replace(request, action="refine", subject=of).audited(made),
        advise=lambda connection: _advice(connection, project, subject.experiment.id),
        on_step=lambda line: terminal.note(f"  {line}"),
        candidates=subject.limits.candidates,
        allow_code=allow_code,
    )


def _announce(asking: Asking, subject: Subject) -> None:
    """Refuse what would stumble, say what it may cost, and ask where that is much."""
    plan = bare_plan(subject.project, subject.experiment, of="loop")
    asking.refuse(plan)
    training = plan.cases - plan.holdout
    outlook = Outlook(training, plan.holdout, plan.cost_microusd, plan.simulated)
    announce(asking, subject, outlook)


def _advice(connection: sqlite3.Connection, project: Project, name: str) -> list[str]:
    roll = roll_of(project, name, stored=connection)
    measured = measurements_of(connection, name, roll)
    return [] if measured is None else sentences(advise(name, measured, roll, Wishes()))


# --- what came of it ------------------------------------------------------------------------------


def _tell_waiting(terminal: Terminal, looper: Looper) -> None:
    one = looper.suggestion()
    if terminal.json:
        told = {"waits_for": one.as_json(), "exit_code": 0}
        terminal.document({**_document(looper, "waiting"), **told})
        return
    terminal.result("")
    show_suggestion(terminal, one)
    terminal.result("")
    _show_iterations(terminal, looper)
    terminal.result(Ink("waiting", ODD), f": {_waits(looper.loop, one)}")
    if one.status is Status.PROPOSED:
        terminal.note(f"take it:   edison review approve {one.id}")
        terminal.note(f'leave it:  edison review reject {one.id} --reason "..."')
    terminal.note(f"then:      edison loop {looper.loop.experiment}")


def _waits(loop: Loop, one: Suggestion) -> str:
    if one.status is Status.APPLIED:
        where = f" on {one.branch}" if one.branch is not None else ""
        return f"{one.id} is applied{where}, and {loop.path} here is without it: merge or pull it"
    if one.status is Status.APPROVED:
        return f"{one.id} is approved, and not merged yet"
    return f"a person decides about {one.id}"


def _tell_end(terminal: Terminal, looper: Looper, *, pdf: bool) -> None:
    final = looper.final
    assert final is not None, "a loop that is done has its report"
    files = {file.kind: file.path for file in final.files}
    if pdf:
        target = files["report_html"].with_suffix(".pdf")
        page = files["report_html"].read_text(encoding="utf-8")
        write_whole(target, _printed(_find_browser(), page))
        files["report_pdf"] = target
    if terminal.json:
        told = {**final.as_json(), "files": {kind: str(path) for kind, path in files.items()}}
        terminal.document({**_document(looper, "done"), **told, "exit_code": 0})
        return
    _show_final(terminal, looper, final)
    for path in files.values():
        terminal.note(f"wrote {os.path.relpath(path)}")


def _give_up(terminal: Terminal, looper: Looper, error: OutOfBudget) -> None:
    """Say what was found before the budget was used up."""
    loop = looper.loop
    error.hint = f"raise it, and it goes on: edison loop {loop.experiment} --budget USD"
    if looper.final is None or terminal.json:
        return
    _show_final(terminal, looper, looper.final)
    for file in looper.final.files:
        terminal.note(f"wrote {os.path.relpath(file.path)}")


def _show_final(terminal: Terminal, looper: Looper, final: Final) -> None:
    terminal.result("")
    _show_iterations(terminal, looper)
    terminal.result(
        Ink(final.sentence, GOOD if final.shown else ODD),
        *simulated(final.loop.simulated),
    )
    for line in final.advice:
        terminal.result(line)
    weak = ", ".join(f"{one.name} {score(one.score)}" for one in final.weaknesses)
    if weak:
        terminal.result(f"weak still: {weak}")
    spent = ", ".join(f"{one.phase} {dollars(one.microusd)}" for one in final.spending)
    terminal.result(f"it cost {dollars(final.cost_microusd)} ({spent or 'nothing was asked'})")
    for step in next_steps(final):
        terminal.note(f"next: {step}")


def _show_iterations(terminal: Terminal, looper: Looper) -> None:
    nothing = "-"
    rows = [("iteration", "version", "score", "cases", "run")]
    for one in looper.iterations():
        cases = nothing if one.run_id is None else f"{one.cases or 0:,}"
        run = one.run_id or nothing
        rows.append((f"{one.number}", short(one.version), score(one.score), cases, run))
    terminal.table(rows, right=(0, 2, 3))


def _document(looper: Looper, status: str) -> dict[str, Any]:
    loop = looper.loop
    return {
        "loop": loop.id,
        "experiment": loop.experiment,
        "prompt": loop.prompt,
        "status": status,
        "point": str(loop.point),
        "mode": loop.mode,
        "branch": loop.branch,
        "simulated": loop.simulated,
        "max_iterations": loop.max_iterations,
        "budget_microusd": loop.budget_microusd,
        "iterations": [
            {key: value for key, value in one._asdict().items() if key != "text"}
            for one in looper.iterations()
        ],
    }
