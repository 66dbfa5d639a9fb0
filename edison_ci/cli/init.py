"""edison init: a project that works, from a template."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal
from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.shipped import shipped

TEMPLATES = ("customer-support", "creative-writing", "data-extraction", "code-generation")
_SCHEMAS = ".edison/schemas/"


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
@click.pass_obj
def init(state: State, folder: Path | None, template: str) -> None:
    """Make a project that runs offline at once.

    Lays out objective, prompt, rubric, cases, simulated models and gates, with the schemas that let
    an editor complete every file. A file that exists is never overwritten.

    Examples:
      edison init
      edison init my-prompts --template data-extraction
    """
    terminal = Terminal(state)
    target = state.folder / (folder or Path())
    laid = lay_out(template, target)
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
