"""Problems as GitHub shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.terminal import annotation
from edison_ci.errors import Location, Problem, Severity

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture(autouse=True)
def in_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")


def commands(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("::")]


def test_an_annotation_names_file_line_column_and_rule() -> None:
    problem = Problem(Location("models.yaml", 3, 7), "range", "too hot", "at most 2")
    assert annotation(problem) == (
        "::error file=models.yaml,line=3,col=7,title=edison%3A range::too hot (at most 2)"
    )


def test_a_warning_is_one_without_a_hint() -> None:
    problem = Problem(Location("a.yaml"), "price", "unknown", severity=Severity.WARNING)
    assert annotation(problem) == "::warning file=a.yaml,title=edison%3A price::unknown"


def test_an_error_without_a_place_has_no_file() -> None:
    assert annotation(Problem(Location(""), "usage", "no")) == "::error title=edison%3A usage::no"


def test_everything_is_escaped() -> None:
    problem = Problem(Location("a,b:c%\n.yaml", 1), "x", "50%\n::error::\rz", "\x1b[31m")
    assert annotation(problem) == (
        "::error file=a%2Cb%3Ac%25%0A.yaml,line=1,title=edison%3A x"
        "::50%25%0A::error::\\u{d}z (\\u{1b}[31m)"
    )


def test_a_secret_is_not_annotated() -> None:
    key = "AKIA" + "ABCD1234EFGH5678"
    said = annotation(Problem(Location(f"{key}.yaml"), "x", f"not {key}", key))
    assert key not in said


def test_every_problem_is_annotated_at_its_line(edison: Edison, mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "models: [small]", "models: [smal]")
    done = edison(mini, "validate")
    assert commands(done.err) == [
        "::error file=experiments/hello.yaml,line=4,col=10,title=edison%3A unknown-model"
        "::unknown model 'smal' (did you mean 'small'?)"
    ]
    assert commands(done.out) == []


def test_ten_annotations_at_most_errors_first(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "small: {", "a: {provider: ollama, model: x}\nsmall: {")
    keys = "".join(f"key{n}: 1\n" for n in range(12))
    mini.write("edison.yaml", f"version: 1\nproject: mini\n{keys}")
    said = commands(edison(mini, "validate").err)
    assert len(said) == 10
    assert all(line.startswith("::error file=edison.yaml") for line in said[:9])
    assert said[9].endswith("more problems, see the log")


def test_annotations_come_with_json_too(edison: Edison, mini: Folder) -> None:
    mini.edit("edison.yaml", "version: 1", "version: 2")
    assert len(commands(edison(mini, "validate", "--json").err)) == 1


@pytest.mark.parametrize("words", ["plan", "models list", "try --dry-run hello"])
def test_any_command_that_fails_on_files_annotates_them(
    edison: Edison, mini: Folder, words: str
) -> None:
    mini.edit("edison.yaml", "version: 1", "version: 2")
    said = commands(edison(mini, *words.split()).err)
    assert said[0].startswith("::error file=edison.yaml,line=1,col=10")


@pytest.mark.parametrize(
    "words",
    [["-C", "sub/project", "validate"], ["validate", "sub/project/prompts/hello.md"]],
    ids=["folder", "path"],
)
def test_paths_start_at_the_workspace(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    top = mini.path.parent / "checkout"
    (top / "sub").mkdir(parents=True)
    mini.path.rename(top / "sub" / "project")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(top))
    inner, outer = type(mini)(top / "sub" / "project"), type(mini)(top)
    inner.edit("prompts/hello.md", "id: hello", "id: hallo")
    expected = "::error file=sub/project/prompts/hello.md,line=2,col=5"
    assert commands(edison(outer, *words).err)[0].startswith(expected)
    below = type(mini)(inner.path / "rubrics")
    assert commands(edison(below, "validate").err)[0].startswith(expected)


def test_a_project_outside_the_workspace_keeps_its_own_paths(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mini.path.parent / "elsewhere").mkdir()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(mini.path.parent / "elsewhere"))
    mini.edit("edison.yaml", "version: 1", "version: 2")
    assert commands(edison(mini, "validate").err)[0].startswith("::error file=edison.yaml,")


def test_outside_of_actions_there_are_none(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    mini.edit("edison.yaml", "version: 1", "version: 2")
    assert commands(edison(mini, "validate").err) == []


FAKE = "::error file=a::fake\\n::add-mask::x\\n##[error]y\\n  ::stop-commands::z"


@pytest.mark.parametrize("words", ["try --dry-run hello", "try --dry-run hello --json"])
def test_a_command_in_a_file_is_not_obeyed(edison: Edison, mini: Folder, words: str) -> None:
    mini.write("datasets/names.jsonl", f'{{"id": "ada", "input": {{"name": "{FAKE}"}}}}\n')
    done = edison(mini, *words.split())
    assert commands(done.all) == []
    assert "##[" not in done.all
    assert not [line for line in done.all.splitlines() if line.lstrip().startswith("::")]
    assert "add-mask" in done.out


def test_a_command_in_an_error_is_not_obeyed(edison: Edison, mini: Folder) -> None:
    mini.write("edison.yaml", f'version: 1\nproject: "{FAKE}"\n')
    said = edison(mini, "validate")
    assert [line[:29] for line in commands(said.all)] == ["::error file=edison.yaml,line"]
    assert "##[" not in said.out
