"""Takes a picture of every page: light, dark, and 768 pixels wide.

    python -m tests.contact_sheet [FOLDER]

The pages are those of `tests.showcase`, which is made first unless FOLDER has it. The pictures and
an `index.html` with all of them go to FOLDER/pictures; FOLDER is `.tools/pages` unless it is told.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests import showcase
from tests.conftest import ROOT
from tests.web.conftest import LINES, Stored, chromium, started

LOOKS = (("light", 1280), ("dark", 1280), ("light", 768))


def take(folder: Path) -> Path:
    """Take every picture; return the page that shows them."""
    project, pictures = folder / "showcase", folder / "pictures"
    if not project.exists():
        folder.mkdir(parents=True, exist_ok=True)
        showcase.build(project)
    pictures.mkdir(exist_ok=True)
    rows = []
    stored = Stored(project)
    paths = [*stored.pages(), *stored.forms()]
    servers = started(project, LINES[0])
    server = next(servers)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for number, path in enumerate(paths):
            shown = []
            for theme, width in LOOKS:
                page = browser.new_page(
                    viewport={"width": width, "height": 900},
                    color_scheme=theme,  # type: ignore[arg-type]  # light or dark
                )
                page.goto(server.address + path)
                name = re.sub(r"\W+", "-", page.title())[:60].strip("-")
                target = pictures / f"{number:02d}-{name}-{theme}-{width}.png"
                page.screenshot(path=target, full_page=True)
                page.close()
                shown.append(
                    f'<img src="{target.name}" width="{width // 4}" alt="{theme} {width}">'
                )
            rows.append(f"<h2>{html.escape(path)}</h2>{''.join(shown)}")
        browser.close()
    next(servers, None)
    sheet = pictures / "index.html"
    sheet.write_text(f"<!doctype html><title>Pages</title>{''.join(rows)}", encoding="utf-8")
    return sheet


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".tools" / "pages"
    sys.stdout.write(f"{take(place)}\n")
