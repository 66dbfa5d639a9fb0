"""The snippets of the documentation: every block of code and every command that a page shows.

A block says in the line of its fence what is to be known about it:

    title="models.yaml"            it is this file of the page's project
    exit="1"                       its last command ends with this exit code
    run-by="tests/e2e/test_x.py"   a test of its own runs it
    not-run="needs a key"          it cannot run in the tests, and why

`<!-- before: edison run --limit 10 -->` is a command that the page takes for granted.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

from docs.reference import code, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

ROOT = Path(__file__).parent.parent
MARKS = {"title", "exit", "run-by", "not-run"}
_BEFORE = re.compile(r"<!-- before: (.+?) -->")
_MARK = re.compile(r'([\w-]+)="([^"]*)"')


class Snippet(NamedTuple):
    """A block of a page, or a command in its prose."""

    page: str
    line: int
    language: str
    """That of the fence; `indented`, `before` or `inline` for what has none."""
    text: str
    marks: dict[str, str]

    @property
    def title(self) -> str:
        """The file that it is, if it is one."""
        return self.marks.get("title", "")

    @property
    def place(self) -> str:
        """Where it stands, to be named in a message."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a shell that it shows, each on one line."""
        if self.language == "console":
            shown = [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]
        else:
            shown = self.text.replace("\\\n", " ").splitlines()
        return [line for each in shown if (line := re.sub(r"\s+# .*", "", each).strip())]


def pages() -> list[Path]:
    """Return every page that people read: README, docs/, for contributors, of the examples."""
    other = [ROOT / "SECURITY.md", ROOT / ".github" / "CONTRIBUTING.md"]
    shown = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]
    return [ROOT / "README.md", *sorted(shown), *other]


@cache
def snippets(page: Path) -> tuple[Snippet, ...]:
    """Return the snippets of a page, in its order."""
    name = page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    return tuple(found for token in tokens for found in _of(token, name))


def _of(token: Token, page: str) -> Iterator[Snippet]:
    line = token.map[0] + 1 if token.map else 0
    if token.type == "fence":
        language, _, rest = token.info.strip().partition(" ")
        yield Snippet(page, line, language, token.content, dict(_MARK.findall(rest)))
    elif token.type == "code_block":
        yield Snippet(page, line, "indented", token.content, {})
    elif token.type == "html_block":
        for found in _BEFORE.findall(token.content):
            yield Snippet(page, line, "before", found, {})
    elif token.type == "inline":
        for child in token.children or ():
            text = " ".join(child.content.split())
            if child.type == "code_inline" and text.removeprefix("$ ").startswith("edison "):
                yield Snippet(page, line, "inline", text.removeprefix("$ "), {})


def everything() -> list[Snippet]:
    """Return the snippets of every page."""
    return [snippet for page in pages() for snippet in snippets(page)]


def not_run() -> str:
    """Return what cannot run in the tests, with the reason."""
    found = [snippet for snippet in everything() if "not-run" in snippet.marks]
    rows = [(_link(each), code(_first(each)), each.marks["not-run"]) for each in found]
    return table(("page", "begins with", "why"), rows) + f"\n{len(rows)} snippets in all.\n"


def _link(snippet: Snippet) -> str:
    if snippet.page.startswith("examples/"):  # not a page of the site
        return code(snippet.page)
    path = snippet.page.removeprefix("docs/")
    return f"[{snippet.page}]({path if path != snippet.page else f'../{path}'})"


def _first(snippet: Snippet) -> str:
    lines = snippet.commands if snippet.language in ("console", "sh") else snippet.text.splitlines()
    return lines[0] if lines else ""
