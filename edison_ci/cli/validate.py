"""edison validate: is everything in the project's files right?"""

from __future__ import annotations

from pathlib import Path

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal
from edison_ci.config.data_check import DataCheck
from edison_ci.config.load import Project, find_root, inspect_project
from edison_ci.config.secrets_in_files import redacted
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import ExitCode, Problem, Severity, UsageError, sorted_problems
from edison_ci.plan.impact import files_of


@click.command(cls=EdisonCommand)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.pass_obj
def validate(state: State, paths: tuple[Path, ...], strict: bool) -> None:
    r"""Check every file, line by line.

    Everything that can be known without a call: syntax, keys, ranges, references between files,
    templates, datasets, models, prices and trust. With PATHS, only what concerns those files.

    \b
    Examples:
      edison validate
      edison validate prompts/support-reply.md
      edison validate --json
    """
    terminal = Terminal(state)
    root = find_root(_start(state, paths))
    project, found = inspect_project(WorkingTree(root), root=root)
    problems = list(found)
    if project is not None:
        for experiment in project.experiments.values():
            problems += DataCheck(project, experiment).run().problems
    problems = list(sorted_problems(_selected(problems, project, root, paths, state)))
    failed = [p for p in problems if strict or p.severity is Severity.ERROR]
    if terminal.json:
        terminal.document({"ok": not failed, "problems": [as_json(p) for p in problems]})
    else:
        terminal.problems(problems)
        _summary(terminal, project, problems)
    terminal.annotate(problems)
    if failed:
        raise click.exceptions.Exit(ExitCode.INVALID)


def _start(state: State, paths: tuple[Path, ...]) -> Path:
    for path in paths:
        if not (state.folder / path).exists():
            raise UsageError(
                f"{str(path)!r} does not exist", hint="give files or folders of a project"
            )
    if paths and state.directory is None:
        first = (state.folder / paths[0]).absolute()
        return first if first.is_dir() else first.parent
    return state.folder


def _selected(
    problems: list[Problem],
    project: Project | None,
    root: Path,
    paths: tuple[Path, ...],
    state: State,
) -> list[Problem]:
    """Return the problems that concern the given files, or all of them."""
    names = {_relative(state.folder / path, root) for path in paths}
    whole = {"", "edison.yaml", ".edison/trust.yaml"}
    if project is not None:
        whole.add(project.file.paths.models)
    if not names or names & whole:
        return problems
    related = set(names)
    for experiment in project.experiments.values() if project else ():
        files = files_of(experiment)
        if files & names:
            related |= {experiment.path}
    inside = tuple(f"{name}/" for name in names)
    return [p for p in problems if p.where.file in related or p.where.file.startswith(inside)]


def _relative(path: Path, root: Path) -> str:
    try:
        name = path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        raise UsageError(f"{str(path)!r} is not in the project at {root}") from None
    return "" if name == "." else name


def _summary(terminal: Terminal, project: Project | None, problems: list[Problem]) -> None:
    errors = sum(p.severity is Severity.ERROR for p in problems)
    warnings = len(problems) - errors
    if problems:
        counts = [f"{errors} error{'s' * (errors != 1)}"] if errors else []
        counts += [f"{warnings} warning{'s' * (warnings != 1)}"] if warnings else []
        terminal.note(", ".join(counts))
    if not errors and project is not None:
        parts = [
            _count(len(project.experiments), "experiment"),
            _count(len(project.prompts), "prompt"),
            _count(len(project.models), "model"),
        ]
        terminal.note(terminal.style("ok", fg="green") + f": {', '.join(parts)}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def as_json(problem: Problem) -> dict[str, object]:
    """Return a problem as it appears in JSON."""
    return {
        "file": problem.where.file,
        "line": problem.where.line,
        "column": problem.where.column,
        "code": problem.code,
        "message": redacted(problem.message),
        "hint": redacted(problem.hint),
        "severity": str(problem.severity),
    }
