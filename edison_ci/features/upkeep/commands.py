"""edison admin db, cache, gc and bundle: check, back up, sign, clean up and bundle the results."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edison_ci import utc
from edison_ci.access import own_results, proposal_terms
from edison_ci.access import site as sites
from edison_ci.api import recordings
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_mark
from edison_ci.documents import record_json, signatures
from edison_ci.errors import ExitCode, UsageError
from edison_ci.features.upkeep import maintenance, project_bundles, retention
from edison_ci.numeric import counted, dollars

if TYPE_CHECKING:
    from edison_ci.store.answers import FreedTexts, ModelCache
    from edison_ci.store.backup import BackupContent
    from edison_ci.store.integrity import CheckResult


@click.group(cls=EdisonGroup)
def db() -> None:
    """Check, back up, restore and sign the results file.

    Examples:
      edison admin db check
      edison admin db backup --keep 30
      edison admin db restore results-20261115T051816Z.db
      edison admin db sign results-copy.db
    """


@db.command(cls=EdisonCommand)
@click.pass_obj
def check(state: CliState) -> None:
    """Check the integrity of the results file.

    Checks every page and index, foreign keys, the totals of every budget against its attempts, the
    checksums of answers, and the chain of the audit log. Changes nothing. The exit code is 3 if
    something is wrong.

    Examples:
      edison admin db check
      edison admin db check --json
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    report = maintenance.check(site)
    if terminal.json:
        terminal.document(
            {
                "ok": report.ok,
                "path": site.file.results,
                "version": report.version,
                "size_bytes": site.results.stat().st_size,
                "checks": [
                    {
                        "check": result.what,
                        **record_json.fields_of(result, "ok", "count", "problems", "more"),
                    }
                    for result in report.checks
                ],
            }
        )
    for result in report.checks:
        _show(terminal, result)
    if not report.ok:
        terminal.note("Next: restore a backup, and report a bug unless the disk failed")
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


@db.command("upgrade", cls=EdisonCommand)
@click.pass_obj
def upgrade_file(state: CliState) -> None:
    """Upgrade the results file to this version.

    No experiment may be running. A backup is made first, and the upgrade is one transaction.
    Commands that write upgrade the file themselves; commands that only read ask for it.

    Examples:
      edison admin db upgrade
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    done = maintenance.upgrade(site)
    copy = None if done.copy is None else _relative(done.copy, site.root)
    if terminal.json:
        versions = {"from": done.before, "to": done.after}
        terminal.document({"path": site.file.results, **versions, "backup": copy})
    if done.before == done.after:
        terminal.result(f"{site.file.results} is up to date (version {done.after})")
    else:
        terminal.result(f"{site.file.results}: version {done.before} to {done.after}")
        terminal.result(f"backup: {copy}")


@db.command(cls=EdisonCommand)
@click.option(
    "--keep",
    type=click.IntRange(1, 10_000),
    default=30,
    show_default=True,
    metavar="N",
    help="Number of backups to keep.",
)
@click.pass_obj
def backup(state: CliState, keep: int) -> None:
    """Copy the results file to .edison/backups.

    The copy is one complete file; runs may continue meanwhile. `edison serve` and `edison schedule
    run` make one every day and keep settings.backups of them. Restore one with `edison admin db
    restore`.

    Examples:
      edison admin db backup
      edison admin db backup --keep 7 --json
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    site.require(sites.Role.VIEWER, "db backup")
    made = maintenance.make_backup(site, keep)
    path = _relative(made.path, site.root)
    if terminal.json:
        fields = record_json.fields_of(made, "size_bytes", "sha256", "removed")
        terminal.document({"path": path, **fields})
    terminal.result(f"wrote {path} ({made.size_bytes:,} bytes)")
    if made.removed:
        terminal.result(f"removed {counted(len(made.removed), 'older backup')}")


