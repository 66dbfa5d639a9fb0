"""edison import outputs: answers that were produced elsewhere, graded like those of a run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import provenance
from edison_ci.access import site as sites
from edison_ci.api import evaluation
from edison_ci.cli import lookup, run, sessions
from edison_ci.cli import sessions as cli_sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.documents import files
from edison_ci.errors import UsageError
from edison_ci.features.importing import outputs as importing_outputs
from edison_ci.numeric import counted
from edison_ci.store import audit

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project


@click.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--experiment", "name", metavar="NAME", help="Experiment that grades the answers.")
@click.option(
    "--model",
    "others",
    multiple=True,
    metavar="NAME",
    help="Accept answers of a model that the experiment does not have; repeatable.",
)
@sessions.cost_options
@click.option("--wait", is_flag=True, help="Wait until another run of the experiment has ended.")
@click.pass_obj
def outputs(
    state: CliState, /, file: Path, name: str | None, others: tuple[str, ...], **given: Any
) -> None:
    """Grade answers that were produced elsewhere.

    FILE is JSONL, or CSV with a header: case (an id of the dataset), text, and optionally model,
    prompt, repeat, usage ({in, out}) or tokens_in and tokens_out, latency_ms, cost_usd, time,
    finish_reason and tool_calls. The answers become a run: checks, judges and gates of the
    experiment grade them, and no model is asked for an answer. Cases without an answer are skipped.
    Imported answers are never reused by other runs, and never the base of one.

    Examples:
      edison import outputs answers.jsonl
      edison import outputs answers.csv --experiment support-reply --budget 1
      edison import outputs production.jsonl --model our-service --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state)
    site = sites.Site(project.root, project.file)
    actor = site.require(sites.Role.EDITOR, "import outputs", file.name)
    experiment = _experiment(project, name)
    for other in others:
        if not importing_outputs.MODEL_NAME.fullmatch(other):
            hint = "use letters, digits and . _ : / + -, at most 100"
            raise UsageError(f"{other!r} is not a valid name of a model", hint=hint)
    tree, path = file_to_import(state, file, importing_outputs.SUFFIXES)
    found = importing_outputs.read_outputs(tree, path, project, experiment, others)
    terminal.note(f"{counted(len(found.answers), 'answer')} in {file}")
    grading = evaluation.GradingRequest(
        sessions.microusd(given["budget"]),
        allow_code=given["allow_code"],
        wait=given["wait"],
        doubts=provenance.recording_doubts(project.root, [state.folder / file]),
    )
    factory = cli_sessions.session_factory(
        state, cli_sessions.PlanConfirmation(terminal, yes=given["yes"])
    )
    ended = evaluation.grade_outputs(project, experiment, found, grading, factory)
    after = {"run": ended.run_id, **found.origin()}
    audit.write_audit(site.results, site.entry(actor, "import outputs", experiment.id, after=after))
    run.finish(terminal, project, [ended])


def _experiment(project: Project, name: str | None) -> Experiment:
    found = evaluation.select_experiments(project, [name] if name else [])
    if len(found) != 1:
        names = ", ".join(each.id for each in found) or "none"
        raise UsageError(
            "which experiment grades the answers?", hint=f"add --experiment; there are: {names}"
        )
    return found[0]


def file_to_import(
    state: CliState, file: Path, suffixes: tuple[str, ...]
) -> tuple[files.WorkingTree, str]:
    """Return a file anywhere on this machine as a tree and a path in it; raises UsageError."""
    if file.suffix not in suffixes:
        kinds = " or ".join(suffixes)
        raise UsageError(f"{str(file)!r} is not a {kinds} file", hint=f"give a {kinds} file")
    if not (state.folder / file).is_file():
        raise UsageError(f"{str(file)!r} is not a file", hint="give the file to import")
    real = (state.folder / file).resolve()
    with contextlib.suppress(ValueError):
        return files.WorkingTree(state.folder), real.relative_to(state.folder.resolve()).as_posix()
    return files.WorkingTree(real.parent), real.name
