"""edison explain: why a cell passed or failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from edison_ci.api import explanations
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, aligned, simulated_label
from edison_ci.documents import secrets
from edison_ci.numeric import counted, dollars, fixed
from edison_ci.records import CellStatus, Side, plain_text

if TYPE_CHECKING:
    from edison_ci.results.explanation import CellExplanation
    from edison_ci.results.sent_prompt import SentPrompt
    from edison_ci.store.cells import Component

_COLORS = {True: GOOD, False: BAD, None: ODD}


@click.command("explain", cls=EdisonCommand)
@click.argument("cell")
@click.option("--run", "run", metavar="RUN", help="Run of the cell; default: the newest.")
@click.pass_obj
def explain_cell(state: CliState, cell: str, run: str | None) -> None:
    """Explain why a cell passed or failed.

    CELL is a case, CASE@MODEL#REPEAT (#0 may be left out), or 12 hex digits. RUN is an id,
    `latest` or the name of an experiment. Shows the case, the prompt as it was sent, the answer,
    every component of the grade with its threshold, the replies of the judges, the calculation of
    the score, and the cost. Texts that look like keys are redacted.

    Examples:
      edison explain return-how
      edison explain return-how@small
      edison explain return-how@small#1 --run support-reply
      edison explain 0a1b2c3d4e5f --json
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_readable_project(state, terminal))
    explained = explanations.explain_cell(project, cell, run)
    if terminal.json:
        terminal.document(explained.as_json())
        return
    _show(terminal, explained.explanation, explained.sent)
    if (interim := explained.interim) is not None:
        terminal.result(
            f"asked for before interim analysis {interim.number} of {interim.of} that the gates "
            f"took"
        )


def _show(terminal: Terminal, explained: CellExplanation, sent: SentPrompt) -> None:
    """Print everything that is known about a cell."""
    run, cell = explained.run, explained.cell
    mark = simulated_label(run.simulation)
    label = (
        f" {run.labels[cell.prompt]}"
        if cell.side == Side.HEAD and cell.prompt in run.labels
        else ""
    )
    terminal.result(
        StyledText(f"{cell.case_id}@{cell.model}#{cell.repeat}", bold=True),
        f"  {cell.id[:12]}",
        *mark,
    )
    side = "" if cell.side == Side.HEAD else f", {cell.side}"
    terminal.result(f"{cell.prompt}{label} ({cell.version[:8]}), run {run.id}{side}")
    terminal.result(StyledText(secrets.redacted(explained.why), _COLORS[cell.passed]))
    _inputs(terminal, explained)
    _sent(terminal, sent)
    _answer(terminal, explained)
    _fallback(terminal, explained)
    _grade(terminal, explained)
    _judges(terminal, explained)
    _rivals(terminal, explained)
    _people(terminal, explained)
    _show_answers(terminal, explained)


def _inputs(terminal: Terminal, explained: CellExplanation) -> None:
    terminal.result(StyledText("--- case", bold=True))
    case = explained.case
    if case is None:
        terminal.result("the case changed since or no longer exists")
        return
    for name, value in case.inputs.items():
        _text(terminal, f"{name}: {plain_text(value)}")
    if case.expected is not None:
        _text(terminal, f"expected: {plain_text(case.expected)}")


def _sent(terminal: Terminal, sent: SentPrompt) -> None:
    for message in sent.messages:
        terminal.result(StyledText(f"--- sent as {message.role}", bold=True))
        _text(terminal, message.content)
    if sent.why_not:
        terminal.result(StyledText("--- sent", bold=True))
        terminal.result(sent.why_not)


def _answer(terminal: Terminal, explained: CellExplanation) -> None:
    output, cell = explained.output, explained.cell
    terminal.result(StyledText("--- answer", bold=True))
    if cell.status == CellStatus.BLOCKED and cell.answer_no is not None:
        terminal.result("blocked, therefore not shown")
    elif cell.answer_no is None:
        terminal.result("there is no answer")
    elif output is None:
        terminal.result("its text is no longer stored")
    else:
        _text(terminal, output.raw)
        if output.text.strip() != output.raw.strip():
            terminal.result(StyledText("--- graded text", bold=True))
            _text(terminal, output.text)
        details = explained.answer.completion.details if explained.answer is not None else None
        for name, value in (details if isinstance(details, dict) else {}).items():
            terminal.result(StyledText(f"--- {name}", bold=True))
            _text(terminal, json.dumps(value, ensure_ascii=False, indent=2))


