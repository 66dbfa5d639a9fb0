"""edison github approvals: whether enough people have approved a pull request."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

import click

from edison_ci.access import events
from edison_ci.access import site as sites
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, StyledText, Terminal
from edison_ci.config import load, project_files
from edison_ci.errors import ConfigError, ExitCode, UsageError
from edison_ci.features.github import code_owners
from edison_ci.features.github import forge as github_forge
from edison_ci.git import host, objects
from edison_ci.git import repository as git
from edison_ci.numeric import counted
from edison_ci.proposals import approvals as review_approvals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.project import ProjectFile
    from edison_ci.features.github.code_owners import OwnedPath
    from edison_ci.git.host import RepositoryAddress
    from edison_ci.proposals.approvals import ApprovalCount


class _PullRequestApprovals(NamedTuple):
    number: int
    files: int
    """Changed files that need the approval of a member."""
    approvals: ApprovalCount
    role: sites.Role
    """The role that at least one of the approvers must have."""
    has_role: bool

    @property
    def ok(self) -> bool:
        return not self.files or (self.approvals.enough and self.has_role)


@click.command(cls=EdisonCommand)
@click.pass_obj
def approvals(state: CliState) -> None:
    """Check that enough people have approved a pull request.

    For a job with the event pull_request or pull_request_review. Counts the members whose last
    review approves the newest commit, each once, without the author of the pull request; at least
    one of them must have the role that CODEOWNERS asks for. Members and settings.approvals are
    those of the default branch, so that a pull request cannot change them for itself. So are the
    files that need an approval: those in the folders of the project, and all that their
    experiments use, such as prompts, checks and programs in other folders. Other files need none.
    The exit code is 1 until there are enough.

    Examples:
      edison github approvals
      edison github approvals --json
    """
    terminal, event = Terminal(state), events.read_event(os.environ)
    if event.number is None:
        raise UsageError(
            f"the event {event.name!r} has no pull request",
            hint="use on: pull_request and on: pull_request_review",
        )
    root = state.enter_project(load.find_root(state.folder))
    repository = git.Repository.find(root)
    commit = events.policy_commit(event, repository) if repository is not None else None
    if repository is None or commit is None:
        raise UsageError(
            "the commit of the default branch cannot be read",
            hint="check out with actions/checkout and fetch-depth: 2",
        )
    folder = root.resolve().relative_to(repository.root.resolve()).as_posix()
    prefix = "" if folder == "." else f"{folder}/"
    tree = objects.CommitTree(repository, commit, prefix)
    if not tree.exists(project_files.PROJECT):
        raise UsageError(
            f"the default branch has no {project_files.PROJECT}",
            hint="merge the project first, without members",
        )
    project, problems = load.inspect_project(tree, root=root)
    wrong = project_files.only_errors(problems)
    if project is None:
        raise ConfigError(wrong)
    paths = code_owners.owned_paths(project, prefix)
    if wrong:  # a file that cannot be read could use any other
        paths.append(code_owners.OwnedPath(prefix, sites.Role.REVIEWER))
    address = host.repository_address(os.environ)
    result = asyncio.run(_read(address, event.number, project.file, paths))
    if terminal.json:
        terminal.document(
            {
                "ok": result.ok,
                "pull_request": result.number,
                "files": result.files,
                "needed": result.approvals.needed,
                "by": [*result.approvals.by],
                "role": result.role.word if result.files else None,
            }
        )
    _show(terminal, result)
    if not result.ok:
        raise click.exceptions.Exit(ExitCode.GATE_FAILED)


async def _read(
    address: RepositoryAddress, number: int, file: ProjectFile, paths: Sequence[OwnedPath]
) -> _PullRequestApprovals:
    async with github_forge.GitHub(address) as github:
        pull = await github.pull_request(number)
        changed = await github.changed_files(number)
        reviews = await github.reviews.of(number)
    names = {name for each in changed for name in (each.path, each.previous) if name}
    needed = {name: [each.role for each in paths if each.covers(name)] for name in names}
    roles = [max(each) for each in needed.values() if each]
    count = review_approvals.count_approvals(
        file, review_approvals.review_approvers(pull, reviews), [pull.author.login]
    )
    role = max(roles, default=sites.Role.REVIEWER)
    members = [review_approvals.person(name, file.members) for name in count.by]
    has_role = any(each is not None and sites.Role[each.role.upper()] >= role for each in members)
    return _PullRequestApprovals(number, len(roles), count, role, has_role)


def _show(terminal: Terminal, result: _PullRequestApprovals) -> None:
    where = f"pull request {result.number}"
    if not result.files:
        terminal.result(f"{where} changes no file of the project: no approval is needed here")
        return
    mark = StyledText("ok", GOOD) if result.ok else StyledText("waiting", BAD)
    files = counted(result.files, "file")
    terminal.result(mark, f"  {where}: {result.approvals.words} for {files}")
    if not result.has_role:
        words = "an admin or owner" if result.role is sites.Role.ADMIN else f"a {result.role.word}"
        terminal.result(f"  one of the approvals has to be by {words}")
