"""Evidence that was stored is read as it was; whatever else stands there hurts nobody."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edison_ci.cli.options import CliState
from edison_ci.cli.suggestion import show_suggestion
from edison_ci.cli.terminal import Terminal
from edison_ci.proposals.proposal_text import ProposalText, message_of, proposal_body
from edison_ci.store.suggestions import sound_evidence
from tests.report.test_proposal import ONE
from tests.suggested import EVIDENCE, SEARCH

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE = {**EVIDENCE, "search": SEARCH}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def test_sound_evidence_stays_as_it_is() -> None:
    assert sound_evidence(WHOLE) == WHOLE
    assert sound_evidence({"proven": True, "more": [1]}) == {"proven": True, "more": [1]}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


@pytest.mark.parametrize("path", [*places(WHOLE)], ids=str)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(new=JSON)
def test_evidence_that_somebody_broke_can_be_shown_all_the_same(
    path: tuple[Any, ...], new: Any
) -> None:
    found = sound_evidence(changed(WHOLE, path, new))
    assert repr(sound_evidence(found)) == repr(found)  # what is sound stays so
    one = replace(ONE, evidence=found)
    show_suggestion(Terminal(CliState(quiet=True)), one)
    assert proposal_body(ProposalText(one)).startswith("<!-- edison-ci:suggestion:v1 ")
    assert message_of(one)
