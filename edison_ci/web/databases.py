"""Attached databases that hold results, and the project that each belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from edison_ci._dataclass import dataclass
from edison_ci.store.database import is_results_file

if TYPE_CHECKING:
    from edison_ci.operate.actors import Identity
    from edison_ci.review.actions import ReviewActions

PROJECT_FILE = "edison.yaml"


@dataclass(frozen=True, slots=True)
class Door:
    """How people come in."""

    sign_in: bool = False
    """Whether everybody has to say who they are."""
    tls: bool = False
    """Whether what stands in front of us speaks HTTPS with browsers."""
    proxy: bool = False
    """Whether the last address in X-Forwarded-For is who asks: a proxy of ours wrote it."""
    names: tuple[str, ...] = ()
    """Names of this server, if others are to be refused."""
    per_minute: int = 0
    """Requests that one address may make in a minute; 0 for any number."""


@dataclass(frozen=True, slots=True)
class Served:
    """What `edison serve` knows and Datasette does not."""

    root: Path
    """The project whose results are served."""
    hosts: frozenset[str] | None
    """Names by which browsers may call us; a page of another site that got hold of our address
    under a name of its own (DNS rebinding) is refused. None for any: it would have no cookie."""
    person: Identity | None = None
    """Who started it, and so sits at this machine; None if nobody is to change anything."""
    actions: ReviewActions | None = None
    """Who carries out what is decided on a page; None if pages only read."""
    door: Door = Door()
    patient: bool = False
    """Whether pages may take as long as they need, since nobody waits for them."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A database with results."""

    name: str
    """As Datasette calls it."""
    path: Path | None
    root: Path | None
    """The project that it lies in, if that is here too: prompts and cases are files."""


_served: WeakKeyDictionary[Any, Served] = WeakKeyDictionary()
_known: WeakKeyDictionary[Any, dict[str, Attached]] = WeakKeyDictionary()


def serve_with(datasette: Any, served: Served) -> None:
    """Remember what a Datasette of ours was started with."""
    _served[datasette] = served


def served_by(datasette: Any) -> Served | None:
    """Return what a Datasette was started with; None if somebody else started it."""
    return _served.get(datasette)


async def attached_to(datasette: Any) -> list[Attached]:
    """Return the databases that are ours, in the order in which they were named."""
    known = _known.setdefault(datasette, {})
    found = []
    for name, database in datasette.databases.items():
        new = name not in known and not database.is_memory and not name.startswith("_")
        if new and await database.execute_fn(is_results_file):
            known[name] = _attached(datasette, name, database)
        if name in known:
            found.append(known[name])
    return found


def _attached(datasette: Any, name: str, database: Any) -> Attached:
    path = Path(database.path) if database.path else None
    served = served_by(datasette)
    return Attached(
        name=name,
        path=path,
        root=served.root if served else _project_around(path),
    )


def _project_around(path: Path | None) -> Path | None:
    """Return the project in whose `.edison` folder a file lies."""
    if path is None or path.absolute().parent.name != ".edison":
        return None
    root = path.absolute().parent.parent
    return root if (root / PROJECT_FILE).is_file() else None
