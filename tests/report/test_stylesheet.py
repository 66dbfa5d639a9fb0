"""The stylesheet: contrast that people can read, and every class that we write."""

from __future__ import annotations

import re
from itertools import product

import pytest

from docs.gallery import STYLE, page

pytestmark = pytest.mark.daily

CSS = STYLE.read_text(encoding="utf-8")
TOKEN = re.compile(r"--([\w-]+):\s*(light-dark\((#\w{6}), (#\w{6})\)|var\(--([\w-]+)\))\s*;")


def tokens() -> dict[str, tuple[str, str]]:
    """Return each colour, light and dark."""
    root = CSS[CSS.index(":root {") : CSS.index("\n}\n")]
    found: dict[str, tuple[str, str]] = {}
    for name, _, light, dark, other in TOKEN.findall(root):
        found[name] = found[other] if other else (light, dark)
    return found


COLOURS = tokens()
THEMES = ("light", "dark")
GROUNDS = ("paper", "ground", "sunken")
READ = [
    *((word, ground) for word in ("ink", "quiet", "accent", "second") for ground in GROUNDS),
    *((word, ground) for word in ("good", "bad", "odd", "none") for ground in GROUNDS),
    *((kind, f"{kind}-ground") for kind in ("accent", "second", "good", "bad", "odd", "none")),
    *(("ink", f"{kind}-ground") for kind in ("good", "bad")),
    ("on-accent", "accent"),
    *((f"on-h{step}", f"h{step}") for step in range(5)),
]
SEEN = [
    *((f"s{series}", "paper") for series in range(1, 7)),
    *(("line-strong", ground) for ground in GROUNDS),
]


def luminance(colour: str) -> float:
    """As WCAG 2.2 defines it."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    darker, lighter = sorted((luminance(a), luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_computed_as_the_standard_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_text_can_be_read(subtests: pytest.Subtests) -> None:
    for (text, ground), theme in product(READ, [0, 1]):
        with subtests.test(THEMES[theme], text=text, ground=ground):
            assert contrast(COLOURS[text][theme], COLOURS[ground][theme]) >= 4.5


def test_marks_and_controls_can_be_seen(subtests: pytest.Subtests) -> None:
    for (mark, ground), theme in product(SEEN, [0, 1]):
        with subtests.test(THEMES[theme], mark=mark, ground=ground):
            assert contrast(COLOURS[mark][theme], COLOURS[ground][theme]) >= 3


def test_every_colour_is_a_token() -> None:
    rules = CSS[CSS.index("\n}\n") :]
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", rules)) <= {"#ffffff"}  # paper is white


def test_every_token_that_is_used_is_there() -> None:
    used = set(re.findall(r"var\(--([\w-]+)\)", CSS)) - {"series"}
    assert used <= set(re.findall(r"--([\w-]+):", CSS))


def test_nothing_is_fetched() -> None:
    assert "url(" not in CSS
    assert "@import" not in CSS


def test_every_class_of_the_gallery_has_a_rule() -> None:
    written = {name for value in re.findall(r'class="([^"]*)"', page()) for name in value.split()}
    ruled = set(re.findall(r"\.([a-z][\w-]*)", CSS))
    plain = {"text", "outcome", "outcome-mark", "outcome-info", "grow", "count", "where", "end"}
    assert written - ruled - plain == set()


def test_paper_is_light_and_whole() -> None:
    paper = CSS[CSS.index("@media print") :]
    assert "color-scheme: light" in paper
    assert "max-height: none" in paper
