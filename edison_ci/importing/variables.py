"""Variables of a test, and the cases that their values make."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.marks import Fault
from edison_ci.importing.fidelity import Node
from edison_ci.importing.source import Refused
from edison_ci.importing.templates import convert, filled_text, safe_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.importing.fidelity import Fidelity
    from edison_ci.importing.source import Source

MOST_CASES = 100_000
_PASSES = 3
"""Variables may use variables that use variables."""


@dataclass(frozen=True, slots=True)
class Variables:
    """Reads the variables of tests."""

    source: Source

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node | None) -> dict[str, list[Json]]:
        """Return the values of each variable; a list stands for one case each."""
        if node is None:
            return {}
        if isinstance(node.value, str) and not node.value.startswith("file://"):
            node = Node(node.document, node.path, f"file://{node.value}")
        found = self.source.follow(node)
        if found is None:
            return {}
        if not isinstance(found.value, dict):
            self._fidelity.unsupported(found, "vars is a map of names to values")
            return {}
        values: dict[str, list[Json]] = {}
        renamed = []
        for child in found.children():
            listed = self._values(child)
            if listed is not None:
                name = name_of(child.name)
                values[name] = listed
                if name != child.name:
                    renamed.append(f"{child.name} is called {name} here")
        self._fidelity.mapped(found, "@datasets", "; ".join(renamed))
        return values

    def _values(self, child: Node) -> list[Json] | None:
        value = child.value
        try:
            if isinstance(value, str) and value.startswith("file://"):
                return self._from_files(value)
        except Refused as refused:
            self._fidelity.unsupported(child, str(refused))
            return None
        except Fault as fault:
            self._fidelity.unsupported(child, f"{fault.message} ({fault.hint})")
            return None
        listed = value if isinstance(value, list) and value else [value]
        return ["" if each is None else each for each in listed]

    def _from_files(self, reference: str) -> list[Json]:
        found: list[Json] = []
        for path in self.source.paths(reference):
            if path.endswith((".json", ".yaml", ".yml")):
                document = self.source.document(path)
                self._fidelity.cover(document)
                value = document.value
                found += value if isinstance(value, list) else [value]
            else:
                found.append(self.source.text(path).rstrip("\n"))
        return found


def name_of(name: str) -> str:
    """Return the name that a variable has here."""
    odd = not name.isascii() or not name.isidentifier() or name.startswith("_")
    return safe_name(name) if odd or safe_name(name) != name else name


def combinations(
    values: Mapping[str, list[Json]], *, expand: bool = True
) -> Iterator[dict[str, Json]]:
    """Yield the variables of each case: every value of every list with every other."""
    lists: list[list[Json]] = [
        listed if expand else [listed[0] if len(listed) == 1 else listed]
        for listed in values.values()
    ]
    for chosen in itertools.product(*lists):
        yield _filled(dict(zip(values, chosen, strict=True)))


def _filled(values: dict[str, Json]) -> dict[str, Json]:
    """Return variables in which those that use others are filled in."""
    for _ in range(_PASSES):
        templates = {
            name: converted
            for name, value in values.items()
            if isinstance(value, str) and "{{" in value
            if not (converted := convert(value)).faults and converted.variables
        }
        changed = {}
        for name, template in templates.items():
            if template.variables & values.keys() - {name}:
                changed[name] = rendered(template.text, values)
        if not changed:
            break
        values = {**values, **changed}
    return values


def rendered(text: str, values: Mapping[str, Json]) -> str:
    """Return a template filled in, or as it is if it is none of ours."""
    converted = convert(text)
    return text if converted.faults else filled_text(converted, values)
