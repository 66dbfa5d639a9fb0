"""Which tests does a CSV file hold?"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci.documents.marks import Document, Mark
from edison_ci.frozen import dataclass
from edison_ci.importing.fidelity import Node
from edison_ci.importing.grader_texts import KINDS
from edison_ci.importing.text_asserts import CHECKS, NONE_LIKE_IT

if TYPE_CHECKING:
    from edison_ci.documents.csv_text import CsvRow
    from edison_ci.documents.marks import Json
    from edison_ci.importing.source import Source

_TYPES = {*CHECKS, *KINDS, *NONE_LIKE_IT, "moderation", "select-best"}
_ASSERTION = re.compile(
    r"(?P<type>(?:not-)?[a-z][a-z0-9-]*)(?:\((?P<threshold>\d+(?:\.\d+)?)\))?(?::(?P<value>.*))?\Z",
    re.DOTALL,
)
_CODE = {"fn": "javascript", "eval": "javascript", "javascript": "javascript", "python": "python"}
_EXPECTED = re.compile(r"__expected(\d*)\Z")
_CONFIG = re.compile(r"__config:__expected(\d*):(\w+)\Z")


@dataclass(slots=True)
class RowTest:
    """A row of a table as a test."""

    node: Node
    """The row; its value is the map of plain columns."""
    asserts: list[Node] = field(default_factory=list)
    description: str = ""
    prefix: str = ""
    suffix: str = ""
    threshold: float | None = None
    metadata: dict[str, Json] = field(default_factory=dict)


def read_table(source: Source, path: str) -> list[RowTest]:
    """Return the rows of a CSV file as tests; a row of a wrong width is reported."""
    header, rows = source.table(path)
    marks = [_mark(row, header) for row in rows]
    value: list[Json] = [dict(zip(header, row.fields, strict=False)) for row in rows]
    document = Document(source.shown + path, value, Mark(0, 0, 0, 0, marks))
    found = []
    for index, row in enumerate(rows):
        node = Node(document, (index,), value[index])
        if row.fault is not None:
            source.fidelity.unsupported(node, f"{row.fault.message} ({row.fault.hint})")
        else:
            found.append(_test(node, source))
    return found


def _mark(row: CsvRow, header: list[str]) -> Mark:
    children = {}
    for index, name in enumerate(header):
        line, column = row.place(index)
        children[name] = Mark(line, column, line, column, None)
    return Mark(row.line, 0, row.line, 0, children)


def _test(node: Node, source: Source) -> RowTest:
    assert isinstance(node.value, dict)
    plain = {k: v for k, v in node.value.items() if not k.startswith("__")}
    test = RowTest(Node(node.document, node.path, dict(plain)))
    config = {
        (found[1], found[2]): str(cell)
        for name, cell in node.value.items()
        if (found := _CONFIG.match(name)) and str(cell).strip()
    }
    for name, cell in node.value.items():
        text = str(cell)
        if name.startswith("__") and text.strip() and not _CONFIG.match(name):
            _special(test, Node(node.document, (*node.path, name), text), config, source)
    return test


def _special(test: RowTest, cell: Node, config: dict[tuple[str, str], str], source: Source) -> None:
    name, text = cell.name, str(cell.value)
    expected = _EXPECTED.match(name)
    if expected is not None:
        assertion = assertion_of(text)
        for (number, key), value in config.items():
            if number in ("", expected[1]) and key in ("threshold", "weight", "metric"):
                assertion[key] = value
        metric = test.node.document.value
        row = metric[int(cell.path[0])] if isinstance(metric, list) else {}
        if isinstance(row, dict) and row.get("__metric"):
            assertion.setdefault("metric", row["__metric"])
        test.asserts.append(Node(cell.document, cell.path, assertion))
    elif name in ("__description", "__prefix", "__suffix"):
        setattr(test, name.strip("_"), text)
        target = "prompts" if name != "__description" else "@datasets"
        source.fidelity.mapped(cell, target)
    elif name.startswith("__metadata:"):
        key = name.removeprefix("__metadata:")
        listed = key.endswith("[]")
        pieces = [p.replace("\\,", ",").strip() for p in re.split(r"(?<!\\),", text)]
        test.metadata[key.removesuffix("[]")] = [*pieces] if listed else text
        source.fidelity.mapped(cell, "@datasets metadata")
    elif name == "__threshold" and re.fullmatch(r"\d+(?:\.\d+)?", text.strip()):
        test.threshold = float(text)
        source.fidelity.seen(cell)
    elif name == "__metric":
        source.fidelity.mapped(cell, "@experiments checks")
    else:
        source.fidelity.unsupported(cell, "no such column is known")


def assertion_of(text: str) -> dict[str, Json]:
    """Return what a cell of __expected says as an assertion; a plain text means equals."""
    text = text.strip()
    start = text.partition(":")[0]
    if start in _CODE or text.startswith("file://"):
        return {"type": _CODE.get(start, "javascript"), "value": text.partition(":")[2]}
    if start == "grade":
        return {"type": "llm-rubric", "value": text.partition(":")[2].strip()}
    found = _ASSERTION.match(text)
    if found is None or found["type"].removeprefix("not-") not in _TYPES:
        return {"type": "equals", "value": text}
    assertion: dict[str, Json] = {"type": found["type"]}
    if found["value"] is not None and found["value"].strip():
        assertion["value"] = found["value"].strip()
    if found["threshold"] is not None:
        assertion["threshold"] = float(found["threshold"])
    return assertion
