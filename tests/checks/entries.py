"""Checks from a line of YAML, and what is said about a wrong one."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft7Validator
from pydantic import ValidationError

from edison_ci.checks.options import Check, parse_check
from edison_ci.config.experiment import ExperimentFile
from edison_ci.config.problems import problems_of
from edison_ci.config.schema import schema_of
from edison_ci.documents.yaml_text import read_yaml

HEAD = "experiment: x\nobjective: Say something kind to everyone.\nprompts: [prompts/x.md]\n"


def from_yaml(text: str) -> Any:
    return read_yaml(text, "x.yaml").value


def check(line: str) -> Check:
    """Return the check that a line of YAML stands for."""
    return parse_check(from_yaml(line))


def experiment(*lines: str) -> ExperimentFile:
    text = HEAD + "checks:\n" + "".join(f"  - {line}\n" for line in lines)
    return ExperimentFile.model_validate(from_yaml(text))


def said(line: str) -> list[str]:
    """Return what is wrong with a check in an experiment, as `line:column: message (hint)`.

    Line 1, column 1 is where the check starts.
    """
    document = read_yaml(HEAD + "checks:\n" + f"  - {line}\n", "x.yaml")
    try:
        ExperimentFile.model_validate(document.value)
    except ValidationError as error:
        found = []
        for problem in problems_of(error, document):
            line_number, column = problem.where.line or 0, problem.where.column or 0
            hint = f" ({problem.hint})" if problem.hint else ""
            found.append(f"{line_number - 4}:{column - 4}: {problem.message}{hint}")
        return sorted(found)
    return []


_SCHEMA = schema_of("experiment")
_CHECK = Draft7Validator(
    {"allOf": [{"$ref": "#/definitions/Check"}], "definitions": _SCHEMA["definitions"]}
)


def in_schema(line: str) -> bool:
    """Whether the schema accepts a check."""
    return _CHECK.is_valid(from_yaml(line))
