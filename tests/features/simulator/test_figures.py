"""The figures that the simulator promises, on a bounded sample; the benchmark has them all."""

from __future__ import annotations

import statistics
from functools import cache
from random import Random

import pytest

from benchmarks.sim import (
    DRIFT,
    LEAST_GAIN,
    NAMES,
    SHIPPED_PASS,
    TOP,
    Figures,
    every_instruction,
    figures,
    random_edit,
    refined_prompts,
)
from tests.features.simulator.conftest import example, variables_of

pytestmark = pytest.mark.daily

EDITS = 8


@cache
def rounds(name: str) -> list[tuple[str, Figures]]:
    return refined_prompts(example(name), range(2))


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_the_refiner_gains_with_its_first_diff_and_at_least_15_points_in_all(name: str) -> None:
    shipped, first = rounds(name)[0][1], rounds(name)[1][1]
    assert first.points - shipped.points >= LEAST_GAIN / 2  # of one instruction
    assert rounds(name)[-1][1].points - shipped.points >= LEAST_GAIN


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_prompt_passes_its_gate_with_room_to_improve(name: str) -> None:
    low, high = SHIPPED_PASS
    shipped, refined = rounds(name)[0][1], rounds(name)[-1][1]
    assert low <= shipped.pass_rate <= high
    assert refined.pass_rate > shipped.pass_rate + 15


@pytest.mark.parametrize("name", NAMES)
def test_nothing_reaches_more_than_97_points(name: str) -> None:
    best = figures(example(name), every_instruction(example(name)), model="large")
    assert best.points <= TOP


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_large_beats_small_by_a_few_points(name: str) -> None:
    project = example(name)
    small = figures(project, project.prompt, repeats=range(3)).points
    large = figures(project, project.prompt, model="large", repeats=range(3)).points
    assert 1 < large - small < 12


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES[:1])  # the benchmark has the others, in a minute
def test_random_edits_gain_nothing(name: str) -> None:
    project = example(name)
    base = figures(project, project.prompt, repeats=range(EDITS)).points
    edited = [random_edit(project.prompt, Random(seed)) for seed in range(EDITS)]
    points = [figures(project, text, repeats=(seed,)).points for seed, text in enumerate(edited)]
    assert abs(statistics.fmean(points) - base) <= DRIFT


@pytest.mark.parametrize("name", NAMES)
def test_random_edits_change_the_text_and_keep_its_variables(name: str) -> None:
    prompt = example(name).prompt
    edited = [random_edit(prompt, Random(seed)) for seed in range(100)]
    assert sum(text != prompt for text in edited) > 90
    assert all(variables_of(text) == variables_of(prompt) for text in edited)


@pytest.mark.parametrize("prompt", ["", "\n", "{{ x }}", "---\nid: x\n---\n{{ x }}\n"])
def test_a_prompt_without_instructions_is_left_alone(prompt: str) -> None:
    assert random_edit(prompt, Random(1)) == prompt
