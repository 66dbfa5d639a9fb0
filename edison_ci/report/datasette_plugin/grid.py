"""Which cases of a run does the grid show, in which order, and what stands in each of its boxes?

Cases are chosen and sorted by sums that were written when the run ended; only the cells of the
twenty cases on the page are read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.report.datasette_plugin.looking import Paging
from edison_ci.report.datasette_plugin.sums import Sums, sums_by_model

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from edison_ci.report.datasette_plugin.looking import Args

METRICS = ("grade", "tokens", "cost", "latency")
SORTS = ("name", "worst", "best")
STATUSES = ("ok", "malformed", "error", "blocked", "skipped")
_LIVE_CELLS = 2_000
"""Of a run that goes on, so many cells tell which prompts and models it has."""

_WORST_FIRST = {
    "grade": "k.lowest is null, k.lowest, k.composite",
    "tokens": "k.tokens desc",
    "cost": "k.cost_microusd desc",
    "latency": "k.latency_ms is null, k.latency_ms desc",
}
_BEST_FIRST = {
    "grade": "k.composite is null, k.composite desc",
    "tokens": "k.tokens",
    "cost": "k.cost_microusd",
    "latency": "k.latency_ms is null, k.latency_ms",
}


class Graded(NamedTuple):
    """A part of grades: a check, criterion or grader."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """As an address has it."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a run is to be shown, as the address says."""

    side: str
    metric: str
    sort: str
    tag: str
    prompt: str
    model: str
    status: str
    failed: bool
    part: Graded | None
    text: str

    @classmethod
    def of(cls, args: Args) -> Wish:
        """Read the arguments of an address; what nobody knows is as if it were not there."""
        kind, sign, name = args.text("part").partition(":")
        return cls(
            side=args.choice("side", ("head", "base")),
            metric=args.choice("metric", METRICS),
            sort=args.choice("sort", SORTS),
            tag=args.text("tag"),
            prompt=args.text("prompt"),
            model=args.text("model"),
            status=args.choice("status", ("", *STATUSES)),
            failed=args.flag("failed"),
            part=Graded(kind, name) if sign and name else None,
            text=args.text("q"),
        )

    @property
    def filtered(self) -> bool:
        """Whether some cases may be left out."""
        return bool(self.tag or self.status or self.failed or self.text)


@dataclass(frozen=True, slots=True)
class Draw:
    """One answer to a case, with a prompt and a model."""

    id: str
    number: int
    status: str
    composite: float | None
    passed: int | None
    cost_microusd: int | None
    tokens: int | None
    latency_ms: int | None
    part: float | None
    """Score of the part that was asked for."""


@dataclass(frozen=True, slots=True)
class Box:
    """A case with a prompt and a model, over its draws."""

    draws: tuple[Draw, ...]

    @property
    def word(self) -> str:
        """How it went, in a word: a failed draw says more than one that passed."""
        statuses = [draw.status for draw in self.draws]
        for status in ("error", "blocked", "malformed", "skipped"):
            if status in statuses and (status != "skipped" or set(statuses) == {"skipped"}):
                return status
        if any(draw.passed == 0 for draw in self.draws):
            return "fail"
        return "pass" if any(draw.passed == 1 for draw in self.draws) else "ungraded"

    @property
    def passes(self) -> int:
        """How many of its draws pass."""
        return sum(draw.passed == 1 for draw in self.draws)

    def mean(self, name: str) -> float | None:
        """Return the mean of a number over the draws that have it."""
        values = [getattr(draw, name) for draw in self.draws]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class Row:
    """A case."""

    case: str
    tags: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    """One for each column; None where nothing was asked."""


@dataclass(frozen=True, slots=True)
class Column:
    """A prompt with a model."""

    prompt: str
    model: str
    version: str
    sums: Sums | None
    """None while the run goes on."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be chosen in the filters."""

    tags: tuple[str, ...]
    prompts: tuple[str, ...]
    models: tuple[str, ...]
    parts: tuple[Graded, ...]
    sides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """What is shown of a run."""

    wish: Wish
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    paging: Paging
    choices: Choices
    settled: bool
    """Whether the sums are there that filters and sorting need."""


def grid_of(connection: sqlite3.Connection, run_id: str, args: Args) -> Grid:
    """Return the part of a run that the address asks for."""
    wish = Wish.of(args)
    every = _columns(connection, run_id, wish.side)
    settled = any(column.sums is not None for column in every)
    columns = tuple(
        column
        for column in every
        if wish.prompt in ("", column.prompt) and wish.model in ("", column.model)
    )
    where, values = _where(wish, settled=settled)
    source = "rollup_case k" if settled else "run_case k"
    about = {"run": run_id, "side": wish.side, **values}
    (total,) = connection.execute(f"select count(*) from {source} where {where}", about).fetchone()
    paging = Paging.of(args, total)
    ids = connection.execute(
        f"select k.case_id from {source} where {where} order by {_order(wish, settled=settled)} "
        "limit :most offset :offset",
        {**about, "most": paging.per_page, "offset": paging.offset},
    )
    cases = [case for (case,) in ids.fetchall()]
    return Grid(
        wish=wish,
        columns=columns,
        rows=tuple(_rows(connection, run_id, wish, columns, cases)),
        paging=paging,
        choices=_choices(connection, run_id, every),
        settled=settled,
    )


