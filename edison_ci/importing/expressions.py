"""Assertions in JavaScript and Python that are simple expressions, as checks.

Nothing is run. An expression is parsed, and becomes checks only if it consists of forms whose
meaning is known: what the answer contains, starts with, equals or matches, how long it is, and the
values of its JSON, with and, or and not between them. Anything else raises ConversionError.
"""

from __future__ import annotations

import ast
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.importing.drafts import Argument
from edison_ci.importing.patterns import javascript_pattern
from edison_ci.importing.prompts import ConversionError
from edison_ci.importing.templates import convert, variable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.documents.marks import Json

HOLE_KEY = "<hole>"
_UNSUPPORTED = "only simple expressions over the answer become checks; code is not run"
_AS_JSON = "the answer is read as JSON"
_EMOJI = "an emoji is one character here"
_NO_TEXT = "a number in quotes is none here"
_ANY_CALL = "any call of the tool counts, not only the first"
_EMPTY = "an empty answer has no words here"
_LONGEST = 2_000
_DEEPEST = 40


class Part(NamedTuple):
    """A check with {"<hole>": N} in place of argument N."""

    entry: dict[str, Any]
    arguments: tuple[Argument, ...] = ()
    notes: frozenset[str] = frozenset()


Condition = bool | Part
"""A check, or what is true or false of every answer."""


def refuse() -> ConversionError:
    """Return the error for an expression that is not simple."""
    return ConversionError(_UNSUPPORTED)


# --- conditions -----------------------------------------------------------------------------------


def shift_holes(value: Any, start: int) -> Any:
    """Return an entry whose placeholders are numbered from `start`."""
    if isinstance(value, dict):
        if HOLE_KEY in value:
            return {HOLE_KEY: value[HOLE_KEY] + start}
        return {key: shift_holes(item, start) for key, item in value.items()}
    return [shift_holes(item, start) for item in value] if isinstance(value, list) else value


def _joined(name: str, conditions: Sequence[Condition]) -> Condition:
    """Return all_of or any_of of conditions."""
    settles = name == "any_of"
    parts = [each for each in conditions if not isinstance(each, bool)]
    if settles in [each for each in conditions if isinstance(each, bool)]:
        return settles
    if not parts:
        return not settles
    if len(parts) == 1:
        return parts[0]
    entries: list[Any] = []
    arguments: list[Argument] = []
    for part in parts:
        inner = part.entry.get(name)
        entry = shift_holes(part.entry, len(arguments))
        entries += entry[name]["value"] if inner is not None else [entry]
        arguments += part.arguments
    notes = frozenset(note for part in parts for note in part.notes)
    return Part({name: {"value": entries}}, tuple(arguments), notes)


def _all(*conditions: Condition) -> Condition:
    return _joined("all_of", conditions)


def _any(*conditions: Condition) -> Condition:
    return _joined("any_of", conditions)


def _not(condition: Condition) -> Condition:
    if isinstance(condition, bool):
        return not condition
    if "not" in condition.entry:
        return condition._replace(entry=condition.entry["not"]["value"])
    return condition._replace(entry={"not": {"value": condition.entry}})


def _choose(test: Condition, yes: Condition, no: Condition) -> Condition:
    return _any(_all(test, yes), _all(_not(test), no))


def _check(
    name: str, options: dict[str, Any], note: str = "", argument: Argument | None = None
) -> Part:
    given = dict(options)
    if argument is not None:
        given = {"value": {HOLE_KEY: 0}, **given}
    return Part(
        {name: given},
        (argument,) if argument is not None else (),
        frozenset({note} if note else ()),
    )


# --- what is compared -----------------------------------------------------------------------------


class Text(NamedTuple):
    """The answer, perhaps trimmed and in lower case."""

    trimmed: bool = False
    lower: bool = False


class Data(NamedTuple):
    """A value in the JSON of the answer."""

    steps: tuple[str | int, ...] = ()
    note: str = ""


class Size(NamedTuple):
    """A length: of the answer, of its lines or words, or of a value in its JSON."""

    of: Text | Data
    what: str = "chars"


