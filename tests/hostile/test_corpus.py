"""Whatever lies in place of a file of the project, validate and plan end in words, soon."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from contextlib import closing
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.errors import Severity
from tests.conftest import ROOT, Folder
from tests.hostile.bombs import BOMBS, FRONT, YAML_TEXTS, Bomb
from tests.hostile.kitchen import (
    PROJECT,
    Ending,
    WarmEdison,
    check_problem,
    cold,
    lay_out,
    problems_in,
)
from tests.timing import slowness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.daily

CORPUS = ROOT / "tests" / "corpus"
KINDS = (
    "edison.yaml",
    "models.yaml",
    "experiments/hello.yaml",
    "prompts/hello.md",
    "rubrics/tone.yaml",
    "datasets/rows.jsonl",
    "datasets/table.csv",
    "datasets/list.yaml",
    "quarantine.yaml",
    ".edison/trust.yaml",
    ".edison/prices.json",
    "schemas/reply.json",
)
OWN = {
    "project": "edison.yaml",
    "models": "models.yaml",
    "experiment": "experiments/hello.yaml",
    "prompt": "prompts/hello.md",
    "rubric": "rubrics/tone.yaml",
    "quarantine": "quarantine.yaml",
    "trust": ".edison/trust.yaml",
}
"""Folders of the corpus with files of one kind; the others go in place of every kind."""
NAMES = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.is_file())

NOTHING = {"bytes/empty", "text/newline", "text/comment", "text/mark-only"}
NO_KEYS = NOTHING | {"yaml/empty-map", "yaml/null-at-the-top", "yaml/only-anchor", "text/two-marks"}
FINE: dict[str, set[str]] = {
    "datasets/list.yaml": NOTHING | {"yaml/empty-list", "yaml/list-at-the-top"},
    "quarantine.yaml": NO_KEYS,
    ".edison/trust.yaml": NO_KEYS,
    "experiments/hello.yaml": {"experiment/margins-tiny", "experiment/prompt-is-yaml"},
    "prompts/hello.md": {
        "prompt/braces-syntax",
        "prompt/closed-at-once",
        "prompt/fence-never-closed",
        "prompt/line-statements",
        "prompt/long-fence",
        "prompt/raw",
        "prompt/three-front-matters",
    },
    "schemas/reply.json": {
        "json/deep-50",
        "json/long-fraction",
        "json/nul-escape",
        "json/prices-huge",
        "json/prices-no-dates",
        "json/prices-odd-dates",
        "json/prices-wrong",
        "json/python-names",
        "json/schema-true",
        "json/wrong-types",
        "yaml/empty-map",
        "yaml/true-at-the-top",
    },
}
"""What is in order in place of a file of this kind; everything else is refused there."""
FREE = {"prompts/hello.md", "datasets/table.csv"}
"""Kinds that are free text: what is wrong elsewhere may be right here."""
NEVER_TEXT = {name for name in NAMES if name.startswith("bytes/")}
NO_TABLE = {
    *(f"csv/{name}" for name in ("ragged", "semicolons", "tabs", "empty-header", "open-quote")),
    *(f"csv/{name}" for name in ("duplicate-header", "quote-inside", "carriage-return", "odd-ids")),
    *(f"csv/{name}" for name in ("difficulties", "quoted-newlines", "commas-only", "quotes-only")),
}


def refused(name: str, kind: str) -> bool | None:
    """Whether a file of the corpus is an error in place of a kind; None if either would do."""
    own = OWN.get(name.partition("/")[0])
    if kind not in FREE or own == kind:
        return name not in FINE.get(kind, set())
    if name in NEVER_TEXT | NO_TABLE:
        return name in NEVER_TEXT or kind == "datasets/table.csv"
    return None


# --- every file in place of every kind ------------------------------------------------------------


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid project that tests change and put right again."""
    folder = tmp_path_factory.mktemp("kitchen")
    lay_out(folder)
    return folder


def test_the_project_itself_is_valid(kitchen: Path) -> None:
    assert problems_in(kitchen) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_file_gives_problems_and_nothing_else(name: str, kitchen: Path) -> None:
    own = OWN.get(name.partition("/")[0])
    for kind in [own] if own else KINDS:
        try:
            (kitchen / kind).write_bytes((CORPUS / name).read_bytes())
            problems = problems_in(kitchen)
            for problem in problems:
                check_problem(problem, kitchen)
        finally:
            (kitchen / kind).write_text(PROJECT[kind], encoding="utf-8")
        wrong = any(problem.severity is Severity.ERROR for problem in problems)
        expected = refused(name, kind)
        assert expected is None or wrong is expected, f"{name} in place of {kind}"


