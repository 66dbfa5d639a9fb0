"""What all commands that only read have in common."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.terminal import sparkline
from edison_ci.numeric import dollars, milliseconds
from edison_ci.store.database import open_database
from tests.planted import Planted, plant
from tests.test_architecture import HEAVY, loaded_by

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

FROM_RESULTS = [["leaderboard"], ["costs"], ["leaderboard", "--recommend"], ["trends"]]
ALL = [
    *FROM_RESULTS,
    ["history", "hello"],
    ["diff", "v1", "hello"],
    ["dataset", "show"],
    ["dataset", "stats"],
    ["dataset", "health"],
]
SCORES = {"small": [0.5, 0.9, 0.7], "large": [0.6, 0.9, 0.8]}


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_run_that_writes_does_not_disturb_nor_is_disturbed(
    edison: Edison, mini: Folder, words: list[str]
) -> None:
    path = plant(mini, Planted("r1", "2026-11-14T09:00:00Z", SCORES))
    writer = open_database(path)
    writer.execute("begin immediate")
    writer.execute("update run set experiment = 'halfway'")
    before = hashlib.sha256(path.read_bytes()).digest()
    done = edison(mini, *words, "--json")
    assert done.code == 0, done.all
    assert "halfway" not in done.out
    assert hashlib.sha256(path.read_bytes()).digest() == before
    writer.execute("commit")
    writer.close()


@pytest.mark.parametrize("words", FROM_RESULTS, ids=" ".join)
def test_without_results_it_says_what_to_do(edison: Edison, mini: Folder, words: list[str]) -> None:
    done = edison(mini, *words)
    assert (done.code, "run something first: edison run" in done.err) == (2, True)
    document = json.loads(edison(mini, *words, "--json").out)
    assert document["error"]["hint"] == "run something first: edison run"
    assert not (mini.path / ".edison").exists(), "reading makes nothing"


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_quiet_is_quiet(edison: Edison, mini: Folder, words: list[str]) -> None:
    plant(mini, Planted("r1", "2026-11-14T09:00:00Z", SCORES))
    done = edison(mini, *words, "-q")
    assert (done.code, done.all) == (0, "")


def test_a_half_edited_file_does_not_hide_what_is_stored(edison: Edison, mini: Folder) -> None:
    edison(mini, "run", "-q")
    words = (
        ["costs"], ["leaderboard"], ["leaderboard", "--recommend"], ["trends"],
        ["history", "hello"], ["explain", "ada@small"],
    )  # fmt: skip
    before = [edison(mini, *each) for each in words]
    mini.write("models.yaml", mini.read("models.yaml") + "big: {provider: op")
    for each, whole in zip(words, before, strict=True):
        done = edison(mini, *each)
        assert done.code == 0, done.all
        assert done.err.startswith("warning: models.yaml:3:6: not valid YAML")
        assert "stored results are shown without the contents" in done.err
        assert done.out.splitlines()[:2] == whole.out.splitlines()[:2]
    assert edison(mini, "run").code == 2
    mini.write("edison.yaml", "version: 1\nproject: [\n")
    assert edison(mini, "costs").code == 2


def test_clusters_are_known_although_the_experiment_is_not(edison: Edison, mini: Folder) -> None:
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": "P1", "cluster": f"k{i // 4}"}
            for i in range(12))  # fmt: skip
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    edison(mini, "run", "-q")
    whole = edison(mini, "leaderboard").out
    mini.edit("experiments/hello.yaml", "models:", "model:")
    assert edison(mini, "leaderboard").out == whole


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([None, None], ""),
        ([1.0], "▄"),
        ([0.0, 0.0], "▁▁"),
        ([1.0, None, 2.0], "▁ █"),
        ([0.0, 0.5, 1.0], "▁▅█"),
        (
            [float(n) for n in range(100)],
            "▁▁▁▁▁▂▂▂▂▂▂▂▂▃▃▃▃▃▃▃▃▃▄▄▄▄▄▄▄▄▅▅▅▅▅▅▅▅▆▆▆▆▆▆▆▆▆▇▇▇▇▇▇▇▇█████",
        ),
    ],
)
def test_a_line_of_bars_is_as_high_as_its_numbers(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


def test_amounts_from_nothing_on_start_at_the_bottom() -> None:
    assert sparkline([5.0, 10.0], from_zero=True) == "▅█"
    assert sparkline([5.0, 10.0]) == "▁█"


def test_small_prices_keep_their_digits() -> None:
    assert [dollars(value) for value in (None, 0, 12.5, 440, 12_345)] == [
        "-", "$0", "$0.000013", "$0.000440", "$0.0123",
    ]  # fmt: skip
    assert [milliseconds(None), milliseconds(1234, 5678.4)] == ["-", "1,234 ms, p95 5,678 ms"]


@pytest.mark.nightly
@pytest.mark.parametrize("words", [["costs"], ["dataset", "stats"]], ids=" ".join)
def test_sums_need_no_statistics(mini: Folder, words: list[str]) -> None:
    plant(mini, Planted("r1", "2026-11-14T09:00:00Z", SCORES))
    assert not loaded_by(*words, cwd=mini.path) & HEAVY
