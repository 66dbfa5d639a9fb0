"""edison explain: why a cell passed or failed."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, aligned, simulated_label
from edison_ci.documents import secrets
from edison_ci.numeric import counted, dollars, fixed
from edison_ci.records import CellStatus, Side, plain_text
from edison_ci.results import explanation
from edison_ci.store import cells, database, runs

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.plan.interim_analysis import InterimAnalysis
    from edison_ci.records import Json
    from edison_ci.store.cells import CellRow, Component
    from edison_ci.store.manual_grades import ManualGrade
    from edison_ci.store.runs import Run

_ID = re.compile("[0-9a-f]{12,24}")
_COLORS = {True: GOOD, False: BAD, None: ODD}


@click.command("explain", cls=EdisonCommand)
@click.argument("cell")
@click.option("--run", "wanted", metavar="RUN", help="Run of the cell; default: the newest.")
@click.pass_obj
def explain_cell(state: CliState, cell: str, wanted: str | None) -> None:
    """Explain why a cell passed or failed.

    CELL is a case, CASE@MODEL#REPEAT (#0 may be left out), or 12 hex digits. RUN is an id,
    `latest` or the name of an experiment. Shows the case, the answer, every component of the grade
    with its threshold, the replies of the judges, the calculation of the score, and the cost. Texts
    that look like keys are redacted.

    Examples:
      edison explain return-how
      edison explain return-how@small
      edison explain return-how@small#1 --run support-reply
      edison explain 0a1b2c3d4e5f --json
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_readable_project(state, terminal))
    reader = database.open_reader(project.root / project.file.results)
    try:
        run_id = cells.run_of_cell(reader, cell) if wanted is None and _ID.fullmatch(cell) else None
        run = runs.find_run(reader, wanted or run_id or "latest")
        found = explanation.explain(reader, project, run, cells.find_cell(reader, run.id, cell))
        interim = _interim_of(reader, run, found.cell)
    finally:
        reader.close()
    if terminal.json:
        terminal.document({**_document(found), "interim": interim.as_json() if interim else None})
        return
    show_explanation(terminal, found)
    if interim is not None:
        terminal.result(
            f"asked for before interim analysis {interim.number} of {interim.of} that the gates "
            f"took"
        )


def _interim_of(reader: sqlite3.Connection, run: Run, cell: CellRow) -> InterimAnalysis | None:
    """Return the interim analysis before which a cell was added; only comparisons have any."""
    if not run.base_commit:
        return None
    # The gates are slow to import, and most explanations do not need them.
    from edison_ci.decide.conclusion import interim_of_cell

    return interim_of_cell(reader, run, cell)


# --- as JSON --------------------------------------------------------------------------------------


def _document(found: explanation.CellExplanation) -> dict[str, Any]:
    run, cell, answer = found.run, found.cell, found.answer
    return {
        "cell": cell.id[:12],
        "run_id": run.id,
        "experiment": run.experiment,
        "simulated": run.simulated,
        "side": cell.side,
        "prompt": {
            "id": cell.prompt,
            "hash": cell.version[:8],
            "label": run.labels.get(cell.prompt) if cell.side == Side.HEAD else None,
        },
        "model": cell.model,
        "case": _case(found),
        "repeat": cell.repeat,
        "request_hash": cell.request_hash,
        "status": cell.status,
        "composite": cell.composite,
        "passed": cell.passed,
        "why": secrets.redacted(found.why),
        "arithmetic": found.arithmetic,
        "error": cell.error,
        "answer": None
        if found.output is None or answer is None
        else {
            "raw": secrets.redacted(found.output.raw),
            "text": secrets.redacted(found.output.text),
            "thinking": secrets.redacted(found.output.thinking),
            "json": _clean(found.output.value),
            "malformed": found.output.malformed or None,
            "tool_calls": _clean(answer.completion.tool_calls),
            "details": _clean(answer.completion.details),
        },
        "fallback": _fallback_json(found),
        "components": [_component(found, component) for component in cell.components],
        "judgments": [_reply_json(said) for said in found.judgments],
        "judge_scores": [
            {**dataclasses.asdict(judge_score), "reason": secrets.redacted(judge_score.reason)}
            for judge_score in found.judge_scores
        ],
        "head_to_head": [_rival(rival) for rival in found.rivals],
        "people": [_person(grade) for grade in found.people],
        "answer_no": cell.answer_no,
        "answers": [_answer_document(answer) for answer in found.answers],
    }


