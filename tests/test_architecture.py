"""Imports point down, each library has one home, modules stay small, and --help stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = ROOT / "edison_ci"

LAYERS = [
    {"frozen"},
    {"errors", "records", "hosted", "names", "shipped", "times"},
    {"documents"},
    {
        "shape",
        "templating",
        "template_pieces",
        "template_runtime",
        "plugins",
        "git",
        "fetching",
        "repository",
        "stats",
        "contracts",
        "store",
        "harmless",
        "stamps",
    },
    {"checks", "safety"},
    {"config"},
    {"plan", "providers", "judges"},
    {"execute", "decide", "operate", "forge", "importing"},
    {"refine"},
    {"report"},
    {"review"},
    {"loop"},
    {"cli", "__main__", "__init__"},
]
"""Floors of the house, lowest first; docs/architecture.md is written from this list."""
SAME_FLOOR = {("templating", "template_runtime"), ("templating", "template_pieces"),
              ("template_pieces", "template_runtime"), ("repository", "git"),
              ("repository", "fetching"), ("fetching", "git"), ("__main__", "cli"),
              ("__main__", "__init__"), ("cli", "__init__")}  # fmt: skip
"""Pairs that belong together although they are not one folder."""

ONLY_IN = {
    "click": {"cli"},
    "yaml": {"documents/yaml_text.py"},
    "jinja2": {"templating.py", "template_pieces.py", "template_runtime.py"},
    "numpy": {"stats"},
    "scipy": {"stats"},
    "jsonschema": {"config/schemas_of_users.py", "checks/json_values.py", "checks/worker_jobs.py"},
    "cronsim": {"config/decisions.py"},
    "tiktoken": {"plan/tokens.py"},
    "litellm": {"providers/litellm_bridge.py"},
    "aiohttp": {"providers/transport.py"},
    "httpx": {"forge/transport.py"},
    "sqlite3": {"store", "cli/doctor.py", "checks/worker_jobs.py"},
    "tenacity": {"providers/resilience.py"},
    "phonenumbers": {"safety/numbers.py"},
    "subprocess": {
        "git.py",
        "cli/doctor.py",
        "checks/worker.py",
        "checks/child.py",
        "report/pdf.py",
    },
    "rapidfuzz": {"checks/measures.py"},
    "sacrebleu": {"checks/measures.py"},
    "wordllama": {"checks/measures.py"},
    "py3langid": {"checks/language.py"},
    "junit_xml": {"report/junit.py"},
    "datasette": {"report/datasette_plugin"},
    "uvicorn": {"report/datasette_plugin/serving.py"},
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


def for_types_only(node: ast.stmt) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imports(path: Path, *, types: bool = True) -> Iterator[tuple[str, int, bool]]:
    """Yield (module, line, inside a function) for each import; without `types`, run-time ones."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not types:
        tree.body = [node for node in tree.body if not for_types_only(node)]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    local = {id(sub) for function in functions for sub in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, id(node) in local) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield node.module, node.lineno, id(node) in local


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    mine = room(path)
    for module, line, _ in imports(path):
        if module == "edison_ci" or not module.startswith("edison_ci."):
            continue
        theirs = module.split(".")[1]
        allowed = theirs == mine or (mine, theirs) in SAME_FLOOR or floor(theirs) < floor(mine)
        assert allowed, f"{path.name}:{line}: {mine} may not import {theirs}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_library_has_one_home(path: Path) -> None:
    here = path.relative_to(PACKAGE).as_posix()
    for module, line, _ in imports(path, types=False):
        homes = ONLY_IN.get(module.split(".")[0])
        if homes is not None:
            at_home = here in homes or any(here.startswith(f"{home}/") for home in homes)
            assert at_home, f"{here}:{line} imports {module}, whose home is {homes}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_answers_one_question_in_at_most_400_lines(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    assert ast.get_docstring(ast.parse(text)), "a module starts with the question it answers"
    bad = {"utils", "helpers", "common", "base", "core", "misc", "manager", "handler", "service"}
    assert path.stem not in bad


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_own_modules_are_imported_at_the_top(path: Path) -> None:
    lazy = {"__main__.py", "cli/app.py", "plan/plan.py"}  # start-up cost is their subject
    if path.relative_to(PACKAGE).as_posix() in lazy:
        return
    inside = [
        line for module, line, local in imports(path) if local and module.startswith("edison_ci")
    ]
    assert inside == []


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


HEAVY = {"litellm", "numpy", "scipy", "datasette", "sqlite_utils", "aiohttp", "httpx", "rich"}


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by("--help")
    assert "click" in loaded
    assert not loaded & (HEAVY | {"pydantic", "jinja2", "yaml", "jsonschema"})


def test_version_does_not_even_load_click() -> None:
    assert not loaded_by("--version") & (HEAVY | {"click", "pydantic"})


def test_validate_loads_nothing_heavy() -> None:
    loaded = loaded_by("validate", cwd=ROOT / "examples" / "customer-support")
    assert "pydantic" in loaded
    assert not loaded & (HEAVY | {"jsonschema", "asyncio", "cronsim"})