# --- through the real command ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmEdison]:
    with WarmEdison(tmp_path_factory.mktemp("warm")) as edison:
        yield edison


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    lay_out(path)
    return path


def check_ending(ending: Ending, *, code: int | None = None) -> Any:
    """Check that a command ended well, whatever it found, and return its document."""
    assert "Traceback" not in ending.err
    assert ending.code in (0, 2) if code is None else ending.code == code, ending.out[:2_000]
    assert ending.cpu_s < 4 * slowness()
    assert ending.peak_mb < 300
    document = ending.document
    assert document["schema_version"] == 1
    if "error" in document:
        assert document["error"]["message"]
        assert document["exit_code"] == 2
    for problem in document.get("problems", []):
        assert problem["file"]
        assert problem["message"]
        assert len(problem["message"]) <= 1_000
    return document


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_file_in_all_places_at_once_ends_in_words(
    name: str, folder: Path, warm: WarmEdison
) -> None:
    for kind in KINDS[1:]:
        (folder / kind).write_bytes((CORPUS / name).read_bytes())
    command = ("validate", "plan")[NAMES.index(name) % 2]
    check_ending(warm.run(folder, command, "--json"), code=2)
    assert not (folder / "PWNED").exists()


SIMULATED = (
    "version: 1\nsmall: {provider: sim, model: small}\nhaiku: {provider: sim, model: large}\n"
    "judge: {provider: sim, model: judge}\n"
)
TAKEN = sorted(
    (kind, name)
    for kind, names in FINE.items()
    for name in names & set(NAMES)
    if kind not in ("quarantine.yaml", ".edison/trust.yaml")  # where nothing is said in the end
)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted({kind for kind, _ in TAKEN}))
def test_what_validate_accepts_is_not_refused_when_it_runs(kind: str, folder: Path) -> None:
    """Neither the run nor a grade fails because of a file that was found to be in order."""
    (folder / "models.yaml").write_text(SIMULATED)
    for name in (name for place, name in TAKEN if place == kind):
        (folder / kind).write_bytes((CORPUS / name).read_bytes())
        done = Folder(folder).edison("run", "--json", "--yes", "--limit", "1", "--no-cache")
        assert done.code in (0, 1, 5), (name, done.out[:2_000])
        with closing(sqlite3.connect(folder / ".edison" / "results.db")) as results:
            cells = "select status, reason from cell where status = 'error'"
            broken = "select name, reason from component where status = 'error'"
            assert results.execute(cells).fetchall() == [], name
            assert results.execute(broken).fetchall() == [], name


HARMLESS = {"a deep JSON Schema", "a cell of newlines", "a long comparison", "many elifs"}


@pytest.mark.nightly
@pytest.mark.parametrize("bomb", BOMBS, ids=[bomb.name for bomb in BOMBS])
def test_a_bomb_is_defused(bomb: Bomb, folder: Path, warm: WarmEdison) -> None:
    data = bomb.make()
    for place in bomb.places:
        (folder / place).write_bytes(data)
    document = check_ending(warm.run(folder, "validate", "--json"))
    assert document["ok"] is (bomb.name in HARMLESS)
    assert len(document["problems"]) < 500


@pytest.mark.parametrize("bomb", YAML_TEXTS[::4], ids=[bomb.name for bomb in YAML_TEXTS[::4]])
def test_a_bomb_in_edison_yaml_is_defused(bomb: Bomb, folder: Path, warm: WarmEdison) -> None:
    (folder / "edison.yaml").write_bytes(bomb.make())
    document = check_ending(warm.run(folder, "validate", "--json"), code=2)
    assert {problem["file"] for problem in document["problems"]} == {"edison.yaml"}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["billion laughs", "many misspelt quarantines"])
def test_a_fresh_process_stays_small_too(name: str, folder: Path) -> None:
    (bomb,) = [bomb for bomb in BOMBS if bomb.name == name]
    for place in bomb.places:
        (folder / place).write_bytes(bomb.make())
    check_ending(cold(folder, "validate", "--json"), code=2)
    check_ending(cold(folder, "plan", "--json"), code=2)


# --- what is no regular file ----------------------------------------------------------------------


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_folder(path: Path) -> None:
    path.mkdir()


