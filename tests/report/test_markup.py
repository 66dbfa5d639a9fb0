"""Markup: text can never become markup, and what a strict policy forbids cannot be written."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import Environment
from markupsafe import Markup

from edison_ci.report.markup import code_spans, element, escape, join, number

pytestmark = pytest.mark.daily


@given(st.text())
@example("]]><script>\x00\u202e\ud800\ufffe</p>")
def test_any_text_stays_text(text: str) -> None:
    made = element("p", text, title=text)
    root = ET.fromstring(made)
    assert (root.tag, len(root)) == ("p", 0)
    assert set(root.attrib) == {"title"}


@given(st.text(alphabet="<>&\"'/ab =!-"))
def test_a_browser_finds_no_tag_in_a_text(text: str) -> None:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            found.append(tag)

    Reader().feed(element("div", text, data_x=text))
    assert found == ["div"]


def test_markup_is_taken_as_it_is_and_text_is_escaped() -> None:
    inner = element("b", "<")
    assert element("p", inner, "<", None, 3, [inner]) == "<p><b>&lt;</b>&lt;3<b>&lt;</b></p>"


def test_templates_take_it_as_markup() -> None:
    environment = Environment(autoescape=True)
    template = environment.from_string("{{ chart }}{{ name }}")
    assert template.render(chart=element("b", "<"), name="<") == "<b>&lt;</b>&lt;"


@pytest.mark.parametrize("name", ["style", "onclick", "onLoad", "a b", "x>y"])
def test_attributes_that_the_policy_forbids_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="attribute"):
        element("p", **{name: "x"})


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", " JavaScript:x", "data:text/html,x", "vbscript:x", "ftp://x"]
)
def test_addresses_that_run_code_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="link"):
        element("a", "x", href=address)


@pytest.mark.parametrize("address", ["#main", "run/1?x=2", "/-/edison", "https://example.org/a:b"])
def test_other_addresses_are_not(address: str) -> None:
    assert "href" in element("a", "x", href=address)


def test_attributes_are_left_out_set_or_bare() -> None:
    assert element("input", checked=True, disabled=False, id=None, class_="a", data_n=1.25) == (
        '<input checked class="a" data-n="1.3">'
    )


@pytest.mark.parametrize(
    ("value", "words"), [(1.0, "1"), (0.04, "0"), (-0.04, "0"), (1.26, "1.3"), (12, "12")]
)
def test_coordinates_are_short(value: float, words: str) -> None:
    assert number(value) == words


def test_what_is_not_finite_is_no_coordinate() -> None:
    with pytest.raises(ValueError, match="coordinate"):
        number(float("nan"))


def test_pieces_are_joined() -> None:
    assert join(["a", Markup("<br>"), None, "<"]) == "a<br>&lt;"
    assert code_spans("run `a<b` now") == "run <code>a&lt;b</code> now"
    assert code_spans("an odd ` tick") == "an odd ` tick"
    assert escape("\u202e") == "\\u{202e}"
