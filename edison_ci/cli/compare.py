"""edison compare, ab and gate: decisions from what is stored, without asking anybody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.judges_said import show_preference
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, aligned
from edison_ci.config.load import find_root, load_project
from edison_ci.decide.again import decide_again
from edison_ci.decide.conclusion import base_beside
from edison_ci.decide.verdict import Background, decide, doubted
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute.licence import RunLicence
from edison_ci.results.comparison import Setting, Standing, require_alike, stand
from edison_ci.results.comparison_sample import Choice, comparison_sample
from edison_ci.results.operands import Operands
from edison_ci.results.samples import TwoSidedSample
from edison_ci.results.snapshot import kept_doubts
from edison_ci.rounding import fixed
from edison_ci.stats.ab import BROKEN
from edison_ci.stats.arrays import TIE
from edison_ci.store.database import open_reader
from edison_ci.store.runs import clusters_of, find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.decide.verdict import RunDecision
    from edison_ci.results.comparison import Moved
    from edison_ci.results.decisions import GateRow
    from edison_ci.store.runs import Run

_LISTED = 10
_COLORS = {"a_better": BAD, "b_better": GOOD, "same": GOOD, "unclear": ODD}


@click.command(cls=EdisonCommand)
@click.argument("a")
@click.argument("b")
@click.option("--experiment", metavar="NAME", help="Experiment, where a commit has several.")
@click.pass_obj
def compare(state: State, a: str, b: str, experiment: str | None) -> None:
    """Say whether B is better than A.

    On the same cases. A and B are a run (an id, `latest` or the name of an experiment), a prompt in
    one version as PROMPT@HASH, `production`, or a Git ref: then the newest complete run of that
    commit counts. Nothing is asked of any model. Runs that were graded by other checks, rubrics or
    judges are refused, saying what differs.

    Examples:
      edison compare main latest
      edison compare support-reply@1f0c2b7a support-reply@9e41d0aa
      edison compare production latest --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    reader = open_reader(project.root / project.file.results)
    try:
        first, second = Operands(reader, project, experiment).pair(a, b)
        found = stand(reader, first, second, setting_of(reader, project, first.run, second.run))
    finally:
        reader.close()
    _tell(terminal, found)


@click.command(cls=EdisonCommand)
@click.argument("a", metavar="PROMPT_A")
@click.argument("b", metavar="PROMPT_B")
@click.option("--run", "wanted", metavar="RUN", help="Run that has both; the newest by default.")
@click.option("--experiment", metavar="NAME", help="Experiment whose runs count.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this model; again.")
@click.pass_obj
def ab(state: State, /, a: str, b: str, **given: Any) -> None:
    """Say which of two prompts is better.

    Both are listed under `prompts` of one experiment, and a run has the answers to the same cases
    by both. It says A, B, no practical difference, or not yet known and how many more cases it
    would take. Prompts are ids or paths. Nothing is asked of any model.

    Examples:
      edison ab support-reply support-reply-short
      edison ab support-reply support-reply-short --model small --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    names = [Path(name).name.removesuffix(".md") for name in (a, b)]
    if names[0] == names[1]:
        hint = f"for two versions of it: edison compare {names[0]}@HASH {names[0]}@HASH"
        raise UsageError("both are the same prompt", hint=hint)
    reader = open_reader(project.root / project.file.results)
    try:
        wanted = given["wanted"]
        operands = Operands(reader, project, given["experiment"])
        run = find_run(reader, wanted) if wanted else operands.run_with(*names)
        first, second = (Choice(n, run, prompt=n, models=given["models"]) for n in names)
        found = stand(reader, first, second, setting_of(reader, project, run))
    finally:
        reader.close()
    _tell(terminal, found)


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@click.option("--against", metavar="A", help="Stored run, ref or PROMPT@HASH to take as base.")
@click.pass_obj
def gate(state: State, wanted: str, against: str | None) -> None:
    """Say what the gates of today say of a run.

    Nothing is asked of any model and nothing is written: what was decided stays as it was. Without
    --against the base is the one that the run was made with, or else a stored run of the merge
    base. A run that was looked at several times is looked at as often again. RUN is an id, `latest`
    or the name of an experiment. The exit code is that of a run.

    Examples:
      edison gate
      edison gate support-reply --against main
      edison gate latest --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    reader = open_reader(project.root / project.file.results)
    try:
        run = find_run(reader, wanted)
        _require_ended(run)
        base, cells = None, TwoSidedSample.of_run(reader, run.id)
        if against is not None:
            base, cells = _base(reader, project, run, against)
        decided = _decided(cells, project, run, base)
    finally:
        reader.close()
    verdict, code = str(decided.verdict), int(decided.exit_code)
    if run.status == "FAILED":
        verdict, code = "error", int(ExitCode.NOT_MEASURED)
    if terminal.json:
        terminal.document(
            {
                "verdict": verdict,
                "exit_code": code,
                "run_id": run.id,
                "experiment": run.experiment,
                "simulated": run.simulated or (base is not None and base.run.simulated),
                "against": base.as_json() if base else None,
                "decided": run.verdict,
                "gates": [row.as_json() for row in decided.rows],
            }
        )
    else:
        _tell_gates(terminal, run, verdict, decided.rows)
    if code:
        raise click.exceptions.Exit(code)


