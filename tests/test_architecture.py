"""Imports point down, each library has one home, and --help stays light."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest

from edison_ci.feature import features as declared_features
from tests.conftest import MINIMAL, ROOT
from tests.loopback.fixture import loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Folder
    from tests.loopback.server import LoopbackServer

PACKAGE = ROOT / "edison_ci"

__all__ = ["loopback"]  # a fixture

LAYERS = [
    {"_dataclass", "deferred", "numeric", "ranges", "resources", "spelling", "utc"},
    {"errors", "extras", "records"},
    {"documents", "plugins", "stats"},
    {"contracts", "feature", "git", "safety", "sanitize", "shape", "store", "templating"},
    {"checks", "telemetry"},
    {"config"},
    {"judges", "plan", "providers"},
    {"access", "results"},
    {"decide", "report"},
    {"execute", "proposals"},
    {"api"},
    {"web"},
    {"cli"},
    {"features"},
    {"__main__", "__init__"},
]
"""Floors of the house, lowest first; docs/architecture.md is written from this list."""
SAME_FLOOR = {("__main__", "__init__")}
"""Pairs that belong together although they are not one folder."""

ONLY_IN = {
    "click": {"cli", "features"},
    "yaml": {"documents/yaml_text.py"},
    "jinja2": {"templating", "report/html.py"},
    "markupsafe": {"report"},
    "numpy": {"stats/arrays.py"},
    "scipy": {"stats/arrays.py"},
    "jsonschema": {"checks/json_schema.py"},
    "referencing": {"checks/json_schema.py"},
    "difflib": {
        "spelling.py",
        "documents/text_diff.py",
        "report/annotations.py",
        "git/repository.py",
    },
    "cronsim": {"config/cron.py"},
    "tiktoken": {"config/tokens.py"},
    "litellm": {"providers/litellm_bridge.py"},
    "xllamacpp": {"providers/local.py"},
    "aiohttp": {"providers/transport.py"},
    "uvloop": {"execute/session.py"},
    "httpx": {
        "access/github_api.py",
        "features/site/client.py",
        "features/site/transfer.py",
        "features/monitor/webhooks.py",
        "providers/transport.py",
        "providers/litellm_bridge.py",
    },
    "sqlite3": {
        "store",
        "api/diagnosis.py",
        "checks/worker_jobs.py",
        "features/upkeep/forgetting.py",
    },
    "sqlite_utils": {"store/merge.py"},
    "cryptography": {"features/cluster/tls.py", "documents/signatures.py"},
    "dask": {"features/cluster"},
    "distributed": {"features/cluster"},
    "nacl": {"access/sealed_keys.py"},
    "tenacity": {"providers/resilience.py"},
    "opentelemetry": {"telemetry/export.py"},
    "phonenumbers": {"safety/pii.py"},
    "subprocess": {
        "git/command.py",
        "api/diagnosis.py",
        "checks/time_limit.py",
        "checks/child.py",
        "features/cluster/local_workers.py",
        "report/pdf.py",
        "api/run_process.py",
    },
    "backports": {"features/importing/tables.py"},
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

CODE = ("edison_ci", "tests", "docs", "benchmarks")
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
    names: tuple[str, ...] = ()
    """What is imported from the module."""


@cache
def tree(path: Path) -> ast.Module:
    """Return what a file consists of, which several tests look at."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


@pytest.fixture(scope="module", autouse=True)
def collector_off() -> Iterator[None]:
    """Let nobody look for garbage among millions of nodes, here and after these tests."""
    gc.disable()
    yield
    for kept in (tree, nodes, imports):
        kept.cache_clear()
    gc.enable()


@cache
def imports(path: Path) -> list[Import]:
    return list(_imports(tree(path), local=False, types=False))


def _imports(parent: ast.AST, *, local: bool, types: bool) -> Iterator[Import]:
    local = local or isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef)
    types = types or for_types_only(parent)
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, local, types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno} imports relatively"
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", node.lineno, local, types, names)
        elif not isinstance(node, ast.expr):
            yield from _imports(node, local=local, types=types)


