"""edison promote: the version of a prompt that is in production."""

from __future__ import annotations

import click

from edison_ci.cli.choosing import prompt_named
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import project_at, results_of
from edison_ci.cli.terminal import Terminal
from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean
from edison_ci.operate.promoting import promote as promote_version
from edison_ci.operate.site import Site
from edison_ci.plan.versions import short
from edison_ci.results.versions import History, Version, named, results_by_version


@click.command(cls=EdisonCommand)
@click.argument("prompt")
@click.argument("version")
@click.pass_obj
def promote(state: State, prompt: str, version: str) -> None:
    """Mark the version of a prompt that is in production.

    PROMPT is a path or an id; VERSION a label (v2), a hash, a Git ref, or `current` for the file as
    it is. Writes `production` into the front matter of the prompt, which changes no version, and
    nothing else: commit it like any change. `edison compare production latest` and `edison history`
    know it then. Needs the role editor.

    Examples:
      edison promote support-reply v2
      edison promote support-reply current
      edison promote prompts/support-reply.md 3f9a41c2 --json
    """
    terminal = Terminal(state)
    project = project_at(state)
    found = prompt_named(project, prompt, state.folder)
    history = History.of(found, project)
    meant = _meant(history, version)
    before = found.header.production
    changed = promote_version(Site(project.root, project.file), project, found, short(meant.hash))
    measured = False
    if (project.root / project.file.results).exists():
        with results_of(project) as connection:
            measured = meant.hash in results_by_version(connection, found.id, [meant.hash])
    if terminal.json:
        told = {"label": meant.label, "hash": short(meant.hash), "version": meant.hash}
        terminal.document(
            {
                "prompt": {"id": found.id, "path": found.path},
                **told,
                "before": before or None,
                "changed": changed,
                "measured": measured,
            }
        )
        return
    said = "is in production" if changed else "is in production already"
    terminal.result(f"{found.id} {meant.label} ({short(meant.hash)}) {said}")
    if changed and history.repository is not None:
        terminal.note(f"commit it: git commit {found.path}")
    if "+" in meant.label:
        terminal.note("this version is not on the default branch yet")
    if not measured:
        terminal.note("no complete run has this version: nothing can be compared with it yet")


def _meant(history: History, word: str) -> Version:
    versions = history.versions()
    if word == "current":
        return next(one for one in versions if one.hash == history.prompt.version)
    if known := named(versions, word):
        return known
    if history.repository is not None:
        try:
            there = history.at(history.repository.resolve(word))
        except UsageError:
            there = None
        if there is not None:
            return there
    labels = [version.label for version in versions]
    hint = did_you_mean(word, [*labels, "current"], label="versions")
    raise UsageError(f"{history.prompt.id} has no version {word!r}", hint=hint)
