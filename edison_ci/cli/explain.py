"""edison explain: why a cell passed or failed."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.reading import readable_at
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, aligned, counted
from edison_ci.documents.secrets import redacted
from edison_ci.plugins import later
from edison_ci.results.explanation import Explained, Rival, Said, Take, explain
from edison_ci.rounding import fixed
from edison_ci.store.cells import find_cell, run_of_cell
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.plan.looks import Look
    from edison_ci.records import Json
    from edison_ci.store.grades import ManualGrade
    from edison_ci.store.runs import Part

_ID = re.compile("[0-9a-f]{12,24}")
_COLORS = {True: GOOD, False: BAD, None: ODD}


@click.command("explain", cls=EdisonCommand)
@click.argument("cell")
@click.option("--run", "wanted", metavar="RUN", help="Run it belongs to; the last by default.")
@click.pass_obj
def explain_cell(state: State, cell: str, wanted: str | None) -> None:
    """Show why a cell passed or failed.

    CELL is 12 hex digits or CASE@MODEL#DRAW; draw 0 may be left out. RUN is an id, `latest` or the
    name of an experiment. Shown are the case, the answer, every part of the grade with what it had
    to reach, what judges said, how the score comes about, and what it cost. What looks like a key
    is cut short.

    Examples:
      edison explain return-how@small
      edison explain return-how@small#1 --run support-reply
      edison explain 0a1b2c3d4e5f --json
    """
    terminal = Terminal(state)
    project = readable_at(state, terminal)
    reader = open_reader(project.root / project.file.results)
    try:
        run_id = run_of_cell(reader, cell) if wanted is None and _ID.fullmatch(cell) else None
        run = find_run(reader, wanted or run_id or "latest")
        found = explain(reader, project, run, find_cell(reader, run.id, cell))
        look: Look | None = _look_of_cell(reader, run, found.cell) if run.base_commit else None
    finally:
        reader.close()
    if terminal.json:
        terminal.document({**_document(found), "look": look.as_json() if look else None})
        return
    _show(terminal, found)
    if look is not None:
        terminal.result(f"asked for before look {look.number} of {look.of} that the gates took")


# Loaded late: only a comparison is looked at more than once.
_look_of_cell = later("edison_ci.decide.conclusion:look_of_cell")


# --- as JSON --------------------------------------------------------------------------------------


def _document(found: Explained) -> dict[str, Any]:
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
            "label": run.labels.get(cell.prompt) if cell.side == "head" else None,
        },
        "model": cell.model,
        "case": _case(found),
        "draw": cell.draw,
        "address": cell.address,
        "status": cell.status,
        "composite": cell.composite,
        "passed": cell.passed,
        "why": redacted(found.why),
        "arithmetic": found.arithmetic,
        "error": cell.error,
        "answer": None
        if found.output is None or answer is None
        else {
            "raw": redacted(found.output.raw),
            "text": redacted(found.output.text),
            "thinking": redacted(found.output.thinking),
            "json": _clean(found.output.value),
            "malformed": found.output.malformed or None,
            "tool_calls": _clean(answer.completion.tool_calls),
        },
        "parts": [_part(found, part) for part in cell.parts],
        "judgments": [_said(said) for said in found.judgments],
        "opinions": [
            {**dataclasses.asdict(opinion), "reason": redacted(opinion.reason)}
            for opinion in found.opinions
        ],
        "head_to_head": [_rival(rival) for rival in found.rivals],
        "people": [_person(grade) for grade in found.people],
        "take": cell.take,
        "takes": [_take(take) for take in found.takes],
    }


def _case(found: Explained) -> dict[str, Any]:
    case = found.case
    about: dict[str, Any] = {"id": found.cell.case_id, "changed": case is None}
    if case is not None:
        about |= {
            "input": _clean(dict(case.inputs)),
            "expected": _clean(case.expected),
            "tags": list(case.tags),
        }
    return about


def _part(found: Explained, part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "kind": part.kind,
        "score": part.score,
        "threshold": found.thresholds.get((part.kind, part.name)),
        "weight": part.weight,
        "passed": part.passed,
        "status": part.status,
        "reason": redacted(part.reason),
    }


def _said(said: Said) -> dict[str, Any]:
    stored = said.stored
    return {
        "model": said.model,
        "address": said.address,
        "take": said.take,
        "text": redacted(stored.completion.text) if stored else None,
        "tokens": {
            "in": stored.completion.tokens_in if stored else None,
            "out": stored.completion.tokens_out if stored else None,
        },
        "cost_microusd": stored.cost_microusd if stored else None,
        "latency_ms": stored.completion.latency_ms if stored else None,
    }


def _rival(rival: Rival) -> dict[str, Any]:
    orders = [
        {"shown": shown, "winner": winner, "reason": redacted(reason)}
        for shown, (winner, reason) in zip(("first", "second"), rival.said, strict=True)
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
        "note": redacted(grade.note),
        "flagged": grade.flagged,
    }


def _take(take: Take) -> dict[str, Any]:
    return {
        "take": take.number,
        "created_at": take.created_at,
        "cost_microusd": take.cost_microusd,
        "cost_kind": take.cost_kind,
        "tokens": {"in": take.tokens_in, "out": take.tokens_out},
        "latency_ms": take.latency_ms,
        "served_model": take.served_model,
        "finish_reason": take.finish_reason,
    }


def _clean(value: Json) -> Json:
    """Return a value in which no text looks like a key."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in value.items()}
    return value


# --- for people -----------------------------------------------------------------------------------


