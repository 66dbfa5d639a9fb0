"""edison validate: a check of every file of the project."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from pathlib import Path
from typing import Any

import click

from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import GOOD, StyledText, Terminal, as_json
from edison_ci.config import load, validation
from edison_ci.config import proof as config_proof
from edison_ci.errors import ExitCode, Problem, Severity, UsageError, sorted_problems
from edison_ci.numeric import counted

_SHARED = {"", "edison.yaml", ".edison/trust.yaml", ".edison/secrets.yaml", ".edison/prices.json"}


@click.command(cls=EdisonCommand)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Treat warnings and notes as errors.")
@click.option("--prove", is_flag=True, help="Also try the checks on the expected outputs.")
@click.pass_obj
def validate(state: CliState, paths: tuple[Path, ...], strict: bool, prove: bool) -> None:
    """Check every file of the project.

    Checks everything that needs no call: syntax, keys, ranges, references between files, templates,
    datasets, models, prices and trust. With PATHS it reports only problems that concern those
    files, which may be in several projects. Notes say what would refuse a run here, such as a key
    that is not set; they fail only with --strict.

    --prove tests the tests, without a model: the expected output of each case must pass every check
    that refers to it, and an empty answer and the expected output of another case must fail one.

    Examples:
      edison validate
      edison validate prompts/support-reply.md
      edison validate --prove
      edison validate --json
    """
    terminal = Terminal(state)
    reports = [_inspect(root, names) for root, names in _projects(state, paths).items()]
    proofs: list[config_proof.Proof] = []
    if prove:
        reports = [_proved(report, proofs) for report in reports]
    problems, notes = _all_problems(reports, state)
    failed = [p for p in (*problems, *notes) if strict or p.severity is Severity.ERROR]
    if terminal.json:
        proved = {"proofs": [_proof_json(proof) for proof in proofs]} if prove else {}
        problems_json = [as_json(p) for p in problems]
        unread = _unread(reports)
        more: dict[str, Any] = {"unread_sections": unread} if unread else {}
        if notes:
            more["notes"] = [as_json(note) for note in notes]
        terminal.document({"ok": not failed, "problems": problems_json, **proved, **more})
    else:
        terminal.problems([*problems, *notes])
        _proof_lines(terminal, proofs)
        if unread := _unread(reports):
            sections = ", ".join(unread)
            terminal.note(f"not read, as their features are off or not installed: {sections}")
        _summary(terminal, reports, [*problems, *notes])
    terminal.annotate(problems)
    if failed:
        raise click.exceptions.Exit(ExitCode.INVALID)


def _projects(state: CliState, paths: tuple[Path, ...]) -> dict[Path, set[str]]:
    """Return the projects of the given paths, and the files in each."""
    if not paths:
        return {load.find_root(state.folder): set()}
    names_by_root: dict[Path, set[str]] = {}
    for path in paths:
        place = state.folder / path
        if not os.path.lexists(place):
            hint = "give files or folders of a project"
            raise UsageError(f"{str(path)!r} does not exist", hint=hint)
        # Only the folder is resolved: a symlink belongs to the project it is in.
        at = place.resolve() if place.is_dir() else place.parent.resolve() / place.name
        root = load.find_root(at if at.is_dir() else at.parent)
        name = at.relative_to(root).as_posix()
        names_by_root.setdefault(root, set()).add("" if name == "." else name)
    return names_by_root


def _inspect(root: Path, names: set[str]) -> validation.Inspection:
    inspection = validation.inspect(root)
    if any(problem.code == "trust" for problem in inspection.problems):
        # Loads the database, which takes longer than a validation.
        from edison_ci.access.site import audit_untrusted

        audit_untrusted(root, inspection.problems)
    problems, notes = (
        _selected(found, inspection.project, names)
        for found in (inspection.problems, inspection.notes)
    )
    return dataclasses.replace(inspection, problems=problems, notes=notes)


def _unread(reports: list[validation.Inspection]) -> list[str]:
    """Return the sections of features that are off or not installed."""
    projects = (report.project for report in reports)
    return sorted({name for project in projects if project is not None for name in project.unread})


def _proved(
    report: validation.Inspection, proofs: list[config_proof.Proof]
) -> validation.Inspection:
    """Return a report with what its data show of the checks; wrong files must be fixed first."""
    if report.project is None or any(p.severity is Severity.ERROR for p in report.problems):
        return report
    new_proofs = [
        config_proof.prove_checks(report.project, experiment)
        for experiment in report.project.experiments.values()
    ]
    proofs += new_proofs
    findings = [problem for proof in new_proofs for problem in proof.findings]
    return dataclasses.replace(
        report, problems=list(sorted_problems([*report.problems, *findings]))
    )


def _proof_lines(terminal: Terminal, proofs: list[config_proof.Proof]) -> None:
    for proof in proofs:
        if proof.checks:
            tried = f"{counted(len(proof.checks), 'check')} on {counted(proof.cases, 'case')}"
            terminal.note(f"{proof.experiment}: tried {tried}")
        if proof.not_tried:
            terminal.note(
                f"{proof.experiment}: not tried, because they run code, ask a model or lack a "
                f"library: {', '.join(proof.not_tried)}"
            )


def _proof_json(proof: config_proof.Proof) -> dict[str, Any]:
    return {
        "experiment": proof.experiment,
        "cases": proof.cases,
        "checks": [*proof.checks],
        "not_tried": [*proof.not_tried],
        "findings": [as_json(problem) for problem in proof.findings],
    }


def _selected(
    problems: list[Problem], project: load.Project | None, names: set[str]
) -> list[Problem]:
    """Return the problems that concern the given files, or all problems.

    A file concerns every experiment that uses it, and thereby all files of that experiment. An
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


def _all_problems(
    reports: list[validation.Inspection], state: CliState
) -> tuple[list[Problem], list[Problem]]:
    """Return problems and notes; with several projects, paths start at the working folder."""
    if len(reports) == 1:
        state.enter_project(reports[0].root)
        return reports[0].problems, reports[0].notes
    state.enter_project(state.folder.resolve())

    def placed(problem: Problem, root: Path) -> Problem:
        file = os.path.relpath(root / problem.where.file, state.folder.resolve())
        return dataclasses.replace(problem, where=dataclasses.replace(problem.where, file=file))

    return (
        [placed(problem, report.root) for report in reports for problem in report.problems],
        [placed(note, report.root) for report in reports for note in report.notes],
    )


def _summary(
    terminal: Terminal, reports: list[validation.Inspection], problems: list[Problem]
) -> None:
    counts = Counter(problem.severity for problem in problems)
    totals = [counted(counts[severity], severity) for severity in Severity if counts[severity]]
    if counts[Severity.ERROR]:
        terminal.note(", ".join(totals))
        return
    projects = [report.project for report in reports if report.project is not None]
    parts = [counted(len(projects), "project")] if len(projects) > 1 else []
    parts += [
        counted(sum(len(getattr(project, f"{word}s")) for project in projects), word)
        for word in ("experiment", "prompt", "rubric", "model")
    ]
    parts.append(counted(sum(report.cases for report in reports), "case"))
    terminal.note(StyledText("ok", GOOD), f": {', '.join(parts + totals)}")