def is_own(module: str) -> bool:
    return module.split(".")[0] == "edison_ci"


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def every_import() -> Iterator[tuple[Path, Import]]:
    return ((path, each) for path in MODULES for each in imports(path))


def feature(module: str) -> str:
    """Return the feature that a module belongs to, or nothing."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["features"] and len(parts) > 2 else ""


def features_of(path: Path, each: Import) -> set[str]:
    """Return the features that an import reaches, other than the module's own."""
    package = each.module == "edison_ci.features"
    reached = set(each.names) if package else {feature(each.module)}
    own = place(path).split("/")[1] if room(path) == "features" else ""
    return reached - {"", own}


def test_imports_point_down() -> None:
    upward = []
    for path, each in every_import():
        mine, (_, *rest) = room(path), each.module.split(".")
        if not is_own(each.module) or not rest or rest[0] == "features":
            continue
        theirs = rest[0]
        if theirs == mine or (mine, theirs) in SAME_FLOOR or floor(theirs) < floor(mine):
            continue
        upward.append(f"{place(path)}:{each.line}: {mine} may not import {theirs}")
    assert upward == []


def test_nobody_imports_a_feature_but_itself() -> None:
    """The core calls what a feature declares, and features meet at points of the core."""
    reaching = [
        f"{place(path)}:{each.line} reaches {', '.join(features_of(path, each))}"
        for path, each in every_import()
        if is_own(each.module) and features_of(path, each)
    ]
    assert reaching == []


BELOW_THE_LIBRARY = {"store", "execute", "providers"}


MODULE_NAMES = {
    path.relative_to(PACKAGE).as_posix().removesuffix(".py").replace("/", ".") for path in MODULES
}


@cache
def face_modules() -> set[str]:
    """Return the modules that features declare for their commands, pages and forms."""
    modules = set()
    for built_in in declared_features():
        places = [command.place for command in built_in.commands.values()]
        places += [page.place for page in built_in.pages]
        places += [form.place for form in built_in.forms]
        modules |= {f"{built_in.package}.{name.partition(':')[0]}" for name in places}
    return modules


def is_face(path: Path) -> bool:
    module = f"edison_ci.{place(path).removesuffix('.py').replace('/', '.')}"
    return room(path) in {"cli", "web"} or module in face_modules()


def below_the_library(path: Path) -> set[str]:
    """Return the modules below the library that a module loads."""
    loaded = (
        f"{each.module}.{name}".removeprefix("edison_ci.")
        for each in imports(path)
        if is_own(each.module) and not each.types
        for name in each.names
    )
    modules = (name if name in MODULE_NAMES else name.rpartition(".")[0] for name in loaded)
    return {name for name in modules if name.split(".")[0] in BELOW_THE_LIBRARY}


def test_faces_use_the_library() -> None:
    """Commands and pages translate: what is stored, run and called is behind `api` and `results`.

    Types may be named in annotations.
    """
    loaded = {place(path): below_the_library(path) for path in MODULES if is_face(path)}
    reaching = {name: modules for name, modules in loaded.items() if modules}
    assert reaching == {}, "let api or results offer the operation"


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
    assert [place(path) for path in MODULES if path.stem in bad] == []
    said = {place(path): ast.get_docstring(tree(path)) or "" for path in MODULES}
    assert [name for name, text in said.items() if not text] == [], "say what is in it"
    asking = [name for name, text in said.items() if text.split("\n", 1)[0].endswith("?")]
    assert asking == [], "say what is there"


