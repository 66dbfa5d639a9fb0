"""A gate on the worst slice finds a drop that the other cases hide, and allows for many slices."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from docs.gates import Graded

if TYPE_CHECKING:
    from docs.gates import Results
    from edison_ci.results.decisions import GateRow

WORST: dict[str, Any] = {
    "metric": "composite",
    "no_worse_than": "base",
    "margin": "10pp",
    "slices": "worst",
}


def write(
    results: Results, sizes: dict[str, int], drops: dict[str, float], *, noise: float
) -> None:
    random = Random(5)
    for tag, size in sizes.items():
        for index in range(size):
            name = f"{tag}-{index:03}"
            head = 0.8 - drops.get(tag, 0.0) + random.uniform(-noise, noise)
            results.add(Graded(name, 0.8, "base"), Graded(name, head))
            results.tag(name, *([tag] if tag != "untagged" else []))


def worst(results: Results, *others: dict[str, Any], **background: Any) -> GateRow:
    return results.decide(WORST, *others, **background).rows[0]


def test_one_bad_slice_fails_although_the_mean_passes(results: Results) -> None:
    write(results, {"billing": 20, "returns": 180}, {"billing": 0.3}, noise=0.05)
    mean = {"metric": "composite", "no_worse_than": "base", "margin": "10pp"}
    row, overall = results.decide(WORST, mean).rows
    assert (row.verdict, overall.verdict) == ("fail", "pass")
    assert row.sentence.startswith("Worst of 2 slices, billing: Quality dropped by 29.4")
    assert [(one["tag"], one["verdict"]) for one in row.detail["slices"]] == [
        ("billing", "fail"),
        ("returns", "pass"),
    ]
    assert row.n == 20


def test_every_slice_has_to_pass(results: Results) -> None:
    write(results, {"billing": 60, "returns": 60, "untagged": 60}, {}, noise=0.05)
    row = worst(results)
    assert row.verdict == "pass"
    assert {one["verdict"] for one in row.detail["slices"]} == {"pass"}
    assert [one["tag"] for one in row.detail["slices"]] == ["(none)", "billing", "returns"]


def test_small_slices_are_named_without_a_verdict(results: Results) -> None:
    write(results, {"billing": 60, "rare": 9}, {"rare": 0.7}, noise=0.05)
    row = worst(results)
    assert row.verdict == "pass"
    assert row.sentence.startswith("The only slice of enough cases, billing: ")
    assert row.sentence.endswith("Too small for a verdict: rare (9).")
    assert row.detail["small_slices"] == [{"tag": "rare", "n": 9}]


def test_clusters_count_instead_of_cases(results: Results) -> None:
    write(results, {"billing": 60}, {}, noise=0.05)
    clusters = {f"billing-{index:03}": f"document {index % 9}" for index in range(60)}
    row = worst(results, clusters=clusters)
    assert row.verdict == "inconclusive"
    assert row.sentence.startswith("No slice has 10 cases")


def test_slices_join_the_family_of_all_gates(results: Results) -> None:
    write(results, {f"tag{index}": 12 for index in range(1, 6)}, {}, noise=0.0)
    for index in range(12):  # 5 broken cases: p = 1/32
        name = f"tag0-{index:03}"
        results.add(Graded(name, 0.8, "base"), Graded(name, 0.5 if index < 5 else 0.8))
        results.tag(name, "tag0")
    row = worst(results)
    assert row.detail["family"] == 6
    first = row.detail["slices"][0]
    assert (first["p"], first["p_holm"]) == (1 / 32, 6 / 32)
    assert (first["verdict"], row.verdict) == ("inconclusive", "inconclusive")
    both = results.decide(WORST, {"metric": "composite", "no_worse_than": "base"})
    assert {row.detail["family"] for row in both.rows} == {7}


def test_a_slice_is_not_too_small_because_the_head_lost_its_answers(results: Results) -> None:
    write(results, {"returns": 60}, {}, noise=0.05)
    for index in range(12):
        name = f"billing-{index:03}"
        results.add(Graded(name, 0.8, "base"), Graded(name, status="error"))
        results.tag(name, "billing")
    row = worst(results)
    assert row.verdict == "inconclusive"
    assert row.sentence.startswith("Worst of 2 slices, billing: ")


def test_a_case_in_quarantine_is_in_no_slice(results: Results) -> None:
    write(results, {"billing": 10, "returns": 60}, {"billing": 0.4}, noise=0.05)
    assert worst(results).verdict == "fail"
    row = worst(results, quarantined={"billing-000"})
    assert row.detail["small_slices"] == [{"tag": "billing", "n": 9}]
