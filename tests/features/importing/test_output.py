"""What is written as YAML is read back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.documents.yaml_text import read_yaml
from edison_ci.features.importing.output import yaml_text

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30),
    st.text("ab :#-,'\"{}[]\n\t|>&*!%@`?~=0123.\\", max_size=30),
    st.sampled_from(["yes", "null", "1", "1e3", "- a", "a: b", "a #b", "x\ny\n", " x\ny", "<<"]),
)
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9999, 9999), TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(TEXT.filter(bool), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.nightly
@given(st.dictionaries(TEXT.filter(bool), VALUE, max_size=5))
def test_it_reads_back(value: dict[str, object]) -> None:
    written = yaml_text(value)  # type: ignore[arg-type]  # a JSON value
    document = read_yaml(written, "written.yaml")
    assert document.problems == []
    assert (document.value or {}) == value


def test_people_can_read_it() -> None:
    value = {
        "description": "Short, kind and (mostly) right",
        "checks": [{"contains": "{{ x }}"}, {"words": {"max": 9}}],
        "text": "one\ntwo\n",
        "answer": "no",
    }
    assert yaml_text(value) == (  # type: ignore[arg-type]  # a JSON value
        "description: Short, kind and (mostly) right\n"
        "checks:\n"
        '  - contains: "{{ x }}"\n'
        "  - words: {max: 9}\n"
        "text: |\n  one\n  two\n"
        'answer: "no"\n'
    )
