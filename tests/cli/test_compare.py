"""edison compare: which is better, by what is stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 30


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project of 30 cases in Git, with one run of its only commit."""
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.edit("models.yaml", "model: small}", "model: echo}")
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    mini.write(".gitignore", ".edison/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini, "start")
    return mini


def commit(folder: Folder, message: str) -> str:
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", message)
    return folder.git("rev-parse", "HEAD")


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, *args, "--json")
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def versions(folder: Folder) -> list[str]:
    with opened(folder.path / ".edison/results.db") as connection:
        rows = connection.execute("select version from cell group by version order by min(rowid)")
        return [version[:8] for (version,) in rows]


def broken(folder: Folder) -> None:
    """Make the prompt lose the name, so that its check fails everywhere."""
    folder.edit("prompts/hello.md", "hello to {{ name }}", "hello to {{ name | lower }}")


def test_a_commit_stands_for_the_newest_complete_run_of_it(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    edison(project, "run", "-q", "--limit", "3")
    broken(project)
    second = commit(project, "lose the name")
    edison(project, "run", "-q")
    found = told(edison, project, "compare", "HEAD~1", "HEAD")
    assert list(found)[:9] == [
        "schema_version", "a", "b", "n", "difference", "verdict", "sentence", "fixed",
        "newly_failing",
    ]  # fmt: skip
    assert set(found["difference"]) == {"estimate", "low", "high", "p", "method"}
    assert (found["verdict"], found["n"]) == ("a_better", CASES)
    assert len(found["newly_failing"]) == CASES
    assert (found["b"]["commit"], found["a"]["asked"]) == (second, "HEAD~1")
    shown = edison(project, "compare", "HEAD~1", "latest").out
    assert "A is better: from A to B -100.0 points" in shown
    assert "30 newly failing: c0 100 to 0, " in shown


def test_a_run_of_uncommitted_files_is_of_no_commit(edison: Edison, project: Folder) -> None:
    broken(project)
    edison(project, "run", "-q")
    done = edison(project, "compare", "HEAD", "latest")
    assert (done.code, "there is no complete run of hello at HEAD" in done.err) == (2, True)
    assert "edison run hello --against HEAD" in done.err


def test_the_base_of_a_comparison_stands_for_its_commit(edison: Edison, project: Folder) -> None:
    broken(project)
    edison(project, "run", "-q", "--against", "main")
    found = told(edison, project, "compare", "main", "latest")
    assert (found["a"]["side"], found["a"]["run_id"]) == ("base", found["b"]["run_id"])
    assert (found["verdict"], found["n"]) == ("a_better", CASES)


def test_versions_of_a_prompt_are_compared_wherever_they_were_run(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    broken(project)
    edison(project, "run", "-q")
    old, new = versions(project)
    found = told(edison, project, "compare", f"hello@{new}", f"hello@{old}")
    assert (found["verdict"], found["b"]["hash"]) == ("b_better", old)
    assert told(edison, project, "compare", f"hello@{old}", "hello")["verdict"] == "a_better"
    done = edison(project, "compare", "hello@00000000", "latest")
    assert (done.code, f"there are: {old}, {new}" in done.err) == (2, True)


def test_production_is_what_the_prompt_says(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    (old,) = versions(project)
    done = edison(project, "compare", "production", "latest")
    assert (done.code, "names its version in production" in done.err) == (2, True)
    project.edit("prompts/hello.md", "id: hello\n", f"id: hello\nproduction: {old}\n")
    broken(project)
    edison(project, "run", "-q")
    assert told(edison, project, "compare", "production", "latest")["verdict"] == "a_better"
    project.edit("prompts/hello.md", f"production: {old}", "production: v1")
    assert told(edison, project, "compare", "production", "latest")["verdict"] == "a_better"


def test_runs_that_were_graded_otherwise_are_refused_until_graded_anew(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    first = told(edison, project, "status", "latest")["runs"][0]["run_id"]
    project.edit("experiments/hello.yaml", "checks:\n", "checks:\n  - words: {max: 3}\n")
    edison(project, "run", "-q")
    done = edison(project, "compare", first, "latest")
    assert (done.code, "not measured alike: checks differ" in done.err) == (2, True)
    assert f"edison regrade {first}" in done.err
    edison(project, "regrade", first, "-q")
    assert told(edison, project, "compare", "latest", "hello")["verdict"] == "same"


def test_a_case_that_was_edited_is_not_compared(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    first = told(edison, project, "status", "latest")["runs"][0]["run_id"]
    project.edit("datasets/names.jsonl", '"name": "P7"', '"name": "Pip"')
    edison(project, "run", "-q")
    found = told(edison, project, "compare", first, "latest")
    assert found["n"] == CASES - 1
    assert found["notes"] == ["1 case no longer the same, not compared: c7"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothere", "latest"], "'nothere' is not a run, experiment or commit"),
        (["nothere", "latest"], "for runs see: edison status"),
        (["lates", "latest"], "did you mean 'latest'?"),
        (["mian", "latest"], "did you mean 'main'?"),
        (["helo@12345678", "latest"], "there is no prompt 'helo'"),
        (["hello@v1", "latest"], "write its hash: edison history hello"),
        (["v1", "v2"], "versions of a prompt: edison diff A B"),
        (["latest", "main", "--experiment", "other"], "no complete run of other"),
    ],
)
def test_what_is_not_there_is_told(
    edison: Edison, project: Folder, words: list[str], said: str
) -> None:
    edison(project, "run", "-q", "--limit", "2")
    done = edison(project, "compare", *words)
    assert (done.code, said in done.err) == (2, True), done.all


# --- two prompts of one experiment ----------------------------------------------------------------


@pytest.fixture
def both(project: Folder) -> Folder:
    """The project with a second prompt, which loses the name."""
    text = project.read("prompts/hello.md").replace("id: hello", "id: lost")
    project.write("prompts/lost.md", text.replace("to {{ name }}", "to {{ name | first }}"))
    project.edit(
        "experiments/hello.yaml", "[prompts/hello.md]", "[prompts/hello.md, prompts/lost.md]"
    )
    return project


def test_two_prompts_of_a_run_are_compared(edison: Edison, both: Folder) -> None:
    edison(both, "run", "-q")
    found = told(edison, both, "compare", "--prompts", "lost", "prompts/hello.md")
    assert (found["verdict"], found["n"]) == ("b_better", CASES)
    assert (found["a"]["prompt"], found["b"]["prompt"]) == ("lost", "hello")
    assert len(found["fixed"]) == CASES
    shown = edison(both, "compare", "--prompts", "hello", "lost", "--model", "small").out
    assert "A is better: from A to B -100.0 points" in shown
    assert edison(both, "compare", "--prompts", "hello", "lost", "--model", "big").code == 2


def test_prompts_that_never_met_are_told(edison: Edison, both: Folder) -> None:
    both.edit("experiments/hello.yaml", "[prompts/hello.md, prompts/lost.md]", "[prompts/hello.md]")
    edison(both, "run", "-q")
    done = edison(both, "compare", "--prompts", "hello", "lost")
    assert (done.code, "no complete run has both hello and lost" in done.err) == (2, True)
    assert "edison compare hello@HASH" in edison(both, "compare", "--prompts", "hello", "hello").err


# --- gates ----------------------------------------------------------------------------------------

FLOOR = "gates:\n  - {metric: pass_rate, at_least: 80%}\n"


def test_the_gates_of_today_decide_and_nothing_is_written(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    project.edit("experiments/hello.yaml", "gates:\n", FLOOR)
    found = told(edison, project, "compare", "--gates")
    assert found["simulated"] is True
    assert (found["verdict"], found["exit_code"], found["decided"]) == ("pass", 0, "skipped")
    assert [row["verdict"] for row in found["gates"]] == ["pass", "skipped"]
    broken(project)
    edison(project, "run", "-q")
    done = edison(project, "compare", "--gates")
    assert done.code == 1
    assert done.out.startswith("hello  FAIL  run ")
    with opened(project.path / ".edison/results.db") as connection:
        rounds = connection.execute("select count(*), max(round) from decision").fetchone()
    assert rounds == (3, 0)


def test_a_stored_run_may_be_the_base(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    broken(project)
    edison(project, "run", "-q")
    done = edison(project, "compare", "--gates", "latest", "--against", "main", "--json")
    found = json.loads(done.out)
    assert (done.code, found["verdict"], found["against"]["asked"]) == (1, "fail", "main")
    assert found["gates"][0]["n"] == CASES


def test_the_base_that_a_run_was_made_with_is_used(edison: Edison, project: Folder) -> None:
    broken(project)
    assert edison(project, "run", "-q", "--against", "main").code == 1
    found = json.loads(edison(project, "compare", "--gates", "--json").out)
    assert (found["verdict"], found["gates"][0]["verdict"]) == ("fail", "fail")


def test_an_unclear_gate_that_insists_ends_with_5(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    floor = "gates:\n  - {metric: pass_rate, at_least: 99%, if_unclear: fail}\n"
    project.edit("experiments/hello.yaml", "gates:\n", floor)
    assert edison(project, "compare", "--gates").code == 5


def test_a_run_that_is_not_over_is_not_decided(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    with opened(project.path / ".edison/results.db") as connection:
        connection.execute("update run set status = 'PAUSED'")
    done = edison(project, "compare", "--gates")
    assert (done.code, "edison resume" in done.err) == (2, True)
    with opened(project.path / ".edison/results.db") as connection:
        connection.execute("update run set status = 'FAILED'")
    assert edison(project, "compare", "--gates").code == 3
