"""Reader of the files of an imported configuration.

The files may be hostile: only those below the folder of the configuration, or below a root that
the user names, are read, by the same strict readers as files of a project, and strings that look
like secrets are removed here.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.csv_text import CsvTable
from edison_ci.documents.decoding import decode
from edison_ci.documents.files import WorkingTree, read
from edison_ci.documents.json_text import json_marks, parse_json
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.documents.secrets import redacted, secrets_in
from edison_ci.documents.yaml_text import YamlLimits, read_yaml
from edison_ci.errors import ConfigError, Location, Problem
from edison_ci.features.importing.fidelity import Node, Status

if TYPE_CHECKING:
    from edison_ci.documents.csv_text import CsvRow
    from edison_ci.features.importing.fidelity import Fidelity

MAX_BYTES = 10_000_000
_LIMITS = YamlLimits(nodes=500_000, repeated=5_000_000, merge=True)
_STRUCTURED = (".yaml", ".yml", ".json")
_CODE = (".js", ".cjs", ".mjs", ".ts", ".py", ".rb", ".sh", ".bash", ".pl", ".exe", ".php")
_BINARY = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".webp",
    ".pdf",
    ".mp3",
    ".mp4",
    ".wav",
    ".xlsx",
    ".xls",
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.*?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL
)
_OUTSIDE = "only files in the folder of the configuration are read, or below --root"
_MOST_HOPS = 20
_MOST_FILES = 1_000

CODE_NOTE = (
    "code is not imported and not run; a check can be a Python function of the repository "
    "(python: checks/FILE.py:FUNCTION) with settings.allow_code"
)


class UnusableReference(Exception):
    """A reference that is not followed; the message says why."""


@dataclass(slots=True)
class Source:
    """Reads the files below one folder, each of them once."""

    folder: Path
    fidelity: Fidelity
    display_folder: str = ""
    """The folder as the user wrote it, with a final slash; a prefix of file names."""
    below: str = ""
    """The place of the folder below the root, if files outside of the folder may be read."""
    _documents: dict[str, Document] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _tree: WorkingTree = field(init=False)

    def __post_init__(self) -> None:
        root = self.folder
        for _ in Path(self.below).parts:
            root = root.parent
        self._tree = WorkingTree(root)

    def read_main(self, path: str) -> Node:
        """Return the main file; raises ConfigError if it cannot be read."""
        try:
            return self.document(path)
        except Fault as fault:
            line, column = fault.at
            where = Location(self.display_folder + path, line + 1, column + 1)
            problem = Problem(where, fault.code, fault.message, fault.hint)
            raise ConfigError([problem]) from None

    def document(self, path: str) -> Node:
        """Return a YAML, JSON or JSONL file; raises Fault, or ConfigError for bad keys."""
        if path not in self._documents:
            text = self.text(path)
            name = self.display_folder + path
            if path.endswith(".jsonl"):
                document = _json_lines(text, name)
            elif path.endswith(".json"):
                document = Document(name, parse_json(text), json_marks(text))
            else:
                document = read_yaml(text, name, limits=_LIMITS)
            if document.problems:
                raise ConfigError(document.problems)
            self._documents[path] = document
        document = self._documents[path]
        return Node(document, (), document.value)

    def text(self, path: str) -> str:
        """Return the text of a file without strings that look like secrets; raises Fault."""
        if path not in self._texts:
            if len(self._texts) >= _MOST_FILES:
                raise Fault("size", f"more than {_MOST_FILES:,} files", "import them in parts")
            text = decode(read(self._tree, self._inside(path), max_bytes=MAX_BYTES))
            self._texts[path] = self._without_secrets(text, path)
        return self._texts[path]

    def table(self, path: str) -> tuple[list[str], list[CsvRow]]:
        """Return header and rows of a CSV file; raises Fault."""
        table = CsvTable(self.text(path).splitlines(keepends=True))
        return table.header, list(table.rows())

    def location(self, path: str, line: int, column: int) -> Location:
        """Return the location of a line and column, both counted from 0."""
        return Location(self.display_folder + path, line + 1, column + 1)

    def documents(self) -> list[Document]:
        """Return every structured file that was read."""
        return list(self._documents.values())

    def follow(self, node: Node) -> Node | None:
        """Return the target of a $ref or file:// reference, or the value itself.

        Returns None, and reports it, if the reference is not allowed or has no target.
        """
        for _ in range(_MOST_HOPS):
            try:
                target = self._next(node)
            except UnusableReference as refused:
                self.fidelity.add_unsupported(node, str(refused))
                return None
            except Fault as fault:
                self.fidelity.add_unsupported(node, f"{fault.message} ({fault.hint})")
                return None
            if target is None:
                return node
            self.fidelity.mark_visited(node)
            self.fidelity.mark_referenced(target)
            node = target
        self.fidelity.add_unsupported(node, "the references form a cycle")
        return None

    def _next(self, node: Node) -> Node | None:
        value = node.value
        if isinstance(value, dict) and isinstance(value.get("$ref"), str):
            for child in node.children():
                if child.name == "$ref":
                    self.fidelity.mark_visited(child)
                else:
                    self.fidelity.add_unsupported(child, "a key beside $ref has no effect")
            return self._resolve_pointer(str(value["$ref"]), node)
        if isinstance(value, str) and value.startswith("file://"):
            path = self.path(value)
            if path.endswith(_STRUCTURED):
                return self.document(path)
        return None

    def _resolve_pointer(self, reference: str, node: Node) -> Node:
        file, _, pointer = reference.partition("#")
        root = Node(node.document, (), node.document.value)
        if file:
            root = self.document(self.path(file))
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            listed = isinstance(root.value, list) and name.isdigit()
            children = {child.path[-1]: child for child in root.children()}
            if (target := children.get(int(name) if listed else name)) is None:
                raise UnusableReference(f"$ref {reference!r} has no target")
            root = target
        return root

    def path(self, reference: str) -> str:
        """Return the path of a file:// reference or a plain path; raises UnusableReference."""
        path = reference.removeprefix("file://").removeprefix("./")
        stem = path.partition(":")[0]
        if stem.endswith(_CODE) or path.endswith(_CODE):
            raise UnusableReference(CODE_NOTE)
        if path.partition("#")[0].lower().endswith(_BINARY):
            raise UnusableReference("only text files are read")
        away = self._inside(path).split("/")[0] == ".."
        if path.startswith(("/", "~")) or "://" in path or away:
            raise UnusableReference(f"{reference!r} is not read: {_OUTSIDE}")
        return path

    def _inside(self, path: str) -> str:
        """Return the path below the root, or one that starts with `..` if it is not there."""
        if not self.below and ".." in path.split("/"):
            return ".."
        return posixpath.normpath(posixpath.join(self.below, path)) if self.below else path

    def paths(self, reference: str) -> list[str]:
        """Return the paths that match a reference with wildcards; raises UnusableReference."""
        path = self.path(reference)
        if "*" not in path:
            return [path]
        if "**" in path:
            raise UnusableReference("** is not supported; name the folders one by one")
        paths = [""]
        for part in path.split("/"):
            paths = [
                f"{folder}/{name}".lstrip("/")
                for folder in paths
                for name in (self._tree.names(self._inside(folder)) if "*" in part else [part])
                if fnmatch.fnmatchcase(name, part) and not name.startswith(".")
            ]
        if not paths:
            raise UnusableReference(f"no file matches {path}")
        return paths

    def _without_secrets(self, text: str, path: str) -> str:
        for fault in secrets_in(text):
            where = self.location(path, *fault.at)
            note = f"{fault.message}; it was left out: keep keys in environment variables"
            self.fidelity.add_at(Status.UNSUPPORTED, where, "(secret)", note)
        return redacted(_PRIVATE_KEY.sub(_blank_lines, text))


