"""Assertions in Python that are simple expressions, parsed and never run."""

from __future__ import annotations

import ast
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.features.importing.conditions import (
    DEEPEST,
    EMOJI,
    EMPTY,
    LONGEST,
    NO_TEXT,
    Condition,
    Data,
    Size,
    Text,
    Wanted,
    all_hold,
    any_holds,
    at_path,
    changed_text,
    choose,
    compare,
    negate,
    refuse,
    size_limit,
    text_side,
    variable,
)
from edison_ci.features.importing.templates import ConversionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.documents.marks import Json

_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "===",
    ast.NotEq: "!==",
    ast.Is: "===",
    ast.IsNot: "!==",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def python_condition(code: str) -> Condition:
    """Return what an assertion in Python says of the answer; raises ConversionError."""
    if len(code) > LONGEST:
        raise refuse()
    is_line = "\n" not in code.strip()
    text = f"return {code.strip()}" if is_line else code
    try:
        body = ast.parse("def main():\n" + "\n".join(f"    {line}" for line in text.split("\n")))
        function = body.body[0]
        assert isinstance(function, ast.FunctionDef)
        return _PythonMeaning().statements(function.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refuse() from None


@dataclass(frozen=True, slots=True)
class _PythonMeaning:
    """The meaning of a tree of Python."""

    names: Mapping[str, ast.expr] = field(default_factory=dict)

    def statements(self, body: Sequence[ast.stmt]) -> Condition:
        """Return the condition of what a function returns."""
        for index, statement in enumerate(body):
            rest = body[index + 1 :]
            if isinstance(statement, ast.Return) and statement.value is not None:
                return self.condition(statement.value)
            if isinstance(statement, ast.If):
                no = statement.orelse or rest
                return choose(
                    self.condition(statement.test, as_test=True),
                    self.statements(statement.body),
                    self.statements(no),
                )
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                if len(statement.targets) != 1:
                    raise refuse()
                names = {**self.names, statement.targets[0].id: statement.value}
                return replace(self, names=names).statements(rest)
            is_json = isinstance(statement, ast.Import) and [a.name for a in statement.names] == [
                "json"
            ]
            if not is_json:
                raise refuse()
        raise ConversionError("it returns nothing, so every answer fails in promptfoo")

    def condition(self, tree: ast.expr, *, as_test: bool = False) -> Condition:
        """Return the condition of a tree; with `as_test` any value counts as true or false."""
        if isinstance(tree, ast.Constant) and isinstance(tree.value, bool):
            return tree.value
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
            return negate(self.condition(tree.operand, as_test=True))
        if isinstance(tree, ast.BoolOp):
            return self._bool(tree, as_test=as_test)
        if isinstance(tree, ast.IfExp):
            yes, no = (
                self.condition(branch, as_test=as_test) for branch in (tree.body, tree.orelse)
            )
            return choose(self.condition(tree.test, as_test=True), yes, no)
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            return self._compare(tree.left, tree.ops[0], tree.comparators[0])
        if isinstance(tree, ast.Dict):
            return self._result(tree)
        call = self._call(tree) if isinstance(tree, ast.Call) else None
        if call is not None:
            return call
        if as_test:
            return self._truth(tree)
        raise refuse()

    def _truth(self, tree: ast.expr) -> Condition:
        value = self.value(tree)
        if not isinstance(value, Text | Size):
            raise refuse()
        return _without_notes(size_limit(value if isinstance(value, Size) else Size(value), ">", 0))

    def _bool(self, tree: ast.BoolOp, *, as_test: bool) -> Condition:
        last = len(tree.values) - 1
        is_and = isinstance(tree.op, ast.And)
        conditions = [
            self.condition(operand, as_test=as_test or (is_and and index < last))
            for index, operand in enumerate(tree.values)
        ]
        return all_hold(*conditions) if is_and else any_holds(*conditions)

    def _result(self, tree: ast.Dict) -> Condition:
        values = {
            key.value: value
            for key, value in zip(tree.keys, tree.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        if not {"pass", "score", "reason"} <= values.keys():
            raise refuse()
        return self.condition(values["pass"])

    def _compare(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Condition:
        if isinstance(sign, ast.In | ast.NotIn):
            text, subject = self.value(left), self.value(right)
            if isinstance(subject, Text) and isinstance(text, Wanted):
                condition = text_side(subject, "contains", text)
            elif isinstance(subject, Data) and isinstance(text, Wanted):
                condition = _has_key(subject, text)
            else:
                raise refuse()
            return condition if isinstance(sign, ast.In) else negate(condition)
        return _without_notes(compare(self.value(left), _SIGNS[type(sign)], self.value(right)))

    def _call(self, tree: ast.Call) -> Condition | None:
        """Return the condition of a call; None if it is not one."""
        if tree.keywords or len(tree.args) != 1:
            return None
        called, argument = tree.func, tree.args[0]
        if isinstance(called, ast.Name) and called.id == "bool":
            return self.condition(argument, as_test=True)
        if isinstance(called, ast.Name) and called.id in ("any", "all"):
            return self._each(called.id, argument)
        sides = {"startswith": "starts_with", "endswith": "ends_with"}
        if not isinstance(called, ast.Attribute) or called.attr not in sides:
            return None
        subject = self.value(called.value)
        listed = argument.elts if isinstance(argument, ast.Tuple) else [argument]
        if not isinstance(subject, Text):
            raise refuse()
        conditions = []
        for item in listed:
            text = self.value(item)
            if not isinstance(text, Wanted):
                raise refuse()
            conditions.append(text_side(subject, sides[called.attr], text))
        return any_holds(*conditions)

    def _each(self, name: str, argument: ast.expr) -> Condition:
        if not isinstance(argument, ast.GeneratorExp | ast.ListComp):
            raise refuse()
        (loop, *others) = argument.generators
        listed = self._followed(loop.iter)
        if others or loop.ifs or not isinstance(loop.target, ast.Name):
            raise refuse()
        if not isinstance(listed, ast.List | ast.Tuple):
            raise refuse()
        conditions = [
            replace(self, names={**self.names, loop.target.id: item}).condition(
                argument.elt, as_test=True
            )
            for item in listed.elts
        ]
        return any_holds(*conditions) if name == "any" else all_hold(*conditions)

    def _followed(self, tree: ast.expr) -> ast.expr:
        for _ in range(DEEPEST):
            if not (isinstance(tree, ast.Name) and tree.id in self.names):
                return tree
            tree = self.names[tree.id]
        raise refuse()

    def value(self, tree: ast.expr) -> Any:
        """Return what a tree denotes: the answer, a part or length of it, or a constant."""
        tree = self._followed(tree)
        if isinstance(tree, ast.Constant):
            return Wanted(tree.value) if isinstance(tree.value, str) else _number(tree.value)
        if isinstance(tree, ast.Name) and tree.id == "output":
            return Text()
        if isinstance(tree, ast.Subscript):
            return self._item(tree)
        if isinstance(tree, ast.Call) and not tree.keywords:
            return self._method(tree)
        raise refuse()

    def _item(self, tree: ast.Subscript) -> Any:
        step = self.value(tree.slice)
        if isinstance(step, Wanted) and _is_vars(tree.value):
            return variable(step.text)
        data = self.value(tree.value)
        key = step.text if isinstance(step, Wanted) else step
        if not isinstance(data, Data) or isinstance(key, bool | float) or key is None:
            raise refuse()
        if isinstance(key, int) and key < 0:
            raise refuse()
        return data._replace(steps=(*data.steps, key))

    def _method(self, tree: ast.Call) -> Any:
        called = tree.func
        if isinstance(called, ast.Name) and called.id == "len" and len(tree.args) == 1:
            return self._length(tree.args[0])
        if isinstance(called, ast.Name) and called.id == "str" and len(tree.args) == 1:
            value = self.value(tree.args[0])
            if isinstance(value, Text | Wanted):
                return value
        if isinstance(called, ast.Attribute):
            is_json = isinstance(called.value, ast.Name) and called.value.id == "json"
            if is_json and called.attr == "loads" and len(tree.args) == 1:
                if not isinstance(self.value(tree.args[0]), Text):
                    raise refuse()
                return Data()
            if not tree.args:
                return changed_text(self.value(called.value), called.attr)
        raise refuse()

    def _length(self, tree: ast.expr) -> Size:
        tree = self._followed(tree)
        is_split = (
            isinstance(tree, ast.Call)
            and isinstance(tree.func, ast.Attribute)
            and tree.func.attr == "split"
        )
        if is_split:
            assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute)
            subject = self.value(tree.func.value)
            if tree.args or not isinstance(subject, Text):
                raise refuse()
            return Size(subject, "words")
        value = self.value(tree)
        if not isinstance(value, Text | Data):
            raise refuse()
        return Size(value)


def _number(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    raise refuse()


def _is_vars(tree: ast.expr) -> bool:
    """Whether a tree is context['vars']."""
    return (
        isinstance(tree, ast.Subscript)
        and isinstance(tree.value, ast.Name)
        and tree.value.id == "context"
        and isinstance(tree.slice, ast.Constant)
        and tree.slice.value == "vars"
    )


def _has_key(data: Data, key: Wanted) -> Condition:
    if key.is_variable or key.lower:
        raise refuse()
    text = key.argument
    if text.template is not None or not isinstance(text.value, str):
        raise refuse()
    choices: list[Json] = [
        {"type": "object", "required": [text.value]},
        {"type": "array", "contains": {"const": text.value}},
        {"type": "string", "pattern": re.escape(text.value)},
    ]
    return at_path(data, {"anyOf": choices})


def _without_notes(condition: Condition) -> Condition:
    """Return a condition as Python means it: an emoji is one character, an empty text no words."""
    if isinstance(condition, bool):
        return condition
    return condition._replace(notes=condition.notes - {EMOJI, EMPTY, NO_TEXT})
