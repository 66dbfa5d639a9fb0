"""Makes results files whose gates are known, and writes the examples of docs/gates.md from them."""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from docs.reference import code, table
from edison_ci.config.gates import Gate
from edison_ci.decide.verdict import RunDecision, VerdictContext, decide
from edison_ci.records import CellStatus, Side
from edison_ci.results.samples import TwoSidedSample
from edison_ci.stats.power import cases_for_margin
from edison_ci.store.cells import CellRow, Component, finish_cells
from edison_ci.store.database import open_database
from edison_ci.store.judgments import ComparisonRow, store_comparisons
from edison_ci.store.runs import NewRun, start_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

RUN = "20261116T090000-cccccc"
TIME = "2026-11-16T09:00:00Z"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer cost and how long it took."""

    cost_microusd: int = 100
    tokens_in: int | None = 40
    tokens_out: int | None = 20
    latency_ms: int = 500
    cost_kind: str = "billed"
    name: str = ""
    """Of the same name, two cells share one answer; empty, each has its own."""


@dataclass(frozen=True, slots=True)
class Graded:
    """A cell as a test or an example writes it."""

    case: str
    composite: float | None = None
    side: str = "head"
    repeat: int = 0
    prompt: str = "support-reply"
    model: str = "small"
    status: str = "ok"
    passed: bool | None = None
    components: tuple[Component, ...] = ()
    answer: Answer | None = field(default_factory=Answer)


@dataclass(frozen=True, slots=True)
class Results:
    """A results file with one run, to which cells are added."""

    connection: sqlite3.Connection
    run_id: str = RUN

    @classmethod
    def of(cls, connection: sqlite3.Connection, run_id: str = RUN) -> Results:
        """Write a run without cells."""
        start_run(
            NewRun(
                id=run_id,
                experiment="support-reply",
                trigger="cli",
                plan_hash="41a9f4ee",
                snapshot="{}",
                labels={},
                cells_planned=0,
                simulated=False,
                partial=False,
                owner="1-sample",
                now=TIME,
            )
        )(connection)
        return cls(connection, run_id)

    def add(self, *cells: Graded) -> None:
        """Write finished cells and their answers."""
        finish_cells([self._row(cell) for cell in cells])(self.connection)

    def both(self, case: str, base: float | None, head: float | None, **more: Any) -> None:
        """Write a case with a composite on both sides; None is an error."""
        for side, score in (("base", base), ("head", head)):
            status = "ok" if score is not None else "error"
            passed = None if score is None else score >= 0.5
            self.add(Graded(case, score, side, status=status, passed=passed, **more))

    def tag(self, case: str, *tags: str) -> None:
        """Write the tags of a case."""
        self.connection.execute(
            "insert into run_case (run_id, case_id, tags, kind, words) values (?, ?, ?, ?, ?)",
            (self.run_id, case, json.dumps(tags), "golden", 10),
        )

    def compare(self, case: str, ab: str | None, ba: str | None, **more: Any) -> None:
        """Write what a judge said of head and base of a case: `a` is head, `b` is base."""
        head, base = (Graded(case, side=side) for side in ("head", "base"))
        row = ComparisonRow(
            a_cell=self.cell_id(more.pop("a", head)),
            b_cell=self.cell_id(more.pop("b", base)),
            run_id=self.run_id,
            judge="judge",
            judge_hash="5e1f",
            ab_winner=ab,
            ba_winner=ba,
            ab_reason="clearer",
            ba_reason="clearer",
            **{"chars_a": 200, "chars_b": 200, "asked": True, **more},
        )
        store_comparisons([row])(self.connection)

    def decide(self, *gates: dict[str, Any], **background: Any) -> RunDecision:
        """Decide gates, written as in a file, with the base that is there."""
        background.setdefault("has_base", True)
        written = [Gate.model_validate(gate) for gate in gates]
        cells = TwoSidedSample.of_run(self.connection, self.run_id)
        return decide(cells, written, VerdictContext(**background))

    def cell_id(self, cell: Graded) -> str:
        """Return the id that a cell has."""
        return hashlib.sha256(self._named(cell).encode()).hexdigest()[:12]

    def _named(self, cell: Graded) -> str:
        return "/".join(
            (self.run_id, cell.side, cell.prompt, cell.model, cell.case, str(cell.repeat))
        )

    def _row(self, cell: Graded) -> CellRow:
        named = self._named(cell)
        answered = cell.answer is not None and cell.status not in ("error", "skipped")
        request_hash = hashlib.sha256(
            (cell.answer.name if cell.answer and cell.answer.name else named).encode()
        ).hexdigest()
        if answered and cell.answer is not None:
            self._answer(request_hash, cell.answer)
        return CellRow(
            id=self.cell_id(cell),
            run_id=self.run_id,
            side=Side(cell.side),
            prompt=cell.prompt,
            version="da045f29" if cell.side == "base" else "b7c1e290",
            model=cell.model,
            case_id=cell.case,
            repeat=cell.repeat,
            request_hash=request_hash,
            answer_no=0 if answered else None,
            status=CellStatus(cell.status),
            composite=0.0 if cell.status == "malformed" else cell.composite,
            passed=False if cell.status in ("malformed", "blocked") else cell.passed,
            error="TIMEOUT" if cell.status == "error" else None,
            components=cell.components,
        )

    def _answer(self, request_hash: str, answer: Answer) -> None:
        if self.connection.execute(
            "select 1 from answer where request_hash = ?", (request_hash,)
        ).fetchone():
            return
        attempt = self.connection.execute(
            "insert into attempt (request_hash, run_id, model, phase, state, est_microusd, "
            "cost_microusd, est_tokens, owner, sent_at) "
            "values (?, ?, 'small', 'generate', 'settled', 900, ?, 300, '1-sample', ?)",
            (request_hash, self.run_id, answer.cost_microusd, TIME),
        ).lastrowid
        self.connection.execute(
            "insert into booked (scope, day, microusd) values (?, ?, ?) "
            "on conflict do update set microusd = microusd + excluded.microusd",
            (f"run:{self.run_id}", TIME[:10], answer.cost_microusd),
        )
        self.connection.execute(
            "insert into answer (request_hash, answer_no, attempt, finish_reason, tokens_in, "
            "tokens_out, "
            "latency_ms, cost_microusd, cost_kind, served_model, created_at) "
            "values (?, 0, ?, 'stop', ?, ?, ?, ?, ?, 'small-2026', ?)",
            (
                request_hash,
                attempt,
                answer.tokens_in,
                answer.tokens_out,
                answer.latency_ms,
                answer.cost_microusd,
                answer.cost_kind,
                TIME,
            ),
        )


# --- examples -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a prompt, as its cases tell it."""

    cases: int
    drop: float = 0.0
    """Mean change of the composite, downwards."""
    noise: float = 0.15
    """sd of the change from case to case."""
    lost: int = 0
    """Cases whose head ended in an error."""
    dearer: float = 1.0
    """By which factor an answer costs more."""

    def write(self, results: Results, *, seed: int = 1) -> None:
        """Write the cells of both sides, the same each time."""
        random = Random(seed)
        for index in range(self.cases):
            base = _score(random.gauss(0.8, 0.1))
            head = _score(base - self.drop + random.gauss(0, self.noise))
            cost = random.randint(800, 1_200)
            dear = round(self.dearer * cost * random.uniform(0.95, 1.05))
            name, lost = f"case-{index:04}", index < self.lost
            results.add(
                Graded(name, base, "base", passed=base >= 0.6, answer=Answer(cost)),
                Graded(
                    name,
                    None if lost else head,
                    status="error" if lost else "ok",
                    passed=None if lost else head >= 0.6,
                    answer=Answer(dear, tokens_out=20, latency_ms=500 + dear // 10),
                ),
            )


@dataclass(frozen=True, slots=True)
class Preferred:
    """A change of a prompt, as a judge sees it head to head."""

    cases: int
    win: float
    """Chance that a judge prefers the head, whatever the order."""
    steady: float = 0.85
    """Chance that it says the same in the other order."""

    def write(self, results: Results, *, seed: int = 1) -> None:
        """Write cells of both sides and what the judge said, the same each time."""
        random = Random(seed)
        for index in range(self.cases):
            name = f"case-{index:04}"
            results.add(Graded(name, 0.8, "base", passed=True), Graded(name, 0.8, passed=True))
            first = "a" if random.random() < self.win else "b"
            other = first if random.random() < self.steady else {"a": "b", "b": "a"}[first]
            results.compare(name, first, other)


@dataclass(frozen=True, slots=True)
class Flipped:
    """A change that breaks some cases and repairs others."""

    cases: int
    broken: int
    fixed: int
    repeats: int = 1

    def write(self, results: Results, *, seed: int = 1) -> None:
        """Write passes and fails of both sides."""
        for index in range(self.cases):
            base, head = index >= self.fixed, not self.fixed <= index < self.fixed + self.broken
            for repeat in range(self.repeats):
                for side, passed in (("base", base), ("head", head)):
                    score = 0.9 if passed else 0.3
                    results.add(Graded(f"case-{index:04}", score, side, repeat, passed=passed))


@dataclass(frozen=True, slots=True)
class Sliced:
    """A change of which the cases with one tag lose more than the others."""

    sizes: dict[str, int]
    drops: dict[str, float]

    def write(self, results: Results, *, seed: int = 1) -> None:
        """Write the cells and tags of both sides, the same each time."""
        random = Random(seed)
        for tag, size in self.sizes.items():
            for index in range(size):
                name, base = f"{tag}-{index:04}", _score(random.gauss(0.8, 0.1))
                drop = self.drops.get(tag, 0.0)
                head = _score(base - drop + random.gauss(0, 0.15))
                results.add(Graded(name, base, "base"), Graded(name, head))
                results.tag(name, tag)


def _score(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 3)


COMPOSITE: dict[str, Any] = {"metric": "composite", "no_worse_than": "base", "margin": "5pp"}
PASS_RATE: dict[str, Any] = {"metric": "pass_rate", "at_least": "80%"}
COST: dict[str, Any] = {"metric": "cost_usd.mean", "no_worse_than": "base", "margin": "10%"}
ERRORS: dict[str, Any] = {"metric": "errors", "at_most": "5%"}
P95: dict[str, Any] = {"metric": "latency_ms.p95", "no_worse_than": "base", "margin": "10%"}

WINS: dict[str, Any] = {"metric": "win_rate", "no_worse_than": "base", "margin": "5pp"}

FLIPS: dict[str, Any] = {"metric": "flips", "at_most": "2%"}
SLICES: dict[str, Any] = {**COMPOSITE, "margin": "15pp", "slices": "worst"}

EXAMPLES: dict[str, tuple[Change | Preferred | Flipped | Sliced, tuple[dict[str, Any], ...]]] = {
    "worse": (Change(60, drop=0.1), (COMPOSITE,)),
    "harmless": (Change(150), (COMPOSITE,)),
    "unclear": (Change(40), (COMPOSITE,)),
    "wider": (Change(40), ({**COMPOSITE, "margin": "10pp"},)),
    "tolerated": (Change(600, drop=0.01), (COMPOSITE,)),
    "near": (Change(400, drop=0.025), (COMPOSITE,)),
    "levels": (
        Change(60),
        (
            PASS_RATE,
            {**PASS_RATE, "at_least": "95%"},
            {**PASS_RATE, "at_least": "100%"},
            {"metric": "composite", "at_least": "75%"},
        ),
    ),
    "amounts": (Change(60, dearer=1.25), (COST, {"metric": "cost_usd.mean", "at_most": 0.01})),
    "latency": (Change(80), (P95, {"metric": "latency_ms.p95", "at_most": 400})),
    "errors": (Change(60, lost=2), (ERRORS, PASS_RATE)),
    "lossy": (Change(200, lost=60), (COMPOSITE, ERRORS)),
    "beaten": (Preferred(60, win=0.3), (WINS,)),
    "preferred": (Preferred(60, win=0.65), (WINS, {"metric": "win_rate", "at_least": "60%"})),
    "broken": (Flipped(200, broken=12, fixed=1), (FLIPS,)),
    "swapped": (
        Flipped(200, broken=12, fixed=12, repeats=3),
        (FLIPS, {"metric": "pass_rate", "no_worse_than": "base", "margin": "5pp"}),
    ),
    "unbroken": (Flipped(200, broken=0, fixed=2), (FLIPS,)),
    "sliced": (
        Sliced({"billing": 25, "delivery": 300, "returns": 200, "legal": 6}, {"billing": 0.2}),
        (SLICES, {**COMPOSITE, "margin": "5pp"}),
    ),
    "undecided": (Preferred(40, win=0.5), (WINS,)),
}
"""Changes and the gates that decide them, by name."""


def decided(name: str) -> RunDecision:
    """Decide an example in a results file of its own."""
    change, gates = EXAMPLES[name]
    return in_a_file(change.write, *gates)


def in_a_file(write: Callable[[Results], None], *gates: dict[str, Any]) -> RunDecision:
    """Write cells to a new results file and decide gates on them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_database(Path(folder) / "results.db")) as connection,
    ):
        connection.execute("begin immediate")
        results = Results.of(connection)
        write(results)
        found = results.decide(*gates)
        connection.execute("commit")
    return found


def example(name: str) -> str:
    """Return what the gates of an example say, as a table."""
    decision = decided(name)
    _, gates = EXAMPLES[name]
    rows = [
        (code(_written(gate)), row.verdict, row.sentence)
        for gate, row in zip(gates, decision.rows, strict=True)
    ]
    return table(("gate", "verdict", "sentence"), rows)


def numbers(name: str) -> str:
    """Return the numbers behind the first row of an example, as `--json` has them."""
    row = decided(name).rows[0].as_json()
    shown = ("estimate", "low", "high", "n", "n_more", "p", "p_holm")
    lines = ",\n".join(f'  "{key}": {_short(row[key])}' for key in shown)
    return f"{{\n{lines}\n}}\n"


def needed() -> str:
    """Return how many cases a margin needs, by how noisy the change is."""
    spreads, margins = (0.1, 0.15, 0.2, 0.25), (0.02, 0.03, 0.05, 0.1)
    rows = []
    for margin in margins:
        found = [cases_for_margin(sd, margin=margin).value for sd in (0.0, *spreads)]
        rows.append((f"{100 * margin:g}pp", *(f"{n:,}" for n in found)))
    head = ("margin", "all ties", *(f"sd {100 * sd:g} points" for sd in spreads))
    return table(head, rows)


def _written(gate: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in gate.items()) + "}"


def _short(value: object) -> str:
    return "null" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
