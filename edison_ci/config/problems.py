"""Validation errors of pydantic as problems with messages and hints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.marks import shortened
from edison_ci.documents.secrets import brief
from edison_ci.errors import Problem
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import ValidationError

    from edison_ci.documents.marks import Document

Loc = tuple[str | int, ...]
MOST_PROBLEMS = 100


class Message(NamedTuple):
    """Code, text and hint of a problem."""

    code: str
    message: str
    hint: str = ""


def problems_of(error: ValidationError, document: Document, below: Loc = ()) -> list[Problem]:
    """Return the problems of a validation error with their lines, at most a hundred."""
    problems: list[Problem] = []
    for item in error.errors(include_url=False):
        if len(problems) == MOST_PROBLEMS:
            message = f"more than {MOST_PROBLEMS} problems here; the others are not shown"
            problems.append(document.problem(below, "more", message, "fix the first ones"))
            break
        raw, loc = _unwrap(item)
        path, missing = _path(document.value, (*below, *loc))
        if raw["type"] == "too_short" and _long_enough(document.value, path, raw):
            continue  # an item is invalid; the list is long enough with it
        item_message = _message(raw, path, missing)
        on_key = item_message.code == "unknown-key"
        where = document.locate(path, key=on_key)
        problems.append(
            Problem(
                where,
                item_message.code,
                shortened(item_message.message),
                shortened(item_message.hint),
            )
        )
    return problems


def first_message(error: ValidationError) -> Message:
    """Return the first error of a value that is not in a file."""
    item, loc = _unwrap(error.errors(include_url=False)[0])
    code, message, hint = _message(item, loc, "")
    return Message(code, shortened(message), shortened(hint))


def _unwrap(item: Any) -> tuple[dict[str, Any], Loc]:
    """Return the innermost error and its path."""
    loc: Loc = tuple(item["loc"])
    while item["type"] == "nested":
        item = item["ctx"]["original"]
        loc = (*loc, *item["loc"])
    at = item.get("ctx", {}).get("at", ())
    return dict(item), (*loc, *at)


def _path(value: Any, loc: Loc) -> tuple[Loc, str]:
    """Return the part of a location that exists in the file, and the first key that does not."""
    path: list[str | int] = []
    step: Any
    for step in loc:
        if (isinstance(value, dict) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(value)
        ):
            value = value[step]
        elif isinstance(step, str) and isinstance(value, dict):
            return tuple(path), step
        else:
            continue  # inside a shorthand, such as a text instead of a map
        path.append(step)
    return tuple(path), ""


def _long_enough(value: Any, path: Any, item: dict[str, Any]) -> bool:
    for step in path:
        value = value[step]
    return isinstance(value, list) and len(value) >= int(item["ctx"]["min_length"])


def _message(item: dict[str, Any], path: Loc, missing: str) -> Message:
    kind = str(item["type"])
    context = item.get("ctx", {})
    if "text" in context and "hint" in context:
        hint = context["hint"]
        return Message(kind, context["text"], hint() if callable(hint) else hint)
    name = _name(path)
    if kind == "missing":
        if not (missing or path):
            return Message("missing", "the file is empty", "fill it, or remove it")
        key = missing or name
        lacking = f"key {missing!r} is missing" if missing else f"{name} is missing"
        return Message("missing", lacking, f"add {key}: ...")
    say = _MESSAGES.get(kind)
    if say is not None:
        value = item.get("input")
        return say(name, brief(value), {**context, "given": value})
    code, message = kind.replace("_", "-"), f"{name}: {item['msg']}"
    return Message(code, message, "see: edison admin schema")


def _name(path: Loc) -> str:
    """Return the name of the value at a path."""
    if not path:
        return "the file"
    last = path[-1]
    if isinstance(last, str):
        return last
    parent = path[-2] if len(path) > 1 else "the list"
    return f"entry {last + 1} of {parent}"


def _number(value: float) -> str:
    whole = isinstance(value, int) or float(value).is_integer()
    return f"{int(value):,}" if whole else f"{value:g}"


def _bound(word: str, key: str) -> Callable[[str, str, dict[str, Any]], Message]:
    def say(name: str, value: str, context: dict[str, Any]) -> Message:
        return Message("range", f"{name} is {value}; {word} {_number(context[key])}")

    return say


def _length(word: str, key: str, what: str) -> Callable[[str, str, dict[str, Any]], Message]:
    def say(name: str, _value: str, context: dict[str, Any]) -> Message:
        actual = context.get("actual_length")
        if actual is None and isinstance(context["given"], str):
            actual = len(context["given"])
        has = name if actual is None else f"{name} has {_counted(actual, what)}"
        return Message("length", f"{has}; {word} {context[key]:,}")

    return say


def _counted(number: int, what: str) -> str:
    if number == 1:
        what = "entry" if what == "entries" else what.removesuffix("s")
    return f"{number:,} {what}"


def _type(expected: str, hint: str = "") -> Callable[[str, str, dict[str, Any]], Message]:
    def say(name: str, value: str, context: dict[str, Any]) -> Message:
        if context["given"] is None:
            return Message("no-value", f"{name} has no value", hint or f"it needs {expected}")
        advice = hint
        if not hint and expected == "a text" and not value.startswith(("{", "[", "'")):
            advice = "quote it"
        if expected.startswith(("a number", "a whole")) and _is_quoted_number(context["given"]):
            advice = "write it without quotes"
        return Message("type", f"{name} is {value}, not {expected}", advice)

    return say


def _is_quoted_number(value: Any) -> bool:
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def _literal(name: str, value: str, context: dict[str, Any]) -> Message:
    allowed = [part.strip("'") for part in _listed(str(context["expected"]))]
    if context["given"] is None:
        return Message("no-value", f"{name} has no value", f"allowed: {', '.join(allowed)}")
    return Message("value", f"{name} is {value}", _near(value.strip("'"), allowed))


def _near(value: str, allowed: list[str]) -> str:
    hint = did_you_mean(value, allowed)
    return hint if hint.startswith("did") else f"allowed: {', '.join(allowed)}"


def _listed(expected: str) -> Iterator[str]:
    yield from expected.replace(" or ", ", ").split(", ")


def _pattern(name: str, value: str, context: dict[str, Any]) -> Message:
    return Message("pattern", f"{name} is {value}; allowed is {context['pattern']}")


_MESSAGES: dict[str, Callable[[str, str, dict[str, Any]], Message]] = {
    "greater_than_equal": _bound("at least", "ge"),
    "less_than_equal": _bound("at most", "le"),
    "greater_than": _bound("must be more than", "gt"),
    "less_than": _bound("must be less than", "lt"),
    "string_too_short": _length("at least", "min_length", "characters"),
    "string_too_long": _length("at most", "max_length", "characters"),
    "too_short": _length("at least", "min_length", "entries"),
    "too_long": _length("at most", "max_length", "entries"),
    "string_type": _type("a text"),
    "int_type": _type("a whole number"),
    "int_from_float": _type("a whole number"),
    "float_type": _type("a number"),
    "bool_type": _type("true or false"),
    "tuple_type": _type("a list", "write [a, b]"),
    "list_type": _type("a list", "write [a, b]"),
    "dict_type": _type("a map", "write key: value"),
    "model_type": _type("a map", "write key: value"),
    "model_attributes_type": _type("a map", "write key: value"),
    "finite_number": _type("a number"),
    "literal_error": _literal,
    "string_pattern_mismatch": _pattern,
}
