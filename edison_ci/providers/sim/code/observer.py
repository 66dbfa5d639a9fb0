"""What does a judge see in a generated function, without running it?"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.providers.sim.code.mutations import is_guard, main_function, without_docstring
from edison_ci.providers.sim.exhibit import Exhibit, Seen, clamped
from edison_ci.providers.sim.knowledge import texts

if TYPE_CHECKING:
    from collections.abc import Mapping

CRITERIA: Mapping[str, Mapping[str, float]] = {
    "correctness": {"correct": 0.9, "name": 0.1},
    "edge cases": {"edge": 1.0},
    "readability": {"hints": 0.4, "docstring": 0.45, "tidy": 0.15},
    "instruction following": {"name": 0.3, "block": 0.3, "quiet": 0.25, "guard": 0.15},
}
"""What each criterion of the example's rubric is made of."""
ALIASES = {
    "edge cases": re.compile(r"edge|corner|robust|exception|invalid"),
    "readability": re.compile(r"readab|style|docstring|type hint|clean|maintain"),
    "instruction following": re.compile(r"instruction|signature|format|code block|safe"),
    "correctness": re.compile(r"correct|works|right|behav|accura"),
}
_BLOCK = re.compile(r"^```[ \t]*(\w*)[ \t]*\n(.*?)^```", re.S | re.M)
_CODE_START = re.compile(r"^(?:import |from \w+ import|def |@|class )", re.M)
_EDGE_WORDS = re.compile(r"empty|raise|none|negative|invalid|zero|without", re.I)
_UNSAFE = frozenset({"eval", "exec", "compile", "__import__"})
_UNSAFE_MODULES = frozenset({"os", "subprocess", "socket", "shutil"})
_MAX_CODE = 20_000
_NEARLY = 0.75


@dataclass(frozen=True, slots=True)
class _Function:
    """A function taken apart."""

    name: str
    arguments: tuple[str, ...]
    hinted: bool
    documented: bool
    noisy: bool
    unsafe: bool
    guards: tuple[str, ...]
    steps: tuple[str, ...]
    """The other statements, without hints and names of the function."""
    branches: int


def observe(exhibit: Exhibit) -> dict[str, Seen]:
    """Return how much of each quality the answer shows."""
    code, form = _code(exhibit.output)
    function = _taken_apart(code)
    if function is None:
        return dict.fromkeys(_ALL, Seen(0.0, "there is no function that parses"))
    reference = _reference(exhibit)
    wanted = exhibit.text("function")
    named = function.name == wanted or not wanted
    return {
        "name": Seen(float(named), f"is named {function.name!r}"),
        "edge": _edge(exhibit, function, reference),
        "correct": _correct(function, reference),
        "hints": Seen(
            1.0 if function.hinted else 0.1, "type hints" if function.hinted else "no hints"
        ),
        "docstring": Seen(
            1.0 if function.documented else 0.1,
            "a docstring" if function.documented else "no docstring",
        ),
        "tidy": Seen(0.3 if function.noisy else 1.0, "prints" if function.noisy else "tidy"),
        "block": form,
        "quiet": Seen(0.0 if function.noisy else 1.0, "prints" if function.noisy else "no output"),
        "guard": _guard(exhibit, function),
    }


_ALL = ("name", "edge", "correct", "hints", "docstring", "tidy", "block", "quiet", "guard")


def _code(output: str) -> tuple[str, Seen]:
    """Return the code of an answer, and how well it is presented."""
    blocks = _BLOCK.findall(output[:_MAX_CODE])
    if not blocks:
        start = _CODE_START.search(output)
        code = output[start.start() :] if start else output
        return code[:_MAX_CODE].rpartition("\n\n")[0] if not _parses(code) else code, Seen(
            0.0, "no code block"
        )
    language, code = blocks[0]
    around = _BLOCK.sub("", output).strip()
    if language != "python":
        return code, Seen(0.25, f"the block is marked {language!r}")
    if around or len(blocks) > 1:
        return code, Seen(0.5, "text around the code block")
    return code, Seen(1.0, "one Python code block")


def _parses(code: str) -> bool:
    return _tree(code) is not None


def _tree(code: str) -> ast.Module | None:
    try:
        return ast.parse(code[:_MAX_CODE])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=4_096)
def _taken_apart(code: str) -> _Function | None:
    tree = _tree(code)
    function = main_function(tree) if tree else None
    if tree is None or function is None:
        return None
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    arguments = function.args.args
    hinted = function.returns is not None and all(a.annotation is not None for a in arguments)
    body = without_docstring(function.body)
    quiet = [node for node in body if not _is_print(node)]
    return _Function(
        name=function.name,
        arguments=tuple(argument.arg for argument in arguments),
        hinted=hinted,
        documented=len(body) < len(function.body),
        noisy="print" in calls,
        unsafe=bool(calls & _UNSAFE or _modules(tree) & _UNSAFE_MODULES),
        guards=tuple(_plain(node) for node in quiet[:-1] if is_guard(node)),
        steps=tuple(_plain(node) for node in quiet if node is quiet[-1] or not is_guard(node)),
        branches=sum(isinstance(n, ast.If | ast.Raise | ast.Try) for n in ast.walk(function)),
    )


def _is_print(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return isinstance(node.value.func, ast.Name) and node.value.func.id == "print"


def _modules(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def _plain(node: ast.stmt) -> str:
    """Return a statement without its type hints."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return f"{ast.unparse(node.target)} = {ast.unparse(node.value)}"
    if isinstance(node, ast.FunctionDef):
        return "\n".join(_plain(inner) for inner in node.body)
    return ast.unparse(node)


def _reference(exhibit: Exhibit) -> _Function | None:
    case = exhibit.case
    return _taken_apart(case.expected) if case and isinstance(case.expected, str) else None


def _edge(exhibit: Exhibit, function: _Function, reference: _Function | None) -> Seen:
    if reference is not None and _likeness(function, reference) > _NEARLY:
        kept = set(function.guards) & set(reference.guards)
        if set(function.guards) == set(reference.guards):
            return Seen(1.0, "handles the special input")
        share = len(kept) / max(1, len(reference.guards))
        return Seen(0.2 + 0.3 * share, "does not handle all of the special input")
    asked = len(_EDGE_WORDS.findall(exhibit.text("task")))
    if not asked:
        return Seen(0.85, "the task mentions no special input")
    return Seen(clamped(0.3 + 0.35 * function.branches), f"{function.branches} branches")


def _correct(function: _Function, reference: _Function | None) -> Seen:
    if reference is None:
        return Seen(0.75, "no reference to compare with")
    if Counter(function.steps) == Counter(reference.steps):
        return Seen(1.0, "does what the reference does")
    if _likeness(function, reference) > _NEARLY:
        return Seen(0.15, "nearly the reference, but for a slip")
    return Seen(0.35, "goes its own way, not shown to be right")


def _guard(exhibit: Exhibit, function: _Function) -> Seen:
    case = exhibit.case
    trap = texts("code_traps").get(case.id, "").strip() if case else ""
    if function.unsafe or (trap and trap in exhibit.output):
        return Seen(0.0, "does what the task warns of")
    return Seen(1.0, "safe code")


def _likeness(one: _Function, other: _Function) -> float:
    """Return the share of words that the bodies have in common."""
    mine, theirs = _words(one), _words(other)
    both = sum((mine & theirs).values())
    return both / max(1, max(sum(mine.values()), sum(theirs.values())))


def _words(function: _Function) -> Counter[str]:
    return Counter(word for step in function.steps for word in re.findall(r"\w+|[^\w\s]", step))
