"""Names that a shell completes: experiments, prompts, models, cases and runs of the project.

A shell asks at every press of a key, so the files are only skimmed: nothing is validated, no
model of a file is imported, and of a dataset only the beginning is read. What cannot be read offers
nothing.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci.documents import files, yaml_text
from edison_ci.store import cells, database, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PATHS = {"experiments": "experiments", "prompts": "prompts", "models": "models.yaml"}
_RESULTS = ".edison/results.db"
_MOST = 200
"""Names that are offered at once."""
_MOST_BYTES = 2_000_000
"""Bytes of a dataset that are searched for ids."""


def names_of(kind: str, folder: Path, beginning: str) -> list[str]:
    """Return the names of a kind that begin so; none if the project cannot be read."""
    try:
        project = _Skimmed(folder)
        names: Iterable[str] = getattr(project, kind)()
        fitting = (name for name in names if name.startswith(beginning) and name.isprintable())
        return list(itertools.islice(dict.fromkeys(fitting), _MOST))
    except Exception:  # a shell that completes a word cannot show an error
        return []


class _Skimmed:
    """The files of a project as far as names need them."""

    def __init__(self, folder: Path) -> None:
        start = folder.resolve()
        root = next(place for place in (start, *start.parents) if (place / "edison.yaml").is_file())
        self._tree = files.WorkingTree(root)
        file = self._mapping("edison.yaml")
        self._paths = {**_PATHS, **(file.get("paths") or {})}
        self._results = root / (file.get("results") or _RESULTS)

    def experiments(self) -> Iterator[str]:
        return (path.stem for path in self._files("experiments", (".yaml", ".yml")))

    def prompts(self) -> Iterator[str]:
        return (path.stem for path in self._files("prompts", (".md",)))

    def models(self) -> Iterator[str]:
        return (name for name in self._mapping(self._paths["models"]) if name != "version")

    def runs(self) -> list[str]:
        with database.open_for_reading(self._results) as connection:
            return runs.run_names(connection)

    def cells(self) -> list[str]:
        """Return the cases of the newest run."""
        with database.open_for_reading(self._results) as connection:
            return cells.case_ids(connection, runs.find_run(connection, "latest").id)

    def cases(self) -> Iterator[str]:
        """Yield the ids in the datasets of all experiments."""
        paths: dict[str, None] = {}
        for experiment in self._files("experiments", (".yaml", ".yml")):
            file = self._mapping(experiment.as_posix())
            if "dataset" in file:
                paths[file["dataset"]] = None
            paths |= {entry["path"]: None for entry in file.get("datasets") or ()}
        for path in paths:
            yield from self._ids(path)

    def _ids(self, path: str) -> Iterator[str]:
        with self._tree.open(path) as stream:
            data = stream.read(_MOST_BYTES + 1)
        whole = len(data) <= _MOST_BYTES
        text = data.decode("utf-8-sig", errors="replace")
        lines = text.splitlines() if whole else text.splitlines()[:-1]  # the last one is cut
        rows: Any
        if path.endswith(".jsonl"):
            rows = (json.loads(line) for line in lines if line.strip())
        elif path.endswith(".csv"):
            rows = csv.DictReader(io.StringIO("\n".join(lines)))
        else:
            rows = yaml_text.read_yaml(data, path).value if whole else ()
        return (str(row["id"]) for row in rows if row.get("id"))

    def _files(self, kind: str, suffixes: tuple[str, ...]) -> Iterator[Path]:
        folder = self._paths[kind]
        paths = (Path(folder, n) for n in self._tree.names(folder) if not n.startswith("."))
        return (path for path in paths if path.suffix in suffixes)

    def _mapping(self, path: str) -> dict[str, Any]:
        value = yaml_text.read_yaml(files.read(self._tree, path), path).value
        return value if isinstance(value, dict) else {}
