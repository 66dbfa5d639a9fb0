"""Cut GitHub's OpenAPI descriptions down to the paths we use; `make node` runs this once.

    python -m tests.features.github.trim_openapi GENERATED TARGET

reads `NAME.json` of each of NAMES from GENERATED (13 MB each) and writes TARGET/NAME.json, in which
schemas are plain JSON Schema: `nullable` becomes a type.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAMES = ("api.github.com", "ghes-3.17")
"""GitHub itself, and the oldest GitHub Enterprise Server that is described."""

_REPO = "/repos/{owner}/{repo}"
PATHS = tuple(
    _REPO + path
    for path in (
        "/issues/{issue_number}/comments",
        "/issues/comments/{comment_id}",
        "/pulls",
        "/pulls/{pull_number}",
        "/pulls/{pull_number}/files",
        "/pulls/{pull_number}/merge",
        "/pulls/{pull_number}/reviews",
        "/pulls/{pull_number}/comments",
        "/git/blobs",
        "/git/blobs/{file_sha}",
        "/git/trees",
        "/git/commits",
        "/git/commits/{commit_sha}",
        "/git/refs",
        "/git/refs/{ref}",
        "/git/ref/{ref}",
        "/git/matching-refs/{ref}",
        "/contents/{path}",
        "/actions/runs/{run_id}/approvals",
        "/issues",
        "/issues/{issue_number}",
        "",
        "/actions/workflows/{workflow_id}/dispatches",
        "/rules/branches/{branch}",
        "/branches/{branch}/protection",
    )
)
SIGN_IN_PATHS = ("/user", "/applications/{client_id}/token")
"""Those by which a person signs in."""


def trimmed(description: dict[str, Any]) -> dict[str, Any]:
    """Return a description with our paths and what they refer to."""
    kept: dict[str, Any] = {"components": {}}
    kept["paths"] = {path: description["paths"][path] for path in PATHS + SIGN_IN_PATHS}
    waiting = list(_references(kept["paths"]))
    while waiting:
        _, _, group, name = waiting.pop().split("/")
        part = kept["components"].setdefault(group, {})
        if name not in part:
            part[name] = description["components"][group][name]
            waiting += _references(part[name])
    result = _plain(kept)
    assert isinstance(result, dict)
    return result


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [reference for item in value for reference in _references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [reference for item in value.values() for reference in _references(item)]


def _plain(value: Any) -> Any:
    """Return a schema in which null is a type like others."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {key: _plain(item) for key, item in value.items() if key != "nullable"}
    if value.get("nullable") is not True:
        return schema
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def main(generated: Path, target: Path) -> None:
    """Write the trimmed descriptions."""
    target.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        description = json.loads((generated / f"{name}.json").read_bytes())
        (target / f"{name}.json").write_text(json.dumps(trimmed(description)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
