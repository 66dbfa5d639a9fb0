"""Runs in a results file, made by the library itself, the same each time."""

from __future__ import annotations

import copy
import json
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from docs.gates import Graded, Results
from edison_ci.records import CellStatus, RunStatus
from edison_ci.results.components import Finding
from edison_ci.results.decisions import write_decisions
from edison_ci.results.report import Report, report_of
from edison_ci.results.rollups import write_rollups
from edison_ci.results.run_result import Change
from edison_ci.results.run_sentences import Headline
from edison_ci.results.scores import EstimateWithInterval
from edison_ci.results.slices import Slice
from edison_ci.results.snapshot import Files, SuiteChange
from edison_ci.results.weaknesses import PromptContrast
from edison_ci.stats.convergence import Contrast
from edison_ci.store.cells import Component
from edison_ci.store.database import open_database, open_reader
from edison_ci.store.runs import NewRun, find_run, move_run, start_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.results.run_result import RunResult

GOLDEN = Path(__file__).parent / "golden"
SCHEMAS = Path(__file__).parent / "schemas"
TIME = "2026-11-16T09:00:00.000Z"
BASE = "0123456789abcdef0123456789abcdef01234567"
HEAD = "89abcdef0123456789abcdef0123456789abcdef"
GATES: tuple[dict[str, Any], ...] = (
    {"metric": "composite", "no_worse_than": "base", "margin": "5pp"},
    {"metric": "pass_rate", "at_least": "50%"},
    {"metric": "errors", "at_most": "5%"},
)


@dataclass(frozen=True)
class Plot:
    """A run that a test asks for."""

    id: str = "20261116T090000-aaaaaa"
    experiment: str = "support-reply"
    cases: int = 40
    drop: float = 0.0
    lost: int = 0
    """Cases whose head ended in an error."""
    models: tuple[str, ...] = ("small",)
    gates: tuple[dict[str, Any], ...] = GATES
    status: str = "COMPLETED"
    verdict: str | None = ""
    """Empty for the one that the gates find."""
    stopped_by: str | None = None
    against: bool = True
    on: str = "head"
    changed: tuple[str, ...] = ()
    """Places of the eval suite that are not as at the base."""
    margin: float = 0.05
    simulated: bool = False
    flagged: int = 0
    """Cases in whose answers a screen found something."""
    blocked: int = 0
    quarantined: tuple[str, ...] = ()
    time: str = TIME
    commit: str | None = HEAD
    names: tuple[str, ...] = field(default=())
    """Ids of the first cases, in place of case-0000 and so on."""

    def snapshot(self) -> str:
        name = self.experiment
        against = {"ref": "main", "commit": BASE, "eval_suite": self.on, "changed": self.changed}
        margin = {"check": None, "relative": False, "value": self.margin}
        told = {
            f"experiments/{name}.yaml": {
                "experiment": name,
                "prompts": [f"prompts/{name}.md"],
                "models": [[m, m, {}] for m in self.models],
                "gates": [{"metric": "composite", "margin": margin}],
            },
            f"prompts/{name}.md": ["b7c1e290" * 8, "none"],
            "models.yaml: small": [{"provider": "openai", "model": "small"}, None],
            "quarantine.yaml": [*self.quarantined],
            "command line": {"against": against if self.against else None},
        }
        return json.dumps(told)


def write(connection: sqlite3.Connection, plot: Plot) -> None:
    """Write a run, its cells, and what its gates say."""
    sides = 2 if plot.against else 1
    start_run(
        NewRun(
            id=plot.id,
            experiment=plot.experiment,
            trigger="cli",
            plan_hash="41a9f4ee",
            snapshot=plot.snapshot(),
            labels={plot.experiment: "v2+b7c1e290"},
            cells_planned=plot.cases * len(plot.models) * sides,
            simulated=plot.simulated,
            partial=False,
            owner="1-sample",
            now=plot.time,
            base_ref="main" if plot.against else None,
            base_commit=BASE if plot.against else None,
            commit_id=plot.commit,
        )
    )(connection)
    results = Results(connection, plot.id)
    for model in plot.models:
        _cells(results, plot, model)
    steps = {"COMPLETED": ("EXECUTING", "JUDGING", "AGGREGATING"), "PENDING": ()}
    for step in steps.get(plot.status, ("EXECUTING",)):
        move_run(plot.id, RunStatus(step), plot.time)(connection)
    verdict = plot.verdict
    if plot.status == "COMPLETED":
        aside = frozenset(plot.quarantined)
        decision = results.decide(*plot.gates, has_base=plot.against, quarantined=aside)
        write_decisions(plot.id, decision.rows, now=plot.time)(connection)
        verdict = str(decision.verdict) if verdict == "" else verdict
    elif verdict == "":
        verdict = "error" if plot.status == "FAILED" else None
    write_rollups(plot.id)(connection)
    if plot.status != "PENDING":
        move_run(
            plot.id,
            RunStatus(plot.status),
            plot.time,
            verdict=verdict,
            stopped_by=plot.stopped_by,
            complete=plot.status == "COMPLETED",
        )(connection)


