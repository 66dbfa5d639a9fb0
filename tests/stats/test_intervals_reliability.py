"""pass@k and pass^k by counting."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.stats.intervals import (
    pass_all_k,
    pass_at_k,
)


@settings(deadline=None)
@given(
    st.integers(1, 7).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, r), st.integers(1, r)))
)
def test_reliability_is_the_share_of_subsets(drawn: tuple[int, int, int]) -> None:
    runs, passes, k = drawn
    marks = [True] * passes + [False] * (runs - passes)
    subsets = list(combinations(marks, k))
    assert pass_at_k(passes, runs, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_all_k(passes, runs, k) == pytest.approx(sum(map(all, subsets)) / len(subsets))


def test_more_than_there_were_is_unknown() -> None:
    assert pass_at_k(2, 3, 4) is None and pass_all_k(2, 3, 4) is None
    with pytest.raises(ValueError, match="cannot be"):
        pass_at_k(4, 3, 1)
