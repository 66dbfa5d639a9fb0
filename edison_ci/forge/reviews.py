"""How is a pull request reviewed: with a decision, and with lines that one click replaces?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edison_ci.forge import replies
from edison_ci.hosted import Decision, LineComment, Review, SuggestedLines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.forge.api import Api

BATCH = 20
"""Suggestions in one review; GitHub has been seen to time out on more."""

_TICKS = re.compile("`{3,}")


class Reviews:
    """The reviews of a repository's pull requests."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def of(self, number: int) -> list[Review]:
        """Return the reviews of a pull request, oldest first."""
        found = await self._api.pages("list the reviews", "pulls", number, "reviews")
        return [replies.review(item) for item in found]

    async def line_comments(self, number: int) -> list[LineComment]:
        """Return the comments on lines of a pull request."""
        found = await self._api.pages("list comments on lines", "pulls", number, "comments")
        return [replies.line_comment(item) for item in found]

    async def create(
        self, number: int, *, decision: Decision, body: str = "", commit: str | None = None
    ) -> Review:
        """Add a review; one that is no approval must say something."""
        return await self._create(number, {"event": str(decision), "body": body}, commit)

    async def suggest(
        self, number: int, suggestions: Sequence[SuggestedLines], *, commit: str, body: str = ""
    ) -> list[Review]:
        """Suggest lines in place of others that the pull request's diff shows."""
        made = []
        for start in range(0, len(suggestions), BATCH):
            comments = [_as_comment(each) for each in suggestions[start : start + BATCH]]
            fields: dict[str, Any] = {"event": str(Decision.COMMENT), "comments": comments}
            if body and start == 0:
                fields["body"] = body
            made.append(await self._create(number, fields, commit))
        return made

    async def _create(self, number: int, fields: dict[str, Any], commit: str | None) -> Review:
        if commit is not None:
            fields["commit_id"] = commit
        path = ("pulls", number, "reviews")
        made = await self._api.write("add a review", "POST", *path, body=fields, repeatable=False)
        return replies.review(made)


def suggestion_text(suggestion: SuggestedLines) -> str:
    """Return a suggestion as Markdown, in a fence that its text cannot close."""
    longest = max((len(run) for run in _TICKS.findall(suggestion.replacement)), default=2)
    fence = "`" * (longest + 1)
    lines = [suggestion.note, ""] if suggestion.note else []
    lines += [f"{fence}suggestion"]
    lines += [suggestion.replacement] if suggestion.replacement else []
    return "\n".join([*lines, fence])


def _as_comment(suggestion: SuggestedLines) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "path": suggestion.path,
        "body": suggestion_text(suggestion),
        "line": suggestion.last_line,
        "side": "RIGHT",
    }
    if suggestion.first_line < suggestion.last_line:
        fields |= {"start_line": suggestion.first_line, "start_side": "RIGHT"}
    return fields
