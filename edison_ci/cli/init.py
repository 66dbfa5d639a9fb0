"""edison init: a new project from a template."""

from __future__ import annotations

import os
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.api.workflows import (
    FURTHER,
    Variables,
    WorkflowChoice,
    github_files,
    notification_secrets,
)
from edison_ci.cli import run as cli_run
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal
from edison_ci.config import project_files
from edison_ci.documents import files as document_files
from edison_ci.documents.record_json import as_document
from edison_ci.errors import ExitCode, UsageError
from edison_ci.git import repository as git
from edison_ci.resources import resource_folder

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from edison_ci.config.sections import Notification

TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
_SCHEMAS = ".edison/schemas/"


@dataclass(slots=True)
class _WrittenFiles:
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class InitRequest:
    """The project to create, and the workflows to write."""

    folder: Path | None
    template: str
    github: bool
    further: tuple[str, ...]
    batch: bool
    wizard: bool

    def refuse_mixed(self) -> None:
        """Raise UsageError for options that exclude each other."""
        if (self.batch or self.further) and not self.github:
            option = "--batch" if self.batch else "--workflow"
            raise UsageError(f"{option} is about workflows", hint="add --github")
        if self.wizard and self.github:
            raise UsageError(
                "--wizard writes no workflows", hint="afterwards: edison init --github"
            )


@click.command(cls=EdisonCommand)
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="customer-support",
    show_default=True,
    help="Template of the project.",
)
@click.option("--github", is_flag=True, help="Also write the workflow for pull requests.")
@click.option(
    "--workflow",
    "further",
    multiple=True,
    type=click.Choice([*FURTHER, "all"]),
    help="With --github: a further workflow; may be repeated.",
)
@click.option("--batch", is_flag=True, help="With --github: buy answers in batches.")
@click.option("--wizard", is_flag=True, help="Ask, and draft everything with you.")
@click.pass_context
@takes(InitRequest)
def init(ctx: click.Context, request: InitRequest) -> None:
    """Create a project that runs offline.

    Writes an objective, prompt, rubric, cases, simulated models and gates, with schemas for the
    completion of editors. Existing files are never overwritten.

    With --github it also writes the workflow for pull requests to .github/workflows of the
    repository, and its requirements to .github/edison. In an existing project it writes only these.
    The keys that models.yaml names are passed on from secrets of the repository, and the branch is
    the default branch of the repository. With --batch pull requests are evaluated with answers that
    are bought in batches, for about half the price, within 24 hours.

    With --wizard you are asked for the objective, rubric, prompt, data, models, judges and stop
    rules of a project of your own, with drafts to accept, edit or redo. Answers are saved: after
    Ctrl-C or a closed terminal the same command continues.

    Other workflows are written on request, as some of them spend money without a pull request:
    `push` keeps the answers of the default branch for later pull requests, `schedule` evaluates
    everything once a week, `refine` opens pull requests with better prompts when started by hand,
    `fork-comment` comments on pull requests from forks, `by-hand` evaluates those after a review,
    `run` runs one experiment on request, also for `edison serve` where that has no keys,
    `approvals` waits until settings.approvals people have approved a pull request.

    Examples:
      edison init
      edison init my-prompts --template data-extraction
      edison init my-prompts --wizard
      edison init --github
      edison init --github --workflow push --workflow refine
    """
    request.refuse_mixed()
    state = ctx.ensure_object(CliState)
    terminal = Terminal(state)
    target = state.folder / (request.folder or Path())
    if request.wizard:
        _init_by_wizard(ctx, terminal, target, request.folder)
        return
    files = _WrittenFiles()
    if not request.github or not (target / "edison.yaml").exists():
        files = write_project(request.template, target)
    choice = _workflow_choice(request, target)
    if request.github:
        _write_workflows(target, files, choice)
    if terminal.json:
        about = {"project": str(target.resolve()), "template": request.template}
        terminal.document({**about, **as_document(files)})
        return
    _show_written(terminal, files)
    _show_next(terminal, target)
    if request.github:
        _show_github_steps(terminal, choice)


def _workflow_choice(request: InitRequest, target: Path) -> WorkflowChoice:
    if not request.github:
        return WorkflowChoice()
    names = tuple(FURTHER) if "all" in request.further else request.further
    recipients = _notifications(target) if "schedule" in names else ()
    variables = _variables(target)
    return WorkflowChoice(names, request.batch, variables=variables, notifications=recipients)


def _show_next(terminal: Terminal, target: Path) -> None:
    terminal.note()
    terminal.note("Next:")
    if target.resolve() != Path.cwd().resolve():
        terminal.note(f"  cd {os.path.relpath(target)}")
    terminal.note("  edison validate     check every file")
    terminal.note("  edison plan         show what a run would do and cost")
    if all(model.simulated for model in _models(target)):
        terminal.note("  edison run          evaluate, offline for now")
        terminal.note("  edison models add openai/gpt-5-mini    for the first real model")
    else:
        terminal.note("  edison run          evaluate, with calls to the models of models.yaml")


def _show_github_steps(terminal: Terminal, choice: WorkflowChoice) -> None:
    variables = choice.variables
    for kind, names in (("secret", variables.secrets), ("variable", variables.plain)):
        for name in names:
            terminal.note(f"  gh {kind} set {name}  the models need this {kind} of the repository")
    for name in notification_secrets(choice.notifications):
        terminal.note(f"  gh secret set {name}  notifications of scheduled runs need it")
    if not variables.secrets:
        terminal.note("  no secret is needed: no model in models.yaml names a key")
    terminal.note("  git add .github     and commit: later pull requests are evaluated")


