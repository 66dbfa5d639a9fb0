"""edison secrets: keys of models, sealed in the repository."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import sealed_keys
from edison_ci.access import site as sites
from edison_ci.access.job import key_environment
from edison_ci.api import key_edits, model_calls
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal
from edison_ci.config import sealed as config_sealed
from edison_ci.documents.record_json import fields_of
from edison_ci.errors import ExitCode, UsageError
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from edison_ci.access.sealed_keys import KeyState
    from edison_ci.api.key_edits import Kept
    from edison_ci.api.model_calls import KeyTest


@click.group(cls=EdisonGroup)
def secrets() -> None:
    """Seal keys in the repository, list and test them.

    Sealed keys are committed in .edison/secrets.yaml. One private key opens them: on this machine
    it is a file that only you can read, in CI the secret EDISON_PRIVATE_KEY. A sealed key is used
    as if its variable were set; a variable that is set takes precedence.

    Examples:
      edison secrets keygen
      edison secrets seal OPENAI_API_KEY
      edison secrets list
      edison secrets test
    """


@secrets.command(cls=EdisonCommand)
@click.pass_obj
def keygen(state: CliState) -> None:
    """Create the private key of the project.

    It is stored in your configuration folder, readable by you only, and is not printed. Its public
    key is written to .edison/secrets.yaml, for everyone who seals a key.

    Examples:
      edison secrets keygen
      edison secrets keygen --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    kept = key_edits.create_pair(sites.Site(project.root, project.file), project.secrets)
    changed, without_place = key_edits.pass_to_workflows(project.root)
    if terminal.json:
        more = {"workflows": changed, "without_place": without_place}
        terminal.document({**_kept_json(kept), **more})
        return
    _show_kept(terminal, kept)
    for path in changed:
        terminal.result(StyledText("wrote", GOOD), f" {path}, which passes it on")
    for path in without_place:
        terminal.result(
            f"  add {config_sealed.PRIVATE_KEY} to env of the step that runs edison in {path}"
        )
    terminal.note("Give it to CI, then seal the first key:")
    terminal.note(f"  gh secret set {config_sealed.PRIVATE_KEY} < {kept.path}")
    terminal.note("  edison secrets seal OPENAI_API_KEY")


def _kept_json(kept: Kept) -> dict[str, Any]:
    public = kept.key.public
    return {
        "public_key": public,
        "fingerprint": sealed_keys.fingerprint(public),
        "private_key_file": str(kept.path),
    }


def _show_kept(terminal: Terminal, kept: Kept) -> None:
    wrote = StyledText("wrote", GOOD)
    terminal.result(wrote, f" {kept.path}, the private key; keep a backup")
    terminal.result(wrote, " .edison/secrets.yaml, with its public key; commit it")


@secrets.command("seal", cls=EdisonCommand)
@click.argument("name")
@click.pass_obj
def seal_one(state: CliState, name: str) -> None:
    """Seal a key and write it to .edison/secrets.yaml.

    NAME is the variable that a model names in models.yaml. The key is asked for, without showing
    it, or read from stdin. A key of this name that is sealed already is replaced.

    Examples:
      edison secrets seal OPENAI_API_KEY
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    key_edits.refuse_name(name)
    public = key_edits.require_public_key(project.secrets)
    replaced = project.secrets.of(name) is not None
    sealed = key_edits.seal_key(
        sites.Site(project.root, project.file), project.secrets, name, _ask(name)
    )
    repository = sealed_keys.repository_name(project.root)
    if terminal.json:
        about = {"name": name, "since": sealed.since, "replaced": replaced}
        terminal.document(
            {**about, "repository": repository, "fingerprint": sealed_keys.fingerprint(public)}
        )
        return
    verb = "replaced" if replaced else "sealed"
    terminal.result(
        StyledText(verb, GOOD),
        f" {name} for {repository}, to be opened by the private key "
        f"{sealed_keys.fingerprint(public)}",
    )
    terminal.note("commit .edison/secrets.yaml")
    if repository == sealed_keys.LOCAL:
        terminal.note("  once it has a remote, seal it again: edison secrets rotate --was none")
    if not any(name in model.variables for model in project.models.values()):
        terminal.note(f"  no model names {name} yet: key_env in {project.file.paths.models}")


def _ask(name: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(f"Key {name} (not shown)", hide_input=True, err=True))
    try:
        return sys.stdin.read(sealed_keys.LONGEST + 10)
    except UnicodeDecodeError:
        raise UsageError("the key is not UTF-8", hint="pipe it as text") from None


@secrets.command("list", cls=EdisonCommand)
@click.pass_obj
def list_keys(state: CliState) -> None:
    """List the keys of models and notifications, and the sealed ones.

    Only the last 4 characters of a key are shown, and nothing of one with fewer than 12. `taken
    from` shows what a run uses: a variable that is set takes precedence over a sealed key.

    Examples:
      edison secrets list
      edison secrets list --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    site = sites.Site(project.root, project.file)
    states = sealed_keys.key_states(project, key_environment(project), site.clock().date())
    if terminal.json:
        terminal.document({"keys": [_state_json(key) for key in states]})
        return
    if not states:
        terminal.note("no model needs a key, and none is sealed")
        return
    head = ("key", "ends in", "taken from", "sealed", "used by", "default of")
    terminal.table([head, *map(_row, states)])
    for key in states:
        if key.fault:
            terminal.note(StyledText(key.name, BAD), f": {key.fault}")
        elif key.sealed and key.since and key.age_days is None:
            terminal.note(StyledText(key.name, ODD), f": sealed on {key.since}, in the future")