@db.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--as-own", is_flag=True, help="Restore an unsigned file that is from elsewhere.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def restore(state: CliState, file: Path, as_own: bool, yes: bool) -> None:
    """Replace the results by a backup.

    FILE is a path, or the name of a file in .edison/backups. All that it says counts as made here:
    answers, grades and costs. So a file from elsewhere has to be signed with a key of
    .edison/trust.yaml, unless --as-own says that it is yours.

    Shows what is replaced and asks for confirmation. The backup is checked like by `edison admin db
    check` first, and the present file is kept in .edison/backups. No experiment may be running;
    pages that are being served show the restored results at once.

    Examples:
      edison admin db restore results-20261115T051816Z.db
      edison admin db restore /mnt/copies/results.db --as-own --yes
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    source = maintenance.find_backup(site, state.folder, file)
    if not as_own:
        maintenance.require_own(site, source)
    preview = maintenance.preview_restore(site, source)
    if not yes:
        present = "no readable results" if preview.present is None else _content(preview.present)
        terminal.note(f"this replaces {present}")
        terminal.note(f"by {source.name}: {_content(preview.backup)}")
        _confirm(terminal, "the results would be replaced", "run with --yes")
    done = maintenance.restore(site, source, as_own=as_own)
    kept = None if done.kept is None else _relative(done.kept, site.root)
    if terminal.json:
        about = {"path": site.file.results, "from": str(source), "kept": kept}
        terminal.document({**about, **asdict(done.content)})
    terminal.result(f"restored {site.file.results}: {_content(done.content)}")
    if kept is not None:
        terminal.result(f"what was there is kept: {kept}")
    if not done.readable:
        terminal.note("it could not be read; restart edison serve, if it runs")


def _content(content: BackupContent) -> str:
    newest = content.newest_run_at
    return counted(content.runs, "run") + (f", newest {utc.to_minute(newest)}" if newest else "")


@db.command(cls=EdisonCommand)
@click.pass_obj
def keygen(state: CliState) -> None:
    """Create a key pair for signed results.

    The private key is written to stdout only, and never to a terminal: pipe it into a secret that
    only jobs of the default branch get, such as that of an environment, with `gh secret set
    EDISON_SIGNING_KEY --env edison-results`. The public key is printed to stderr; add it to
    .edison/trust.yaml, under results: public_keys.

    Examples:
      edison admin db keygen
      edison admin db keygen --json
    """
    terminal = Terminal(state)
    if sys.stdout.isatty():
        raise UsageError(
            "the private key is not printed to a terminal",
            hint="pipe it: edison admin db keygen | gh secret set EDISON_SIGNING_KEY --env NAME",
        )
    pair = signatures.generate_keys()
    if terminal.json:
        terminal.document({"private_key": pair.private, "public_key": pair.public})
    else:
        click.echo(pair.private)
    terminal.note("add the public key to .edison/trust.yaml:")
    terminal.note(f"  results: {{public_keys: [{pair.public}]}}")


@db.command("sign", cls=EdisonCommand)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.pass_obj
def sign_file(state: CliState, file: Path) -> None:
    """Sign a copy of the results file, for jobs of pull requests.

    FILE is a copy that no process writes to, such as the output `db` of the action. The signature
    is written to FILE.sig; keep both files together. The private key is read from
    EDISON_SIGNING_KEY only. A job for a pull request cannot sign.

    Examples:
      edison admin db sign "$RUNNER_TEMP/edison/results.db"
    """
    terminal = Terminal(state)
    if "GITHUB_EVENT_NAME" in os.environ and proposal_terms.is_proposed(state.folder):
        raise UsageError(
            "a job for a pull request cannot sign results, because the change may have made them",
            hint="sign in jobs of the default branch, and give the key to those only",
        )
    path = state.folder / file
    public = own_results.sign(path, os.environ.get(signatures.VARIABLE, ""))
    written = own_results.signature_path(path)
    if terminal.json:
        terminal.document({"file": str(path), "signature": str(written), "public_key": public})
    terminal.result(f"wrote {written}")


@db.command("adopt", cls=EdisonCommand)
@click.pass_obj
def adopt_file(state: CliState) -> None:
    """Accept results from an earlier job of the same workflow run.

    In a job for a pull request, results that the job has not made are set aside. If the workflow
    downloads results of an earlier job of the same run, to continue with `edison resume`, run this
    command after the download. Elsewhere all results are accepted, and the command does nothing.

    Examples:
      edison admin db adopt
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    done = own_results.adopt(site.results)
    if terminal.json:
        terminal.document({"path": site.file.results, "adopted": done})
    nothing = f"nothing to do: {site.file.results} is accepted already"
    terminal.result(
        f"{site.file.results} is accepted as made by this workflow run" if done else nothing
    )