def _blank_lines(key: re.Match[str]) -> str:
    """Return as many lines as a key had, so that later lines keep their numbers."""
    return "----..." + "\n" * key.group().count("\n")


def _json_lines(text: str, name: str) -> Document:
    values: list[Json] = []
    marks: list[Mark] = []
    for number, line in enumerate(text.split("\n")):
        if not line.strip():
            continue
        try:
            values.append(parse_json(line))
        except Fault as fault:
            fault.at = (number, fault.at[1])
            raise
        marks.append(_shift_mark(json_marks(line), number))
    return Document(name, values, Mark(0, 0, 0, 0, marks))


def _shift_mark(mark: Mark, lines: int) -> Mark:
    children = mark.children
    if isinstance(children, dict):
        children = {key: _shift_mark(child, lines) for key, child in children.items()}
    elif isinstance(children, list):
        children = [_shift_mark(child, lines) for child in children]
    line, key_line = mark.line + lines, mark.key_line + lines
    return Mark(line, mark.column, key_line, mark.key_column, children)


def line_of_text(node: Node, source: Source) -> int:
    """Return 1 for a block scalar, whose text starts on the next line, else 0."""
    path = node.document.file.removeprefix(source.display_folder)
    where = node.document.locate(node.path)
    lines = source.text(path).split("\n")
    first = lines[(where.line or 1) - 1][(where.column or 1) - 1 :]
    return 1 if first.startswith(("|", ">")) else 0
