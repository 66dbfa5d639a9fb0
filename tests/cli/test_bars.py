"""How a run looks on a terminal while it goes on: real commands on a real pty."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import signal
import struct
import termios
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.bars import Bars
from edison_ci.cli.progress import facts
from edison_ci.execute.clients import PhaseCalls
from edison_ci.execute.progress import Progress, ProgressMeter
from edison_ci.providers.client import BudgetUsage
from tests.cli.screen import OnTty, Tty
from tests.faults.stage import verdict
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.timing import poll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 6
_COLOR = re.compile(r"(?:^|;)[34][0-8](?:;|$)")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """Answers for the small model at once, and holds back those of the large one."""
    script = [rule(model="large-1", held=True), rule(model="judge-1", text=verdict(1))]
    with LoopbackServer(script) as found:
        yield found


@pytest.fixture
def project(mini: Folder, server: LoopbackServer) -> Folder:
    """Six cases for two models and a judge."""
    common = (
        f"provider: openai_compatible, base_url: '{server.openai_url}', "
        "price: {in: 1, out: 2}, params: {max_tokens: 40}, limits: {concurrency: 2}"
    )
    names = ("small", "large", "judge")
    models = "".join(f"{name}: {{{common}, model: {name}-1}}\n" for name in names)
    mini.write("models.yaml", models)
    mini.write(".edison/trust.yaml", f"hosts: ['{server.url}']\n")
    mini.edit("experiments/hello.yaml", "[small]", "[small, large]")
    rows = ({"id": f"c{i}", "input": {"name": f"N{i}"}, "expected": ""} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return mini


def half(text: str) -> bool:
    """Whether all is shown that there is to see while the large model is held back."""
    return "6/6" in text and "6/12" in text and "0/6" in text


def bars_of(text: str) -> list[str]:
    return [row for row in text.splitlines() if re.search(r"━|[0-9]/[0-9]", row)]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_each_model_has_a_bar_and_the_last_line_sums_up(
    project: Folder, server: LoopbackServer, width: int
) -> None:
    with OnTty(project.path, "run", size=(width, 24)) as tty:
        text = tty.until(half)
        small, large, judge = bars_of(text)
        assert small.split()[0] == "small"
        assert large.split()[0] == "large"
        assert judge.split()[:2] == ["judge", "(judge)"]
        assert all("━" in row for row in (small, large, judge))
        summary = text.splitlines()[-1]
        assert "of $100.00" in summary
        assert ("6 of 12 cells" in summary) == (width > 40)
        assert ("50%" in small + summary) == (width > 60)
        assert ("cells" in small) == (width > 40)
        assert max(map(len, text.splitlines())) < width
        assert not tty.screen.cursor
        server.release()
        assert tty.end() == 0
    after = tty.screen.text
    assert bars_of(after) == []
    assert "hello  COMPLETED" in after
    assert tty.screen.cursor


def test_ctrl_c_takes_the_bars_away_and_leaves_what_to_do_next(
    project: Folder, server: LoopbackServer
) -> None:
    with OnTty(project.path, "run", size=(80, 24)) as tty:
        tty.until(half)
        tty.press(b"\x03")
        text = tty.until(lambda text: "press Ctrl-C again" in text)
        assert bars_of(text) == []
        assert tty.screen.cursor
        assert "stopping: finishing 2 calls in flight; press Ctrl-C again to abandon them" in text
        tty.press(b"\x03")
        assert tty.end() == 130
    assert "Continue with: edison resume" in tty.screen.text
    assert "^C" not in tty.screen.text.partition("stopping:")[0]


def test_ctrl_z_gives_the_shell_a_clean_screen_and_the_bars_come_back(
    project: Folder, server: LoopbackServer
) -> None:
    with OnTty(project.path, "run", size=(80, 24)) as tty:
        tty.until(half)
        # The kernel stops no process of a group without a shell: what Ctrl-Z sends is sent here,
        # and what it then does to itself is seen from here.
        os.kill(tty.process.pid, signal.SIGTSTP)
        state = Path(f"/proc/{tty.process.pid}/stat")
        poll("it is stopped", lambda: ") T " in state.read_text())
        while tty.read():
            pass
        assert bars_of(tty.screen.text) == []
        assert tty.screen.cursor
        os.kill(tty.process.pid, signal.SIGCONT)
        tty.until(half)
        server.release()
        assert tty.end() == 0


def test_a_log_line_stands_above_the_bars_and_is_not_wrapped(
    project: Folder, server: LoopbackServer
) -> None:
    server.script.insert(0, rule(model="large-1", held=True, served_model="[red]other-9"))
    with OnTty(project.path, "run", size=(50, 24)) as tty:
        tty.until(half)
        server.script.insert(0, rule(model="large-1", do="hang", contains="N5"))
        server.release()
        text = tty.until(lambda text: "5/6" in text)
        said = "warning: another model answers than requested (model=large, asked=large-1, "
        assert f"{said}served=[red]other-9)\r\n" in tty.written
        assert text.index("warning:") < text.index("━")
        assert len(bars_of(text)) == 3


def test_several_experiments_show_their_bars_one_after_the_other(
    project: Folder, server: LoopbackServer
) -> None:
    text = project.read("experiments/hello.yaml").replace("experiment: hello", "experiment: again")
    project.write("experiments/again.yaml", text.replace("[small, large]", "[large]"))
    with OnTty(project.path, "run", "hello", "again", "--no-cache") as tty:
        tty.until(half)
        server.release()
        tty.until(lambda text: "again: 6 cases" in text)
        assert tty.end() == 0
    assert tty.screen.text.count("COMPLETED") == 2
    assert bars_of(tty.screen.text) == []


@pytest.mark.parametrize(
    ("argv", "env", "colored"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (("--no-color",), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_bars_have_colour_where_it_is_wanted(
    project: Folder, argv: tuple[str, ...], env: dict[str, str], colored: bool
) -> None:
    with OnTty(project.path, "run", *argv, env=env) as tty:
        small, *_ = bars_of(tty.until(half))
        assert "━" in small
        assert any(_COLOR.search(style) for style in tty.screen.styles) == colored


PLAIN: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "a dumb terminal": ((), {"TERM": "dumb"}),
    "an unknown terminal": ((), {"TERM": "unknown"}),
    "CI": ((), {"CI": "true"}),
    "JSON": (("--json",), {}),
}


@pytest.mark.parametrize("where", PLAIN)
def test_elsewhere_there_is_a_line_for_each_tenth(
    project: Folder, server: LoopbackServer, where: str
) -> None:
    argv, env = PLAIN[where]
    server.release()
    with OnTty(project.path, "run", *argv, env={**env, "NO_COLOR": "1"}) as tty:
        assert tty.end() == 0
    assert "\x1b" not in tty.written
    assert re.search(r"^  100%  12 of 12 cells, \$0\.\d+ of \$100\.00\r$", tty.written, re.M)


def test_quiet_shows_nothing(project: Folder, server: LoopbackServer) -> None:
    server.release()
    with OnTty(project.path, "run", "--quiet") as tty:
        assert tty.end() == 0
    assert tty.written == ""


# --- the drawing itself ---------------------------------------------------------------------------


def progress(**clients: tuple[int, int]) -> Progress:
    """Return the progress of models, each with what is done and what is planned."""
    done = Counter({name: each[0] for name, each in clients.items()})
    found = Progress(total=sum(each[1] for each in clients.values()), done_by_client=done)
    found.planned_by_client = Counter({name: each[1] for name, each in clients.items()})
    found.cells = Counter(ok=done.total())
    return found


@contextlib.contextmanager
def drawn(found: Progress, *size: int) -> Iterator[tuple[Tty, Bars]]:
    """Draw bars on a pty from this process."""
    with (
        Tty(*size) as tty,
        os.fdopen(os.dup(tty.slave), "w", encoding="utf-8") as stream,
        contextlib.redirect_stderr(stream),
    ):
        bars = Bars(ProgressMeter(found, 0.0), facts, color=True)
        bars.start()
        try:
            yield tty, bars
        finally:
            bars.stop()
            while tty.read():
                pass


def test_what_comes_from_files_is_neither_markup_nor_a_command_of_the_terminal() -> None:
    found = progress(**{"[red]a[/red]\x1b[2J\u202e": (1, 2), "模型": (2, 2)})
    with drawn(found, 100, 24) as (tty, _):
        text = tty.until(lambda text: "2/2" in text)
    assert "[red]a[/red]\\u{1b}[2J\\u{202e}" in text
    assert "模型" in text


def test_more_models_than_there_is_room_for_are_summed_up_the_finished_first() -> None:
    found = progress(**{f"m{number}": (10 if number < 3 else 5, 10) for number in range(10)})
    found.errors_by_client["m0"] = 2
    found.calls["judge", "boss"] = PhaseCalls(per_cell=1.0, answered=7)
    with drawn(found, 80, 16) as (tty, _):
        text = tty.until(lambda text: "more" in text)
    names = [row.split()[0] for row in bars_of(text)]
    assert names == [f"m{number}" for number in range(3, 10)]
    assert "  and 4 more: 37 of 65 done, 2 errors" in text


def test_errors_tokens_and_a_model_that_was_given_up_are_told() -> None:
    found = progress(small=(4, 10), large=(2, 10))
    found.cells, found.errors_by_client = Counter(ok=5, error=1), Counter(small=1)
    found.closed["large"] = "wrong key"
    found.usage, found.budget_microusd = BudgetUsage(cost_microusd=120_000), 5_000_000
    found.budget_tokens, found.booked_tokens = 10_000, 1_234
    with drawn(found, 120, 24) as (tty, _):
        text = tty.until(lambda text: "tokens" in text)
    small, large = bars_of(text)
    assert "1 error" in small
    assert large.endswith("stopped")
    facts = "30%, 6 of 20 cells, 1 error, $0.12 of $5.00, 1,234 of 10,000 tokens, "
    assert facts in text.splitlines()[-1]


def test_a_terminal_that_becomes_narrower_keeps_no_rests_of_the_old_lines() -> None:
    with drawn(progress(small=(4, 10), large=(2, 10)), 120, 24) as (tty, _):
        tty.until(lambda text: "4/10" in text)
        tty.resize(44, 24)
        text = tty.until(lambda text: len(bars_of(text)) == 2)
        assert max(map(len, text.splitlines())) < 44
        tty.resize(100, 24)
        tty.until(lambda text: "20%" in text)
        assert len(bars_of(tty.screen.text)) == 2
    assert tty.screen.text == ""


def test_a_terminal_without_a_size_is_taken_for_an_ordinary_one() -> None:
    with drawn(progress(small=(4, 10)), 80, 24) as (tty, _):
        tty.until(lambda text: "4/10" in text)
        fcntl.ioctl(tty.master, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        before = len(tty.written)
        tty.until(lambda _: "4/10" in tty.written[before:])
        assert len(bars_of(tty.screen.text)) == 1


def test_a_terminal_that_knows_no_blocks_gets_dashes() -> None:
    with Tty(60, 24) as tty:
        raw = io.FileIO(os.dup(tty.slave), "w")
        stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
        with stream, contextlib.redirect_stderr(stream):
            bars = Bars(
                ProgressMeter(progress(**{"modèle-" + 40 * "x": (4, 10)}), 0.0), facts, color=False
            )
            bars.start()
            text = tty.until(lambda text: "4/10" in text)
            bars.stop()
    assert "mod\\xe8le-" in text
    assert "---" in text
    assert text.isascii()