def _show(terminal: Terminal, found: Explained) -> None:
    run, cell = found.run, found.cell
    mark = (Ink("  simulated", ODD),) if run.simulated else ()
    label = (
        f" {run.labels[cell.prompt]}" if cell.side == "head" and cell.prompt in run.labels else ""
    )
    terminal.result(
        Ink(f"{cell.case_id}@{cell.model}#{cell.draw}", bold=True), f"  {cell.id[:12]}", *mark
    )
    side = "" if cell.side == "head" else f", {cell.side}"
    terminal.result(f"{cell.prompt}{label} ({cell.version[:8]}), run {run.id}{side}")
    terminal.result(Ink(redacted(found.why), _COLORS[cell.passed]))
    _inputs(terminal, found)
    _answer(terminal, found)
    _grade(terminal, found)
    _judges(terminal, found)
    _rivals(terminal, found)
    _people(terminal, found)
    _takes(terminal, found)


def _inputs(terminal: Terminal, found: Explained) -> None:
    terminal.result(Ink("--- case", bold=True))
    case = found.case
    if case is None:
        terminal.result("it changed since, or is no longer there")
        return
    for name, value in case.inputs.items():
        _text(terminal, f"{name}: {_plain(value)}")
    if case.expected is not None:
        _text(terminal, f"expected: {_plain(case.expected)}")


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _answer(terminal: Terminal, found: Explained) -> None:
    output, cell = found.output, found.cell
    terminal.result(Ink("--- answer", bold=True))
    if cell.status == "blocked":
        terminal.result("blocked, and so shown to nobody")
    elif cell.take is None:
        terminal.result("there is none")
    elif output is None:
        terminal.result("its text is no longer stored")
    else:
        _text(terminal, output.raw)
        if output.text.strip() != output.raw.strip():
            terminal.result(Ink("--- what counts of it", bold=True))
            _text(terminal, output.text)


def _text(terminal: Terminal, text: str) -> None:
    for line in redacted(text).split("\n"):
        terminal.result(line)


def _grade(terminal: Terminal, found: Explained) -> None:
    cell = found.cell
    terminal.result(Ink("--- grade", bold=True))
    rows: list[tuple[str, ...]] = [("", "part", "score", "needs", "weight", "why")]
    rows += [_row(found, part) for part in cell.parts]
    for line, part in zip(
        aligned(rows, right=frozenset({2, 3, 4})), (None, *cell.parts), strict=True
    ):
        counts = part is not None and part in found.counted
        terminal.result(Ink(line, _COLORS[part.passed] if counts and part is not None else None))
    passed = {True: "pass", False: "fail", None: "neither pass nor fail"}[cell.passed]
    terminal.result(f"score {found.arithmetic}; {passed}")


def _row(found: Explained, part: Part) -> tuple[str, ...]:
    needs = found.thresholds.get((part.kind, part.name))
    word = {True: "pass", False: "fail", None: "-"}[part.passed]
    return (
        word if part.status == "ok" else part.status,
        f"{part.kind} {part.name}",
        "-" if part.score is None else fixed(100 * part.score, 1),
        "-" if needs is None else fixed(100 * needs),
        f"{part.weight:g}",
        redacted(part.reason),
    )


def _judges(terminal: Terminal, found: Explained) -> None:
    for said in found.judgments:
        title = f"--- {said.model} said, take {said.take}"
        terminal.result(Ink(title, bold=True))
        if said.stored is None:
            terminal.result("its text is no longer stored")
            continue
        _text(terminal, said.stored.completion.text)


def _rivals(terminal: Terminal, found: Explained) -> None:
    """Print what this answer was compared with, and who won in each order."""
    for rival in found.rivals:
        other = rival.model if rival.side == found.cell.side else f"the {rival.side}"
        terminal.result(Ink(f"--- against {other}, by {rival.judge}", bold=True))
        word = {True: "preferred", False: "not preferred", None: "a tie"}[rival.preferred]
        terminal.result(word if rival.status == "ok" else "not compared in both orders")
        orders = rival.said if rival.asked else rival.said[:1]
        for shown, (winner, reason) in zip(("first", "second"), orders, strict=False):
            named = {"this": "this one", "other": "the other", "tie": "a tie"}.get(winner, winner)
            where = f"shown {shown}: " if rival.asked else "nobody was asked: "
            terminal.result(f"  {where}{named}; {redacted(reason)}")


def _people(terminal: Terminal, found: Explained) -> None:
    if found.people:
        terminal.result(Ink("--- people", bold=True))
    for grade in found.people:
        said = "no grade" if grade.score is None else fixed(100 * grade.score)
        flag = ", flagged for a second look" if grade.flagged else ""
        note = f": {redacted(grade.note)}" if grade.note else ""
        terminal.result(f"{grade.actor}  {said}{flag}{note}")


def _takes(terminal: Terminal, found: Explained) -> None:
    for take in found.takes:
        mark = "" if take.number == found.cell.take else ", not the one of this run"
        kind = "" if take.cost_kind == "billed" else f" {take.cost_kind}"
        terminal.note(
            f"take {take.number}{mark}: {dollars(take.cost_microusd)}{kind}, "
            f"{take.tokens_in or 0:,} tokens in, {take.tokens_out or 0:,} out, "
            f"{take.latency_ms:,} ms, {take.finish_reason}, by {take.served_model or '?'}"
        )
    judging = [said.stored for said in found.judgments if said.stored is not None]
    if judging:
        spent = sum(stored.cost_microusd for stored in judging)
        terminal.note(f"judging: {counted(len(judging), 'call')}, {dollars(spent)}")