def _columns(connection: sqlite3.Connection, run_id: str, side: str) -> list[Column]:
    found = [
        Column(sums.prompt, sums.model, sums.version, sums)
        for sums in sums_by_model(connection, run_id, side)
    ]
    if found:
        return found
    rows = connection.execute(
        "select distinct prompt, model, version from (select prompt, model, version from cell "
        "where run_id = ? and side = ? limit ?) order by 1, 2",
        (run_id, side, _LIVE_CELLS),
    )
    return [Column(prompt, model, version, None) for prompt, model, version in rows]


def _where(wish: Wish, *, settled: bool) -> tuple[str, dict[str, str]]:
    """Return the condition on cases, and its values."""
    found, values = ["k.run_id = :run"], {}
    if wish.text:
        found.append("instr(lower(k.case_id), lower(:text))")
        values["text"] = wish.text
    if wish.tag:
        found.append(
            "exists (select 1 from run_case t, json_each(t.tags) j where t.run_id = k.run_id "
            "and t.case_id = k.case_id and j.value = :tag)"
        )
        values["tag"] = wish.tag
    if not settled:
        return " and ".join(found), values
    found.append("k.side = :side")
    if wish.text:
        found[1] = f"({found[1]} or {_SAID})"
    if wish.status:
        found.append(f"k.{wish.status} > 0")  # one of STATUSES
    if wish.failed and wish.part:
        found.append(_FAILS_PART)
        values |= {"kind": wish.part.kind, "part": wish.part.name}
    elif wish.failed:
        found.append("k.failed > 0")
    return " and ".join(found), values


_CELLS = "select 1 from cell c {join} where c.run_id = k.run_id and c.case_id = k.case_id "
_SAID = (
    "exists ("
    + _CELLS.format(join="join answer_text x on x.address = c.address and x.take = c.take")
    + "and c.side = k.side and c.status <> 'blocked' and instr(lower(x.text), lower(:text)))"
)
_FAILS_PART = (
    "exists ("
    + _CELLS.format(join="join part p on p.cell_id = c.id")
    + "and c.side = k.side and p.kind = :kind and p.name = :part and (p.passed = 0 or "
    "(p.passed is null and p.score < 0.5)))"
)


def _order(wish: Wish, *, settled: bool) -> str:
    if wish.sort == "name" or not settled:
        return "k.case_id"
    return (_WORST_FIRST if wish.sort == "worst" else _BEST_FIRST)[wish.metric] + ", k.case_id"


def _rows(
    connection: sqlite3.Connection,
    run_id: str,
    wish: Wish,
    columns: Sequence[Column],
    cases: Sequence[str],
) -> Iterable[Row]:
    places = {(column.prompt, column.model): index for index, column in enumerate(columns)}
    part = wish.part or Graded("", "")
    for case in cases:
        boxes: list[list[Draw]] = [[] for _ in columns]
        cells = connection.execute(
            "select c.prompt, c.model, c.id, c.draw, c.status, c.composite, c.passed, "
            "a.cost_microusd, a.tokens_in + a.tokens_out, a.latency_ms, p.score "
            "from cell c left join answer a on a.address = c.address and a.take = c.take "
            "left join part p on p.cell_id = c.id and p.kind = ? and p.name = ? "
            "where c.run_id = ? and c.case_id = ? and c.side = ? order by c.draw",
            (part.kind, part.name, run_id, case, wish.side),
        )
        for prompt, model, *draw in cells:
            place = places.get((prompt, model))
            if place is not None:
                boxes[place].append(Draw(*draw))
        tags = connection.execute(
            "select tags from run_case where run_id = ? and case_id = ?", (run_id, case)
        ).fetchone()
        yield Row(
            case,
            tuple(json.loads(tags[0])) if tags else (),
            tuple(Box(tuple(box)) if box else None for box in boxes),
        )


def _choices(connection: sqlite3.Connection, run_id: str, columns: Sequence[Column]) -> Choices:
    tags = connection.execute(
        "select value from rollup_facet where run_id = ? and side = 'head' and prompt = '' "
        "and model = '' and facet = 'tag' and value <> '(none)' order by value",
        (run_id,),
    )
    parts = connection.execute(
        "select distinct kind, name from rollup_part where run_id = ? "
        "and kind in ('criterion', 'check', 'grader') order by kind desc, name",
        (run_id,),
    )
    sides = connection.execute(
        "select side from rollup_run where run_id = ? order by side desc", (run_id,)
    )
    return Choices(
        tags=tuple(tag for (tag,) in tags),
        prompts=tuple(sorted({column.prompt for column in columns})),
        models=tuple(sorted({column.model for column in columns})),
        parts=tuple(Graded(*part) for part in parts),
        sides=tuple(side for (side,) in sides),
    )
