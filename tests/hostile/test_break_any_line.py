"""Break any line of any file, and be told where; what goes unnoticed is listed with its reason."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from edison_ci.errors import Problem, Severity
from tests.conftest import EXAMPLES
from tests.hostile.kitchen import check_problem, problems_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.daily

SUPPORT = EXAMPLES / "customer-support"
PROMPT = "prompts/support-reply.md"
FILES = (
    "edison.yaml",
    "models.yaml",
    "experiments/support-reply.yaml",
    "rubrics/support-reply.yaml",
    ".edison/trust.yaml",
    PROMPT,
)
TEXTS = {name: (SUPPORT / name).read_text(encoding="utf-8").split("\n") for name in FILES}
LINES = [(name, n) for name, lines in TEXTS.items() for n, line in enumerate(lines) if line.strip()]

_ENTRY = re.compile(r"(?P<before>\s*(?:- )?\{?)(?P<key>[A-Za-z_]+):(?: (?P<value>\S.*))?$")


class Broken(NamedTuple):
    """One line of a file, and what was done to it."""

    file: str
    line: int
    """Counted from 0."""
    how: str

    @property
    def text(self) -> str:
        return TEXTS[self.file][self.line]

    @property
    def key(self) -> str:
        found = _ENTRY.match(self.text)
        return found["key"] if found else ""

    @property
    def is_entry(self) -> bool:
        return self.text.lstrip().startswith("- ")

    @property
    def in_body(self) -> bool:
        return self.file == PROMPT and self.line > TEXTS[PROMPT].index("---", 1)

    @property
    def in_block(self) -> bool:
        """Whether the line is part of a long text that a key above it introduces."""
        above = [line for line in TEXTS[self.file][: self.line] if line.strip()]
        for line in reversed(above):
            if line.endswith(">-"):
                return True
            if _ENTRY.match(line) or line.lstrip().startswith("#"):
                return False
        return False

    def __str__(self) -> str:
        return f"{self.file}:{self.line + 1} ({self.how}): {self.text.strip()}"


def breakages(line: str) -> Iterator[tuple[str, str | None]]:
    """Yield ways to break a line; None takes it away."""
    yield "delete the line", None
    yield "indent with a tab", "\t" + line
    yield "indent wrongly", " " + line
    code, hash_, comment = line.partition("  #")
    rest = hash_ + comment
    for mark in "\"']}":
        if mark in code:
            cut = code.rindex(mark)
            yield f"leave out a {mark}", code[:cut] + code[cut + 1 :] + rest
    entry = _ENTRY.match(code.rstrip())
    if entry is None:
        return
    before, key, value = entry["before"], entry["key"], entry["value"]
    tail = f" {value}{rest}" if value else rest
    yield "misspell the key", f"{before}{key[:-1]}x:{tail}"
    yield "write the key twice", f"{line}\n{line.replace('- ', '  ', 1)}"
    yield "leave out the colon", f"{before}{key}{tail}"
    if value and not before.endswith("{"):
        yield "delete the value", f"{before}{key}:{rest}"
        yield "write null", f"{before}{key}: null{rest}"
        yield "write a number", f"{before}{key}: 987654{rest}"
        yield "write a list of lists", f"{before}{key}: [[1]]{rest}"
        yield "write an unknown map", f"{before}{key}: {{zzz: 1}}{rest}"


# --- what may pass --------------------------------------------------------------------------------

OPTIONAL = {
    "edison.yaml": {"description", "model", "judge", "refiner", "budget_usd"},
    "models.yaml": {"version", "large"},
    "experiments/support-reply.yaml": {
        *("title", "models", "split", "repeats", "safety", "stop", "refine", "tags"),
    },
    "rubrics/support-reply.yaml": {"scale"},
    ".edison/trust.yaml": {"version", "builtin", "keys"},
    PROMPT: {"id", "type", "description", "expect"},
}
"""Keys that have a default, or that nothing else needs."""
USED_VARIABLE = re.compile(r"\{\{ (\w+) \}\}")


def is_comment(b: Broken) -> bool:
    return b.text.lstrip().startswith("#") and b.file != PROMPT


def is_free_text(b: Broken) -> bool:
    """Text of a prompt or of a description may say anything."""
    if b.in_block:
        return True
    return b.in_body and not b.text.startswith("# ")


def is_text_either_way(b: Broken) -> bool:
    """A text over several lines needs no `>-`, and may begin with a number or a list."""
    return b.key == "objective" and b.how in ("delete the value", "write null", "write a number")


def is_optional(b: Broken) -> bool:
    return b.how == "delete the line" and b.key in OPTIONAL[b.file]


def is_one_of_several(b: Broken) -> bool:
    """A list of datasets, checks or gates is still one without an entry."""
    return b.how == "delete the line" and b.is_entry and b.file.startswith("experiments/")


def is_an_only_key(b: Broken) -> bool:
    """The only key of a map may stand in any column."""
    return b.how == "indent wrongly" and b.key == "pointwise"


def is_a_name_of_ones_own(b: Broken) -> bool:
    """Nobody uses the model `large`, so it may have any name."""
    return b.file == "models.yaml" and b.key == "large" and b.how == "misspell the key"


def means_the_default(b: Broken) -> bool:
    """A check without an argument takes its default, the expected output."""
    return b.key == "icontains" and b.how in ("delete the value", "write null")


MAY_PASS: tuple[Callable[[Broken], bool], ...] = (
    is_comment,
    is_free_text,
    is_text_either_way,
    is_optional,
    is_one_of_several,
    is_an_only_key,
    is_a_name_of_ones_own,
    means_the_default,
)


# --- what may be told elsewhere -------------------------------------------------------------------


def names_the_missing_key(b: Broken, problem: Problem) -> bool:
    """A key that is not there is missed by the map it belongs to."""
    return problem.where.file == b.file and problem.message == f"key {b.key!r} is missing"


def names_the_model(b: Broken, problem: Problem) -> bool:
    """A model that is gone is missed wherever it is used."""
    return b.file == "models.yaml" and problem.message == f"unknown model {b.key!r}"


def names_the_variable(b: Broken, problem: Problem) -> bool:
    """A variable is declared in one place and used in another."""
    names = {b.key, *USED_VARIABLE.findall(b.text)} - {""}
    return problem.where.file == b.file == PROMPT and any(
        f"{n!r} is" in problem.message for n in names
    )


def is_about_the_parts_of_a_prompt(b: Broken, problem: Problem) -> bool:
    """A line that parts a prompt is missed by the parts."""
    parting = b.text.startswith(("# ", "---"))
    return b.file == PROMPT and parting and problem.code in ("sections", "front-matter")


def lies_in_the_text_below(b: Broken, problem: Problem) -> bool:
    """A long text without its `>-` is wrong where it has a colon."""
    line = problem.where.line or 0
    return b.text.endswith(">-") and problem.where.file == b.file and 0 < line - b.line <= 5


def lies_where_the_next_entry_starts(b: Broken, problem: Problem) -> bool:
    """An entry of a list without its first line is a map, until the next entry."""
    told = TEXTS[b.file][problem.where.line or 0].lstrip().startswith("- ")
    return b.is_entry and b.how == "delete the line" and problem.where.file == b.file and told


ELSEWHERE: tuple[Callable[[Broken, Problem], bool], ...] = (
    names_the_missing_key,
    names_the_model,
    names_the_variable,
    is_about_the_parts_of_a_prompt,
    lies_in_the_text_below,
    lies_where_the_next_entry_starts,
)


def is_near(b: Broken, problem: Problem) -> bool:
    line = problem.where.line or -9
    return problem.where.file == b.file and abs(line - 1 - b.line) <= 1


# --- the test -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def support_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stranger") / "support"
    shutil.copytree(SUPPORT, folder)
    return folder


def broken(file: str, line: int) -> Iterator[tuple[Broken, str]]:
    lines = TEXTS[file]
    for how, new in breakages(lines[line]):
        text = "\n".join([*lines[:line], *([] if new is None else [new]), *lines[line + 1 :]])
        yield Broken(file, line, how), text


@pytest.mark.parametrize(("file", "line"), LINES, ids=[f"{name}:{n + 1}" for name, n in LINES])
def test_a_broken_line_is_told_where_it_is(file: str, line: int, support_folder: Path) -> None:
    path = support_folder / file
    try:
        for b, text in broken(file, line):
            path.write_text(text, encoding="utf-8")
            problems = problems_in(support_folder)
            for problem in problems:
                check_problem(problem, support_folder)
            errors = [problem for problem in problems if problem.severity is Severity.ERROR]
            if not errors:
                assert any(rule(b) for rule in MAY_PASS), f"nobody noticed {b}"
                continue
            told = any(
                is_near(b, problem) or any(rule(b, problem) for rule in ELSEWHERE)
                for problem in errors
            )
            assert told, f"{b}\n" + "\n".join(map(str, errors))
    finally:
        path.write_text("\n".join(TEXTS[file]), encoding="utf-8")


def test_most_broken_lines_are_noticed(support_folder: Path) -> None:
    """The rules above are exceptions: of the lines that say something, nearly all are missed."""
    count = passed = 0
    for file, line in LINES:
        for b, _ in broken(file, line):
            if not (is_comment(b) or is_free_text(b)):
                count += 1
                passed += any(rule(b) for rule in MAY_PASS)
    assert count > 500
    assert passed / count < 0.1
