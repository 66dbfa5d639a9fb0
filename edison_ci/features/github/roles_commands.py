"""edison roles check and sync: members against CODEOWNERS and the protected branch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.documents import record_json
from edison_ci.errors import ExitCode
from edison_ci.features.github import roles_check
from edison_ci.git import host as repository_host
from edison_ci.git import repository as git

if TYPE_CHECKING:
    from edison_ci.access.site import Site
    from edison_ci.git.host import RepositoryAddress


@click.command(cls=EdisonCommand)
@click.pass_obj
def check(state: CliState) -> None:
    """Compare members with CODEOWNERS and the protected branch.

    Finds: no owner; people who may approve on GitHub and not here, or the other way round; one
    address of several people, and one person with several entries, among the authors of commits;
    and rules that the default branch lacks. The rules are read with the token in GITHUB_TOKEN;
    without one, or with --offline, they are not looked at. Nothing is changed. The exit code is 1
    if there is a problem; notes do not count.

    Examples:
      edison roles check
      edison roles check --json
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    address, why = _forge(state, site)
    result = roles_check.check_roles(site, address, why_no_forge=why)
    if terminal.json:
        names = ("ok", "findings", "looked_at", "not_looked_at")
        terminal.document(record_json.fields_of(result, *names))
    for subject in result.looked_at:
        terminal.result(StyledText("looked at", GOOD), f"      {subject}")
    for subject in result.not_looked_at:
        terminal.result(StyledText("not looked at", ODD), f"  {subject}")
    for finding in result.findings:
        word = StyledText("problem", BAD) if finding.problem else StyledText("note", ODD)
        terminal.result(word, f"  {finding.message}")
        terminal.note(f"  {finding.hint}")
    if result.ok:
        terminal.result("no problem found")
    else:
        raise click.exceptions.Exit(ExitCode.GATE_FAILED)


@click.command(cls=EdisonCommand)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if outdated.")
@click.pass_obj
def sync(state: CliState, only_check: bool) -> None:
    """Write CODEOWNERS from the members, and say how to protect the branch.

    Reviewers and above own prompts, experiments, datasets and rubrics; admins and owners own
    edison.yaml, models.yaml, .edison/ and .github/. The lines are at the end of CODEOWNERS, where
    they count, between two comments; all other lines stay. Needs an admin. The settings of the
    branch are printed, and never changed.

    Examples:
      edison roles sync
      edison roles sync --check
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    file, advice = roles_check.code_owners(site), roles_check.protection_advice(site)
    outdated = not file.current
    if outdated and not only_check:
        roles_check.write_code_owners(site, file)
    if terminal.json:
        terminal.document(
            {
                "file": file.path,
                "current": file.current or not only_check,
                "changed": outdated and not only_check,
                "text": file.wanted,
                "protection": advice,
            }
        )
    elif outdated and only_check:
        terminal.result(f"{file.path} is outdated; write it: edison roles sync")
    else:
        terminal.result(f"{file.path} is {'written: commit it' if outdated else 'up to date'}")
        if not site.file.members:
            terminal.note("edison.yaml has no members, so it has no lines of edison")
        terminal.note("It counts only if the default branch is protected. On GitHub, in Settings,")
        terminal.note("Rules, Rulesets, for the default branch:")
        for setting in advice:
            terminal.note(f"  {setting}")
        terminal.note("See what is missing: edison roles check")
    if outdated and only_check:
        raise click.exceptions.Exit(ExitCode.GATE_FAILED)


def _forge(state: CliState, site: Site) -> tuple[RepositoryAddress | None, str]:
    """Return the repository on GitHub; without one, the reason."""
    repository = git.Repository.find(site.root)
    if repository is None:
        return None, "the project is in no Git repository"
    if state.offline:
        return None, "network access is disabled by --offline"
    host = repository_host.find_host(repository, os.environ)
    why = "no GITHUB_TOKEN, or not a repository on GitHub"
    return host.address, "" if host.address is not None else why
