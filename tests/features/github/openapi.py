"""Is a request one that GitHub's own OpenAPI description allows, and is a reply one it promises?

Stricter than the description where it is loose: every query parameter and every key of a body must
be a described one, because what GitHub does not know it ignores.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonschema
import referencing
from referencing.jsonschema import DRAFT4

from tests.conftest import ROOT

FOLDER = ROOT / ".tools" / "node" / "openapi"
NOT_DESCRIBED = {401, 403, 404, 410, 422, 429, 500, 502, 503}
"""What any path may answer, though the description does not say so everywhere."""


class ContractError(AssertionError):
    """Something is not as GitHub describes it."""


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    about: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.path}"


class Description:
    """A trimmed description."""

    def __init__(self, name: str) -> None:
        file = FOLDER / f"{name}.json"
        assert file.exists(), "run `make node` first"
        self._document = json.loads(file.read_bytes())
        resource = DRAFT4.create_resource(self._document)
        self._registry: Any = referencing.Registry().with_resource("urn:github", resource)
        self._patterns = [
            (re.compile(re.sub(r"\\\{(path|ref)\\\}", "(.+)", _escaped(path))), path)
            for path in self._document["paths"]
        ]

    # --- looking up -------------------------------------------------------------------------------

    def operation(self, method: str, path: str) -> Operation:
        """Return what a request asks for."""
        for pattern, template in self._patterns:
            if pattern.fullmatch(path) and method.lower() in self._document["paths"][template]:
                about = self._document["paths"][template][method.lower()]
                return Operation(method.lower(), template, about)
        raise ContractError(f"GitHub has no {method} {path}")

    def example(self, method: str, template: str, status: int) -> Any:
        """Return a reply that the description shows, to be filled in."""
        about = self._document["paths"][template][method.lower()]["responses"][str(status)]
        first = next(iter(about["content"]["application/json"]["examples"].values()))
        return copy.deepcopy(self._resolved(first)["value"])

    def _resolved(self, value: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in value:
            found: Any = self._document
            for key in value["$ref"].split("/")[1:]:
                found = found[key]
            value = found
        return value

    # --- checking ---------------------------------------------------------------------------------

    def check_request(self, method: str, url: str, body: Any, *, app: bool = True) -> Operation:
        """Raise unless the description allows the request; `app`: with the token of an app."""
        parts = urlsplit(url)
        operation = self.operation(method, unquote(parts.path))
        described = [self._resolved(each) for each in operation.about.get("parameters", [])]
        queries = {each["name"]: each["schema"] for each in described if each["in"] == "query"}
        for name, value in parse_qsl(parts.query, strict_parsing=bool(parts.query)):
            if name not in queries:
                raise ContractError(f"{operation} takes no parameter {name!r}")
            number = queries[name].get("type") == "integer"
            self._check(queries[name], int(value) if number else value, f"{operation} {name}")
        self._check_body(operation, body)
        if app and not operation.about["x-github"]["enabledForGitHubApps"]:
            raise ContractError(f"{operation} is refused to the token of a workflow")
        return operation

    def _check_body(self, operation: Operation, body: Any) -> None:
        wanted = operation.about.get("requestBody")
        if wanted is None or body is None:
            if (wanted or {}).get("required") or body is not None:
                raise ContractError(f"{operation}: a body is missing, or one too many")
            return
        schema = wanted["content"]["application/json"]["schema"]
        unknown = set(body) - set(schema["properties"])
        if unknown:
            raise ContractError(f"{operation} takes no {sorted(unknown)}")
        self._check(schema, body, str(operation))

    def check_reply(self, operation: Operation, status: int, body: Any) -> None:
        """Raise unless the description promises the reply; `body` None means there is none."""
        promised = operation.about["responses"].get(str(status))
        if promised is None:
            if status not in NOT_DESCRIBED:
                raise ContractError(f"{operation} never answers {status}")
            return
        content = self._resolved(promised).get("content", {}).get("application/json")
        if content is None:
            if body is not None:
                raise ContractError(f"{operation} answers {status} without a body")
            return
        self._check(content["schema"], body, f"{operation} {status}")

    def _check(self, schema: dict[str, Any], value: Any, what: str) -> None:
        # The document itself is the base of the references in a schema that is part of it.
        whole = {**self._document, "allOf": [schema]}
        resource = DRAFT4.create_resource(whole)
        registry = self._registry.with_resource("urn:check", resource)
        validator = jsonschema.Draft4Validator({"$ref": "urn:check"}, registry=registry)
        errors = sorted(validator.iter_errors(value), key=lambda error: len(error.path))
        if errors:
            where = "/".join(map(str, errors[0].absolute_path))
            raise ContractError(f"{what}: {where}: {errors[0].message[:300]}")


def _escaped(path: str) -> str:
    return re.sub(r"\\\{(?!path\\\}|ref\\\})\w+\\\}", "([^/]+)", re.escape(path))


@cache
def description(name: str = "api.github.com") -> Description:
    """Return a description, read once."""
    return Description(name)
