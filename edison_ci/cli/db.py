"""edison db: the results file checked, upgraded, copied and signed."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.terminal import BAD, GOOD, Ink, Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.errors import ExitCode, UsageError
from edison_ci.operate.actors import Role
from edison_ci.operate.housekeeping import upgrade
from edison_ci.operate.own_results import adopt
from edison_ci.operate.proposal_terms import is_proposed
from edison_ci.operate.signatures import VARIABLE, make_pair, sign, signature_beside
from edison_ci.operate.site import Site, site_at
from edison_ci.store.checking import Checked, check_database
from edison_ci.store.copies import back_up
from edison_ci.store.database import open_reader, version_of


@click.group(cls=EdisonGroup)
def db() -> None:
    """Check, upgrade, back up and sign the results.

    Examples:
      edison db check
      edison db backup --keep 30
      edison db sign results-copy.db
    """


@db.command(cls=EdisonCommand)
@click.pass_obj
def check(state: State) -> None:
    """Check that the results are whole and add up.

    Looks at every page and index of the file, at rows that name others, at the totals of every
    budget against the attempts they are made of, at answers and the checksums of their texts, and
    at the chain of the audit. Changes nothing. Ends with 3 when something is wrong.

    Examples:
      edison db check
      edison db check --json
    """
    terminal, site = Terminal(state), _site(state)
    with closing(open_reader(site.results)) as connection:
        version, checks = version_of(connection), check_database(connection)
    ok = all(found.ok for found in checks)
    if terminal.json:
        terminal.document(
            {
                "ok": ok,
                "path": site.file.results,
                "version": version,
                "size_bytes": site.results.stat().st_size,
                "checks": [_as_json(found) for found in checks],
            }
        )
    for found in checks:
        _show(terminal, found)
    if not ok:
        terminal.note("Next: restore a backup, or report this if no disk is to blame")
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


@db.command("upgrade", cls=EdisonCommand)
@click.pass_obj
def upgrade_file(state: State) -> None:
    """Bring the results file up to date with this version.

    Needs the file for itself: no experiment may be running. A copy is made first; the change
    happens in one transaction, so that it is done or not done. Commands that write do the same by
    themselves; commands that only read ask for it.

    Examples:
      edison db upgrade
    """
    terminal, site = Terminal(state), _site(state)
    done = upgrade(site)
    copy = None if done.copy is None else _relative(done.copy, site.root)
    if terminal.json:
        versions = {"from": done.before, "to": done.after}
        terminal.document({"path": site.file.results, **versions, "backup": copy})
    if done.before == done.after:
        terminal.result(f"{site.file.results} is up to date (version {done.after})")
    else:
        terminal.result(f"{site.file.results}: version {done.before} to {done.after}")
        terminal.result(f"as it was before: {copy}")


@db.command(cls=EdisonCommand)
@click.option(
    "--keep",
    type=click.IntRange(1, 10_000),
    default=30,
    show_default=True,
    metavar="N",
    help="How many of the newest backups to keep.",
)
@click.pass_obj
def backup(state: State, keep: int) -> None:
    """Copy the results to .edison/backups.

    The copy is one whole file of everything stored so far; runs go on meanwhile. To restore one,
    remove results.db, results.db-wal and results.db-shm, then copy it to results.db.

    Examples:
      edison db backup
      edison db backup --keep 7 --json
    """
    terminal, site = Terminal(state), _site(state)
    site.require(Role.VIEWER, "db backup")
    made = back_up(site.results, site.backups, stamp=f"{site.clock():%Y%m%dT%H%M%SZ}", keep=keep)
    path = _relative(made.path, site.root)
    if terminal.json:
        terminal.document(
            {
                "path": path,
                "size_bytes": made.size_bytes,
                "sha256": made.sha256,
                "removed": list(made.removed),
            }
        )
    terminal.result(f"wrote {path} ({made.size_bytes:,} bytes)")
    if made.removed:
        terminal.result(f"removed {counted(len(made.removed), 'older backup')}")


@db.command(cls=EdisonCommand)
@click.pass_obj
def keygen(state: State) -> None:
    """Make a pair of keys for signed results.

    The private key goes to standard output and nowhere else, and never to a terminal: pipe it into
    a secret that only jobs of the default branch get, such as one of an environment, with
    `gh secret set EDISON_SIGNING_KEY --env edison-results`. The public key is told on standard
    error; it belongs into .edison/trust.yaml, under results: public_keys.

    Examples:
      edison db keygen
      edison db keygen --json
    """
    terminal = Terminal(state)
    if sys.stdout.isatty():
        raise UsageError(
            "a private key is not shown on a terminal",
            hint="pipe it: edison db keygen | gh secret set EDISON_SIGNING_KEY --env NAME",
        )
    pair = make_pair()
    if terminal.json:
        terminal.document({"private_key": pair.private, "public_key": pair.public})
    else:
        click.echo(pair.private)
    terminal.note("add the public key to .edison/trust.yaml:")
    terminal.note(f"  results: {{public_keys: [{pair.public}]}}")


@db.command("sign", cls=EdisonCommand)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.pass_obj
def sign_file(state: State, file: Path) -> None:
    """Sign a copy of the results, for jobs of pull requests.

    FILE is a copy that nobody writes to, such as the output `db` of the action. The signature is
    written to FILE.sig; hand both on together. The private key is read from EDISON_SIGNING_KEY, and
    from nowhere else. A job for a pull request signs nothing.

    Examples:
      edison db sign "$RUNNER_TEMP/edison/results.db"
    """
    terminal = Terminal(state)
    if "GITHUB_EVENT_NAME" in os.environ and is_proposed(state.folder):
        raise UsageError(
            "a job for a proposal signs nothing: its answers may be anybody's",
            hint="sign in jobs of the default branch, and give the key to no others",
        )
    path = state.folder / file
    public = sign(path, os.environ.get(VARIABLE, ""))
    written = signature_beside(path)
    if terminal.json:
        terminal.document({"file": str(path), "signature": str(written), "public_key": public})
    terminal.result(f"wrote {written}")


@db.command("adopt", cls=EdisonCommand)
@click.pass_obj
def adopt_file(state: State) -> None:
    """Count results that an earlier job of the same workflow run made.

    In a job for a pull request, results that the job has not made are set aside. Where the workflow
    downloads them from an earlier job of the same run, to go on with `edison resume`, it says so
    with this command, after the download. Elsewhere all results count, and nothing is done.

    Examples:
      edison db adopt
    """
    terminal, site = Terminal(state), _site(state)
    done = adopt(site.results)
    if terminal.json:
        terminal.document({"path": site.file.results, "adopted": done})
    nothing = f"nothing was set aside: {site.file.results} counts as it is"
    terminal.result(f"{site.file.results} counts as made by this run" if done else nothing)


def _site(state: State) -> Site:
    return site_at(state.entered(find_root(state.folder)))


def _show(terminal: Terminal, found: Checked) -> None:
    word = Ink("ok  ", GOOD) if found.ok else Ink("fail", BAD)
    terminal.result(word, f"  {found.what.ljust(10)}  {found.about} ({found.count:,})")
    for problem in found.problems:
        terminal.result(f"        {problem}")
    if found.more:
        terminal.result(f"        and {found.more:,} more")


def _as_json(found: Checked) -> dict[str, Any]:
    return {
        "check": found.what,
        "ok": found.ok,
        "count": found.count,
        "problems": list(found.problems),
        "more": found.more,
    }


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
