"""edison trust: which key may be sent to which host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import proposal_terms
from edison_ci.access import site as sites
from edison_ci.api import trust_edits
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.config import load, project_files
from edison_ci.documents import files
from edison_ci.documents.record_json import fields_of
from edison_ci.errors import ConfigError, ExitCode, UsageError
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from edison_ci.api.trust_edits import Permission
    from edison_ci.config.load import Project
    from edison_ci.config.trust import TrustFile


@click.group(cls=EdisonGroup)
def trust() -> None:
    """Show and edit which key may be sent to which host.

    The pairs are in .edison/trust.yaml; the keys of known vendors may be sent to the vendors' own
    hosts without an entry. In a job for a pull request the file of the default branch counts, so
    that a change cannot redirect a key.

    Examples:
      edison trust list
      edison trust add VENDOR_KEY https://llm.example:8443
      edison trust check
    """


def _project(state: CliState) -> Project:
    """Return the project on the terms of its base; a key that may not be sent is no error here."""
    root = state.enter_project(load.find_root(state.folder))
    project, problems = load.inspect_project(files.WorkingTree(root), root=root)
    wrong = [problem for problem in project_files.only_errors(problems) if problem.code != "trust"]
    if project is None or wrong:
        raise ConfigError(wrong)
    return proposal_terms.apply_base_terms(project)


@trust.command("list", cls=EdisonCommand)
@click.pass_obj
def list_trust(state: CliState) -> None:
    """List who may send what where, and what else is trusted.

    Lists the pairs of trust.yaml, the built-in ones of keys that models name, what http models may
    send, programs with the variables they get, code that pull requests may run, and hosts in
    private networks.

    Examples:
      edison trust list
      edison trust list --json
    """
    terminal, project = Terminal(state), _project(state)
    pairs = trust_edits.trusted_pairs(project, trust_edits.permissions(project, os.environ))
    if terminal.json:
        listed = [fields_of(pair, "key", "hosts", "models", by="basis") for pair in pairs]
        others = project.trust.model_dump(mode="json", exclude={"version", "keys"})
        terminal.document({"base": project.proposed, "pairs": listed, **others})
        return
    if pairs:
        rows = [(p.key, p.hosts, p.basis, ", ".join(p.models) or "no model") for p in pairs]
        terminal.table([("key", "may be sent to", "by", "used by"), *rows])
    else:
        terminal.note("no model names a key, and trust.yaml lists none")
    _show_others(terminal, project.trust)
    if project.proposed:
        terminal.note("this is the trust.yaml of the base; that of the pull request does not count")


def _show_others(terminal: Terminal, file: TrustFile) -> None:
    for program in file.programs:
        gets = ", ".join(program.env) or "no variables"
        network = "uses the network" if program.network else "has no network in pull requests"
        terminal.result(f"program {program.model}: gets {gets}, {network}")
    for service in file.services:
        paths = ", ".join(service.paths) or "the paths of the default branch"
        headers = f", with the headers {', '.join(service.headers)}" if service.headers else ""
        terminal.result(f"http models at {service.host}: send keys to {paths}{headers}")
    for host in file.hosts:
        terminal.result(f"{host}: CI may call it without a key")
    if file.code.allow:
        terminal.result(f"code in pull requests: {', '.join(file.code.paths) or 'none'}")
    identities = {} if file.identities is None else file.identities.model_dump(exclude_none=True)
    for provider, identity in identities.items():
        claims = ", ".join(f"{name} {value}" for name, value in identity.items() if name != "hosts")
        terminal.result(f"{provider} in jobs of GitHub without a key: {claims}")
    for key in file.results.public_keys:
        terminal.result(f"results signed by {key} are accepted")
    if not file.builtin:
        terminal.result("builtin: false: the vendors' own hosts need an entry as well")


@trust.command("add", cls=EdisonCommand)
@click.argument("key", metavar="KEY")
@click.argument("host", metavar="HOST")
@click.option("--unencrypted", is_flag=True, help="Allow http:// to another machine.")
@click.pass_obj
def add_trust(state: CliState, key: str, host: str, unencrypted: bool) -> None:
    """Allow a key to be sent to a host.

    KEY is the name of the variable, HOST is https://host:port. Comments and the rest of trust.yaml
    stay as they are. A host with http:// is refused unless it is this machine. Needs an admin.

    Examples:
      edison trust add VENDOR_KEY https://llm.example:8443
      edison trust add VENDOR_KEY http://llm.lan:8080 --unencrypted
    """
    terminal, project = Terminal(state), _project(state)
    if project.proposed:
        raise UsageError(
            "this is a job for a pull request, whose trust.yaml does not count",
            hint="change it in a clone, and merge it",
        )
    site = sites.open_site(project.root)
    added = trust_edits.trust_key(site, project.trust, key, host, unencrypted=unencrypted)
    if terminal.json:
        terminal.document({"key": key, "host": added})
        return
    terminal.result(StyledText("trusted", GOOD), f" {key} may now be sent to {added}")
    if added.startswith("http://"):
        terminal.result(StyledText(f"  the key is sent to {added} without encryption", ODD))
    terminal.note("commit .edison/trust.yaml; pull requests use it after it is merged")


@trust.command("check", cls=EdisonCommand)
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.pass_obj
def check_trust(state: CliState, names: tuple[str, ...]) -> None:
    """Check for each model that its keys may go where they would go.

    Says which key goes to which host, what allows it, and what to add where nothing does. Exit code
    2 if a key may not be sent. Nothing is called.

    Examples:
      edison trust check
      edison trust check small --json
    """
    terminal, project = Terminal(state), _project(state)
    for name in names:
        if name not in project.models:
            hint = did_you_mean(name, project.models, label="models")
            raise UsageError(f"there is no model {name!r}", hint=hint)
    permissions = trust_edits.permissions(project, os.environ)
    chosen = [permission for permission in permissions if not names or permission.model in names]
    unused = [
        (pair.key, pair.hosts)
        for pair in trust_edits.trusted_pairs(project, permissions)
        if pair.basis == "trust.yaml" and not pair.models
    ]
    if terminal.json:
        pairs = [{"key": key, "host": host} for key, host in unused]
        terminal.document(
            {"keys": [_permission_json(permission) for permission in chosen], "unused": pairs}
        )
    else:
        for permission in chosen:
            _show(terminal, permission)
        if not chosen:
            terminal.note("no model sends a key")
        for key, host in unused if not names else ():
            terminal.note(f"no model sends {key} to {host}, which trust.yaml allows")
    if any(permission.basis == "not allowed" and permission.host for permission in chosen):
        raise click.exceptions.Exit(ExitCode.INVALID)


def _show(terminal: Terminal, permission: Permission) -> None:
    if not permission.host:
        goal = f"the address in {permission.variable}, not set here"
        route = f"  {permission.model}: {permission.key} goes to {goal}"
        terminal.result(StyledText("unknown", ODD), route)
        return
    what = "credentials of a job" if permission.basis == "identity" else permission.key
    route = f"  {permission.model}: {what} to {permission.host}"
    if permission.basis == "not allowed":
        path = f" with the path {permission.path}" if permission.path else ""
        terminal.result(StyledText("refused", BAD), f"{route}{path}, which nothing allows")
        terminal.note(f"    {permission.hint}")
        return
    terminal.result(StyledText("allowed", GOOD), f"{route}, by {_by(permission)}")
    if permission.host.startswith("http://"):
        terminal.note("    without encryption")


def _by(permission: Permission) -> str:
    words = {"trust.yaml": "its entry in trust.yaml", "built in": "the built-in pair"}
    return words.get(permission.basis, "the identity in trust.yaml")


def _permission_json(permission: Permission) -> dict[str, Any]:
    where = fields_of(permission, "model", "key", by="basis")
    return {**where, "host": permission.host or None}