class Wanted(NamedTuple):
    """A text of the assertion, or a variable of the test."""

    text: str
    lower: bool = False
    is_variable: bool = False

    @property
    def argument(self) -> Argument:
        """The argument of a check; raises ConversionError."""
        converted = convert(self.text)
        if converted.faults:
            raise refuse()
        template = converted if converted.text_is_template else None
        return Argument(converted.text, template)


def variable(name: str) -> Wanted:
    """Return a variable of the test."""
    return Wanted(f"{{{{ {variable_name(name)} }}}}", is_variable=True)


_SIDES = {"includes": "contains", "startsWith": "starts_with", "endsWith": "ends_with"}


def text_side(subject: Text, how: str, wanted: Wanted) -> Condition:
    """Return that the answer contains, starts with or ends with a text."""
    if not wanted.text:
        return True
    if subject.lower:
        if how != "contains" or not _fits_lower(wanted):
            raise refuse()
        return _check("icontains", {}, argument=wanted.argument)
    if wanted.lower:
        raise refuse()
    if how == "contains":
        return _check("contains", {}, argument=wanted.argument)
    if subject.trimmed and (wanted.is_variable or wanted.text != wanted.text.strip()):
        raise refuse()
    exact = {} if subject.trimmed else {"exact": True}
    return _check(how, exact, argument=wanted.argument)


def _fits_lower(wanted: Wanted) -> bool:
    """Whether a text is found in one in lower case exactly if it is found in any case."""
    return wanted.lower or (not wanted.is_variable and wanted.text == wanted.text.lower())


def text_equals(subject: Text, wanted: Wanted) -> Condition:
    """Return that the answer is a text."""
    if subject.lower and not _fits_lower(wanted):
        raise refuse()
    if subject.trimmed and not wanted.is_variable and wanted.text != wanted.text.strip():
        return False
    if (subject.trimmed and wanted.is_variable) or (wanted.lower and not subject.lower):
        raise refuse()
    options: dict[str, Json] = {} if subject.trimmed else {"exact": True}
    if subject.lower:
        options["ignore_case"] = True
    return _check("equals", options, argument=wanted.argument)


def at_path(data: Data, leaf: Json) -> Part:
    """Return that a value in the JSON of the answer fits a schema."""
    schema: Json = leaf
    for step in reversed(data.steps):
        if isinstance(step, str):
            schema = {"type": "object", "required": [step], "properties": {step: schema}}
        else:
            before: list[Json] = [True] * step
            items: list[Json] = [*before, schema]
            schema = {"type": "array", "minItems": step + 1, "prefixItems": items}
    if not isinstance(schema, dict):
        schema = {}
    return _check("json_schema", {"value": schema, "exact": True}, data.note)


def data_equals(data: Data, value: Json) -> Condition:
    """Return that a value in the JSON of the answer is this one."""
    return at_path(data, {"const": value})


def data_differs(data: Data, value: Json) -> Condition:
    """Return that it is another one, or is not there."""
    if not data.steps:
        raise refuse()
    above = at_path(data._replace(steps=data.steps[:-1]), {"not": {"type": "null"}})
    return _all(above, _not(data_equals(data, value)))


def data_contains(data: Data, value: Json) -> Condition:
    """Return that a text or a list in the JSON of the answer contains this."""
    choices: list[Json] = [{"type": "array", "contains": {"const": value}}]
    if isinstance(value, str):
        choices.insert(0, {"type": "string", "pattern": re.escape(value)})
    return at_path(data, {"anyOf": choices})


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def number_limit(data: Data, sign: str, limit: float) -> Condition:
    """Return that a number in the JSON of the answer keeps a limit."""
    words = {"<": "exclusiveMaximum", "<=": "maximum", ">": "exclusiveMinimum", ">=": "minimum"}
    noted = data._replace(note="; ".join(filter(None, (data.note, _NO_TEXT))))
    return at_path(noted, {"type": "number", words[sign]: limit})