IMPORTED_IN_FUNCTIONS = {
    "__init__.py": {"edison_ci.deferred", "edison_ci.feature"},
    "__main__.py": {"edison_ci", "edison_ci.cli.app", "edison_ci.deferred"},
    "cli/lookup.py": {
        "edison_ci.access.site",
        "edison_ci.results.stored_runs",
    },
    "cli/options.py": {"edison_ci.api.names", "edison_ci.access.own_results"},
    "cli/progress.py": {"edison_ci.cli.bars"},
    "cli/report.py": {"edison_ci.web.serving", "edison_ci.web.static_pages"},
    "cli/run.py": {"edison_ci.api.reports"},
    "cli/validate.py": {"edison_ci.access.site"},
    "features/cluster/commands.py": {
        "edison_ci.features.cluster.nodes",
        "edison_ci.features.cluster.worker",
    },
    "feature.py": {"edison_ci.plugins"},
    "report/reporters.py": {"edison_ci.report.html"},
    "safety/redaction.py": {"edison_ci.safety.pii"},
    "safety/screen.py": {"edison_ci.safety.jailbreaks", "edison_ci.safety.pii"},
    "templating/templates.py": {"edison_ci.templating.syntax"},
    "web/__init__.py": {
        "edison_ci.web.identity",
        "edison_ci.web.responses",
        "edison_ci.web.security",
    },
}
"""What the common commands must not wait for; never a way around a cycle of imports."""


def test_every_process_of_python_leaves_its_folder_out_of_the_search_path() -> None:
    """It may be that of a hostile project: -P leaves it out, and -I the environment as well."""
    options = {
        path.name: re.findall(r"\[sys\.executable,\s*([^,\]]+)", path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    started = {(name, option) for name, found in options.items() for option in found}
    assert len(started) >= 4
    assert {option for _, option in started} <= {'"-P"', '"-I"'}, started


def test_own_modules_are_imported_at_the_top() -> None:
    inside: dict[str, set[str]] = {}
    for path, each in every_import():
        if each.local and is_own(each.module):
            inside.setdefault(place(path), set()).add(each.module)
    assert inside == IMPORTED_IN_FUNCTIONS


def test_own_functions_are_not_named_by_strings() -> None:
    """A function behind a string has no types: a registry of plugins and the group may do so."""
    may = {"plugins.py", "feature.py", "__init__.py", "deferred.py", "shape.py"}
    # numpy and scipy, and pipelines of spaCy
    libraries = {"stats/arrays.py", "web/serving.py", "safety/names.py"}
    calling = {
        place(path)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module"
        and not (isinstance(node.args[0], ast.Constant) and not is_own(str(node.args[0].value)))
    }
    assert calling == may | libraries


def words_used(module: tuple[Path, ast.Module]) -> Iterator[str]:
    """Yield the names that a module uses, and those in the texts of registries and packages."""
    path, tree = module
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if path.name != "__init__.py" and isinstance(target, ast.Name) and target.id == "__all__":
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Constant) and re.fullmatch(r"\S+", str(node.value)):
                yield from re.findall(r"\w+", str(node.value))


def test_nothing_is_there_for_tests_alone() -> None:
    """Commands and hooks are found by their decorators, checks by their modules."""
    tools = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "docs").glob("*.py")]
    trees = {path: tree(path) for path in (*MODULES, *tools)}
    templates = " ".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.html"))
    used = set(re.findall(r"\w+", templates)).union(*map(words_used, trees.items()))
    unused = {
        node.name
        for path in MODULES
        for node in trees[path].body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not (node.decorator_list and isinstance(node, ast.FunctionDef))
        and not (room(path) == "checks" and isinstance(node, ast.ClassDef))
        and node.name not in used
    }
    assert unused - {"__getattr__"} == set()


LENIENT_DECODERS = {
    "b64decode", "urlsafe_b64decode", "standard_b64decode", "decodebytes", "a2b_base64",
    "b32decode", "b32hexdecode", "b16decode", "a85decode", "b85decode", "z85decode",
    "fromhex", "unhexlify", "a2b_hex",
}  # fmt: skip
"""Functions that take several texts for the same bytes."""
DECODES = {
    "documents/decoding.py",  # and encodes again, to compare
    "api/bundles.py",  # a hash that was computed right before
    "features/monitor/webhooks.py",  # the user's own secret, which is compared with nothing
}


def test_keys_and_signatures_are_decoded_in_one_place() -> None:
    """A text that was signed, sealed or trusted is read in no other spelling."""
    calling = {
        place(path)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Attribute | ast.Name)
        and getattr(node, "attr", getattr(node, "id", "")) in LENIENT_DECODERS
    }
    assert calling == DECODES


