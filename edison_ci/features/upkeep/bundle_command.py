"""edison admin bundle: a whole project in one file, and restored from it."""

from __future__ import annotations

from pathlib import Path

import click

from edison_ci.access import site as sites
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import Terminal
from edison_ci.config import load
from edison_ci.features.upkeep import project_bundles
from edison_ci.numeric import counted

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=EdisonGroup)
def bundle() -> None:
    """Bundle a whole project, or restore one.

    Examples:
      edison admin bundle create project.zip
      edison admin bundle restore project.zip restored
    """


@bundle.command(cls=EdisonCommand)
@click.argument("file", type=_FILE, metavar="FILE")
@click.pass_obj
def create(state: CliState, file: Path) -> None:
    """Write the project with its results to one file.

    The bundle has every file of the project that Git would take, recordings and loop reports, all
    results and the audit log, with checksums. It has no accounts and no keys; if a file holds one,
    nothing is written. A private project is not bundled. To bundle one run, use `edison report
    --format bundle`. With a private key in EDISON_SIGNING_KEY the bundle is signed, and can be
    restored with its results as your own.

    Examples:
      edison admin bundle create project.zip
    """
    terminal = Terminal(state)
    site = sites.open_site(state.enter_project(load.find_root(state.folder)))
    made = project_bundles.write_project_bundle(site, state.folder / file)
    if terminal.json:
        document = {"file": str(file), "size_bytes": made.size_bytes, "files": made.files}
        terminal.document({**document, "runs": made.runs, "left_out": list(made.left_out)})
        return
    what = f"{counted(made.files, 'file')}, {counted(made.runs, 'run')}"
    terminal.result(f"wrote {file}: {what}, {made.size_bytes:,} bytes")
    for path in made.left_out:
        terminal.note(f"left out, as it is a link or may hold a key: {path}")


@bundle.command(cls=EdisonCommand)
@click.argument("file", type=_FILE, metavar="FILE")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.pass_obj
def restore(state: CliState, file: Path, folder: Path) -> None:
    """Restore a project from a bundle into a new folder.

    DIR must not exist, or be empty; it appears whole or not at all. Checksums, results and audit
    log are checked first. The list of trusted hosts is restored as trust.yaml.bundled: look at it,
    and rename it if you agree. Restore only what you would also clone and run.

    If EDISON_SIGNING_KEY is the key that signed the bundle, its results are restored as they were.
    Otherwise its runs are restored as from elsewhere: they are shown, and decide nothing.

    Examples:
      edison admin bundle restore project.zip restored
    """
    terminal = Terminal(state)
    made = project_bundles.restore_project_bundle(state.folder / file, state.folder / folder)
    if terminal.json:
        document = {"folder": str(folder), "files": made.files, "runs": made.runs}
        terminal.document({**document, "audit_rows": made.audit_rows, "own": made.own})
        return
    what = f"{counted(made.files, 'file')}, {counted(made.runs, 'run')}"
    terminal.result(f"restored {folder}: {what}, {counted(made.audit_rows, 'audit row')}")
    if made.runs and not made.own:
        terminal.note(
            "the runs are shown and decide nothing here: the bundle is not signed with the key in "
            "EDISON_SIGNING_KEY"
        )
    if made.trust:
        terminal.note("no host is trusted yet: look at .edison/trust.yaml.bundled, and rename it")
    if made.allows_code:
        terminal.note("settings.allow_code is on: checks of this project run its code")