def size_limit(size: Size, sign: str, limit: float) -> Condition:
    """Return that a length keeps a limit."""
    if limit != int(limit):
        raise refuse()
    low = {">": int(limit) + 1, ">=": int(limit), "===": int(limit)}.get(sign)
    high = {"<": int(limit) - 1, "<=": int(limit), "===": int(limit)}.get(sign)
    if low is None and high is None:
        raise refuse()
    if high is not None and high < 0:
        return False
    if isinstance(size.of, Data):
        leaf: dict[str, Json] = {"type": ["array", "string"]}
        leaf |= {"minItems": low, "minLength": low} if low is not None and low > 0 else {}
        leaf |= {"maxItems": high, "maxLength": high} if high is not None else {}
        return at_path(size.of, leaf)
    if low is not None and low <= 0:
        low = None
    if size.what in _LINES:
        return _lines(_LINES[size.what], low, high)
    limits: dict[str, Json] = {"min": low} if low is not None else {}
    limits |= {"max": high} if high is not None else {}
    if not limits:
        return True
    if size.what == "words":
        return _check("words", limits, _EMPTY)
    exact: dict[str, Json] = {} if size.of.trimmed else {"exact": True}
    note = "" if low == 1 and high is None else _EMOJI
    return _check("chars", {**limits, **exact}, note)


_LINES = {
    "lines": (r"\A(?:[^\n]*\n){%d}", 1),
    "filled lines": (r"\S[^\n]*(?:\n\s*\S[^\n]*){%d}", 0),
}
"""Patterns of at least so many lines and one more, and the lines of an empty answer."""


def _lines(pattern: tuple[str, int], low: int | None, high: int | None) -> Condition:
    form, fewest = pattern

    def at_least(number: int) -> Condition:
        if number <= fewest:
            return True
        if number > 1_000:
            raise refuse()
        return _check("regex", {}, argument=Argument(form % (number - 1)))

    most = _not(at_least(high + 1)) if high is not None else True
    return _all(at_least(low) if low is not None else True, most)


def compare(one: Any, sign: str, other: Any) -> Condition:
    """Return what a comparison says of the answer."""
    if not isinstance(one, Text | Data | Size):
        one, other, sign = other, one, _FLIPPED.get(sign, sign)
    if isinstance(other, Text | Data | Size):
        raise refuse()
    if isinstance(other, int | float) and not isinstance(other, bool):
        return _against_number(one, sign, other)
    if sign not in ("===", "!=="):
        raise refuse()
    if isinstance(one, Text) and isinstance(other, Wanted):
        found = text_equals(one, other)
        return found if sign == "===" else _not(found)
    if isinstance(one, Data) and isinstance(other, Wanted):
        return _data_against(one, sign, other)
    if isinstance(one, Data) and (other is None or isinstance(other, bool)):
        return data_equals(one, other) if sign == "===" else data_differs(one, other)
    raise refuse()


def _against_number(one: Any, sign: str, other: float) -> Condition:
    if isinstance(one, Size):
        if sign == "!==":
            return _not(size_limit(one, "===", other))
        return size_limit(one, sign, other)
    if not isinstance(one, Data):
        raise refuse()
    if sign in _FLIPPED:
        return number_limit(one, sign, other)
    return data_equals(one, other) if sign == "===" else data_differs(one, other)


def _data_against(data: Data, sign: str, wanted: Wanted) -> Condition:
    if wanted.lower:
        raise refuse()
    if not wanted.is_variable:
        text = wanted.argument
        if text.template is not None:
            raise refuse()
        value = text.value
        return data_equals(data, value) if sign == "===" else data_differs(data, value)
    if sign != "===" or not data.steps:
        raise refuse()
    path = "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in data.steps
    )
    return _check("json_path", {"path": path, "exact": True}, data.note, wanted.argument)


