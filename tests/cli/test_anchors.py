"""Gates compare with a fixed version: a tag, or the prompt version in production."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback.server import LoopbackServer
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks: [chars: {min: 1}]
gates:
  - {metric: composite, no_worse_than: ANCHOR}
"""


@pytest.fixture
def project(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A project in a repository, with a tag, and with a model that is not simulated."""
    monkeypatch.setenv("OWN_KEY", "k-123456789012")
    with LoopbackServer([]) as server:
        url = server.openai_url
        origin = "/".join(url.split("/")[:3])
        rows = (f'{{"id": "c{i}", "input": {{"name": "P {i}"}}}}\n' for i in range(60))
        mini.write("datasets/names.jsonl", "".join(rows))
        mini.write("experiments/hello.yaml", EXPERIMENT.replace("ANCHOR", "{anchor: v1}"))
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
        mini.git("tag", "v1")
        yield mini


def commit(folder: Folder) -> str:
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "next")
    return head(folder)


def head(folder: Folder) -> str:
    return folder.git("rev-parse", "HEAD")


def change(folder: Folder, word: str) -> str:
    text = (folder.path / "prompts/hello.md").read_text(encoding="utf-8")
    folder.write("prompts/hello.md", text.rstrip() + f" Be {word}.\n")
    return commit(folder)


def in_production(folder: Folder) -> None:
    folder.edit("experiments/hello.yaml", "{anchor: v1}", "production")


def gate(edison: Edison, folder: Folder, *words: str) -> dict[str, Any]:
    done = edison(folder, *(words or ("run",)), "--json")
    found = json.loads(done.out)
    rows = found["gates"] if "gates" in found else found["runs"][0]["gates"]
    return dict(rows[0])


def later(folder: Folder) -> None:
    """Move all answers far into the past."""
    with opened(folder.path / ".edison/results.db") as connection:
        connection.execute("drop trigger answer_is_kept")
        connection.execute("update answer set created_at = '2020-01-01T00:00:00Z'")


def test_a_tag_that_was_not_measured_leaves_the_gate_open(edison: Edison, project: Folder) -> None:
    change(project, "kind")
    row = gate(edison, project)
    assert row["verdict"] == "inconclusive"
    assert row["sentence"] == (
        "Not compared with tag v1: no complete run of it is stored. Measure it with "
        "`edison run hello --against v1`."
    )


def test_a_stored_run_of_the_tag_serves(edison: Edison, project: Folder) -> None:
    at = head(project)
    edison(project, "run")
    change(project, "kind")
    change(project, "brief")
    row = gate(edison, project)
    assert row["verdict"] == "pass"
    assert row["sentence"].startswith("Distance to tag v1: 0 points (likely ")
    assert row["sentence"].endswith(f", at {at[:8]}.")
    assert row["detail"]["base"]["name"] == "tag v1"
    assert row["detail"]["base"]["commit"] == at


def test_old_answers_of_the_tag_do_not_serve(edison: Edison, project: Folder) -> None:
    edison(project, "run")
    later(project)
    change(project, "kind")
    row = gate(edison, project)
    assert row["verdict"] == "inconclusive"
    assert "has answers more than 24 hours from these" in row["sentence"]


@pytest.mark.nightly
def test_the_base_serves_if_it_is_the_tag(edison: Edison, project: Folder) -> None:
    change(project, "kind")
    row = gate(edison, project, "run", "--against", "v1")
    assert row["verdict"] == "pass"
    assert "Tag v1 is the base of this run" in row["sentence"]
    # The base side of that run then serves a comparison with another base.
    change(project, "brief")
    row = gate(edison, project, "run", "--against", "HEAD~1")
    assert row["verdict"] == "pass"
    assert row["sentence"].startswith("Distance to tag v1: ")
    assert row["detail"]["base"]["side"] == "base"


def test_a_tag_of_the_change_itself_does_not_count(edison: Edison, project: Folder) -> None:
    project.git("checkout", "--quiet", "-b", "topic")
    change(project, "kind")
    project.git("tag", "--force", "v1")
    edison(project, "run")
    row = gate(edison, project, "run", "--against", "main")
    assert row["verdict"] == "inconclusive"
    assert "tag v1 is not in the history of the base" in row["sentence"]


def test_a_branch_is_not_a_tag(edison: Edison, project: Folder) -> None:
    project.git("tag", "--delete", "v1")
    project.git("branch", "v1")
    row = gate(edison, project)
    assert row["sentence"].startswith("Not compared with tag v1: this clone has no tag v1")


def test_an_open_gate_can_insist(edison: Edison, project: Folder) -> None:
    project.edit("experiments/hello.yaml", "v1}", "v1}, if_unclear: fail")
    assert edison(project, "run").code == 5


def test_production_is_the_version_that_the_base_marks(edison: Edison, project: Folder) -> None:
    in_production(project)
    edison(project, "promote", "hello", "v1")
    commit(project)
    gate(edison, project)
    project.git("checkout", "--quiet", "-b", "topic")
    change(project, "kind")
    row = gate(edison, project)
    assert row["verdict"] == "pass"
    assert row["sentence"].startswith("Distance to production: 0 points")
    assert row["detail"]["base"]["name"] == "production"


@pytest.mark.nightly
def test_a_change_cannot_promote_itself(edison: Edison, project: Folder) -> None:
    in_production(project)
    edison(project, "promote", "hello", "v1")
    commit(project)
    edison(project, "run")
    at = head(project)
    project.git("checkout", "--quiet", "-b", "topic")
    change(project, "kind")
    edison(project, "run")
    text = (project.path / "prompts/hello.md").read_text(encoding="utf-8")
    mark = next(line for line in text.splitlines() if line.startswith("production:"))
    version = json.loads(edison(project, "history", "hello", "--json").out)
    own = next(one["hash"] for one in version["versions"] if not one["production"])
    project.write("prompts/hello.md", text.replace(mark, f"production: {own}"))
    commit(project)
    row = gate(edison, project)
    assert row["detail"]["base"]["commit"] == at


def test_production_without_a_mark_is_said(edison: Edison, project: Folder) -> None:
    in_production(project)
    commit(project)
    row = gate(edison, project)
    assert row["verdict"] == "inconclusive"
    assert "no prompt of hello is marked as in production" in row["sentence"]


def test_an_unmeasured_version_in_production_names_its_commit(
    edison: Edison, project: Folder
) -> None:
    in_production(project)
    edison(project, "promote", "hello", "v1")
    first = project.git("rev-list", "--max-parents=0", "HEAD")
    commit(project)
    change(project, "kind")
    row = gate(edison, project)
    assert row["verdict"] == "inconclusive"
    assert f"`edison run hello --against {first[:8]}`" in row["sentence"]
