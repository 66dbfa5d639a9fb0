"""A walk through the failing cases of a run, on a real terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.screen import OnTty

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def failing(mini: Folder, edison: Edison) -> Folder:
    """A project whose three cases fail, because the prompt loses the name."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(3))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.edit("models.yaml", "model: small}", "model: echo}")
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    mini.edit("prompts/hello.md", "hello to {{ name }}", "hello to {{ name | lower }}")
    edison(mini, "run", "-q")
    return mini


def test_keys_walk_through_the_failures(failing: Folder) -> None:
    with OnTty(failing.path, "status", "latest", "--pick", size=(80, 60)) as tty:
        tty.until(lambda text: "1 of 3 failing cases" in text)
        assert "c0@small#0" in tty.screen.text
        tty.press(b"j")
        tty.until(lambda text: "2 of 3 failing cases" in text and "c1@small#0" in text)
        tty.press(b"kk")
        tty.until(lambda text: "3 of 3 failing cases" in text and "c2@small#0" in text)
        tty.press(b"q")
        assert tty.end() == 0


def test_a_prompt_that_was_edited_is_run_on_the_failing_cases(
    failing: Folder, edison: Edison
) -> None:
    failing.write("mend.sh", "sed -i 's/ | lower//' \"$1\"\n")
    env = {"EDITOR": "sh mend.sh", "VISUAL": ""}
    with OnTty(failing.path, "status", "latest", "--pick", size=(80, 60), env=env) as tty:
        tty.until(lambda text: "1 of 3 failing cases" in text)
        tty.press(b"e")
        tty.until(lambda text: "Any key shows what still fails" in text)
        tty.press(b"x")
        tty.until(lambda text: "No case of run" in text)
        assert tty.end() == 0
    newest = json.loads(edison(failing, "status", "latest", "--json").out)["runs"][0]
    assert newest["cells"]["total"] == 3


def test_without_a_terminal_there_is_nothing_to_press(edison: Edison, failing: Folder) -> None:
    done = edison(failing, "status", "latest", "--pick")
    assert (done.code, "--pick needs a terminal" in done.err) == (2, True)
    assert "edison status latest --failed" in done.err
    assert edison(failing, "run", "--pick").code == 2
