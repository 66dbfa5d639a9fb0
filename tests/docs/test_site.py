"""The site is built from the Markdown of the repository, and no link of it leads nowhere.

`make site` builds all of it; here a few pages show what the build refuses, and how pages look.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

INDEX = """# Front page

## Reference

- [One](one.md): a page
- [Two](../README.md): another
"""
ONE = """# One

See [there](../README.md#a-part), [the licence](../LICENSE) and [here](#one).

<!-- [[[cog
cog.out("text")
]]] -->
text
<!-- [[[end]]] -->

```yaml title="models.yaml"
a: 1
```

```sh not-run="needs a key"
edison run
```

```mermaid
erDiagram
```
"""


@dataclass
class Pages:
    """A small checkout with the configuration of the site."""

    root: Path

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def build(self) -> tuple[int, str]:
        """Build as `make site` does."""
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        recipe = re.search(r"-m sphinx ((?:.*\\\n)*.*)--conf-dir docs ", makefile)
        assert recipe is not None
        options = [*recipe[1].replace("\\\n", " ").split(), "--conf-dir", str(ROOT / "docs")]
        places = [str(self.root), str(self.root / "site")]
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", *options, *places], capture_output=True, text=True
        )
        return done.returncode, done.stderr

    def page(self, name: str) -> str:
        return (self.root / "site" / name).read_text(encoding="utf-8")


@pytest.fixture
def small(tmp_path: Path) -> Pages:
    found = Pages(tmp_path)
    for name, text in (
        ("docs/index.md", INDEX),
        ("docs/one.md", ONE),
        ("README.md", "# Two\n\n## A part\n"),
        ("LICENSE", "free"),
    ):
        found.write(name, text)
    return found


@pytest.mark.nightly
def test_pages_are_built_with_navigation_titles_and_a_start(small: Pages) -> None:
    assert small.build() == (0, "")
    one = small.page("docs/one.html")
    assert "cog.out" not in one
    assert ">models.yaml<" in one
    assert "not run in the tests: needs a key" in one
    assert 'href="../README.html#a-part"' in one
    front = small.page("docs/index.html")
    assert re.search(r'caption-text">Reference</span>.*href="one.html"', front, re.S)
    assert "url=docs/index.html" in small.page("index.html")


@pytest.mark.nightly
def test_a_link_an_anchor_and_a_lost_page_are_refused(small: Pages) -> None:
    links = "[a](none.md) [b](../README.md#none) [c](#none) [d](no.txt)"
    small.write("docs/one.md", f"# One\n\n{links}\n")
    small.write("docs/lost.md", "# Lost\n")
    code, said = small.build()
    assert code == 1
    for part in ("'none.md'", "in doc 'README': 'none'", "found: 'none'", "'no.txt'", "lost.md"):
        assert part in said, said
