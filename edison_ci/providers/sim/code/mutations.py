"""How does a right function become one that a careless programmer would write?"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
}
_DOUBLE = re.compile(r"(\w)\(\(([^\n]* for [^\n]*)\)\)$", re.M)
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


def main_function(tree: ast.Module) -> ast.FunctionDef | None:
    """Return the first function of a module."""
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def is_guard(node: ast.stmt) -> bool:
    """Return whether a statement does nothing but turn special input away."""
    if not isinstance(node, ast.If) or node.orelse or len(node.body) != 1:
        return False
    return isinstance(node.body[0], ast.Raise | ast.Return)


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements after the docstring."""
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if is_text and isinstance(first.value.value, str):  # type: ignore[union-attr]  # by is_text
        return body[1:]
    return body


@lru_cache(maxsize=8_192)
def mutated(source: str, faults: frozenset[str], variant: int) -> str:
    """Return the function with these faults; without any it is returned as it is written.

    `faults` are the names of missing qualities: edge, correct, hints, docstring, quiet.
    """
    if not faults:
        return source
    tree = ast.parse(source)
    function = main_function(tree)
    if function is None:
        return source
    if "edge" in faults:
        _drop_guards(function)
    if "correct" in faults:
        _introduce_bug(function, variant)
    if "hints" in faults:
        _strip_hints(tree)
    if "docstring" in faults:
        function.body = without_docstring(function.body)
    if "quiet" in faults:
        _make_noise(function, variant)
    return _spaced(_without_double_brackets(ast.unparse(ast.fix_missing_locations(tree))))


def _drop_guards(function: ast.FunctionDef) -> None:
    """Take away the checks of special input, or add a wrong one where there are none."""
    docstring = function.body[: len(function.body) - len(without_docstring(function.body))]
    body = without_docstring(function.body)
    kept = [node for node in body[:-1] if not is_guard(node)] + body[-1:]
    if len(kept) == len(body):
        first = function.args.args[0].arg if function.args.args else "None"
        kept = [*ast.parse(f"if not {first}:\n    return None").body, *body]
    function.body = [*docstring, *kept]


def _introduce_bug(function: ast.FunctionDef, variant: int) -> None:
    """Make one slip in what the function does with ordinary input."""
    body = [node for node in without_docstring(function.body) if not is_guard(node)]
    places = [place for node in body for place in ast.walk(node) if _is_place(place)]
    if places:
        _slip(places[variant % len(places)])
        return
    careless = _Careless()
    function.body = [careless.visit(node) for node in function.body]
    if not careless.done:
        first = function.args.args[0].arg if function.args.args else "None"
        function.body[-1] = ast.parse(f"return {first}").body[0]


def _slip(place: ast.AST) -> None:
    if isinstance(place, ast.Compare):
        place.ops[0] = _FLIPPED[type(place.ops[0])]()
    elif isinstance(place, ast.BinOp):
        place.op = _SWAPPED[type(place.op)]()
    elif isinstance(place, ast.Name):
        place.id = _OPPOSITE[place.id]
    elif isinstance(place, ast.Constant) and isinstance(place.value, int):
        place.value += 1


def _is_place(node: ast.AST) -> bool:
    """Return whether a slip is easy here."""
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in _FLIPPED
    if isinstance(node, ast.BinOp):
        return type(node.op) in _SWAPPED
    if isinstance(node, ast.Name):
        return node.id in _OPPOSITE and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Constant) and type(node.value) is int


class _Careless(ast.NodeTransformer):
    """Forgets one call such as `.strip()`, or mixes up two names on the left of a `=`."""

    def __init__(self) -> None:
        self.done = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not self.done and isinstance(node.func, ast.Attribute) and not node.args:
            self.done = True
            return node.func.value
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if not self.done and isinstance(target, ast.Tuple) and len(target.elts) > 1:
            self.done = True
            target.elts[0], target.elts[1] = target.elts[1], target.elts[0]
            return node
        return self.generic_visit(node)


def _strip_hints(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    _Unannotated().visit(tree)


class _Unannotated(ast.NodeTransformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)


def _make_noise(function: ast.FunctionDef, variant: int) -> None:
    shown = function.args.args[0].arg if function.args.args else "'called'"
    lines = (f"print({shown})", f"print('debug:', {shown})", f"print('input', repr({shown}))")
    place = len(function.body) - 1
    function.body.insert(place, ast.parse(lines[variant % len(lines)]).body[0])


def _without_double_brackets(code: str) -> str:
    """Return code as people write it: `any(x for x in y)` instead of `any((x for x in y))`."""
    shorter = _DOUBLE.sub(r"\1(\2)", code)
    if shorter == code:
        return code
    try:
        same = ast.dump(ast.parse(shorter)) == ast.dump(ast.parse(code))
    except SyntaxError:
        return code
    return shorter if same else code


def _spaced(code: str) -> str:
    """Return code with two blank lines before the function, as people write it."""
    head, found, rest = code.partition("\ndef ")
    return f"{head.rstrip()}\n\n\ndef {rest}\n" if found and head.strip() else f"{code}\n"