# --- JavaScript -----------------------------------------------------------------------------------

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
    found: list[Token] = []
    at = 0
    while at < len(code):
        before = found[-1] if found else ("sign", "(")
        is_value = before[0] in _ENDS_VALUE and before[1] not in ("return", "typeof")
        if code[at] == "/" and not is_value and before[1] not in (")", "]"):
            regex = _REGEX.match(code, at)
            if regex is not None and not code.startswith(("//", "/*"), at):
                found.append(("regex", regex[0]))
                at = regex.end()
                continue
        token = _TOKEN.match(code, at)
        if token is None:
            raise refuse()
        if token.lastgroup is not None:
            found.append((token.lastgroup, token[0]))
        at = token.end()
    return found


def _unquoted(text: str) -> str:
    def escape(found: re.Match[str]) -> str:
        letter = found[1]
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
        found = self._binary(level + 1)
        while self._peek() in self._LEVELS[level]:
            sign = self._sign()
            found = ("binary", sign, found, self._binary(level + 1))
        return found

    def _unary(self) -> Tree:
        self._deeper()
        if self._takes("!"):
            found: Tree = ("not", self._unary())
        elif self._takes("-"):
            found = ("number", -float(self._take("number")))
        elif self._takes("typeof"):
            found = ("typeof", self._unary())
        else:
            found = self._member(self._primary())
        self.depth -= 1
        return found

    def _member(self, found: Tree) -> Tree:
        while True:
            if self._takes(".") or self._takes("?."):
                if self._peek() == "[":
                    continue
                found = ("member", found, self._take("name"))
            elif self._takes("["):
                found = ("index", found, self._expression())
                self._expect("]")
            elif self._takes("("):
                found = ("call", found, *self._list(")"))
            else:
                return found

    def _list(self, end: str) -> list[Tree]:
        found = []
        while not self._takes(end):
            found.append(self._expression())
            if not self._takes(","):
                self._expect(end)
                break
        return found

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
        found = self._expression()
        self._expect(")")
        return found

    def _object(self) -> Tree:
        found: dict[str, Tree] = {}
        while not self._takes("}"):
            kind, text = self._peek_token()
            self.at += 1
            if kind not in ("name", "string"):
                raise refuse()
            name = _unquoted(text) if kind == "string" else text
            if self._takes(":"):
                found[name] = self._expression()
            else:
                found[name] = self._name(text)
            if not self._takes(","):
                self._expect("}")
                break
        return ("object", found)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST * 10:
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
        found = self._peek_token()
        if found[0] != kind:
            raise refuse()
        self.at += 1
        return found[1]


