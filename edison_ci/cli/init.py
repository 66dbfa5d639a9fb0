"""edison init: a project that works, from a template."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal
from edison_ci.errors import UsageError
from edison_ci.git.command import run_git
from edison_ci.git.repository import Repository
from edison_ci.plugins import later
from edison_ci.resources import shipped

TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
_SCHEMAS = ".edison/schemas/"
# Loaded late: few want it, and reading what is installed takes a moment.
_github_files = later("edison_ci.operate.vendoring:github_files")


@dataclass(slots=True)
class _Laid:
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


@click.command(cls=EdisonCommand)
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="customer-support",
    show_default=True,
    help="What the project is about.",
)
@click.option("--github", is_flag=True, help="Also write workflows for GitHub Actions.")
@click.pass_obj
def init(state: State, folder: Path | None, template: str, github: bool) -> None:
    """Make a project that runs offline at once.

    Lays out objective, prompt, rubric, cases, simulated models and gates, with the schemas that let
    an editor complete every file. A file that exists is never overwritten.

    With --github it also writes workflows for pull requests, pushes, schedules, refinement and
    forks to .github/workflows of the repository, and what they install to .github/edison; in a
    project that is there already it writes nothing else.

    Examples:
      edison init
      edison init my-prompts --template data-extraction
      edison init --github
    """
    terminal = Terminal(state)
    target = state.folder / (folder or Path())
    laid = _Laid()
    if not github or not (target / "edison.yaml").exists():
        laid = lay_out(template, target)
    if github:
        _lay_out_workflows(target, laid)
    if terminal.json:
        lists = {"written": laid.written, "kept": laid.kept}
        terminal.document({"project": str(target.resolve()), "template": template, **lists})
        return
    for name in _summed(laid.written):
        terminal.result("  ", Ink("wrote", GOOD), f" {name}")
    for name in _summed(laid.kept):
        terminal.result("  ", Ink("kept", ODD), f"  {name} (it was there already)")
    terminal.note()
    terminal.note("Next:")
    if target.resolve() != Path.cwd().resolve():
        terminal.note(f"  cd {os.path.relpath(target)}")
    terminal.note("  edison validate     check every file")
    terminal.note("  edison plan         show what a run would do and cost")
    terminal.note("  edison run          evaluate, offline as it is")
    if github:
        terminal.note("  give the workflows every key that models.yaml names, as a secret of the")
        terminal.note("  repository (they name OPENAI_API_KEY), and commit .github")


def lay_out(template: str, target: Path) -> _Laid:
    """Copy a template and the schemas to a folder; what exists is left as it is."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{str(target)!r} is a file", hint="give the name of a folder")
    laid = _Laid()
    source = shipped("examples") / template
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and not _is_result(name):
            _place(target, name, path.read_bytes(), laid)
    for path in sorted(shipped("schemas").glob("*.json")):
        _place(target, f"{_SCHEMAS}{path.name}", path.read_bytes(), laid)
    return laid


def _lay_out_workflows(target: Path, laid: _Laid) -> None:
    """Write workflows to the repository that the project is in, or will be the root of."""
    repository = Repository.find(target)
    root = repository.root if repository is not None else target
    branch = _branch(repository) if repository is not None else ""
    folder = target.resolve().relative_to(root.resolve()).as_posix()
    up = os.path.relpath(root, target)
    for name, data in _github_files(project=folder, branch=branch or "main"):
        _place(target, name if up == "." else f"{up}/{name}", data, laid)


def _branch(repository: Repository) -> str:
    """Return the default branch, also of a repository without a commit."""
    known = repository.default_branch()
    if known is not None:
        return known.removeprefix("origin/")
    return run_git("symbolic-ref", "--quiet", "--short", "HEAD", cwd=repository.root).line


def _is_result(name: str) -> bool:
    """Whether a file in a checkout's example is left over from running it."""
    return (
        ".db" in name
        or "__pycache__" in name
        or name.startswith((".edison/cache", ".edison/locks", _SCHEMAS))
    )


def _place(target: Path, name: str, data: bytes, laid: _Laid) -> None:
    path = target / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{str(path.parent)!r} cannot be made: {error.strerror}",
            hint="give a folder that you may write, or see what is in its place",
        ) from None
    try:
        with path.open("xb") as stream:  # x: never overwrites, whatever happens in between
            stream.write(data)
    except FileExistsError:
        laid.kept.append(name)
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be written: {error.strerror}",
            hint="give a folder that you may write",
        ) from None
    else:
        laid.written.append(name)


def _summed(names: list[str]) -> list[str]:
    """Return the names, the schemas as one."""
    schemas = [name for name in names if name.startswith(_SCHEMAS)]
    others = [name for name in names if name not in schemas]
    return [*others, f"{_SCHEMAS} ({len(schemas)} files)"] if schemas else others
