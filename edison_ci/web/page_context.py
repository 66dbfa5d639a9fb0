"""The context of a page: results, address, visitor, and what it gives back.

A page is a function from a look at the results to a title, a template and what the template shows.
It knows nothing of Datasette, and reads one state of the file.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from edison_ci._dataclass import dataclass
from edison_ci.errors import EdisonError
from edison_ci.results.run_result import RunResult
from edison_ci.store.owners import is_alive
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import datetime as dt
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.operate.actors import Actor
    from edison_ci.review.actions import ReviewActions
    from edison_ci.store.runs import Run


MOST_CELLS = 20_000
"""What takes a look at every answer is not worked out for more than this."""
AT_ONCE = 1_000
"""Cells for which it is worked out at once; for more, aside."""


def run_named(look: Look, wanted: str) -> Run:
    """Return a run by id, `latest` or experiment; one whose process died is paused."""
    return seen(look, find_run(look.connection, wanted))


def seen(look: Look, run: Run) -> Run:
    """Return a run as it really is, as far as the locks of its project are at hand."""
    if look.root is None:
        return run
    locks = look.root / ".edison" / "locks"
    return run.as_seen(alive=run.owner is not None and is_alive(locks, run.owner))


def run_results(look: Look, ids: list[str]) -> list[RunResult]:
    """Return what runs found."""
    connection = look.connection
    return [RunResult(connection, seen(look, find_run(connection, run_id))) for run_id in ids]


Choice = TypeVar("Choice", bound=str)
PER_PAGE = 20
_MOST_PAGES = 1_000_000
_LONGEST = 500
"""Characters of an argument that are read."""


class Args:
    """What follows the question mark of an address, or what a form says."""

    def __init__(self, pairs: Mapping[str, Sequence[str]], *, longest: int = _LONGEST) -> None:
        self._pairs = {key: [value[:longest] for value in values] for key, values in pairs.items()}

    def text(self, name: str) -> str:
        """Return a value, without blanks around it; '' if there is none."""
        return self._pairs.get(name, [""])[-1].strip()

    def raw(self, name: str) -> str:
        """Return a value as it was written, blanks and all."""
        return self._pairs.get(name, [""])[-1]

    def names(self) -> list[str]:
        """Return the names that have a value."""
        return list(self._pairs)

    def texts(self, name: str) -> list[str]:
        """Return every value of a name that is given several times."""
        return [value.strip() for value in self._pairs.get(name, []) if value.strip()]

    def choice(self, name: str, known: Sequence[Choice]) -> Choice:
        """Return a value that is known; the first of them for anything else."""
        value = self.text(name)
        return next((each for each in known if each == value), known[0])

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) in ("1", "on", "true", "yes")

    def whole(self, name: str, default: int, *, most: int = _MOST_PAGES) -> int:
        """Return a whole number from 1 on; the default for anything else."""
        value = self.text(name)
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default
        return min(max(number, 1), most)


class Links:
    """Writes the addresses of pages."""

    def __init__(self, root: Callable[[str], str], database: str, *, several: bool) -> None:
        self._root, self._several = root, several
        self.database = database
        """The one that pages are about."""

    def to(self, *steps: str, **args: Any) -> str:
        """Return the address of a page; arguments without a value are left out."""
        path = "/".join(["/-/edison", *(quote(str(step), safe="") for step in steps)])
        given = {key.rstrip("_"): value for key, value in args.items()}
        if self._several:
            given["db"] = self.database
        kept = [(key, each) for key, value in given.items() for each in _values(value)]
        return self._root(path) + (f"?{urlencode(kept)}" if kept else "")

    def raw(self, table: str = "") -> str:
        """Return the address of a table as Datasette shows it."""
        path = f"/{quote(self.database, safe='')}" + (f"/{quote(table, safe='')}" if table else "")
        # Counting and facets are what makes large tables slow.
        return self._root(path) + ("?_nocount=1&_nofacet=1" if table else "")


def _values(value: Any) -> list[str]:
    if value is None or value is False or value == "":
        return []
    if value is True:
        return ["1"]
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    return [str(value)]


class Crumb(NamedTuple):
    """A page above this one."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a page is made from."""

    connection: sqlite3.Connection
    path: Mapping[str, str]
    """What the address names, such as a run."""
    args: Args
    links: Links
    root: Path | None
    """The project, where its files are at hand."""
    now: dt.datetime
    file: Path | None = None
    """The results file itself."""
    actor: Actor | None = None
    """Who looks; None if it is not known, and so may change nothing."""
    actions: ReviewActions | None = None
    """Who carries out what is decided on a page; None if pages only read."""
    patient: bool = True
    """Whether a page may take as long as it needs; else what takes long is worked out aside."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows."""

    template: str
    title: str
    """Says what it is, also in a list of bookmarks."""
    shown: dict[str, Any] = field(default_factory=dict)
    crumbs: tuple[Crumb, ...] = ()
    area: str = ""
    """Which entry of the navigation it belongs to."""
    refresh_s: int | None = None
    """Seconds after which a browser without scripts loads it again."""


class ShownInstead(EdisonError):
    """What somebody sent was not taken; they see this page, with what they wrote still on it."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.title)
        self.page = page


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a list is shown."""

    number: int
    total: int
    per_page: int = PER_PAGE

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-self.total // self.per_page))

    @property
    def offset(self) -> int:
        """How many rows come before it."""
        return (self.number - 1) * self.per_page

    @property
    def rows(self) -> range:
        """The rows that are on it, counted from 0."""
        return range(self.offset, self.offset + self.per_page)

    @classmethod
    def of(cls, args: Args, total: int) -> Paging:
        """Return the page that is asked for; one beyond the end is the last."""
        pages = max(1, -(-total // PER_PAGE))
        return cls(min(args.whole("page", 1), pages), total)