def javascript_condition(code: str) -> Condition:
    """Return what an assertion in JavaScript says of the answer; raises ConversionError."""
    code = code.rstrip()
    if len(code) > _LONGEST:
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
    """Parameters of functions, and what they stand for."""

    def condition(self, tree: Tree, *, as_test: bool = False) -> Condition:
        """Return the condition of a tree; with `as_test` any value counts as true or false."""
        kind = tree[0]
        if kind == "boolean":
            return bool(tree[1])
        if kind == "number" and tree[1] in (0, 1):
            return bool(tree[1])
        if kind == "not":
            return _not(self.condition(tree[1], as_test=True))
        if kind == "cond":
            yes, no = (self.condition(each, as_test=as_test) for each in tree[2:])
            return _choose(self.condition(tree[1], as_test=True), yes, no)
        if kind == "binary":
            return self._binary(tree, as_test=as_test)
        if kind == "object":
            return self._result(tree[1])
        if kind == "call":
            found = self._call(tree, as_test=as_test)
            if found is not None:
                return found
        if as_test:
            return self._truth(tree)
        raise refuse()

    def _result(self, values: dict[str, Tree]) -> Condition:
        if not {"pass", "score", "reason"} <= values.keys():
            raise refuse()
        return self.condition(values["pass"])

    def _binary(self, tree: Tree, *, as_test: bool) -> Condition:
        _, sign, one, other = tree
        if sign == "&&":
            return _all(self.condition(one, as_test=True), self.condition(other, as_test=as_test))
        if sign == "||":
            return _any(
                self.condition(one, as_test=as_test), self.condition(other, as_test=as_test)
            )
        if (found := self._type_test(one, sign, other)) is not None:
            return found
        if (found := self._index_of(one, sign, other)) is not None:
            return found
        if _is_tool(one) and sign == "===" and isinstance(wanted := self.value(other), Wanted):
            part = _check("tool_call", {"tool": {HOLE_KEY: 0}}, _ANY_CALL)
            return part._replace(arguments=(wanted.argument,))
        return compare(self.value(one), sign, self.value(other))

    def _type_test(self, one: Tree, sign: str, other: Tree) -> Condition | None:
        if one[0] != "typeof" or other[0] != "string" or sign not in ("===", "!=="):
            return None
        what, name = self.value(one[1]), str(other[1])
        if isinstance(what, Text):
            found: Condition = name == "string"
        elif isinstance(what, Data) and name in ("string", "number", "boolean"):
            found = at_path(what, {"type": name})
        elif isinstance(what, Data) and name == "object":
            found = at_path(what, {"type": ["object", "array", "null"]})
        else:
            raise refuse()
        return found if sign == "===" else _not(found)

    def _index_of(self, one: Tree, sign: str, other: Tree) -> Condition | None:
        """Return the meaning of output.indexOf('x') !== -1 and the like."""
        is_call = one[0] == "call" and one[1][0] == "member" and one[1][2] == "indexOf"
        if not is_call or other[0] != "number":
            return None
        there = (sign, other[1]) in ((">", -1), (">=", 0), ("!==", -1))
        absent = (sign, other[1]) in (("===", -1), ("<", 0))
        if not (there or absent):
            raise refuse()
        found = self._call(("call", ("member", one[1][1], "includes"), *one[2:]), as_test=True)
        if found is None:
            raise refuse()
        return found if there else _not(found)

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
        if name in _SIDES:
            return self._side(owner, name, arguments[0])
        return None

    def _matches(self, regex: Tree, subject: Tree) -> Condition:
        if self.value(subject) != Text():
            raise refuse()
        pattern, note = javascript_pattern(regex[1], regex[2])
        if "{{" in pattern or "{%" in pattern:
            raise refuse()
        return _check("regex", {}, note, Argument(pattern))

    def _each(self, name: str, items: Sequence[Tree], function: Tree) -> Condition:
        if function[0] != "arrow":
            raise refuse()
        found = [
            replace(self, names={**self.names, function[1]: item}).condition(
                function[2], as_test=True
            )
            for item in items
        ]
        return _any(*found) if name == "some" else _all(*found)

    def _side(self, owner: Tree, name: str, argument: Tree) -> Condition:
        subject, wanted = self.value(owner), self.value(argument)
        if isinstance(subject, Text) and isinstance(wanted, Wanted):
            return text_side(subject, _SIDES[name], wanted)
        if isinstance(subject, Data) and name == "includes":
            if isinstance(wanted, Wanted):
                given = wanted.argument
                if given.template is not None or wanted.lower:
                    raise refuse()
                wanted = given.value
            return data_contains(subject, wanted)
        raise refuse()

    # --- values -----------------------------------------------------------------------------------

    def value(self, tree: Tree) -> Any:
        """Return what a tree stands for: the answer, a part or length of it, or a constant."""
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
        found = self.value(owner)
        if isinstance(step, Wanted) and not step.is_variable:
            step = step.text
        if not isinstance(step, str | int) or isinstance(step, bool) or step in (-1,):
            raise refuse()
        if isinstance(found, Data):
            return found._replace(steps=(*found.steps, step))
        if found == Text() and isinstance(step, str):
            return Data((step,), _AS_JSON)
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
        found = self.value(owner)
        if not isinstance(found, Text | Data):
            raise refuse()
        return Size(found)

    def _method(self, tree: Tree) -> Any:
        callee, arguments = tree[1], tree[2:]
        if callee == ("member", ("name", "JSON"), "parse") and len(arguments) == 1:
            if self.value(arguments[0]) not in (Text(), Text(trimmed=True)):
                raise refuse()
            return Data()
        if callee == ("name", "String") and len(arguments) == 1:
            found = self.value(arguments[0])
            if isinstance(found, Text | Wanted):
                return found
        if callee[0] == "member" and not arguments:
            return _changed(self.value(callee[1]), callee[2])
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


