"""How a reader sees a Markdown text on GitHub: which elements, and which text outside of code."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

if (sys.platform, platform.machine()) == ("darwin", "x86_64"):
    pytest.skip("cmarkgfm has no wheel for macOS on Intel", allow_module_level=True)

import cmarkgfm
from cmarkgfm.cmark import Options

OURS = frozenset(
    [
        "h2",
        "h3",
        "sub",
        "p",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "pre",
        "strong",
        "ul",
        "li",
        "blockquote",
        "details",
        "summary",
    ]
)
"""Elements that a report is made of."""
LINKED = re.compile(r"@\w|#\d|\bGH-\d|https?:|www\.|mailto:|\b[0-9a-f]{7,40}\b", re.I)
"""What GitHub makes links or mentions of."""
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


@dataclass
class Page(HTMLParser):
    """What a rendered text holds."""

    elements: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str | None]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """Text outside of code."""
    codes: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    depth: int = 0

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag == "code":
            self.depth += 1
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "code"

    def handle_data(self, data: str) -> None:
        if self.depth:
            self.codes[-1] += data
        else:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def page(markdown: str) -> Page:
    """Render as GitHub does, but keep raw HTML, so that none of it goes unnoticed."""
    html = cmarkgfm.github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE)
    found = Page()
    found.feed(html)
    found.close()
    return found


def assert_harmless(markdown: str, *, link: str = "") -> Page:
    """Fail if a reader, or GitHub, is made to see or do what no report of ours asks for.

    The link is the only one that the text may have.
    """
    found = page(markdown)
    ours = OURS | {"a"} if link else OURS
    assert set(found.elements) <= ours, set(found.elements) - ours
    assert {*found.attributes} <= {("lang", "diff"), *([("href", link)] if link else [])}
    assert not LINKED.search(found.text), found.text
    assert not HIDDEN.search(markdown)
    return found
