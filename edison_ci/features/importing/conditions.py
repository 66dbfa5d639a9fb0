"""Conditions on an answer, which simple expressions of an assertion come to, as checks.

They say what the answer contains, starts with, equals or matches, how long it is, and the values of
its JSON, with and, or and not between them. Anything else raises ConversionError: an expression is
parsed (`javascript`, `python_code`), and never run. Regular expressions of JavaScript are written
so that Python finds the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.checks.patterns import analyse_pattern
from edison_ci.features.importing.templates import (
    Argument,
    ConversionError,
    convert,
    variable_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.documents.marks import Json

HOLE_KEY = "<hole>"
_UNSUPPORTED = "only simple expressions over the answer become checks; code is not run"
AS_JSON = "the answer is read as JSON"
EMOJI = "an emoji is one character here"
NO_TEXT = "a number in quotes is none here"
ANY_CALL = "any call of the tool counts, not only the first"
EMPTY = "an empty answer has no words here"
LONGEST = 2_000
DEEPEST = 40


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
    parts = [condition for condition in conditions if not isinstance(condition, bool)]
    if settles in [condition for condition in conditions if isinstance(condition, bool)]:
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


def all_hold(*conditions: Condition) -> Condition:
    """Return the condition that all of these hold."""
    return _joined("all_of", conditions)


def any_holds(*conditions: Condition) -> Condition:
    """Return the condition that one of these holds."""
    return _joined("any_of", conditions)


def negate(condition: Condition) -> Condition:
    """Return the condition that this one does not hold."""
    if isinstance(condition, bool):
        return not condition
    if "not" in condition.entry:
        return condition._replace(entry=condition.entry["not"]["value"])
    return condition._replace(entry={"not": {"value": condition.entry}})


def choose(test: Condition, yes: Condition, no: Condition) -> Condition:
    """Return one condition where a test holds, and another where it does not."""
    return any_holds(all_hold(test, yes), all_hold(negate(test), no))


def check_part(
    name: str, options: dict[str, Any], note: str = "", argument: Argument | None = None
) -> Part:
    """Return a check as a condition; the note says where its verdicts may differ."""
    full_options = dict(options)
    if argument is not None:
        full_options = {"value": {HOLE_KEY: 0}, **full_options}
    return Part(
        {name: full_options},
        (argument,) if argument is not None else (),
        frozenset({note} if note else ()),
    )


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


SIDES = {"includes": "contains", "startsWith": "starts_with", "endsWith": "ends_with"}


def text_side(subject: Text, how: str, text: Wanted) -> Condition:
    """Return that the answer contains, starts with or ends with a text."""
    if not text.text:
        return True
    if subject.lower:
        if how != "contains" or not _fits_lower(text):
            raise refuse()
        return check_part("icontains", {}, argument=text.argument)
    if text.lower:
        raise refuse()
    if how == "contains":
        return check_part("contains", {}, argument=text.argument)
    if subject.trimmed and (text.is_variable or text.text != text.text.strip()):
        raise refuse()
    exact = {} if subject.trimmed else {"exact": True}
    return check_part(how, exact, argument=text.argument)


def _fits_lower(text: Wanted) -> bool:
    """Whether a text is found in one in lower case exactly if it is found in any case."""
    return text.lower or (not text.is_variable and text.text == text.text.lower())


def text_equals(subject: Text, text: Wanted) -> Condition:
    """Return that the answer is a text."""
    if subject.lower and not _fits_lower(text):
        raise refuse()
    if subject.trimmed and not text.is_variable and text.text != text.text.strip():
        return False
    if (subject.trimmed and text.is_variable) or (text.lower and not subject.lower):
        raise refuse()
    options: dict[str, Json] = {} if subject.trimmed else {"exact": True}
    if subject.lower:
        options["ignore_case"] = True
    return check_part("equals", options, argument=text.argument)


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
    return check_part("json_schema", {"value": schema, "exact": True}, data.note)


def data_equals(data: Data, value: Json) -> Condition:
    """Return that a value in the JSON of the answer is this one."""
    return at_path(data, {"const": value})


def data_differs(data: Data, value: Json) -> Condition:
    """Return that it is another one, or is not there."""
    if not data.steps:
        raise refuse()
    above = at_path(data._replace(steps=data.steps[:-1]), {"not": {"type": "null"}})
    return all_hold(above, negate(data_equals(data, value)))


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
    noted = data._replace(note="; ".join(filter(None, (data.note, NO_TEXT))))
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
        return check_part("words", limits, EMPTY)
    exact: dict[str, Json] = {} if size.of.trimmed else {"exact": True}
    note = "" if low == 1 and high is None else EMOJI
    return check_part("chars", {**limits, **exact}, note)


_LINES = {
    "lines": (r"\A(?:[^\n]*\n){%d}", 1),
    "filled lines": (r"\S[^\n]*(?:\n\s*\S[^\n]*){%d}", 0),
}
"""Patterns of at least N lines and one more, and the lines of an empty answer."""


def _lines(pattern: tuple[str, int], low: int | None, high: int | None) -> Condition:
    form, fewest = pattern

    def at_least(number: int) -> Condition:
        if number <= fewest:
            return True
        if number > 1_000:
            raise refuse()
        return check_part("regex", {}, argument=Argument(form % (number - 1)))

    most = negate(at_least(high + 1)) if high is not None else True
    return all_hold(at_least(low) if low is not None else True, most)


def compare(subject: Any, sign: str, other: Any) -> Condition:
    """Return what a comparison says of the answer."""
    if not isinstance(subject, Text | Data | Size):
        subject, other, sign = other, subject, _FLIPPED.get(sign, sign)
    if isinstance(other, Text | Data | Size):
        raise refuse()
    if isinstance(other, int | float) and not isinstance(other, bool):
        return _against_number(subject, sign, other)
    if sign not in ("===", "!=="):
        raise refuse()
    if isinstance(subject, Text) and isinstance(other, Wanted):
        condition = text_equals(subject, other)
        return condition if sign == "===" else negate(condition)
    if isinstance(subject, Data) and isinstance(other, Wanted):
        return compare_data(subject, sign, other)
    if isinstance(subject, Data) and (other is None or isinstance(other, bool)):
        return data_equals(subject, other) if sign == "===" else data_differs(subject, other)
    raise refuse()


def _against_number(subject: Any, sign: str, other: float) -> Condition:
    if isinstance(subject, Size):
        if sign == "!==":
            return negate(size_limit(subject, "===", other))
        return size_limit(subject, sign, other)
    if not isinstance(subject, Data):
        raise refuse()
    if sign in _FLIPPED:
        return number_limit(subject, sign, other)
    return data_equals(subject, other) if sign == "===" else data_differs(subject, other)


def compare_data(data: Data, sign: str, expected: Wanted) -> Condition:
    """Return the condition that a value in the answer's JSON is, or is not, a text."""
    if expected.lower:
        raise refuse()
    if not expected.is_variable:
        text = expected.argument
        if text.template is not None:
            raise refuse()
        value = text.value
        return data_equals(data, value) if sign == "===" else data_differs(data, value)
    if sign != "===" or not data.steps:
        raise refuse()
    path = "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in data.steps
    )
    return check_part("json_path", {"path": path, "exact": True}, data.note, expected.argument)


