"""What if a dataset is edited while its run goes on?

Everything else is in memory once a project is loaded; datasets are read case by case, once for each
model. So a run reads copies of them, made before it plans.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from typing import TYPE_CHECKING, BinaryIO

from edison_ci.frozen import dataclass
from edison_ci.store.owners import before_any_call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project
    from edison_ci.documents.files import Tree


@dataclass(frozen=True, slots=True)
class _Kept:
    """A tree some of whose files are read from copies."""

    tree: Tree
    copies: dict[str, Path]

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Open the copy of a file, if there is one."""
        copy = self.copies.get(path)
        return self.tree.open(path, max_bytes=max_bytes) if copy is None else copy.open("rb")

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return self.tree.names(folder)

    def exists(self, path: str) -> bool:
        """Whether a path stands for something."""
        return self.tree.exists(path)


@contextlib.contextmanager
def kept_data(project: Project, experiment: Experiment, folder: Path) -> Iterator[Project]:
    """Yield the project with the experiment's datasets as they are now, whatever happens to them.

    What a killed process left in the folder is removed first: nobody else uses it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        copies: dict[str, Path] = {}
        with before_any_call(folder):
            folder.mkdir(parents=True)
            for number, entry in enumerate(experiment.file.data):
                copy = copies[entry.path] = folder / f"{number}-{entry.path.rpartition('/')[2]}"
                with project.tree.open(entry.path) as source, copy.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        yield dataclasses.replace(project, tree=_Kept(project.tree, copies))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
