"""What is said about a piece of YAML that a shape refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from edison_ci.config.problems import problems_of
from edison_ci.documents.yaml_text import read_yaml

if TYPE_CHECKING:
    from edison_ci.shape import Shape


def said(shape: type[Shape], text: str) -> list[str]:
    """Return `line:column: message (hint)` for each thing wrong, in order; empty if it is right."""
    document = read_yaml(text, "f")
    try:
        shape.model_validate(document.value)
    except ValidationError as error:
        found = sorted(problems_of(error, document), key=lambda problem: problem.where.order)
        return [str(problem).removeprefix("f:") for problem in found]
    return []
