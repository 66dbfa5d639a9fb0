"""The plan hash changes when, and only when, something a run depends on changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from edison_ci import load_project
from edison_ci.documents.files import file_digest
from edison_ci.errors import Location
from edison_ci.plan.fingerprint import Fingerprint, describe, plain
from edison_ci.records import Case, CaseId
from edison_ci.templating.templates import compile_template
from tests.conftest import Folder
from tests.plan.kitchen import CHANGES, FILES, ROWS_ONLY, Change, hashes, lay_out

if TYPE_CHECKING:
    from pathlib import Path

EVERY = {**CHANGES, **ROWS_ONLY}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hashes of the project as it is."""
    return hashes(lay_out(Folder(tmp_path_factory.mktemp("before"))).path)


@pytest.mark.parametrize("change", EVERY.values(), ids=list(EVERY))
def test_the_hash_changes_when_and_only_when_it_matters(
    folder: Folder, before: dict[str, str], change: Change
) -> None:
    lay_out(folder)
    change.apply(folder)
    after = hashes(folder.path)
    assert {name for name in before if after[name] != before[name]} == change.experiments


def test_the_place_on_disk_does_not_matter(
    tmp_path: Path, before: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a b" / "ünï" / "deep"
    deep.mkdir(parents=True)
    lay_out(Folder(deep))
    (tmp_path / "link").symlink_to(deep)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    assert hashes(tmp_path / "link") == hashes(deep) == before


def test_the_order_in_which_files_were_made_does_not_matter(
    folder: Folder, before: dict[str, str]
) -> None:
    lay_out(folder, dict(reversed(FILES.items())))
    assert hashes(folder.path) == before


def test_the_order_of_data_files_does_not_matter(folder: Folder, before: dict[str, str]) -> None:
    lay_out(folder)
    folder.edit(
        "experiments/bye.yaml",
        "[datasets/names.jsonl, {path: datasets/more.csv, kind: adversarial}]",
        "[{path: datasets/more.csv, kind: adversarial}, datasets/names.jsonl]",
    )
    assert hashes(folder.path) == before


def test_where_the_data_lies_does_not_matter(folder: Folder, before: dict[str, str]) -> None:
    lay_out(folder)
    (folder.path / "datasets/names.jsonl").rename(folder.path / "datasets/people.jsonl")
    for name in ("hello", "bye"):
        folder.edit(f"experiments/{name}.yaml", "names.jsonl", "people.jsonl")
    assert hashes(folder.path) == before


@pytest.mark.nightly
def test_the_hash_is_the_same_in_another_process(mini: Folder) -> None:
    seeds = ("0", "1")
    told = {mini.edison("plan", "--json", env={"PYTHONHASHSEED": seed}).out for seed in seeds}
    assert len(told) == 1


def test_the_loop_and_shards_have_the_hash_of_the_run(folder: Folder) -> None:
    from edison_ci import plan_run

    lay_out(folder)
    project = load_project(folder.path)
    experiment = project.experiment("hello")
    plans = [
        plan_run(project, experiment),
        plan_run(project, experiment, loop=True),
        plan_run(project, experiment, shards=3),
    ]
    assert len({one.hash for one in plans}) == 1


# --- the parts ------------------------------------------------------------------------------------


def test_everything_a_run_depends_on_is_named_by_its_place(folder: Folder) -> None:
    lay_out(folder)
    project = load_project(folder.path)
    assert set(describe(project, project.experiment("hello"))) == {
        "experiments/hello.yaml",
        "prompts/hello.md",
        "rubrics/tone.yaml",
        "labels/tone.jsonl",
        "judge_approvals.yaml",
        "checks/tone.py",
        "scripts/told.json",
        "models.yaml: large",
        "models.yaml: told",
        "models.yaml: judge",
        "models.yaml: refiner",
        "the price of large",
        "the price of told",
        "the price of judge",
        "the price of refiner",
        "edison.yaml: settings",
        "quarantine.yaml",
    }
    assert {"prompts/kind.md", "shapes/check.json", "checks/grade.sh"} <= set(
        describe(project, project.experiment("bye"))
    )


def test_cases_count_in_any_order_and_each_of_them(folder: Folder) -> None:
    lay_out(folder)
    project = load_project(folder.path)
    cases = [Case(CaseId(name), {"name": name}) for name in "abc"]

    def digest(*fed: Case) -> str:
        fingerprint = Fingerprint(project, project.experiment("hello"))
        for case in fed:
            fingerprint.feed(case)
        return fingerprint.hexdigest()

    assert digest(*cases) == digest(*reversed(cases))
    assert len({digest(), digest(cases[0]), digest(*cases[:2]), digest(*cases)}) == 4
    moved = Case(CaseId("a"), {"name": "a"}, line=7, metadata={"by": "me"})
    assert digest(moved) == digest(cases[0])


def test_plain_values_are_json(folder: Folder) -> None:
    template = compile_template("{{ name }}!")
    assert plain({"a": (1.0, 0.5, True, None, template), 2: Location("x")}) == {
        "a": [1, 0.5, True, None, "{{ name }}!"],
        "2": "x",
    }


def test_what_is_said_about_a_dataset_changes_no_result(mini: Folder) -> None:
    project = load_project(mini.path)
    before = describe(project, project.experiment("hello"))
    mini.write("datasets/names.about.yaml", "description: Names of guests.\n")
    project = load_project(mini.path)
    assert project.abouts["datasets/names.jsonl"].description == "Names of guests."
    assert describe(project, project.experiment("hello")) == before


def test_a_file_that_cannot_be_read_has_a_digest_too(folder: Folder) -> None:
    lay_out(folder)
    tree = load_project(folder.path).tree
    assert file_digest(tree, "nowhere") == "not-found"
    assert file_digest(tree, "prompts") == "not-a-file"
    os.mkfifo(folder.path / "fifo")
    assert file_digest(tree, "fifo") == "not-a-file"
    assert len(file_digest(tree, "checks/tone.py")) == 64
