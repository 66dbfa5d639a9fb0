"""edison import: configurations of other tools, with a report on every key, and bundles.

Answers and traces have their own modules.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import bundles
from edison_ci.cli import lookup
from edison_ci.cli.groups import LazyGroup
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, as_json
from edison_ci.config import load
from edison_ci.errors import EdisonError, ProjectNotFound, UsageError
from edison_ci.features.importing import drafts, output
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.outputs import outputs
from edison_ci.features.importing.prompt_yml import import_prompt_yml, import_stem
from edison_ci.features.importing.promptfoo import NothingImportedError, import_promptfoo
from edison_ci.features.importing.traces_command import traces
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.api.bundles import BundledRun
    from edison_ci.features.importing.fidelity import Fidelity
    from edison_ci.features.importing.output import (
        ImportPlan,
        ImportResult,
        ImportTarget,
        TargetProject,
    )


@click.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Check the bundle and list its runs; change nothing.")
@click.pass_obj
def bundle(state: CliState, file: Path, dry_run: bool) -> None:
    """Import runs from a bundle of `edison report --format bundle`.

    The bundle is checked first: checksums, every page and row of its results, and its version. Then
    its runs are added with their answers, grades, decisions and costs, all or none; runs that exist
    already stay as they are. Imported answers can be shown and graded again, but other runs never
    reuse them, because a foreign file cannot be trusted.

    Examples:
      edison import bundle run.zip
      edison import bundle run.zip --dry-run --json
    """
    terminal = Terminal(state)
    site = lookup.open_site(state)
    taken = bundles.import_bundle(site, state.folder / file, dry_run=dry_run)
    if terminal.json:
        runs = [_as_json(run, new=new) for new, runs in ((True, taken.new), (False, taken.known))
                for run in runs]  # fmt: skip
        terminal.document({"file": str(file), "dry_run": dry_run, "runs": runs})
        return
    for run in taken.new:
        word = StyledText("would import", ODD) if dry_run else StyledText("imported", GOOD)
        simulated = StyledText("  simulated", ODD) if run.simulated else ""
        terminal.result(word, f"  {_run_text(run)}", simulated)
    for run in taken.known:
        terminal.result(f"exists  {_run_text(run)}")
    if taken.new and not dry_run:
        terminal.note(f"Next: edison report {taken.new[-1].id}")


def _run_text(run: BundledRun) -> str:
    verdict = run.verdict or "not finished"
    return f"{run.id}  {run.experiment}  {verdict}  {counted(run.cells, 'cell')}"


def _as_json(run: BundledRun, *, new: bool) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "experiment": run.experiment,
        "verdict": run.verdict,
        "simulated": run.simulated,
        "cells": run.cells,
        "new": new,
    }


_COLORS = {Status.MAPPED: GOOD, Status.APPROXIMATED: ODD, Status.UNSUPPORTED: BAD}
_SCHEMAS = ".edison/schemas/"

_FILE = click.Path(path_type=Path)
_INTO = click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the project; default: the current one.",
)
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Show what would be written; write nothing."
)
_REPORT = click.option(
    "--report", is_flag=True, help="Write the report to NAME-import.md next to edison.yaml."
)


@click.group("import", cls=LazyGroup)
def import_() -> None:
    """Import files of other tools, answers, traces or bundles.

    A table of cases is imported with `edison dataset import`.

    Examples:
      edison import promptfoo promptfooconfig.yaml --into my-prompts
      edison import prompt-yml prompts/summary.prompt.yml
      edison import outputs answers.jsonl
      edison import traces spans.jsonl --dataset datasets/support.jsonl
      edison import production support-reply
      edison import bundle run.zip
    """


import_.add_command(bundle)
import_.add_command(outputs)
import_.add_command(traces)


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Where an import goes."""

    into: Path | None
    """Folder of the project; the current one if None."""
    dry_run: bool
    report: bool
    name: str | None
    """Name of the experiment; that of the file if None."""


@dataclass(frozen=True, slots=True)
class PromptfooRequest(ImportRequest):
    """A configuration of promptfoo."""

    file: Path
    root: Path | None
    """Folder above the file whose files may be read."""


@dataclass(frozen=True, slots=True)
class PromptYmlRequest(ImportRequest):
    """Prompt files of GitHub Models."""

    files: tuple[Path, ...]


