"""PDF: printed by an installed browser with a minimal environment, or a clear error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import UsageError
from edison_ci.report.pdf import BROWSERS, VARIABLE, find_browser, print_pdf

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily


def browser(folder: Path, name: str, does: str) -> Path:
    """Make a program that stands in for a browser."""
    path = folder / name
    code = f"""#!{sys.executable}
import os, sys, urllib.parse, urllib.request
flags = dict(a.split("=", 1) for a in sys.argv if a.startswith("--") and "=" in a)
page = open(urllib.request.url2pathname(urllib.parse.urlsplit(sys.argv[-1]).path)).read()
target = flags["--print-to-pdf"]
{does}
"""
    path.write_text(code, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_page_is_printed_offline_and_without_our_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-0123456789")
    does = (
        "told = ' '.join(sys.argv) + repr(dict(os.environ)) + page\n"
        "open(target, 'w').write('%PDF ' + told)"
    )
    made = print_pdf(str(browser(tmp_path, "chromium", does)), "<p>page ü").decode()
    assert made.startswith("%PDF")
    assert "canary" not in made
    assert "MAP * ~NOTFOUND" in made
    assert made.endswith("<p>page ü")


@pytest.mark.parametrize("does", ["sys.exit('no display')", "open(target, 'w').write('oops')"])
def test_a_browser_that_fails_is_named(tmp_path: Path, does: str) -> None:
    with pytest.raises(UsageError, match="chromium failed to write a PDF") as refused:
        print_pdf(str(browser(tmp_path, "chromium", does)), "x")
    assert "--format html" in str(refused.value.hint)


def test_the_first_browser_that_is_there_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UsageError, match="was not found") as refused:
        find_browser()
    assert "apt-get install chromium" in str(refused.value.hint)
    made = browser(tmp_path, BROWSERS[2], "pass")
    assert find_browser() == str(made)


def test_a_browser_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = browser(tmp_path, "my-browser", "pass")
    monkeypatch.setenv(VARIABLE, str(made))
    assert find_browser() == str(made)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="cannot be run"):
        find_browser()
