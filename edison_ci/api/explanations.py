"""Explanations of stored cells: why each passed or failed, as one record and as JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.decide import conclusion
from edison_ci.documents.record_json import Document, as_document, fields_of
from edison_ci.records import Side
from edison_ci.results import explanation, sent_prompt, stored_runs
from edison_ci.store import cells

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.plan.interim_analysis import InterimAnalysis
    from edison_ci.results.explanation import (
        AnswerRecord,
        CellExplanation,
        ComparedAnswer,
        JudgeAnswer,
    )
    from edison_ci.results.sent_prompt import SentPrompt
    from edison_ci.store.cells import Component
    from edison_ci.store.manual_grades import ManualGrade

_ID = re.compile("[0-9a-f]{12,24}")


class ExplainedCell(NamedTuple):
    """A cell with its prompt, and the interim analysis before which it was asked for, if any."""

    explanation: CellExplanation
    sent: SentPrompt
    interim: InterimAnalysis | None

    def as_json(self) -> Document:
        """Return it as a command prints it, which redacts its texts."""
        interim = None if self.interim is None else self.interim.as_json()
        sent = {"messages": as_document(self.sent.messages), "why_not": self.sent.why_not or None}
        return {**_document(self.explanation), "sent": sent, "interim": interim}


def explain_cell(project: Project, cell: str, run: str | None = None) -> ExplainedCell:
    """Explain a cell of a run, by default of the run that has its id, or else of the newest.

    `cell` is a case, CASE@MODEL#REPEAT, or at least 12 digits of its id.
    """
    with stored_runs.open_runs(project) as runs:
        reader = runs.connection
        home = cells.run_of_cell(reader, cell) if run is None and _ID.fullmatch(cell) else None
        stored = runs.find(run or home or "latest")
        row = cells.find_cell(reader, stored.id, cell)
        explained = explanation.explain(reader, project, stored, row)
        # Only comparisons have interim analyses; what finds them is slow to import.
        compared = stored.base_commit is not None
        interim = conclusion.interim_of_cell(reader, stored, explained.cell) if compared else None
        return ExplainedCell(explained, sent_prompt.sent_prompt(project, explained), interim)


def _document(explained: CellExplanation) -> Document:
    run, cell = explained.run, explained.cell
    return {
        "cell": cell.id[:12],
        **fields_of(run, "experiment", "simulated", run_id="id"),
        "prompt": {
            "id": cell.prompt,
            "hash": cell.version[:8],
            "label": run.labels.get(cell.prompt) if cell.side == Side.HEAD else None,
        },
        "case": _case(explained),
        **fields_of(cell, "side", "model", "repeat", "request_hash", "answer_no"),
        **fields_of(cell, "status", "composite", "passed", "error"),
        **fields_of(explained, "why", "arithmetic"),
        "answer": _answer(explained),
        "fallback": _fallback(explained),
        "components": [_component(explained, component) for component in cell.components],
        "judgments": [_reply(reply) for reply in explained.judgments],
        "judge_scores": as_document(explained.judge_scores),
        "head_to_head": [_rival(rival) for rival in explained.rivals],
        "people": [_person(grade) for grade in explained.people],
        "answers": [_stored_answer(answer) for answer in explained.answers],
    }


def _case(explained: CellExplanation) -> Document:
    case = explained.case
    about = {"id": explained.cell.case_id, "changed": case is None}
    return about if case is None else about | fields_of(case, "expected", "tags", input="inputs")


def _answer(explained: CellExplanation) -> Document | None:
    answer, output = explained.answer, explained.output
    if answer is None or output is None:
        return None
    return {
        **fields_of(output, "raw", "text", "thinking", json="value"),
        "malformed": output.malformed or None,
        **fields_of(answer.completion, "tool_calls", "details"),
    }


def _fallback(explained: CellExplanation) -> Document | None:
    fallback = explained.fallback
    if fallback is None:
        return None
    return {**as_document(fallback), "text": explained.fallback_text}


def _component(explained: CellExplanation, component: Component) -> Document:
    threshold = explained.thresholds.get((component.kind, component.name))
    return {**as_document(component), "threshold": threshold}


def _reply(reply: JudgeAnswer) -> Document:
    stored = reply.stored
    completion = None if stored is None else stored.completion
    return {
        **fields_of(reply, "model", "request_hash", "answer_no"),
        "text": completion and completion.text,
        "tokens": {
            "in": completion and completion.tokens_in,
            "out": completion and completion.tokens_out,
        },
        "cost_microusd": stored and stored.cost_microusd,
        "latency_ms": completion and completion.latency_ms,
    }


def _rival(rival: ComparedAnswer) -> Document:
    places = zip(("first", "second"), rival.orders, strict=True)
    return {
        **fields_of(rival, "side", "model", "judge", "preferred", "asked", "status"),
        "orders": [
            {"shown": place, "winner": winner, "reason": reason}
            for place, (winner, reason) in places
        ],
    }


def _person(grade: ManualGrade) -> Document:
    return {
        **fields_of(grade, "score", "passed", "criteria", "note", "flagged"),
        **fields_of(grade, by="actor", at="graded_at", came_with="origin"),
        "scale": grade.scale or None,
    }


def _stored_answer(answer: AnswerRecord) -> Document:
    return {
        "answer_no": answer.number,
        "tokens": {"in": answer.tokens_in, "out": answer.tokens_out},
        **fields_of(answer, "created_at", "cost_microusd", "cost_kind"),
        **fields_of(answer, "latency_ms", "served_model", "finish_reason"),
    }