def write_project(template: str, target: Path) -> _WrittenFiles:
    """Copy a template and the schemas to a folder; existing files stay as they are."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{str(target)!r} is a file", hint="give the name of a folder")
    files = _WrittenFiles()
    source = resource_folder("examples") / template
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and not _is_result(name):
            _place(target, name, path.read_bytes(), files)
    _place_schemas(target, files)
    return files


def _place_schemas(target: Path, files: _WrittenFiles) -> None:
    for path in sorted(resource_folder("schemas").glob("*.json")):
        _place(target, f"{_SCHEMAS}{path.name}", path.read_bytes(), files)


def _show_written(terminal: Terminal, files: _WrittenFiles) -> None:
    for name in _listed(files.written):
        terminal.result("  ", StyledText("wrote", GOOD), f" {name}")
    for name in _listed(files.kept):
        terminal.result("  ", StyledText("kept", ODD), f"  {name} (exists already)")


def _init_by_wizard(
    ctx: click.Context, terminal: Terminal, target: Path, folder: Path | None
) -> None:
    """Ask for a project, create it, and run it if that is wanted."""
    again = f"edison init {folder} --wizard" if folder is not None else "edison init --wizard"
    state = ctx.ensure_object(CliState)
    wizard = feature.required("wizard", "assist")(state, target)
    try:
        runs = wizard.ask()
    except (KeyboardInterrupt, click.Abort):
        terminal.note()
        terminal.note(f"Nothing is created; your answers are kept. Continue with: {again}")
        raise click.exceptions.Exit(ExitCode.PAUSED) from None
    if runs is None:
        terminal.note(f"Your answers are kept; continue with: {again}")
        return
    _show_written(terminal, _create(wizard, target))
    state.directory = target
    try:
        if runs:
            terminal.result()
            ctx.invoke(cli_run.run, experiments=(wizard.draft.name,))
    finally:
        terminal.note()
        if target.resolve() != Path.cwd().resolve():
            terminal.note(f"  cd {os.path.relpath(target)}")
        if runs:
            terminal.note("  edison serve               read the answers and their scores")
        else:
            terminal.note("  edison run                 evaluate it")
        terminal.note("  edison dataset coverage    see what the cases cover")
        terminal.note("  edison init --github       check every pull request")


def _create(wizard: Any, target: Path) -> _WrittenFiles:
    """Write the files of the wizard and the schemas."""
    written, files = _WrittenFiles(), wizard.draft.files()
    # The header of the project comes last: without it, the wizard can still be continued.
    for name in sorted(files, key=lambda name: name == "edison.yaml"):
        _place(target, name, files[name].encode("utf-8"), written)
    _place_schemas(target, written)
    wizard.saved.hand_over(wizard.draft)
    return written


def _variables(target: Path) -> Variables:
    """Return what the models of the project need."""
    secrets = project_files.ProjectFiles(document_files.WorkingTree(target)).secrets()
    return Variables.of(_models(target), secrets)


def _models(target: Path) -> list[Model]:
    """Return the valid models of the project, even if other files have errors."""
    files = project_files.ProjectFiles(document_files.WorkingTree(target))
    header = files.project() or files.valid_project()
    return [] if header is None else [*files.models(header.paths.models).values()]


def _notifications(target: Path) -> tuple[Notification, ...]:
    """Return the recipients of notifications, if edison.yaml is valid."""
    header = project_files.ProjectFiles(document_files.WorkingTree(target)).project()
    return header.notifications if header is not None else ()


def _write_workflows(target: Path, files: _WrittenFiles, choice: WorkflowChoice) -> None:
    """Write workflows to the repository of the project, or to the project itself."""
    repository = git.Repository.find(target)
    root = repository.root if repository is not None else target
    branch = _branch(repository) if repository is not None else ""
    folder = target.resolve().relative_to(root.resolve()).as_posix()
    if "${{" in folder:
        raise UsageError(
            f"{folder!r} is an expression of GitHub", hint="give the folder another name"
        )
    up = os.path.relpath(root, target)
    choice = replace(choice, project=folder, branch=branch or choice.branch)
    for name, data in github_files(choice):
        _place(target, name if up == "." else f"{up}/{name}", data, files, within=root)


def _branch(repository: git.Repository) -> str:
    """Return the default branch, even in a repository without commits."""
    default = repository.default_branch()
    if default is not None:
        return default.removeprefix("origin/")
    return repository.branch() or ""


def _is_result(name: str) -> bool:
    """Whether a file of an example in a checkout was made by running it."""
    return (
        ".db" in name
        or "__pycache__" in name
        or name.startswith((".edison/cache", ".edison/locks", _SCHEMAS))
    )


def _place(
    target: Path, name: str, data: bytes, files: _WrittenFiles, *, within: Path | None = None
) -> None:
    path = document_files.place_in(target, name, within=within)
    try:
        document_files.make_folder(path.parent)
    except OSError as error:
        raise UsageError(
            f"{str(path.parent)!r} cannot be created: {error.strerror}",
            hint="give a writable folder, or check what is in its place",
        ) from None
    try:
        with path.open("xb") as stream:  # x: never overwrites, even if the file appears meanwhile
            stream.write(data)
    except FileExistsError:
        files.kept.append(name)
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be written: {error.strerror}",
            hint="give a writable folder",
        ) from None
    else:
        files.written.append(name)


def _listed(names: list[str]) -> list[str]:
    """Return the names, with all schemas as one entry."""
    schemas = [name for name in names if name.startswith(_SCHEMAS)]
    others = [name for name in names if name not in schemas]
    return [*others, f"{_SCHEMAS} ({len(schemas)} files)"] if schemas else others
