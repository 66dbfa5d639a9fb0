"""What changed is found in every checkout a workflow makes, over a real Git remote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.errors import UsageError
from edison_ci.forge.changed import base_of, changed_paths, changed_paths_by_forge
from edison_ci.forge.events import Event, Situation
from edison_ci.git.repository import Repository
from tests.conftest import Folder
from tests.forge.git_remote import GitRemote
from tests.test_repository import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.forge.github import GitHub
    from tests.forge.fake_github import FakeGitHub

GONE = "c0ffee" * 6 + "c0ff"


@dataclass(frozen=True)
class Origin:
    """main: 40 commits; topic: leaves it at the 10th, adds 12 and renames a prompt."""

    tree: Tree
    url: str
    base: str
    head: str
    merge: str
    fork_point: str

    def checkout(self, path: Path, commit: str, *, depth: int) -> Repository:
        """Check out as `actions/checkout` does: one commit by its id, no branch, a cut history."""
        path.mkdir()
        clone = Folder(path)
        clone.git("init", "--quiet", "--initial-branch=main")
        clone.git("remote", "add", "origin", self.url)
        options = ("--quiet", "--no-tags", *((f"--depth={depth}",) if depth else ()))
        clone.git("fetch", *options, "origin", commit)
        clone.git("checkout", "--quiet", "--detach", commit)
        found = Repository.find(path)
        assert found is not None
        return found

    def event(self, name: str = "pull_request", **more: str | None) -> Event:
        situation = Situation.PUSH if name == "push" else Situation.PULL_REQUEST
        fields: dict[str, Any] = {
            "sha": self.merge,
            "head_sha": self.head,
            "base_sha": self.base,
            **more,
        }
        return replace(Event(name, situation, "acme/prompts", default_branch="main"), **fields)


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Origin]:
    served = tmp_path / "served"
    tree = Tree.create(served / "prompts.git")
    tree.git("config", "uploadpack.allowAnySHA1InWant", "true")
    tree.commit(**{"prompts/old.md": "the same words\n" * 20})
    tree.grow("main", commits=39, start="refs/heads/main^0")
    tree.grow("topic", commits=12, start="refs/heads/main~30")
    fork_point = tree.git("rev-parse", "main~30")
    tree.git("checkout", "--quiet", "--force", "topic")
    tree.git("mv", "prompts/old.md", "prompts/süß new.md")
    tree.git("commit", "--quiet", "--message", "rename")
    head, base = tree.git("rev-parse", "topic"), tree.git("rev-parse", "main")
    tree.git("checkout", "--quiet", "--detach", "main")
    tree.git("merge", "--quiet", "--no-ff", "--message", "merge", "topic")
    merge = tree.git("rev-parse", "HEAD")
    tree.git("update-ref", "refs/pull/1/merge", merge)
    tree.git("update-ref", "refs/pull/1/head", head)
    tree.git("checkout", "--quiet", "main")
    with GitRemote(served) as server:
        yield Origin(tree, f"{server.url}/prompts.git/.git", base, head, merge, fork_point)


CHANGED = frozenset({"topic.txt", "prompts/old.md", "prompts/süß new.md"})


@pytest.mark.parametrize("depth", [0, 1, 2, 50])
def test_of_the_merge_commit_the_first_parent_is_the_base(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=depth)
    assert base_of(origin.event(), repository).commit == origin.base
    assert changed_paths(origin.event(), repository) == CHANGED


@pytest.mark.parametrize("named", ["main", "main~5", "main~30"])
def test_the_base_is_exact_whatever_base_the_event_names(
    origin: Origin, tmp_path: Path, named: str
) -> None:
    """The event names the base of the last push to the branch, the merge commit the one of now."""
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=2)
    event = origin.event(base_sha=origin.tree.git("rev-parse", named))
    origin.tree.commit(**{"main.txt": "later"})
    assert base_of(event, repository).commit == origin.base
    assert changed_paths(event, repository) == CHANGED


def test_a_merge_commit_newer_than_the_event_is_still_the_one_of_the_job(
    origin: Origin, tmp_path: Path
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=1)
    event = origin.event(head_sha=origin.tree.git("rev-parse", "topic~1"))
    assert base_of(event, repository).commit == origin.base


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_of_the_head_itself_history_is_deepened_to_what_both_share(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=depth)
    if not depth:
        Folder(repository.root).git("fetch", "--quiet", "origin", "main")
    assert base_of(origin.event(), repository).commit == origin.fork_point
    assert changed_paths(origin.event(), repository) == CHANGED


@pytest.mark.parametrize("depth", [1, 2])
def test_a_merge_queue_is_measured_against_what_it_merges_into(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=depth)
    event = replace(
        origin.event("merge_group", head_sha=origin.merge), situation=Situation.MERGE_GROUP
    )
    assert base_of(event, repository).commit == origin.base
    assert changed_paths(event, repository) == CHANGED


@pytest.mark.parametrize("depth", [1, 2])
def test_a_push_is_measured_against_what_was_there_before(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=depth)
    before = origin.tree.git("rev-parse", "topic~3")
    event = replace(origin.event("push", base_sha=before), head_branch="topic")
    assert base_of(event, repository).commit == before
    assert changed_paths(event, repository) == CHANGED


@pytest.mark.parametrize(("before", "why"), [(None, "is new"), (GONE, "by force")])
def test_a_branch_without_a_past_is_measured_against_the_default_branch(
    origin: Origin, tmp_path: Path, before: str | None, why: str
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=1)
    event = replace(origin.event("push", base_sha=before), head_branch="topic")
    found = base_of(event, repository)
    assert found.commit == origin.fork_point
    assert why in found.why
    on_main = replace(event, head_branch="main")
    assert base_of(on_main, repository).commit is None
    assert changed_paths(on_main, repository) is None


def test_other_events_count_everything_as_changed(origin: Origin, tmp_path: Path) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=1)
    event = Event("schedule", Situation.SCHEDULE, "acme/prompts")
    assert changed_paths(event, repository) is None


def test_a_remote_that_is_gone_is_told(origin: Origin, tmp_path: Path) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=1)
    Folder(repository.root).git("remote", "set-url", "origin", f"{origin.url}/nowhere")
    with pytest.raises(UsageError, match="is not here"):
        base_of(origin.event(), repository)


async def test_the_forge_knows_it_too(fake: FakeGitHub, github: GitHub, origin: Origin) -> None:
    fake.state.pulls[1].files = [
        {"filename": "b.md", "status": "renamed", "previous_filename": "a.md"},
        {"filename": "c.md", "status": "removed"},
    ]
    async with github:
        event = replace(origin.event(), number=1)
        found = await changed_paths_by_forge(event, github)
        assert found == frozenset({"a.md", "b.md", "c.md"})
        assert await changed_paths_by_forge(origin.event("push"), github) is None
