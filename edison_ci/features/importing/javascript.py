"""Assertions and transforms in JavaScript that are simple expressions, parsed and never run."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.features.importing.conditions import (
    ANY_CALL,
    AS_JSON,
    DEEPEST,
    HOLE_KEY,
    LONGEST,
    SIDES,
    Condition,
    Data,
    Size,
    Text,
    Wanted,
    all_hold,
    any_holds,
    at_path,
    changed_text,
    check_part,
    choose,
    compare,
    compare_data,
    data_contains,
    javascript_pattern,
    negate,
    refuse,
    size_limit,
    text_equals,
    text_side,
    variable,
)
from edison_ci.features.importing.templates import Argument, ConversionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*[\s\S]*?\*/
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\$]|\\.)*`)
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<sign>=>|===|!==|==|!=|<=|>=|&&|\|\||\?\.|\?\?|[-+*/%!<>=?:;,.()\[\]{}])""",
    re.VERBOSE,
)
_REGEX = re.compile(r"/((?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/([a-z]*)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_ENDS_VALUE = frozenset({"string", "number", "name", "regex"})

Token = tuple[str, str]
Tree = tuple[Any, ...]


def _tokens(code: str) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while at < len(code):
        before = tokens[-1] if tokens else ("sign", "(")
        is_value = before[0] in _ENDS_VALUE and before[1] not in ("return", "typeof")
        if code[at] == "/" and not is_value and before[1] not in (")", "]"):
            regex = _REGEX.match(code, at)
            if regex is not None and not code.startswith(("//", "/*"), at):
                tokens.append(("regex", regex[0]))
                at = regex.end()
                continue
        token = _TOKEN.match(code, at)
        if token is None:
            raise refuse()
        if token.lastgroup is not None:
            tokens.append((token.lastgroup, token[0]))
        at = token.end()
    return tokens


def _unquoted(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        letter = match[1]
        if letter in ("u", "x"):
            raise refuse()
        return _ESCAPES.get(letter, letter)

    return re.sub(r"\\(.)", escape, text[1:-1], flags=re.DOTALL)


@dataclass(slots=True)
class _Parser:
    """Parses statements of JavaScript to trees; raises ConversionError."""

    tokens: list[Token]
    at: int = 0
    depth: int = 0
    values: dict[str, Tree] = field(default_factory=dict)
    """Constants that the code declares."""

    def program(self, *, is_line: bool) -> Tree:
        """Return the tree of the value that the code returns."""
        statement = self._statement(is_line=is_line)
        if self.at < len(self.tokens):
            raise refuse()
        return statement

    def _statement(self, *, is_line: bool) -> Tree:
        self._deeper()
        if self._takes("const") or self._takes("let") or self._takes("var"):
            name = self._take("name")
            self._expect("=")
            self.values[name] = self._expression()
            self._takes(";")
            return self._statement(is_line=is_line)
        if self._takes("if"):
            self._expect("(")
            test = self._expression()
            self._expect(")")
            yes = self._block()
            if self._takes("else"):
                return ("cond", test, yes, self._block())
            return ("cond", test, yes, self._statement(is_line=False))
        if self._takes("return") or is_line:
            value = self._expression()
        else:
            raise ConversionError("it returns nothing, so every answer fails in promptfoo")
        while self._takes(";"):
            pass
        return value

    def _block(self) -> Tree:
        if not self._takes("{"):
            return self._statement(is_line=False)
        value = self._statement(is_line=False)
        self._expect("}")
        return value

    def _expression(self) -> Tree:
        self._deeper()
        test = self._binary(0)
        if self._takes("?"):
            yes = self._expression()
            self._expect(":")
            test = ("cond", test, yes, self._expression())
        self.depth -= 1
        return test

    _LEVELS = (("||",), ("&&",), ("===", "!==", "==", "!="), ("<", "<=", ">", ">="))

    def _binary(self, level: int) -> Tree:
        if level == len(self._LEVELS):
            return self._unary()
        tree = self._binary(level + 1)
        while self._peek() in self._LEVELS[level]:
            sign = self._sign()
            tree = ("binary", sign, tree, self._binary(level + 1))
        return tree

    def _unary(self) -> Tree:
        self._deeper()
        if self._takes("!"):
            tree: Tree = ("not", self._unary())
        elif self._takes("-"):
            tree = ("number", -float(self._take("number")))
        elif self._takes("typeof"):
            tree = ("typeof", self._unary())
        else:
            tree = self._member(self._primary())
        self.depth -= 1
        return tree

    def _member(self, tree: Tree) -> Tree:
        while True:
            if self._takes(".") or self._takes("?."):
                if self._peek() == "[":
                    continue
                tree = ("member", tree, self._take("name"))
            elif self._takes("["):
                tree = ("index", tree, self._expression())
                self._expect("]")
            elif self._takes("("):
                tree = ("call", tree, *self._list(")"))
            else:
                return tree

    def _list(self, end: str) -> list[Tree]:
        items = []
        while not self._takes(end):
            items.append(self._expression())
            if not self._takes(","):
                self._expect(end)
                break
        return items

    def _primary(self) -> Tree:
        kind, text = self._peek_token()
        self.at += 1
        if kind == "string":
            return ("string", _unquoted(text))
        if kind == "number":
            return ("number", float(text))
        if kind == "regex":
            whole = _REGEX.match(text)
            assert whole is not None
            return ("regex", whole[1], whole[2])
        if text == "(":
            return self._brackets()
        if text == "[":
            return ("array", *self._list("]"))
        if text == "{":
            return self._object()
        if kind == "name":
            return self._name(text)
        raise refuse()

    def _name(self, text: str) -> Tree:
        if self._peek() == "=>":
            self.at += 1
            return ("arrow", text, self._expression())
        if text in ("true", "false"):
            return ("boolean", text == "true")
        if text == "null":
            return ("null",)
        return self.values.get(text, ("name", text))

    def _brackets(self) -> Tree:
        names = self.tokens[self.at : self.at + 3]
        if len(names) == 3 and names[0][0] == "name" and names[1][1] == ")" and names[2][1] == "=>":
            self.at += 3
            return ("arrow", names[0][1], self._expression())
        tree = self._expression()
        self._expect(")")
        return tree

    def _object(self) -> Tree:
        entries: dict[str, Tree] = {}
        while not self._takes("}"):
            kind, text = self._peek_token()
            self.at += 1
            if kind not in ("name", "string"):
                raise refuse()
            name = _unquoted(text) if kind == "string" else text
            if self._takes(":"):
                entries[name] = self._expression()
            else:
                entries[name] = self._name(text)
            if not self._takes(","):
                self._expect("}")
                break
        return ("object", entries)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST * 10:
            raise refuse()

    def _peek_token(self) -> Token:
        if self.at >= len(self.tokens):
            raise refuse()
        return self.tokens[self.at]

    def _peek(self) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] in ("string", "regex"):
            return ""
        return self.tokens[self.at][1]

    def _sign(self) -> str:
        sign = self.tokens[self.at][1]
        self.at += 1
        return {"==": "===", "!=": "!=="}.get(sign, sign)

    def _takes(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self.at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise refuse()

    def _take(self, kind: str) -> str:
        token = self._peek_token()
        if token[0] != kind:
            raise refuse()
        self.at += 1
        return token[1]


def javascript_condition(code: str) -> Condition:
    """Return what an assertion in JavaScript says of the answer; raises ConversionError."""
    code = code.rstrip()
    if len(code) > LONGEST:
        raise refuse()
    try:
        parser = _Parser(_tokens(code))
        return _Meaning().condition(parser.program(is_line="\n" not in code))
    except RecursionError:
        raise refuse() from None


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The meaning of a tree of JavaScript."""

    names: Mapping[str, Tree] = field(default_factory=dict)
    """Parameters of functions, and what they denote."""

    def condition(self, tree: Tree, *, as_test: bool = False) -> Condition:
        """Return the condition of a tree; with `as_test` any value counts as true or false."""
        kind = tree[0]
        if kind == "boolean":
            return bool(tree[1])
        if kind == "number" and tree[1] in (0, 1):
            return bool(tree[1])
        if kind == "not":
            return negate(self.condition(tree[1], as_test=True))
        if kind == "cond":
            yes, no = (self.condition(branch, as_test=as_test) for branch in tree[2:])
            return choose(self.condition(tree[1], as_test=True), yes, no)
        if kind == "binary":
            return self._binary(tree, as_test=as_test)
        if kind == "object":
            return self._result(tree[1])
        if kind == "call":
            call = self._call(tree, as_test=as_test)
            if call is not None:
                return call
        if as_test:
            return self._truth(tree)
        raise refuse()

    def _result(self, values: dict[str, Tree]) -> Condition:
        if not {"pass", "score", "reason"} <= values.keys():
            raise refuse()
        return self.condition(values["pass"])

    def _binary(self, tree: Tree, *, as_test: bool) -> Condition:
        _, sign, left, other = tree
        if sign == "&&":
            return all_hold(
                self.condition(left, as_test=True), self.condition(other, as_test=as_test)
            )
        if sign == "||":
            return any_holds(
                self.condition(left, as_test=as_test), self.condition(other, as_test=as_test)
            )
        if (condition := self._type_test(left, sign, other)) is not None:
            return condition
        if (condition := self._index_of(left, sign, other)) is not None:
            return condition
        if _is_tool(left) and sign == "===" and isinstance(tool := self.value(other), Wanted):
            part = check_part("tool_call", {"tool": {HOLE_KEY: 0}}, ANY_CALL)
            return part._replace(arguments=(tool.argument,))
        return compare(self.value(left), sign, self.value(other))

    def _type_test(self, left: Tree, sign: str, other: Tree) -> Condition | None:
        if left[0] != "typeof" or other[0] != "string" or sign not in ("===", "!=="):
            return None
        what, name = self.value(left[1]), str(other[1])
        if isinstance(what, Text):
            condition: Condition = name == "string"
        elif isinstance(what, Data) and name in ("string", "number", "boolean"):
            condition = at_path(what, {"type": name})
        elif isinstance(what, Data) and name == "object":
            condition = at_path(what, {"type": ["object", "array", "null"]})
        else:
            raise refuse()
        return condition if sign == "===" else negate(condition)

    def _index_of(self, left: Tree, sign: str, other: Tree) -> Condition | None:
        """Return the meaning of output.indexOf('x') !== -1 and the like."""
        is_call = left[0] == "call" and left[1][0] == "member" and left[1][2] == "indexOf"
        if not is_call or other[0] != "number":
            return None
        there = (sign, other[1]) in ((">", -1), (">=", 0), ("!==", -1))
        absent = (sign, other[1]) in (("===", -1), ("<", 0))
        if not (there or absent):
            raise refuse()
        condition = self._call(
            ("call", ("member", left[1][1], "includes"), *left[2:]), as_test=True
        )
        if condition is None:
            raise refuse()
        return condition if there else negate(condition)

    def _truth(self, tree: Tree) -> Condition:
        value = self.value(tree)
        if isinstance(value, Text):
            return size_limit(Size(value), ">", 0)
        if isinstance(value, Size):
            return size_limit(value, ">", 0)
        if isinstance(value, Data) and value.steps:
            return at_path(value, {"not": {"enum": ["", 0, False, None]}})
        raise refuse()

    def _call(self, tree: Tree, *, as_test: bool) -> Condition | None:
        """Return the condition of a call; None if it is not one."""
        callee, arguments = tree[1], tree[2:]
        if callee == ("name", "Boolean") and len(arguments) == 1:
            return self.condition(arguments[0], as_test=True)
        if callee[0] != "member" or len(arguments) != 1:
            return None
        _, owner, name = callee
        if name == "test" and owner[0] == "regex":
            return self._matches(owner, arguments[0])
        if name == "match" and as_test and arguments[0][0] == "regex":
            return self._matches(arguments[0], owner)
        if name == "isArray" and owner == ("name", "Array"):
            value = self.value(arguments[0])
            if not isinstance(value, Data):
                raise refuse()
            return at_path(value, {"type": "array"})
        if name in ("some", "every") and owner[0] == "array":
            return self._each(name, owner[1:], arguments[0])
        if name in SIDES:
            return self._side(owner, name, arguments[0])
        return None

    def _matches(self, regex: Tree, subject: Tree) -> Condition:
        if self.value(subject) != Text():
            raise refuse()
        pattern, note = javascript_pattern(regex[1], regex[2])
        if "{{" in pattern or "{%" in pattern:
            raise refuse()
        return check_part("regex", {}, note, Argument(pattern))

    def _each(self, name: str, items: Sequence[Tree], function: Tree) -> Condition:
        if function[0] != "arrow":
            raise refuse()
        conditions = [
            replace(self, names={**self.names, function[1]: item}).condition(
                function[2], as_test=True
            )
            for item in items
        ]
        return any_holds(*conditions) if name == "some" else all_hold(*conditions)

    def _side(self, owner: Tree, name: str, argument: Tree) -> Condition:
        subject, expected = self.value(owner), self.value(argument)
        if isinstance(subject, Text) and isinstance(expected, Wanted):
            return text_side(subject, SIDES[name], expected)
        if isinstance(subject, Data) and name == "includes":
            if isinstance(expected, Wanted):
                texts = expected.argument
                if texts.template is not None or expected.lower:
                    raise refuse()
                expected = texts.value
            return data_contains(subject, expected)
        raise refuse()

    def value(self, tree: Tree) -> Any:
        """Return what a tree denotes: the answer, a part or length of it, or a constant."""
        kind = tree[0]
        if kind in ("string", "number", "boolean", "null"):
            return _constant(tree)
        if kind == "name" and tree[1] in self.names:
            return self.value(self.names[tree[1]])
        if tree == ("name", "output"):
            return Text()
        if kind == "member":
            return self._member(tree[1], tree[2])
        if kind == "index":
            return self._step(tree[1], self.value(tree[2]))
        if kind == "call":
            return self._method(tree)
        raise refuse()

    def _member(self, owner: Tree, name: str) -> Any:
        if owner == ("member", ("name", "context"), "vars"):
            return variable(name)
        if name == "length":
            return self._length(owner)
        return self._step(owner, name)

    def _step(self, owner: Tree, step: Any) -> Any:
        if owner == ("member", ("name", "context"), "vars") and isinstance(step, Wanted):
            return variable(step.text)
        data = self.value(owner)
        if isinstance(step, Wanted) and not step.is_variable:
            step = step.text
        if not isinstance(step, str | int) or isinstance(step, bool) or step in (-1,):
            raise refuse()
        if isinstance(data, Data):
            return data._replace(steps=(*data.steps, step))
        if data == Text() and isinstance(step, str):
            return Data((step,), AS_JSON)
        raise refuse()

    def _length(self, owner: Tree) -> Size:
        if _calls(owner, "filter") and _keeps_filled(owner[2]):
            lines = owner[1][1]
            whole = _calls(lines, "split") and lines[2:] == (("string", "\n"),)
            if not whole or not isinstance(subject := self.value(lines[1][1]), Text):
                raise refuse()
            return Size(subject, "filled lines")
        if _calls(owner, "split"):
            subject = self.value(owner[1][1])
            if not isinstance(subject, Text) or len(owner) != 3:
                raise refuse()
            by = owner[2]
            if by == ("string", "\n") and not subject.trimmed:
                return Size(subject, "lines")
            if by in (("regex", r"\s+", ""), ("regex", r"\s+", "g"), ("string", " ")):
                return Size(subject, "words")
            raise refuse()
        value = self.value(owner)
        if not isinstance(value, Text | Data):
            raise refuse()
        return Size(value)

    def _method(self, tree: Tree) -> Any:
        callee, arguments = tree[1], tree[2:]
        if callee == ("member", ("name", "JSON"), "parse") and len(arguments) == 1:
            if self.value(arguments[0]) not in (Text(), Text(trimmed=True)):
                raise refuse()
            return Data()
        if callee == ("name", "String") and len(arguments) == 1:
            value = self.value(arguments[0])
            if isinstance(value, Text | Wanted):
                return value
        if callee[0] == "member" and not arguments:
            return changed_text(self.value(callee[1]), callee[2])
        raise refuse()


def _calls(tree: Tree, method: str) -> bool:
    """Whether a tree is a call of a method with one argument."""
    return tree[0] == "call" and tree[1][0] == "member" and tree[1][2] == method and len(tree) == 3


def _keeps_filled(tree: Tree) -> bool:
    """Whether a tree is a function such as line => line.trim(), or line.trim().length > 0."""
    if tree[0] != "arrow":
        return False
    trimmed = ("call", ("member", ("name", tree[1]), "trim"))
    some = ("binary", ">", ("member", trimmed, "length"), ("number", 0.0))
    return tree[2] in (trimmed, some, ("member", trimmed, "length"))


def _is_tool(tree: Tree) -> bool:
    """Whether a tree is output[0].function.name, the tool of the first call."""
    return tree == (
        "member",
        ("member", ("index", ("name", "output"), ("number", 0.0)), "function"),
        "name",
    )


def _constant(tree: Tree) -> Any:
    if tree[0] == "string":
        return Wanted(tree[1])
    if tree[0] == "number":
        return int(tree[1]) if tree[1] == int(tree[1]) else tree[1]
    return tree[1] if tree[0] == "boolean" else None


def transformed_text(code: str, how: str, text: str) -> Condition:
    """Return what an assertion says of the answer after a transform in JavaScript.

    `how` is equals, contains or starts_with. Raises ConversionError.
    """
    try:
        tree = _Parser(_tokens(code.strip())).program(is_line="\n" not in code.strip())
        subject = _Meaning().value(tree)
    except RecursionError:
        raise refuse() from None
    expected = Wanted(text)
    if isinstance(subject, Text):
        return (
            text_equals(subject, expected) if how == "equals" else text_side(subject, how, expected)
        )
    if isinstance(subject, Data) and subject.steps:
        if how == "equals":
            return compare_data(subject, "===", expected._replace(is_variable=True))
        if how == "contains" and expected.argument.template is None:
            return at_path(subject, {"type": "string", "pattern": re.escape(text)})
    raise refuse()
