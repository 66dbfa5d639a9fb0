"""How does a run talk to the person at the terminal while it goes on?"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from edison_ci.cli.progress import Display
from edison_ci.cli.tools import advice, tools_for
from edison_ci.cli.trusting import on_terms_of_base
from edison_ci.execute.session import Session
from edison_ci.frozen import dataclass
from edison_ci.plan.plan import EmptyShard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.cli.against import Match
    from edison_ci.cli.asking import Asking
    from edison_ci.cli.options import State
    from edison_ci.config.load import Project
    from edison_ci.execute.orders import Ended, RunOptions, Tools
    from edison_ci.providers.replay import ReplayProvider
    from edison_ci.store.ledger import Cap


@dataclass(frozen=True, slots=True)
class Table:
    """Makes sessions that talk to the person at the terminal."""

    state: State
    asking: Asking
    recording: ReplayProvider | None = None

    def runs(self, match: Match, options: RunOptions) -> Iterator[Ended]:
        """Run what is to be run, and yield how it ended; nothing if its shard has no case."""
        with self.session(match) as session:
            try:
                yield session.run(options)
            except EmptyShard as empty:
                self.asking.terminal.note(f"skipped: {empty.message}")

    @contextlib.contextmanager
    def session(self, match: Match) -> Iterator[Session]:
        """Yield the session of one run, and take its progress off the screen in the end."""
        state, recording = self.state, self.recording
        display = Display(self.asking.terminal, quiet=state.quiet)
        tools = tools_for(state, match.project)
        if recording is not None:
            tools = dataclasses.replace(tools, provider_for=lambda _: recording)
        tools = dataclasses.replace(
            tools,
            on_plan=self.asking,
            on_start=display.start,
            on_progress=display.progress,
            on_alert=display.alert,
            on_look=display.look,
            on_wait=display.waiting,
            on_stop=display.stopping,
            advice=advice("every answer is kept, and edison resume goes on from there"),
        )
        try:
            project = on_terms_of_base(match.project)
            yield Session(project, match.experiment, tools, against=match.against)
        finally:
            display.clear()


@dataclass(frozen=True, slots=True)
class Seats:
    """Gives each session of refining its tools, and takes its progress off the screen again."""

    state: State
    asking: Asking
    project: Project
    brief: bool = False
    """Whether there are so many sessions that a log is better off without their progress."""

    @contextlib.contextmanager
    def opened(self, loop: Cap | None = None) -> Iterator[Tools]:
        """Yield what a session works with, perhaps within the budget of a loop."""
        state = self.state
        display = Display(self.asking.terminal, quiet=state.quiet, brief=self.brief)
        tools = tools_for(state, self.project)
        try:
            yield dataclasses.replace(
                tools,
                on_plan=self.asking.refuse,
                on_start=display.start,
                on_progress=display.progress,
                on_alert=display.alert,
                on_stop=display.stopping,
                advice=advice("every answer is kept, and the same command goes on from there"),
                loop=loop,
            )
        finally:
            display.clear()
