"""The documentation says what is there, and what it shows works."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from docs import reference
from docs.codes import CODES
from docs.snippets import everything, snippets
from edison_ci.checks.options import REGISTRY
from edison_ci.cli.app import all_commands
from edison_ci.cli.groups import commands
from edison_ci.errors import ExitCode
from edison_ci.resources import KINDS
from tests.conftest import ROOT, Folder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EVERYTHING = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
README = (ROOT / "README.md").read_text(encoding="utf-8")

BLOCKS = [each for page in PAGES for each in snippets(page)]


# --- current --------------------------------------------------------------------------------------


def test_the_generated_parts_are_current() -> None:
    paths = [str(page.relative_to(ROOT)) for page in PAGES]
    done = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "--diff", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run make docs\n{done.stdout}"


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "index.md":
            assert f"]({page.relative_to(ROOT / 'docs').as_posix()}): " in index
    assert "(docs/index.md)" in README


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_inside_the_repository_lead_somewhere(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page.name):
            text = re.sub(
                r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
            )
            for target in re.findall(r"\]\(([^)]+)\)", text):
                if target.startswith("https://"):
                    continue
                path, _, anchor = target.partition("#")
                found = (page.parent / path).resolve() if path else page
                assert found.exists(), target
                assert not anchor or anchor in anchors(found), target


FOR_CONTRIBUTORS = [ROOT / ".github" / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
PACKAGE = ROOT / "edison_ci"
FOLDERS = {"edison_ci", "tests", "docs", "benchmarks", "requirements", "schemas", "examples", ".ci"}
NOT_HERE = {
    "edison_ci/_shipped",  # in the wheel
    *("click.py", "contextlib.py", "sitecustomize.py", "yaml.py"),  # planted by an attacker
}
"""Paths that pages name although the repository has not got them."""


def quoted(page: Path) -> set[str]:
    """Return the words between backticks, outside of blocks."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return set(re.findall(r"`([^`\s]+)`", text))


def is_path(word: str) -> bool:
    """Whether a word names a file of this repository, and not one of a user's."""
    first, slash, _ = word.partition("/")
    if not first or "NAME" in word or not re.fullmatch(r"[\w./-]+", word):
        return False
    own_room = (PACKAGE / first).is_dir() and not word.endswith(".md")  # users have judges/ too
    return word.endswith(".py") or (bool(slash) and (first in FOLDERS or own_room))


def test_every_file_that_is_named_is_there(subtests: pytest.Subtests) -> None:
    for page in [*PAGES, *FOR_CONTRIBUTORS]:
        with subtests.test(page.name):
            named = {word for word in quoted(page) if is_path(word)} - NOT_HERE
            places = {word: (ROOT / word, PACKAGE / word, PACKAGE / f"{word}.py") for word in named}
            assert {
                word for word in named if not any(path.exists() for path in places[word])
            } == set()


def test_the_headings_on_statistics_name_modules() -> None:
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    named = {
        name for head in re.findall(r"^## .*$", text, re.M) for name in re.findall("`(.+?)`", head)
    }
    assert named - {path.stem for path in (PACKAGE / "stats").glob("*.py")} == set()


@pytest.mark.parametrize("name", ["architecture", "extending"])
def test_every_name_of_the_code_is_there(name: str) -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    known = set(re.findall(r"\w+", code))
    names = {
        part
        for word in quoted(ROOT / "docs" / f"{name}.md")
        if re.fullmatch(r"[A-Za-z_]\w*([.][a-z_]\w*)*", word) and re.search(r"[A-Z_]", word)
        for part in word.split(".")
    }
    assert names - known == set()


WALKS = {"One case": 19, "A pull request": 20, "A schedule that is due": 12}
"""The walks that docs/architecture.md lists, and the most modules that each may pass."""


def test_the_walks_pass_few_modules_and_all_of_them_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for walk, most in WALKS.items():
        (paragraph,) = re.findall(rf"(?:^|\. ){walk}[^:]*: (.*?)\n\n", text, re.M | re.S)
        modules = re.findall(r"`([a-z_/]+)`", paragraph)
        assert 10 <= len(set(modules)) == len(modules) <= most, walk
        assert [name for name in modules if not (PACKAGE / f"{name}.py").exists()] == []


# --- complete -------------------------------------------------------------------------------------


def test_every_command_is_named() -> None:
    for words in all_commands():
        assert f"\n## edison {words}\n" in EVERYTHING
    for name in commands():
        assert f"[`{name}`](docs/commands.md#edison-{name})" in README


def test_every_exit_code_is_named() -> None:
    for exit_code in ExitCode:
        assert f"| {int(exit_code)} | {exit_code.meaning} |" in README


def test_every_check_is_named() -> None:
    page = (ROOT / "docs/checks.md").read_text(encoding="utf-8")
    for name in REGISTRY.built_in:
        assert f"\n| `{name}` |" in page


def test_every_kind_of_file_is_described() -> None:
    page = (ROOT / "docs/files.md").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f'reference.keys("{kind}")' in page


def test_every_key_of_every_file_is_in_its_table() -> None:
    assert "`gates[].worst_case_drop`" in reference.keys("experiment")
    assert "`NAME.limits.rpm`" in reference.keys("models")
    assert "`settings.reuse_days`" in reference.keys("edison")
    assert "`criteria[].lower_is_better`" in reference.keys("rubric")
    assert "| 1 to 100 | `1` | Answers per case |" in reference.keys("experiment")


REPORTS = {
    *("wrong", "Fault", "Problem", "problem", "warning", "warn", "add", "Said", "report", "fault"),
    *("_problem", "_add", "_at", "_fault", "_warn", "_BadRowError", "SchemaFault"),
}
"""Functions and classes whose first literal text is the code of a problem."""
INTERNAL = {"nested", "expected"}
READING = ("config", "checks", "documents", "shape.py", "templating")


def codes_in_use() -> set[str]:
    found: set[str] = set()
    for part in READING:
        place = ROOT / "edison_ci" / part
        for path in [place] if place.is_file() else place.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    found |= code_of(node)
    return found - INTERNAL


def code_of(call: ast.Call) -> set[str]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name in REPORTS and texts and re.fullmatch(r"[a-z]+(-[a-z]+)*", texts[0]):
        return {texts[0]}
    return set()


def test_no_table_shows_a_default_that_python_made_up() -> None:
    lines = EVERYTHING.splitlines()
    assert not [line for line in lines if "Undefined" in line or " object at 0x" in line]


def test_every_code_of_a_problem_is_explained_and_none_too_many() -> None:
    used = codes_in_use()
    assert used - set(CODES) == set(), "explain them in docs/codes.py"
    assert set(CODES) - used == set(), "no longer used: remove them from docs/codes.py"


# --- true -----------------------------------------------------------------------------------------


def test_targets_that_are_named_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shell = [each for each in everything() if each.language in ("console", "sh")]
    named = {c.split()[1] for each in shell for c in each.commands if c.startswith("make ")}
    assert {"demo", "test", "wheel"} <= named
    assert {name for name in named if f"\n{name}:" not in makefile} == set()


def test_the_example_project_of_the_files_page_is_valid(folder: Folder) -> None:
    titled = [block for block in BLOCKS if block.page == "docs/files.md" and block.title]
    assert len(titled) >= 11
    for block in titled:
        folder.write(block.title, block.text)
    done = folder.edison("validate", "--json")
    told = json.loads(done.out)
    assert (told["ok"], told["problems"]) == (True, []), "not even a warning"
    assert all("is not set" in note["message"] for note in told.get("notes", []))
    planned = json.loads(folder.edison("plan", "--json").out)["experiments"][0]
    assert planned["cases"] == 6
    assert len([load for load in planned["by_model"] if load["phase"] == "generate"]) == 3


def test_the_example_of_a_failure_is_what_a_failure_looks_like(support: Folder) -> None:
    (shown,) = [b for b in BLOCKS if b.page == "README.md" and b.language == "json"]
    assert json.loads(support.edison("plan", "x", "--json").out) == json.loads(shown.text)


def test_the_hook_of_the_front_door_checks_the_files_of_a_project(support: Folder) -> None:
    (shown,) = [b for b in BLOCKS if b.title == ".pre-commit-config.yaml"]
    (hook,) = yaml.safe_load(shown.text)["repos"][0]["hooks"]
    names = [p.relative_to(support.path).as_posix() for p in support.path.rglob("*") if p.is_file()]
    staged = [name for name in names if re.search(hook["files"], name)]
    assert {"edison.yaml", "models.yaml", "prompts/support-reply.md"} <= set(staged)
    word, *args = shlex.split(hook["entry"])
    assert word == "edison"
    assert support.edison(*args, *staged).code == 0


def test_no_page_tells_of_a_machine(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page.name):
            text = page.read_text(encoding="utf-8")
            assert not re.search(r"/(work|root|tmp|home|Users)/", text)
