"""The context of a page (results, address, visitor) and the page it returns.

A page is a function from a PageContext to a Page: title, template and template values. It does not
know Datasette, and reads one consistent state of the results.
"""

from __future__ import annotations

from dataclasses import field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.errors import EdisonError, UsageError
from edison_ci.feature import Area
from edison_ci.results.run_result import RunResult
from edison_ci.results.stored_runs import cell_by_start, find_current_run
from edison_ci.web.cache import PageMemory

if TYPE_CHECKING:
    import datetime as dt
    import sqlite3
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.access.site import Actor, Role
    from edison_ci.store.cells import CellRow
    from edison_ci.store.runs import Run
    from edison_ci.web.databases import Actions, ServerSettings


PREFIX = "/-/edison"
"""Path of all pages."""
SIGN_IN_GITHUB, GITHUB_CALLBACK = (
    f"{PREFIX}/sign-in/{page}" for page in ("github", "github/callback")
)
SIGN_IN, SIGN_OUT, YOU = (f"{PREFIX}/{page}" for page in ("sign-in", "sign-out", "you"))
TRANSFER = f"{PREFIX}/api/transfer"
"""Path of what `edison push` and `edison pull` ask for."""
LONGEST_NEXT = 1_000
"""Most characters of the address to go to after signing in."""
SHOWN_ID = 12
"""Digits of a cell's id in addresses and on pages."""
MOST_CELLS = 20_000
"""Largest run for which statistics over all answers are computed."""
INLINE_CELLS = 1_000
"""Cells for which they are computed at once; for more, in the background."""
PER_PAGE = 20
_MOST_PAGES = 1_000_000
_LONGEST = 500
"""Most characters of an argument."""


def requested_run(context: PageContext, wanted: str) -> Run:
    """Return a run by id, `latest` or experiment; paused if its process has died."""
    return find_current_run(context.connection, wanted, context.root)


def requested_cell(context: PageContext, wanted: str) -> tuple[Run, CellRow]:
    """Return the run and the cell of the address, by the start of the cell's id."""
    valid = len(wanted) >= SHOWN_ID and all(digit in "0123456789abcdef" for digit in wanted)
    place = cell_by_start(context.connection, wanted) if valid else None
    if place is None:
        raise UsageError(f"there is no cell {wanted!r}", hint="open it from the page of its run")
    run_id, cell = place
    return requested_run(context, run_id), cell


def run_results(context: PageContext, ids: list[str]) -> list[RunResult]:
    """Return the results of runs."""
    return [RunResult(context.connection, requested_run(context, run_id)) for run_id in ids]


Result = TypeVar("Result")
Choice = TypeVar("Choice", bound=str)
Row = TypeVar("Row")
Group = TypeVar("Group")


class Args:
    """Query parameters of an address, or fields of a form."""

    def __init__(self, pairs: Mapping[str, Sequence[str]], *, longest: int = _LONGEST) -> None:
        self._pairs = {key: [value[:longest] for value in values] for key, values in pairs.items()}

    def text(self, name: str) -> str:
        """Return a stripped value; '' if there is none."""
        return self._pairs.get(name, [""])[-1].strip()

    def raw(self, name: str) -> str:
        """Return a value without stripping."""
        return self._pairs.get(name, [""])[-1]

    def names(self) -> list[str]:
        """Return the names that have a value."""
        return list(self._pairs)

    def texts(self, name: str) -> list[str]:
        """Return all values of a repeated name."""
        return [value.strip() for value in self._pairs.get(name, []) if value.strip()]

    def choice(self, name: str, choices: Sequence[Choice]) -> Choice:
        """Return a known value; the first one for anything else."""
        value = self.text(name)
        return next((choice for choice in choices if choice == value), choices[0])

    def flag(self, name: str) -> bool:
        """Whether a checkbox is ticked."""
        return self.text(name) in ("1", "on", "true", "yes")

    def whole(self, name: str, default: int, *, most: int = _MOST_PAGES) -> int:
        """Return a whole number from 1 to `most`; the default for anything else."""
        value = self.text(name)
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default
        return min(max(number, 1), most)


class Links:
    """Builds the addresses of pages."""

    def __init__(self, root: Callable[[str], str], database: str, *, several: bool) -> None:
        self._root, self._several = root, several
        self.database = database
        """Name of the results database."""

    def to(self, *steps: str, **args: Any) -> str:
        """Return the address of a page; empty arguments are left out."""
        path = "/".join([PREFIX, *(quote(str(step), safe="") for step in steps)])
        arguments = {key.rstrip("_"): value for key, value in args.items()}
        if self._several:
            arguments["db"] = self.database
        kept = [(key, item) for key, value in arguments.items() for item in _values(value)]
        return self._root(path) + (f"?{urlencode(kept)}" if kept else "")

    def raw(self, table: str = "") -> str:
        """Return the address of a table in Datasette."""
        path = f"/{quote(self.database, safe='')}" + (f"/{quote(table, safe='')}" if table else "")
        # Counts and facets make large tables slow.
        return self._root(path) + ("?_nocount=1&_nofacet=1" if table else "")


