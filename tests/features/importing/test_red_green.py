"""A suite of promptfoo that is imported and run has the same red and green."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.features.importing.red_green import SUITE, recorded
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def test_every_answer_passes_or_fails_as_in_promptfoo(edison: Edison, folder: Folder) -> None:
    assert edison(folder, "import", "promptfoo", str(SUITE), "--name", "words").code == 0
    assert edison(folder, "run", "--quiet").code == 1, "one red test fails the run"
    found = defaultdict(list)
    with opened(folder.path / ".edison/results.db") as connection:
        for text, passed in connection.execute("select text, passed from results"):
            found[text].append(passed)
    wanted = recorded()
    assert {text: sorted(passed, key=str) for text, passed in found.items()} == wanted
    assert len(wanted) > 30
