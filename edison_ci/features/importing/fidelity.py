"""The fidelity report of an import: the status and the target of each key of the source.

Nothing is dropped silently: a key that no rule has visited in the end is reported as unsupported,
with its line.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents import marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.errors import Location

Path = tuple[str | int, ...]
_LISTED = 3


class Status(StrEnum):
    """How exactly a key was converted."""

    MAPPED = "mapped"
    APPROXIMATED = "approximated"
    UNSUPPORTED = "unsupported"


class Entry(NamedTuple):
    """One key of the source, its location and its target."""

    status: Status
    where: Location
    key: str
    target: str = ""
    """File of the project, and the place in it; empty if it was left out."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document with its path, from which its line is found."""

    document: marks.Document
    path: Path
    value: marks.Json

    @property
    def where(self) -> Location:
        """The location of its key, or of the value itself in a list."""
        return self.document.locate(self.path, key=bool(self.path))

    @property
    def key(self) -> str:
        """Its path as text: tests[0].assert[1].value."""
        parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path]
        return "".join(parts).removeprefix(".") or "(file)"

    def get(self, key: str) -> Node | None:
        """Return the value of a key; None if it is absent or null."""
        if not isinstance(self.value, dict) or self.value.get(key) is None:
            return None
        return Node(self.document, (*self.path, key), self.value[key])

    def children(self) -> Iterator[Node]:
        """Yield the items of a map or a list."""
        if isinstance(self.value, dict):
            for key, value in self.value.items():
                yield Node(self.document, (*self.path, key), value)
        elif isinstance(self.value, list):
            for index, value in enumerate(self.value):
                yield Node(self.document, (*self.path, index), value)

    @property
    def name(self) -> str:
        """The last step of its path."""
        return str(self.path[-1]) if self.path else ""


@dataclass(slots=True)
class Fidelity:
    """The report, and the values of the source that it covers."""

    entries: list[Entry] = field(default_factory=list)
    _recorded: set[Entry] = field(default_factory=set)
    _covered: set[tuple[str, Path]] = field(default_factory=set)
    """Values that an entry covers as a whole."""
    _referenced: set[tuple[str, Path]] = field(default_factory=set)
    """Maps that contain the target of a reference."""
    _targets: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    _visited: set[tuple[str, Path]] = field(default_factory=set)
    """Maps and lists whose items have their own entries."""

    def add_mapped(self, node: Node, target: str, note: str = "") -> None:
        """Record that a key means the same in its new place."""
        self.add(Status.MAPPED, node, target, note)

    def add_approximated(self, node: Node, target: str, note: str) -> None:
        """Record that a key was converted to something that means nearly the same."""
        self.add(Status.APPROXIMATED, node, target, note)

    def add_unsupported(self, node: Node, note: str) -> None:
        """Record that a key was left out, and why."""
        self.add(Status.UNSUPPORTED, node, "", note)

    def add(self, status: Status, node: Node, target: str = "", note: str = "") -> None:
        """Record the status of a key."""
        self._covered.add((node.document.file, node.path))
        self._keep(Entry(status, node.where, node.key, target, marks.shortened(note)))

    def add_at(self, status: Status, where: Location, key: str, note: str) -> None:
        """Record an entry for a place that is not a key, such as a line of a text."""
        self._keep(Entry(status, where, key, "", marks.shortened(note)))

    def record_target(self, node: Node, name: str) -> None:
        """Record the experiment that a test or an assertion is part of."""
        self._targets.setdefault((node.document.file, node.key), {})[name] = None

    def resolve(self, places: Mapping[str, str]) -> None:
        """Replace placeholders in targets by names of files; * is the name of the experiment."""
        everywhere = dict.fromkeys(name for names in self._targets.values() for name in names)
        for index, entry in enumerate(self.entries):
            mark, _, rest = entry.target.partition(" ")
            if mark in places:
                names = self._takers(entry) or everywhere
                targets = [places[mark].replace("*", name) for name in names]
                first = ", ".join(dict.fromkeys(targets[:_LISTED] or [places[mark]]))
                more = " ..." if len(targets) > _LISTED and "*" in places[mark] else ""
                self.entries[index] = entry._replace(target=f"{first}{more} {rest}".rstrip())

    def _takers(self, entry: Entry) -> dict[str, None]:
        """Return the experiments of a key, or of the nearest key around it."""
        key = entry.key
        while key:
            if names := self._targets.get((entry.where.file, key)):
                return names
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return {}

    def replace(self, status: Status, node: Node, target: str, note: str) -> None:
        """Replace what was recorded for a key."""
        place = (node.where, node.key)
        self.entries = [entry for entry in self.entries if (entry.where, entry.key) != place]
        self._recorded -= {entry for entry in self._recorded if (entry.where, entry.key) == place}
        self.add(status, node, target, note)

    def cover(self, node: Node) -> None:
        """Mark a value as covered by the entry of another one."""
        self._covered.add((node.document.file, node.path))

    def is_reported(self, node: Node) -> bool:
        """Whether a value or its items have an entry."""
        place = (node.document.file, node.path)
        return place in self._covered or place in self._visited

    def mark_visited(self, *nodes: Node | None) -> None:
        """Mark values whose items get their own entries."""
        for node in nodes:
            if node is not None:
                self._visited.add((node.document.file, node.path))

    def mark_referenced(self, node: Node) -> None:
        """Mark the maps around a value that a reference leads to."""
        for length in range(len(node.path)):
            self._visited.add((node.document.file, node.path[:length]))
            self._referenced.add((node.document.file, node.path[:length]))

    def report_unvisited(self, document: marks.Document, why: str) -> None:
        """Record the values that no rule has visited as unsupported."""
        root = Node(document, (), document.value)
        if (document.file, ()) not in self._covered:
            self.mark_visited(root)
            self._report_unvisited(root, why)

    def count(self, status: Status) -> int:
        """Return how many keys have this status."""
        return sum(entry.status is status for entry in self.entries)

    def sorted_entries(self) -> list[Entry]:
        """Return the entries in the order of the files."""
        return sorted(self.entries, key=lambda entry: (*entry.where.order, entry.key))

    def _report_unvisited(self, node: Node, why: str) -> None:
        for child in node.children():
            place = (child.document.file, child.path)
            if place in self._covered:
                continue
            if place in self._visited:
                self._report_unvisited(child, why)
            elif (node.document.file, node.path) in self._referenced and node.path:
                self.add_unsupported(child, "no $ref refers to it")
            else:
                self.add_unsupported(child, why)

    def _keep(self, entry: Entry) -> None:
        if entry not in self._recorded:  # a value that is used twice has one entry
            self._recorded.add(entry)
            self.entries.append(entry)
