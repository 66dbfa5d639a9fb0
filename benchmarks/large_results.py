"""How is a project with a million answers made?

Files and the first run are those of `edison init` and `edison run`. The other runs are written row
by row into the same tables, with indexes made at the end; what they add up to is worked out by the
function with which the runner ends a run, and `edison admin db check` finds nothing wrong with the
file. The shape is that of a team: an experiment with large runs, one run that is larger than any of
them, one that runs every night, and one with several repeats and judges.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import utc
from edison_ci.config.case_facts import content_hash, facts_of
from edison_ci.config.load import load_project
from edison_ci.plan.versions import History
from edison_ci.results.rollups import rollups_of
from edison_ci.store.answers import text_hash
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from edison_ci.records import Case

TAGS = ("billing", "returns", "shipping", "upset", "short", "german")
CRITERIA = (("Helpfulness", 0.35), ("Empathy", 0.25), ("Accuracy", 0.25), ("Conciseness", 0.15))
RARE = "marmalade"
"""A word that one answer in ten thousand has."""
PROMPT = "support-reply"
LIVE = "live"
"""An experiment that takes some seconds to run."""
_TEXT = (
    "thank you for your message we are sorry about the delay and will send a new parcel today the "
    "label is free please keep the receipt and let us know if anything else is wrong with the order"
)
_WORDS = _TEXT.split()
_TEXTS = [" ".join(random.Random(n).choices(_WORDS, k=20 + n % 60)) for n in range(5_000)]
_LAST_DAY = dt.datetime(2026, 11, 14, 9, tzinfo=dt.UTC)
_ROOM = "limits: {max_rows: 1000000, max_bytes: 100000000}"
_VERSIONS = 5
_PAGES_KIB = 500_000
_BATCH = 20_000


class Shape(NamedTuple):
    """An experiment and how much of it there is."""

    name: str
    cases: int
    models: tuple[str, ...]
    runs: int
    repeats: int = 1
    judges: tuple[str, ...] = ("judge",)


def shapes(outputs: int) -> list[Shape]:
    """Return experiments that have about so many answers together."""
    four, two, unit = ("large", "medium", "small", "tiny"), ("large", "small"), outputs / 1_000_000
    return [
        Shape("support-reply", max(10, round(12_500 * unit)), four, 10),
        Shape("catalogue", max(10, round(75_000 * unit)), four, 1),
        Shape("nightly", 250, two, max(2, round(200 * unit))),
        Shape("several-repeats", max(10, round(1_000 * unit)), two, 10, 5, ("judge", "judge-2")),
    ]


# --- files ----------------------------------------------------------------------------------------


def generate(root: Path, outputs: int) -> None:
    """Write a project with so many answers."""
    root.mkdir(parents=True, exist_ok=True)
    _edison(root, "init", "--template", "customer-support")
    with (root / "models.yaml").open("a", encoding="utf-8") as file:
        for name, model in (("medium", "large"), ("tiny", "small"), ("judge-2", "judge")):
            file.write(f"{name}: {{provider: sim, model: {model}, params: {{temperature: 0.5}}}}\n")
        file.write("slow: {provider: sim, model: small, options: {latency_ms: 300}}\n")
    _git(root, "init", "-q")
    _commit(root, "Begin")
    _edison(root, "run", PROMPT, "--limit", "50")
    template = (root / "experiments" / f"{PROMPT}.yaml").read_text("utf-8")
    live = template.replace(f"experiment: {PROMPT}", f"experiment: {LIVE}")
    live = live.replace("models: [small]", "models: [slow]").replace("repeats: 1 ", "repeats: 5 ")
    (root / "experiments" / f"{LIVE}.yaml").write_text(live, "utf-8")
    for shape in shapes(outputs):
        _files(root, shape, template)
    prompt = root / "prompts" / f"{PROMPT}.md"
    for number in range(1, _VERSIONS):
        with prompt.open("a", encoding="utf-8") as file:
            file.write(f"\nRule {number}: be kind.\n")
        _commit(root, f"Try another wording, number {number}")
    _fill(root, outputs)


def _files(root: Path, shape: Shape, template: str) -> None:
    text = template
    for old, new in (
        ("experiment: support-reply", f"experiment: {shape.name}"),
        ("models: [small]", f"models: [{', '.join(shape.models)}]"),
        ("  - {path: datasets/adversarial.jsonl, kind: adversarial}\n", ""),
        ("golden.jsonl, kind: golden", f"{shape.name}.jsonl, kind: golden, {_ROOM}"),
        ("repeats: 1 ", f"repeats: {shape.repeats} "),
        ("pointwise: [judge]", f"pointwise: [{', '.join(shape.judges)}]"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    (root / "experiments" / f"{shape.name}.yaml").write_text(text, "utf-8")
    rng = random.Random(shape.name)
    with (root / "datasets" / f"{shape.name}.jsonl").open("w", encoding="utf-8") as file:
        for number in range(shape.cases):
            case = {
                "id": f"{shape.name}-{number:06d}",
                "input": {
                    "customer_name": "Maren",
                    "message": " ".join(rng.choices(_WORDS, k=rng.randint(5, 60))),
                    "policy": "Unused items can be returned within 30 days.",
                },
                "expected": "30 days",
                "tags": rng.sample(TAGS, 2),
                "difficulty": rng.randint(1, 5),
            }
            file.write(f"{json.dumps(case)}\n")


def _edison(root: Path, *words: str) -> None:
    command = [sys.executable, "-m", "edison_ci", *words]
    subprocess.run(command, cwd=root, check=True, capture_output=True)


def _git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=Ada Example", "-c", "user.email=ada@example.com")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def _commit(root: Path, subject: str) -> None:
    _git(root, "add", ".")
    _git(root, "commit", "-qm", subject)


# --- rows -----------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A run that is written."""

    id: str
    shape: Shape
    version: str
    started: str
    rng: random.Random


