"""Spans of runs, cells and calls: what the code calls, whether or not they are recorded.

Without a recorder each function returns an object that does nothing, so a run without
OpenTelemetry pays for a comparison at each call.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from edison_ci.records import Completion, Request

RUN_ID: ContextVar[str] = ContextVar("run_id", default="")
"""The current run, for logs that machines read; every task of a run inherits it."""
CELL_ID: ContextVar[str] = ContextVar("cell_id", default="")
"""The cell that the current task fills."""
SIGNALS = ("", "TRACES_", "METRICS_", "LOGS_")
"""Parts of the names of variables of OpenTelemetry, for all signals and for one."""


def current_ids() -> dict[str, str]:
    """Return the ids that apply here, by the names that they have in logs."""
    ids = {"run_id": RUN_ID.get(), "cell_id": CELL_ID.get()}
    return {name: value for name, value in ids.items() if value}


class Evaluation(Protocol):
    """A part of a grade: a check, a criterion or a grader."""

    @property
    def name(self) -> str:
        """What was evaluated."""
        ...

    @property
    def score(self) -> float | None:
        """From 0 to 1; None without one."""
        ...

    @property
    def passed(self) -> bool | None:
        """None if it does not decide."""
        ...

    @property
    def reason(self) -> str:
        """In words; may quote the answer."""
        ...


class CellSpan(NamedTuple):
    """What a span of a cell is about."""

    id: str
    case: str
    prompt: str
    model: str
    side: str
    repeat: int


class Span(Protocol):
    """A span that is open."""

    def answered(self, completion: Completion) -> None:
        """Note the answer to a call."""
        ...

    def graded(self, status: str, score: float | None, parts: Sequence[Evaluation]) -> None:
        """Note the grade of a cell."""
        ...

    def ended(self, status: str) -> None:
        """Note how a run ended."""
        ...


class Recorder(Protocol):
    """Records spans."""

    def run(self, run_id: str, experiment: str, trigger: str) -> AbstractContextManager[Span]:
        """Return the span of a run."""
        ...

    def cell(self, cell: CellSpan) -> AbstractContextManager[Span]:
        """Return the span of a cell, within that of its run."""
        ...

    def call(self, request: Request, model: str, phase: str) -> AbstractContextManager[Span]:
        """Return the span of a call, within that of its cell."""
        ...


class _Off:
    """Records nothing."""

    def __enter__(self) -> _Off:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def answered(self, completion: Completion) -> None:
        pass

    def graded(self, status: str, score: float | None, parts: Sequence[Evaluation]) -> None:
        pass

    def ended(self, status: str) -> None:
        pass


_OFF = _Off()
_recorder: Recorder | None = None


def record_with(recorder: Recorder | None) -> None:
    """Let a recorder record the spans of this process from now on; None for none."""
    global _recorder
    _recorder = recorder


def is_configured() -> bool:
    """Whether the environment names a collector."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return any(os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT") for signal in SIGNALS)


def is_recording() -> bool:
    """Whether spans are recorded."""
    return _recorder is not None


def run_span(run_id: str, experiment: str, trigger: str) -> AbstractContextManager[Span]:
    """Return the span of a run."""
    return _OFF if _recorder is None else _recorder.run(run_id, experiment, trigger)


def cell_span(cell: CellSpan) -> AbstractContextManager[Span]:
    """Return the span of a cell."""
    return _OFF if _recorder is None else _recorder.cell(cell)


def call_span(request: Request, model: str, phase: str) -> AbstractContextManager[Span]:
    """Return the span of one attempt at a call."""
    return _OFF if _recorder is None else _recorder.call(request, model, phase)
