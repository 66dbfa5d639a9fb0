"""The context of a loop, and what it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.refine.candidate import Subject, with_prompt
from edison_ci.refine.trying import Bench, Wallet
from edison_ci.review.refined import prompt_in
from edison_ci.store.ledger import Cap

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from edison_ci.config.decisions import Stop
    from edison_ci.config.load import Project
    from edison_ci.execute.run_options import Tools
    from edison_ci.judges.asking import Judge
    from edison_ci.operate.actors import Actor
    from edison_ci.review.desk import Desk
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.loops import Loop
    from edison_ci.store.suggestions import Suggestion

BUDGET = "the budget of the loop"


class Opened(Protocol):
    """Gives what a session needs, for one session."""

    def __call__(self, loop: Cap | None = None) -> AbstractContextManager[Tools]:
        """Open it, within the budget of a loop."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a loop works."""

    desk: Desk
    subject: Subject
    """The prompt as it is in the working tree."""
    refiner: Judge
    opened: Opened
    actor: Actor
    audit: Callable[[Subject, Sequence[Suggestion]], AuditEntry]
    """Says who wanted suggestions."""
    advise: Callable[[sqlite3.Connection], list[str]] = lambda _: []
    """Says which model to use."""
    on_step: Callable[[str], None] = lambda _: None
    """Hears what happens next."""
    candidates: int = 1
    allow_code: bool = False

    @property
    def project(self) -> Project:
        """The project."""
        return self.desk.project

    @property
    def results(self) -> Path:
        """The results file."""
        return self.desk.site.results

    @property
    def stop(self) -> Stop:
        """The stop rules of the experiment."""
        return self.subject.experiment.file.stop

    def at(self, text: str) -> Subject:
        """Return the prompt as it is with another text of its file."""
        if text == self.subject.text:
            return self.subject
        path = self.subject.prompt.path
        prompt = prompt_in(self.project, path, text.encode("utf-8", "surrogatepass"))
        if prompt is None:
            raise UsageError(
                f"what the loop measured of {path} can no longer be read",
                hint="put back what the prompt names, or start anew with --restart",
            )
        return Subject(self.project, with_prompt(self.subject.experiment, prompt), text)

    def tools(self, loop: Loop) -> AbstractContextManager[Tools]:
        """Open what a session of a loop needs."""
        tokens = self.stop.max_total_tokens
        return self.opened(Cap(loop.scope, None, loop.budget_microusd, tokens, BUDGET))

    def bench(self, loop: Loop, subject: Subject) -> Bench:
        """Return what measures changes of a prompt, within the budget of a loop."""
        opened = lambda: self.tools(loop)  # noqa: E731  # a field of the bench
        return Bench(subject, opened, Wallet(None), allow_code=self.allow_code)


def raised(loop: Loop, max_iterations: int | None, budget_microusd: int | None) -> Loop:
    """Return a loop with the limits that were asked for now."""
    most = loop.max_iterations if max_iterations is None else max_iterations
    budget = loop.budget_microusd if budget_microusd is None else budget_microusd
    return replace(loop, max_iterations=most, budget_microusd=budget)
