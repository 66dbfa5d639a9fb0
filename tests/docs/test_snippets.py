"""Every snippet of the documentation runs, or says why it cannot."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import jsonschema
import pytest

from docs.sample import build
from docs.snippets import MARKS, Snippet, everything, pages, snippets
from edison_ci.cli.app import edison as the_command
from edison_ci.cli.options import CliState
from edison_ci.config.schema import schema_of
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.resources import KINDS
from tests.conftest import EXAMPLES, ROOT, Folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Edison

pytestmark = pytest.mark.daily

EVERYTHING = everything()
SHELL = {"console", "sh", "before"}
DATA = {"yaml", "json", "toml", "csv", "markdown"}
SHOWN = {"text", "indented", "mermaid", "diff"}
"""Output, drawings and formulas: nothing to run."""
TOOLS = {"cat", "cp", "git", "ls", "mkdir", "printf", "sed"}
"""What commands may use beside edison."""
A_COMMAND = re.compile(r"^ *(?:\$ )?(?:edison|make|datasette|pipx|uvx?|gh|git|python3?) ", re.M)
SOME_CASES = 26
HELP = "docs/commands.md"
"""Its blocks are help texts, whose examples tests/cli/test_help.py parses."""


def here(snippet: Snippet) -> bool:
    """Whether a snippet is to run in this file."""
    return not {"not-run", "run-by"} & set(snippet.marks)


# --- each is run or marked ------------------------------------------------------------------------


def problem_with(snippet: Snippet) -> str:
    """Say why a snippet is neither run nor marked; nothing if it is."""
    if unknown := set(snippet.marks) - MARKS:
        return f"unknown marks: {sorted(unknown)}"
    if test := snippet.marks.get("run-by"):
        named = Path(snippet.page).name
        runs = (ROOT / test).is_file() and named in (ROOT / test).read_text(encoding="utf-8")
        return "" if runs else f"{test} does not read {named}"
    if "not-run" in snippet.marks:
        return "" if len(snippet.marks["not-run"]) >= 10 else "say why it is not run"
    if snippet.language in SHOWN:
        drawn = "──►" in snippet.text or snippet.page == HELP
        hidden = A_COMMAND.search(snippet.text) and not drawn
        return "a command in a block that is not run: make it console or sh" if hidden else ""
    if snippet.language in SHELL:
        words = {shlex.split(command)[0] for command in snippet.commands}
        return "" if words else "no command"
    if snippet.language in DATA | {"python", "sql", "inline"}:
        return ""
    return f"a block of {snippet.language or 'no language'} is not run by any test"


def test_every_snippet_is_run_or_says_why_not(subtests: pytest.Subtests) -> None:
    for page in pages():
        with subtests.test(page.relative_to(ROOT).as_posix()):
            found = {each.place: why for each in snippets(page) if (why := problem_with(each))}
            assert found == {}


SNIPPETS = [
    ("```ruby\nputs 1\n```\n", "a block of ruby is not run by any test"),
    ("```\nx\n```\n", "a block of no language is not run by any test"),
    ("    edison run\n", "a command in a block that is not run: make it console or sh"),
    ("```text\n$ edison serve\n```\n", "a command in a block that is not run"),
    ('```sh not-run="no"\nedison serve\n```\n', "say why it is not run"),
    ('```sh norun="a good reason"\nedison serve\n```\n', "unknown marks: ['norun']"),
    ('```sh run-by="tests/none.py"\nedison serve\n```\n', "tests/none.py does not read"),
    ("```console\nedison run\n```\n", "no command"),
    ('```sh not-run="waits for a browser"\nedison serve\n```\n', ""),
    ("    a ──► b\n", ""),
]


def test_a_snippet_that_is_neither_run_nor_marked_is_found(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, (text, why) in enumerate(SNIPPETS):
        with subtests.test(text=text):
            page = tmp_path / f"page-{number}.md"
            page.write_text(text)
            (snippet,) = snippets(page)
            assert problem_with(snippet).startswith(why)
            assert bool(problem_with(snippet)) == bool(why)


# --- pages, from top to bottom --------------------------------------------------------------------


@dataclass
class Reader:
    """Follows a page in a project: runs its commands and its code, and writes its files."""

    folder: Folder
    run: Edison

    def follow(self, page: Path) -> None:
        steps: dict[str, Callable[[Snippet], None]] = {
            **dict.fromkeys(SHELL, self.commands),
            **dict.fromkeys(DATA, self.write),
            "python": self.python,
        }
        for snippet in snippets(page):
            if snippet.language in steps and here(snippet):
                steps[snippet.language](snippet)

    def write(self, snippet: Snippet) -> None:
        if snippet.title:
            self.folder.write(snippet.title, snippet.text)

    def python(self, snippet: Snippet) -> None:
        code = compile(snippet.text, snippet.place, "exec")
        with contextlib.chdir(self.folder.path), contextlib.redirect_stdout(io.StringIO()):
            exec(code, {"__name__": "page"})

    def commands(self, snippet: Snippet) -> None:
        *first, last = snippet.commands
        for command in first:
            self.command(snippet, command, 0)
        self.command(snippet, last, int(snippet.marks.get("exit", 0)))

    def command(self, snippet: Snippet, command: str, code: int) -> None:
        word, *args = shlex.split(command)
        if word == "cd":
            self.folder = Folder(self.folder.path / args[0])
        elif word == "edison" and not re.search(r"[|<>]", command):
            done = self.run(self.folder, *(self.known(arg) for arg in args))
            assert done.code == code, f"{snippet.place}: {command}\n{done.all}"
        else:
            self.shell(snippet, command, code)

    def shell(self, snippet: Snippet, command: str, code: int) -> None:
        used = set(re.findall(r"(?:^|\|\s*|\$\()(\w+)", command))
        assert used <= TOOLS | {"edison"}, f"{snippet.place}: {command}"
        script = f'edison() {{ "{sys.executable}" -P -m edison_ci "$@"; }}\n{command}'
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder.path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, f"{snippet.place}: {command}\n{done.stderr}"

    def known(self, word: str) -> str:
        """Return the id of the newest suggestion for the one that pages show.

        With the few cases that are left here no gain is verified, as it is with all of them.
        """
        if word != "3f9a41":
            return word
        with contextlib.closing(sqlite3.connect(self.folder.path / ".edison/results.db")) as db, db:
            ((found,),) = db.execute("select id from suggestion order by rowid desc limit 1")
            db.execute("update suggestion set status = 'proposed' where status = 'tried'")
        return str(found)


def to_follow() -> list[Path]:
    runnable = SHELL | {"python"}
    return [
        page
        for page in pages()
        if any(each.language in runnable and here(each) for each in snippets(page))
    ]


def shorten(folder: Folder, text: str) -> None:
    """Keep a few cases of each dataset, and those that a page names."""
    for path in folder.path.glob("datasets/*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [
            line
            for number, line in enumerate(lines)
            if number < SOME_CASES or json.loads(line)["id"] in text
        ]
        path.write_text("".join(kept), encoding="utf-8")


def starts_empty(page: Path) -> bool:
    """Whether a page makes its project itself."""
    commands = [c for each in snippets(page) if each.language in SHELL for c in each.commands]
    return any(command.startswith("edison init ") for command in commands)


LONG = {"loop", "optimizing", "reports", "tutorial", "first-workflow", "generated-data"}
"""Pages whose commands take seconds."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.nightly) if page.stem in LONG else page
        for page in to_follow()
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_a_page_works_from_top_to_bottom(page: Path, folder: Folder, edison: Edison) -> None:
    if not starts_empty(page):
        example = page.parent if page.parent.parent == EXAMPLES else EXAMPLES / "customer-support"
        shutil.copytree(example, folder.path, dirs_exist_ok=True)
        shorten(folder, page.read_text(encoding="utf-8"))
        folder.write(".gitignore", ".edison/*\n!.edison/trust.yaml\n")
        folder.git("init", "-q", "-b", "main")
        for key, value in (("user.name", "Reader"), ("user.email", "reader@example.com")):
            folder.git("config", key, value)
        folder.git("add", ".")
        folder.git("commit", "-qm", "A project")
    Reader(folder, edison).follow(page)


