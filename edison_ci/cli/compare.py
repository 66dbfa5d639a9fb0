"""edison compare, ab and gate: decisions from what is stored, without asking anybody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.api import decisions as library
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import results_of
from edison_ci.cli.summary import show_preference
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, aligned
from edison_ci.config.load import find_root, load_project
from edison_ci.errors import ExitCode, UsageError
from edison_ci.results.comparison import Standing, stand
from edison_ci.results.comparison_sample import Choice
from edison_ci.results.operands import Operands
from edison_ci.rounding import fixed
from edison_ci.stats.ab import BROKEN
from edison_ci.stats.arrays import TIE
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    _tell(terminal, library.compare(project, a, b, experiment=experiment))


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
    with results_of(project) as reader:
        wanted = given["wanted"]
        operands = Operands(reader, project, given["experiment"])
        run = find_run(reader, wanted) if wanted else operands.run_with(*names)
        first, second = (Choice(n, run, prompt=n, models=given["models"]) for n in names)
        found = stand(reader, first, second, library.setting_of(project, reader, run))
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
    found = library.gate(project, wanted, against=against)
    run, base, decided = found.run, found.base, found.decision
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