SQL_IN = {"store", "results"}
"""The folders that may ask the results file: what is kept, and what it says."""
SQL_OF_FEATURES = {
    "datasets/question_writers.py",
    "datasets/case_discrimination.py",
    "datasets/health.py",
    "monitor/alert_rows.py",
    "monitor/conditions.py",
    "monitor/metrics.py",
    "monitor/outbox.py",
    "monitor/production_trend.py",
    "monitor/schedule_rows.py",
    "refine/loop_rows.py",
    "site/lease_rows.py",
    "upkeep/forgetting.py",
    "upkeep/retention.py",
}
"""The same for the tables and the numbers of a feature."""
SQL_ELSEWHERE = {
    "checks/worker_jobs.py",  # a check of SQL asks a database in memory
    "api/diagnosis.py",  # tries out SQLite on a file of its own
}
"""Modules outside of them that run a statement."""
STATEMENTS = {"execute", "executemany", "executescript"}


def runs_a_statement(path: Path) -> bool:
    """Whether a module calls a method by which connections and cursors run SQL."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in STATEMENTS
        for node in nodes(path)
    )


def test_sql_stands_in_the_store_and_the_read_model() -> None:
    outside = (path for path in MODULES if room(path) not in SQL_IN)
    found = {place(path) for path in outside if runs_a_statement(path)}
    listed = SQL_ELSEWHERE | {f"features/{name}" for name in SQL_OF_FEATURES}
    assert found - listed == set(), "move the query to store/ or results/"
    assert listed - found == set(), "no exception is needed any more: take it off the list"


def test_the_tables_of_a_feature_are_its_own() -> None:
    """Others ask it; `store` has what a run writes, and upkeep treats every table."""
    owners = {table: each.name for each in declared_features() for table in each.tables}
    named = re.compile(rf"\b(?:from|into|update|join) ({'|'.join(owners)})\b(?=[ )\"'])")
    astray = [
        (place(path), table)
        for path in MODULES
        if room(path) != "store" and runs_a_statement(path)
        for table in named.findall(path.read_text(encoding="utf-8"))
        if not place(path).startswith((f"features/{owners[table]}/", "features/upkeep/"))
    ]
    assert astray == []


WITH_DIGITS = re.compile(r"^[^%]*([.]|%$)")
"""A format that rounds: `.1f`, `,.0f`, `.{digits}f`, `%`, but not that of a time."""
PERCENT_FORMAT = re.compile(r"%[+ #-]?\d*[.]\d+[efg]")


def rounding_formats(path: Path) -> Iterator[int]:
    """Yield the lines that round a number by a format of their own."""
    for node in nodes(path):
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            fixed = (v.value for v in node.format_spec.values if isinstance(v, ast.Constant))
            if WITH_DIGITS.search("".join(map(str, fixed))):
                yield node.lineno
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and "%" in node.value
            and PERCENT_FORMAT.search(node.value)
        ):
            yield node.lineno


def test_numbers_are_rounded_in_one_place() -> None:
    """A format rounds a sum up on one machine and down on another: `numeric` does not."""
    own = [
        f"{place(path)}:{line}"
        for path in MODULES
        if place(path) != "numeric.py"
        for line in rounding_formats(path)
    ]
    assert own == []
    templates = [
        path.name
        for path in PACKAGE.rglob("*.html")
        if PERCENT_FORMAT.search(text := path.read_text(encoding="utf-8")) or "|round" in text
    ]
    assert templates == []


MOST_IMPORTS = 25
"""Own modules that a module may import, for the checker of types too."""
MOST_LINES_OF_A_FUNCTION = 60
MOST_LINES, MOST_LONG_MODULES = 600, 8
"""Lines above which a module is long, and how many may be."""


def own_imports(path: Path, *, types: bool) -> set[str]:
    """Return the places of the own modules that a module imports at its top."""
    reached = set()
    for each in imports(path):
        if not is_own(each.module) or (each.types and not types) or (each.local and not types):
            continue
        for name in (each.module, *(f"{each.module}.{name}" for name in each.names)):
            target = PACKAGE.parent / f"{name.replace('.', '/')}.py"
            if target.exists():
                reached.add(place(target))
    return reached - {place(path)}


FROM_A_PACKAGE = re.compile(
    r"^ *from (edison_ci[\w.]*) import (\((?:[\w\s,]|#.*)*\)|[\w ,]+)", re.MULTILINE
)


def test_what_is_imported_from_a_package_is_there() -> None:
    """A package loads its modules when they are used, so that mypy takes any name for a module."""
    library = {name for built_in in declared_features() for name in built_in.library}
    there: dict[str, set[str]] = {}
    lacking = []
    for path in (path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        for module, names in FROM_A_PACKAGE.findall(path.read_text(encoding="utf-8")):
            package = ROOT / module.replace(".", "/")
            if module not in there and (package / "__init__.py").exists():
                text = (package / "__init__.py").read_text(encoding="utf-8")
                there[module] = {*re.findall(r"\w+", text), *(p.stem for p in package.iterdir())}
            listed = re.sub("#.*|[()]", "", names).split(",")
            imported = {part.split(" as ")[0].strip() for part in listed}
            known = there.get(module, imported) | (library if module == "edison_ci" else set())
            lacking += [(path, name) for name in imported - known - {""}]
    assert lacking == []


def test_no_modules_import_each_other_when_they_run() -> None:
    reached = {place(path): own_imports(path, types=False) for path in MODULES}
    while leaves := {name for name, own in reached.items() if not own & reached.keys()}:
        reached = {name: own for name, own in reached.items() if name not in leaves}
    assert sorted(reached) == [], "these are on a cycle, or lead to one"


def test_a_module_knows_few_others() -> None:
    reached = {place(path): len(own_imports(path, types=True)) for path in MODULES}
    assert {name: count for name, count in reached.items() if count > MOST_IMPORTS} == {}


MOST_IMPORTERS = 25
"""Own modules that may load a module, unless it is listed below."""
WIDELY_LOADED = {
    "records, errors and contracts: what the parts say to each other": {
        *("_dataclass.py", "contracts.py", "documents/marks.py", "errors.py", "feature.py"),
        *("records.py", "shape.py"),
    },
    "pure functions of a few lines, each of which is to be there once": {
        *("deferred.py", "numeric.py", "sanitize.py", "spelling.py", "utc.py"),
        *("documents/decoding.py", "documents/json_text.py", "documents/record_json.py"),
        *("stats/arrays.py", "stats/scores.py"),
    },
    "the one door to what is guarded: files, secrets, Git, the database, roles, the audit": {
        *("access/site.py", "documents/files.py", "documents/secrets.py", "git/repository.py"),
        *("store/audit.py", "store/database.py", "templating/templates.py"),
    },
    "what everything is about: the project with its cases, and stored runs, cells and answers": {
        *("config/cases.py", "config/load.py", "config/project_files.py"),
        *("results/snapshot.py", "results/stored_runs.py"),
        *("store/answers.py", "store/cells.py", "store/runs.py"),
    },
    "what each command, page or operation begins with": {
        *("api/sessions.py", "cli/lookup.py", "cli/options.py", "cli/terminal.py"),
        "web/page_context.py",
    },
}
"""Modules that more may load, by the reason; names for the checker of types do not count."""


def test_few_modules_are_loaded_by_many() -> None:
    """A module that half of the house loads is a utility room, unless there is a reason."""
    loading = Counter(target for path in MODULES for target in own_imports(path, types=False))
    many = {name for name, count in loading.items() if count > MOST_IMPORTERS}
    listed = set().union(*WIDELY_LOADED.values())
    assert many - listed == set(), "split it by subject, or let others ask less of it"
    few = {name for name in listed if loading[name] <= MOST_IMPORTERS - 5}
    assert few == set(), "no exception is needed any more: take it off the list"


def test_functions_and_modules_are_short() -> None:
    long = [
        f"{place(path)}:{node.lineno} {node.name}"
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]
    assert long == []
    lines = {place(path): path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert len([name for name in lines if lines[name] > MOST_LINES]) <= MOST_LONG_MODULES, sorted(
        lines.items(), key=lambda item: -item[1]
    )[: MOST_LONG_MODULES + 1]


MOST_MODULES = {
    ("plan",): 110,
    ("status",): 70,
    ("validate",): 61,
    ("run", "--help"): 40,
    ("dataset", "adversarial", "--help"): 50,
    ("github", "run", "--help"): 51,
}
"""Modules of this package that a command may load; raise a number by what a feature needs.

