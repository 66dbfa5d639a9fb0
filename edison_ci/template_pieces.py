"""How is a template rendered that is nothing but text and variables?

Most are. Such a one needs no template engine at run time: its pieces are joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jinja2 import nodes

from edison_ci.template_runtime import MAX_OUTPUT, MissingValueError, as_text, over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.records import Json


class Pieces(NamedTuple):
    """Text and names of variables in turn, text first."""

    parts: list[str]

    def texts(self, values: Mapping[str, Json]) -> Iterator[str]:
        """Yield the text of each part; raises MissingValueError."""
        for index, part in enumerate(self.parts):
            if index % 2 == 0:
                yield part
            elif part in values:
                yield as_text(values[part])
            else:
                raise MissingValueError(part)


def pieces_of(tree: nodes.Template) -> Pieces | None:
    """Return the pieces of a template, or None if there is more to it."""
    parts = [""]
    for output in tree.body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                if len(parts) % 2 == 0:
                    parts.append(node.data)
                else:
                    parts[-1] += node.data
            elif isinstance(node, nodes.Name):
                parts += [node.name] if len(parts) % 2 else ["", node.name]
            else:
                return None
    return Pieces(parts)


def joined(texts: Iterable[str]) -> str:
    """Return the texts as one, which may not become too long."""
    found: list[str] = []
    size = 0
    for text in texts:
        size += len(text)
        if size > MAX_OUTPUT:
            raise over(MAX_OUTPUT)
        found.append(text)
    return "".join(found)