def _show(terminal: Terminal, result: CheckResult) -> None:
    word = StyledText("ok  ", GOOD) if result.ok else StyledText("fail", BAD)
    terminal.result(word, f"  {result.what.ljust(10)}  {result.about} ({result.count:,})")
    for problem in result.problems:
        terminal.result(f"        {problem}")
    if result.more:
        terminal.result(f"        and {result.more:,} more")


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


@click.group(cls=EdisonGroup)
def cache() -> None:
    """Show, clear or export stored answers.

    Examples:
      edison admin cache stats
      edison admin cache export recordings/all.jsonl
    """


@cache.command(cls=EdisonCommand)
@click.pass_obj
def stats(state: CliState) -> None:
    """Show stored answers and what their reuse saved.

    By model: the number of answers, of those with text and its size, their dates and cost, how
    often cells use them, and the cost that reuse saved.

    Examples:
      edison admin cache stats
      edison admin cache stats --json
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    stored = maintenance.stored_answers(site)
    models, total = stored.models, stored.total
    if terminal.json:
        terminal.document({"models": [asdict(model) for model in models], "total": total})
        return
    if not models:
        terminal.note("no answers are stored yet")
        return
    rows: list[tuple[str, ...]] = [
        ("model", "answers", "with text", "size", "oldest", "newest", "cost", "uses", "saved", "")
    ]
    rows += [_cache_row(model) for model in models]
    terminal.table(rows, right=(1, 2, 3, 6, 7, 8))
    used = f"{counted(total['answers'], 'answer')}, {counted(total['uses'], 'use')}"
    mark = simulated_mark(total["simulated"], total["answers"])
    terminal.result(
        f"{used}: reuse saved {dollars(total['saved_microusd'])}",
        *([StyledText(f"  {mark}", ODD)] if mark else []),
    )


@cache.command("clear", cls=EdisonCommand)
@click.option("--all", "everything", is_flag=True, help="Also clear texts that cells of runs use.")
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(0, 36_500),
    metavar="DAYS",
    help="Clear only texts stored more than DAYS days ago.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def clear_cache(
    state: CliState, everything: bool, days: int | None, dry_run: bool, yes: bool
) -> None:
    """Delete the texts of answers that no cell uses.

    Shows what would be deleted and asks for confirmation. Tokens, cost and time of every answer
    stay, and so do all scores. A call whose text is deleted is made and paid for again when it is
    needed. With --all the texts of runs are deleted too; their cells can then no longer be read or
    graded again.

    Examples:
      edison admin cache clear --dry-run
      edison admin cache clear --older-than 30 --yes
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    selection = maintenance.CacheSelection(everything, days)
    gone = maintenance.preview_clear(site, selection)
    cleared = False
    if gone.texts and not dry_run:
        if not yes:
            _ask(terminal, gone)
        gone, cleared = maintenance.clear(site, selection), True
    if terminal.json:
        terminal.document({"cleared": cleared, **asdict(gone)})
    what = f"{counted(gone.texts, 'text')} ({gone.size_bytes:,} bytes)"
    terminal.result(f"cleared {what}" if cleared else f"would clear {what}; nothing was changed")


