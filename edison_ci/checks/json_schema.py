"""The only place that makes validators of JSON Schemas.

The validators of `jsonschema` open what a reference names: a file of this machine, or an address.
A schema comes from whoever wrote the files, so a validator made here retrieves nothing: what is
neither in the schema itself nor a published draft does not resolve. The process of `worker_jobs`
runs this file as well, by its path, so it imports nothing of the package.
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
    """Return a validator that knows the schema, the published drafts and nothing else."""
    from referencing import Registry  # an empty one, that retrieves nothing

    return _draft(schema)(schema, registry=Registry())


def is_known_draft(name: str) -> bool:
    """Whether `$schema` names a draft that there is a validator for."""
    found = str(_draft({"$schema": name}).META_SCHEMA["$schema"])
    return found.rstrip("#") == name.rstrip("#")


def draft_errors(schema: Any, draft: Any) -> Iterator[ValidationError]:
    """Yield where `schema` breaks the rules of the draft that `draft`, a schema, is written in."""
    return validator(_draft(draft).META_SCHEMA).iter_errors(schema)


def keywords(schema: Any) -> frozenset[str]:
    """Return the keywords below which the rules of a schema's draft look for schemas."""
    known = frozenset(_draft(schema).VALIDATORS) | {"definitions"}
    return known | {"$defs"} if known & {"$dynamicRef", "$recursiveRef"} else known


def resolver(schema: Any) -> Callable[[str], Any]:
    """Return what finds the target of a reference inside a schema; it raises LookupError."""
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