def _values(value: Any) -> list[str]:
    if value is None or value is False or value == "":
        return []
    if value is True:
        return ["1"]
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return [str(value)]


class Crumb(NamedTuple):
    """A breadcrumb."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class PageContext:
    """Input of a page."""

    connection: sqlite3.Connection
    path: Mapping[str, str]
    """Path parameters of the address, such as run."""
    args: Args
    links: Links
    root: Path | None
    """Root of the project, if its files are accessible."""
    now: dt.datetime
    file: Path | None = None
    """The results file."""
    actor: Actor | None = None
    """The visitor; None if unknown, who can only read."""
    actions: Actions | None = None
    """Carries out review actions; None if pages are read-only."""
    synchronous: bool = True
    """Whether slow results are computed at once; else in the background."""
    server: ServerSettings | None = None
    """Settings of `edison serve`; None where Datasette serves the pages alone."""
    memory: PageMemory = field(default_factory=PageMemory)
    """What the pages of the server remember."""

    @property
    def messages(self) -> tuple[str, ...]:
        """What the form that led here reports."""
        return self.memory.messages(self.args.text("messages"))

    def computed(
        self, work: Callable[[PageContext], Result], *key: Hashable, cells: int
    ) -> Result | None:
        """Return the result of slow work on some cells; None while it is computed.

        The key has everything that the result depends on, besides the database and the project.
        """
        whole = (self.links.database, str(self.root), *key)
        if self.synchronous or cells <= INLINE_CELLS:
            return self.memory.cached(whole, lambda: work(self))
        return self.memory.in_background(self, whole, work)

    def may(self, needed: Role) -> bool:
        """Whether the visitor may act on these pages with this role."""
        return self.actions is not None and self.actor is not None and self.actor.may(needed)


@dataclass(frozen=True, slots=True)
class Page:
    """Template, title and values of a page."""

    template: str
    title: str
    """Descriptive title, also for bookmarks."""
    values: dict[str, Any] = field(default_factory=dict)
    crumbs: tuple[Crumb, ...] = ()
    area: str = ""
    """Key of its entry in the navigation."""
    refresh_s: int | None = None
    """Seconds after which the page is reloaded."""


class PageInstead(EdisonError):
    """A form was rejected; this page is shown instead, with the entered text."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.title)
        self.page = page


@dataclass(frozen=True, slots=True)
class Paging:
    """The current page of a list."""

    number: int
    total: int
    per_page: int = PER_PAGE

    @property
    def pages(self) -> int:
        """Number of pages."""
        return max(1, -(-self.total // self.per_page))

    @property
    def offset(self) -> int:
        """Number of rows before this page."""
        return (self.number - 1) * self.per_page

    @property
    def rows(self) -> range:
        """Indices of the rows on this page, from 0."""
        return range(self.offset, self.offset + self.per_page)

    @classmethod
    def of(cls, args: Args, total: int, *, per_page: int = PER_PAGE, turn: str = "page") -> Paging:
        """Return the requested page; beyond the end, the last page."""
        pages = max(1, -(-total // per_page))
        return cls(min(args.whole(turn, 1), pages), total, per_page)


def paged(
    context: PageContext,
    rows: Sequence[Row],
    *steps: str,
    turn: str = "page",
    per_page: int = PER_PAGE,
    **kept: Any,
) -> PagedRows[Row]:
    """Return the requested page of a list; `steps` and `kept` are the address of the list.

    `turn` is the query parameter with the number of the page. A second list on a page has its own,
    which is also the id of its section.
    """
    paging = Paging.of(context.args, len(rows), per_page=per_page, turn=turn)
    anchor = "" if turn == "page" else f"#{turn}"

    def again(*, page: int) -> str:
        return context.links.to(*steps, **{**kept, turn: page}) + anchor

    return PagedRows(rows[paging.rows.start : paging.rows.stop], paging, again)


def grouped(rows: Sequence[tuple[Group, Row]]) -> list[tuple[Group, list[Row]]]:
    """Return the rows of a page by what they belong to, in their order."""
    return [
        (group, [row for _, row in pairs])
        for group, pairs in groupby(rows, key=lambda pair: pair[0])
    ]


class PagedRows(NamedTuple, Generic[Row]):
    """A page of a list."""

    rows: Sequence[Row]
    paging: Paging
    again: Callable[..., str]
    """Returns the address of another page."""

    @property
    def values(self) -> dict[str, Any]:
        """What the template of a page with one list needs to go to other pages."""
        return {"paging": self.paging, "again": self.again}


def areas() -> list[Area]:
    """Return the navigation of every page."""
    return sorted((*_AREAS, *feature.areas()), key=lambda area: area.rank)


_AREAS = (
    Area("home", "Experiments", (), 0),
    Area("leaderboard", "Leaderboard", ("leaderboard",), 10),
    Area("prompts", "Prompts", ("prompts",), 20),
    Area("models", "Models", ("models",), 60),
    Area("costs", "Costs", ("costs",), 70),
    Area("audit", "Audit", ("audit",), 100),
)
SITE_AREA = Area("projects", "Projects", ("projects",))
"""The first entry at a site with several projects."""
