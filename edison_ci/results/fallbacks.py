"""Answers of fallback models in a scheduled run: how many, and how good, apart from its scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.numeric import counted, fixed

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.records import Json


class FallbackUse(NamedTuple):
    """What one fallback model answered in place of another."""

    instead_of: str
    """The model that was not reached, and its parameters."""
    model: str
    simulated: bool
    cells: int
    composite: float | None
    """Mean over its answers; None if none has a score."""
    passed: int
    failed: int

    @property
    def sentence(self) -> str:
        """What happened, and that it counts for nothing."""
        who = f"{self.model} (simulated)" if self.simulated else self.model
        score = "no score" if self.composite is None else f"score {fixed(100 * self.composite, 1)}"
        judged = self.passed + self.failed
        passes = f", {self.passed:,} of {judged:,} pass" if judged else ""
        are, stay = ("was", "It stays") if self.cells == 1 else ("were", "They stay")
        return (
            f"{counted(self.cells, 'cell')} of {self.instead_of} {are} answered by its fallback "
            f"{who} ({score}{passes}). {stay} in error: these answers count in no score and no "
            "gate."
        )

    def as_json(self) -> dict[str, Json]:
        """Return it as reports have it."""
        return self._asdict()


def fallbacks_of(connection: sqlite3.Connection, run_id: str) -> tuple[FallbackUse, ...]:
    """Return the fallback models that answered in a run, by the model that was not reached."""
    rows = connection.execute(
        "select c.model, f.model, f.simulated, count(*), avg(f.composite), "
        "sum(coalesce(f.passed, 0)), sum(coalesce(f.passed = 0, 0)) "
        "from cell c join fallback_answer f on f.cell_id = c.id "
        "where c.run_id = ? and c.status = 'error' group by 1, 2, 3 order by 1, 2",
        (run_id,),
    )
    return tuple(
        FallbackUse(instead_of, model, bool(simulated), *numbers)
        for instead_of, model, simulated, *numbers in rows
    )
