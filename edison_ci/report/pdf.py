"""Pages as PDF, printed by an installed Chromium.

The browser runs headless, without network, with a minimal environment and a temporary profile.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.extras import find_program
from edison_ci.numeric import fixed

BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "microsoft-edge",
)  # fmt: skip
"""Names of programs that can print a page; the first one found is used."""
VARIABLE = "EDISON_CHROMIUM"
_TIMEOUT_S = 180.0
_FLAGS = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--no-pdf-header-footer",
)  # fmt: skip


def find_browser() -> str:
    """Return the browser; raises UsageError with install instructions if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        program = find_program(named)
        if program is None:
            raise UsageError(
                f"{VARIABLE} is {named!r}, which cannot be run",
                hint="set it to a Chromium or Chrome, or unset it to search for one",
            )
        return program
    for name in BROWSERS:
        if (program := find_program(name)) is not None:
            return program
    raise UsageError(
        "PDF output needs Chromium, which was not found",
        hint=f"install it (Debian: apt-get install chromium) or set {VARIABLE}; "
        "or use --format html and print it from a browser",
    )


def print_pdf(browser: str, page: str) -> bytes:
    """Print an HTML page to a PDF."""
    with tempfile.TemporaryDirectory(prefix="edison-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source, target = folder / "report.html", folder / "report.pdf"
        source.write_text(hidden(page), encoding="utf-8", errors="backslashreplace")
        # The sandbox does not work as root, the user of most containers; the page has no scripts.
        as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = [
            browser, *_FLAGS, *as_root, f"--user-data-dir={folder / 'profile'}",
            f"--print-to-pdf={target}", source.as_uri(),
        ]  # fmt: skip
        output = _run(command, folder)
        if not target.is_file() or not target.read_bytes().startswith(b"%PDF"):
            last = output.strip().splitlines()[-1:] or ["no output"]
            raise UsageError(
                f"{Path(browser).name} failed to write a PDF: {last[0][:200]}",
                hint="use --format html and print it from a browser",
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
        return f"timeout after {fixed(_TIMEOUT_S)} s"
    except OSError as error:
        return f"{error.strerror}"
    return done.stderr.decode(errors="replace")
