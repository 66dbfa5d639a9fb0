"""edison validate: everything in the project's files, checked."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import GOOD, Ink, Terminal, as_json, counted
from edison_ci.config.inspection import Inspection, inspect
from edison_ci.config.load import Project, find_root
from edison_ci.errors import ExitCode, Problem, Severity, UsageError

_SHARED = {"", "edison.yaml", ".edison/trust.yaml", ".edison/prices.json"}


@click.command(cls=EdisonCommand)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.pass_obj
def validate(state: State, paths: tuple[Path, ...], strict: bool) -> None:
    """Check every file, line by line.

    Everything that can be known without a call: syntax, keys, ranges, references between files,
    templates, datasets, models, prices and trust. With PATHS, only what concerns those files; they
    may lie in several projects.

    Examples:
      edison validate
      edison validate prompts/support-reply.md
      edison validate --json
    """
    terminal = Terminal(state)
    reports = [_inspect(root, names) for root, names in _projects(state, paths).items()]
    problems = _together(reports, state)
    failed = [p for p in problems if strict or p.severity is Severity.ERROR]
    if terminal.json:
        terminal.document({"ok": not failed, "problems": [as_json(p) for p in problems]})
    else:
        terminal.problems(problems)
        _summary(terminal, reports, problems)
    terminal.annotate(problems)
    if failed:
        raise click.exceptions.Exit(ExitCode.INVALID)


def _projects(state: State, paths: tuple[Path, ...]) -> dict[Path, set[str]]:
    """Return the projects that are meant, and the files in each that are."""
    if not paths:
        return {find_root(state.folder): set()}
    found: dict[Path, set[str]] = {}
    for path in paths:
        place = state.folder / path
        if not os.path.lexists(place):
            hint = "give files or folders of a project"
            raise UsageError(f"{str(path)!r} does not exist", hint=hint)
        # The folder is resolved, not the file: a link belongs to the project it lies in.
        at = place.resolve() if place.is_dir() else place.parent.resolve() / place.name
        root = find_root(at if at.is_dir() else at.parent)
        name = at.relative_to(root).as_posix()
        found.setdefault(root, set()).add("" if name == "." else name)
    return found


def _inspect(root: Path, names: set[str]) -> Inspection:
    found = inspect(root)
    return dataclasses.replace(found, problems=_selected(found.problems, found.project, names))


def _selected(problems: list[Problem], project: Project | None, names: set[str]) -> list[Problem]:
    """Return the problems that concern the given files, or all of them.

    A file concerns every experiment that uses it, and so all of that experiment's files; and an
    experiment that cannot be read may use any file.
    """
    if not names or names & _SHARED or project is None or project.file.paths.models in names:
        return problems
    related = set(names)
    inside = tuple(f"{name}/" for name in names)
    for experiment in project.experiments.values():
        files = project.files_of(experiment)
        if files & names or any(file.startswith(inside) for file in files):
            related |= files
    read = {experiment.path for experiment in project.experiments.values()}
    folder = f"{project.file.paths.experiments}/"

    def concerns(file: str) -> bool:
        unread = file.startswith(folder) and file not in read
        return file in related or file.startswith(inside) or unread

    return [problem for problem in problems if concerns(problem.where.file)]


def _together(reports: list[Inspection], state: State) -> list[Problem]:
    """Return the problems of all projects; those of several are named from the folder we are in."""
    if len(reports) == 1:
        state.entered(reports[0].root)
        return reports[0].problems
    state.entered(state.folder.resolve())
    return [
        dataclasses.replace(
            problem,
            where=dataclasses.replace(
                problem.where,
                file=os.path.relpath(report.root / problem.where.file, state.folder.resolve()),
            ),
        )
        for report in reports
        for problem in report.problems
    ]


def _summary(terminal: Terminal, reports: list[Inspection], problems: list[Problem]) -> None:
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    counts = {"error": errors, "warning": len(problems) - errors}
    said = [counted(number, word) for word, number in counts.items() if number]
    if errors:
        terminal.note(", ".join(said))
        return
    projects = [report.project for report in reports if report.project is not None]
    parts = [counted(len(projects), "project")] if len(projects) > 1 else []
    parts += [
        counted(sum(len(getattr(project, f"{word}s")) for project in projects), word)
        for word in ("experiment", "prompt", "rubric", "model")
    ]
    parts.append(counted(sum(report.cases for report in reports), "case"))
    terminal.note(Ink("ok", GOOD), f": {', '.join(parts + said)}")
