"""How words reach people: colour where it belongs, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.options import CliState
from edison_ci.cli.terminal import (
    StyledText,
    Terminal,
    aligned,
    fitting,
    read_keys,
    read_line,
    wrapped,
    write,
)
from edison_ci.numeric import counted
from edison_ci.sanitize import clean, json_text, line, without_commands
from tests import forked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

ESCAPES = {
    "colour": "\x1b[31mred",
    "title": "\x1b]0;pwned\x07",
    "clear": "\x1b[2J\x1b[H",
    "c1": "\x9b31m",
    "backspace": "abc\x08\x08\x08xyz",
    "return": "safe\rEVIL",
    "bidi": "user\u202e\u2066 nimda\u2069",
    "zero width": "pay\u200bload",
    "tags": "hi\U000e0041\U000e0042",
    "line separator": "one\u2028two",
    "byte order mark": "\ufeffx",
    "soft hyphen": "pass\u00adword",
}
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]"
)


def test_what_a_terminal_would_obey_is_shown_instead(subtests: pytest.Subtests) -> None:
    for name, text in ESCAPES.items():
        with subtests.test(name):
            assert not UNSAFE.search(clean(text))
            assert "\\u{" in clean(text)


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語", "🦉", "tab\there", "a\nb"])
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_a_line_is_one_line() -> None:
    assert line("a\nb\r\n::error::c") == "a\\nb\\u{d}\\n::error::c"


def test_json_says_exactly_the_same_and_is_harmless(subtests: pytest.Subtests) -> None:
    for text in [*ESCAPES.values(), "##[add-mask]x", "é", "\ud800"]:
        with subtests.test(text=text):
            for ascii_only in (False, True):
                told = json_text({"text": text, text: 1}, ascii_only=ascii_only)
                assert json.loads(told) == {"text": text, text: 1}
                assert not UNSAFE.search(told.replace("\n", ""))
                assert "##[" not in told


def test_json_shows_no_secret_in_values_keys_or_lists() -> None:
    key = "ghp_" + "A1b2" * 9
    told = json_text({key: [{"a": f"\n{key}"}], "b": (key, 3, None)})
    assert key not in told
    assert json.loads(told) == {"ghp_...": [{"a": "\nghp_..."}], "b": ["ghp_...", 3, None]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", "\\::error::x"),
        ("  ::set-output name=a::b", "  \\::set-output name=a::b"),
        ("fine\n::stop-commands::t\nfine", "fine\n\\::stop-commands::t\nfine"),
        ("a ##[error]b", "a #\\#[error]b"),
        ("std::vector", "std::vector"),
        ("# [a]", "# [a]"),
    ],
)
def test_no_line_is_a_workflow_command(text: str, shown: str) -> None:
    assert without_commands(text) == shown


# --- colour ---------------------------------------------------------------------------------------


def on_a_terminal(folder: Folder, *args: str, **env: str) -> str:
    """Run a command with a real terminal as stdin, stdout and stderr; return what it shows."""
    ours, theirs = pty.openpty()
    process = forked.Popen(
        [sys.executable, "-P", "-m", "edison_ci", *args],
        cwd=folder.path,
        env={**os.environ, "TERM": "xterm-256color", **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as stream:
        while True:
            try:
                part = stream.read(4096)
            except OSError:  # how Linux says that the other side is closed
                break
            if not part:
                break
            shown += part
    process.wait()
    return shown.decode()


def test_a_terminal_gets_colour(mini: Folder) -> None:
    shown = on_a_terminal(mini, "validate")
    assert shown == "\x1b[32mok\x1b[0m: 1 experiment, 1 prompt, 1 rubric, 2 models, 2 cases\r\n"


@pytest.mark.parametrize(
    ("flags", "env"),
    [
        (["--no-color"], {}),
        ([], {"NO_COLOR": "1"}),
        ([], {"TERM": "dumb"}),
        ([], {"EDISON_NO_COLOR": "1"}),
        ([], {"NO_COLOR": "1", "FORCE_COLOR": "1"}),
    ],
    ids=str,
)
def test_a_terminal_that_wants_no_colour_gets_none(
    mini: Folder, flags: list[str], env: dict[str, str]
) -> None:
    assert on_a_terminal(mini, "validate", *flags, **env).startswith("ok: 1 experiment")


def test_a_terminal_sees_results_before_what_comes_next(folder: Folder) -> None:
    shown = on_a_terminal(folder, "init", NO_COLOR="1").splitlines()
    assert shown[0] == "  wrote .edison/trust.yaml"
    assert shown[-6:] == [
        "",
        "Next:",
        "  edison validate     check every file",
        "  edison plan         show what a run would do and cost",
        "  edison run          evaluate, offline for now",
        "  edison models add openai/gpt-5-mini    for the first real model",
    ]


def test_a_pipe_gets_no_colour(edison: Edison, mini: Folder) -> None:
    assert "\x1b" not in edison(mini, "validate").all


def test_a_pipe_gets_colour_when_it_is_forced(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert edison(mini, "validate").err.startswith("\x1b[32mok\x1b[0m:")
    assert "\x1b" not in edison(mini, "validate", "--json").all


@pytest.mark.parametrize("force", [False, True], ids=["plain", "coloured"])
def test_an_escape_in_a_file_never_reaches_the_terminal(
    subtests: pytest.Subtests,
    edison: Edison,
    mini: Folder,
    monkeypatch: pytest.MonkeyPatch,
    force: bool,
) -> None:
    if force:
        monkeypatch.setenv("FORCE_COLOR", "1")
    for name, text in ESCAPES.items():
        with subtests.test(name):
            row = json.dumps({"id": "ada", "input": {"name": text}, "expected": "x"})
            mini.write("datasets/names.jsonl", row + "\n")
            shown = edison(mini, "try", "--dry-run", "hello").all
            assert not UNSAFE.search(shown.replace("\x1b[1m", "").replace("\x1b[0m", ""))
            assert clean(text).replace("\n", "") in shown
            told = edison(mini, "try", "--dry-run", "hello", "--json").out
            assert text in json.loads(told)["messages"][0]["content"]
            assert not UNSAFE.search(told.replace("\n", ""))


@pytest.mark.parametrize("text", ESCAPES.values(), ids=list(ESCAPES))
def test_an_escape_in_an_error_never_reaches_the_terminal(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    mini.write("edison.yaml", f"version: 1\nproject: {json.dumps(text)}\n{json.dumps(text)}: 1\n")
    for args in (["validate"], ["plan"], ["doctor"], ["plan", text], ["try", "--dry-run", text]):
        shown = edison(mini, *args).all
        assert not UNSAFE.search(re.sub("\x1b\\[[0-9]+m", "", shown)), args


def test_an_escape_in_the_name_of_a_file_never_reaches_the_terminal(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    mini.write("prompts/a\x1b[31m\n::error::.md", "---\nid: [\n---\n")
    shown = edison(mini, "validate").out
    assert "\x1b[31m" not in shown.replace("\x1b[31merror", "")
    assert "\n::error::" not in shown


# --- lines ----------------------------------------------------------------------------------------


def test_parts_are_joined_and_only_ink_is_coloured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal(CliState()).result("\x1b[31ma ", StyledText("b\x1b[0m", "green"), " c")
    assert capsys.readouterr().out == "\\u{1b}[31ma \x1b[32mb\\u{1b}[0m\x1b[0m c\n"


def test_a_table_is_aligned_and_harmless() -> None:
    rows = [("name", "n"), ("a\x1bb", "1"), ("c", "1,000")]
    assert aligned(rows, right=frozenset({1})) == [
        "name          n",
        "a\\u{1b}b      1",
        "c         1,000",
    ]


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (1234, "1,234 cases")]
)
def test_a_number_has_its_noun(number: int, shown: str) -> None:
    assert counted(number, "case") == shown


def test_writing_to_a_closed_stream_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    write(None, "words")
    assert capsys.readouterr() == ("", "")


def test_a_stream_gets_what_it_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    write(stream, "é🦉\ud800")
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    assert stream.buffer.getvalue() == b"\\xe9\\U0001f989\\ud800\n"


# --- narrow screens -------------------------------------------------------------------------------


def test_a_line_wraps_between_words_and_keeps_its_styles() -> None:
    parts = [StyledText("FAIL  ", "red", bold=True), StyledText("one two three four five")]
    made = wrapped(parts, 16)
    assert "".join(part.text for part in made) == "FAIL  one two\n  three four\n  five"
    assert [part.color for part in made] == ["red", None]
    indented = wrapped([StyledText("  case  38.0  too many words here")], 20, hang=14)
    assert indented[0].text.splitlines()[1].startswith(" " * 10), "at most half of the screen"


def test_what_cannot_be_wrapped_stays_whole() -> None:
    assert wrapped([StyledText("a" * 50)], 20)[0].text == "a" * 50
    wide = wrapped([StyledText("鯨鯨鯨鯨 鯨鯨鯨鯨 x")], 20)[0].text
    assert wide == "鯨鯨鯨鯨 鯨鯨鯨鯨 x", "8 + 1 + 8 + 1 + 1 columns fit"
    assert wrapped([StyledText("鯨鯨鯨鯨 鯨鯨鯨鯨 x")], 18)[0].text == "鯨鯨鯨鯨 鯨鯨鯨鯨\n  x"


def test_a_table_leaves_out_columns_by_priority() -> None:
    rows = [("run", "experiment", "trigger", "status"), ("r1", "support", "manual", "COMPLETED")]
    assert fitting(rows, 80) == [0, 1, 2, 3]
    assert fitting(rows, 30, drop=(2,)) == [0, 1, 3]
    assert fitting(rows, 25) == [0, 1, 2]
    assert fitting(rows, 5) == [0, 1], "the first two stay"


@pytest.mark.parametrize("read", [partial(read_keys, 1), partial(read_line, "> ")])
def test_ctrl_c_just_before_a_wait_ends_it(
    read: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a signal is noticed only when the wait ends, so no wait may be without an end."""
    master, slave = pty.openpty()
    waits = list[float]()

    def wait(_: object, __: object, ___: object, seconds: float) -> tuple[list[int], ...]:
        waits.append(seconds)
        if len(waits) == 3:
            signal.raise_signal(signal.SIGINT)
        return [], [], []

    with open(slave, encoding="utf-8") as terminal, os.fdopen(master):  # noqa: PTH123 - a number
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr("select.select", wait)
        with pytest.raises(KeyboardInterrupt):
            read()
    assert waits == [pytest.approx(0.2)] * 3
