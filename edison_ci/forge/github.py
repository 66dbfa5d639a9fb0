"""GitHub as a forge.

Who we are is configured, not asked: `GET /user` is refused to the token of a workflow, and what a
comment says about itself proves nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, Self

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge import replies
from edison_ci.forge.api import Api, Timing
from edison_ci.forge.git_data import GitData, decoded
from edison_ci.forge.models import Decision, LineComment, Review, SuggestedLines
from edison_ci.forge.proposing import propose_on_github, put_branch, refuse_unfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.forge.address import Address
    from edison_ci.forge.models import Change, ChangedFile, Comment, Deed, Proposed, PullRequest
    from edison_ci.forge.proposing import Put


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


WORKFLOW_BOT = "github-actions[bot]"
MAX_FILES = 3_000
"""GitHub lists no more files of a pull request than this."""

_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\[bot\])?")


@dataclass(frozen=True, slots=True)
class Author:
    """Who we are on GitHub: the bot of workflows, an app `slug[bot]`, or a person."""

    login: str = WORKFLOW_BOT

    def __post_init__(self) -> None:
        if not _LOGIN.fullmatch(self.login):
            raise UsageError(
                f"{self.login!r} is not the name of an account on GitHub",
                hint=f"for the token of a workflow it is {WORKFLOW_BOT!r}, for an app 'slug[bot]'",
            )

    def wrote(self, comment: Comment) -> bool:
        """Whether a comment is by this account; a person with the name of a bot is not."""
        same = comment.author.login.casefold() == self.login.casefold()
        return same and comment.author.is_bot == self.login.endswith("[bot]")


class GitHub:
    """A repository on GitHub or GitHub Enterprise; a context manager."""

    def __init__(
        self, address: Address, *, author: Author | None = None, timing: Timing | None = None
    ) -> None:
        self.address, self.author = address, author or Author()
        self._api = Api(address, timing)
        self.git = GitData(self._api)
        self.reviews = Reviews(self._api)

    async def __aenter__(self) -> Self:
        await self._api.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._api.__aexit__(*details)

    # --- comments ---------------------------------------------------------------------------------

    def is_ours(self, comment: Comment) -> bool:
        """Whether we wrote a comment."""
        return self.author.wrote(comment)

    async def comments(self, number: int) -> list[Comment]:
        """Return the comments of a pull request, oldest first."""
        found = await self._api.pages("list the comments", "issues", number, "comments")
        return sorted(map(replies.comment, found), key=lambda comment: comment.id)

    async def create_comment(self, number: int, body: str) -> Comment:
        """Add a comment to a pull request; not repeated when it is unknown whether it was made."""
        path = ("issues", number, "comments")
        made = await self._api.write(
            "add a comment", "POST", *path, body={"body": body}, repeatable=False
        )
        return replies.comment(made)

    async def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace the text of a comment."""
        path = ("issues", "comments", comment_id)
        made = await self._api.write("update a comment", "PATCH", *path, body={"body": body})
        return replies.comment(made)

    async def delete_comment(self, comment_id: int) -> None:
        """Take a comment away."""
        await self._gone_is_fine("delete a comment", "issues", "comments", comment_id)

    # --- pull requests ----------------------------------------------------------------------------

    async def pull_request(self, number: int) -> PullRequest:
        """Return a pull request as it is now."""
        return replies.pull_request(await self._api.get("read the pull request", "pulls", number))

    async def find_pull_request(
        self, branch: str, *, owner: str = "", state: Literal["open", "all"] = "open"
    ) -> PullRequest | None:
        """Return the open pull request of a branch here, or of that of a fork's owner.

        With `all`, the newest one that was closed, if none is open.
        """
        owner = owner or self.address.owner
        head = f"{owner}:{branch}"
        found = await self._api.pages("list pull requests", "pulls", head=head, state=state)
        # A server that does not know the filter lists them all, those of strangers too.
        pulls = [
            pull
            for pull in map(replies.pull_request, found)
            if pull.head_ref == branch and _owner(pull).casefold() == owner.casefold()
        ]
        return max(pulls, key=lambda pull: (pull.state == "open", pull.number), default=None)

    async def create_pull_request(self, change: Change) -> PullRequest:
        """Open a pull request for a branch that exists."""
        body = {
            "title": change.title,
            "head": change.branch,
            "base": change.base,
            "body": change.body,
            "draft": change.draft,
        }
        made = await self._api.write(
            "open a pull request", "POST", "pulls", body=body, repeatable=False
        )
        return replies.pull_request(made)

    async def update_pull_request(self, number: int, *, title: str, body: str) -> PullRequest:
        """Replace the title and the description of a pull request."""
        fields = {"title": title, "body": body}
        made = await self._api.write(
            "update the pull request", "PATCH", "pulls", number, body=fields
        )
        return replies.pull_request(made)

    async def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request without merging it."""
        fields = {"state": "closed"}
        made = await self._api.write(
            "close the pull request", "PATCH", "pulls", number, body=fields
        )
        return replies.pull_request(made)

    async def merge_pull_request(self, number: int, *, head_sha: str) -> str:
        """Merge a pull request if its head is still this one, and return the new commit."""
        path = ("pulls", number, "merge")
        made = await self._api.write(
            "merge the pull request", "PUT", *path, body={"sha": head_sha}, repeatable=False
        )
        return replies.take(made, str, "sha")

    async def put_branch(self, change: Change) -> tuple[str, Deed]:
        """Put a change on its branch, without a pull request."""
        refuse_unfit(change)
        return await put_branch(self.git, change)

    async def propose(self, change: Change, *, put: Put | None = None) -> Proposed:
        """Put a change on its branch and open a pull request, or update both."""
        return await propose_on_github(self, change, put=put)

    # --- files ------------------------------------------------------------------------------------

    async def changed_files(self, number: int) -> list[ChangedFile]:
        """Return the files that a pull request changes; refused where GitHub cuts the list."""
        found = await self._api.pages("list the changed files", "pulls", number, "files")
        if len(found) >= MAX_FILES:
            raise ForgeError(
                f"the pull request changes {MAX_FILES:,} files or more, and GitHub lists no more",
                fault=ForgeFault.UNREADABLE,
                hint="use Git: check out with fetch-depth: 2",
            )
        return [replies.changed_file(item) for item in found]

    async def read_file(self, path: str, *, ref: str) -> bytes | None:
        """Return what a regular file says in a commit or branch; None if it is not there."""
        try:
            found = await self._api.get("read a file", "contents", path, ref=ref)
        except ForgeError as error:
            if error.fault is ForgeFault.NOT_FOUND:
                return None
            raise
        if not isinstance(found, dict) or found.get("type") != "file":
            return None  # a folder, a link or a submodule
        content = replies.take(found, str, "content")
        if content or not replies.take(found, int, "size"):
            return decoded(content, replies.take(found, str, "encoding"))
        return await self.git.read_blob(replies.take(found, str, "sha"))  # larger than a megabyte

    async def _gone_is_fine(self, what: str, *path: str | int) -> None:
        try:
            await self._api.write(what, "DELETE", *path)
        except ForgeError as error:
            if error.fault is not ForgeFault.NOT_FOUND:
                raise


def _owner(pull: PullRequest) -> str:
    return (pull.head_repository or "").partition("/")[0]
