"""What --on refuses before anything is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

pytest.importorskip("distributed")


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("four", "'four' is neither local:N nor the address of a scheduler"),
        ("local:0", "'local:0' is not local:N with 1 to 64 workers"),
        ("tcp://10.0.0.1:8786", "tcp://10.0.0.1:8786 is not encrypted"),
    ],
)
def test_on_takes_workers_here_or_a_scheduler(
    edison: Edison, mini: Folder, on: str, said: str
) -> None:
    done = edison(mini, "run", "--on", on)
    assert (done.code, said in done.err) == (2, True), done.all
    assert not (mini.path / ".edison/results.db").exists()


def test_on_excludes_what_makes_no_calls(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "run", "--on", "local:2", "--batch")
    assert (done.code, "--on and --batch exclude each other" in done.err) == (2, True), done.all
