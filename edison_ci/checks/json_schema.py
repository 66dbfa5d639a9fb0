"""Validators of JSON Schemas, which retrieve nothing.

The validators of `jsonschema` open what a reference names, a file or a URL, and a schema may be
hostile. A validator made here resolves only references inside the schema and to published drafts;
no other module makes one. The process of `worker_jobs` runs this file by its path, so it imports
nothing of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def validator(schema: Any) -> Validator:
    """Return a validator that resolves references to the schema and published drafts only."""
    from referencing import Registry  # an empty one, that retrieves nothing

    return _draft(schema)(schema, registry=Registry())


def is_known_draft(name: str) -> bool:
    """Whether there is a validator for the draft that `$schema` names."""
    found = str(_draft({"$schema": name}).META_SCHEMA["$schema"])
    return found.rstrip("#") == name.rstrip("#")


def draft_errors(schema: Any, draft: Any) -> Iterator[ValidationError]:
    """Yield the errors of `schema` by the rules of the draft of the schema `draft`."""
    return validator(_draft(draft).META_SCHEMA).iter_errors(schema)


def keywords(schema: Any) -> frozenset[str]:
    """Return the keywords that contain schemas, by the draft of a schema."""
    known = frozenset(_draft(schema).VALIDATORS) | {"definitions"}
    return known | {"$defs"} if known & {"$dynamicRef", "$recursiveRef"} else known


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
