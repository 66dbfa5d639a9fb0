"""The prompts: which versions has each had, and did changing it help?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import EdisonError, UsageError
from edison_ci.names import did_you_mean
from edison_ci.report.components import diff_view
from edison_ci.report.datasette_plugin.looking import Crumb, Look, Page
from edison_ci.report.datasette_plugin.remembering import remembered
from edison_ci.report.datasette_plugin.workspace import git_state, project_of
from edison_ci.results.slices import Shown
from edison_ci.results.versions import History, Version
from edison_ci.store.runs import NO_TRIAL

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.report.markup import Html

_MOST_CHARS = 200_000
"""Of longer prompts no difference is shown."""


class PromptLine(NamedTuple):
    """A prompt as the list shows it."""

    prompt: str
    versions: int
    last: str
    experiment: str


class Result(NamedTuple):
    """How a version did with a model, in its newest complete run."""

    model: str
    run_id: str
    experiment: str
    created_at: str
    composite: Shown
    simulated: bool
    partial: bool


class VersionLine(NamedTuple):
    """A version of a prompt."""

    hash: str
    label: str
    author: str
    date: str
    subject: str
    commit: str
    results: tuple[Result, ...]
    text: str | None


def prompts(look: Look) -> Page:
    """Return every prompt that was ever run."""
    rows = look.connection.execute(
        "select m.prompt, count(distinct m.version), max(r.created_at), max(r.experiment) "
        f"from rollup_model m join run r on r.id = m.run_id where {NO_TRIAL} "
        "group by m.prompt order by 3 desc"
    )
    return Page(
        "prompts", "Prompts", {"prompts": [PromptLine(*row) for row in rows]}, area="prompts"
    )


def prompt(look: Look) -> Page:
    """Return the versions of a prompt, newest first, and what one of them changed."""
    name = look.path["prompt"]
    results = _results(look.connection, name)
    if not results:
        rows = look.connection.execute("select distinct prompt from rollup_model")
        hint = did_you_mean(name, [each for (each,) in rows], label="prompts")
        raise UsageError(f"no version of a prompt {name!r} was measured", hint=hint)
    known, cut_off, why = _lineage(look, name)
    lines = _lines(known, results)
    wanted = look.args.text("version")
    chosen = next((i for i, line in enumerate(lines) if line.hash.startswith(wanted)), 0)
    before = next((line for line in lines[chosen + 1 :] if line.text is not None), None)
    return Page(
        "prompt",
        f"Prompt {name}",
        {
            "prompt": name,
            "versions": lines,
            "chosen": lines[chosen],
            "before": before,
            "changes": _changes(before, lines[chosen]),
            "cut_off": cut_off,
            "why": why,
        },
        crumbs=(Crumb("Prompts", look.links.to("prompts")),),
        area="prompts",
    )


def _results(connection: sqlite3.Connection, prompt: str) -> dict[str, list[Result]]:
    """Return the newest complete result of each version with each model.

    Whole runs come first, and a version's own before those in which it was the base, which have no
    intervals.
    """
    rows = connection.execute(
        "select m.version, m.model, m.run_id, r.experiment, r.created_at, m.composite, "
        "m.composite_low, m.composite_high, m.composite_n, m.composite_method, r.simulated, "
        "r.partial from rollup_model m join run r on r.id = m.run_id "
        f"where m.prompt = ? and r.complete = 1 and {NO_TRIAL} "
        "order by r.partial, m.side desc, r.created_at desc, m.model",
        (prompt,),
    )
    found: dict[str, list[Result]] = {}
    for version, model, run_id, experiment, created_at, *rest in rows:
        known = found.setdefault(version, [])
        if model not in {each.model for each in known}:
            shown = Shown(*rest[:5])
            known.append(Result(model, run_id, experiment, created_at, shown, *map(bool, rest[5:])))
    return found


def _lineage(look: Look, name: str) -> tuple[list[Version], bool, str]:
    """Return what Git knows of the versions, oldest first, or why it knows nothing."""
    project = project_of(look)
    if project is None:
        return [], False, "Texts are in the project's files, which are not beside these results."
    found = next((each for each in project.prompts.values() if each.id == name), None)
    if found is None:
        return [], False, "The prompt is no longer in the project."

    def asked() -> tuple[list[Version], bool, str]:
        try:
            history = History.of(found, project)
            return history.versions(), history.cut_off, ""
        except (EdisonError, OSError):
            return [], False, "Git could not be asked."

    state = git_state(project.root)
    key = ("lineage", str(project.root), found.path, found.version, state)
    return asked() if state is None else remembered(key, asked)


def _lines(known: list[Version], results: dict[str, list[Result]]) -> list[VersionLine]:
    lines = [
        VersionLine(
            version.hash, version.label, version.author or "", version.date or "",
            version.subject or "", version.commit or "",
            tuple(results.get(version.hash, ())), _text(version),
        )
        for version in reversed(known)
    ]  # fmt: skip
    there = {line.hash for line in lines}
    alone = [
        VersionLine(version, "", "", found[0].created_at, "", "", tuple(found), None)
        for version, found in results.items()
        if version not in there
    ]
    return lines + sorted(alone, key=lambda line: line.date, reverse=True)


def _text(version: Version) -> str | None:
    return None if version.data is None else version.data.decode("utf-8", "replace")


def _changes(before: VersionLine | None, now: VersionLine) -> Html | None:
    if before is None or before.text is None or now.text is None:
        return None
    if max(len(before.text), len(now.text)) > _MOST_CHARS:
        return None
    return diff_view(before.text, now.text)