@import_.command(cls=EdisonCommand)
@click.argument("file", type=_FILE)
@_INTO
@click.option("--name", metavar="NAME", help="Name of the experiment; default: that of the file.")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder above FILE whose files may be read; default: that of FILE.",
)
@_DRY_RUN
@_REPORT
@click.pass_obj
@takes(PromptfooRequest)
def promptfoo(state: CliState, request: PromptfooRequest) -> None:
    """Convert a promptfoo configuration into project files.

    Reports on every key, with its line, whether it was mapped, approximated or is unsupported. Only
    files in the folder of FILE are read, or below --root, no code is run, API keys are never
    copied, and no existing file is overwritten.

    Examples:
      edison import promptfoo promptfooconfig.yaml
      edison import promptfoo evals/promptfooconfig.yaml --into my-prompts --report
      edison import promptfoo evals/promptfooconfig.yaml --root .
      edison import promptfoo promptfooconfig.yaml --dry-run --json
    """
    target = _target(state, request)
    name = _name(request.name) if request.name else output.import_name(state.folder / request.file)
    below = _below(state, request.file, request.root) if request.root is not None else ""
    convert = partial(import_promptfoo, below=below)
    outcome = _read(state, request.file, name, target.setting, convert)
    _finish(state, request, "import promptfoo", target, [outcome])


@import_.command("prompt-yml", cls=EdisonCommand)
@click.argument("files", type=_FILE, nargs=-1, required=True, metavar="FILE...")
@_INTO
@click.option("--name", metavar="NAME", help="Name of the experiment, for a single file.")
@_DRY_RUN
@_REPORT
@click.pass_obj
@takes(PromptYmlRequest)
def prompt_yml(state: CliState, request: PromptYmlRequest) -> None:
    """Convert .prompt.yml files of GitHub Models into experiments.

    Each file becomes a prompt, a dataset and an experiment. GitHub Models was
    retired on 2026-07-30: its models are called at their own vendors, such as openai/gpt-4.1 with
    OPENAI_API_KEY.

    Examples:
      edison import prompt-yml summary.prompt.yml --into my-prompts
      edison import prompt-yml prompts/a.prompt.yml prompts/b.prompt.yml --dry-run
    """
    if request.name and len(request.files) > 1:
        raise UsageError("--name needs a single file", hint="import the files one by one")
    target = _target(state, request)
    outcomes, setting = [], target.setting
    for file in request.files:
        name = _name(request.name) if request.name else import_stem(file)
        outcome = _read(state, file, name, setting, import_prompt_yml)
        if isinstance(outcome, output.ImportResult):  # so that no two models share a name
            setting = replace(setting, models={**setting.models, **outcome.models})
        outcomes.append(outcome)
    _finish(state, request, "import prompt-yml", target, outcomes)


def _below(state: CliState, file: Path, root: Path) -> str:
    """Return the place of the folder of a file below a root."""
    folder, top = (state.folder / file).resolve().parent, (state.folder / root).resolve()
    if not folder.is_relative_to(top):
        raise UsageError(f"{str(file)!r} is not below {str(root)!r}", hint="name a folder above it")
    return "" if folder == top else folder.relative_to(top).as_posix()


def _name(name: str) -> str:
    if not drafts.file_name(name, "") or drafts.file_name(name, "") != name:
        hint = "use small letters, digits and dashes, at most 50"
        raise UsageError(f"{name!r} is not a valid name of an experiment", hint=hint)
    return name


def _read(
    state: CliState,
    file: Path,
    name: str,
    setting: TargetProject,
    convert: Callable[..., ImportResult],
) -> ImportResult | NothingImportedError:
    if not (state.folder / file).is_file():
        raise UsageError(f"{str(file)!r} is not a file", hint="give the configuration to import")
    if not file.name.endswith((".yaml", ".yml", ".json")):
        hint = "give a .yaml, .yml or .json file; code is not run"
        raise UsageError(f"{str(file)!r} is not a configuration file", hint=hint)
    folder = "" if file.parent == Path() else f"{file.parent.as_posix()}/"
    try:
        return convert(state.folder / file, display_folder=folder, name=name, setting=setting)
    except NothingImportedError as nothing:
        return nothing


def _target(state: CliState, request: ImportRequest) -> ImportTarget:
    """Return the target folder: that of --into, the current project, or the current folder."""
    if request.into is not None:
        return output.find_target(state.folder / request.into)
    try:
        return output.find_target(load.find_root(state.folder))
    except ProjectNotFound:
        return output.find_target(state.folder)


