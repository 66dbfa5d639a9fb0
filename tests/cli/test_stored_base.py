"""Without --against a stored run of the merge base may serve as base, or it is said why not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixed_keys import signing_keys
from tests.loopback.server import LoopbackServer
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 20
EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks: [chars: {min: 1}]
gates:
  - {metric: composite, no_worse_than: base, margin: 20pp}
  - {metric: composite, at_least: 50%}
"""


@pytest.fixture
def project(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A project in a repository, with a model that is not simulated."""
    monkeypatch.setenv("OWN_KEY", "k-123456789012")
    with LoopbackServer([]) as server:
        url = server.openai_url
        origin = "/".join(url.split("/")[:3])
        rows = (f'{{"id": "c{i}", "input": {{"name": "P {i}"}}}}\n' for i in range(CASES))
        mini.write("datasets/names.jsonl", "".join(rows))
        mini.write("experiments/hello.yaml", EXPERIMENT)
        mini.write(
            "models.yaml",
            f"small: {{provider: openai_compatible, base_url: '{url}', model: m, "
            "key_env: OWN_KEY, price: {in: 1, out: 2}}\njudge: {provider: sim, model: judge}\n",
        )
        keys = f"version: 1\nkeys:\n  - {{env: OWN_KEY, hosts: ['{origin}']}}\n"
        mini.write(".edison/trust.yaml", keys)
        mini.write(".gitignore", ".edison/results.db*\n.edison/locks/\n.edison/snapshots/\n")
        mini.git("init", "--quiet", "--initial-branch=main")
        commit(mini)
        yield mini


def commit(folder: Folder) -> None:
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "next")


def change(folder: Folder) -> None:
    folder.edit("prompts/hello.md", "friendly sentence", "kind sentence")


def gates(edison: Edison, folder: Folder, *words: str) -> list[dict[str, Any]]:
    done = edison(folder, *(words or ("run",)), "--json")
    found = json.loads(done.out)
    rows = list(found["gates"] if "gates" in found else found["runs"][-1]["gates"])
    assert rows, done.all
    return rows


def change_results(folder: Folder, *statements: str) -> None:
    with opened(folder.path / ".edison/results.db") as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_stored_run_of_the_merge_base_serves_as_base(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    project.git("checkout", "--quiet", "-b", "topic")
    change(project)
    commit(project)
    compared, floor = gates(edison, project)
    assert (compared["verdict"], compared["n"]) == ("pass", CASES)
    base = compared["detail"]["base"]
    assert (base["ref"], base["commit"]) == ("main", project.git("rev-parse", "main"))
    assert f"The base is run {base['run_id']}, of main at " in compared["sentence"]
    assert "base" not in floor["detail"]
    assert (floor["verdict"], floor["n"]) == ("pass", CASES)
    again = gates(edison, project, "compare", "--gates")
    assert [row["sentence"] for row in again] == [compared["sentence"], floor["sentence"]]


def test_the_base_side_of_a_comparison_serves_too(edison: Edison, project: Folder) -> None:
    change(project)
    edison(project, "run", "--against", "main")
    project.edit("prompts/hello.md", "kind sentence", "cordial sentence")
    compared, _ = gates(edison, project)
    assert compared["verdict"] == "pass", compared["sentence"]
    assert compared["detail"]["base"]["side"] == "base"


def test_the_stored_base_says_which_inputs_are_the_same(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    project.edit("prompts/hello.md", "{{ name }}", "everybody")
    compared, floor = gates(edison, project)
    assert compared["verdict"] == "pass", "to the base these are different inputs"
    for row in (compared, floor, *gates(edison, project, "compare", "--gates")):
        assert "different input" not in row["sentence"]


def test_more_repeats_are_not_taken_of_a_stored_base(edison: Edison, project: Folder) -> None:
    project.edit("experiments/hello.yaml", "20pp}", "1pp, if_unclear: more_repeats}")
    commit(project)
    edison(project, "run")
    change(project)
    compared, _ = gates(edison, project)
    assert compared["verdict"] == "inconclusive"
    assert "More repeats need both sides in one run" in compared["sentence"]


def skipped(edison: Edison, project: Folder) -> str:
    compared, floor = gates(edison, project)
    assert (compared["verdict"], floor["verdict"]) == ("skipped", "pass")
    said: str = compared["sentence"]
    assert said.startswith("No base to compare with: ")
    return said


def test_nothing_is_stored(edison: Edison, project: Folder) -> None:
    said = skipped(edison, project)
    assert "no complete run of main at " in said
    assert said.endswith("Get one with `edison run hello --against main`.")


def test_a_filtered_run_never_serves(edison: Edison, project: Folder) -> None:
    edison(project, "run", "--limit", "15")
    assert "has only some of the cases" in skipped(edison, project)


def test_a_simulated_run_never_serves(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    change_results(project, "update run set simulated = 1")
    assert "is simulated, and such runs never serve as base" in skipped(edison, project)


def test_a_replayed_run_never_serves(edison: Edison, project: Folder) -> None:
    edison(project, "run", "--record", "answers.jsonl")
    edison(project, "run", "--replay", "answers.jsonl")
    change_results(project, "update run set complete = 0 where trigger <> 'replay'")
    assert "answers from a recording" in skipped(edison, project)


def test_a_run_from_a_bundle_never_serves(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    assert edison(project, "report", "--out", "run.zip").code == 0
    for left in (project.path / ".edison").glob("results.db*"):
        left.unlink()
    assert edison(project, "import", "bundle", "run.zip").code == 0
    assert "came in with a bundle" in skipped(edison, project)


@pytest.mark.nightly
def test_answers_from_elsewhere_never_serve_however_often_they_are_graded(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    assert edison(project, "report", "--out", "run.zip").code == 0
    for left in (project.path / ".edison").glob("results.db*"):
        left.unlink()
    assert edison(project, "import", "bundle", "run.zip").code == 0
    for _ in range(2):  # also what was graded again is graded again
        (run,) = json.loads(edison(project, "regrade", "latest", "--json").out)["runs"]
        assert run["trigger"] == "outputs"
    assert "has imported answers" in skipped(edison, project)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_signed_run_from_a_bundle_serves_where_its_key_is_trusted(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    keys = signing_keys("ours")
    monkeypatch.setenv("EDISON_SIGNING_KEY", keys.private)
    edison(project, "run", "-q")
    assert edison(project, "report", "--out", "run.zip").code == 0
    for left in (project.path / ".edison").glob("results.db*"):
        left.unlink()
    listed = keys.public if trusted else signing_keys("theirs").public
    text = project.read(".edison/trust.yaml")
    project.write(".edison/trust.yaml", f"{text}results: {{public_keys: ['{listed}']}}\n")
    assert edison(project, "import", "bundle", "run.zip").code == 0
    if not trusted:
        assert "came in with a bundle" in skipped(edison, project)
        change_results(project, "update run set complete = 0 where trigger <> 'import'")
        done = edison(project, "compare", "main", "latest")
        assert (done.code, "there is no complete run of hello at main" in done.err) == (2, True)
        return
    compared, _ = gates(edison, project)
    assert (compared["verdict"], compared["n"]) == ("pass", CASES)
    # How it was started there counts as it would here.
    own = "update run set complete = 0 where trigger <> 'import'"
    change_results(project, "update run_origin set ran_as = 'replay'", own)
    assert "answers from a recording" in skipped(edison, project)


def test_another_yardstick_is_not_comparable(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    project.edit("experiments/hello.yaml", "chars: {min: 1}", "chars: {min: 2}")
    assert "was measured with another checks" in skipped(edison, project)


def test_answers_of_another_day_are_not_comparable(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    change_results(
        project,
        "drop trigger answer_is_kept",
        "update answer set created_at = strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-25 hours')",
    )
    change(project)
    assert "has answers more than 24 hours from these" in skipped(edison, project)
    project.edit("prompts/hello.md", "kind sentence", "friendly sentence")
    compared, _ = gates(edison, project)
    assert compared["verdict"] == "pass", "the very same answers are of the same day"


def test_another_commit_is_not_the_base(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    change(project)
    commit(project)
    project.edit("prompts/hello.md", "kind sentence", "cordial sentence")
    assert "no complete run of main at " in skipped(edison, project)


def test_a_prompt_of_another_name_is_another_prompt(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    project.write("prompts/other.md", project.read("prompts/hello.md").replace("hello", "other", 1))
    project.edit("experiments/hello.yaml", "prompts/hello.md", "prompts/other.md")
    assert "has no prompt of this one" in skipped(edison, project)


def test_without_a_repository_it_says_so(edison: Edison, mini: Folder) -> None:
    (row,) = gates(edison, mini)
    assert row["verdict"] == "skipped"
    assert "this project is not in a Git repository" in row["sentence"]