def changed_text(subject: Any, method: str) -> Any:
    """Return a text after trim, toLowerCase or toString."""
    if method in ("trim", "strip") and isinstance(subject, Text):
        return subject._replace(trimmed=True)
    if method in ("toLowerCase", "lower") and isinstance(subject, Text | Wanted):
        if isinstance(subject, Wanted) and not subject.is_variable:
            return subject._replace(text=subject.text.lower(), lower=True)
        return subject._replace(lower=True)
    if method == "toString" and isinstance(subject, Text):
        return subject
    raise refuse()


_SPACES = r"\s\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS = r"\n\r\u2028\u2029"
_QUANTIFIER = re.compile(r"\{\d+(?:,\d*)?\}")
_GROUP = re.compile(r"\(\?(?:[:=!]|<[=!])")
_NAMED = re.compile(r"\(\?<([A-Za-z_]\w*)>")
_KNOWN_ESCAPES = "dDwWsSbBtnrvfxu123456789"
_MAY_DIFFER = "the pattern may mean something else here: an emoji is two characters in JavaScript"


def javascript_pattern(source: str, flags: str = "") -> tuple[str, str]:
    """Return a pattern of JavaScript as Python's, and a note if its meaning may differ.

    Raises ConversionError if one of the two languages does not take it.
    """
    reader = _Pattern(source, flags)
    converted = reader.read()
    try:
        analyse_pattern(converted)
    except Exception as error:
        raise ConversionError(f"the pattern is not valid in Python: {error}") from None
    return converted, _MAY_DIFFER if reader.may_differ else ""


