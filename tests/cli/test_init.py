"""edison init lays out a project and never overwrites."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from edison_ci import __version__
from edison_ci.cli.init import TEMPLATES
from tests.conftest import EXAMPLES, ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def test_the_templates_are_the_examples() -> None:
    shipped = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert set(TEMPLATES) == shipped - {"one-word-answers", "workflows"}


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_file_of_a_template_is_copied(edison: Edison, folder: Folder, template: str) -> None:
    assert edison(folder, "init", "--template", template).code == 0
    source = EXAMPLES / template
    for path in source.rglob("*"):
        name = path.relative_to(source).as_posix()
        if path.is_file() and ".db" not in name and not name.startswith(".edison/schemas"):
            assert (folder.path / name).read_bytes() == path.read_bytes()
    for path in (ROOT / "schemas").glob("*.json"):
        assert (folder.path / ".edison/schemas" / path.name).read_bytes() == path.read_bytes()


def test_the_screen_says_what_was_written_and_what_comes_next(
    edison: Edison, folder: Folder
) -> None:
    done = edison(folder, "init", "my-prompts")
    assert "  wrote edison.yaml\n" in done.out
    assert "  wrote .edison/schemas/ (14 files)\n" in done.out
    assert done.err == (
        "\nNext:\n"
        "  cd my-prompts\n"
        "  edison validate     check every file\n"
        "  edison plan         show what a run would do and cost\n"
        "  edison run          evaluate, offline for now\n"
        "  edison models add openai/gpt-5-mini    for the first real model\n"
    )


def test_with_real_models_the_next_steps_say_what_is_true_there(
    edison: Edison, folder: Folder
) -> None:
    assert edison(folder, "init").code == 0
    models = folder.read("models.yaml")
    keyless = "small: {provider: ollama, model: m, base_url: 'http://localhost:1/v1', price: free}"
    folder.write("models.yaml", models.replace("small: {provider: sim, model: small}", keyless))
    done = edison(folder, "init", "--github")
    assert "edison run          evaluate, with calls to the models of models.yaml\n" in done.err
    assert "no secret is needed: no model in models.yaml names a key\n" in done.err
    assert "offline" not in done.err
    assert "first real model" not in done.err


COMMENTED = re.compile(r"# (?!yaml-)( *(?:- )?[a-z_][a-z0-9_-]*:(?: .*)?)")


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_line_that_is_commented_out_may_be_uncommented(
    edison: Edison, folder: Folder, template: str
) -> None:
    assert edison(folder, "init", "--template", template).code == 0
    uncommented = 0
    for path in [*folder.path.rglob("*.yaml")]:
        before = path.read_text(encoding="utf-8")
        found = [COMMENTED.fullmatch(line) for line in before.splitlines()]
        uncommented += sum(match is not None for match in found)
        lines = zip(before.splitlines(), found, strict=True)
        text = "".join(f"{match[1] if match else line}\n" for line, match in lines)
        path.write_text(text, encoding="utf-8")
    trust = (folder.path / ".edison/trust.yaml").read_text(encoding="utf-8")
    assert "\nkeys:\n  - env: " in trust
    assert uncommented > 15
    done = edison(folder, "validate", "--json")
    problems = [each for each in json.loads(done.out)["problems"] if each["severity"] == "error"]
    assert problems == []


def test_folders_are_made_as_needed(edison: Edison, folder: Folder) -> None:
    assert edison(folder, "init", "a/b/c").code == 0
    assert (folder.path / "a/b/c/edison.yaml").is_file()


def test_what_is_there_is_kept(edison: Edison, folder: Folder) -> None:
    folder.write("prompts/support-reply.md", "mine")
    folder.write("notes.txt", "mine too")
    done = edison(folder, "init")
    assert done.code == 0
    assert "  kept  prompts/support-reply.md (exists already)\n" in done.out
    assert folder.read("prompts/support-reply.md") == "mine"
    assert folder.read("notes.txt") == "mine too"


def test_a_link_is_kept_whatever_it_points_to(edison: Edison, folder: Folder) -> None:
    outside = folder.path.parent / "outside.yaml"
    (folder.path / "edison.yaml").symlink_to(outside)
    assert edison(folder, "init").code == 0
    assert not outside.exists()


def test_a_second_time_nothing_changes(edison: Edison, folder: Folder) -> None:
    edison(folder, "init")
    before = {p: p.stat().st_mtime_ns for p in folder.path.rglob("*") if p.is_file()}
    done = edison(folder, "init")
    assert "wrote" not in done.out
    assert {p: p.stat().st_mtime_ns for p in folder.path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("target", ["file", "/dev/null"])
def test_a_file_is_no_target(edison: Edison, folder: Folder, target: str) -> None:
    folder.write("file", "")
    done = edison(folder, "init", target)
    assert (done.code, done.out) == (2, "")
    assert "is a file" in done.err
    assert "give the name of a folder" in done.err


@pytest.mark.parametrize("target", ["file/below", "/proc/edison"])
def test_a_target_that_cannot_be_made_is_said(edison: Edison, folder: Folder, target: str) -> None:
    folder.write("file", "")
    done = edison(folder, "init", target)
    assert done.code == 2
    assert "cannot be created" in done.err
    assert done.err.count("\n") == 2


def test_a_file_in_the_place_of_a_folder_is_not_taken_for_a_kept_file(
    edison: Edison, folder: Folder
) -> None:
    folder.write("prompts", "a file where the folder of prompts should be")
    done = edison(folder, "init")
    assert done.code == 2
    assert "cannot be created: File exists" in done.err
    assert folder.read("prompts").startswith("a file")


# --- workflows ------------------------------------------------------------------------------------


def test_workflows_go_to_the_root_of_the_repository(edison: Edison, folder: Folder) -> None:
    folder.git("init", "--quiet", "--initial-branch=trunk")
    done = edison(folder, "init", "prompts/support", "--github", "--workflow", "push")
    assert done.code == 0
    assert "  wrote ../../.github/workflows/edison.yml\n" in done.out
    assert "  no secret is needed: no model in models.yaml names a key\n" in done.err
    assert 'branches: ["trunk"]' in folder.read(".github/workflows/edison-push.yml")
    assert 'PROJECT: "prompts/support" #' in folder.read(".github/workflows/edison.yml")
    assert (folder.path / "prompts/support/edison.yaml").is_file()
    assert sorted(path.name for path in (folder.path / ".github/edison").iterdir()) == [
        f"edison_ci-{__version__}-py3-none-any.whl",
        "install.sh",
        "run.txt",
    ]


@pytest.mark.nightly
def test_a_project_that_is_there_gets_its_workflow_and_nothing_else(
    edison: Edison, mini: Folder
) -> None:
    mini.write(".github/workflows/edison.yml", "mine")
    done = edison(mini, "init", "--github", "--json")
    told = json.loads(done.out)
    assert {name.rpartition("/")[0] for name in told["written"]} == {".github/edison"}
    assert told["kept"] == [".github/workflows/edison.yml"]
    assert mini.read(".github/workflows/edison.yml") == "mine"


def workflows_in(folder: Folder) -> list[str]:
    return sorted(path.name for path in (folder.path / ".github/workflows").iterdir())


@pytest.mark.nightly
def test_nothing_but_the_workflow_for_pull_requests_is_written_unasked(
    edison: Edison, folder: Folder
) -> None:
    assert edison(folder, "init", "--github").code == 0
    assert workflows_in(folder) == ["edison.yml"]
    assert edison(folder, "init", "--github", "--workflow", "schedule").code == 0
    assert workflows_in(folder) == ["edison-schedule.yml", "edison.yml"]
    assert edison(folder, "init", "--github", "--workflow", "all").code == 0
    assert workflows_in(folder) == [
        "edison-approvals.yml",
        "edison-by-hand.yml",
        "edison-fork-comment.yml",
        "edison-push.yml",
        "edison-refine.yml",
        "edison-run.yml",
        "edison-schedule.yml",
        "edison.yml",
    ]


MODELS = """
small: {provider: openai, model: gpt-5-mini}
big: {use: small, model: gpt-5}
judge: {provider: anthropic, model: claude, key_env: JUDGE_KEY}
own: {provider: openai_compatible, model: m, base_url_env: OWN_URL, key_env: OWN_KEY}
broken: {provider: none, key_env: NOT_THIS}
"""


def test_the_keys_are_those_that_models_name(edison: Edison, mini: Folder) -> None:
    mini.write("models.yaml", MODELS)
    done = edison(mini, "init", "--github", "--workflow", "refine")
    assert done.code == 0, done.err
    for name in ("edison", "edison-refine"):
        text = mini.read(f".github/workflows/{name}.yml")
        passed = re.findall(r"^ +(\w+): \$\{\{ (secrets|vars)\.(\w+) \}\}$", text, re.MULTILINE)
        assert passed == [
            ("OPENAI_API_KEY", "secrets", "OPENAI_API_KEY"),
            ("JUDGE_KEY", "secrets", "JUDGE_KEY"),
            ("OWN_KEY", "secrets", "OWN_KEY"),
            ("OWN_URL", "vars", "OWN_URL"),
        ]
    assert "  gh secret set JUDGE_KEY  the models need this secret of the repository\n" in done.err
    assert (
        "  gh variable set OWN_URL  the models need this variable of the repository\n" in done.err
    )


@pytest.mark.parametrize("option", [["--batch"], ["--workflow", "push"]])
def test_options_of_workflows_need_workflows(
    edison: Edison, folder: Folder, option: list[str]
) -> None:
    done = edison(folder, "init", *option)
    assert (done.code, done.out) == (2, "")
    assert f"{option[0]} is about workflows" in done.err
    assert not (folder.path / "edison.yaml").exists()


def test_an_unknown_workflow_is_refused_with_the_known_ones(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "init", "--github", "--workflow", "nightly")
    assert done.code == 2
    assert "'push', 'schedule', 'refine', 'fork-comment', 'by-hand', 'run', 'approvals'" in done.err
