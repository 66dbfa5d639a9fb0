"""Stored runs: the results file of a project, open for reading, and the runs that names mean."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.results.run_result import RunResult
from edison_ci.store import merge
from edison_ci.store.cells import find_cell, run_of_cell
from edison_ci.store.database import is_current as is_current
from edison_ci.store.database import is_results_file as is_results_file
from edison_ci.store.database import (
    migrations,
    open_database,
    open_for_reading,
    open_reader,
    version_of,
)
from edison_ci.store.database import one_state as one_state
from edison_ci.store.ledger import has_open_batches
from edison_ci.store.liveness import is_alive
from edison_ci.store.runs import find_run, recent_runs
from edison_ci.store.slow_queries import timed as timed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.config.project import ProjectFile
    from edison_ci.store.cells import CellRow
    from edison_ci.store.runs import Run


class SchemaVersion(NamedTuple):
    """How many migrations a results file has, and how many this program knows."""

    version: int
    known: int

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> SchemaVersion:
        """Return the versions of an open file."""
        return cls(version_of(connection), len(migrations()))


class ProjectPlace(Protocol):
    """A project or its site: the folder, and the file that names the results file."""

    @property
    def root(self) -> Path:
        """The folder of the project."""
        ...

    @property
    def file(self) -> ProjectFile:
        """Its edison.yaml."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """The runs of an open results file."""

    connection: sqlite3.Connection
    locks: Path
    """The folder of locks, by which living processes are known."""

    def find(self, wanted: str = "latest") -> Run:
        """Return a run as it is stored, by id, `latest` or experiment; raises UsageError."""
        return find_run(self.connection, wanted)

    def current(self, wanted: str = "latest") -> Run:
        """Return a run with its real status: a run whose process died is paused."""
        return current_run(self.locks, self.find(wanted))

    def has_open_batches(self, experiment: str) -> bool:
        """Whether an experiment has batches that are not collected."""
        return has_open_batches(self.connection, experiment)

    def result(self, wanted: str = "latest") -> RunResult:
        """Return what a run found, with its real status."""
        return RunResult(self.connection, self.current(wanted))

    def recent(self, *, trials: bool) -> list[RunResult]:
        """Return what the last runs found, newest first, with their real status."""
        runs = recent_runs(self.connection, trials=trials)
        return [RunResult(self.connection, current_run(self.locks, run)) for run in runs]


def current_run(locks: Path, run: Run) -> Run:
    """Return a run with its real status: a run whose process died is paused."""
    if not run.moving:
        return run
    return run.as_seen(alive=run.owner is not None and is_alive(locks, run.owner))


def find_current_run(connection: sqlite3.Connection, wanted: str, root: Path | None = None) -> Run:
    """Return a run by id, `latest` or experiment; with its real status if its project is known."""
    run = find_run(connection, wanted)
    return run if root is None else current_run(root / ".edison" / "locks", run)


def cell_by_start(connection: sqlite3.Connection, start: str) -> tuple[str, CellRow] | None:
    """Return the run and the cell whose id starts so; None if there is none."""
    run_id = run_of_cell(connection, start)
    return None if run_id is None else (run_id, find_cell(connection, run_id, start))


@contextmanager
def open_results(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a results file; everything that is read belongs to one state of it."""
    with closing(open_reader(file)) as connection, one_state(connection):
        yield connection


def ensure_results(project: ProjectPlace) -> None:
    """Make an empty results file if there is none; raises StoreError if it cannot be read."""
    path = project.root / project.file.results
    if not path.exists():
        open_database(path).close()
    open_reader(path).close()


@contextmanager
def runs_apart(project: ProjectPlace, run_ids: Sequence[str]) -> Iterator[Path]:
    """Yield a temporary results file that has these runs alone."""
    with TemporaryDirectory(prefix="edison-pages-") as folder:
        copy = Path(folder) / "results.db"
        merge.extract(project.root / project.file.results, run_ids, copy)
        yield copy


@contextmanager
def live_runs(project: ProjectPlace) -> Iterator[StoredRuns]:
    """Open the results of a project read-only, while runs continue to change them."""
    with closing(open_reader(project.root / project.file.results)) as connection:
        yield StoredRuns(connection, project.root / ".edison" / "locks")


@contextmanager
def open_runs(project: ProjectPlace) -> Iterator[StoredRuns]:
    """Open the results of a project read-only, in their current state."""
    with open_for_reading(project.root / project.file.results) as connection:
        yield StoredRuns(connection, project.root / ".edison" / "locks")