class _Pattern:
    def __init__(self, source: str, flags: str) -> None:
        self._source, self._flags, self._at = source, flags, 0
        self._ascii = False
        self.may_differ = bool(set(flags) - set("gimsy")) or ("i" in flags and not source.isascii())

    def read(self) -> str:
        parts = []
        while self._at < len(self._source):
            parts.append(self._next())
        start = ("a" if self._ascii else "") + ("i" if "i" in self._flags else "")
        return (f"(?{start})" if start else "") + "".join(parts)

    def _next(self) -> str:
        sign = self._source[self._at]
        if sign == "\\":
            return self._escape(inside=False)
        if sign == "[":
            return self._class()
        if sign == "(":
            return self._group()
        if sign == "{":
            quantifier = _QUANTIFIER.match(self._source, self._at)
            if quantifier is None:
                self._at += 1
                return r"\{"
            return self._quantifier(quantifier[0])
        if sign in "*+?":
            return self._quantifier(sign)
        self._at += 1
        return self._plain(sign)

    def _counts_one(self) -> None:
        """Note that one character is counted: an emoji is two in JavaScript."""
        if self._source[self._at : self._at + 1] not in ("*", "+"):
            self.may_differ = True

    def _plain(self, sign: str) -> str:
        lines = "m" in self._flags
        if sign == ".":
            self._counts_one()
            return r"[\s\S]" if "s" in self._flags else f"[^{_LINE_ENDS}]"
        if sign == "$":
            return f"(?=[{_LINE_ENDS}]|\\Z)" if lines else r"\Z"
        if sign == "^" and lines:
            return f"(?<![^{_LINE_ENDS}])"
        return sign

    def _quantifier(self, text: str) -> str:
        self._at += len(text)
        if self._source[self._at : self._at + 1] == "?":
            self._at += 1
            text += "?"
        if self._source[self._at : self._at + 1] in ("*", "+", "?"):
            raise ConversionError("the pattern is not valid in JavaScript")
        return text

    def _group(self) -> str:
        named = _NAMED.match(self._source, self._at)
        group = _GROUP.match(self._source, self._at)
        if named is not None:
            self._at = named.end()
            return f"(?P<{named[1]}>"
        if group is not None:
            self._at = group.end()
            return group[0]
        if self._source.startswith("(?", self._at):
            raise ConversionError(
                "the pattern is not valid in JavaScript, so every answer fails there"
            )
        self._at += 1
        return "("

    def _escape(self, *, inside: bool) -> str:
        letter = self._source[self._at + 1 : self._at + 2]
        self._at += 2
        if letter in ("S", "W", "D") and not inside:
            self._counts_one()
        if letter in ("s", "S"):
            self._ascii = True
            if inside:
                self.may_differ = self.may_differ or letter == "S"
                return _SPACES if letter == "s" else r"\S"
            return f"[{'^' if letter == 'S' else ''}{_SPACES}]"
        if letter == "k" and (named := re.match(r"<(\w+)>", self._source[self._at :])):
            self._at += named.end()
            return f"(?P={named[1]})"
        if letter == "0":
            return r"\x00"
        if letter and letter in _KNOWN_ESCAPES:
            self._ascii = self._ascii or letter in "dDwWbB"
            if letter == "u" and self._source[self._at : self._at + 1] == "{":
                self.may_differ = True
                return "u"
            return f"\\{letter}"
        if letter.isascii() and letter.isalpha():
            self.may_differ = self.may_differ or letter == "c"
            return letter
        return re.escape(letter)

    def _class(self) -> str:
        everything = r"[\s\S]"
        for whole, meaning in (("[^]", everything), ("[]", "(?!)"), (everything, everything)):
            if self._source.startswith(whole, self._at):
                self._at += len(whole)
                if meaning == everything:
                    self._counts_one()
                return meaning
        start = "[^" if self._source.startswith("[^", self._at) else "["
        self._at += len(start)
        parts = [start]
        while self._at < len(self._source) and self._source[self._at] != "]":
            sign = self._source[self._at]
            if sign == "\\":
                parts.append(self._escape(inside=True))
                continue
            parts.append(f"\\{sign}" if sign in "[&|~" else sign)
            self._at += 1
        self._at += 1
        if start == "[^":
            self._counts_one()
        return f"{''.join(parts)}]"