def put_socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def put_link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def put_link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def put_link_out(path: Path) -> None:
    outside = path.parents[len(path.parents) - 1] / "etc" / "passwd"
    path.symlink_to(outside)


def put_chain(path: Path) -> None:
    for number in range(60):
        path.with_name(f"link{number}").symlink_to(f"link{number + 1}")
    path.symlink_to("link0")


ODDITIES: dict[str, Callable[[Path], None]] = {
    "a FIFO": put_fifo,
    "a folder": put_folder,
    "a socket": put_socket,
    "a link to a FIFO": put_link_to_fifo,
    "a link out of the project": put_link_out,
    "a link to an endless device": put_link("/dev/zero"),
    "a link to a random device": put_link("/dev/urandom"),
    "a link to the terminal": put_link("/dev/stdin"),
    "a link to the memory of the process": put_link("/proc/self/mem"),
    "a link to itself": put_link("itself"),
    "a link to nothing": put_link("nowhere"),
    "a link to its folder": put_link("."),
    "a chain of links": put_chain,
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused_without_waiting(
    kind: str, folder: Path, warm: WarmEdison
) -> None:
    for name, put in ODDITIES.items():
        path = folder / kind
        path.unlink()
        put(path.with_name("itself") if name == "a link to itself" else path)
        if name == "a link to itself":
            path.with_name("itself").rename(path)
        document = check_ending(warm.run(folder, "validate", "--json"), code=2)
        if kind != "edison.yaml" or name == "a link out of the project":
            assert any(p["file"] == kind or kind in p["message"] for p in document["problems"]), (
                name
            )
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for left in (*path.parent.glob("link*"), *path.parent.glob("pipe")):
            left.unlink()
        path.write_text(PROJECT[kind], encoding="utf-8")
    check_ending(warm.run(folder, "validate", "--json"), code=0)


@pytest.mark.parametrize("kind", ["experiments", "prompts", "rubrics", "datasets", "schemas"])
@pytest.mark.parametrize("name", ["a FIFO", "a link out of the project", "a link to nothing"])
def test_a_folder_that_is_none_is_refused(
    kind: str, name: str, folder: Path, warm: WarmEdison
) -> None:
    (folder / kind).rename(folder.parent / "moved")
    ODDITIES[name](folder / kind)
    document = check_ending(warm.run(folder, "validate", "--json"), code=2)
    assert any(kind in problem["message"] for problem in document["problems"])


# --- names ----------------------------------------------------------------------------------------

ODD_NAMES = {
    "zero-width space": "hel\u200blo",
    "zero-width joiner": "hel\u200dlo",
    "soft hyphen": "hel\u00adlo",
    "Cyrillic letter": "h\u0435llo",
    "Greek letter": "hell\u03bf",
    "full-width letters": "\uff48\uff45llo",
    "right-to-left override": "hel\u202elo",
    "isolate": "hel\u2066lo\u2069",
    "tag character": "hello\U000e0041",
    "terminal escape": "hel\x1b[31mlo",
    "NUL": "hel\0lo",
    "newline": "hello\n",
    "blank": "hel lo",
    "slash": "hel/lo",
    "dots": "..",
    "very long": "h" * 5_000,
    "empty": "",
}
NAMED = {
    "project": ("edison.yaml", '"kitchen sink"', "project: kitchen sink"),
    "default judge": ("edison.yaml", "judge}", "{judge: judge}"),
    "model": ("models.yaml", "small:", "small: {"),
    "used model": ("experiments/hello.yaml", "[small,", "models: [small, haiku]"),
    "experiment": ("experiments/hello.yaml", "hello", "experiment: hello"),
    "judge": ("experiments/hello.yaml", "[judge]", "pointwise: [judge]"),
    "schedule": ("experiments/hello.yaml", "weekdays", "name: weekdays"),
    "prompt id": ("prompts/hello.md", "hello", "id: hello"),
    "rubric": ("rubrics/tone.yaml", "tone", "rubric: tone"),
    "criterion": ("rubrics/tone.yaml", "Warmth", "name: Warmth"),
    "quarantined experiment": ("quarantine.yaml", "hello", "experiment: hello"),
    "trusted key": (".edison/trust.yaml", "[]", "keys: []"),
}


def renamed(text: str, line: str, name: str) -> str:
    """Return a text in which the last word of a line is this name, in double quotes."""
    quoted = '"' + "".join(f"\\U{ord(c):08x}" for c in name) + '"'
    replacement = {
        "{judge: judge}": f"{{judge: {quoted}}}",
        "small: {": f"{quoted}: {{",
        "models: [small, haiku]": f"models: [{quoted}, haiku]",
        "pointwise: [judge]": f"pointwise: [{quoted}]",
        "keys: []": f'keys: [{{env: {quoted}, hosts: ["https://a.example"]}}]',
    }.get(line, line.partition(": ")[0] + f": {quoted}")
    assert line in text
    return text.replace(line, replacement, 1)


BLANKS_ALLOWED = {("project", "blank"), ("criterion", "blank")}


@pytest.mark.parametrize("place", NAMED)
def test_a_name_that_could_be_mistaken_is_refused(
    subtests: pytest.Subtests, place: str, kitchen: Path
) -> None:
    file, _, line = NAMED[place]
    for odd, name in ODD_NAMES.items():
        if (place, odd) in BLANKS_ALLOWED:
            continue
        with subtests.test(odd):
            try:
                text = renamed(PROJECT[file], line, name)
                (kitchen / file).write_text(text, encoding="utf-8")
                problems = problems_in(kitchen)
                for problem in problems:
                    check_problem(problem, kitchen)
            finally:
                (kitchen / file).write_text(PROJECT[file], encoding="utf-8")
            assert any(problem.severity is Severity.ERROR for problem in problems)


READABLE = {"blank", "slash", "dots"}
NOT_IN_A_TABLE = {"NUL", "empty", "very long"}  # cannot be written, or no id is given


def case_ids() -> Iterator[tuple[str, str]]:
    for file, odd in product(("rows.jsonl", "table.csv", "list.yaml"), ODD_NAMES):
        if odd not in READABLE and (odd not in NOT_IN_A_TABLE or file != "table.csv"):
            yield f"datasets/{file}", odd


def test_a_case_id_that_could_be_mistaken_is_refused(
    subtests: pytest.Subtests, kitchen: Path
) -> None:
    for file, odd in case_ids():
        with subtests.test(file=file, odd=odd):
            name = ODD_NAMES[odd]
            if file.endswith(".csv"):
                old, new, line = "cell-7", f'"{name}"', 9
            else:
                old = '"row-7"' if file.endswith(".jsonl") else "item-7"
                new, line = json.dumps(name), 8
            try:
                (kitchen / file).write_text(PROJECT[file].replace(old, new, 1), encoding="utf-8")
                problems = problems_in(kitchen)
                for problem in problems:
                    check_problem(problem, kitchen)
            finally:
                (kitchen / file).write_text(PROJECT[file], encoding="utf-8")
            assert [(p.where.file, p.where.line) for p in problems] == [(file, line)]


FILE_NAMES = [
    b"\xff\xfe.md",
    b"new\nline.md",
    b"back\\slash.md",
    b"\x1b]0;pwned\x07.md",
    "hell\u0435.md".encode(),
    "\u202egnp.md".encode(),
    b"-rf.md",
    b"$(touch PWNED).md",
    b"a" * 250 + b".md",
    b" .md",
    b"::error::x.md",
]


def test_files_with_odd_names_are_told_and_not_obeyed(folder: Path, warm: WarmEdison) -> None:
    for name in FILE_NAMES:
        path = os.path.join(os.fsencode(folder), b"prompts", name)  # noqa: PTH118 - bytes
        with open(path, "wb") as stream:  # noqa: PTH123 - bytes
            stream.write(FRONT + b"Say hello to {{ name }}, in one friendly sentence.\n")
    document = check_ending(warm.run(folder, "validate", "--json"), code=2)
    assert len(document["problems"]) >= len(FILE_NAMES)
    text = warm.run(folder, "validate")
    assert "\x1b" not in text.out + text.err
    assert "\u202e" not in text.out + text.err
    assert not (folder / "PWNED").exists()


def test_many_files_are_read_in_time(folder: Path, warm: WarmEdison) -> None:
    for number in range(500):
        text = f"---\nid: p{number}\n---\nSay hello to {{{{ name }}}} number {number}, and smile.\n"
        (folder / "prompts" / f"p{number}.md").write_text(text)
    check_ending(warm.run(folder, "validate", "--json"), code=0)


def test_an_executable_in_place_of_a_prompt_is_not_run(folder: Path, warm: WarmEdison) -> None:
    prompt = folder / "prompts" / "hello.md"
    prompt.write_text("#!/bin/sh\ntouch PWNED\n")
    prompt.chmod(0o755)
    check_ending(warm.run(folder, "validate", "--json"))
    assert not (folder / "PWNED").exists()