def _fallback_json(found: explanation.CellExplanation) -> dict[str, Any] | None:
    fallback, text = found.fallback, found.fallback_text
    if fallback is None:
        return None
    shown = {
        "reason": secrets.redacted(fallback.reason),
        "text": None if text is None else secrets.redacted(text),
    }
    return {**dataclasses.asdict(fallback), **shown}


def _case(found: explanation.CellExplanation) -> dict[str, Any]:
    case = found.case
    about: dict[str, Any] = {"id": found.cell.case_id, "changed": case is None}
    if case is not None:
        about |= {
            "input": _clean(dict(case.inputs)),
            "expected": _clean(case.expected),
            "tags": list(case.tags),
        }
    return about


def _component(found: explanation.CellExplanation, component: Component) -> dict[str, Any]:
    return {
        "name": component.name,
        "kind": component.kind,
        "score": component.score,
        "threshold": found.thresholds.get((component.kind, component.name)),
        "weight": component.weight,
        "passed": component.passed,
        "status": component.status,
        "reason": secrets.redacted(component.reason),
    }


def _reply_json(said: explanation.JudgeAnswer) -> dict[str, Any]:
    stored = said.stored
    return {
        "model": said.model,
        "request_hash": said.request_hash,
        "answer_no": said.answer_no,
        "text": secrets.redacted(stored.completion.text) if stored else None,
        "tokens": {
            "in": stored.completion.tokens_in if stored else None,
            "out": stored.completion.tokens_out if stored else None,
        },
        "cost_microusd": stored.cost_microusd if stored else None,
        "latency_ms": stored.completion.latency_ms if stored else None,
    }


def _rival(rival: explanation.ComparedAnswer) -> dict[str, Any]:
    orders = [
        {"shown": shown, "winner": winner, "reason": secrets.redacted(reason)}
        for shown, (winner, reason) in zip(("first", "second"), rival.orders, strict=True)
    ]
    return {
        "side": rival.side,
        "model": rival.model,
        "judge": rival.judge,
        "preferred": rival.preferred,
        "asked": rival.asked,
        "status": rival.status,
        "orders": orders,
    }


def _person(grade: ManualGrade) -> dict[str, Any]:
    return {
        "by": grade.actor,
        "at": grade.graded_at,
        "score": grade.score,
        "scale": grade.scale or None,
        "passed": grade.passed,
        "criteria": dict(grade.criteria),
        "note": secrets.redacted(grade.note),
        "flagged": grade.flagged,
        "came_with": grade.origin,
    }


def _answer_document(answer: explanation.AnswerRecord) -> dict[str, Any]:
    return {
        "answer_no": answer.number,
        "created_at": answer.created_at,
        "cost_microusd": answer.cost_microusd,
        "cost_kind": answer.cost_kind,
        "tokens": {"in": answer.tokens_in, "out": answer.tokens_out},
        "latency_ms": answer.latency_ms,
        "served_model": answer.served_model,
        "finish_reason": answer.finish_reason,
    }


def _clean(value: Json) -> Json:
    """Return a value with its texts redacted."""
    if isinstance(value, str):
        return secrets.redacted(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in value.items()}
    return value


# --- as text --------------------------------------------------------------------------------------


def show_explanation(terminal: Terminal, found: explanation.CellExplanation) -> None:
    """Print everything that is known about a cell."""
    run, cell = found.run, found.cell
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
    terminal.result(StyledText(secrets.redacted(found.why), _COLORS[cell.passed]))
    _inputs(terminal, found)
    _answer(terminal, found)
    _fallback(terminal, found)
    _grade(terminal, found)
    _judges(terminal, found)
    _rivals(terminal, found)
    _people(terminal, found)
    _show_answers(terminal, found)


def _inputs(terminal: Terminal, found: explanation.CellExplanation) -> None:
    terminal.result(StyledText("--- case", bold=True))
    case = found.case
    if case is None:
        terminal.result("the case changed since or no longer exists")
        return
    for name, value in case.inputs.items():
        _text(terminal, f"{name}: {plain_text(value)}")
    if case.expected is not None:
        _text(terminal, f"expected: {plain_text(case.expected)}")


def _answer(terminal: Terminal, found: explanation.CellExplanation) -> None:
    output, cell = found.output, found.cell
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
        details = found.answer.completion.details if found.answer is not None else None
        for name, value in (details if isinstance(details, dict) else {}).items():
            terminal.result(StyledText(f"--- {name}", bold=True))
            _text(terminal, json.dumps(value, ensure_ascii=False, indent=2))


