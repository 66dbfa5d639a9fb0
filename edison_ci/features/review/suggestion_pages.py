"""The pages of suggestions: changes of prompts, their evidence and decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature
from edison_ci.api.background import find_job
from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.review.actions import ReviewActions
from edison_ci.features.review.hunk_blame import BlameJob
from edison_ci.features.review.prompt_editor import may_edit
from edison_ci.features.review.suggestion_details import (
    STATUS_FILTERS,
    SuggestionDetails,
    suggestions_with,
)
from edison_ci.proposals.approvals import count_approvals
from edison_ci.records import OPEN_STATUSES, Move
from edison_ci.results.explanation import CellExplanation, unchanged_cases
from edison_ci.results.run_lists import experiments
from edison_ci.results.triage import ChangedCase, changed_case
from edison_ci.web.page_context import (
    Crumb,
    Links,
    Page,
    PageContext,
    Paging,
    run_results,
)
from edison_ci.web.pages.answers import Reason, reasons_of
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.features.review.actions import Permissions
    from edison_ci.records import Case
    from edison_ci.results.run_result import RunResult
    from edison_ci.store.suggestions import Suggestion


_MOST_CHANGED = 10
"""Cases with their answers, of those fixed and of those newly failing."""


class DiffLine(NamedTuple):
    """A line of a diff."""

    kind: str
    """added, removed, hunk or empty."""
    sign: str
    text: str


def suggestions(context: PageContext) -> Page:
    """Return the suggestions with a status, by default the open ones."""
    status = context.args.choice("status", STATUS_FILTERS)
    experiment = context.args.text("experiment")
    listed = suggestions_with(context.connection, status, experiment)
    paging = Paging.of(context.args, len(listed))

    def again(**changes: Any) -> str:
        kept = {"status": status if status != "open" else "", "experiment": experiment}
        return context.links.to("suggestions", **{**kept, **changes})

    return Page(
        "suggestions",
        "Suggestions",
        {
            "suggestions": listed[paging.offset : paging.offset + paging.per_page],
            "paging": paging,
            "again": again,
            "status": status,
            "statuses": STATUS_FILTERS,
            "experiment": experiment,
            "experiments": experiments(context.connection),
        },
        area="suggestions",
    )


def suggestion(context: PageContext) -> Page:
    """Return a suggestion: diff, note, evidence, guardrails, comments and forms."""
    details = SuggestionDetails.of(context.connection, context.path["suggestion"])
    stored = details.suggestion
    changed, diff = _changed(context, stored), diff_lines(stored.diff)
    blame = _blame(context, stored)
    return Page(
        "suggestion",
        f"Suggestion {stored.id} for {stored.prompt}",
        {
            "suggestion": stored,
            "permissions": _permissions(context, stored),
            "messages": context.messages,
            "open": stored.status in OPEN_STATUSES,
            "loops": feature.ask("loops_waiting", context.connection, stored.id, default=[]),
            "diff": diff,
            "comments": details.comments,
            "approvals": _approvals(context, details),
            "examples": _examples(context, details),
            "changed": changed,
            "blame": blame,
            "hunks": _hunks(diff),
            "editable": may_edit(context),
            "sides": [
                (name, stored.evidence[name])
                for name in ("train", "holdout")
                if stored.evidence.get(name)
            ],
        },
        crumbs=(Crumb("Suggestions", context.links.to("suggestions")),),
        area="suggestions",
        refresh_s=2 if blame is not None and not blame.ended else None,
    )


def _approvals(context: PageContext, details: SuggestionDetails) -> str:
    """Return how many people have approved, in words; empty where one is enough."""
    project, suggestion = project_of(context), details.suggestion
    if project is None or project.file.settings.approvals == 1:
        return ""
    if suggestion.pull_request is not None and suggestion.branch is not None:
        return f"{project.file.settings.approvals} needed, counted on GitHub"
    return count_approvals(project.file, details.approvers, [suggestion.author]).words


def _blame(context: PageContext, suggestion: Suggestion) -> BlameJob | None:
    """Return the comparison line by line that the visitor asked for."""
    key, actor = context.args.text("hunks"), context.actor
    job = find_job(BlameJob, key, actor.name) if key and actor is not None else None
    return job if job is not None and job.about == f"suggestion {suggestion.id}" else None


def _hunks(diff: Sequence[DiffLine]) -> int:
    """Return how many lines a change adds or removes, which is the most hunks that it has."""
    return sum(line.kind in ("added", "removed") for line in diff)


class FailingExample(NamedTuple):
    """A failing answer in the request to the refiner."""

    known: CellExplanation
    case: Case | None
    """None if the case has changed since, or is not available."""
    reasons: list[Reason]


def _examples(context: PageContext, details: SuggestionDetails) -> list[FailingExample]:
    """Return the failing answers in the request to the refiner, with their cases."""
    suggestion, explanations = details.suggestion, details.examples
    project, cases = project_of(context), dict[str, "Case"]()
    if project is not None and searchable(project, suggestion.experiment):
        hashes = {
            explanation.cell.case_id: explanation.cell.case_hash for explanation in explanations
        }
        experiment = project.experiments[suggestion.experiment]
        cases = unchanged_cases(project, experiment, hashes)
    return [
        FailingExample(explanation, cases.get(explanation.cell.case_id), reasons_of(explanation))
        for explanation in explanations
    ]


class ChangedCases(NamedTuple):
    """Cases that a suggestion fixed, or broke."""

    move: Move
    names: dict[str, str]
    """Every such case, with whether it is a training or a held-out case."""
    shown: tuple[ChangedCase, ...]
    """Some of them, with their answers before and after; none without the run of the trial."""


def _changed(context: PageContext, suggestion: Suggestion) -> list[ChangedCases]:
    """Return the cases that began to pass or to fail with the suggestion."""
    result = _trial(context, suggestion)
    groups = []
    for move in (Move.FIXED, Move.NEWLY_FAILING):
        names = {
            str(case): word
            for part, word in (("train", "training"), ("holdout", "held-out"))
            for case in (suggestion.evidence.get(part) or {}).get(str(move), ())
        }
        changed_cases: tuple[ChangedCase, ...] = ()
        if result is not None:
            first = (changed_case(result, case, move) for case in [*names][:_MOST_CHANGED])
            changed_cases = tuple(changed for changed in first if changed is not None)
        if names:
            groups.append(ChangedCases(move, names, changed_cases))
    return groups


def _trial(context: PageContext, suggestion: Suggestion) -> RunResult | None:
    """Return the run in which the suggestion was tried; None if it is not stored here."""
    try:
        (result,) = run_results(context, list(suggestion.runs)[-1:])
    except (UsageError, ValueError):
        return None
    return result


def _permissions(context: PageContext, suggestion: Suggestion) -> Permissions | None:
    """Return the possible actions of the visitor; None where commands are shown instead."""
    if context.actions is None or context.actor is None:
        return None
    project = project_of(context)
    try:
        return (
            ReviewActions(context.actions.offline).permissions(project, context.actor, suggestion)
            if project is not None
            else None
        )
    except (EdisonError, OSError):  # for example without Git; the page still works
        return None


def diff_lines(text: str) -> list[DiffLine]:
    """Return the lines of a unified diff, without file names."""
    lines = []
    for line in text.splitlines():
        if line.startswith(("--- ", "+++ ", "diff ", "index ")):
            continue
        if line.startswith("@@"):
            lines.append(DiffLine("hunk", "", line))
        elif line.startswith("+"):
            lines.append(DiffLine("added", "+", line[1:]))
        elif line.startswith("-"):
            lines.append(DiffLine("removed", "-", line[1:]))
        else:
            lines.append(DiffLine("", " ", line[1:]))
    return lines


def edit(context: PageContext) -> Page:
    """Return the form to edit the prompt with the suggestion applied."""
    suggestion_id, project = context.path["suggestion"], project_of(context)
    if context.actions is None or context.actor is None or project is None:
        hint = f"use the command: edison review edit {suggestion_id}"
        raise UsageError("editing is not possible on these pages", hint=hint)
    actions = ReviewActions(context.actions.offline)
    return edit_page(context.links, *actions.draft(project, context.actor, suggestion_id))


def edit_page(
    links: Links, suggestion: Suggestion, text: str, problem: EdisonError | None = None
) -> Page:
    """Return the edit form with a text and its problem, if any."""
    return Page(
        "editing",
        f"Edit suggestion {suggestion.id} for {suggestion.prompt}",
        {"suggestion": suggestion, "text": text, "problem": problem},
        crumbs=(
            Crumb("Suggestions", links.to("suggestions")),
            Crumb(suggestion.id, links.to("suggestion", suggestion.id)),
        ),
        area="suggestions",
    )
