"""The pages of prompts: all of them, and the versions of one with their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci import feature
from edison_ci.errors import EdisonError, UsageError
from edison_ci.plan.versions import History, Version
from edison_ci.report.components import diff_view
from edison_ci.results.run_lists import measured_prompts
from edison_ci.results.versions import ModelScore, model_scores
from edison_ci.spelling import did_you_mean
from edison_ci.web.page_context import Crumb, Page, PageContext, grouped, paged
from edison_ci.web.workspace import git_state, project_of

if TYPE_CHECKING:
    from markupsafe import Markup

_MOST_CHARS = 200_000
"""Longer prompts are not compared."""


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


def prompts(context: PageContext) -> Page:
    """Return all measured prompts."""
    measured = paged(context, measured_prompts(context.connection), "prompts")
    values = {"prompts": measured.rows, **measured.values}
    return Page("prompts", "Prompts", values, area="prompts")


def prompt(context: PageContext) -> Page:
    """Return the versions of a prompt, newest first, and the diff of one of them."""
    name = context.path["prompt"]
    results = model_scores(context.connection, name)
    if not results:
        names = sorted(measured.prompt for measured in measured_prompts(context.connection))
        hint = did_you_mean(name, names, label="prompts")
        raise UsageError(f"the prompt {name!r} was not measured", hint=hint)
    versions, cut_off, why = _lineage(context, name)
    lines = _lines(versions, results)
    requested = context.args.text("version")
    chosen = next((i for i, line in enumerate(lines) if line.hash.startswith(requested)), 0)
    before = next((line for line in lines[chosen + 1 :] if line.text is not None), None)
    results_of = [(line, measured) for line in lines for measured in line.results or (None,)]
    results_page = paged(context, results_of, "prompt", name, version=requested)
    return Page(
        "prompt",
        f"Prompt {name}",
        {
            "prompt": name,
            "versions": grouped(results_page.rows),
            **results_page.values,
            "chosen": lines[chosen],
            "before": before,
            "changes": _changes(before, lines[chosen]),
            "cut_off": cut_off,
            "why": why,
            "editable": feature.ask("may_edit_prompts", context, default=False),
            "messages": context.messages,
        },
        crumbs=(Crumb("Prompts", context.links.to("prompts")),),
        area="prompts",
    )


def _lineage(context: PageContext, name: str) -> tuple[list[Version], bool, str]:
    """Return the versions in Git, oldest first, or the reason why there are none."""
    project = project_of(context)
    if project is None:
        return [], False, "The project files with the texts are not available here."
    prompt = next(
        (known_prompt for known_prompt in project.prompts.values() if known_prompt.id == name), None
    )
    if prompt is None:
        return [], False, "The prompt is no longer part of the project."

    def read() -> tuple[list[Version], bool, str]:
        try:
            history = History.of(prompt, project)
            return history.versions(), history.cut_off, ""
        except (EdisonError, OSError):
            return [], False, "Git could not be read."

    state = git_state(project.root)
    key = ("lineage", str(project.root), prompt.path, prompt.version, state)
    return read() if state is None else context.memory.cached(key, read)


def _lines(versions: list[Version], results: dict[str, list[ModelScore]]) -> list[VersionLine]:
    lines = [
        VersionLine(
            version.hash, version.label, version.author or "", version.date or "",
            version.subject or "", version.commit or "",
            tuple(results.get(version.hash, ())), _text(version),
        )
        for version in reversed(versions)
    ]  # fmt: skip
    there = {line.hash for line in lines}
    alone = [
        VersionLine(version, "", "", scores[0].created_at, "", "", tuple(scores), None)
        for version, scores in results.items()
        if version not in there
    ]
    return lines + sorted(alone, key=lambda line: line.date, reverse=True)


def _text(version: Version) -> str | None:
    return None if version.data is None else version.data.decode("utf-8", "replace")


def _changes(before: VersionLine | None, now: VersionLine) -> Markup | None:
    if before is None or before.text is None or now.text is None:
        return None
    if max(len(before.text), len(now.text)) > _MOST_CHARS:
        return None
    return diff_view(before.text, now.text)
