"""Long lists end soon on a terminal, which is told of the rest; pipes and JSON have all of it."""

from __future__ import annotations

import json
import re

import pytest

from tests import large_project
from tests.cli.screen import OnTty
from tests.conftest import MINIMAL, Folder

pytestmark = pytest.mark.daily

EXPERIMENTS, OTHERS = 70, 60
MORE = "and {} more; see all with --json, or in a pipe: | less"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with many of everything."""
    folder = Folder(tmp_path_factory.mktemp("large"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    large_project.build(folder, experiments=EXPERIMENTS, others=OTHERS)
    folder.git("init", "-q")
    folder.git("config", "user.email", "ada@example.com")
    return folder


@pytest.mark.parametrize(
    ("words", "row", "shown", "rest"),
    [
        ("roles list", r"^(?:member-|ada@)", 50, [OTHERS - 50]),
        ("models list", r"sim \(simulated\)", 50, [OTHERS + 2 - 50]),
        ("plan", r"^(?:e0|hello)", 50, [EXPERIMENTS - 50]),
        ("history hello", r"not committed|not in Git|^suggestion", 65, [OTHERS - 48, OTHERS - 15]),
        ("alerts list --all", r"ALERT", 30, [OTHERS - 15, OTHERS - 15]),
        ("schedule list", r"nightly", 15, [OTHERS - 15]),
        ("leaderboard", r"^(?:e0|hello)\S*  \d+ rows? from", 15, [OTHERS + 1 - 15]),
    ],
    ids=lambda words: words if isinstance(words, str) else "",
)
def test_a_terminal_is_shown_the_first_rows(
    large: Folder, words: str, row: str, shown: int, rest: list[int]
) -> None:
    with OnTty(large.path, *words.split(), size=(160, 30), env={"NO_COLOR": "1"}) as tty:
        assert tty.end() == 0
    lines = tty.screen.text.splitlines()
    assert sum(bool(re.search(row, line)) for line in lines) == shown, tty.screen.text
    for count in rest:
        assert MORE.format(count) in lines


@pytest.mark.nightly
def test_pipes_and_documents_have_every_row(large: Folder) -> None:
    """The plan of many experiments has a line for each, and what they cost together."""
    planned = large.edison("plan")
    lines = planned.out.splitlines()
    assert len(lines) == 1 + EXPERIMENTS + 1
    assert lines[-1] == f"{EXPERIMENTS} experiments: {4 * EXPERIMENTS} calls, free"
    assert "more; see all" not in planned.err
    assert large.edison("roles", "list").out.count("\n") == 1 + OTHERS
    members = json.loads(large.edison("roles", "list", "--json").out)["members"]
    assert len(members) == OTHERS
    found = json.loads(large.edison("alerts", "list", "--all", "--json").out)["alerts"]
    assert len(found) == 2 * OTHERS
