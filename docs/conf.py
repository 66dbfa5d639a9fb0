"""The site: Sphinx builds it from the Markdown that the repository shows, README and docs/.

    make site          build it into .tools/site; a link or an anchor that leads nowhere is an error

docs/index.md is the front page, and its lists of pages are the navigation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

from edison_ci import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "edison-ci"
author = "edison-ci"
release = version = __version__
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    ".github/CONTRIBUTING.md",
    "docs/*.md",
    "docs/benchmarks/*.md",
]
# Not even looked into: they are large.
exclude_patterns = [".git", ".venv", ".tools", "edison_ci", "examples", "schemas", "tests"]
extensions = ["myst_parser"]
myst_heading_anchors = 6  # with the names that GitHub gives them
nitpicky = True

html_theme = "furo"
html_title = "edison-ci"
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]

_COG = re.compile(r"^<!-- \[\[\[(?:cog.*?\]\]\]|end\]\]\]) -->\n", re.M | re.S)
_FENCE = re.compile(r"^( *)(`{3,})(\w+)((?: [\w-]+=\"[^\"]*\")+)$", re.M)
_LISTS = re.compile(r"^## (.+)\n((?:(?!## ).*\n)*)", re.M)
_PAGE = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\.md\)", re.M)
_START = '<!doctype html><meta charset="utf-8"><title>edison-ci</title>'


def setup(app: Sphinx) -> None:
    """Tell Sphinx what our Markdown has beyond its own."""
    for name in ("csv", "mermaid"):
        app.add_lexer(name, TextLexer)
    app.connect("source-read", _prepare)
    app.connect("build-finished", _start_page)


def _prepare(app: Sphinx, name: str, source: list[str]) -> None:
    """Drop the marks of cog, show the titles of blocks, and make lists of pages the navigation."""
    text = _FENCE.sub(_with_caption, _COG.sub("", source[0]))
    if name == root_doc:
        text += "".join(
            _navigation(title, pages)
            for title, listed in _LISTS.findall(text)
            if (pages := _PAGE.findall(listed))
        )
    source[0] = text


def _with_caption(fence: re.Match[str]) -> str:
    indent, ticks, language, rest = fence.groups()
    marks = dict(re.findall(r'([\w-]+)="([^"]*)"', rest))
    said = [marks.get("title", "")]
    said += [f"not run in the tests: {marks['not-run']}"] if "not-run" in marks else []
    caption = "; ".join(filter(None, said))
    head = f"{indent}{ticks}{{code-block}} {language}"
    return f"{head}\n{indent}:caption: {caption}\n" if caption else f"{indent}{ticks}{language}"


def _navigation(title: str, pages: list[tuple[str, str]]) -> str:
    listed = "\n".join(f"{name} <{path}>" for name, path in pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"


def _start_page(app: Sphinx, error: Exception | None) -> None:
    """Lead from the address of the site to its front page."""
    if error is None and app.builder.name == "html":
        page = f'{_START}<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")