def _changed(found: Any, method: str) -> Any:
    """Return a text after trim, toLowerCase or toString."""
    if method in ("trim", "strip") and isinstance(found, Text):
        return found._replace(trimmed=True)
    if method in ("toLowerCase", "lower") and isinstance(found, Text | Wanted):
        if isinstance(found, Wanted) and not found.is_variable:
            return found._replace(text=found.text.lower(), lower=True)
        return found._replace(lower=True)
    if method == "toString" and isinstance(found, Text):
        return found
    raise refuse()


# --- Python ---------------------------------------------------------------------------------------

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
    if len(code) > _LONGEST:
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
        for index, each in enumerate(body):
            rest = body[index + 1 :]
            if isinstance(each, ast.Return) and each.value is not None:
                return self.condition(each.value)
            if isinstance(each, ast.If):
                no = each.orelse or rest
                return _choose(
                    self.condition(each.test, as_test=True),
                    self.statements(each.body),
                    self.statements(no),
                )
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                if len(each.targets) != 1:
                    raise refuse()
                names = {**self.names, each.targets[0].id: each.value}
                return replace(self, names=names).statements(rest)
            is_json = isinstance(each, ast.Import) and [a.name for a in each.names] == ["json"]
            if not is_json:
                raise refuse()
        raise ConversionError("it returns nothing, so every answer fails in promptfoo")

    def condition(self, tree: ast.expr, *, as_test: bool = False) -> Condition:
        """Return the condition of a tree; with `as_test` any value counts as true or false."""
        if isinstance(tree, ast.Constant) and isinstance(tree.value, bool):
            return tree.value
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
            return _not(self.condition(tree.operand, as_test=True))
        if isinstance(tree, ast.BoolOp):
            return self._bool(tree, as_test=as_test)
        if isinstance(tree, ast.IfExp):
            yes, no = (self.condition(each, as_test=as_test) for each in (tree.body, tree.orelse))
            return _choose(self.condition(tree.test, as_test=True), yes, no)
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            return self._compare(tree.left, tree.ops[0], tree.comparators[0])
        if isinstance(tree, ast.Dict):
            return self._result(tree)
        found = self._call(tree) if isinstance(tree, ast.Call) else None
        if found is not None:
            return found
        if as_test:
            return self._truth(tree)
        raise refuse()

    def _truth(self, tree: ast.expr) -> Condition:
        value = self.value(tree)
        if not isinstance(value, Text | Size):
            raise refuse()
        return _counted(value if isinstance(value, Size) else Size(value), ">", 0)

    def _bool(self, tree: ast.BoolOp, *, as_test: bool) -> Condition:
        last = len(tree.values) - 1
        is_and = isinstance(tree.op, ast.And)
        found = [
            self.condition(each, as_test=as_test or (is_and and index < last))
            for index, each in enumerate(tree.values)
        ]
        return _all(*found) if is_and else _any(*found)

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
            wanted, subject = self.value(left), self.value(right)
            if isinstance(subject, Text) and isinstance(wanted, Wanted):
                found = text_side(subject, "contains", wanted)
            elif isinstance(subject, Data) and isinstance(wanted, Wanted):
                found = _has_key(subject, wanted)
            else:
                raise refuse()
            return found if isinstance(sign, ast.In) else _not(found)
        return _python_compare(self.value(left), _SIGNS[type(sign)], self.value(right))

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
        found = []
        for each in listed:
            wanted = self.value(each)
            if not isinstance(wanted, Wanted):
                raise refuse()
            found.append(text_side(subject, sides[called.attr], wanted))
        return _any(*found)

    def _each(self, name: str, argument: ast.expr) -> Condition:
        if not isinstance(argument, ast.GeneratorExp | ast.ListComp):
            raise refuse()
        (loop, *others) = argument.generators
        listed = self._followed(loop.iter)
        if others or loop.ifs or not isinstance(loop.target, ast.Name):
            raise refuse()
        if not isinstance(listed, ast.List | ast.Tuple):
            raise refuse()
        found = [
            replace(self, names={**self.names, loop.target.id: item}).condition(
                argument.elt, as_test=True
            )
            for item in listed.elts
        ]
        return _any(*found) if name == "any" else _all(*found)

    def _followed(self, tree: ast.expr) -> ast.expr:
        for _ in range(_DEEPEST):
            if not (isinstance(tree, ast.Name) and tree.id in self.names):
                return tree
            tree = self.names[tree.id]
        raise refuse()

    def value(self, tree: ast.expr) -> Any:
        """Return what a tree stands for: the answer, a part or length of it, or a constant."""
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
        found = self.value(tree.value)
        key = step.text if isinstance(step, Wanted) else step
        if not isinstance(found, Data) or isinstance(key, bool | float) or key is None:
            raise refuse()
        if isinstance(key, int) and key < 0:
            raise refuse()
        return found._replace(steps=(*found.steps, key))

    def _method(self, tree: ast.Call) -> Any:
        called = tree.func
        if isinstance(called, ast.Name) and called.id == "len" and len(tree.args) == 1:
            return self._length(tree.args[0])
        if isinstance(called, ast.Name) and called.id == "str" and len(tree.args) == 1:
            found = self.value(tree.args[0])
            if isinstance(found, Text | Wanted):
                return found
        if isinstance(called, ast.Attribute):
            is_json = isinstance(called.value, ast.Name) and called.value.id == "json"
            if is_json and called.attr == "loads" and len(tree.args) == 1:
                if not isinstance(self.value(tree.args[0]), Text):
                    raise refuse()
                return Data()
            if not tree.args:
                return _changed(self.value(called.value), called.attr)
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
        found = self.value(tree)
        if not isinstance(found, Text | Data):
            raise refuse()
        return Size(found)


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