@cache.command(cls=EdisonCommand)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.pass_obj
def export(state: CliState, file: Path) -> None:
    """Write the newest answer of every call to a recording.

    A recording is replayed with `edison run --replay`: no key, no network, the same numbers. It
    holds answers, but no prompts and no headers. Only recordings are overwritten.

    Examples:
      edison admin cache export recordings/all.jsonl
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    path = state.folder / file
    count = recordings.export_recording(site, path)
    if terminal.json:
        terminal.document({"path": str(file), "answers": count, "size_bytes": path.stat().st_size})
    terminal.result(f"wrote {file}: {counted(count, 'answer')}")


def _ask(terminal: Terminal, gone: FreedTexts) -> None:
    terminal.note(f"this deletes {counted(gone.texts, 'text')} ({gone.size_bytes:,} bytes)")
    what = f"{counted(gone.texts, 'text')} would be deleted"
    _confirm(terminal, what, "check with --dry-run, then run with --yes")


def _confirm(terminal: Terminal, what: str, hint: str) -> None:
    """Ask for confirmation; raises UsageError without a terminal."""
    if terminal.json or not sys.stdin.isatty():
        raise UsageError(f"{what}, and there is no terminal to confirm it", hint=hint)
    click.confirm("Continue?", abort=True, err=True)


def _cache_row(model: ModelCache) -> tuple[str, ...]:
    return (
        model.model,
        f"{model.answers:,}",
        f"{model.texts:,}",
        f"{model.size_bytes:,}",
        model.oldest[:10],
        model.newest[:10],
        dollars(model.cost_microusd),
        f"{model.uses:,}",
        dollars(model.saved_microusd),
        simulated_mark(model.simulated, model.answers),
    )


@click.command(cls=EdisonCommand)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and change nothing.")
@click.option("--vacuum", is_flag=True, help="Return the free space to the disk; takes a while.")
@click.pass_obj
def gc(state: CliState, dry_run: bool, vacuum: bool) -> None:
    """Delete texts older than retention_days.

    Deletes the texts of answers and the reasons of checks and judges; all numbers stay. Newer runs,
    the newest complete run of each experiment, prompt versions in production, and cells that were
    graded by hand or are in quarantine keep their texts. No experiment may be running. With
    settings.retention_days: 0 texts are kept forever.

    Examples:
      edison admin gc --dry-run
      edison admin gc --vacuum
    """
    terminal = Terminal(state)
    site = lookup.open_site(state)
    days = site.file.settings.retention_days
    before = site.results.stat().st_size if site.results.exists() else 0
    gone = retention.preview_gc(site) if dry_run else retention.gc(site, vacuum=vacuum)
    after = site.results.stat().st_size
    if terminal.json:
        about = {"retention_days": days, "dry_run": dry_run, **asdict(gone)}
        terminal.document({**about, "file_bytes": {"before": before, "after": after}})
    if days == 0:
        terminal.result("texts are kept forever: settings.retention_days is 0")
        return
    verb = "would delete" if dry_run else "deleted"
    terminal.result(f"{verb} {counted(gone.texts, 'text')} ({gone.size_bytes:,} bytes)")
    terminal.result(f"{verb} {counted(gone.reasons, 'reason')}, {counted(gone.events, 'event')}")
    if gone.of_features:
        terminal.result(f"{verb} {counted(gone.of_features, 'text')} of features")
    terminal.result(f"kept {counted(gone.spared_texts, 'text')} older than {days} days")
    if not dry_run and gone.texts and not vacuum:
        terminal.note("the file reuses the space; --vacuum returns it to the disk")


_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=EdisonGroup)
def bundle() -> None:
    """Bundle a whole project, or restore one.

    Examples:
      edison admin bundle create project.zip
      edison admin bundle restore project.zip restored
    """


@bundle.command("create", cls=EdisonCommand)
@click.argument("file", type=_FILE, metavar="FILE")
@click.pass_obj
def create_bundle(state: CliState, file: Path) -> None:
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
    site = lookup.open_site(state)
    made = project_bundles.write_project_bundle(site, state.folder / file)
    if terminal.json:
        terminal.document({"file": str(file), **record_json.as_document(made)})
        return
    what = f"{counted(made.files, 'file')}, {counted(made.runs, 'run')}"
    terminal.result(f"wrote {file}: {what}, {made.size_bytes:,} bytes")
    for path in made.left_out:
        terminal.note(f"left out, as it is a link or may hold a key: {path}")


@bundle.command("restore", cls=EdisonCommand)
@click.argument("file", type=_FILE, metavar="FILE")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.pass_obj
def restore_bundle(state: CliState, file: Path, folder: Path) -> None:
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
        fields = record_json.fields_of(made, "files", "runs", "audit_rows", "own")
        terminal.document({"folder": str(folder), **fields})
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
