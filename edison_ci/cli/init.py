"""edison init: a new project from a template."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal
from edison_ci.errors import UsageError
from edison_ci.git.command import run_git
from edison_ci.git.repository import Repository
from edison_ci.operate.workflows import github_files
from edison_ci.resources import resource_folder

TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
_SCHEMAS = ".edison/schemas/"


@dataclass(slots=True)
class _WrittenFiles:
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


@click.command(cls=EdisonCommand)
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="customer-support",
    show_default=True,
    help="Template of the project.",
)
@click.option("--github", is_flag=True, help="Also write workflows for GitHub Actions.")
@click.option("--batch", is_flag=True, help="With --github: buy answers in batches.")
@click.pass_obj
def init(state: CliState, folder: Path | None, template: str, github: bool, batch: bool) -> None:
    """Create a project that runs offline.

    Writes an objective, prompt, rubric, cases, simulated models and gates, with schemas for the
    completion of editors. Existing files are never overwritten.

    With --github it also writes workflows for pull requests, pushes, schedules, refinement and
    forks to .github/workflows of the repository, and their requirements to .github/edison. In an
    existing project it writes only these. With --batch pull requests are evaluated with answers
    that are bought in batches, for about half the price, within 24 hours.

    Examples:
      edison init
      edison init my-prompts --template data-extraction
      edison init --github
    """
    if batch and not github:
        raise UsageError("--batch is about workflows", hint="add --github")
    terminal = Terminal(state)
    target = state.folder / (folder or Path())
    laid = _WrittenFiles()
    if not github or not (target / "edison.yaml").exists():
        laid = write_project(template, target)
    if github:
        _write_workflows(target, laid, batch=batch)
    if terminal.json:
        lists = {"written": laid.written, "kept": laid.kept}
        terminal.document({"project": str(target.resolve()), "template": template, **lists})
        return
    for name in _listed(laid.written):
        terminal.result("  ", StyledText("wrote", GOOD), f" {name}")
    for name in _listed(laid.kept):
        terminal.result("  ", StyledText("kept", ODD), f"  {name} (exists already)")
    terminal.note()
    terminal.note("Next:")
    if target.resolve() != Path.cwd().resolve():
        terminal.note(f"  cd {os.path.relpath(target)}")
    terminal.note("  edison validate     check every file")
    terminal.note("  edison plan         show what a run would do and cost")
    terminal.note("  edison run          evaluate, offline for now")
    if github:
        terminal.note("  add every key that models.yaml names as a secret of the")
        terminal.note("  repository (the workflows use OPENAI_API_KEY), and commit .github")


def write_project(template: str, target: Path) -> _WrittenFiles:
    """Copy a template and the schemas to a folder; existing files stay as they are."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{str(target)!r} is a file", hint="give the name of a folder")
    laid = _WrittenFiles()
    source = resource_folder("examples") / template
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and not _is_result(name):
            _place(target, name, path.read_bytes(), laid)
    for path in sorted(resource_folder("schemas").glob("*.json")):
        _place(target, f"{_SCHEMAS}{path.name}", path.read_bytes(), laid)
    return laid


def _write_workflows(target: Path, laid: _WrittenFiles, *, batch: bool) -> None:
    """Write workflows to the repository of the project, or to the project itself."""
    repository = Repository.find(target)
    root = repository.root if repository is not None else target
    branch = _branch(repository) if repository is not None else ""
    folder = target.resolve().relative_to(root.resolve()).as_posix()
    up = os.path.relpath(root, target)
    for name, data in github_files(project=folder, branch=branch or "main", batch=batch):
        _place(target, name if up == "." else f"{up}/{name}", data, laid)


def _branch(repository: Repository) -> str:
    """Return the default branch, even in a repository without commits."""
    known = repository.default_branch()
    if known is not None:
        return known.removeprefix("origin/")
    return run_git("symbolic-ref", "--quiet", "--short", "HEAD", cwd=repository.root).line


def _is_result(name: str) -> bool:
    """Whether a file of an example in a checkout was made by running it."""
    return (
        ".db" in name
        or "__pycache__" in name
        or name.startswith((".edison/cache", ".edison/locks", _SCHEMAS))
    )


def _place(target: Path, name: str, data: bytes, laid: _WrittenFiles) -> None:
    path = target / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{str(path.parent)!r} cannot be created: {error.strerror}",
            hint="give a writable folder, or check what is in its place",
        ) from None
    try:
        with path.open("xb") as stream:  # x: never overwrites, even if the file appears meanwhile
            stream.write(data)
    except FileExistsError:
        laid.kept.append(name)
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be written: {error.strerror}",
            hint="give a writable folder",
        ) from None
    else:
        laid.written.append(name)


def _listed(names: list[str]) -> list[str]:
    """Return the names, with all schemas as one entry."""
    schemas = [name for name in names if name.startswith(_SCHEMAS)]
    others = [name for name in names if name not in schemas]
    return [*others, f"{_SCHEMAS} ({len(schemas)} files)"] if schemas else others
