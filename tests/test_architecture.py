"""Imports point down, each library has one home, and --help stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Folder

PACKAGE = ROOT / "edison_ci"

LAYERS = [
    {"_dataclass"},
    {"errors", "extras", "records", "names", "rounding", "resources"},
    {"documents"},
    {"shape", "templating", "plugins", "git", "stats", "contracts", "store", "sanitize"},
    {"checks", "safety", "formatting"},
    {"config"},
    {"plan", "providers", "judges", "simulator"},
    {"results"},
    {"decide"},
    {"execute", "forge", "importing"},
    {"operate"},
    {"refine"},
    {"report"},
    {"review"},
    {"loop"},
    {"api", "web"},
    {"cli", "__main__", "__init__"},
]
"""Floors of the house, lowest first; docs/architecture.md is written from this list."""
SAME_FLOOR = {("__main__", "cli"), ("__main__", "__init__"), ("cli", "__init__"),
              ("templating", "plugins")}  # fmt: skip
"""Pairs that belong together although they are not one folder."""

ONLY_IN = {
    "click": {"cli"},
    "yaml": {"documents/yaml_text.py"},
    "jinja2": {"templating"},
    "numpy": {"stats/libraries.py"},
    "scipy": {"stats/libraries.py"},
    "jsonschema": {"checks/json_schema.py"},
    "referencing": {"checks/json_schema.py"},
    "difflib": {"names.py", "report/changed_lines.py", "git/repository.py"},
    "cronsim": {"config/decisions.py"},
    "tiktoken": {"plan/tokens.py"},
    "litellm": {"providers/litellm_bridge.py"},
    "aiohttp": {"providers/transport.py"},
    "uvloop": {"execute/session.py"},
    "httpx": {"forge/api.py", "providers/litellm_bridge.py"},
    "sqlite3": {"store", "cli/doctor.py", "checks/worker_jobs.py"},
    "sqlite_utils": {"store/absorbing.py"},
    "cryptography": {"operate/signatures.py"},
    "tenacity": {"providers/resilience.py"},
    "phonenumbers": {"safety/numbers.py"},
    "subprocess": {
        "git/command.py",
        "cli/doctor.py",
        "checks/worker.py",
        "checks/child.py",
        "report/pdf.py",
    },
    "rapidfuzz": {"checks/similarity.py"},
    "rich": {"cli/bars.py"},
    "sacrebleu": {"checks/similarity.py"},
    "safetensors": {"checks/similarity.py"},
    "tokenizers": {"checks/similarity.py"},
    "py3langid": {"checks/language.py"},
    "junit_xml": {"report/junit.py"},
    "datasette": {"web"},
    "uvicorn": {"web/serving.py"},
}
"""Libraries and the one place that may import each."""

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_shipped" not in path.parts)


def floor(name: str) -> int:
    for rank, names in enumerate(LAYERS):
        if name in names:
            return rank
    raise AssertionError(f"{name} is on no floor: add it to LAYERS")


def room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def for_types_only(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


class Import(NamedTuple):
    module: str
    line: int
    local: bool
    """Inside a function."""
    types: bool
    """For the checker of types only."""


@cache
def imports(path: Path) -> list[Import]:
    return list(_imports(ast.parse(path.read_text(encoding="utf-8")), local=False, types=False))


def _imports(parent: ast.AST, *, local: bool, types: bool) -> Iterator[Import]:
    local = local or isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef)
    types = types or for_types_only(parent)
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, local, types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno} imports relatively"
            yield Import(node.module or "", node.lineno, local, types)
        elif not isinstance(node, ast.expr):
            yield from _imports(node, local=local, types=types)


def is_own(module: str) -> bool:
    return module.split(".")[0] == "edison_ci"


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def every_import() -> Iterator[tuple[Path, Import]]:
    return ((path, each) for path in MODULES for each in imports(path))


def test_imports_point_down() -> None:
    upward = []
    for path, each in every_import():
        mine, (_, *rest) = room(path), each.module.split(".")
        if not is_own(each.module) or not rest:
            continue
        theirs = rest[0]
        if theirs == mine or (mine, theirs) in SAME_FLOOR or floor(theirs) < floor(mine):
            continue
        upward.append(f"{place(path)}:{each.line}: {mine} may not import {theirs}")
    assert upward == []


def test_each_library_has_one_home() -> None:
    astray = []
    for path, each in every_import():
        here, homes = place(path), ONLY_IN.get(each.module.split(".")[0])
        if homes is None or each.types or here in homes:
            continue
        if not any(here.startswith(f"{home}/") for home in homes):
            astray.append(f"{here}:{each.line} imports {each.module}, whose home is {homes}")
    assert astray == []


def test_every_module_has_a_telling_name_and_a_docstring() -> None:
    bad = {"utils", "helpers", "common", "base", "core", "misc", "manager", "handler", "service"}
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    assert [place(path) for path in MODULES if path.stem in bad] == []
    silent = [place(path) for path, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert silent == [], "a module starts with what is in it"
    asking = [place(p) for p, t in texts.items() if t.split("\n", 1)[0].rstrip('"').endswith("?")]
    assert asking == [], "say what is there"


def test_own_modules_are_imported_at_the_top() -> None:
    lazy = {"__main__.py", "cli/app.py", "plan/plan.py"}  # start-up cost is their subject
    inside = [
        f"{place(path)}:{each.line}"
        for path, each in every_import()
        if each.local and is_own(each.module) and place(path) not in lazy
    ]
    assert inside == []


SQL_IN = {"store", "results"}
"""The folders that may ask the results file: what is kept, and what it says."""
SQL_ELSEWHERE = {
    "checks/worker_jobs.py",  # a check of SQL asks a database in memory
    "cli/doctor.py",  # tries out SQLite on a file of its own
}
"""Modules outside of them that run a statement."""
STATEMENTS = {"execute", "executemany", "executescript"}


def runs_a_statement(path: Path) -> bool:
    """Whether a module calls a method by which connections and cursors run SQL."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in STATEMENTS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_sql_stands_in_the_store_and_the_read_model() -> None:
    outside = (path for path in MODULES if room(path) not in SQL_IN)
    found = {place(path) for path in outside if runs_a_statement(path)}
    assert found - SQL_ELSEWHERE == set(), "move the query to store/ or results/"
    assert SQL_ELSEWHERE - found == set(), "no exception is needed any more: take it off the list"


