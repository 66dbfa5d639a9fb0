"""Git is asked, in real repositories with real remotes, and never tricked into running anything."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.errors import UsageError
from edison_ci.git import command, objects
from edison_ci.git.repository import FileVersion, Repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2025-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_COMMITTER_DATE": "2025-01-01T00:00:00Z",
}
ZEROS = "0" * 40
GONE = "c0ffee" * 6 + "c0ff"
posix_names = pytest.mark.skipif(sys.platform == "darwin", reason="the disk takes UTF-8 names only")


class Tree:
    """A working tree that the tests drive with plain Git."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, *options: str) -> Tree:
        path.mkdir(parents=True)
        tree = cls(path)
        tree.git("init", "--quiet", "--initial-branch=main", *options)
        return tree

    def git(self, *args: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["git", *args],
            cwd=self.path,
            env={**os.environ, **IDENTITY},
            input=os.fsencode(stdin),
            capture_output=True,
            check=True,
        )
        return os.fsdecode(done.stdout).strip()

    def write(self, **files: str) -> None:
        for name, content in files.items():
            self.put(name, content)

    def put(self, name: str, content: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def commit(self, **files: str) -> str:
        self.write(**files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")
        return self.git("rev-parse", "HEAD")

    def grow(self, branch: str, *, commits: int, start: str = "") -> None:
        """Add commits to a branch, each with another `BRANCH.txt`, faster than one by one."""
        stream = [
            f"commit refs/heads/{branch}\ncommitter Ada <ada@example.org> {number} +0000\ndata 0\n"
            + (f"from {start}\n" if start and number == 1 else "")
            + f"M 100644 inline {branch}.txt\ndata {len(str(number))}\n{number}\n"
            for number in range(1, commits + 1)
        ]
        self.git("fast-import", "--quiet", stdin="".join(stream))

    def clone(self, path: Path, *options: str) -> Tree:
        self.git("clone", "--quiet", *options, f"file://{self.path}", str(path))
        return Tree(path)

    def checkout_like_the_action(self, path: Path, ref: str, *, depth: int) -> Tree:
        """Fetch one commit the way `actions/checkout` does: no branch, no tag, a cut history."""
        commit = self.git("rev-parse", ref)
        target = ref if ref.startswith("refs/pull/") else "refs/heads/unused"
        name = f"refs/remotes/{target.removeprefix('refs/')}"
        tree = Tree.create(path)
        tree.git("remote", "add", "origin", f"file://{self.path}")
        refspec = f"+{commit}:{name}" if ref.startswith("refs/pull/") else commit
        tree.git("fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", refspec)
        tree.git("checkout", "--quiet", "--detach", commit)
        return tree

    def repository(self) -> Repository:
        found = Repository.find(self.path)
        assert found is not None
        return found


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home").mkdir()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree.create(tmp_path / "tree")


@pytest.fixture
def origin(tmp_path: Path) -> Tree:
    """main: 60 commits; feature: leaves main at its 20th commit and adds 12 of its own."""
    tree = Tree.create(tmp_path / "origin")
    tree.grow("main", commits=60)
    tree.grow("feature", commits=12, start="refs/heads/main~40")
    tree.git("checkout", "--quiet", "main")
    return tree


@pytest.fixture
def pull_request(origin: Tree) -> Tree:
    """The origin, with the merge commit that a forge makes for the feature."""
    origin.git("checkout", "--quiet", "--detach", "main")
    origin.git("merge", "--quiet", "--no-ff", "--message", "merge", "feature")
    origin.git("update-ref", "refs/pull/1/merge", "HEAD")
    origin.git("checkout", "--quiet", "main")
    return origin


# --- finding --------------------------------------------------------------------------------


def test_a_project_in_a_subfolder_finds_its_repository(tree: Tree) -> None:
    tree.commit(**{"projects/bot/edison.yaml": ""})
    for place in ("projects/bot", "projects/bot/edison.yaml", "."):
        found = Repository.find(tree.path / place)
        assert found == Repository(tree.path.resolve())


def test_a_folder_outside_any_repository_has_none(tmp_path: Path) -> None:
    assert Repository.find(tmp_path) is None
    assert Repository.find(tmp_path / "not" / "there") is None


def test_a_bare_repository_has_no_tree_to_look_at(tmp_path: Path) -> None:
    Tree.create(tmp_path / "bare.git", "--bare")
    assert Repository.find(tmp_path / "bare.git") is None


def test_a_folder_named_git_does_not_make_a_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert Repository.find(tmp_path) is None


@pytest.mark.parametrize("elsewhere", ["home", ".", ".."])
def test_a_working_tree_that_lies_elsewhere_is_not_this_one(
    tree: Tree, tmp_path: Path, elsewhere: str
) -> None:
    tree.git("config", "core.worktree", str(tmp_path / elsewhere))
    assert Repository.find(tree.path) is None


def test_a_linked_worktree_is_a_tree_of_its_own(tree: Tree, tmp_path: Path) -> None:
    first = tree.commit(a="1")
    tree.git("worktree", "add", "--quiet", "-b", "feature", str(tmp_path / "linked"))
    linked = Tree(tmp_path / "linked")
    second = linked.commit(b="2")
    linked.write(c="3")
    repository = linked.repository()
    assert repository.root == linked.path.resolve()
    assert (repository.head(), repository.base_for("main")) == (second, first)
    assert repository.changed_paths(first) == {"b", "c"}


def test_a_submodule_is_a_repository_of_its_own(tree: Tree, tmp_path: Path) -> None:
    inner = Tree.create(tmp_path / "inner")
    inner.commit(a="1")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "sub")
    found = Repository.find(tree.path / "sub" / "a")
    assert found == Repository(tree.path.resolve() / "sub")


def test_variables_that_point_git_elsewhere_are_ignored(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = tree.commit(a="1")
    other = Tree.create(tmp_path / "other")
    other.commit(b="2")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git" / "index"))
    assert tree.repository().head() == commit
    assert tree.repository().changed_paths(commit) == frozenset()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
def test_a_repository_of_another_user_is_refused_with_the_remedy(tree: Tree) -> None:
    for place in (tree.path, tree.path / ".git"):
        os.chown(place, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user") as caught:
        Repository.find(tree.path)
    assert "safe.directory" in caught.value.hint


# --- an empty repository --------------------------------------------------------------------


def test_before_the_first_commit_there_is_nothing_to_know(tree: Tree) -> None:
    repository = tree.repository()
    assert repository.head() is None
    assert repository.default_branch() is None
    assert repository.first_parent_texts("a") == []
    assert not repository.is_shallow()
    with pytest.raises(UsageError, match="unknown commit, branch or tag 'HEAD'"):
        repository.resolve("HEAD")
    with pytest.raises(UsageError, match="no commit to compare") as caught:
        repository.base_for("main")
    assert caught.value.hint == "commit something first"


# --- naming commits -------------------------------------------------------------------------


def test_branches_tags_ids_and_expressions_name_commits(tree: Tree) -> None:
    first, second = tree.commit(a="1"), tree.commit(a="2")
    tree.git("tag", "--annotate", "--message", "one", "v1", first)
    repository = tree.repository()
    for ref in ("v1", first, first[:10], "HEAD~1", "main^", "refs/tags/v1"):
        assert repository.resolve(ref) == first
    assert repository.resolve("main") == repository.head() == second


def test_long_ids_are_understood(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "tree", "--object-format=sha256")
    commit = tree.commit(a="1")
    tree.write(b="2")
    repository = tree.repository()
    assert len(commit) == 64
    assert repository.resolve("main") == commit
    assert repository.changed_paths(commit) == {"b"}
    assert repository.read(commit, "a") == b"1"
    assert repository.first_parent_texts("a") == [FileVersion(commit, b"1")]


@pytest.mark.parametrize(
    ("typed", "meant"), [("mian", "'main'"), ("featur", "'feature/x'"), ("x", "'feature/x'")]
)
def test_a_misspelt_ref_is_answered_with_its_neighbours(tree: Tree, typed: str, meant: str) -> None:
    tree.commit(a="1")
    tree.git("branch", "feature/x")
    with pytest.raises(UsageError, match="unknown commit") as caught:
        tree.repository().resolve(typed)
    assert meant in caught.value.hint


def test_a_branch_that_only_the_remote_has_is_suggested(origin: Tree, tmp_path: Path) -> None:
    clone = origin.clone(tmp_path / "clone")
    with pytest.raises(UsageError) as caught:
        clone.repository().base_for("feature")
    assert caught.value.hint == "did you mean 'origin/feature'?"


@pytest.mark.parametrize(
    "ref",
    [
        *(
            "",
            "-",
            "--all",
            "-h",
            "--upload-pack=touch PWNED",
            "--exec=touch PWNED",
            "--output=PWNED",
        ),
        *(
            "HEAD..main",
            "^HEAD",
            "HEAD:a",
            "HEAD^{tree}",
            "a\0b",
            "a\nb",
            "$(touch PWNED)",
            "\udcff",
        ),
    ],
)
def test_what_is_no_single_commit_is_refused(tree: Tree, ref: str) -> None:
    tree.commit(a="1")
    with pytest.raises(UsageError):
        tree.repository().resolve(ref)
    with pytest.raises(UsageError):
        tree.repository().base_for(ref)
    assert not list(tree.path.rglob("PWNED"))


@pytest.mark.parametrize("commit", ["main", "HEAD", "--output=PWNED", "abc", "", "A" * 40])
def test_files_are_read_only_by_full_ids(tree: Tree, commit: str) -> None:
    tree.commit(a="1")
    repository = tree.repository()
    questions: list[Callable[[], object]] = [
        lambda: repository.changed_paths(commit),
        lambda: repository.read(commit, "a"),
        lambda: repository.list_files(commit),
    ]
    for ask in questions:
        with pytest.raises(UsageError, match="not the full id"):
            ask()


def test_a_missing_commit_is_an_error_and_not_an_empty_answer(tree: Tree) -> None:
    tree.commit(a="1")
    with pytest.raises(UsageError, match="git ls-tree failed"):
        tree.repository().read(GONE, "a")


# --- the default branch ---------------------------------------------------------------------


def test_the_default_branch_is_what_the_remote_says(tree: Tree, tmp_path: Path) -> None:
    tree.commit(a="1")
    tree.git("branch", "--move", "trunk")
    tree.git("branch", "main")
    assert tree.clone(tmp_path / "clone").repository().default_branch() == "origin/trunk"


@pytest.mark.parametrize(
    ("branches", "configured", "default"),
    [
        (["main", "master", "dev"], "dev", "dev"),
        (["main", "master", "dev"], "absent", "main"),
        (["master", "dev"], "", "master"),
        (["dev"], "", "dev"),
    ],
)
def test_without_a_remote_the_usual_names_are_tried(
    tree: Tree, branches: list[str], configured: str, default: str
) -> None:
    tree.commit(a="1")
    tree.git("branch", "--move", branches[-1])
    for name in branches[:-1]:
        tree.git("branch", name)
    if configured:
        tree.git("config", "init.defaultBranch", configured)
    assert tree.repository().default_branch() == default


def test_a_checkout_without_local_branches_knows_the_remote_one(
    origin: Tree, tmp_path: Path
) -> None:
    checkout = origin.checkout_like_the_action(tmp_path / "checkout", "feature", depth=1)
    assert checkout.repository().default_branch() is None
    checkout.git("fetch", "--quiet", "--depth=1", "origin", "main:refs/remotes/origin/main")
    assert checkout.repository().default_branch() == "origin/main"


def test_a_remote_head_that_points_nowhere_is_passed_over(tree: Tree) -> None:
    tree.commit(a="1")
    tree.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/gone")
    assert tree.repository().default_branch() == "main"


# --- the commit to compare with: full clones ------------------------------------------------


def test_a_feature_branch_is_compared_with_where_it_left(origin: Tree, tmp_path: Path) -> None:
    clone = origin.clone(tmp_path / "clone", "--branch=feature")
    expected = origin.git("rev-parse", "main~40")
    repository = clone.repository()
    assert repository.base_for("origin/main") == expected
    assert repository.changed_paths(expected) == {"feature.txt"}


def test_an_ancestor_on_the_same_branch_is_the_base_itself(origin: Tree) -> None:
    assert origin.repository().base_for("main~3") == origin.git("rev-parse", "main~3")
    assert origin.repository().base_for("HEAD") == origin.git("rev-parse", "main")


def test_a_feature_that_merged_main_is_compared_with_the_main_it_merged(origin: Tree) -> None:
    origin.git("checkout", "--quiet", "feature")
    origin.git("merge", "--quiet", "--no-ff", "--message", "merge", "main~10")
    assert origin.repository().base_for("main") == origin.git("rev-parse", "main~10")


def test_a_feature_that_merged_newer_work_keeps_an_older_local_main(origin: Tree) -> None:
    old = origin.git("rev-parse", "main~40")
    origin.git("checkout", "--quiet", "feature")
    origin.git("merge", "--quiet", "--no-ff", "--message", "merge", "main")
    origin.git("branch", "--force", "main", old)
    assert origin.repository().base_for("main") == old


def test_histories_without_a_common_commit_cannot_be_compared(tree: Tree) -> None:
    tree.commit(a="1")
    tree.git("checkout", "--quiet", "--orphan", "island")
    tree.commit(b="2")
    with pytest.raises(UsageError, match="have no common history"):
        tree.repository().base_for("main")


@pytest.mark.parametrize(("before", "said"), [(ZEROS, "branch is new"), (GONE, "force push")])
def test_a_push_without_a_past_suggests_the_default_branch(
    origin: Tree, tmp_path: Path, before: str, said: str
) -> None:
    clone = origin.clone(tmp_path / "clone")
    with pytest.raises(UsageError, match=said) as caught:
        clone.repository().base_for(before)
    assert caught.value.hint == "compare with the default branch, 'origin/main'"


# --- the commit to compare with: pull-request checkouts -------------------------------------


@pytest.mark.parametrize("ref", ["HEAD^1", "HEAD^", "origin/main"])
def test_a_pull_request_is_compared_with_what_it_is_merged_into(
    pull_request: Tree, tmp_path: Path, ref: str
) -> None:
    checkout = pull_request.checkout_like_the_action(
        tmp_path / "checkout", "refs/pull/1/merge", depth=2
    )
    repository = checkout.repository()
    base = repository.base_for(ref)
    assert base == pull_request.git("rev-parse", "main")
    assert repository.changed_paths(base) == {"feature.txt"}


def test_a_main_that_moved_on_does_not_move_the_base(pull_request: Tree, tmp_path: Path) -> None:
    merged_into = pull_request.git("rev-parse", "main")
    pull_request.commit(**{"later.txt": "later"})
    checkout = pull_request.checkout_like_the_action(
        tmp_path / "checkout", "refs/pull/1/merge", depth=2
    )
    assert checkout.repository().base_for("origin/main") == merged_into


def test_a_main_that_is_behind_does_not_move_the_base(pull_request: Tree, tmp_path: Path) -> None:
    checkout = pull_request.clone(tmp_path / "checkout")
    checkout.git("fetch", "--quiet", "origin", "refs/pull/1/merge:refs/remotes/pull/1/merge")
    checkout.git("checkout", "--quiet", "--detach", "refs/remotes/pull/1/merge")
    checkout.git("update-ref", "refs/remotes/origin/main", "main~5")
    assert checkout.repository().base_for("origin/main") == checkout.git("rev-parse", "HEAD^1")


def test_in_a_pull_request_a_release_is_still_that_release(
    pull_request: Tree, tmp_path: Path
) -> None:
    pull_request.git("tag", "v1", "main~5")
    checkout = pull_request.clone(tmp_path / "checkout")
    checkout.git("fetch", "--quiet", "origin", "refs/pull/1/merge:refs/remotes/pull/1/merge")
    checkout.git("checkout", "--quiet", "--detach", "refs/remotes/pull/1/merge")
    released = checkout.git("rev-parse", "v1")
    assert checkout.repository().base_for("v1") == released
    assert checkout.repository().base_for(released) == released


def test_a_pull_request_compared_with_its_own_branch_starts_there(
    pull_request: Tree, tmp_path: Path
) -> None:
    checkout = pull_request.checkout_like_the_action(
        tmp_path / "checkout", "refs/pull/1/merge", depth=2
    )
    feature = pull_request.git("rev-parse", "feature")
    assert checkout.repository().base_for("origin/feature") == feature


def test_a_pull_request_without_a_merge_commit_is_compared_with_where_it_left(
    origin: Tree,
) -> None:
    origin.git("update-ref", "refs/pull/1/merge", "feature")
    origin.git("checkout", "--quiet", "--detach", "feature")
    assert origin.repository().base_for("main") == origin.git("rev-parse", "main~40")


def test_a_merge_commit_checked_out_too_shallow_is_deepened(
    pull_request: Tree, tmp_path: Path
) -> None:
    checkout = pull_request.checkout_like_the_action(
        tmp_path / "checkout", "refs/pull/1/merge", depth=1
    )
    assert checkout.repository().base_for("HEAD^1") == pull_request.git("rev-parse", "main")


def test_a_pull_request_that_asks_for_a_branch_nobody_fetched_is_told_what_it_has(
    pull_request: Tree, tmp_path: Path
) -> None:
    checkout = pull_request.checkout_like_the_action(
        tmp_path / "checkout", "refs/pull/1/merge", depth=2
    )
    with pytest.raises(UsageError, match="unknown commit, branch or tag 'main'") as caught:
        checkout.repository().base_for("main")
    assert "compare with 'HEAD^1'" in caught.value.hint


@pytest.mark.parametrize("ref", ["HEAD^1", "origin/main"])
def test_a_merge_commit_that_cannot_be_deepened_names_the_setting(
    pull_request: Tree, tmp_path: Path, ref: str
) -> None:
    checkout = pull_request.checkout_like_the_action(
        tmp_path / "checkout", "refs/pull/1/merge", depth=1
    )
    checkout.git("remote", "remove", "origin")
    with pytest.raises(UsageError) as caught:
        checkout.repository().base_for(ref)
    assert "`fetch-depth: 2`" in caught.value.hint


# --- the commit to compare with: other shallow clones ---------------------------------------


def test_the_checkout_of_a_head_commit_is_deepened_to_where_it_left(
    origin: Tree, tmp_path: Path
) -> None:
    checkout = origin.checkout_like_the_action(tmp_path / "checkout", "feature", depth=1)
    repository = checkout.repository()
    assert repository.base_for("origin/main") == origin.git("rev-parse", "main~40")


def test_deepening_stops_at_the_first_common_commit(origin: Tree, tmp_path: Path) -> None:
    origin.git("checkout", "--quiet", "-b", "short", "main~2")
    origin.commit(short="1")
    checkout = origin.checkout_like_the_action(tmp_path / "checkout", "short", depth=1)
    repository = checkout.repository()
    assert repository.base_for("origin/main") == origin.git("rev-parse", "main~2")
    assert repository.is_shallow()
    assert int(checkout.git("rev-list", "--count", "--all")) < 20


def test_a_history_longer_than_every_step_is_fetched_whole(tmp_path: Path) -> None:
    origin = Tree.create(tmp_path / "origin")
    origin.grow("main", commits=400)
    origin.git("checkout", "--quiet", "-b", "feature", "main~399")
    origin.commit(b="1")
    checkout = origin.checkout_like_the_action(tmp_path / "checkout", "feature", depth=1)
    repository = checkout.repository()
    assert repository.base_for("origin/main") == origin.git("rev-parse", "main~399")
    assert not repository.is_shallow()


def test_commits_made_on_top_of_a_shallow_clone_do_not_stop_deepening(
    origin: Tree, tmp_path: Path
) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1", "--branch=feature", "--no-single-branch")
    clone.commit(local="1")
    assert clone.repository().base_for("origin/main") == origin.git("rev-parse", "main~40")


def test_a_remote_that_forgot_the_boundary_is_asked_for_its_branches(
    origin: Tree, tmp_path: Path
) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1", "--branch=feature", "--no-single-branch")
    origin.git("checkout", "--quiet", "feature")
    origin.git("commit", "--quiet", "--amend", "--message", "rewritten")
    origin.git("reflog", "expire", "--expire=now", "--all")
    origin.git("gc", "--quiet", "--prune=now")
    clone.git("fetch", "--quiet", "--depth=1", "origin")
    clone.git("reset", "--quiet", "--hard", "origin/feature")
    boundary = clone.path / ".git" / "shallow"
    assert len(boundary.read_text().split()) >= 2
    assert clone.repository().base_for("origin/main") == origin.git("rev-parse", "main~40")


def test_the_commit_before_a_push_is_fetched_by_its_id(origin: Tree, tmp_path: Path) -> None:
    before = origin.git("rev-parse", "main~3")
    checkout = origin.checkout_like_the_action(tmp_path / "checkout", "main", depth=1)
    assert checkout.repository().base_for(before) == before


def test_a_commit_that_the_remote_lost_is_reported_without_fetching_everything(
    origin: Tree, tmp_path: Path
) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1")
    with pytest.raises(UsageError, match="force push") as caught:
        clone.repository().base_for(GONE)
    assert "'origin/main'" in caught.value.hint
    assert clone.git("rev-list", "--count", "HEAD") == "1"


def test_a_misspelt_ref_does_not_fetch_everything(origin: Tree, tmp_path: Path) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1")
    for ref in ("mian", "origin/mian"):
        with pytest.raises(UsageError) as caught:
            clone.repository().base_for(ref)
        assert "main" in caught.value.hint
    assert clone.git("rev-list", "--count", "HEAD") == "1"


def test_a_shallow_clone_whose_remote_is_gone_names_the_setting(
    origin: Tree, tmp_path: Path
) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1", "--branch=feature", "--no-single-branch")
    origin.path.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="does not contain the merge base") as caught:
        clone.repository().base_for("origin/main")
    assert "`fetch-depth: 2`" in caught.value.hint


@pytest.mark.parametrize("branch", ["--upload-pack=touch PWNED", "a\nb", "x:refs/heads/main", "*"])
def test_a_hostile_branch_name_fetches_nothing(origin: Tree, tmp_path: Path, branch: str) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1", "--branch=feature")
    refs = clone.git("for-each-ref")
    with pytest.raises(UsageError):
        clone.repository().base_for(f"origin/{branch}")
    assert clone.git("for-each-ref") == refs
    assert not list(tmp_path.rglob("PWNED"))


def test_a_full_clone_never_asks_its_remote(origin: Tree, tmp_path: Path) -> None:
    clone = origin.clone(tmp_path / "clone", "--branch=feature")
    origin.path.rename(tmp_path / "moved")
    assert clone.repository().base_for("origin/main") == clone.git("rev-parse", "origin/main~40")


# --- what changed ---------------------------------------------------------------------------


def test_every_way_to_change_a_file_counts(tree: Tree) -> None:
    base = tree.commit(
        **{
            name: name
            for name in ("kept", "committed", "staged", "edited", "deleted", "old", "mode")
        }
    )
    tree.commit(committed="2")
    tree.write(staged="2", edited="2", untracked="2", added="2")
    tree.git("add", "staged", "added")
    tree.git("mv", "old", "new")
    (tree.path / "deleted").unlink()
    (tree.path / "mode").chmod(0o755)
    assert tree.repository().changed_paths(base) == {
        *("committed", "staged", "edited", "deleted", "old", "new", "mode", "untracked", "added")
    }


def test_ignored_and_merely_touched_files_do_not_count(tree: Tree) -> None:
    base = tree.commit(**{".gitignore": "*.log\n", "a": "1", "b": "2"})
    tree.write(**{"x.log": "noise"})
    os.utime(tree.path / "a", (1, 1))
    tree.write(b="2")
    assert tree.repository().changed_paths(base) == frozenset()


def test_a_staged_change_taken_back_in_the_tree_does_not_count(tree: Tree) -> None:
    base = tree.commit(a="1")
    tree.write(a="2")
    tree.git("add", "a")
    tree.write(a="1")
    assert tree.repository().changed_paths(base) == frozenset()


def test_an_edit_in_the_same_moment_and_of_the_same_size_counts(tree: Tree) -> None:
    moment = (1_700_000_000, 1_700_000_000)
    tree.git("config", "core.trustctime", "false")
    tree.write(a="1")
    os.utime(tree.path / "a", moment)
    base = tree.commit()
    os.utime(tree.path / ".git" / "index", moment)
    tree.write(a="2")
    os.utime(tree.path / "a", moment)
    assert tree.repository().changed_paths(base) == {"a"}


def test_paths_are_relative_to_the_root_from_wherever_one_looks(tree: Tree) -> None:
    base = tree.commit(**{"project/prompts/a.md": "1"})
    tree.git("config", "diff.relative", "true")
    tree.put("project/prompts/a.md", "2")
    tree.put("project/new.md", "1")
    tree.put("outside.md", "1")
    found = Repository.find(tree.path / "project" / "prompts")
    assert found is not None
    assert found.changed_paths(base) == {"project/prompts/a.md", "project/new.md", "outside.md"}


def test_looking_does_not_write(tree: Tree) -> None:
    base = tree.commit(a="1")
    os.utime(tree.path / "a", (1, 1))
    index = (tree.path / ".git" / "index").read_bytes()
    tree.repository().changed_paths(base)
    assert (tree.path / ".git" / "index").read_bytes() == index


def test_a_repository_inside_the_tree_counts_as_one_path(tree: Tree) -> None:
    base = tree.commit(a="1")
    Tree.create(tree.path / "inner").commit(b="2")
    assert tree.repository().changed_paths(base) == {"inner"}


# --- names that hurt ------------------------------------------------------------------------

HOSTILE_NAMES = [
    "--upload-pack=touch PWNED",
    "-rf",
    "--",
    "two\nlines",
    "tab\there",
    'quo"te',
    "back\\slash",
    " blank ",
    "*",
    ":(top)magic",
    ":colon",
    "Übermut/文件.md",
    "$(touch PWNED)",
    pytest.param("not-utf-8-\udcff", marks=posix_names),
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_are_taken_literally(tree: Tree, name: str) -> None:
    base = tree.commit(**{"other": "0"})
    tree.put(name, "1")
    assert tree.repository().changed_paths(base) == {name}
    commit = tree.commit()
    tree.put(name, "2")
    repository = tree.repository()
    assert repository.changed_paths(base) == repository.changed_paths(commit) == {name}
    assert repository.list_files(commit) == tuple(sorted([name, "other"]))
    assert repository.read(commit, name) == b"1"
    assert repository.first_parent_texts(name) == [FileVersion(commit, b"1")]
    assert not list(tree.path.rglob("PWNED"))


# --- what files used to say -----------------------------------------------------------------


def test_files_are_read_as_they_were(tree: Tree) -> None:
    first = tree.commit(**{"a/b": "1", "a/c": "binary\0\r\n"})
    second = tree.commit(**{"a/b": "2"})
    repository = tree.repository()
    assert repository.read(first, "a/b") == b"1"
    assert repository.read(second, "a/b") == b"2"
    assert repository.read(first, "a/c") == b"binary\0\r\n"


@pytest.mark.parametrize(
    "path", ["", ".", "a", "a/", "/a/b", "../a/b", "a/../a/b", "./a/b", "x\0y"]
)
def test_only_the_exact_name_of_a_file_reads_it(tree: Tree, path: str) -> None:
    commit = tree.commit(**{"a/b": "1"})
    assert tree.repository().read(commit, path) is None
    assert tree.repository().first_parent_texts(path) == []


def test_symlinks_and_submodules_are_not_files(tree: Tree, tmp_path: Path) -> None:
    inner = Tree.create(tmp_path / "inner")
    inner.commit(a="1")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "sub")
    (tree.path / "link").symlink_to("/etc/passwd")
    commit = tree.commit(file="1")
    repository = tree.repository()
    assert repository.list_files(commit) == (".gitmodules", "file")
    assert repository.read(commit, "link") is None
    assert repository.read(commit, "sub") is None
    assert repository.first_parent_texts("link") == []


def test_a_moved_submodule_and_a_redirected_link_are_changes(tree: Tree, tmp_path: Path) -> None:
    inner = Tree.create(tmp_path / "inner")
    inner.commit(a="1")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "sub")
    (tree.path / "link").symlink_to("one")
    base = tree.commit()
    assert tree.repository().changed_paths(base) == frozenset()
    Tree(tree.path / "sub").commit(a="2")
    (tree.path / "link").unlink()
    (tree.path / "link").symlink_to("two")
    assert tree.repository().changed_paths(base) == {"sub", "link"}


def test_a_file_above_the_limit_is_an_error_not_an_absence(tree: Tree) -> None:
    commit = tree.commit(a="12345")
    repository = tree.repository()
    assert repository.read(commit, "a", max_bytes=5) == b"12345"
    with pytest.raises(UsageError, match="'a' has 5 bytes"):
        repository.read(commit, "a", max_bytes=4)


def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Keep every Git that is started from now on."""
    found: list[subprocess.Popen[bytes]] = []
    start = command.start_git

    def kept(*args: str, **more: Any) -> subprocess.Popen[bytes]:
        found.append(start(*args, **more))
        return found[-1]

    monkeypatch.setattr(command, "start_git", kept)
    monkeypatch.setattr(objects, "start_git", kept)
    return found


def test_many_files_are_read_with_one_git(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tree.commit(**{"a/b/c": "1", "a/d": "2", "e": ""})
    second = tree.commit(**{"a/b/c": "3"})
    repository, every = Repository(tree.path), started(monkeypatch)
    read = [repository.read(at, path) for at in (first, second) for path in ("a/b/c", "a/d", "e")]
    assert read == [b"1", b"2", b"", b"3", b"2", b""]
    assert [repository.read(first, path) for path in ("a/b", "a/b/c/x", "b", "a//d")] == [None] * 4
    assert len(every) == 1
    assert [past.data for past in repository.first_parent_texts("a/b/c", ref=second)] == [
        b"1",
        b"3",
    ]
    assert every[0].poll() is None
    del repository
    gc.collect()
    assert every[0].returncode is not None, "it ends with whoever asked"


def test_a_repository_is_found_once_until_its_configuration_changes(tree: Tree) -> None:
    first = tree.commit(a="1")
    found = tree.repository()
    assert found.head() == first
    second = tree.commit(a="2")
    assert tree.repository() is found
    assert found.head() == second, "the running Git reads refs again"
    tree.git("config", "core.worktree", "/")
    assert Repository.find(tree.path) is None


def test_a_git_that_ended_is_started_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = tree.commit(a="12345", b="1")
    repository, every = tree.repository(), started(monkeypatch)
    monkeypatch.setattr(objects, "MAX_SKIPPED_BYTES", 4)
    with pytest.raises(UsageError, match="'a' has 5 bytes"):
        repository.read(commit, "a", max_bytes=4)
    assert every[0].returncode is not None, "what is too large is not read past"
    assert repository.read(commit, "b") == b"1"
    every[1].kill()
    every[1].wait()
    assert repository.read(commit, "a") == b"12345"
    assert len(every) == 3


def test_what_is_too_large_or_missing_does_not_disturb_what_follows(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = tree.commit(a="x" * 200_000, b="1")
    repository, every = tree.repository(), started(monkeypatch)
    with pytest.raises(UsageError, match="'a' has 200,000 bytes"):
        repository.read(commit, "a", max_bytes=4)
    assert repository.read(commit, "b") == b"1"
    assert len(every) == 1
    with pytest.raises(UsageError, match="git ls-tree failed"):
        repository.read(GONE, "a")
    assert repository.read(commit, "a") == b"x" * 200_000
    assert len(every) == 2, "a command of its own tells what is wrong"


def test_the_files_of_one_folder_are_listed(tree: Tree) -> None:
    commit = tree.commit(**{"a/b/c": "1", "a/d": "2", "ab": "3", "z": "4"})
    repository = tree.repository()
    assert repository.list_files(commit) == ("a/b/c", "a/d", "ab", "z")
    assert repository.list_files(commit, "a") == repository.list_files(commit, "a/")
    assert repository.list_files(commit, "a") == ("a/b/c", "a/d")
    assert repository.list_files(commit, "nowhere") == ()
    assert repository.list_files(commit, "../a") == ()


# --- versions of a text ---------------------------------------------------------------------


def test_each_text_appears_once_at_its_first_sight(tree: Tree) -> None:
    first = tree.commit(p="one")
    second = tree.commit(p="two")
    tree.commit(p="one", other="x")
    (tree.path / "p").unlink()
    tree.commit()
    fifth = tree.commit(p="three")
    assert tree.repository().first_parent_texts("p") == [
        FileVersion(first, b"one"),
        FileVersion(second, b"two"),
        FileVersion(fifth, b"three"),
    ]


def test_a_merged_branch_counts_as_the_one_text_it_brought(tree: Tree) -> None:
    tree.git("config", "log.diffMerges", "off")
    first = tree.commit(p="one")
    tree.git("checkout", "--quiet", "-b", "feature")
    tree.commit(p="draft")
    tree.commit(p="final")
    tree.git("checkout", "--quiet", "main")
    tree.git("merge", "--quiet", "--no-ff", "--message", "merge", "feature")
    merge = tree.git("rev-parse", "HEAD")
    expected = [FileVersion(first, b"one"), FileVersion(merge, b"final")]
    assert tree.repository().first_parent_texts("p") == expected


def test_history_is_that_of_the_default_branch_unless_another_is_named(tree: Tree) -> None:
    first = tree.commit(p="one")
    tree.git("checkout", "--quiet", "-b", "feature")
    second = tree.commit(p="two")
    repository = tree.repository()
    assert repository.first_parent_texts("p") == [FileVersion(first, b"one")]
    expected = [FileVersion(first, b"one"), FileVersion(second, b"two")]
    assert repository.first_parent_texts("p", ref="feature") == expected


def test_a_renamed_file_starts_anew(tree: Tree) -> None:
    tree.git("config", "log.follow", "true")
    tree.commit(old="text")
    tree.git("mv", "old", "new")
    second = tree.commit()
    assert tree.repository().first_parent_texts("new") == [FileVersion(second, b"text")]


def test_settings_that_hide_the_first_commit_do_not(tree: Tree) -> None:
    tree.git("config", "log.showRoot", "false")
    first = tree.commit(p="one")
    assert tree.repository().first_parent_texts("p") == [FileVersion(first, b"one")]


def test_a_folder_that_became_a_file_begins_as_that_file(tree: Tree) -> None:
    tree.commit(**{"p/x": "1", "p/y": "2", "p-": "3"})
    tree.git("rm", "--quiet", "-r", "p")
    second = tree.commit(p="text")
    tree.git("rm", "--quiet", "p")
    tree.commit(**{"p/a": "4", "p/b": "5"})
    assert tree.repository().first_parent_texts("p") == [FileVersion(second, b"text")]


def test_texts_too_large_for_a_prompt_are_left_out(tree: Tree) -> None:
    first = tree.commit(p="one")
    tree.commit(p="x" * 100)
    third = tree.commit(p="")
    assert tree.repository().first_parent_texts("p", max_bytes=99) == [
        FileVersion(first, b"one"),
        FileVersion(third, b""),
    ]


# --- a configuration that wants to run something --------------------------------------------


class Trap:
    """A program that leaves a file behind when anything starts it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.mark = folder / "PWNED"
        self.program = folder / "trap"
        self.program.write_text(f"#!/bin/sh\ntouch '{self.mark}'\ncat\n")
        self.program.chmod(0o755)

    def sprung(self) -> bool:
        return self.mark.exists()


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trap")


def look_at_everything(tree: Tree) -> None:
    repository = tree.repository()
    head = repository.resolve("HEAD")
    repository.changed_paths(repository.base_for("HEAD~1"))
    for name in repository.list_files(head):
        repository.read(head, name)
        repository.first_parent_texts(name)
    repository.default_branch()


def arm_monitor(tree: Tree, trap: Trap) -> tuple[str, ...]:
    tree.git("config", "core.fsmonitor", str(trap.program))
    return ("status",)


def arm_hooks(tree: Tree, trap: Trap) -> tuple[str, ...]:
    (trap.program.parent / "post-index-change").symlink_to(trap.program)
    tree.git("config", "core.hooksPath", str(trap.program.parent))
    os.utime(tree.path / "a", (1, 1))
    return ("status",)


def arm_external_diff(tree: Tree, trap: Trap) -> tuple[str, ...]:
    tree.git("config", "diff.external", str(trap.program))
    tree.write(a="changed")
    return ("diff", "HEAD~1")


def arm_text_conversion(tree: Tree, trap: Trap) -> tuple[str, ...]:
    tree.git("config", "diff.evil.textconv", str(trap.program))
    tree.git("config", "diff.evil.command", str(trap.program))
    tree.write(**{".gitattributes": "* diff=evil\n", "a": "changed"})
    return ("diff", "HEAD~1")


def arm_filter(tree: Tree, trap: Trap) -> tuple[str, ...]:
    tree.write(**{".gitattributes": "* filter=e=v.i\n"})
    tree.git("config", "filter.e=v.i.clean", str(trap.program))
    tree.git("config", "filter.e=v.i.required", "true")
    os.utime(tree.path / "a", (1, 1))
    return ("diff", "HEAD~1")


def arm_long_running_filter(tree: Tree, trap: Trap) -> tuple[str, ...]:
    tree.git("config", "filter.evil.process", str(trap.program))
    tree.write(**{".gitattributes": "* filter=evil\n"})
    os.utime(tree.path / "a", (1, 1))
    return ("diff", "HEAD~1")


def arm_signature_check(tree: Tree, trap: Trap) -> tuple[str, ...]:
    tree.git("config", "gpg.program", str(trap.program))
    tree.git("config", "log.showSignature", "true")
    header, _, body = tree.git("cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    signed = tree.git(
        "hash-object", "-t", "commit", "-w", "--stdin", stdin=f"{header}\n{signature}\n\n{body}\n"
    )
    tree.git("reset", "--quiet", "--hard", signed)
    return ("log",)


def arm_submodule(tree: Tree, trap: Trap) -> tuple[str, ...]:
    inner = Tree.create(tree.path / "sub")
    inner.commit(**{".gitattributes": "* filter=evil\n", "a": "1"})
    tree.commit()
    inner.git("config", "filter.evil.clean", str(trap.program))
    os.utime(inner.path / "a", (1, 1))
    return ("status",)


def arm_embedded_repository(tree: Tree, trap: Trap) -> tuple[str, ...]:
    bare = Tree.create(tree.path / "folder", "--bare")
    bare.git("config", "core.bare", "false")
    bare.git("config", "core.worktree", ".")
    bare.git("config", "core.fsmonitor", str(trap.program))
    return ("-C", "folder", "status")


@pytest.mark.parametrize(
    "arm",
    [
        arm_monitor,
        arm_hooks,
        arm_external_diff,
        arm_text_conversion,
        arm_filter,
        arm_long_running_filter,
        arm_signature_check,
        arm_submodule,
        arm_embedded_repository,
    ],
)
def test_nothing_that_the_repository_configures_is_run(
    tree: Tree, trap: Trap, arm: Callable[[Tree, Trap], tuple[str, ...]]
) -> None:
    tree.commit(a="1")
    tree.commit(a="2")
    springs_it = arm(tree, trap)
    look_at_everything(tree)
    found = Repository.find(tree.path / "folder")
    assert found is not None
    found.changed_paths(found.resolve("HEAD"))
    assert not trap.sprung()
    # The trap is worth the test only if plain Git falls into it.
    subprocess.run(
        ["git", *springs_it], cwd=tree.path, env={**os.environ, **IDENTITY}, capture_output=True
    )
    assert trap.sprung()


def test_the_program_configured_for_the_remote_end_is_not_run(
    origin: Tree, tmp_path: Path, trap: Trap
) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1", "--branch=feature", "--no-single-branch")
    clone.git("config", "remote.origin.uploadpack", str(trap.program))
    assert clone.repository().base_for("origin/main") == origin.git("rev-parse", "main~40")
    assert not trap.sprung()


def test_a_remote_that_is_a_command_is_not_run(origin: Tree, tmp_path: Path, trap: Trap) -> None:
    clone = origin.clone(tmp_path / "clone", "--depth=1", "--branch=feature", "--no-single-branch")
    clone.git("config", "remote.origin.url", f"ext::{trap.program}")
    clone.git("config", "protocol.ext.allow", "always")
    with pytest.raises(UsageError):
        clone.repository().base_for("origin/main")
    assert not trap.sprung()


def test_filters_of_the_user_still_see_a_file_as_unchanged(tree: Tree) -> None:
    tree.git("config", "--global", "filter.upper.clean", "tr a-z A-Z")
    base = tree.commit(**{".gitattributes": "a filter=upper\n", "a": "text"})
    os.utime(tree.path / "a", (1, 1))
    assert tree.repository().changed_paths(base) == frozenset()