def _fallback(terminal: Terminal, explained: CellExplanation) -> None:
    fallback = explained.fallback
    if fallback is None:
        return
    mark = simulated_label(fallback.simulated)
    terminal.result(StyledText(f"--- answer of the fallback model {fallback.model}", bold=True))
    terminal.result("It replaces the answer and counts in no score and no gate.", *mark)
    if explained.fallback_text is not None:
        _text(terminal, explained.fallback_text)
    else:
        blocked = fallback.status is CellStatus.BLOCKED
        terminal.result("blocked, therefore not shown" if blocked else "no longer stored")
    word = {True: "pass", False: "fail", None: "neither pass nor fail"}[fallback.passed]
    score = "missing" if fallback.composite is None else fixed(100 * fallback.composite, 1)
    why = f" ({secrets.redacted(fallback.reason)})" if fallback.reason else ""
    terminal.result(f"score {score}; {word}{why}")


def _text(terminal: Terminal, text: str) -> None:
    for line in secrets.redacted(text).split("\n"):
        terminal.result(line, hang=0)


def _grade(terminal: Terminal, explained: CellExplanation) -> None:
    cell = explained.cell
    terminal.result(StyledText("--- grade", bold=True))
    rows: list[tuple[str, ...]] = [("", "component", "score", "needs", "weight", "why")]
    rows += [_row(explained, component) for component in cell.components]
    for line, component in zip(
        aligned(rows, right=frozenset({2, 3, 4})), (None, *cell.components), strict=True
    ):
        counts = component is not None and component in explained.counted
        color = _COLORS[component.passed] if counts and component is not None else None
        terminal.result(StyledText(line, color), hang=len(line) - len(line.lstrip()) + 6)
    passed = {True: "pass", False: "fail", None: "neither pass nor fail"}[cell.passed]
    terminal.result(f"score {explained.arithmetic}; {passed}")


def _row(explained: CellExplanation, component: Component) -> tuple[str, ...]:
    needs = explained.thresholds.get((component.kind, component.name))
    word = {True: "pass", False: "fail", None: "-"}[component.passed]
    return (
        word if component.status == CellStatus.OK else component.status,
        f"{component.kind} {component.name}",
        "-" if component.score is None else fixed(100 * component.score, 1),
        "-" if needs is None else fixed(100 * needs),
        f"{component.weight:g}",
        secrets.redacted(component.reason),
    )


def _judges(terminal: Terminal, explained: CellExplanation) -> None:
    for reply in explained.judgments:
        title = f"--- reply of {reply.model}, answer {reply.answer_no}"
        terminal.result(StyledText(title, bold=True))
        if reply.stored is None:
            terminal.result("its text is no longer stored")
            continue
        _text(terminal, reply.stored.completion.text)


def _rivals(terminal: Terminal, explained: CellExplanation) -> None:
    """Print the pairwise comparisons of this answer, with the winner in each order."""
    for rival in explained.rivals:
        other = rival.model if rival.side == explained.cell.side else f"the {rival.side}"
        terminal.result(StyledText(f"--- against {other}, by {rival.judge}", bold=True))
        word = {True: "preferred", False: "not preferred", None: "a tie"}[rival.preferred]
        terminal.result(word if rival.status == CellStatus.OK else "not compared in both orders")
        orders = rival.orders if rival.asked else rival.orders[:1]
        for place, (winner, reason) in zip(("first", "second"), orders, strict=False):
            named = {"this": "this one", "other": "the other", "tie": "a tie"}.get(winner, winner)
            where = f"shown {place}: " if rival.asked else "not judged: "
            terminal.result(f"  {where}{named}; {secrets.redacted(reason)}")


def _people(terminal: Terminal, explained: CellExplanation) -> None:
    if explained.people:
        terminal.result(StyledText("--- people", bold=True))
    for grade in explained.people:
        score = "no grade" if grade.score is None else fixed(100 * grade.score)
        flag = ", flagged for a second look" if grade.flagged else ""
        note = f": {secrets.redacted(grade.note)}" if grade.note else ""
        origin = f" (came with run {grade.origin})" if grade.origin else ""
        terminal.result(f"{grade.actor}{origin}  {score}{flag}{note}")


def _show_answers(terminal: Terminal, explained: CellExplanation) -> None:
    for answer in explained.answers:
        mark = "" if answer.number == explained.cell.answer_no else ", not of this run"
        kind = "" if answer.cost_kind == "billed" else f" {answer.cost_kind}"
        terminal.note(
            f"answer {answer.number}{mark}: {dollars(answer.cost_microusd)}{kind}, "
            f"{answer.tokens_in or 0:,} tokens in, {answer.tokens_out or 0:,} out, "
            f"{answer.latency_ms:,} ms, {answer.finish_reason}, by {answer.served_model or '?'}"
        )
    judging = [reply.stored for reply in explained.judgments if reply.stored is not None]
    if judging:
        spent = sum(stored.cost_microusd for stored in judging)
        terminal.note(f"judging: {counted(len(judging), 'call')}, {dollars(spent)}")
