"""Whether the mix of questions changed: by chance rarely, and where it did nearly always."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom

from edison_ci.stats.permutation import mix_shift

NAMES = ["en", "de", "fr", "pl"]
SHARES = [0.6, 0.25, 0.1, 0.05]


def drawn(rng: np.random.Generator, n: int, shares: list[float]) -> Counter[str]:
    return Counter(str(name) for name in rng.choice(NAMES, size=n, p=shares))


@pytest.mark.nightly
def test_the_same_mix_is_called_another_one_as_often_as_stated() -> None:
    rng = np.random.default_rng(3)
    found = [mix_shift(drawn(rng, 250, SHARES), drawn(rng, 50, SHARES)) for _ in range(200)]
    small = [one for one in found if one is not None and one.p <= 0.05]
    assert len(small) <= binom.ppf(0.999, len(found), 0.05)
    assert not [one for one in found if one is not None and one.p <= 0.001]


def test_another_mix_is_found_and_its_largest_change_named() -> None:
    rng = np.random.default_rng(4)
    found = [mix_shift(drawn(rng, 250, SHARES), drawn(rng, 50, [0.2, 0.65, 0.1, 0.05]))
             for _ in range(100)]  # fmt: skip
    sure = [one for one in found if one is not None and one.p <= 0.001]
    assert len(sure) >= 95
    assert {one.category for one in sure} <= {"en", "de"}
    one = sure[0]
    assert 0 < one.value < 1 and one.n == 50


def test_nothing_is_compared_with_an_empty_sample() -> None:
    assert mix_shift({}, {"en": 5}) is None
    assert mix_shift({"en": 5}, {}) is None


def test_equal_samples_do_not_differ() -> None:
    found = mix_shift({"en": 30, "de": 10}, {"en": 15, "de": 5})
    assert found is not None
    assert (found.value, found.p) == (0.0, 1.0)