def _has_key(data: Data, wanted: Wanted) -> Condition:
    if wanted.is_variable or wanted.lower:
        raise refuse()
    text = wanted.argument
    if text.template is not None or not isinstance(text.value, str):
        raise refuse()
    choices: list[Json] = [
        {"type": "object", "required": [text.value]},
        {"type": "array", "contains": {"const": text.value}},
        {"type": "string", "pattern": re.escape(text.value)},
    ]
    return at_path(data, {"anyOf": choices})


def _python_compare(one: Any, sign: str, other: Any) -> Condition:
    """Compare; Python counts an emoji as one character and an empty text as no words."""
    return _without(compare(one, sign, other), (_EMOJI, _EMPTY, _NO_TEXT))


def _counted(size: Size, sign: str, limit: float) -> Condition:
    return _without(size_limit(size, sign, limit), (_EMOJI, _EMPTY, _NO_TEXT))


def _without(condition: Condition, notes: Sequence[str]) -> Condition:
    if isinstance(condition, bool):
        return condition
    return condition._replace(notes=condition.notes - {*notes})


def transformed_text(code: str, how: str, text: str) -> Condition:
    """Return what an assertion says of the answer after a transform in JavaScript.

    `how` is equals, contains or starts_with. Raises ConversionError.
    """
    try:
        tree = _Parser(_tokens(code.strip())).program(is_line="\n" not in code.strip())
        subject = _Meaning().value(tree)
    except RecursionError:
        raise refuse() from None
    wanted = Wanted(text)
    if isinstance(subject, Text):
        return text_equals(subject, wanted) if how == "equals" else text_side(subject, how, wanted)
    if isinstance(subject, Data) and subject.steps:
        if how == "equals":
            return _data_against(subject, "===", wanted._replace(is_variable=True))
        if how == "contains" and wanted.argument.template is None:
            return at_path(subject, {"type": "string", "pattern": re.escape(text)})
    raise refuse()


CONDITIONS: dict[str, Callable[[str], Condition]] = {
    "javascript": javascript_condition,
    "python": python_condition,
}
"""Readers of conditions by language."""
