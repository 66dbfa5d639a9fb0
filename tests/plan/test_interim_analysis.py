"""Cases are taken in an order that nobody chose, in batches, and looks are declared beforehand."""

from __future__ import annotations

import pytest

from edison_ci.config.experiment import Stop
from edison_ci.config.gates import Gate
from edison_ci.plan.interim_analysis import (
    BATCH,
    MOST_ANALYSES,
    batch_size,
    batches_of,
    count_analyses,
    interim_kind,
    random_batches,
    repeats_analysis,
)
from edison_ci.records import Case, CaseId

BASE = {"metric": "composite", "no_worse_than": "base"}


def gates(*written: dict[str, object]) -> list[Gate]:
    return [Gate.model_validate(gate) for gate in written]


def deck(count: int, clusters: int = 0) -> list[Case]:
    return [
        Case(CaseId(f"c{i:04}"), {}, cluster=f"doc {i % clusters}" if clusters else None)
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("gate", "stop", "kind"),
    [
        (BASE, {}, None),
        ({**BASE, "if_unclear": "more_repeats"}, {}, "repeats"),
        (BASE, {"adaptive_sampling": True}, "cases"),
        ({**BASE, "if_unclear": "more_repeats"}, {"adaptive_sampling": True}, "cases"),
        ({"metric": "pass_rate", "at_least": "80%"}, {"adaptive_sampling": True}, None),
        ({**BASE, "metric": "tokens.mean"}, {"adaptive_sampling": True}, None),
        ({**BASE, "metric": "check.words"}, {"adaptive_sampling": True}, "cases"),
        ({**BASE, "use": "human"}, {"adaptive_sampling": True}, None),
    ],
)
def test_who_is_looked_at_more_than_once(
    gate: dict[str, object], stop: dict[str, object], kind: str | None
) -> None:
    assert interim_kind(gates(gate), Stop.model_validate(stop)) == kind


def test_three_looks_at_1_2_and_3_times_the_repeats() -> None:
    interims = [repeats_analysis(number, 2) for number in (1, 2, 3)]
    assert [(interim.at, interim.most, interim.last) for interim in interims] == [
        (2, 6, False), (4, 6, False), (6, 6, True)
    ]  # fmt: skip


def test_cases_are_dealt_in_an_order_of_their_own_and_all_of_them() -> None:
    cases = deck(95)
    batches = list(random_batches(lambda: cases, {}, seed="run", size=BATCH, read_ahead=40))
    assert [len(batch) for batch in batches] == [20, 20, 20, 20, 15]
    order = [case.id for batch in batches for case in batch]
    assert sorted(order) == [case.id for case in cases]
    assert order != sorted(order)
    again = list(random_batches(lambda: cases[::-1], {}, seed="run", size=BATCH))
    assert [case.id for batch in again for case in batch] == order, "read ahead or not"
    other = list(random_batches(lambda: cases, {}, seed="another run", size=BATCH))
    assert [case.id for batch in other for case in batch] != order


def clusters_of(cases: list[Case]) -> dict[str, str]:
    return {case.id: case.cluster for case in cases if case.cluster is not None}


def test_clusters_are_dealt_whole() -> None:
    cases = deck(120, clusters=50)
    batches = list(
        random_batches(lambda: cases, clusters_of(cases), seed="run", size=20, read_ahead=20)
    )
    seen = [{case.cluster for case in batch} for batch in batches]
    assert [len(clusters) for clusters in seen] == [20, 20, 10]
    assert not seen[0] & seen[1]


def test_what_was_dealt_is_found_again_from_the_cells() -> None:
    cases = deck(70, clusters=33)
    batches = [
        sorted(case.id for case in batch)
        for batch in random_batches(lambda: cases, clusters_of(cases), seed="x", size=20)
    ]
    known = [(case.id, case.cluster) for case in cases[::-1]]
    assert [sorted(batch) for batch in batches_of(known, seed="x", size=20)] == batches


def test_many_cases_make_no_more_looks_than_can_be_taken() -> None:
    assert (batch_size(400), count_analyses(400)) == (20, 20)
    assert count_analyses(1_000_000) <= MOST_ANALYSES
