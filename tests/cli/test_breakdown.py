"""What a person and a script see of slices, repeats and missing answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def project(mini: Folder) -> Folder:
    """Forty cases; those that are tagged hard fail, one in eight cannot be asked."""
    rows = []
    for index in range(40):
        hard = index % 3 == 0
        name = "fault" if index % 8 == 7 else f"P{index}"
        expected = "nobody" if hard else name
        row = {"id": f"c{index}", "input": {"name": name}, "expected": expected}
        rows.append(row | {"tags": ["hard"] if hard else ["easy"]})
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write(
        "script.jsonl",
        '{"match": "fault", "error": "CONTENT_FILTER"}\n'
        + "".join(f'{{"match": "P{i} ", "text": "hello P{i}"}}\n' for i in range(40)),
    )
    mini.write(
        "models.yaml", "small: {provider: sim, model: script, options: {file: script.jsonl}}\n"
    )
    for old in ("rubric: rubrics/tone.yaml\n", "judges: {pointwise: [judge]}\n"):
        mini.edit("experiments/hello.yaml", old, "")
    mini.edit("experiments/hello.yaml", "gates:\n", "max_errors: 50%\ngates:\n")
    return mini


def test_the_screen_names_what_is_weak_and_what_is_missing(edison: Edison, project: Folder) -> None:
    done = edison(project, "run")
    assert done.code == 0, done.all
    assert "5 error (12.5%)" in done.out
    assert "With 5 answers missing, the score lies between" in done.out
    assert "weak  tag hard: 0.0, 100.0 points below the other cases (12 cases)" in done.out
    (note,) = [line for line in done.err.splitlines() if line.endswith("--slices")]
    assert note.startswith("  ") and "comparison" in note, "it stands under the run it is about"
    assert "XS" not in done.out, "what does not stand out is shown on request"


def test_repeats_that_pass_together_are_told(edison: Edison, project: Folder) -> None:
    assert "  both repeats pass in 66% (" in edison(project, "run", "--repeats", "2").out
    assert "  all 3 repeats pass in 66% (" in edison(project, "run", "--repeats", "3").out


def test_slices_are_a_table_on_request(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    done = edison(project, "status", "latest", "--slices")
    assert done.code == 0
    (row,) = [line.split() for line in done.out.splitlines() if line.split()[:2] == ["tag", "easy"]]
    assert row[2] == "23" and row[-2:] == ["stands", "out"]
    assert done.err.count("after correction for their number") == 1
    assert edison(project, "status", "--slices").code == 2


def test_the_document_has_slices_rates_bounds_and_spread(edison: Edison, project: Folder) -> None:
    run = json.loads(edison(project, "run", "--json", "--repeats", "2").out)["runs"][0]
    assert run["rates"] == {"error": 0.125, "malformed": 0, "blocked": 0}
    assert run["bounds"]["missing"] == 10
    assert run["bounds"]["composite"]["worst"] < run["composite"]["estimate"]
    (both,) = run["reliability"]
    assert (both["k"], both["pass_all"]["n"]) == (2, 35)
    assert run["models"][0]["reliability"] == run["reliability"]
    (part,) = run["models"][0]["components"]
    assert (part["name"], part["min"], part["max"]) == ("contains expected", 0, 1)
    assert run["components"][0]["sd"] == pytest.approx(part["sd"])
    hard = [f for f in run["slices"] if f["value"] == "hard" and f["model"] == "small"]
    assert hard[0]["stands_out"] is True and hard[0]["composite"]["n"] == 12


def test_a_paused_run_has_no_breakdown_and_says_so(edison: Edison, project: Folder) -> None:
    project.edit("models.yaml", "options:", "price: {in: 1, out: 1}, options:")
    assert edison(project, "run", "--budget", "0.0001").code == 4
    done = edison(project, "status", "latest", "--slices")
    assert "there are no results by slice" in done.err