WITH_DIGITS = re.compile(r"^[^%]*([.]|%$)")
"""A format that rounds: `.1f`, `,.0f`, `.{digits}f`, `%`, but not that of a time."""
PERCENT_FORMAT = re.compile(r"%[+ #-]?\d*[.]\d+[efg]")


def rounding_formats(path: Path) -> Iterator[int]:
    """Yield the lines that round a number by a format of their own."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            fixed = (v.value for v in node.format_spec.values if isinstance(v, ast.Constant))
            if WITH_DIGITS.search("".join(map(str, fixed))):
                yield node.lineno
        elif isinstance(node, ast.Constant) and PERCENT_FORMAT.search(str(node.value)):
            yield node.lineno


def test_numbers_are_rounded_in_one_place() -> None:
    """A format rounds a sum up on one machine and down on another: `rounding` does not."""
    own = [
        f"{place(path)}:{line}"
        for path in MODULES
        if place(path) != "rounding.py"
        for line in rounding_formats(path)
    ]
    assert own == []
    templates = [
        path.name
        for path in PACKAGE.rglob("*.html")
        if PERCENT_FORMAT.search(text := path.read_text(encoding="utf-8")) or "|round" in text
    ]
    assert templates == []


def loaded_by(*args: str, cwd: Path = ROOT) -> set[str]:
    """Return the top-level modules that a command leaves loaded."""
    code = (
        "import atexit, sys\n"
        f"sys.argv = ['edison', *{list(args)!r}]\n"
        "def tell():\n"
        "    names = sorted({m.split('.')[0] for m in sys.modules})\n"
        "    print('LOADED', *names, file=sys.stderr, flush=True)\n"
        "atexit.register(tell)\n"
        "from edison_ci.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=cwd, capture_output=True, text=True, check=True
    )
    return set(done.stderr.rpartition("LOADED ")[2].split())


HEAVY = {
    "litellm",
    "uvloop",
    "numpy",
    "scipy",
    "datasette",
    "sqlite_utils",
    "aiohttp",
    "httpx",
    "rich",
}


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by("--help")
    assert "click" in loaded
    assert not loaded & (HEAVY | {"pydantic", "jinja2", "yaml", "jsonschema"})


def test_version_does_not_even_load_click() -> None:
    assert not loaded_by("--version") & (HEAVY | {"click", "pydantic"})


def test_validate_loads_nothing_heavy() -> None:
    loaded = loaded_by("validate", cwd=ROOT / "examples" / "customer-support")
    assert "pydantic" in loaded
    assert not loaded & (HEAVY | {"jsonschema", "asyncio", "cronsim", "sqlite3", "cryptography"})


def test_a_run_without_a_terminal_does_not_load_what_draws_bars(mini: Folder) -> None:
    loaded = loaded_by("run", cwd=mini.path)
    assert {"sqlite3", "asyncio"} <= loaded
    assert "rich" not in loaded
