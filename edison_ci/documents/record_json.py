"""Records as JSON documents: a value for each field, under the name of the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

Document = dict[str, Any]


def as_document(value: Any) -> Any:
    """Return a value as JSON: records by their fields, enums by their values, tuples as lists.

    A record with a method `as_json` has the form that this returns. A field such as `in_` is named
    `in`, since a field cannot be named like a keyword.
    """
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int):
        return value
    if own := getattr(value, "as_json", None):
        return as_document(own())
    if names := _field_names(value):
        return {name.removesuffix("_"): as_document(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): as_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Set):
        return [as_document(item) for item in value]
    return str(value)  # a path or a date


def fields_of(record: object, *names: str, **renamed: str) -> Document:
    """Return some attributes of a record as JSON; `document_name="attribute"` renames one."""
    attributes = {name: name for name in names} | renamed
    return {name: as_document(getattr(record, place)) for name, place in attributes.items()}


def _field_names(value: object) -> tuple[str, ...]:
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return getattr(value, "_fields", ())
