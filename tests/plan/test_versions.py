"""Labels follow the distinct texts of a prompt on the default branch, in real repositories."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.documents.files import WorkingTree, read
from edison_ci.documents.json_text import read_json
from edison_ci.git.repository import Repository
from edison_ci.plan.versions import label_of, past_versions, short
from tests.conftest import Folder

if TYPE_CHECKING:
    from pathlib import Path

PATH = "prompts/hello.md"


class Project(Folder):
    """A project in a real repository, with one prompt."""

    def say(self, text: str, *, path: str = PATH, header: str = "") -> None:
        body = f"Answer the question in one friendly sentence. {text}\n"
        self.write(path, f"---\n{header}---\n{body}")

    def commit(self, text: str | None = None, *, header: str = "") -> None:
        if text is not None:
            self.say(text, header=header)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")

    def prompt(self, path: str = PATH) -> Prompt:
        tree = WorkingTree(self.path)
        found, problems = read_prompt(
            read(tree, path), path, lambda file: read_json(read(tree, file), file).value
        )
        assert found is not None, problems
        return found

    def label(self, path: str = PATH) -> str:
        return label_of(self.prompt(path), self.path)

    def hash(self) -> str:
        return short(self.prompt().version)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    path = tmp_path / "project"
    path.mkdir()
    project = Project(path)
    project.git("init", "--quiet", "--initial-branch=main")
    return project


def test_a_version_is_shown_by_its_first_eight_hex_digits() -> None:
    assert short("0123456789abcdef") == "01234567"


def test_distinct_texts_count_up_from_one(project: Project) -> None:
    for number, text in enumerate(["one", "two", "three"], 1):
        project.commit(text)
        assert project.label() == f"v{number}"


def test_commits_that_do_not_reach_the_model_do_not_count(project: Project) -> None:
    project.commit("one")
    project.commit("one", header="description: Says hello.\n")
    project.commit("one", header="production: v1\ndescription: Says hello kindly.\n")
    project.commit("one", header="id: hello\n")
    project.write("other.txt", "x")
    project.commit()
    assert project.label() == "v1"
    project.commit("two")
    assert project.label() == "v2"


def test_text_that_is_not_committed_is_the_last_version_plus_a_hash(project: Project) -> None:
    project.commit("one")
    project.commit("two")
    project.say("three")
    assert project.label() == f"v2+{project.hash()}"
    project.git("add", "--all")
    assert project.label() == f"v2+{project.hash()}"


def test_a_prompt_that_was_never_committed_is_version_nought(project: Project) -> None:
    project.say("one")
    assert project.label() == f"v0+{project.hash()}", "before the first commit"
    project.write("other.txt", "x")
    project.git("add", "other.txt")
    project.git("commit", "--quiet", "--message", "change")
    assert project.label() == f"v0+{project.hash()}"


def test_a_branch_shows_a_hash_until_it_is_merged(project: Project) -> None:
    project.commit("one")
    project.git("checkout", "--quiet", "-b", "better")
    project.commit("two")
    project.commit("three")
    assert project.label() == f"v1+{project.hash()}"
    project.git("checkout", "--quiet", "main")
    assert project.label() == "v1"
    project.git("merge", "--quiet", "--no-ff", "--message", "merge", "better")
    assert project.label() == "v2", "what the branch tried on its way is not a version of main"
    project.git("checkout", "--quiet", "better")
    assert project.label() == "v2"


def test_a_fast_forward_counts_each_commit(project: Project) -> None:
    project.commit("one")
    project.git("checkout", "--quiet", "-b", "better")
    project.commit("two")
    project.commit("three")
    project.git("checkout", "--quiet", "main")
    project.git("merge", "--quiet", "--ff-only", "better")
    assert project.label() == "v3"


def test_an_old_branch_still_knows_its_version(project: Project) -> None:
    project.commit("one")
    project.git("branch", "old")
    project.commit("two")
    project.commit("three")
    project.git("checkout", "--quiet", "old")
    assert project.label() == "v1"


def test_a_revert_gives_the_old_label_back(project: Project) -> None:
    for text in ("one", "two", "three"):
        project.commit(text)
    project.git("revert", "--no-edit", "HEAD")
    assert project.label() == "v2"
    project.commit("one")
    assert project.label() == "v1"
    project.commit("four")
    assert project.label() == "v4"


def test_a_renamed_prompt_starts_again_at_one(project: Project) -> None:
    project.commit("one")
    project.commit("two")
    project.git("mv", PATH, "prompts/bye.md")
    project.commit()
    assert project.label("prompts/bye.md") == "v1"


def test_a_prompt_that_was_removed_and_came_back_keeps_its_numbers(project: Project) -> None:
    project.commit("one")
    project.git("rm", "--quiet", PATH)
    project.commit()
    project.commit("two")
    assert project.label() == "v2"


def test_a_text_that_was_no_prompt_is_no_version(project: Project) -> None:
    project.commit("one")
    project.commit("{{ broken() }}")
    project.commit("two")
    assert project.label() == "v2"


def test_line_ends_make_no_version(project: Project) -> None:
    project.commit("one")
    project.write(PATH, project.read(PATH).replace("\n", "\r\n"))
    project.commit()
    assert project.label() == "v1"


def test_a_schema_that_the_prompt_names_is_part_of_its_versions(project: Project) -> None:
    header = "output: prompts/answer.json\n"
    project.write("prompts/answer.json", '{"type": "object"}')
    project.commit("one", header=header)
    first = project.prompt().version
    project.write("prompts/answer.json", '{"type": "array"}')
    assert project.label() == f"v1+{project.hash()}"
    project.commit()
    assert project.label() == "v2"
    project.commit("two", header=header)
    assert project.label() == "v3"
    project.write("prompts/answer.json", '{"type": "string"}')
    project.commit()
    assert project.label() == "v4"
    repository = Repository.find(project.path)
    assert repository is not None
    versions = past_versions(PATH, project.path, repository)
    assert len(versions) == 4 and versions[0] == first


def test_a_schema_from_before_the_prompt_makes_no_version(project: Project) -> None:
    for kind in ("string", "number", "object"):
        project.write("prompts/answer.json", f'{{"type": "{kind}"}}')
        project.commit()
    project.commit("one", header="output: prompts/answer.json\n")
    assert project.label() == "v1"


def test_a_project_in_a_subfolder_has_its_own_history(project: Project) -> None:
    inner = Project(project.path / "teams" / "support")
    inner.path.mkdir(parents=True)
    project.commit("outer")
    for text in ("one", "two"):
        inner.write("prompts/s.json", f'{{"title": "{text}"}}')
        inner.say(text, header="output: prompts/s.json\n")
        project.commit()
    assert inner.label() == "v2"
    assert project.label() == "v1"


def test_without_git_every_prompt_is_version_one(tmp_path: Path) -> None:
    folder = Project(tmp_path)
    folder.say("one")
    assert folder.label() == "v1"


def test_a_shallow_clone_does_not_pretend_to_know(project: Project, tmp_path: Path) -> None:
    for text in ("one", "two", "three"):
        project.commit(text)
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{project.path}", str(clone)], check=True
    )
    shallow = Project(clone)
    assert shallow.label() == f"v?+{project.hash()}"
    shallow.git("fetch", "--quiet", "--unshallow")
    assert shallow.label() == "v3"


def test_a_clone_follows_the_default_branch_of_its_origin(project: Project, tmp_path: Path) -> None:
    project.git("branch", "--move", "trunk")
    project.commit("one")
    project.commit("two")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(project.path), str(clone)], check=True)
    cloned = Project(clone)
    cloned.git("checkout", "--quiet", "-b", "work")
    cloned.commit("three")
    assert cloned.label() == f"v2+{cloned.hash()}"


def test_hundreds_of_commits_are_read_in_time(project: Project) -> None:
    texts = [f"---\n---\nAnswer the question in sentence number {n}, kindly." for n in range(300)]
    stream = "".join(
        f"commit refs/heads/main\ncommitter Ada <ada@example.org> {n + 1} +0000\ndata 0\n"
        f"M 100644 inline {PATH}\ndata {len(text)}\n{text}\n"
        for n, text in enumerate(texts)
    )
    subprocess.run(
        ["git", "fast-import", "--quiet"], input=stream.encode(), cwd=project.path, check=True
    )
    project.git("reset", "--quiet", "--hard", "main")
    assert project.label() == "v300"