def test_a_command_that_fails_fails_the_page(
    tmp_path: Path, support: Folder, edison: Edison
) -> None:
    for text in ("edison status --sideways", "cat none.txt", "git frob"):
        page = tmp_path / f"{len(text)}.md"
        page.write_text(f"```sh\n{text}\n```\n")
        with pytest.raises(AssertionError, match=re.escape(text)):
            Reader(support, edison).follow(page)


# --- commands in the prose ------------------------------------------------------------------------


PLACEHOLDER = re.compile(r"'[A-Z_]+'|'[A-Z]/[A-Z]'|'[A-Z]+@[A-Z]+'")


def misread(text: str) -> str:
    """Say what is wrong with a command of the prose, in which a word in capitals stands for any."""
    words = shlex.split(re.split(r" >>? | \| ", text)[0].replace(" ...", ""))[1:]
    ctx: click.Context = click.Context(the_command, info_name="edison", obj=CliState())
    command: click.Command = the_command
    if words[:1] == ["-C"]:
        words = words[2:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(ctx, words.pop(0))
        if found is None:
            return f"{text}: no such command"
        command = found
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            command.make_context(command.name, words, parent=ctx),
        ):
            return ""
    except (click.MissingParameter, click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        return ""  # prose leaves arguments out
    except click.BadParameter as error:
        return "" if PLACEHOLDER.search(error.message) else f"{text}: {error.message}"
    except click.BadOptionUsage as error:
        return "" if error.message.endswith("requires an argument.") else f"{text}: {error.message}"
    except click.UsageError as error:
        missing = error.message.startswith("Missing argument")  # by a rule of its own
        return "" if missing else f"{text}: {error.message}"


OF_A_PLUGIN = "edison report --format tsv"
PROSE = sorted({each.text for each in EVERYTHING if each.language == "inline"} - {OF_A_PLUGIN})


def test_every_command_in_the_prose_exists_with_its_options() -> None:
    assert len(PROSE) > 100
    assert [why for text in PROSE if (why := misread(text))] == []


def test_commands_that_are_not_run_exist_with_their_options() -> None:
    marked = [each for each in EVERYTHING if each.language in SHELL and not here(each)]
    commands = [c for each in marked for c in each.commands if c.startswith("edison ")]
    assert commands
    assert [why for command in commands if (why := misread(command))] == []


@pytest.mark.parametrize(
    "text",
    ["edison frob", "edison run --sideways", "edison admin schema frob", "edison admin db frob"],
)
def test_a_command_in_the_prose_that_does_not_exist_is_found(text: str) -> None:
    assert misread(text)


# --- data -----------------------------------------------------------------------------------------

KIND_OF_FILE = {
    r"edison\.yaml": "edison",
    r"(\w+/)?(models|local)\.yaml": "models",
    r"experiments/.*\.yaml": "experiment",
    r"rubrics/.*\.yaml": "rubric",
    r"quarantine\.yaml": "quarantine",
    r"judge_approvals\.yaml": "judge_approvals",
    r"\.edison/trust\.yaml": "trust",
    r"\.edison/secrets\.yaml": "secrets",
    r"datasets/.*\.about\.yaml": "about",
    r"datasets/.*\.yaml": "dataset",
    r"\.github/workflows/.*\.yml": "workflow",
    r"\.pre-commit-config\.yaml": "any",
    r".*\.prompt\.yml|promptfooconfig\.yaml": "any",
}


@cache
def schema(kind: str) -> dict[str, Any]:
    if kind in KINDS:
        return schema_of(kind)
    vendor = files("check_jsonschema") / "builtin_schemas" / "vendor" / "github-workflows.json"
    found: dict[str, Any] = json.loads(vendor.read_text(encoding="utf-8"))
    return found


def kind_of(snippet: Snippet, data: Any) -> str:
    """Return what kind of file a block is, or a part of: by its title, or else by its keys."""
    for pattern, kind in KIND_OF_FILE.items():
        if re.fullmatch(pattern, snippet.title):
            return kind
    if snippet.title:
        return f"no kind of file is called {snippet.title}"
    if isinstance(data, list):
        return "steps"
    for kind in ("experiment", "edison", "rubric", "trust", "workflow"):
        if set(data) <= set(schema(kind)["properties"]):
            return kind
    if all(isinstance(entry, dict) and "provider" in entry for entry in data.values()):
        return "models"
    if set(data) <= set(schema("models")["definitions"]["ModelEntry"]["properties"]):
        return "entry"
    return f"no kind of file has the keys {sorted(data)}"


def faults(snippet: Snippet) -> list[str]:
    """Say what is wrong with a block of YAML."""
    data: Any = read_yaml(snippet.text, snippet.place).value
    kind = kind_of(snippet, data)
    if kind == "any":
        return []
    if kind == "steps":
        data, kind = {"on": "push", "jobs": {"a": {"runs-on": "x", "steps": data}}}, "workflow"
    if kind == "entry":
        data, kind = {"some": {"use": "other", **data}}, "models"
    if kind not in (*KINDS, "workflow"):
        return [kind]
    whole = schema(kind)
    if not snippet.title and not (kind == "workflow" and "jobs" in data):
        whole = {**whole, "required": []}  # a part of a file
        whole.pop("anyOf", None)
    checker = jsonschema.validators.validator_for(whole)(whole)
    return [f"{'/'.join(map(str, e.path))}: {e.message[:200]}" for e in checker.iter_errors(data)]


def of(language: str) -> list[Snippet]:
    return [snippet for snippet in EVERYTHING if snippet.language == language and here(snippet)]


def test_every_block_of_yaml_is_valid_as_what_it_is(subtests: pytest.Subtests) -> None:
    for snippet in of("yaml"):
        with subtests.test(snippet.place):
            assert faults(snippet) == []


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("models.yaml", "small: {provider: none}"),
        ("", "gates: [{metric: composite, at_leest: 80%}]"),
        ("", "gaits: []"),
        ("", "- ruin: edison validate"),
        ("some.yaml", "a: 1"),
    ],
)
def test_a_wrong_block_of_yaml_is_found(title: str, text: str) -> None:
    assert faults(Snippet("page.md", 1, "yaml", text, {"title": title} if title else {}))


def rows(text: str) -> list[list[str]]:
    """Return the rows of a table, each with as many values as there are columns."""
    found = list(csv.reader(io.StringIO(text), strict=True))
    assert {len(row) for row in found} == {len(found[0])}
    return found[1:]


PARSE: dict[str, Callable[[str], Any]] = {"json": json.loads, "toml": tomllib.loads, "csv": rows}


def test_every_block_of_data_parses(subtests: pytest.Subtests) -> None:
    for snippet in [snippet for language in PARSE for snippet in of(language)]:
        with subtests.test(snippet.place):
            lines = (
                snippet.text.splitlines() if snippet.title.endswith(".jsonl") else [snippet.text]
            )
            assert all(PARSE[snippet.language](line) for line in lines)


@pytest.mark.parametrize("snippet", of("sql"), ids=lambda snippet: snippet.place)
def test_every_query_runs(snippet: Snippet, tmp_path: Path) -> None:
    build(tmp_path / "results.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        assert connection.execute(snippet.text).fetchall()
