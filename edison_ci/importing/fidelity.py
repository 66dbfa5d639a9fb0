"""The report of an import: what became of each key.

Nothing is dropped in silence: whatever no rule has looked at when the walk is over is reported as
unsupported, with its line.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.marks import Document, Json, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.errors import Location

Path = tuple[str | int, ...]
_LISTED = 3


class Status(StrEnum):
    """How well a key could be taken over."""

    MAPPED = "mapped"
    APPROXIMATED = "approximated"
    UNSUPPORTED = "unsupported"


class Entry(NamedTuple):
    """One key of the source, where it stands, and where it went."""

    status: Status
    where: Location
    key: str
    target: str = ""
    """File, and place in it, that holds it now; empty for what was left out."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document and the way back to its line."""

    document: Document
    path: Path
    value: Json

    @property
    def where(self) -> Location:
        """Where its key stands, or the value itself in a list."""
        return self.document.locate(self.path, key=bool(self.path))

    @property
    def key(self) -> str:
        """Its path, as one would write it: tests[0].assert[1].value."""
        parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path]
        return "".join(parts).removeprefix(".") or "(file)"

    def get(self, key: str) -> Node | None:
        """Return the value of a key; None if it is absent or null."""
        if not isinstance(self.value, dict) or self.value.get(key) is None:
            return None
        return Node(self.document, (*self.path, key), self.value[key])

    def children(self) -> Iterator[Node]:
        """Yield what a map or a list contains."""
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
    """The report, and which parts of the source it covers."""

    entries: list[Entry] = field(default_factory=list)
    _told: set[Entry] = field(default_factory=set)
    _covered: set[tuple[str, Path]] = field(default_factory=set)
    """Whole values that an entry speaks of."""
    _reached: set[tuple[str, Path]] = field(default_factory=set)
    """Maps that references lead into."""
    _went: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    _seen: set[tuple[str, Path]] = field(default_factory=set)
    """Maps and lists whose parts have entries of their own."""

    def mapped(self, node: Node, target: str, note: str = "") -> None:
        """Say that a key means the same in its new place."""
        self._add(Status.MAPPED, node, target, note)

    def approximated(self, node: Node, target: str, note: str) -> None:
        """Say that a key went somewhere where it means nearly the same."""
        self._add(Status.APPROXIMATED, node, target, note)

    def unsupported(self, node: Node, note: str) -> None:
        """Say that a key was left out, and why."""
        self._add(Status.UNSUPPORTED, node, "", note)

    def say(self, status: Status, node: Node, target: str = "", note: str = "") -> None:
        """Say what became of a key."""
        self._add(status, node, target, note)

    def at(self, status: Status, where: Location, key: str, note: str) -> None:
        """Say something of a place that is no key: a line of a text."""
        self._keep(Entry(status, where, key, "", shortened(note)))

    def went(self, node: Node, name: str) -> None:
        """Note which experiment has taken a test or an assertion."""
        self._went.setdefault((node.document.file, node.key), {})[name] = None

    def resolve(self, places: Mapping[str, str]) -> None:
        """Put the names of files where targets have marks for them; * is the experiment's name."""
        everywhere = dict.fromkeys(name for names in self._went.values() for name in names)
        for index, entry in enumerate(self.entries):
            mark, _, rest = entry.target.partition(" ")
            if mark in places:
                names = self._takers(entry) or everywhere
                shown = [places[mark].replace("*", name) for name in names]
                first = ", ".join(dict.fromkeys(shown[:_LISTED] or [places[mark]]))
                more = " ..." if len(shown) > _LISTED and "*" in places[mark] else ""
                self.entries[index] = entry._replace(target=f"{first}{more} {rest}".rstrip())

    def _takers(self, entry: Entry) -> dict[str, None]:
        """Return the experiments that took a key, or the nearest one it lies in."""
        key = entry.key
        while key:
            if names := self._went.get((entry.where.file, key)):
                return names
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return {}

    def again(self, status: Status, node: Node, target: str, note: str) -> None:
        """Say something else of a key than before."""
        place = (node.where, node.key)
        self.entries = [entry for entry in self.entries if (entry.where, entry.key) != place]
        self._told -= {entry for entry in self._told if (entry.where, entry.key) == place}
        self._add(status, node, target, note)

    def cover(self, node: Node) -> None:
        """Note that a value is part of another one, of which something is said."""
        self._covered.add((node.document.file, node.path))

    def is_told(self, node: Node) -> bool:
        """Whether something was said of a value or of its parts."""
        place = (node.document.file, node.path)
        return place in self._covered or place in self._seen

    def seen(self, *nodes: Node | None) -> None:
        """Note that the parts of a value are told one by one."""
        for node in nodes:
            if node is not None:
                self._seen.add((node.document.file, node.path))

    def reached(self, node: Node) -> None:
        """Note that a value is used from elsewhere: what it lies in is no mystery."""
        for length in range(len(node.path)):
            self._seen.add((node.document.file, node.path[:length]))
            self._reached.add((node.document.file, node.path[:length]))

    def leftovers(self, document: Document, why: str) -> None:
        """Report what nobody has looked at."""
        root = Node(document, (), document.value)
        if (document.file, ()) not in self._covered:
            self.seen(root)
            self._leftovers(root, why)

    def count(self, status: Status) -> int:
        """Return how many keys have this status."""
        return sum(entry.status is status for entry in self.entries)

    def ordered(self) -> list[Entry]:
        """Return the entries as they stand in the files."""
        return sorted(self.entries, key=lambda entry: (*entry.where.order, entry.key))

    def _leftovers(self, node: Node, why: str) -> None:
        for child in node.children():
            place = (child.document.file, child.path)
            if place in self._covered:
                continue
            if place in self._seen:
                self._leftovers(child, why)
            elif (node.document.file, node.path) in self._reached and node.path:
                self.unsupported(child, "no $ref leads to it")
            else:
                self.unsupported(child, why)

    def _add(self, status: Status, node: Node, target: str, note: str) -> None:
        self._covered.add((node.document.file, node.path))
        self._keep(Entry(status, node.where, node.key, target, shortened(note)))

    def _keep(self, entry: Entry) -> None:
        if entry not in self._told:  # a value that is used twice is told once
            self._told.add(entry)
            self.entries.append(entry)
