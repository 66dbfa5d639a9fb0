"""edison compare, ab and gate: decisions from what is stored, without asking anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, aligned
from edison_ci.config.load import find_root, load_project
from edison_ci.decide.comparison import Setting, Standing, stand
from edison_ci.decide.operands import Operands
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.decide.comparison import Moved
    from edison_ci.decide.lineup import Choice

_LISTED = 10
_COLORS = {"a_better": BAD, "b_better": GOOD, "same": GOOD, "unclear": ODD}


@click.command(cls=EdisonCommand)
@click.argument("a")
@click.argument("b")
@click.option("--experiment", metavar="NAME", help="Experiment, where a commit has several.")
@click.pass_obj
def compare(state: State, a: str, b: str, experiment: str | None) -> None:
    """Say whether B is better than A, on the same cases.

    A and B are a run (an id, `latest` or the name of an experiment), a prompt in one version as
    PROMPT@HASH, `production`, or a Git ref: then the newest complete run of that commit counts.
    Nothing is asked of any model. Runs that were graded by other checks, rubrics or judges are
    refused, saying what differs.

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
        found = stand(reader, first, second, setting_of(project, second.run.experiment))
    finally:
        reader.close()
    _tell(terminal, found)


def setting_of(project: Project, name: str) -> Setting:
    """Return what the files of today say beside the cells."""
    experiment = project.experiments.get(name)
    if experiment is None:
        return Setting()
    clusters = {}
    if experiment.file.data:
        clusters = {c.id: c.cluster for c in project.cases(experiment) if c.cluster is not None}
    aside = (entry.case for entry in project.quarantine.cases if entry.experiment == name)
    return Setting(experiment.file.gates, clusters, frozenset(aside))


def _tell(terminal: Terminal, found: Standing) -> None:
    if terminal.json:
        terminal.document(found.as_json())
        return
    mark = (Ink("  simulated", ODD),) if found.a.run.simulated or found.b.run.simulated else ()
    rows = [
        (name, _chosen(choice), "-" if score is None else f"{100 * score:.1f}")
        for name, choice, score in zip("AB", (found.a, found.b), found.scores, strict=True)
    ]
    for row in aligned(rows, right=frozenset({2})):
        terminal.result(row)
    terminal.result(Ink(found.sentence, _COLORS[found.verdict]), *mark)
    for word, cases in (("fixed", found.fixed), ("broken", found.broken)):
        if cases:
            more = ", ..." if len(cases) > _LISTED else ""
            listed = ", ".join(map(_moved, cases[:_LISTED]))
            terminal.result(f"{len(cases):,} {word}: {listed}{more}")
    for note in found.notes:
        terminal.note(note)


def _chosen(choice: Choice) -> str:
    about = [f"run {choice.run.id}"]
    if choice.side != "head":
        about.append(f"its {choice.side}")
    if choice.prompt is not None and choice.prompt not in choice.told:
        about.append(choice.prompt)
    return f"{choice.told} ({', '.join(about)})"


def _moved(moved: Moved) -> str:
    return f"{moved.case} {100 * moved.a:.0f} to {100 * moved.b:.0f}"
