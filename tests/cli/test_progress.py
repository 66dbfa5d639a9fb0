"""How a run looks on a terminal while it goes on."""

from __future__ import annotations

import contextlib
import io
import logging
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.logs import configure_logging
from edison_ci.cli.options import State
from edison_ci.cli.progress import Display, dollars
from edison_ci.cli.terminal import Terminal
from edison_ci.execute.runner import Progress
from edison_ci.providers.lane import Tally

if TYPE_CHECKING:
    from collections.abc import Callable


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let terminals have 120 columns."""
    monkeypatch.setenv("COLUMNS", "120")


def progress() -> Progress:
    found = Progress(total=20, cells=Counter(ok=9, error=1), by_lane=Counter(small=6, large=4))
    found.tally, found.budget_microusd = Tally(cost_microusd=120_000), 5_000_000
    return found


def last(show: Callable[[Display], None]) -> str:
    """Return what is on the last line in the end."""
    screen = Screen()
    with contextlib.redirect_stderr(screen):
        show(Display(Terminal(State(no_color=True)), quiet=False, plain=False))
    return screen.getvalue().rpartition("\r\x1b[2K")[2]


def test_there_is_one_bar_with_the_cost_against_its_limit_and_how_far_each_model_is() -> None:
    assert last(lambda display: display.progress(progress())) == (
        "  [############------------]  50%  10 of 20 cells, 1 error, $0.12 of $5.00"
        "  (large 4, small 6)"
    )


def test_a_narrow_terminal_gets_the_bar_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert last(lambda display: display.progress(progress())).endswith("$0.12 of $5.00")


def test_one_model_needs_no_figures_of_its_own() -> None:
    one = progress()
    one.by_lane = Counter(small=10)
    assert last(lambda display: display.progress(one)).endswith("$5.00")


@pytest.mark.usefixtures("edison")  # which puts the log back
def test_the_log_takes_the_place_of_the_bar_and_a_hint_stands_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warn(display: Display) -> None:
        configure_logging(State())
        display.progress(progress())
        told = {"model": "small", "hint": "Ctrl-C stops it"}
        logging.getLogger("edison_ci.test").warning("no answer", extra=told)

    assert last(warn) == "warning: no answer (model=small)\n  Ctrl-C stops it\n"
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in last(warn)


def test_being_stopped_is_acknowledged_in_place_of_the_bar() -> None:
    def stop(display: Display) -> None:
        display.progress(progress())
        display.stopping(3)

    said = "stopping: finishing 3 calls in flight; press Ctrl-C again to give up on it\n"
    assert last(stop) == said


@pytest.mark.parametrize(
    ("microusd", "said"),
    [
        (0, "$0"),
        (1, "$0.000001"),
        (99, "$0.000099"),
        (100, "$0.0001"),
        (99_999, "$0.1000"),
        (100_000, "$0.10"),
        (12_345_678_900, "$12,345.68"),
    ],
)
def test_no_amount_of_money_is_shown_as_nothing(microusd: int, said: str) -> None:
    assert dollars(microusd) == said