def _fallback(terminal: Terminal, found: explanation.CellExplanation) -> None:
    fallback = found.fallback
    if fallback is None:
        return
    mark = simulated_label(fallback.simulated)
    terminal.result(StyledText(f"--- answer of the fallback model {fallback.model}", bold=True))
    terminal.result("It stands in for the answer and counts in no score and no gate.", *mark)
    if found.fallback_text is not None:
        _text(terminal, found.fallback_text)
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


def _grade(terminal: Terminal, found: explanation.CellExplanation) -> None:
    cell = found.cell
    terminal.result(StyledText("--- grade", bold=True))
    rows: list[tuple[str, ...]] = [("", "component", "score", "needs", "weight", "why")]
    rows += [_row(found, component) for component in cell.components]
    for line, component in zip(
        aligned(rows, right=frozenset({2, 3, 4})), (None, *cell.components), strict=True
    ):
        counts = component is not None and component in found.counted
        color = _COLORS[component.passed] if counts and component is not None else None
        terminal.result(StyledText(line, color), hang=len(line) - len(line.lstrip()) + 6)
    passed = {True: "pass", False: "fail", None: "neither pass nor fail"}[cell.passed]
    terminal.result(f"score {found.arithmetic}; {passed}")


def _row(found: explanation.CellExplanation, component: Component) -> tuple[str, ...]:
    needs = found.thresholds.get((component.kind, component.name))
    word = {True: "pass", False: "fail", None: "-"}[component.passed]
    return (
        word if component.status == CellStatus.OK else component.status,
        f"{component.kind} {component.name}",
        "-" if component.score is None else fixed(100 * component.score, 1),
        "-" if needs is None else fixed(100 * needs),
        f"{component.weight:g}",
        secrets.redacted(component.reason),
    )


def _judges(terminal: Terminal, found: explanation.CellExplanation) -> None:
    for said in found.judgments:
        title = f"--- reply of {said.model}, answer {said.answer_no}"
        terminal.result(StyledText(title, bold=True))
        if said.stored is None:
            terminal.result("its text is no longer stored")
            continue
        _text(terminal, said.stored.completion.text)


def _rivals(terminal: Terminal, found: explanation.CellExplanation) -> None:
    """Print the pairwise comparisons of this answer, with the winner in each order."""
    for rival in found.rivals:
        other = rival.model if rival.side == found.cell.side else f"the {rival.side}"
        terminal.result(StyledText(f"--- against {other}, by {rival.judge}", bold=True))
        word = {True: "preferred", False: "not preferred", None: "a tie"}[rival.preferred]
        terminal.result(word if rival.status == CellStatus.OK else "not compared in both orders")
        orders = rival.orders if rival.asked else rival.orders[:1]
        for shown, (winner, reason) in zip(("first", "second"), orders, strict=False):
            named = {"this": "this one", "other": "the other", "tie": "a tie"}.get(winner, winner)
            where = f"shown {shown}: " if rival.asked else "not judged: "
            terminal.result(f"  {where}{named}; {secrets.redacted(reason)}")


def _people(terminal: Terminal, found: explanation.CellExplanation) -> None:
    if found.people:
        terminal.result(StyledText("--- people", bold=True))
    for grade in found.people:
        said = "no grade" if grade.score is None else fixed(100 * grade.score)
        flag = ", flagged for a second look" if grade.flagged else ""
        note = f": {secrets.redacted(grade.note)}" if grade.note else ""
        origin = f" (came with run {grade.origin})" if grade.origin else ""
        terminal.result(f"{grade.actor}{origin}  {said}{flag}{note}")


def _show_answers(terminal: Terminal, found: explanation.CellExplanation) -> None:
    for answer in found.answers:
        mark = "" if answer.number == found.cell.answer_no else ", not of this run"
        kind = "" if answer.cost_kind == "billed" else f" {answer.cost_kind}"
        terminal.note(
            f"answer {answer.number}{mark}: {dollars(answer.cost_microusd)}{kind}, "
            f"{answer.tokens_in or 0:,} tokens in, {answer.tokens_out or 0:,} out, "
            f"{answer.latency_ms:,} ms, {answer.finish_reason}, by {answer.served_model or '?'}"
        )
    judging = [said.stored for said in found.judgments if said.stored is not None]
    if judging:
        spent = sum(stored.cost_microusd for stored in judging)
        terminal.note(f"judging: {counted(len(judging), 'call')}, {dollars(spent)}")
