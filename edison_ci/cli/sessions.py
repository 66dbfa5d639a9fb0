"""The person at the terminal, while a run goes on: plans to agree to, and progress."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci.cli.progress import Display
from edison_ci.cli.terminal import ODD, Ink
from edison_ci.execute.work import BASE
from edison_ci.names import commit_names
from edison_ci.operate.sessions import SessionFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edison_ci.cli.asking import Asking
    from edison_ci.cli.options import State
    from edison_ci.cli.terminal import Terminal
    from edison_ci.execute.run_targets import RunTarget
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.replay import ReplayProvider

_LISTED = 5


def session_factory(
    state: State, asking: Asking, recording: ReplayProvider | None = None
) -> SessionFactory:
    """Return what makes the sessions of a command that shows and asks on the terminal."""
    return SessionFactory(state.offline, partial(_listening, state, asking, asking), recording)


def refining_factory(state: State, asking: Asking, *, brief: bool = False) -> SessionFactory:
    """Return the same for refining, which was agreed to as a whole before its first session.

    `brief` where there are so many sessions that a log is better off without their progress.
    """
    listening = partial(_listening, state, asking, asking.refuse, brief=brief)
    return SessionFactory(state.offline, listening)


@contextlib.contextmanager
def _listening(
    state: State, asking: Asking, on_plan: Callable[[Plan], None], *, brief: bool = False
) -> Iterator[Mapping[str, Any]]:
    """Show the progress of one session, and take it off the screen in the end."""
    display = Display(asking.terminal, quiet=state.quiet, brief=brief)
    try:
        yield {
            "on_plan": on_plan,
            "on_start": display.start,
            "on_progress": display.progress,
            "on_alert": display.alert,
            "on_look": display.look,
            "on_wait": display.waiting,
            "on_stop": display.stopping,
        }
    finally:
        display.clear()


def tell_comparison(terminal: Terminal, found: Sequence[RunTarget]) -> None:
    """Say what an experiment is compared with, and what of that is in doubt."""
    against = found[-1].against
    if against is None:
        return
    names = commit_names(against.ref, against.commit)
    terminal.note(f"{found[-1].experiment.id}: compared with {' at '.join(names)}")
    if against.subject is None:
        terminal.note(f"  {names[0]} has no such experiment, so there is nothing to compare with")
    for doubt in against.doubts:
        terminal.note(Ink("in doubt: ", ODD), doubt.sentence)
    for each in against.replaced:
        terminal.note(f"  {each}, and compared with it")
    if any(one.against is not None and one.against.material == BASE for one in found):
        shown = ", ".join(against.changed[:_LISTED])
        more = ", ..." if len(against.changed) > _LISTED else ""
        terminal.note(Ink("the material changed: ", ODD), f"{shown}{more}")
        terminal.note(
            f"  both are measured on the material of {names[0]} too; the worse verdict counts"
        )