Every command loads `feature`, and one of a feature what the eleven features declare.
"""


@pytest.mark.parametrize("args", MOST_MODULES, ids=" ".join)
def test_a_command_loads_few_modules_of_its_own(mini: Folder, args: tuple[str, ...]) -> None:
    if args == ("status",):
        loaded_by("run", "--yes", cwd=mini.path)  # it has nothing to show otherwise
    own = {name for name in modules_loaded_by(*args, cwd=mini.path) if is_own(name)}
    assert len(own) <= MOST_MODULES[args], sorted(own)


FOR_NOTHING = {"backports.zstd", "difflib", "importlib.metadata", "frozenlist._frozenlist"}
"""Modules that libraries load of themselves, and that a run has no use for."""
MOST_OF_A_RUN = 155
"""The same of a run whose answers are only checked by code; it reads what features declare."""


def test_a_run_of_plain_checks_loads_few_modules_of_its_own(
    mini: Folder, loopback: LoopbackServer
) -> None:
    mini.write(
        "models.yaml",
        f"small: {{provider: openai_compatible, base_url: {loopback.openai_url}, model: mock, "
        "price: {in: 1, out: 2}}\n",
    )
    plain = MINIMAL["experiments/hello.yaml"].split("rubric:")[0]
    mini.write("experiments/hello.yaml", plain)
    for calls, what in ((2, "the first run"), (2, "the cached one")):
        loaded = modules_loaded_by("run", "--yes", "-q", cwd=mini.path)
        assert not FOR_NOTHING & loaded
        own = {name for name in loaded if is_own(name)}
        assert len(own) <= MOST_OF_A_RUN, (what, sorted(own))
        assert loopback.chats == calls, what
    assert not {"aiohttp", "numpy"} & loaded, "a run without calls"


def loaded_by(*args: str, cwd: Path = ROOT) -> set[str]:
    """Return the top-level modules that a command leaves loaded."""
    return {name for name in modules_loaded_by(*args, cwd=cwd) if "." not in name}


def modules_loaded_by(*args: str, cwd: Path) -> set[str]:
    """Return the modules that a command leaves loaded."""
    code = (
        "import atexit, sys\n"
        f"sys.argv = ['edison', *{list(args)!r}]\n"
        "def tell():\n"
        "    print('LOADED', *sys.modules, file=sys.stderr, flush=True)\n"
        "atexit.register(tell)\n"
        "from edison_ci.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=cwd, capture_output=True, text=True, check=True
    )
    return set(done.stderr.rpartition("LOADED ")[2].split())


HEAVY = {
    "distributed",
    "litellm",
    "xllamacpp",
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


def test_a_part_that_stands_for_another_is_replaced_when_more_is_asked_of_it() -> None:
    code = (
        "import sys; from edison_ci.deferred import NoPlugins\n"
        "part = sys.modules['pydantic.plugin._loader'] = NoPlugins()\n"
        "import pydantic\n"
        "print(pydantic.TypeAdapter(int).validate_python('4'), part.PYDANTIC_ENTRY_POINT_GROUP)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "4 pydantic\n"


def test_version_does_not_even_load_click() -> None:
    assert not loaded_by("--version") & (HEAVY | {"click", "pydantic"})


@pytest.mark.nightly
def test_validate_loads_nothing_heavy() -> None:
    loaded = loaded_by("validate", cwd=ROOT / "examples" / "customer-support")
    assert "pydantic" in loaded
    assert not loaded & (HEAVY | {"jsonschema", "asyncio", "cronsim", "sqlite3", "cryptography"})


def test_a_run_without_a_terminal_does_not_load_what_draws_bars(mini: Folder) -> None:
    loaded = loaded_by("run", cwd=mini.path)
    assert {"sqlite3", "asyncio"} <= loaded
    assert "rich" not in loaded
