"""Which experiments a change touches, in real repositories."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edison_ci import load_project
from edison_ci.errors import ConfigError, UsageError
from edison_ci.plan.baseline import Impact, impact_since
from tests.conftest import Folder
from tests.plan.kitchen import CHANGES, FILES, ROWS_ONLY, Change, hashes, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def commit(folder: Folder, message: str = "change") -> str:
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--allow-empty", "--message", message)
    return folder.git("rev-parse", "HEAD")


def impact(folder: Folder, ref: str = "base", *, offline: bool = False) -> Impact:
    return impact_since(load_project(folder.path), ref, offline=offline)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The project in a repository, with one commit, tagged base."""
    made = lay_out(Folder(tmp_path_factory.mktemp("origin")))
    patch = pytest.MonkeyPatch()
    for role in ("AUTHOR", "COMMITTER"):
        patch.setenv(f"GIT_{role}_NAME", "Test")
        patch.setenv(f"GIT_{role}_EMAIL", "test@example.com")
    made.git("init", "--quiet", "--initial-branch=main")
    commit(made, "start")
    made.git("tag", "base")
    patch.undo()
    return made


@pytest.fixture
def kitchen(origin: Folder, tmp_path: Path) -> Folder:
    """A copy of that repository."""
    shutil.copytree(origin.path, tmp_path / "kitchen")
    return Folder(tmp_path / "kitchen")


# --- every kind of change -------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_change_touches_exactly_what_depends_on_it(kitchen: Folder, change: Change) -> None:
    change.apply(kitchen)
    found = impact(kitchen)
    assert set(found.affected) == change.experiments
    assert set(found.unaffected) == {"hello", "bye"} - change.experiments
    assert found.commit == kitchen.git("rev-parse", "base")


@pytest.mark.parametrize("change", ROWS_ONLY.values(), ids=list(ROWS_ONLY))
def test_any_change_of_the_bytes_of_data_touches_who_reads_it(
    kitchen: Folder, change: Change
) -> None:
    change.apply(kitchen)
    assert "bye" in impact(kitchen).affected


@pytest.mark.parametrize("how", ["in the tree", "staged", "committed", "on a branch"])
def test_it_does_not_matter_how_far_a_change_has_come(kitchen: Folder, how: str) -> None:
    if how == "on a branch":
        kitchen.git("checkout", "--quiet", "-b", "feature")
    CHANGES["prompt text"].apply(kitchen)
    if how != "in the tree":
        kitchen.git("add", "--all")
    if how in ("committed", "on a branch"):
        commit(kitchen)
    assert impact(kitchen).affected == {"hello": ("prompts/hello.md",)}


def test_the_reasons_name_files_and_what_differs(kitchen: Folder) -> None:
    for name in ("prompt text", "model by inheritance", "default budget", "tags of a case"):
        CHANGES[name].apply(kitchen)
    assert impact(kitchen).affected["hello"] == (
        "experiments/hello.yaml",
        "prompts/hello.md",
        "datasets/names.jsonl",
    )


def test_a_change_that_was_taken_back_touches_nothing(kitchen: Folder) -> None:
    change = CHANGES["prompt text"]
    change.apply(kitchen)
    commit(kitchen)
    kitchen.edit(change.name, change.new, change.old)
    assert impact(kitchen).affected == {}


def test_what_the_base_gained_since_is_not_held_against_the_branch(kitchen: Folder) -> None:
    kitchen.git("checkout", "--quiet", "-b", "feature")
    kitchen.git("checkout", "--quiet", "main")
    CHANGES["prompt text"].apply(kitchen)
    commit(kitchen)
    kitchen.git("checkout", "--quiet", "feature")
    CHANGES["grader"].apply(kitchen)
    assert set(impact(kitchen, "main").affected) == {"bye"}


# --- files that come and go -----------------------------------------------------------------------


def test_an_untracked_file_counts(kitchen: Folder) -> None:
    kitchen.write("datasets/new.jsonl", '{"id": "zed", "input": {"name": "Zed"}}\n')
    kitchen.edit("experiments/hello.yaml", "names.jsonl", "new.jsonl")
    assert "datasets/new.jsonl" in impact(kitchen).affected["hello"]


