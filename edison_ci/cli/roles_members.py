"""edison roles add, set, remove, transfer and invite: edits of the members in edison.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from edison_ci.access import member_edits
from edison_ci.access import site as sites
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.config import load, project_files
from edison_ci.config.project import Role as RoleName
from edison_ci.documents import files
from edison_ci.proposals import context, file_proposal

if TYPE_CHECKING:
    from edison_ci.access.site import Site

_ROLE = click.argument("role", type=click.Choice(get_args(RoleName)), metavar="ROLE")
_EMAIL = click.option("--email", metavar="ADDRESS", help="Also the e-mail address of Git.")
_SYNC = "commit edison.yaml, and update CODEOWNERS: edison roles sync"


@click.command(cls=EdisonCommand)
@click.argument("name")
@_ROLE
@_EMAIL
@click.pass_obj
def add(state: CliState, name: str, role: str, email: str | None) -> None:
    """Add a member to edison.yaml.

    NAME is a GitHub login or an e-mail address, ROLE is viewer, reviewer, editor, admin or owner.
    Comments and the rest of the file stay. Needs an admin; for an owner, an owner.

    Examples:
      edison roles add bob reviewer
      edison roles add bob reviewer --email bob@example.com
    """
    site, member = _site(state), member_edits.new_member(name, role, email)
    member_edits.add_member(site, member)
    _told(
        state,
        f"{member_edits.shown_name(member)} is a member: {role}",
        {"added": member_edits.member_entry(member)},
    )


@click.command("set", cls=EdisonCommand)
@click.argument("name")
@_ROLE
@click.pass_obj
def set_(state: CliState, name: str, role: str) -> None:
    """Give a member another role.

    Needs an admin; for an owner, an owner. The last owner stays one.

    Examples:
      edison roles set bob editor
    """
    before = member_edits.set_role(_site(state), name, role)
    said = f"{member_edits.shown_name(before)} is {role}, before: {before.role}"
    changed = {**member_edits.member_entry(before), "role": role, "before": before.role}
    _told(state, said, {"changed": changed})


@click.command(cls=EdisonCommand)
@click.argument("name")
@click.pass_obj
def remove(state: CliState, name: str) -> None:
    """Remove a member from edison.yaml.

    They can no longer sign in, from the next request on. Needs an admin; for an owner, an owner.
    The last owner stays.

    Examples:
      edison roles remove bob
    """
    gone = member_edits.remove_member(_site(state), name)
    _told(
        state,
        f"{member_edits.shown_name(gone)} is no longer a member",
        {"removed": member_edits.member_entry(gone)},
    )
    terminal = Terminal(state)
    if not terminal.json:
        terminal.note(f"delete their password and tokens as well: edison roles revoke {name}")


@click.command("transfer", cls=EdisonCommand)
@click.argument("name")
@click.pass_obj
def transfer_(state: CliState, name: str) -> None:
    """Make a member the owner in your place.

    You become an admin. Needs an owner.

    Examples:
      edison roles transfer bob
    """
    new, old = member_edits.transfer(_site(state), name)
    said = (
        f"{member_edits.shown_name(new)} is an owner, and {member_edits.shown_name(old)} an admin"
    )
    _told(
        state, said, {"owner": member_edits.shown_name(new), "admin": member_edits.shown_name(old)}
    )


@click.command(cls=EdisonCommand)
@click.argument("name")
@_ROLE
@_EMAIL
@click.option("--note", default="", metavar="TEXT", help="The reason, for the pull request.")
@click.pass_obj
def invite(state: CliState, name: str, role: str, email: str | None, note: str) -> None:
    """Propose a member in a pull request.

    The branch edison/invite/NAME has one commit that adds the member to edison.yaml; with a token
    in GITHUB_TOKEN the pull request is opened, and its merge makes them a member. Your branch and
    files stay as they are. Needs an editor: who may approve it is decided by CODEOWNERS.

    Examples:
      edison roles invite bob reviewer --note "reviews the support prompts"
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    site, member = sites.open_site(project.root), member_edits.new_member(name, role, email)
    actor = site.require(sites.Role.EDITOR, "roles invite", member_edits.shown_name(member))
    text = member_edits.text_with_member(site, member)
    review = context.ReviewContext.of(project, offline=state.offline, actor=actor)
    label = "".join(letter if letter.isalnum() else "-" for letter in name.casefold()).strip("-")
    about = file_proposal.ChangeText(
        f"edison/invite/{label}",
        f"Add {member_edits.shown_name(member)} as {role}",
        " ".join(note.split()) or f"{actor.name} invites {member_edits.shown_name(member)}.",
        actor.name,
        ending=f"Proposed by {actor.name}. A merge makes {member_edits.shown_name(member)} a "
        "member with this role. Afterwards update CODEOWNERS: `edison roles sync`.",
    )
    before = files.read(files.WorkingTree(project.root), project_files.PROJECT)
    done = file_proposal.propose_file(
        review, project_files.PROJECT, before=before, after=text.encode("utf-8"), about=about
    )
    pull = done.result.pull_request
    after = {**member_edits.member_entry(member), "branch": done.result.branch}
    site.note(site.entry(actor, "roles invite", member_edits.shown_name(member), after=after))
    if terminal.json:
        told = {"branch": done.result.branch, "pull_request": None if pull is None else pull.url}
        terminal.document({"invited": member_edits.member_entry(member), **told})
    for said in done.notes:
        terminal.result(said.replace("`", ""))


def _told(state: CliState, said: str, document: dict[str, Any]) -> None:
    terminal = Terminal(state)
    if terminal.json:
        terminal.document(document)
        return
    terminal.result(said)
    terminal.note(_SYNC)


def _site(state: CliState) -> Site:
    return sites.open_site(state.enter_project(load.find_root(state.folder)))
