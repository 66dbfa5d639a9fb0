"""The run and the cell that a log record belongs to, for logs that machines read."""

from __future__ import annotations

from contextvars import ContextVar

RUN_ID: ContextVar[str] = ContextVar("run_id", default="")
"""The run at work; every task of a run inherits it."""
CELL_ID: ContextVar[str] = ContextVar("cell_id", default="")
"""The cell that the current task fills."""


def current_ids() -> dict[str, str]:
    """Return the ids that apply here, by the names that they have in logs."""
    found = {"run_id": RUN_ID.get(), "cell_id": CELL_ID.get()}
    return {name: value for name, value in found.items() if value}