def test_an_ignored_data_file_always_counts(kitchen: Folder) -> None:
    kitchen.write(".gitignore", "datasets/own.jsonl\n")
    kitchen.write("datasets/own.jsonl", '{"id": "zed", "input": {"name": "Zed"}}\n')
    kitchen.edit("experiments/hello.yaml", "names.jsonl", "own.jsonl")
    commit(kitchen)
    kitchen.git("tag", "--force", "base")
    assert impact(kitchen).affected == {"hello": ("it is not valid at the base",)}


def test_a_renamed_prompt_counts(kitchen: Folder) -> None:
    kitchen.git("mv", "prompts/hello.md", "prompts/hallo.md")
    kitchen.edit("prompts/hallo.md", "id: hello", "id: hallo")
    kitchen.edit("experiments/hello.yaml", "prompts/hello.md", "prompts/hallo.md")
    affected = impact(kitchen).affected
    assert set(affected) == {"hello"}
    assert {"prompts/hello.md", "prompts/hallo.md"} <= set(affected["hello"])


def test_a_renamed_data_file_counts_where_it_is_read(kitchen: Folder) -> None:
    kitchen.git("mv", "datasets/more.csv", "datasets/rest.csv")
    kitchen.edit("experiments/bye.yaml", "more.csv", "rest.csv")
    assert set(impact(kitchen).affected) == {"bye"}


def test_a_renamed_experiment_is_new(kitchen: Folder) -> None:
    kitchen.git("mv", "experiments/bye.yaml", "experiments/ciao.yaml")
    kitchen.edit("experiments/ciao.yaml", "experiment: bye", "experiment: ciao")
    assert impact(kitchen).affected == {"ciao": ("it is new",)}


def test_a_new_experiment_is_affected(kitchen: Folder) -> None:
    text = kitchen.read("experiments/bye.yaml")
    kitchen.write("experiments/new.yaml", text.replace("experiment: bye", "experiment: new"))
    assert impact(kitchen).affected == {"new": ("it is new",)}


def test_a_removed_experiment_touches_no_other(kitchen: Folder) -> None:
    kitchen.git("rm", "--quiet", "experiments/bye.yaml")
    found = impact(kitchen)
    assert (found.affected, found.unaffected) == ({}, ("hello",))


def test_a_removed_file_that_is_no_longer_named_counts(kitchen: Folder) -> None:
    kitchen.git("rm", "--quiet", "checks/tone.py")
    kitchen.edit("experiments/hello.yaml", "  - python: checks/tone.py:check\n", "")
    assert set(impact(kitchen).affected) == {"hello"}


def test_removed_prices_count(kitchen: Folder) -> None:
    CHANGES["price in the table"].apply(kitchen)
    commit(kitchen)
    kitchen.git("tag", "--force", "base")
    kitchen.git("rm", "--quiet", ".edison/prices.json")
    assert impact(kitchen).affected == {"bye": ("the price of paid",)}


def test_data_behind_a_link_always_counts(kitchen: Folder) -> None:
    kitchen.git("mv", "datasets/more.csv", "real.csv")
    (kitchen.path / "datasets/more.csv").symlink_to("../real.csv")
    commit(kitchen)
    kitchen.git("tag", "--force", "base")
    assert impact(kitchen).affected == {"bye": ("it is not valid at the base",)}


def test_a_folder_named_by_a_command_is_no_file_of_it(kitchen: Folder) -> None:
    kitchen.edit("experiments/bye.yaml", "[sh, checks/grade.sh]", "[sh, -c, checks]")
    commit(kitchen)
    kitchen.git("tag", "--force", "base")
    CHANGES["program of a check"].apply(kitchen)
    assert impact(kitchen).affected == {}


# --- bases ----------------------------------------------------------------------------------------