def _base(
    reader: sqlite3.Connection, project: Project, run: Run, against: str
) -> tuple[Choice, TwoSidedSample]:
    """Return a stored base, and its cells beside those of the run."""
    base, head = Operands(reader, project, run.experiment).pair(against, run.id)
    require_alike(base, head)
    sample = comparison_sample(reader, base, head)
    if not sample.matching.paired:
        raise UsageError(
            f"the run and {against} have too few cases in common to decide gates on",
            hint=f"measure both together: edison run --against {against}",
        )
    return base, sample.cells


def _decided(cells: TwoSidedSample, project: Project, run: Run, base: Choice | None) -> RunDecision:
    reader = cells.connection
    setting = setting_of(reader, project, run)
    has_base = base is not None or bool(cells.subjects("base"))
    experiment = project.experiment(run.experiment)
    gates = experiment.file.gates
    background = Background(
        setting.clusters or {},
        setting.quarantined,
        has_base,
        unlicensed=RunLicence.of(project, experiment).unlicensed(gates),
    )
    if base is not None:
        return decide(cells, gates, background)
    known = base_beside(reader, project, run, gates, background)
    return doubted(decide_again(reader, gates, run, known), kept_doubts(run))


def _require_ended(run: Run) -> None:
    if run.status not in ("COMPLETED", "FAILED"):
        raise UsageError(
            f"run {run.id} is {run.status}: its cells are not all there",
            hint=f"go on with it: edison resume {run.id}",
        )
    if run.shard is not None:
        raise UsageError(
            f"run {run.id} is shard {run.shard}: gates decide on all shards together",
            hint="put them together: edison merge SHARD.db...",
        )


def _tell_gates(terminal: Terminal, run: Run, verdict: str, rows: Sequence[GateRow]) -> None:
    before = f"; decided then: {run.verdict}" if run.verdict is not None else ""
    color = {"pass": GOOD, "fail": BAD, "error": BAD}.get(verdict, ODD)
    mark = (Ink("  simulated", ODD),) if run.simulated else ()
    terminal.result(
        f"{run.experiment}  ", Ink(verdict.upper(), color), f"  run {run.id}{before}", *mark
    )
    if verdict == "error":
        terminal.result("  too few answers could be measured for the gates to count")
    for row in rows:
        color = {"pass": GOOD, "fail": BAD}.get(row.verdict, ODD)
        about = row.metric + (f" of {row.prompt} with {row.model}" if row.model else "")
        terminal.result("  ", Ink(row.word, color), f"  {about}: {row.sentence}")
    if not rows:
        terminal.note("the experiment has no gates")


def setting_of(reader: sqlite3.Connection, project: Project, *runs: Run) -> Setting:
    """Return what counts beside the cells: today's gates and quarantine, and stored clusters."""
    name = runs[-1].experiment
    experiment = project.experiments.get(name)
    clusters = clusters_of(reader, *(run.id for run in runs))
    aside = (entry.case for entry in project.quarantine.cases if entry.experiment == name)
    gates = experiment.file.gates if experiment is not None else ()
    return Setting(gates, clusters, frozenset(aside))


def _tell(terminal: Terminal, found: Standing) -> None:
    if terminal.json:
        terminal.document(found.as_json())
        return
    mark = (Ink("  simulated", ODD),) if found.a.run.simulated or found.b.run.simulated else ()
    rows = [
        (name, _chosen(choice), "-" if score is None else fixed(100 * score, 1))
        for name, choice, score in zip("AB", (found.a, found.b), found.scores, strict=True)
    ]
    for row in aligned(rows, right=frozenset({2})):
        terminal.result(row)
    terminal.result(Ink(found.sentence, _COLORS[found.verdict]), *mark)
    if found.head_to_head is not None:
        show_preference(terminal, found.head_to_head, "B", "A")
    for word, cases in (("fixed", found.fixed), ("broken", found.broken)):
        if cases:
            more = ", ..." if len(cases) > _LISTED else ""
            listed = ", ".join(_moved(case, word) for case in cases[:_LISTED])
            terminal.result(f"{len(cases):,} {word}: {listed}{more}")
    for note in found.notes:
        terminal.note(note)


def _chosen(choice: Choice) -> str:
    about = [f"run {choice.run.id}"] if choice.told != choice.run.id else []
    if choice.side != "head":
        about.append(f"its {choice.side}")
    if choice.prompt is not None and choice.prompt not in choice.told:
        about.append(choice.prompt)
    return f"{choice.told} ({', '.join(about)})" if about else choice.told


def _moved(moved: Moved, word: str) -> str:
    """Return a case with its scores; where they do not tell why it is listed, say it passes."""
    gain = moved.b - moved.a if word == "fixed" else moved.a - moved.b
    said = ""
    if gain < BROKEN - TIE:
        said = " (passes now)" if word == "fixed" else " (fails now)"
    return f"{moved.case} {fixed(100 * moved.a)} to {fixed(100 * moved.b)}{said}"