def _fill(root: Path, outputs: int) -> None:
    project = load_project(root)
    with closing(open_database(root / ".edison" / "results.db")) as connection:
        for pragma in ("synchronous = off", f"cache_size = -{_PAGES_KIB}", "foreign_keys = off"):
            connection.execute(f"pragma {pragma}")
        prompt = next(each for each in project.prompts.values() if each.id == PROMPT)
        versions = tuple(each.hash for each in History.of(prompt, project).versions())
        model = (*connection.execute("select snapshot, commit_id from run").fetchone(), versions)
        indexes = connection.execute(
            "select name, sql from sqlite_schema where type = 'index' and sql is not null"
        ).fetchall()
        connection.execute("begin")
        for name, _ in indexes:
            connection.execute(f"drop index {name}")
        written = []
        for shape in shapes(outputs):
            cases = list(project.cases(project.experiments[shape.name]))
            assert len(cases) == shape.cases, "every case is read"
            for number in range(shape.runs):
                written.append(_run(connection, shape, number, cases, model))
        for _, sql in indexes:
            connection.execute(sql)
        connection.execute(_BOOKED)
        connection.execute("commit")
        for run_id in written:
            connection.execute("begin")
            rollups_of(connection, run_id)(connection)
            connection.execute("commit")
        connection.execute("pragma wal_checkpoint(truncate)")


