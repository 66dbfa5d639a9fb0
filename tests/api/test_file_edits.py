"""The mark of production is one line of front matter, whatever the rest looks like."""

from __future__ import annotations

import pytest

from edison_ci.api.file_edits import mark_production

pytestmark = pytest.mark.daily


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# user\nHi\n", '---\nproduction: "12345678"\n---\n# user\nHi\n'),
        ("---\nid: a\n---\nHi\n", '---\nid: a\nproduction: "12345678"\n---\nHi\n'),
        ("---\n---\nHi\n", '---\nproduction: "12345678"\n---\nHi\n'),
        (
            "---\nproduction: v1 # old\nid: a\n---\nproduction: v1\n",
            '---\nproduction: "12345678"\nid: a\n---\nproduction: v1\n',
        ),
        (
            "---\r\nid: a\r\n---\r\nHi\r\n",
            '---\r\nid: a\r\nproduction: "12345678"\r\n---\r\nHi\r\n',
        ),
        ("\ufeff---\nid: a\n---\nHi\n", '\ufeff---\nid: a\nproduction: "12345678"\n---\nHi\n'),
        ("Hi\n\n---\n\nmore\n---\n", '---\nproduction: "12345678"\n---\nHi\n\n---\n\nmore\n---\n'),
    ],
)
def test_only_the_mark_changes(before: str, after: str) -> None:
    assert mark_production(before, "12345678") == after
