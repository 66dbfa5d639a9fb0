"""edison run --aa: what gates say when nothing has changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.api import decisions
from edison_ci.store.merge import split_run

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

CASES = 30
SPLITS = 50
"""A quarter of what is usual, where nobody reads how many they are."""
EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks: [contains: "{{ expected }}"]
gates:
  - {metric: composite, no_worse_than: base, margin: MARGIN}
  - {metric: errors, at_most: 5%}
"""


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "SPLITS", SPLITS)


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A committed project whose simulated model names some people and not others."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write("experiments/hello.yaml", EXPERIMENT.replace("MARGIN", "20pp"))
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini)
    return mini


def commit(folder: Folder) -> None:
    folder.write(".gitignore", ".edison/\n")
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "next")


def counts(edison: Edison, folder: Folder, *args: str) -> dict[str, dict[str, int]]:
    done = edison(folder, "run", "--against", "HEAD", "--aa", *args, "--json")
    assert done.code in (0, 1, 5), done.all
    return {row["gate"]: row for row in json.loads(done.out)["aa"]}


@pytest.mark.nightly
def test_every_gate_decides_as_often_as_the_answers_are_split(
    edison: Edison, project: Folder, fewer: None
) -> None:
    found = counts(edison, project)
    assert list(found) == ["composite no_worse_than base", "errors at_most 0.05", ""]
    for row in found.values():
        assert row["pass"] + row["inconclusive"] + row["fail"] == SPLITS
    assert found["errors at_most 0.05"]["pass"] == SPLITS
    everything, compared = found[""], found["composite no_worse_than base"]
    assert everything["pass"] == compared["pass"]
    assert counts(edison, project) == found, "chance has a seed"


@pytest.mark.nightly
def test_a_margin_that_chance_alone_exceeds_is_found_out(
    edison: Edison, project: Folder, fewer: None
) -> None:
    wide = counts(edison, project)["composite no_worse_than base"]
    project.write("experiments/hello.yaml", EXPERIMENT.replace("MARGIN", "1pp"))
    commit(project)
    narrow = counts(edison, project)["composite no_worse_than base"]
    assert narrow["inconclusive"] + narrow["fail"] > wide["inconclusive"] + wide["fail"]


@pytest.mark.nightly
def test_a_person_reads_a_table(edison: Edison, project: Folder) -> None:
    done = edison(project, "run", "--against", "HEAD", "--aa")
    assert "A/A: the answers to each case were split 200 times at random" in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("  all gates"))
    assert "% of 200 (" in line


@pytest.mark.nightly
def test_the_answers_are_bought_once_and_each_is_dealt_once(
    edison: Edison, project: Folder, fewer: None
) -> None:
    counts(edison, project)
    done = edison(project, "run", "--against", "HEAD", "--aa", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert (run["cells"]["total"], run["calls"]["made"]) == (2 * CASES, 0)
    results = project.path / ".edison/results.db"
    before = results.read_bytes()
    with split_run(results, run["run_id"]) as split:
        split.deal()
        sides = split.connection.execute(
            "select case_id, group_concat(side || repeat, ' ') from (select * from cell order by "
            "side) group by case_id"
        ).fetchall()
        dealt = [row[0] for row in split.connection.execute("select side from cell order by id")]
        split.deal()
        again = [row[0] for row in split.connection.execute("select side from cell order by id")]
    assert [told for _, told in sides] == ["base0 head0"] * CASES
    assert dealt != again
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--aa",), "--aa needs --against"),
        (("--aa", "--against", "HEAD", "--shard", "1/2"), "--aa and --shard exclude each other"),
        (("--aa", "--against", "HEAD", "--repeats", "60"), "--aa needs 120 answers"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    edison: Edison, project: Folder, args: tuple[str, ...], said: str
) -> None:
    done = edison(project, "run", *args)
    assert done.code == 2
    assert said in done.err


def test_a_changed_prompt_is_no_identical_input(edison: Edison, project: Folder) -> None:
    project.edit("prompts/hello.md", "friendly", "kind")
    done = edison(project, "run", "--against", "HEAD", "--aa")
    assert done.code == 2
    assert "hello is not the same as at HEAD" in done.err
    assert not (project.path / ".edison/results.db").exists()