def test_a_base_that_does_not_load_affects_everything(kitchen: Folder) -> None:
    good = kitchen.read("edison.yaml")
    kitchen.write("edison.yaml", "version: 2\n")
    commit(kitchen)
    kitchen.git("tag", "--force", "base")
    kitchen.write("edison.yaml", good)
    why = ("the project cannot be read at the base",)
    assert impact(kitchen).affected == {"bye": why, "hello": why}


def test_a_base_without_the_project_affects_everything(kitchen: Folder) -> None:
    empty = kitchen.git("commit-tree", "-m", "nothing", kitchen.git("mktree", "--missing"))
    kitchen.git("checkout", "--quiet", "-B", "side", empty)
    kitchen.git("checkout", "--quiet", "main", "--", ".")
    commit(kitchen)
    assert set(impact(kitchen, empty).affected) == {"hello", "bye"}


def test_an_experiment_that_was_invalid_at_the_base_is_affected(kitchen: Folder) -> None:
    good = kitchen.read("experiments/bye.yaml")
    kitchen.edit("experiments/bye.yaml", "models: [paid]", "models: [nobody]")
    commit(kitchen)
    kitchen.git("tag", "--force", "base")
    kitchen.write("experiments/bye.yaml", good)
    assert impact(kitchen).affected == {"bye": ("it is not valid at the base",)}


def test_without_a_repository_it_is_refused(folder: Folder) -> None:
    with pytest.raises(UsageError, match="not in a Git repository") as caught:
        impact(lay_out(folder))
    assert "git init" in caught.value.hint


def test_a_project_in_a_subfolder_sees_its_own_changes_only(origin: Folder, tmp_path: Path) -> None:
    top = Folder(tmp_path / "top")
    top.path.mkdir()
    top.git("init", "--quiet", "--initial-branch=main")
    inner = lay_out(Folder(top.path / "team" / "prüfung"))
    lay_out(Folder(top.path / "other"))
    commit(top)
    top.git("tag", "base")
    top.write("other/prompts/hello.md", "changed\n")
    top.write("datasets/names.jsonl", "not ours\n")
    assert impact(inner).affected == {}
    CHANGES["a further case"].apply(inner)
    assert impact(inner).affected == {"bye": ("datasets/more.csv",)}


# --- checkouts as they are in actions -------------------------------------------------------------


@pytest.fixture
def remote(kitchen: Folder) -> Folder:
    """A repository with a pull request that changes one prompt, and its merge commit."""
    for number in range(5):
        kitchen.write("notes.txt", f"{number}\n")
        commit(kitchen)
    kitchen.git("checkout", "--quiet", "-b", "feature")
    CHANGES["prompt text"].apply(kitchen)
    commit(kitchen)
    kitchen.git("checkout", "--quiet", "main")
    CHANGES["grader"].apply(kitchen)
    commit(kitchen)
    kitchen.git("checkout", "--quiet", "--detach")
    kitchen.git("merge", "--quiet", "--no-ff", "--message", "merge", "feature")
    kitchen.git("update-ref", "refs/pull/1/merge", "HEAD")
    kitchen.git("checkout", "--quiet", "main")
    kitchen.git("config", "uploadpack.allowAnySHA1InWant", "true")
    return kitchen


def checkout(remote: Folder, place: Path, ref: str, *, depth: int) -> Folder:
    """Check out as the action does: one ref, shallow, detached."""
    made = Folder(place)
    place.mkdir()
    made.git("init", "--quiet")
    made.git("remote", "add", "origin", f"file://{remote.path}")
    name = "refs/remotes/" + ref.removeprefix("refs/").replace("heads/", "origin/")
    made.git("fetch", "--quiet", f"--depth={depth}", "origin", f"+{ref}:{name}")
    made.git("checkout", "--quiet", "--detach", name)
    return made


def test_a_merge_checkout_of_depth_two_needs_no_network(remote: Folder, tmp_path: Path) -> None:
    found = checkout(remote, tmp_path / "two", "refs/pull/1/merge", depth=2)
    found.git("remote", "set-url", "origin", "file:///nowhere")
    assert set(impact(found, "HEAD^1", offline=True).affected) == {"hello"}


