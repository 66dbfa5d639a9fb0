"""Regressions of a passing run are found, and an unchanged head is rarely marked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.simulate_figures import Setting
from benchmarks.simulate_regressions import regressions
from edison_ci.config.gates import Gate
from edison_ci.records import Verdict
from edison_ci.stats.flips import decide_flips
from edison_ci.stats.paired import Pairs
from edison_ci.stats.power import flips_limit
from edison_ci.stats.regressions import more_broken, worse_slices
from tests.conftest import ROOT
from tests.stats.test_flips import one_each

TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")


@pytest.mark.parametrize(
    ("broken", "fixed", "marked"),
    [(14, 4, True), (6, 0, True), (5, 0, False), (12, 5, False), (4, 14, False), (0, 0, False)],
)
def test_more_broken_than_fixed_is_two_sided_at_5_percent(
    broken: int, fixed: int, marked: bool
) -> None:
    assert more_broken(one_each(broken, fixed, 94 - broken - fixed)) is marked


def test_with_repeats_noise_is_what_answers_of_one_side_show() -> None:
    noisy = Pairs(((1, 0, 1),) * 40, ((0, 1, 0),) * 20 + ((1, 0, 1),) * 20)
    assert not more_broken(noisy)
    steady = Pairs(((1, 1, 1),) * 40, ((0, 0, 0),) * 6 + ((1, 1, 1),) * 34)
    assert more_broken(steady)


def test_a_slice_that_scores_lower_is_found_after_correction() -> None:
    rng = np.random.default_rng(1)
    base = rng.uniform(0.4, 0.9, 60)
    head = base + rng.normal(0, 0.05, 60)
    head[:12] -= 0.3
    slices = {"hard": range(12), "easy": range(12, 60), "few": range(6), "golden": range(30, 60)}
    found = worse_slices(Pairs.of(base.tolist(), head.clip(0, 1).tolist()), slices)
    assert list(found) == ["hard"]
    assert found["hard"].value == pytest.approx(-0.3, abs=0.05)
    assert found["hard"].n == 12 and found["hard"].p < 0.01
    better = worse_slices(Pairs.of(head.clip(0, 1).tolist(), base.tolist()), slices)
    assert not better


def test_clusters_count_once_in_a_slice() -> None:
    names = [f"c{index // 4}" for index in range(24)]
    dropped = Pairs.of([0.9] * 24, [0.5] * 24, names)
    assert not worse_slices(dropped, {"hard": range(24)}), "six clusters are too few"
    assert worse_slices(Pairs.of([0.9] * 24, [0.5] * 24), {"hard": range(24)})


def test_an_unchanged_head_is_rarely_marked_and_passes_the_written_gate() -> None:
    figures = regressions(Setting(1_000, np.random.default_rng(1)))
    for name, *shares in figures.rows:
        if not name.startswith("nothing changed"):
            continue
        values = [float(share) for share in shares]
        if name.endswith("marked"):
            assert max(values) <= 5, name
        elif "clusters" not in name:
            assert min(values) >= 80, name


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_gate_of_a_template_passes_noise_and_not_14_against_4(template: str) -> None:
    folder = Path(ROOT) / "examples" / template
    (file,) = (folder / "experiments").glob("*.yaml")
    experiment = yaml.safe_load(file.read_text(encoding="utf-8"))
    (gate,) = (Gate.model_validate(g) for g in experiment["gates"] if g["metric"] == "flips")
    n = sum(
        len((folder / entry["path"]).read_text().splitlines()) for entry in experiment["datasets"]
    )
    assert gate.net and gate.at_most is not None
    assert gate.at_most >= flips_limit(n)
    broken = decide_flips(one_each(14, 4, n - 18), gate.at_most, net=True)
    assert broken.verdict is not Verdict.PASS
    rng, passed = np.random.default_rng(2), 0
    for _ in range(200):
        flipped = rng.choice(3, size=n, p=(0.15, 0.15, 0.7))
        b, f = (int((flipped == way).sum()) for way in (0, 1))
        passed += decide_flips(one_each(b, f, n - b - f), gate.at_most, net=True).verdict == "pass"
    assert passed >= 160