def _run(
    connection: sqlite3.Connection, shape: Shape, number: int, cases: list[Case], model: Any
) -> str:
    snapshot, commit, versions = model
    rng = random.Random(f"{shape.name} {number}")
    day = _LAST_DAY - dt.timedelta(days=shape.runs - 1 - number)
    run = Run(
        id=f"{day:%Y%m%dT%H%M%S}-{rng.getrandbits(24):06x}",
        shape=shape,
        version=versions[number * len(versions) // shape.runs],
        started=utc.timestamp(day),
        rng=rng,
    )
    connection.execute(
        "insert into run (id, experiment, trigger, status, verdict, plan_hash, snapshot, labels, "
        "cells_planned, complete, simulated, commit_id, owner, created_at, finished_at) "
        "values (?, ?, 'cli', 'COMPLETED', 'pass', ?, ?, ?, ?, 1, 1, ?, '1-x', ?, ?)",
        (
            run.id, shape.name, run.version[-16:],
            snapshot.replace("support-reply.yaml", f"{shape.name}.yaml").replace(
                '"experiment": "support-reply"', f'"experiment": "{shape.name}"'),
            json.dumps({PROMPT: f"v{1 + versions.index(run.version)}"}),
            shape.repeats * len(shape.models) * len(cases), commit, run.started,
            utc.timestamp(day + dt.timedelta(minutes=20)),
        ),
    )  # fmt: skip
    connection.executemany(
        "insert into run_case values (?, ?, ?, ?, ?, ?)",
        [(run.id, case.id, *facts_of(case)) for case in cases],
    )
    Rows(connection, run).write(cases)
    _events(connection, run, shape.repeats * len(shape.models) * len(cases))
    return run.id


def _events(connection: sqlite3.Connection, run: Run, cells: int) -> None:
    told = [("status:changed", {"from": "PENDING", "to": "EXECUTING"})]
    told += [("run:progress", {"done": n * cells // 100, "total": cells}) for n in range(101)]  # type: ignore[dict-item]
    told.append(("status:changed", {"from": "AGGREGATING", "to": "COMPLETED"}))
    connection.executemany(
        "insert into event (time, run_id, type, data) values (?, ?, ?, ?)",
        [(run.started, run.id, kind, json.dumps(data)) for kind, data in told],
    )


class Rows:
    """Collects the rows of a run, and writes them in the order of their keys."""

    def __init__(self, connection: sqlite3.Connection, run: Run) -> None:
        self._connection, self._run = connection, run
        (self._attempt,) = connection.execute("select coalesce(max(id), 0) from attempt").fetchone()
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _WIDTHS}

    def write(self, cases: list[Case]) -> None:
        """Write every cell of the run with its answer and grades."""
        shape = self._run.shape
        for case in cases:
            content = content_hash(case)
            for model in shape.models:
                for repeat in range(shape.repeats):
                    self._cell(case, content, model, repeat)
            if len(self._rows["cell"]) >= _BATCH:
                self._flush()
        self._flush()

    def _flush(self) -> None:
        for table, rows in self._rows.items():
            rows.sort(key=lambda row: row[:4])
            marks = ", ".join("?" * _WIDTHS[table])
            self._connection.executemany(f"insert into {table} values ({marks})", rows)
            rows.clear()

    def _cell(self, case: Case, content: str, model: str, repeat: int) -> None:
        run, rng = self._run, self._run.rng
        cell, request_hash = f"{rng.getrandbits(96):024x}", f"{rng.getrandbits(256):064x}"
        chance = rng.random()
        text = rng.choice(_TEXTS)
        if rng.random() < 1e-4:
            text += f" {RARE}"
        status = "ok" if chance > 0.01 else "malformed" if chance > 0.005 else "blocked"
        skill = {"large": 0.8, "medium": 0.75, "small": 0.7}.get(model, 0.6)
        scores = [min(max(round(rng.gauss(skill, 0.2), 2), 0.0), 1.0) for _ in CRITERIA]
        held = status == "ok" and rng.random() < skill
        mean = sum(s * w for s, (_, w) in zip(scores, CRITERIA, strict=True))
        score = round(mean, 6) if status == "ok" else 0.0
        self._rows["cell"].append(
            (cell, run.id, "head", PROMPT, run.version, model, case.id, repeat, request_hash, 0,
             status, score, int(held and score >= 0.5), None, None, case.cluster, content)
        )  # fmt: skip
        self._answer(request_hash, model, "generate", text)
        if status != "ok":
            return
        parts = self._rows["component"]
        parts.append((cell, "icontains", "check", float(held), int(held), 0.0, "ok", ""))
        for (name, weight), each in zip(CRITERIA, scores, strict=True):
            parts.append((cell, name, "criterion", each, None, weight, "ok", "It is fair."))
        for judge in run.shape.judges:
            asked = f"{rng.getrandbits(256):064x}"
            self._answer(asked, judge, "judge", '{"scores": {"Helpfulness": 4, "Empathy": 3}}')
            self._rows["judgment"].append((cell, judge, asked, 0))
            self._rows["judge_score"] += [
                (cell, judge, name, 5 * each, each, None, "It is fair.")
                for (name, _), each in zip(CRITERIA, scores, strict=True)
            ]

    def _answer(self, request_hash: str, model: str, phase: str, text: str) -> None:
        run, rng = self._run, self._run.rng
        self._attempt += 1
        took, cost = 300 + int(rng.expovariate(1 / 400)), 400 + len(text)
        self._rows["attempt"].append(
            (self._attempt, request_hash, run.id, run.shape.name, None, model, phase, "settled",
             2 * cost, cost, 900, "1-x", run.started, run.started, 200, None)
        )  # fmt: skip
        self._rows["answer"].append(
            (request_hash, 0, self._attempt, "stop", 200, len(text) // 4, 0, took, cost, "billed",
             f"sim/{model}", "", run.started)
        )  # fmt: skip
        self._rows["answer_text"].append((request_hash, 0, text, None, text_hash(text, None), None))


_WIDTHS = {"cell": 17, "component": 8, "judgment": 4, "judge_score": 7, "attempt": 16, "answer": 13,
           "answer_text": 6}  # fmt: skip
"""Tables and how many columns they have."""

_BOOKED = """
insert or replace into booked
with counted as (
  select t.run_id, t.experiment, substr(t.sent_at, 1, 10) as day, sum(t.cost_microusd) as microusd,
    sum(a.tokens_in + a.tokens_out) as tokens
  from attempt t join answer a on a.attempt = t.id group by 1, 2, 3
)
select 'run:' || run_id, day, sum(microusd), sum(tokens) from counted group by 1, 2
union all
select 'experiment:' || experiment, day, sum(microusd), sum(tokens) from counted group by 1, 2
union all
select 'project', day, sum(microusd), sum(tokens) from counted group by 1, 2
"""
