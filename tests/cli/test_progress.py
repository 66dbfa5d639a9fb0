"""What is shown of a run while it goes on, and where."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.options import CliState, configure_logging
from edison_ci.cli.progress import Display
from edison_ci.cli.terminal import Terminal
from edison_ci.execute.progress import Progress
from edison_ci.numeric import dollars
from edison_ci.providers.client import BudgetUsage
from tests.cli.screen import Tty

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.daily


def progress() -> Progress:
    found = Progress(
        total=20, cells=Counter(ok=9, error=1), done_by_client=Counter(small=6, large=4)
    )
    found.planned_by_client = Counter(small=12, large=8)
    found.usage, found.budget_microusd = BudgetUsage(cost_microusd=120_000), 5_000_000
    return found


@contextlib.contextmanager
def on(tty: Tty) -> Iterator[Display]:
    """Yield what shows progress on a terminal."""
    with (
        os.fdopen(os.dup(tty.slave), "w", encoding="utf-8") as stream,
        contextlib.redirect_stderr(stream),
    ):
        display = Display(Terminal(CliState()), quiet=False)
        try:
            yield display
        finally:
            display.clear()


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let terminals be ordinary ones, with somebody before them."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("CI", raising=False)


def test_without_a_terminal_there_is_a_line_with_the_cost_against_its_limit() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as err:
        Display(Terminal(CliState()), quiet=False).progress(progress())
    assert err.getvalue() == "   50%  10 of 20 cells, 1 error, $0.12 of $5.00\n"


def test_one_of_many_runs_leaves_no_lines_in_a_log() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as err:
        Display(Terminal(CliState()), quiet=False, brief=True).progress(progress())
    assert err.getvalue() == ""


def test_a_run_that_is_over_at_once_shows_no_bars() -> None:
    with Tty() as tty:
        with on(tty) as display:
            display.start(progress())
            display.progress(progress())
        assert not tty.read()


def test_what_comes_after_the_last_cell_shows_no_bars() -> None:
    done = progress()
    done.cells["ok"] = 19
    with Tty() as tty, on(tty) as display:
        display.start(done)
        (timer,) = (each for each in threading.enumerate() if isinstance(each, threading.Timer))
        timer.join()
        assert not tty.read()


@pytest.mark.usefixtures("edison")  # which puts the log back
def test_the_log_is_written_above_the_bars_and_a_hint_stands_below_its_line() -> None:
    with Tty() as tty, on(tty) as display:
        configure_logging(CliState())
        display.start(progress())
        tty.until(lambda text: "6/12" in text)
        told = {"model": "[b]small", "hint": "Ctrl-C stops it"}
        logging.getLogger("edison_ci.test").warning("no answer", extra=told)
        display.alert("stop.budget_usd", 0.9)
        first, hint, budget, small, *_ = tty.until(lambda text: "is used" in text).splitlines()
        assert (first, hint) == ("warning: no answer (model=[b]small)", "  Ctrl-C stops it")
        assert budget == "budget: 90% of stop.budget_usd is used"
        assert small.startswith("  small  ━")


def test_being_stopped_is_acknowledged_in_place_of_the_bars() -> None:
    with Tty() as tty, on(tty) as display:
        display.start(progress())
        tty.until(lambda text: "6/12" in text)
        display.stopping(3)
        said = "stopping: finishing 3 calls in flight; press Ctrl-C again to abandon them"
        assert tty.until(lambda text: "stopping" in text) == said
        assert tty.screen.cursor


@pytest.mark.parametrize(
    ("microusd", "said"),
    [
        (0, "$0"),
        (1, "$0.000001"),
        (99, "$0.000099"),
        (100, "$0.000100"),
        (99_999, "$0.1000"),
        (100_000, "$0.10"),
        (12_345_678_900, "$12,345.68"),
    ],
)
def test_no_amount_of_money_is_shown_as_nothing(microusd: int, said: str) -> None:
    assert dollars(microusd) == said
