"""The pages of prompts: the versions of each, what they changed and what they scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import EdisonError, UsageError
from edison_ci.names import did_you_mean
from edison_ci.report.components import diff_view
from edison_ci.results.versions import (
    History,
    ModelScore,
    Version,
    measured_prompts,
    model_scores,
)
from edison_ci.web.cache import remembered
from edison_ci.web.page_context import Crumb, Look, Page
from edison_ci.web.workspace import git_state, project_of

if TYPE_CHECKING:
    from edison_ci.report.markup import Html

_MOST_CHARS = 200_000
"""Of longer prompts no difference is shown."""


class VersionLine(NamedTuple):
    """A version of a prompt."""

    hash: str
    label: str
    author: str
    date: str
    subject: str
    commit: str
    results: tuple[ModelScore, ...]
    text: str | None


def prompts(look: Look) -> Page:
    """Return every prompt that was ever run."""
    found = measured_prompts(look.connection)
    return Page("prompts", "Prompts", {"prompts": found}, area="prompts")


def prompt(look: Look) -> Page:
    """Return the versions of a prompt, newest first, and what one of them changed."""
    name = look.path["prompt"]
    results = model_scores(look.connection, name)
    if not results:
        known = sorted(each.prompt for each in measured_prompts(look.connection))
        hint = did_you_mean(name, known, label="prompts")
        raise UsageError(f"no version of a prompt {name!r} was measured", hint=hint)
    versions, cut_off, why = _lineage(look, name)
    lines = _lines(versions, results)
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


def _lines(known: list[Version], results: dict[str, list[ModelScore]]) -> list[VersionLine]:
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
