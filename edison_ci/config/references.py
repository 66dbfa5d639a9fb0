"""How does a rule about several files find things and say what is wrong?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.documents.marks import Fault
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.config.models import Model
    from edison_ci.config.project import ProjectFile
    from edison_ci.config.project_files import ProjectFiles
    from edison_ci.config.schemas_of_users import SchemaFault
    from edison_ci.documents.marks import Document

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class References:
    """The files, their header and the models; problems go where all the others are."""

    files: ProjectFiles
    header: ProjectFile
    models: Mapping[str, Model]

    def add(self, document: Document, path: Path, code: str, message: str, hint: str = "") -> None:
        """Report a problem at a place of a file."""
        self.files.problems.append(document.problem(path, code, message, hint))

    def warn(self, document: Document, path: Path, code: str, message: str, hint: str) -> None:
        """Report something that is allowed but hardly meant."""
        self.files.problems.append(document.warning(path, code, message, hint))

    def unknown_model(self, document: Document, path: Path, name: str) -> None:
        """Report a model that is not in the registry, with the nearest that is."""
        registry = self.header.paths.models
        entry = self.files.documents.get(registry)
        entries = entry.value if entry is not None and isinstance(entry.value, dict) else {}
        if name in entries and name != "version":
            return  # it is there and has problems of its own
        hint = did_you_mean(name, self.models, label=f"{registry} has")
        hint = hint or f"add it to {registry}"
        self.add(document, path, "unknown-model", f"unknown model {name!r}", hint)

    def missing_file(
        self, document: Document, path: Path, file: str, folder: str, suffix: str
    ) -> None:
        """Report a file that is not there, with the nearest that is."""
        there = self.files.in_folder(folder, (suffix,))
        hint = did_you_mean(file, there, label="there are") or f"write it, or see {folder}/"
        self.add(document, path, "not-found", f"{file} does not exist", hint)

    def in_json_file(self, path: str, faults: Iterable[SchemaFault]) -> None:
        """Report what is wrong inside a JSON file that another file names."""
        listed = list(faults)
        if not listed:
            return
        try:
            document = read_json(read(self.files.tree, path), path)
        except Fault:
            return  # reported where the file is named
        for fault in listed:
            self.add(document, fault.path, fault.code, fault.message, fault.hint)
