"""Pages as PDF.

A Chromium that is there prints it, as anybody could by hand: headless, without a network, without
our environment, and with a profile that is thrown away.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.extras import find_program
from edison_ci.rounding import fixed

BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "microsoft-edge",
)  # fmt: skip
"""Names of programs that can print a page, the first that is there is taken."""
VARIABLE = "EDISON_CHROMIUM"
_TIMEOUT_S = 180.0
_FLAGS = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--no-pdf-header-footer",
)  # fmt: skip


def find_browser() -> str:
    """Return the program that prints; an error says what to install."""
    named = os.environ.get(VARIABLE)
    if named:
        found = find_program(named)
        if found is None:
            raise UsageError(
                f"{VARIABLE} names {named!r}, which cannot be run",
                hint="name a Chromium or Chrome, or unset it to look for one",
            )
        return found
    for name in BROWSERS:
        if (found := find_program(name)) is not None:
            return found
    raise UsageError(
        "a PDF is printed by Chromium, and there is none here",
        hint=f"install one (Debian: apt-get install chromium) or name one in {VARIABLE}; "
        "or write --format html and print it from a browser",
    )


def printed(browser: str, page: str) -> bytes:
    """Return a page as a PDF."""
    with tempfile.TemporaryDirectory(prefix="edison-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source, target = folder / "report.html", folder / "report.pdf"
        source.write_text(hidden(page), encoding="utf-8", errors="backslashreplace")
        # Its sandbox does not work for root, as whom containers run; the page has no scripts.
        as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = [
            browser, *_FLAGS, *as_root, f"--user-data-dir={folder / 'profile'}",
            f"--print-to-pdf={target}", source.as_uri(),
        ]  # fmt: skip
        said = _run(command, folder)
        if not target.is_file() or not target.read_bytes().startswith(b"%PDF"):
            last = said.strip().splitlines()[-1:] or ["it said nothing"]
            raise UsageError(
                f"{Path(browser).name} made no PDF: {last[0][:200]}",
                hint="write --format html and print it from a browser",
            )
        return target.read_bytes()


def _run(command: list[str], folder: Path) -> str:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it was not done after {fixed(_TIMEOUT_S)} s"
    except OSError as error:
        return f"{error.strerror}"
    return done.stderr.decode(errors="replace")