def _finish(
    state: CliState,
    request: ImportRequest,
    action: str,
    target: ImportTarget,
    outcomes: Sequence[ImportResult | NothingImportedError],
) -> None:
    """Check the target, write the files and print the report."""
    terminal = Terminal(state)
    site, actor = None, None
    if target.is_project:
        site = sites.open_site(state.enter_project(target.root))
        actor = site.require(sites.Role.EDITOR, action)
    imports = [outcome for outcome in outcomes if isinstance(outcome, output.ImportResult)]
    reports = [outcome.fidelity for outcome in outcomes]
    for outcome in outcomes:
        if isinstance(outcome, NothingImportedError):
            _fail(terminal, outcome, reports)
    try:
        plan = output.plan_import(target, imports)
    except EdisonError:
        if not terminal.json:
            _show_report(terminal, reports)
        raise
    if request.report:
        plan = output.add_report(plan, imports)
    if not request.dry_run:
        plan.write()
        if site is not None and actor is not None and site.results.exists():
            names = ", ".join(name for result in imports for name in result.experiments)
            after = {"files": len(plan.files), **_counts(reports)}
            site.record(actor, action, names, after=after)
    if terminal.json:
        terminal.document(_document(imports, plan, dry_run=request.dry_run))
        return
    _show_report(terminal, reports)
    _show_files(terminal, plan, dry_run=request.dry_run, state=state)


def _counts(reports: Sequence[Fidelity]) -> dict[str, int]:
    return {status.value: sum(report.count(status) for report in reports) for status in Status}


def _show_report(terminal: Terminal, reports: Sequence[Fidelity]) -> None:
    for status in (Status.MAPPED, Status.APPROXIMATED, Status.UNSUPPORTED):
        lines = [line for report in reports for line in output.report_lines(report, status)]
        number = sum(line.times for line in lines)
        terminal.result(StyledText(f"{status.value} ({number:,})", _COLORS[status], bold=True))
        for line in lines:
            terminal.result(f"  {line}")
        terminal.result("")


def _fail(
    terminal: Terminal,
    failed: NothingImportedError,
    reports: Sequence[Fidelity],
) -> NoReturn:
    """Print why a configuration could not be imported, with the report on its keys."""
    if not terminal.json:
        _show_report(terminal, reports)
        raise failed
    error = {"code": failed.code, "message": failed.message, "hint": failed.hint}
    place = dict.fromkeys(("file", "line", "column"))
    report = {"counts": _counts(reports), "keys": _keys(reports)}
    code = int(failed.exit_code)
    terminal.document({"error": {**error, **place}, **report, "exit_code": code})
    raise click.exceptions.Exit(code)


def _show_files(terminal: Terminal, plan: ImportPlan, *, dry_run: bool, state: CliState) -> None:
    word = StyledText("would write", ODD) if dry_run else StyledText("wrote", GOOD)
    others = [name for name in plan.files if not name.startswith(_SCHEMAS)]
    for name in others:
        terminal.result("  ", word, f" {name}")
    if schemas := len(plan.files) - len(others):
        terminal.result("  ", word, f" {_SCHEMAS} ({counted(schemas, 'file')})")
    if plan.warnings:
        count = counted(len(plan.warnings), "warning")
        terminal.note(f"{count} about these files: see edison validate")
    if dry_run:
        terminal.note("nothing was written; run without --dry-run to write it")
        return
    terminal.note("Next:")
    root = plan.target.root.resolve()
    if root != state.folder.resolve():
        terminal.note(f"  cd {os.path.relpath(root, state.folder)}")
    terminal.note("  edison validate     check every file")
    terminal.note("  edison plan         show what a run would do and cost")


def _keys(reports: Sequence[Fidelity]) -> list[dict[str, Any]]:
    return [
        {
            "status": entry.status.value,
            "file": entry.where.file,
            "line": entry.where.line,
            "column": entry.where.column,
            "key": entry.key,
            "target": entry.target or None,
            "note": entry.note,
        }
        for report in reports
        for entry in report.sorted_entries()
    ]


def _document(imports: list[ImportResult], plan: ImportPlan, *, dry_run: bool) -> dict[str, Any]:
    reports = [result.fidelity for result in imports]
    return {
        "project": str(plan.target.root.resolve()),
        "experiments": [name for result in imports for name in result.experiments],
        "dry_run": dry_run,
        "files": list(plan.files),
        "counts": _counts(reports),
        "keys": _keys(reports),
        "warnings": [as_json(problem) for problem in plan.warnings],
    }
