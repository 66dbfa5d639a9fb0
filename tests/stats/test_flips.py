"""Flips are counted, tested and bounded as an enumeration of every relabelling would do."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from edison_ci.records import Verdict
from edison_ci.stats.flips import (
    ONE_ANSWER,
    PassCount,
    case_flips,
    decide_flips,
    flip_p,
    flips_of,
)
from edison_ci.stats.paired import Pairs


def one_each(broken: int, fixed: int, same: int, clusters: list[str] | None = None) -> Pairs:
    base = [1.0] * broken + [0.0] * fixed + [1.0] * same
    head = [0.0] * broken + [1.0] * fixed + [1.0] * same
    return Pairs.of(base, head, clusters)


def statistic(base: tuple[float, ...], head: tuple[float, ...]) -> float:
    return sum(base) / len(base) * (1 - sum(head) / len(head))


def enumerated(pairs: Pairs) -> float:
    observed = sum(map(statistic, pairs.base, pairs.head))
    tables = []
    for base, head in zip(pairs.base, pairs.head, strict=True):
        pool, places = (*base, *head), range(len(base) + len(head))
        tables.append(
            [
                statistic(
                    tuple(pool[i] for i in chosen),
                    tuple(pool[i] for i in places if i not in chosen),
                )
                for chosen in combinations(places, len(base))
            ]
        )
    totals = [sum(each) for each in product(*tables)]
    return sum(total >= observed - 1e-9 for total in totals) / len(totals)


def test_one_answer_a_side_is_the_exact_binomial_test() -> None:
    for broken, fixed in ((9, 1), (5, 0), (3, 4), (0, 2), (0, 0)):
        p = flip_p(one_each(broken, fixed, 20))
        total = broken + fixed
        expected = binomtest(broken, total, 0.5, alternative="greater").pvalue if total else 1.0
        assert p.value == pytest.approx(expected)
        assert (p.draws, p.differing) == (None, total)


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3), (1, 3), (4, 2)])
def test_repeats_are_relabelled_exactly(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    sides = [
        tuple(tuple(map(float, rng.random(k) < share)) for _ in range(3))
        for k, share in zip(sizes, (0.8, 0.4), strict=True)
    ]
    pairs = Pairs(sides[0], sides[1])
    assert flip_p(pairs).value == pytest.approx(enumerated(pairs), abs=1e-9)


def test_clusters_change_sides_as_a_whole() -> None:
    pairs = one_each(6, 0, 6, [f"document {index % 3}" for index in range(12)])
    assert flip_p(pairs).value == pytest.approx(1 / 8)
    assert flip_p(one_each(6, 0, 6)).value == pytest.approx(1 / 64)


def test_a_head_that_breaks_as_many_as_it_repairs_fails_with_repeats_only() -> None:
    stable = [((1.0,) * 3, (0.0,) * 3)] * 9 + [((0.0,) * 3, (1.0,) * 3)] * 9
    stable += [((1.0,) * 3, (1.0,) * 3)] * 82
    pairs = Pairs(tuple(base for base, _ in stable), tuple(head for _, head in stable))
    found = decide_flips(pairs, 0.02)
    assert found.verdict is Verdict.FAIL
    assert found.value == pytest.approx(0.09)
    alone = decide_flips(one_each(9, 9, 82), 0.02)
    assert alone.verdict is Verdict.INCONCLUSIVE
    assert ONE_ANSWER in alone.notes


def test_noise_of_cases_with_mixed_results_is_taken_off() -> None:
    rng = np.random.default_rng(3)
    ability = np.where(np.arange(600) < 60, 0.5, 1.0)[:, None]
    base, head = (
        tuple(tuple(map(float, row)) for row in rng.random((600, 3)) < ability) for _ in range(2)
    )
    pairs = Pairs(base, head)
    counted = flips_of(pairs)
    assert counted.broken / 600 > 0.02
    assert counted.noise is not None
    found = decide_flips(pairs, 0.02)
    assert found.verdict is Verdict.PASS
    assert found.value is not None
    assert abs(found.value) < 0.01


def test_steadied_cases_do_not_pay_for_broken_ones() -> None:
    # 40 cases of mixed results now always pass, and 5 that always passed now always fail.
    mixed = [((1.0, 0.0), (1.0, 1.0))] * 40
    broken, same = [((1.0, 1.0), (0.0, 0.0))] * 5, [((1.0, 1.0), (1.0, 1.0))] * 155
    cases = mixed + broken + same
    pairs = Pairs(tuple(base for base, _ in cases), tuple(head for _, head in cases))
    found = decide_flips(pairs, 0.02)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.value == pytest.approx(0.025)
    assert found.worst_plausible is not None
    assert found.worst_plausible > 0.025


def test_a_pass_is_bounded_by_clopper_and_pearson() -> None:
    assert decide_flips(one_each(0, 0, 148), 0.02).verdict is Verdict.INCONCLUSIVE
    assert decide_flips(one_each(0, 0, 149), 0.02).verdict is Verdict.PASS
    found = decide_flips(one_each(0, 0, 100), 0.02)
    assert (found.n_needed, found.n_more) == (149, 49)
    # The chance to pass a head that breaks 2% is at most 5%, for every number of cases.
    for n in (149, 200, 400, 900):
        most = next(k for k in range(n) if not passes(k, n)) - 1
        assert not any(passes(k, n) for k in (2 * most + 2, n // 2, n))
        assert binom.cdf(most, n, 0.02) <= 0.05


def passes(broken: int, n: int) -> bool:
    return decide_flips(one_each(broken, 0, n - broken), 0.02).verdict is Verdict.PASS


def test_a_lost_answer_of_the_head_counts_as_broken_for_pass_and_never_for_fail() -> None:
    whole = one_each(0, 0, 160)
    assert decide_flips(whole, 0.02).verdict is Verdict.PASS
    lost = decide_flips(whole, 0.02, lost=[1.0] * 16)
    assert (lost.verdict, lost.value) == (Verdict.INCONCLUSIVE, 0.0)
    assert decide_flips(whole, 0.02, lost=[0.0] * 8).verdict is Verdict.PASS
    repeated = Pairs(((1.0, 1.0),) * 160, ((1.0, 1.0),) * 160)
    assert decide_flips(repeated, 0.02).verdict is Verdict.PASS
    assert decide_flips(repeated, 0.02, lost=[1.0] * 16).verdict is Verdict.INCONCLUSIVE


def test_few_clusters_do_not_pass() -> None:
    names = [f"document {index % 4}" for index in range(400)]
    assert decide_flips(one_each(0, 0, 400), 0.02).verdict is Verdict.PASS
    assert decide_flips(one_each(0, 0, 400, names), 0.02).verdict is Verdict.INCONCLUSIVE


def test_one_case_decides_nothing() -> None:
    assert decide_flips(one_each(1, 0, 0), 0.02).verdict is Verdict.INCONCLUSIVE
    assert decide_flips(Pairs((), ()), 0.02).value is None


def counts(*passed: tuple[int, int]) -> list[list[PassCount]]:
    return [[PassCount(*one)] for one in passed]


def test_a_suite_without_noise_excuses_no_flip() -> None:
    steady = case_flips(counts((3, 3), (3, 3), (0, 3)), counts((0, 3), (0, 3), (3, 3)))
    assert steady.counts == "2 newly failing (none expected by chance), 1 fixed"
    once = case_flips(counts((1, 1), (1, 1), (0, 1)), counts((0, 1), (0, 1), (1, 1)))
    assert (once.counts, once.p) == ("2 newly failing, 1 fixed", 0.5), "4 of 8"
    assert once.expected is None


def test_the_flips_that_chance_gives_are_as_many_as_are_seen_if_nothing_changed() -> None:
    rng, seen, expected = np.random.default_rng(5), [], []
    for _ in range(300):
        chances = rng.choice([0.05, 0.5, 0.8, 1.0], size=60)
        sides = [counts(*((int(n), 3) for n in rng.binomial(3, chances))) for _ in range(2)]
        found = case_flips(sides[0], sides[1])
        seen.append(found.newly_failing)
        expected.append(found.expected or 0.0)
    assert 0.9 < float(np.mean(expected)) / float(np.mean(seen)) < 1.1


def test_the_flips_of_several_models_are_those_of_the_case() -> None:
    base = [[PassCount(1, 2), PassCount(2, 2)], [PassCount(2, 2), PassCount(2, 2)]]
    head = [[PassCount(2, 2), PassCount(2, 2)], [PassCount(2, 2), PassCount(0, 2)]]
    found = case_flips(base, head)
    assert (found.n, found.newly_failing, found.fixed) == (2, 1, 1)
    assert found.expected == pytest.approx(0.5), "three of four pass: 3 of 6 ways"


def test_net_takes_fixed_cases_off_where_no_repeats_show_the_noise() -> None:
    found = decide_flips(one_each(14, 4, 76), 0.18, net=True)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.value == pytest.approx(10 / 94)
    assert ONE_ANSWER not in found.notes and found.n_more is not None
    assert decide_flips(one_each(12, 12, 70), 0.18, net=True).verdict is Verdict.PASS
    assert decide_flips(one_each(12, 12, 70), 0.18).verdict is Verdict.INCONCLUSIVE
    assert decide_flips(one_each(40, 4, 50), 0.18, net=True).verdict is Verdict.FAIL
    lost = decide_flips(one_each(12, 12, 70), 0.18, net=True, lost=[1.0] * 16)
    assert lost.verdict is Verdict.INCONCLUSIVE, "lost answers count as broken"


def test_net_changes_nothing_where_repeats_show_the_noise() -> None:
    repeated = Pairs(((1, 1),) * 30 + ((1, 0),) * 10, ((1, 1),) * 28 + ((0, 1),) * 12)
    assert decide_flips(repeated, 0.2, net=True) == decide_flips(repeated, 0.2)