def test_a_checkout_of_depth_one_is_deepened_from_its_remote(
    remote: Folder, tmp_path: Path
) -> None:
    found = checkout(remote, tmp_path / "one", "refs/heads/feature", depth=1)
    assert set(impact(found, "origin/main").affected) == {"hello"}


def test_offline_nothing_is_fetched(remote: Folder, tmp_path: Path) -> None:
    found = checkout(remote, tmp_path / "one", "refs/heads/feature", depth=1)
    with pytest.raises(UsageError, match="--offline disables fetching") as caught:
        impact(found, "origin/main", offline=True)
    assert "git fetch" in caught.value.hint
    assert found.git("rev-list", "--count", "HEAD") == "1"


def test_offline_in_a_whole_clone_is_no_hindrance(kitchen: Folder) -> None:
    CHANGES["prompt text"].apply(kitchen)
    assert set(impact(kitchen, offline=True).affected) == {"hello"}


# --- the property ---------------------------------------------------------------------------------

ROUNDS = 25
POOL = [*CHANGES.values(), *ROWS_ONLY.values()]


def edits(chance: random.Random) -> Iterator[Change]:
    """Yield some known changes, and random ones of the bytes of any file."""
    yield from chance.sample(POOL, chance.randint(0, 3))
    for _ in range(chance.randint(0, 2)):
        name = chance.choice(list(FILES))
        yield Change(name, "", "")


def scramble(folder: Folder, name: str, chance: random.Random) -> None:
    """Change a few bytes of a file: a line twice, gone or moved, or a character another."""
    lines = folder.read(name).splitlines(keepends=True)
    at = chance.randrange(len(lines))
    how = chance.choice(["double", "drop", "move", "change"])
    if how == "double":
        lines.insert(at, lines[at])
    elif how == "drop":
        del lines[at]
    elif how == "move":
        lines.insert(chance.randrange(len(lines)), lines.pop(at))
    else:
        place = chance.randrange(len(lines[at]))
        lines[at] = lines[at][:place] + chance.choice("abz019 :") + lines[at][place + 1 :]
    folder.write(name, "".join(lines))


def loadable(folder: Folder) -> dict[str, str] | None:
    """Return the hashes, or None when the edits broke a file and there is no plan to compare."""
    try:
        return hashes(folder.path)
    except ConfigError:
        return None


@pytest.mark.nightly
def test_every_experiment_whose_plan_hash_differs_is_affected(kitchen: Folder) -> None:
    chance, compared, differing = random.Random(20261115), 0, 0
    old = hashes(kitchen.path)
    for _ in range(ROUNDS):
        for change in edits(chance):
            if change.new:
                if change.old in kitchen.read(change.name) if change.old else True:
                    change.apply(kitchen)
            else:
                scramble(kitchen, change.name, chance)
        new = loadable(kitchen)
        if new is not None:
            affected = set(impact(kitchen).affected)
            different = {name for name in new if new[name] != old.get(name)}
            assert different <= affected, kitchen.git("diff", "base")
            compared += 1
            differing += bool(different)
        kitchen.git("reset", "--quiet", "--hard", "base")
        kitchen.git("clean", "--quiet", "--force", "-d")
    assert compared > ROUNDS / 3
    assert differing > ROUNDS / 5


TREES = st.lists(st.sampled_from(POOL), max_size=4, unique_by=lambda change: change.name)


@pytest.mark.nightly
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(before=TREES, after=TREES)
def test_between_any_two_trees_no_changed_plan_is_missed(
    kitchen: Folder, before: list[Change], after: list[Change]
) -> None:
    """Both sides are random: what one change hides at the base, another may bring back."""
    kitchen.git("checkout", "--quiet", "--force", "--detach", "base")
    found = []
    for changes in (before, after):
        kitchen.git("checkout", "--quiet", "base", "--", ".")
        for change in changes:
            change.apply(kitchen)
        found.append(loadable(kitchen))
        commit(kitchen)
    old, new = found
    if new is not None:
        affected = set(impact(kitchen, "HEAD~1").affected)
        different = {name for name in new if old is None or new[name] != old.get(name)}
        assert different <= affected, kitchen.git("diff", "HEAD~1")
