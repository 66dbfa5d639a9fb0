"""Up to 200 clusters the share that is held out is exact; of more, the hash of each decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.cases import MOST_RANKED, fraction, is_holdout
from edison_ci.config.experiment import Split
from edison_ci.config.holdout import Holdout, holdout_of
from edison_ci.config.load import load_project
from edison_ci.plan.plan import bare_plan
from edison_ci.plan.selection import Selection, Shard, SplitPart
from tests.features.refine.workbench import project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"c{n}", "input": {"name": f"V{n}"}, "expected": f"V{n}", **more}
            for n in range(count)]  # fmt: skip


def write(folder: Folder, cases: list[dict[str, Any]], dataset: str = "", split: str = "") -> None:
    project(folder, cases=1)
    folder.write("datasets/names.jsonl", "".join(f"{json.dumps(row)}\n" for row in cases))
    if dataset:
        folder.edit("experiments/hello.yaml", "dataset: datasets/names.jsonl", dataset)
    if split:
        folder.edit("experiments/hello.yaml", "split: {holdout: 0.4, seed: 0}", split)


def held(folder: Folder, known: Mapping[str, bool] | None = None) -> set[str]:
    """Return the ids of the held-out cases."""
    loaded = load_project(folder.path)
    experiment = loaded.experiments["hello"]
    holdout = holdout_of(loaded, experiment, known=known)
    return {str(case.id) for case in loaded.cases(experiment) if holdout.has(case)}


def planned(folder: Folder, **chosen: Any) -> int:
    """Return how many held-out cases a plan counts."""
    loaded = load_project(folder.path)
    experiment = loaded.experiments["hello"]
    return bare_plan(loaded, experiment, selection=Selection(**chosen)).holdout


@pytest.mark.parametrize(
    ("cases", "share", "number"),
    [(15, 0.4, 6), (8, 0.4, 3), (10, 0.25, 3), (1, 0.9, 0), (3, 0.99, 2), (200, 0.4, 80)],
)  # fmt: skip
def test_the_share_is_exact(folder: Folder, cases: int, share: float, number: int) -> None:
    for seed in (0, 7):
        write(folder, rows(cases), split=f"split: {{holdout: {share}, seed: {seed}}}")
        names = held(folder)
        lowest = sorted(
            (f"c{n}" for n in range(cases)), key=lambda name: fraction(f"{seed}:{name}")
        )
        assert names == {*lowest[:number]}
        assert planned(folder) == number


def test_whole_clusters_are_held_out(folder: Folder) -> None:
    cases = [{**row, "cluster": f"k{place % 5}"} for place, row in enumerate(rows(23))]
    write(folder, cases)
    names = held(folder)
    clusters = {row["cluster"] for row in cases if row["id"] in names}
    assert len(clusters) == 2
    assert names == {row["id"] for row in cases if row["cluster"] in clusters}
    assert planned(folder) == len(names)


def test_more_than_200_clusters_go_by_the_hash_of_each(folder: Folder) -> None:
    write(folder, rows(MOST_RANKED + 1))
    loaded = load_project(folder.path)
    experiment = loaded.experiments["hello"]
    by_hash = {str(c.id) for c in loaded.cases(experiment) if is_holdout(c, Split())}
    assert held(folder) == by_hash
    assert planned(folder) == len(by_hash)
    assert holdout_of(loaded, experiment).ranked is None


def test_what_is_chosen_of_the_cases_changes_no_side(folder: Folder) -> None:
    """They are ranked before `where`, `take`, a shard, or the options of a command."""
    cases = [{**row, "tags": ["even" if n % 2 else "odd"]} for n, row in enumerate(rows(40))]
    write(folder, cases)
    everything = held(folder)
    assert len(everything) == 16
    even = {row["id"] for row in cases if row["tags"] == ["even"]}
    assert planned(folder, tags=("even",)) == len(everything & even)
    shards = [planned(folder, shard=Shard(index, 3)) for index in (1, 2, 3)]
    assert sum(shards) == 16 and min(shards) > 0
    write(folder, cases, "datasets:\n  - {path: datasets/names.jsonl, where: {tags: even}}")
    assert held(folder) == everything & even
    assert planned(folder) == len(everything & even)
    write(folder, cases, "datasets:\n  - {path: datasets/names.jsonl, take: 12}")
    taken = held(folder)
    assert taken < everything
    assert planned(folder) == len(taken)


def test_commands_count_as_a_refinement_holds_out(folder: Folder) -> None:
    write(folder, rows(15))
    stats = json.loads(folder.edison("dataset", "stats", "--json").out)
    assert stats["experiments"][0]["held_out"] == 6
    assert "only 6 cases are held out" in folder.edison("validate").all


def test_known_cases_keep_their_side_and_new_ones_fill_the_share(folder: Folder) -> None:
    write(folder, rows(10))
    first = held(folder)
    assert len(first) == 4
    known = {f"c{n}": f"c{n}" in first for n in range(10)}
    write(folder, rows(20), split="split: {holdout: 0.4, seed: 5}")
    later = held(folder, known)
    assert first < later and len(later) == 8
    assert not later & {name for name, out in known.items() if not out}


def test_a_new_case_of_a_cluster_joins_the_others(folder: Folder) -> None:
    cases = [{**row, "cluster": f"k{n % 4}"} for n, row in enumerate(rows(12))]
    write(folder, cases)
    known = {"c0": False, "c4": True, "c1": True, "c2": False}  # k0 has both
    names = held(folder, known)
    assert "c4" in names and "c0" not in names
    assert {"c8", "c2", "c6", "c10"}.isdisjoint(names)
    assert {"c1", "c5", "c9"} <= names


def test_known_cases_keep_their_side_among_many(folder: Folder) -> None:
    write(folder, rows(300))
    plain = held(folder)
    flipped = sorted(plain)[0], sorted({f"c{n}" for n in range(300)} - plain)[0]
    known = {flipped[0]: False, flipped[1]: True}
    assert held(folder, known) == plain - {flipped[0]} | {flipped[1]}


def test_a_stored_part_has_the_same_cases(folder: Folder) -> None:
    write(folder, rows(30))
    loaded = load_project(folder.path)
    experiment = loaded.experiments["hello"]
    for name in ("train", "holdout", "all"):
        part = SplitPart(name, holdout_of(loaded, experiment))
        again = SplitPart.from_json(json.loads(json.dumps(part.as_json())))
        assert [*map(again.has, loaded.cases(experiment))] == [
            *map(part.has, loaded.cases(experiment))
        ]
    old = SplitPart.from_json({"name": "train", "holdout": 0.4, "seed": 0})
    assert old.holdout == Holdout(Split())