def _cells(results: Results, plot: Plot, model: str) -> None:
    random = Random(1)
    done = plot.cells_done if isinstance(plot, Half) else plot.cases
    for index in range(done):
        name = plot.names[index] if index < len(plot.names) else f"case-{index:04}"
        base = round(min(1.0, max(0.0, random.gauss(0.8, 0.1))), 3)
        head = round(min(1.0, max(0.0, base - plot.drop + random.gauss(0, 0.12))), 3)
        more: dict[str, Any] = {"prompt": plot.experiment, "model": model}
        if plot.against:
            results.add(Graded(name, base, "base", passed=base >= 0.6, **more))
        status, found = "ok", []
        if index < plot.lost:
            status = "error"
        elif index < plot.lost + plot.blocked:
            status = "blocked"
            found.append(
                Component(
                    "secrets",
                    "safety",
                    0.0,
                    None,
                    0.0,
                    CellStatus.OK,
                    "block: an OpenAI key (sk-a...)",
                )
            )
        elif index < plot.lost + plot.blocked + plot.flagged:
            found.append(Component("pii", "safety", 0.0, None, 0.0, CellStatus.OK, "flag: e-mail"))
        if status == "ok":
            found.append(
                Component("polite", "check", head, head >= 0.6, 1.0, CellStatus.OK, "'sorry'?")
            )
        results.add(
            Graded(
                name,
                head if status == "ok" else None,
                status=status,
                passed=head >= 0.6 if status == "ok" else None,
                components=tuple(found),
                **more,
            )
        )


@dataclass(frozen=True)
class Half(Plot):
    """A run that stopped."""

    cells_done: int = 10


@dataclass(frozen=True)
class Shelf:
    """A results file to which runs are added."""

    writer: sqlite3.Connection
    connection: sqlite3.Connection
    """For reading only, as commands have it."""

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[Shelf]:
        with closing(open_database(path)) as writer, closing(open_reader(path)) as reader:
            yield cls(writer, reader)

    def add(self, *plots: Plot) -> Report:
        """Write runs, and return the report on the last one."""
        self.writer.execute("begin immediate")
        for plot in plots:
            write(self.writer, plot)
        self.writer.execute("commit")
        return self.report(plots[-1].id)

    def report(self, *run_ids: str) -> Report:
        runs = [find_run(self.connection, run_id) for run_id in run_ids]
        return report_of(self.connection, runs)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    with Shelf.at(tmp_path / "results.db") as shelf:
        yield shelf


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report with something in every one of its components."""
    path = tmp_path_factory.mktemp("failing") / "results.db"
    with Shelf.at(path) as shelf:
        return shelf.add(*everything())


def everything() -> tuple[Plot, ...]:
    """Return a comparison on changed eval suite with errors, findings and broken cases."""
    head = Plot(
        id="20261116T090001-bbbbbb",
        drop=0.15,
        lost=1,
        blocked=1,
        flagged=2,
        models=("small", "large"),
        quarantined=("case-0009",),
        margin=0.2,
        changed=("datasets/golden.jsonl", "experiments/support-reply.yaml: gates"),
        simulated=True,
        cases=38,
        time="2026-11-16T09:00:01.000Z",
    )
    base = replace(head, id="20261116T090000-aaaaaa", on="base", margin=0.05, cases=40, time=TIME)
    return base, head


def poisoned(report: Report, text: str) -> Report:
    """Return a report with a text in every place that files, models or people fill."""
    views = tuple(_poisoned(view, text) for view in report.runs)
    return Report(views, failure=text or "(empty)")


def _slice(text: str) -> Slice:
    shown = EstimateWithInterval(0.5, 0.4, 0.6, 9, "sample")
    return Slice(text, text, "tag", text, 9, shown, shown, -0.2, 0.001, 0.01, 3, stands_out=True)


def changed(result: RunResult, **components: object) -> RunResult:
    """Return a result that says something else of some of its components."""
    found = copy.copy(result)
    found.__dict__.update(components)
    return found


def _poisoned(view: RunResult, text: str) -> RunResult:
    view = changed(
        view,
        run=replace(view.run, experiment=text, base_ref=text, stopped_by=text),
        components=tuple(component._replace(name=text) for component in view.components),
        prompts=((text, "b7c1e290"),),
        breakdown=replace(view.breakdown, slices=(_slice(text),)),
    )
    gates = tuple(
        replace(row, metric=text, prompt=text, model=text, sentence=f"Quality of {text} fell.")
        for row in view.gates
    )
    scores = tuple(
        replace(one, label=text, place=one.place._replace(prompt=text, model=text))
        for one in view.variants
    )
    changes = tuple(
        Change(
            text,
            text,
            replace(
                one.comparison,
                moved={
                    move: tuple(moved._replace(case=text) for moved in cases)
                    for move, cases in one.comparison.moved.items()
                },
            ),
        )
        for one in view.changes
    )
    return changed(
        view,
        gates=gates,
        variants=scores,
        changes=changes,
        weak_prompts=(PromptContrast(Contrast(text, text, -0.2, 9, "exact", 0.001, None)),),
        findings=tuple(Finding(text, "safety", "flag", text, text, text) for _ in view.findings),
        missing=(text, *view.missing),
        headline=Headline("FAIL", text),
        eval_suite=tuple(SuiteChange(text, text, text) for _ in view.eval_suite),
        files=Files(f"experiments/{text}.yaml", "models.yaml", {text: f"prompts/{text}.md"}),
    )
