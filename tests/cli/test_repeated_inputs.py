"""20 questions under 100 ids are 20 cases, by the prompt of the base, in every command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.load import load_project
from edison_ci.results.leaderboard import case_filter_of
from edison_ci.store.cells import clusters_of
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

HELLO = "experiments/hello.yaml"
PROMPT = "prompts/hello.md"
IDS, INPUTS = 100, 20
SAID = "100 cases, 20 different inputs: n is 20"
CLUSTERS = {f"c{i:03}": f"input of c{i % INPUTS:03}" for i in range(IDS)}


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project in a repository, with a script of answers in place of a model."""
    rows = (
        {"id": f"c{i:03}", "input": {"name": f"P{i % INPUTS:02}", "town": f"T{i}"}}
        for i in range(IDS)
    )
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write("answers.jsonl", '{"match": "", "text": "Good morning!"}\n')
    mini.write(
        "models.yaml", "small: {provider: sim, model: script, options: {file: answers.jsonl}}\n"
    )
    mini.write(
        HELLO,
        "experiment: hello\nobjective: Greet people by their name in a friendly way.\n"
        "prompts: [prompts/hello.md]\nmodels: [small]\ndataset: datasets/names.jsonl\n"
        "checks: [contains: morning]\n"
        "gates: [{metric: composite, no_worse_than: base}, {metric: pass_rate, at_least: 50%}]\n",
    )
    mini.write(".gitignore", ".edison/results.db*\n.edison/locks/\n.edison/snapshots/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini)
    return mini


def commit(folder: Folder) -> None:
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "next")


def stored(folder: Folder, *run_ids: str) -> dict[str, str]:
    with opened(folder.path / ".edison/results.db") as connection:
        return clusters_of(connection, *run_ids)


def run(edison: Edison, folder: Folder, *words: str) -> dict[str, Any]:
    done = edison(folder, *(words or ("run",)), "--json")
    found: dict[str, Any] = json.loads(done.out)["runs"][0]
    return found


def test_every_command_says_how_many_cases_count(edison: Edison, project: Folder) -> None:
    warned = "100 cases, 20 different inputs: cases with the same input count as one"
    assert warned in edison(project, "validate").out
    said = edison(project, "plan").out
    assert SAID in said
    assert "With 20 different inputs you can detect" in said
    assert "margin needs about 200 different inputs: not yet enough" in said
    (plan,) = json.loads(edison(project, "plan", "--json").out)["experiments"]
    assert (plan["cases"], plan["different_inputs"]) == (IDS, INPUTS)
    assert f"{SAID}." in edison(project, "run").out
    assert f"{SAID}." in edison(project, "report", "latest", "--format", "md").out
    assert f"{SAID}." in edison(project, "compare", "--gates").out


def test_a_run_without_gates_says_it_in_its_report(edison: Edison, project: Folder) -> None:
    project.write(HELLO, project.read(HELLO).partition("gates:")[0])
    run_id = run(edison, project)["run_id"]
    assert stored(project, run_id) == CLUSTERS
    assert f"{SAID}." in edison(project, "report", "latest", "--format", "md").out


def test_twenty_inputs_prove_no_more_than_twenty_cases(edison: Edison, project: Folder) -> None:
    project.edit(PROMPT, "friendly", "kind")
    compared, floor = run(edison, project, "run", "--against", "main")["gates"]
    assert compared["verdict"] == "inconclusive", "53 ties are needed, and there are 20"
    assert compared["sentence"].endswith(f"{SAID}.")
    assert floor["sentence"].endswith(f"{SAID}.")


def test_a_head_that_drops_a_variable_joins_no_cases(edison: Edison, project: Folder) -> None:
    project.edit(PROMPT, "{{ name }}", "{{ name }} of {{ town }}")
    commit(project)
    project.edit(PROMPT, "{{ name }} of {{ town }}", "everybody")
    found = run(edison, project, "run", "--against", "main")
    assert stored(project, found["run_id"]) == {}
    assert found["gates"][0]["verdict"] == "pass"
    alone = run(edison, project)["run_id"]
    assert {*stored(project, alone).values()} == {"input of c000"}, "its own prompt counts"


def test_a_head_that_adds_a_variable_parts_no_cases(edison: Edison, project: Folder) -> None:
    project.edit(PROMPT, "{{ name }}", "{{ name }} of {{ town }}")
    found = run(edison, project, "run", "--against", "main")
    assert stored(project, found["run_id"]) == CLUSTERS
    assert found["gates"][0]["verdict"] == "inconclusive"


def test_a_comparison_of_stored_runs_takes_the_inputs_of_the_first(
    edison: Edison, project: Folder
) -> None:
    first = run(edison, project)["run_id"]
    project.edit(PROMPT, "{{ name }}", "{{ name }} of {{ town }}")
    second = run(edison, project)["run_id"]
    assert stored(project, first, second) == CLUSTERS
    assert stored(project, second, first) == {}
    done = edison(project, "compare", "--gates", second, "--against", first, "--json")
    compared = json.loads(done.out)["gates"][0]
    assert compared["sentence"].endswith(f"{SAID}.")
    done = edison(project, "compare", "--gates", first, "--against", second, "--json")
    assert SAID not in json.loads(done.out)["gates"][0]["sentence"]


def test_early_stopping_takes_inputs_whole(edison: Edison, project: Folder) -> None:
    project.edit(HELLO, "gates:", "stop: {adaptive_sampling: true}\ngates:")
    commit(project)
    project.edit(PROMPT, "friendly", "kind")
    compared = run(edison, project, "run", "--against", "main")["gates"][0]
    history = compared["detail"]["interim"]
    assert (history["at"], history["number"]) == (IDS, 1), "a batch of 20 inputs has 100 cases"
    assert compared["verdict"] == "inconclusive"


def test_a_regrade_and_leaderboards_keep_the_inputs(edison: Edison, project: Folder) -> None:
    first = run(edison, project)["run_id"]
    second = run(edison, project, "regrade", first)["run_id"]
    assert second != first
    assert stored(project, second) == CLUSTERS
    project.edit(PROMPT, "{{ name }}", "{{ name }} of {{ town }}")
    with opened(project.path / ".edison/results.db") as connection:
        found = case_filter_of(load_project(project.path), "hello", connection)
    assert found.clusters == CLUSTERS, "as they were measured, not as the files are now"


def test_shards_name_the_same_clusters(edison: Edison, project: Folder) -> None:
    found: dict[str, str] = {}
    for index in (1, 2):
        done = run(edison, project, "run", "--shard", f"{index}/2")
        found |= stored(project, done["run_id"])
    assert found == CLUSTERS
