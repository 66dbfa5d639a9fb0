"""Validators of JSON Schemas, which retrieve nothing and assert formats.

The validators of `jsonschema` open what a reference names, a file or a URL, and a schema may be
hostile. A validator made here resolves only references inside the schema and to published drafts;
no other module makes one. The process of `worker_jobs` runs this file by its path, so it imports
nothing of the package.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""The draft of a schema that names none."""


def _draft(schema: Any) -> type[Validator]:
    from jsonschema.validators import (  # 100 ms, and only for projects with schemas
        Draft202012Validator,
        validator_for,
    )

    return validator_for(schema, default=Draft202012Validator)


def validator(schema: Any, *, formats: bool = True) -> Validator:
    """Return a validator that resolves references to the schema and published drafts only."""
    from referencing import Registry  # an empty one, that retrieves nothing

    checker = _format_checker() if formats else None
    return _draft(schema)(schema, registry=Registry(), format_checker=checker)


def is_known_draft(name: str) -> bool:
    """Whether there is a validator for the draft that `$schema` names."""
    draft = str(_draft({"$schema": name}).META_SCHEMA["$schema"])
    return draft.rstrip("#") == name.rstrip("#")


def draft_errors(schema: Any, draft: Any) -> Iterator[ValidationError]:
    """Yield the errors of `schema` by the rules of the draft of the schema `draft`."""
    return validator(_draft(draft).META_SCHEMA, formats=False).iter_errors(schema)


def message_of(error: ValidationError) -> str:
    """Return the message of an error, with its values as JSON writes them: null, not None."""
    message = str(error.message)
    for value in (error.instance, error.validator_value):
        if not isinstance(value, str):
            message = message.replace(repr(value), json.dumps(value, ensure_ascii=False))
    return message


def keywords(schema: Any) -> frozenset[str]:
    """Return the keywords that contain schemas, by the draft of a schema."""
    words = frozenset(_draft(schema).VALIDATORS) | {"definitions"}
    return words | {"$defs"} if words & {"$dynamicRef", "$recursiveRef"} else words


def resolver(schema: Any) -> Callable[[str], Any]:
    """Return a function that resolves references inside a schema; it raises LookupError."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    specification = specification_with(_draft(schema).META_SCHEMA["$schema"], default=DRAFT202012)
    root: Any = Registry().resolver_with_root(specification.create_resource(schema))

    def target(reference: str) -> Any:
        try:
            return root.lookup(reference).contents
        except (Unresolvable, AttributeError, TypeError, ValueError) as error:
            raise LookupError(reference) from error

    return target


_ENCODED = r"%[0-9A-Fa-f]{2}"
_PLAIN = r"A-Za-z0-9\-._~!$&'()*+,;="
_CHARACTER = rf"(?:[{_PLAIN}:@]|{_ENCODED})"
_SEGMENTS = rf"(?:/{_CHARACTER}*+)*+"
_AUTHORITY = (
    rf"(?:(?:[{_PLAIN}:]|{_ENCODED})*@)?(?:\[(?P<ip>[0-9A-Fa-f:.]+)\]"
    rf"|\[v[0-9A-Fa-f]+\.[{_PLAIN}:]+\]|(?:[{_PLAIN}]|{_ENCODED})*+)(?::[0-9]*+)?"
)
_REST = rf"(?:\?(?:{_CHARACTER}|[/?])*+)?(?:#(?:{_CHARACTER}|[/?])*+)?"
_URI = re.compile(
    rf"[A-Za-z][A-Za-z0-9+.\-]*+:(?://{_AUTHORITY}{_SEGMENTS}|/?(?:{_CHARACTER}++{_SEGMENTS})?)"
    rf"{_REST}"
)
_RELATIVE = re.compile(
    rf"(?://{_AUTHORITY}{_SEGMENTS}|/(?:{_CHARACTER}++{_SEGMENTS})?"
    rf"|(?:(?:[{_PLAIN}@]|{_ENCODED})++{_SEGMENTS})?){_REST}"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_DURATION = re.compile(
    r"P(?!\Z)(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)?"
    r"(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?)"
)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+"
_LOCAL = re.compile(rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\[\x20-\x7e])*")')
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?")
_LONGEST_LOCAL, _LONGEST_HOST = 64, 253
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_STEPS = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)")
_DAY_MIN = 24 * 60


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None or match[3] != "60":
        return match is not None
    # A leap second is the last one of a day in UTC.
    minutes = int(match[1]) * 60 + int(match[2])
    if match[4]:
        away = int(match[5]) * 60 + int(match[6])
        minutes += -away if match[4] == "+" else away
    return minutes % _DAY_MIN == _DAY_MIN - 1


def _is_date_time(text: str) -> bool:
    return _is_date(text[:10]) and text[10:11] in ("T", "t") and _is_time(text[11:])


def _is_ipv4(text: str) -> bool:
    return _is_ip(text, ipaddress.IPv4Address)


def _is_ipv6(text: str) -> bool:
    return _is_ip(text, ipaddress.IPv6Address)


def _is_ip(text: str, kind: Callable[[str], Any]) -> bool:
    if not text.isascii() or "%" in text:
        return False
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _is_hostname(text: str) -> bool:
    return len(text) <= _LONGEST_HOST and all(map(_LABEL.fullmatch, text.split(".")))


def _is_email(text: str) -> bool:
    local, at, host = text.rpartition("@")
    if not at or len(local) > _LONGEST_LOCAL or not _LOCAL.fullmatch(local):
        return False
    if host.startswith("[") and host.endswith("]"):
        inner = host[1:-1]
        return _is_ipv6(inner[5:]) if inner.lower().startswith("ipv6:") else _is_ipv4(inner)
    return _is_hostname(host)


def _is_uri(text: str) -> bool:
    return _is_address(_URI.fullmatch(text))


def _is_uri_reference(text: str) -> bool:
    return _is_address(_URI.fullmatch(text) or _RELATIVE.fullmatch(text))


def _is_address(match: re.Match[str] | None) -> bool:
    return match is not None and (match["ip"] is None or _is_ipv6(match["ip"]))


FORMATS: dict[str, Callable[[str], object]] = {
    "date": _is_date,
    "date-time": _is_date_time,
    "duration": _DURATION.fullmatch,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "json-pointer": _POINTER.fullmatch,
    "relative-json-pointer": _STEPS.fullmatch,
    "time": _is_time,
    "uri": _is_uri,
    "uri-reference": _is_uri_reference,
    "uuid": _UUID.fullmatch,
}
"""The formats that are asserted; others are ignored, as the drafts allow."""


@cache
def _format_checker() -> FormatChecker:
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name, fits in FORMATS.items():
        checker.checks(name)(partial(_fits, fits))
    return checker


def _fits(fits: Callable[[str], object], value: object) -> bool:
    """Whether a value has a format, which says nothing of a value that is not a text."""
    return not isinstance(value, str) or bool(fits(value))
