"""The page of a suggestion says which of its lines fixed or broke which cases."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.timing import PATIENCE_S
from tests.web.conftest import LINES, started
from tests.web.review_site import ADA, ReviewSite, place
from tests.web.test_pages import Read

if TYPE_CHECKING:
    from tests.conftest import Folder


@pytest.mark.nightly
def test_each_line_is_shown_with_the_cases_that_change_because_of_it(support: Folder) -> None:
    support.git("init", "-q", "--initial-branch=main")
    support.git("config", "user.email", ADA)
    support.git("config", "user.name", "Ada")
    support.git("add", "-A")
    support.git("commit", "-qm", "start")
    done = support.edison("optimize", "--population", "3", "--generations", "3", "--json")
    assert done.code == 0, done.err
    one = json.loads(done.out)["suggestions"][0]
    added = [line[1:] for line in one["diff"].splitlines() if line.startswith("+- ")]
    assert len(added) > 1, "a search adds several instructions, a refinement one"
    page = f"/suggestion/{one['id']}"
    for server in started(support.path, LINES[0], "--offline"):
        desk = ReviewSite(support, server)
        desk.begin()
        refused = desk.send(page, f"{page}/by-hunk", budget="-1")
        assert (refused.status_code, "a budget is $0 to $1,000,000" in refused.text) == (400, True)
        answer = desk.send(page, f"{page}/by-hunk", budget="1")
        assert place(answer) == f"/-/edison{page}"
        until = time.monotonic() + PATIENCE_S
        shown = ""
        while "calls made" not in shown and time.monotonic() < until:
            shown = Read(desk.client.get(answer.headers["location"]).text).text
            assert "calls made" in shown or "answers." in shown, shown
        for line in added:
            assert shown.count(line) == 2, "in the diff, and alone"
        flips = [name for part in ("train", "holdout") for name in one["evidence"][part]["fixed"]]
        lines = shown[shown.index("By line") :]
        named = [name for name in flips if name in lines]
        assert len(named) == len(flips) > 10, "each is because of a line, or of none alone"
        assert "No case changes because of it alone." in lines or "newly failing" in lines
        told = [(row[0], row[2], row[3]) for row in desk.audit()]
        assert told == [(ADA, "compare by hunk", f"suggestion {one['id']}")]
        desk.role("viewer")
        assert "Compare line by line" not in desk.get(page).text