def _row(state: KeyState) -> tuple[str, ...]:
    source = str(state.source)
    if state.sealed and state.source == "environment":
        source = "environment, over the sealed one"
    if state.source == "identity":
        source = "identity, in jobs of GitHub"
    age = "" if state.age_days is None else f"{counted(state.age_days, 'day')} ago"
    return (
        state.name,
        f"...{state.ending}" if state.ending else "",
        "cannot be opened" if state.fault and state.source == "sealed" else source,
        (age if state.age_days else "today") if state.age_days is not None else state.since,
        ", ".join(state.models) or "no model",
        ", ".join(state.vendors),
    )


def _state_json(state: KeyState) -> dict[str, Any]:
    unknown = {name: getattr(state, name) or None for name in ("ending", "since", "fault")}
    return {
        **fields_of(state, "name", "source", "sealed", "age_days", "models", default_of="vendors"),
        **unknown,
    }


@secrets.command("test", cls=EdisonCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--yes", is_flag=True, help="Make calls that cost a little without asking.")
@click.pass_obj
def test_keys(state: CliState, names: tuple[str, ...], yes: bool) -> None:
    """Ask the service of each key whether it accepts it.

    Asks for a list of models, which costs nothing. Where that shows nothing, one short call to a
    model is made, after a question, as `edison models test` makes it. A key is sent only where
    trust.yaml allows it. Exit code 3 if a key was refused, has no quota, or could not be tested.

    Examples:
      edison secrets test
      edison secrets test OPENAI_API_KEY --yes
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    run_sessions.require_editor(project, "secrets test")
    site = sites.Site(project.root, project.file)
    testable = [
        key.name
        for key in sealed_keys.key_states(project, key_environment(project), site.clock().date())
        if key.source not in ("missing", "identity")
    ]
    chosen = list(dict.fromkeys(names)) or testable
    if not chosen:
        raise UsageError("no key is set or sealed", hint="edison secrets seal NAME")
    tested = []
    for name in chosen:
        result = model_calls.check_by_list(project, name, offline=state.offline)
        if result.model is not None and _may_call(terminal, result, yes=yes):
            result = model_calls.check_by_call(project, name, result.model, offline=state.offline)
        tested.append(result)
    if terminal.json:
        keys = [fields_of(test, "name", "verdict", "said", "hint") for test in tested]
        terminal.document({"keys": keys})
    else:
        for key in tested:
            color = {"ok": GOOD, "unknown": ODD}.get(key.verdict, BAD)
            terminal.result(StyledText(key.verdict, color), f"  {key.name}: {key.said}")
            if key.hint:
                terminal.note(f"    {key.hint}")
    if any(key.verdict != "ok" for key in tested):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


def _may_call(terminal: Terminal, result: KeyTest, *, yes: bool) -> bool:
    if yes or terminal.json or not sys.stdin.isatty():
        return yes
    assert result.model is not None, "there is a model to call"
    question = f"{result.name}: {result.said}. Send one short call to {result.model.name}?"
    return click.confirm(question, err=True)


@secrets.command(cls=EdisonCommand)
@click.argument("name")
@click.pass_obj
def remove(state: CliState, name: str) -> None:
    """Remove a sealed key that nothing names.

    The box stays in the history of Git: revoke the key at its vendor as well.

    Examples:
      edison secrets remove OLD_API_KEY
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    removed = key_edits.remove_key(sites.Site(project.root, project.file), project, name)
    if terminal.json:
        terminal.document({"name": removed.name, "since": removed.since})
        return
    terminal.result(StyledText("removed", GOOD), f" {name}; commit .edison/secrets.yaml")
    terminal.note("it stays in the history of Git: revoke it at its vendor")


@secrets.command(cls=EdisonCommand)
@click.option(
    "--was",
    metavar="HOST/OWNER/NAME",
    help="Former name of a renamed repository; none if it had no remote.",
)
@click.pass_obj
def rotate(state: CliState, was: str | None) -> None:
    """Seal all keys for a new private key.

    Nothing is written if one of them cannot be opened. Until the new .edison/secrets.yaml is
    merged, CI needs both private keys, the new one for its branch and the former one for others.
    Anyone who had the former one may know the keys: revoke them at their vendors as well.

    Examples:
      edison secrets rotate
      edison secrets rotate --was github.com/acme/old-name
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    kept, former = key_edits.rotate_pair(
        sites.Site(project.root, project.file), project.secrets, was=was
    )
    if terminal.json:
        names = [key.name for key in project.secrets.keys]
        terminal.document({**_kept_json(kept), "former_file": str(former), "sealed": names})
        return
    _show_kept(terminal, kept)
    terminal.result(f"  {counted(len(project.secrets.keys), 'key')} sealed for it")
    terminal.note("Now give CI both private keys, until the new secrets.yaml is merged:")
    old = former if former.exists() else "FILE_OF_THE_FORMER_ONE"
    terminal.note(f"  cat {kept.path} {old} | gh secret set {config_sealed.PRIVATE_KEY}")
    terminal.note("and then the new one only:")
    terminal.note(f"  gh secret set {config_sealed.PRIVATE_KEY} < {kept.path}")
