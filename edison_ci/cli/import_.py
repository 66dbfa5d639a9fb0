"""edison import: configurations of other tools, with a report of every key, and bundles."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.terminal import BAD, GOOD, ODD, Ink, Terminal, as_json, counted
from edison_ci.config.load import find_root
from edison_ci.errors import EdisonError, ProjectNotFound, UsageError
from edison_ci.importing.drafts import file_name
from edison_ci.importing.fidelity import Status
from edison_ci.importing.landing import lines_of, name_for, prepare, target_at, with_report
from edison_ci.importing.prompt_yml import import_prompt_yml, stem_of
from edison_ci.importing.promptfoo import NothingImportedError, import_promptfoo
from edison_ci.operate.actors import Role
from edison_ci.operate.bundles import take_in
from edison_ci.operate.site import site_at
from edison_ci.store.audit import write_audit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.importing.fidelity import Fidelity
    from edison_ci.importing.imported import Imported, Setting
    from edison_ci.importing.landing import Landing, Target
    from edison_ci.operate.actors import Actor
    from edison_ci.operate.bundles import BundledRun
    from edison_ci.operate.site import Site


@click.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Check it and show what is in it, change nothing.")
@click.pass_obj
def bundle(state: State, file: Path, dry_run: bool) -> None:
    """Take in runs that `report --format bundle` wrote.

    Everything is checked first: checksums, every page and row of the results in it, and that they
    were made by this version. Then the runs come in with their answers, grades, decisions and
    costs, all or none of them; a run that is here already stays as it is. Their answers are shown
    and graded anew, but never reused by other runs: a file from elsewhere may say anything.

    Examples:
      edison import bundle run.zip
      edison import bundle run.zip --dry-run --json
    """
    terminal = Terminal(state)
    site = site_at(state.entered(find_root(state.folder)))
    taken = take_in(site, state.folder / file, dry_run=dry_run)
    if terminal.json:
        runs = [_as_json(run, new=new) for new, runs in ((True, taken.new), (False, taken.known))
                for run in runs]  # fmt: skip
        terminal.document({"file": str(file), "dry_run": dry_run, "runs": runs})
        return
    for run in taken.new:
        word = Ink("would take in", ODD) if dry_run else Ink("took in", GOOD)
        simulated = Ink("  simulated", ODD) if run.simulated else ""
        terminal.result(word, f"  {_told(run)}", simulated)
    for run in taken.known:
        terminal.result(f"was here  {_told(run)}")
    if taken.new and not dry_run:
        terminal.note(f"Next: edison report {taken.new[-1].id}")


def _told(run: BundledRun) -> str:
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
    help="Folder of the project; the one we are in by default.",
)
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Show what would be written, write nothing."
)
_REPORT = click.option(
    "--report", is_flag=True, help="Write the report too, as NAME-import.md beside edison.yaml."
)


@click.group("import", cls=EdisonGroup)
def import_() -> None:
    """Take over what other tools or machines wrote.

    Examples:
      edison import promptfoo promptfooconfig.yaml --into my-prompts
      edison import prompt-yml prompts/summary.prompt.yml
      edison import bundle run.zip
    """


import_.add_command(bundle)


@import_.command(cls=EdisonCommand)
@click.argument("file", type=_FILE)
@_INTO
@click.option("--name", metavar="NAME", help="Name of the experiment; the file's by default.")
@_DRY_RUN
@_REPORT
@click.pass_obj
def promptfoo(state: State, /, file: Path, name: str | None, **options: Any) -> None:
    """Turn a promptfoo configuration into files of a project.

    Tells of every key what became of it: mapped, approximated or unsupported, with its line. Files
    are read in the folder of FILE only, no code is run, keys are never copied, and no file that
    exists is overwritten.

    Examples:
      edison import promptfoo promptfooconfig.yaml
      edison import promptfoo evals/promptfooconfig.yaml --into my-prompts --report
      edison import promptfoo promptfooconfig.yaml --dry-run --json
    """
    request = _Request(state, "import promptfoo", **options)
    target = request.target()
    chosen = _name(name) if name else name_for(state.folder / file)
    request.run([_read(state, file, chosen, target.setting, import_promptfoo)], target)


@import_.command("prompt-yml", cls=EdisonCommand)
@click.argument("files", type=_FILE, nargs=-1, required=True, metavar="FILE...")
@_INTO
@click.option("--name", metavar="NAME", help="Name of the experiment, for a single file.")
@_DRY_RUN
@_REPORT
@click.pass_obj
def prompt_yml(state: State, /, files: tuple[Path, ...], name: str | None, **options: Any) -> None:
    """Turn .prompt.yml files of GitHub Models into experiments.

    Each file becomes a prompt, a dataset and an experiment. Models are asked at GitHub Models with
    GITHUB_TOKEN, as they were before.

    Examples:
      edison import prompt-yml summary.prompt.yml --into my-prompts
      edison import prompt-yml prompts/a.prompt.yml prompts/b.prompt.yml --dry-run
    """
    if name and len(files) > 1:
        raise UsageError("--name is for a single file", hint="import the files one by one")
    request = _Request(state, "import prompt-yml", **options)
    target = request.target()
    found, setting = [], target.setting
    for file in files:
        chosen = _name(name) if name else stem_of(file)
        each = _read(state, file, chosen, setting, import_prompt_yml)
        if not isinstance(each, NothingImportedError):  # so that no two models share a name
            setting = replace(setting, models={**setting.models, **each.models})
        found.append(each)
    request.run(found, target)


def _name(name: str) -> str:
    if not file_name(name, "") or file_name(name, "") != name:
        hint = "use small letters, digits and dashes, at most 50"
        raise UsageError(f"{name!r} is no name of an experiment", hint=hint)
    return name


def _read(
    state: State, file: Path, name: str, setting: Setting, how: Callable[..., Imported]
) -> Imported | NothingImportedError:
    if not (state.folder / file).is_file():
        raise UsageError(f"{str(file)!r} is not a file", hint="give the configuration to import")
    if not file.name.endswith((".yaml", ".yml", ".json")):
        hint = "give a .yaml, .yml or .json file; a configuration that is code is not run"
        raise UsageError(f"{str(file)!r} is no file of configuration", hint=hint)
    shown = "" if file.parent == Path() else f"{file.parent.as_posix()}/"
    try:
        return how(state.folder / file, shown=shown, name=name, setting=setting)
    except NothingImportedError as nothing:
        return nothing


@dataclass(frozen=True, slots=True)
class _Request:
    """What the command line asks for."""

    state: State
    action: str
    into: Path | None = None
    dry_run: bool = False
    report: bool = False

    def target(self) -> Target:
        """Return the folder that is meant: the one given, the project we are in, or this one."""
        if self.into is not None:
            return target_at(self.state.folder / self.into)
        try:
            return target_at(find_root(self.state.folder))
        except ProjectNotFound:
            return target_at(self.state.folder)

    def run(self, found: Sequence[Imported | NothingImportedError], target: Target) -> None:
        """Check, write and tell."""
        terminal = Terminal(self.state)
        site, actor = self._allowed(target)
        failed = [each for each in found if isinstance(each, NothingImportedError)]
        imports = [each for each in found if not isinstance(each, NothingImportedError)]
        reports = [each.fidelity for each in found]
        if failed:
            _tell_failure(terminal, failed[0], reports)
        try:
            landing = prepare(target, imports)
        except EdisonError:
            if not terminal.json:
                _tell(terminal, reports)
            raise
        if self.report:
            landing = with_report(landing, imports)
        if not self.dry_run:
            landing.write()
            _audit(site, actor, self.action, imports, landing)
        if terminal.json:
            terminal.document(_document(self, imports, landing))
            return
        _tell(terminal, reports)
        _tell_files(terminal, landing, dry_run=self.dry_run, state=self.state)

    def _allowed(self, target: Target) -> tuple[Site | None, Actor | None]:
        if not target.is_project:
            return None, None
        site = site_at(self.state.entered(target.root))
        return site, site.require(Role.EDITOR, self.action)


def _audit(
    site: Site | None, actor: Actor | None, action: str, imports: list[Imported], landing: Landing
) -> None:
    """Write who imported what, where there is a results file to write it to."""
    if site is None or actor is None or not site.results.exists():
        return
    names = ", ".join(name for each in imports for name in each.experiments)
    after = {"files": len(landing.files), **_counts([each.fidelity for each in imports])}
    write_audit(site.results, site.entry(actor, action, names, after=after))


# --- telling --------------------------------------------------------------------------------------


def _counts(reports: Sequence[Fidelity]) -> dict[str, int]:
    return {status.value: sum(report.count(status) for report in reports) for status in Status}


def _tell(terminal: Terminal, reports: Sequence[Fidelity]) -> None:
    for status in (Status.MAPPED, Status.APPROXIMATED, Status.UNSUPPORTED):
        lines = [line for report in reports for line in lines_of(report, status)]
        number = sum(line.times for line in lines)
        terminal.result(Ink(f"{status.value} ({number:,})", _COLORS[status], bold=True))
        for line in lines:
            terminal.result(f"  {line}")
        terminal.result("")


def _tell_failure(
    terminal: Terminal, failed: NothingImportedError, reports: Sequence[Fidelity]
) -> NoReturn:
    """End with why nothing came of a configuration, and with what became of each key."""
    if not terminal.json:
        _tell(terminal, reports)
        raise failed
    error = {"code": failed.code, "message": failed.message, "hint": failed.hint}
    place = dict.fromkeys(("file", "line", "column"))
    told = {"counts": _counts(reports), "keys": _keys(reports)}
    code = int(failed.exit_code)
    terminal.document({"error": {**error, **place}, **told, "exit_code": code})
    raise click.exceptions.Exit(code)


def _tell_files(terminal: Terminal, landing: Landing, *, dry_run: bool, state: State) -> None:
    word = Ink("would write", ODD) if dry_run else Ink("wrote", GOOD)
    shown = [name for name in landing.files if not name.startswith(_SCHEMAS)]
    for name in shown:
        terminal.result("  ", word, f" {name}")
    if len(shown) < len(landing.files):
        schemas = len(landing.files) - len(shown)
        terminal.result("  ", word, f" {_SCHEMAS} ({counted(schemas, 'file')})")
    if landing.warnings:
        count = counted(len(landing.warnings), "warning")
        terminal.note(f"{count} about these files: edison validate tells them")
    if dry_run:
        terminal.note("nothing was written; leave --dry-run out to do it")
        return
    terminal.note("Next:")
    root = landing.target.root.resolve()
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
        for entry in report.ordered()
    ]


def _document(request: _Request, imports: list[Imported], landing: Landing) -> dict[str, Any]:
    reports = [each.fidelity for each in imports]
    return {
        "project": str(landing.target.root.resolve()),
        "experiments": [name for each in imports for name in each.experiments],
        "dry_run": request.dry_run,
        "files": list(landing.files),
        "counts": _counts(reports),
        "keys": _keys(reports),
        "warnings": [as_json(problem) for problem in landing.warnings],
    }
