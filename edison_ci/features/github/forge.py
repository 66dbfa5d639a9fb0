"""GitHub as a forge: comments, pull requests, reviews, files and commits of one repository.

The account of this tool is configured, not requested: `GET /user` is refused to the token of a
workflow, and the text of a comment does not prove its author.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.access import github_api
from edison_ci.documents import decoding
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.features.github import protection as branch_protection
from edison_ci.git import forge as models
from edison_ci.proposals import branches as proposal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.features.github.protection import BranchProtection
    from edison_ci.git.forge import Change, ProposalAction, ProposalResult, PutBranch
    from edison_ci.git.host import RepositoryAddress

BATCH = 20
"""Suggestions in one review; GitHub has timed out on more."""

_TICKS = re.compile("`{3,}")


class Reviews:
    """The reviews of a repository's pull requests."""

    def __init__(self, api: github_api.Api) -> None:
        self._api = api

    async def of(self, number: int) -> list[models.Review]:
        """Return the reviews of a pull request, oldest first."""
        reviews = await self._api.pages("list the reviews", "pulls", number, "reviews")
        return [parse_review(item) for item in reviews]

    async def line_comments(self, number: int) -> list[models.LineComment]:
        """Return the comments on lines of a pull request."""
        comments = await self._api.pages("list comments on lines", "pulls", number, "comments")
        return [parse_line_comment(item) for item in comments]

    async def create(
        self,
        number: int,
        *,
        decision: models.ReviewDecision,
        body: str = "",
        commit: str | None = None,
    ) -> models.Review:
        """Add a review; GitHub requires a body unless it approves."""
        return await self._create(number, {"event": str(decision), "body": body}, commit)

    async def suggest(
        self,
        number: int,
        suggestions: Sequence[models.SuggestedLines],
        *,
        commit: str,
        body: str = "",
    ) -> list[models.Review]:
        """Suggest replacements for lines in the diff of a pull request."""
        made = []
        for start in range(0, len(suggestions), BATCH):
            comments = [
                _as_comment(suggestion) for suggestion in suggestions[start : start + BATCH]
            ]
            fields: dict[str, Any] = {
                "event": str(models.ReviewDecision.COMMENT),
                "comments": comments,
            }
            if body and start == 0:
                fields["body"] = body
            made.append(await self._create(number, fields, commit))
        return made

    async def _create(
        self, number: int, fields: dict[str, Any], commit: str | None
    ) -> models.Review:
        if commit is not None:
            fields["commit_id"] = commit
        path = ("pulls", number, "reviews")
        made = await self._api.write("add a review", "POST", *path, body=fields, repeatable=False)
        return parse_review(made)


def suggestion_text(suggestion: models.SuggestedLines) -> str:
    """Return a suggestion as Markdown, in a fence longer than any in its text."""
    longest = max((len(run) for run in _TICKS.findall(suggestion.replacement)), default=2)
    fence = "`" * (longest + 1)
    lines = [suggestion.note, ""] if suggestion.note else []
    lines += [f"{fence}suggestion"]
    lines += [suggestion.replacement] if suggestion.replacement else []
    return "\n".join([*lines, fence])


def _as_comment(suggestion: models.SuggestedLines) -> dict[str, Any]:
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
"""GitHub lists at most this many files of a pull request."""

_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\[bot\])?")


@dataclass(frozen=True, slots=True)
class Author:
    """The account of this tool on GitHub: the bot of workflows, an app `slug[bot]`, or a person."""

    login: str = WORKFLOW_BOT

    def __post_init__(self) -> None:
        if not _LOGIN.fullmatch(self.login):
            raise UsageError(
                f"{self.login!r} is not a valid account name on GitHub",
                hint=f"for the token of a workflow it is {WORKFLOW_BOT!r}, for an app 'slug[bot]'",
            )

    def wrote(self, comment: models.Comment) -> bool:
        """Whether this account wrote a comment; a person with the name of a bot is another one."""
        same = comment.author.login.casefold() == self.login.casefold()
        return same and comment.author.is_bot == self.login.endswith("[bot]")


class GitHub:
    """A repository on GitHub or GitHub Enterprise; a context manager."""

    def __init__(
        self,
        address: RepositoryAddress,
        *,
        author: Author | None = None,
        timing: models.Timing | None = None,
    ) -> None:
        self.address, self.author = address, author or Author()
        self._api = github_api.Api(address, timing)
        self.git = GitData(self._api)
        self.reviews = Reviews(self._api)

    async def __aenter__(self) -> Self:
        await self._api.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._api.__aexit__(*details)

    def is_ours(self, comment: models.Comment) -> bool:
        """Whether the account of this tool wrote a comment."""
        return self.author.wrote(comment)

    async def comments(self, number: int) -> list[models.Comment]:
        """Return the comments of a pull request, oldest first."""
        items = await self._api.pages("list the comments", "issues", number, "comments")
        return sorted(map(parse_comment, items), key=lambda comment: comment.id)

    async def create_comment(self, number: int, body: str) -> models.Comment:
        """Add a comment to a pull request; not retried when the reply is lost."""
        path = ("issues", number, "comments")
        made = await self._api.write(
            "add a comment", "POST", *path, body={"body": body}, repeatable=False
        )
        return parse_comment(made)

    async def update_comment(self, comment_id: int, body: str) -> models.Comment:
        """Replace the text of a comment."""
        path = ("issues", "comments", comment_id)
        made = await self._api.write("update a comment", "PATCH", *path, body={"body": body})
        return parse_comment(made)

    async def delete_comment(self, comment_id: int) -> None:
        """Delete a comment; one that does not exist is no error."""
        await self._delete("delete a comment", "issues", "comments", comment_id)

    async def open_issues(self) -> list[models.Issue]:
        """Return the open issues, without pull requests, which GitHub lists as issues too."""
        items = await self._api.pages("list the issues", "issues", state="open")
        return [parse_issue(item) for item in items if "pull_request" not in item]

    async def create_issue(self, title: str, body: str) -> models.Issue:
        """Open an issue; not retried when the reply is lost."""
        fields = {"title": title, "body": body}
        made = await self._api.write(
            "open an issue", "POST", "issues", body=fields, repeatable=False
        )
        return parse_issue(made)

    async def close_issue(self, number: int) -> None:
        """Close an issue as completed."""
        fields = {"state": "closed", "state_reason": "completed"}
        await self._api.write("close the issue", "PATCH", "issues", number, body=fields)

    async def pull_request(self, number: int) -> models.PullRequest:
        """Return a pull request as it is now."""
        return parse_pull_request(await self._api.get("read the pull request", "pulls", number))

    async def find_pull_request(
        self, branch: str, *, owner: str = "", state: Literal["open", "all"] = "open"
    ) -> models.PullRequest | None:
        """Return the open pull request of a branch of this repository, or of a fork's owner.

        With `all`, the newest closed one if none is open.
        """
        owner = owner or self.address.owner
        head = f"{owner}:{branch}"
        items = await self._api.pages("list pull requests", "pulls", head=head, state=state)
        # A server that ignores the filter lists the pull requests of all branches and forks.
        pulls = [
            pull
            for pull in map(parse_pull_request, items)
            if pull.head_ref == branch and _owner(pull).casefold() == owner.casefold()
        ]
        return max(pulls, key=lambda pull: (pull.state == "open", pull.number), default=None)

    async def create_pull_request(self, change: Change) -> models.PullRequest:
        """Open a pull request for an existing branch."""
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
        return parse_pull_request(made)

    async def update_pull_request(
        self, number: int, *, title: str, body: str
    ) -> models.PullRequest:
        """Replace the title and the description of a pull request."""
        fields = {"title": title, "body": body}
        made = await self._api.write(
            "update the pull request", "PATCH", "pulls", number, body=fields
        )
        return parse_pull_request(made)

    async def close_pull_request(self, number: int) -> models.PullRequest:
        """Close a pull request without merging it."""
        fields = {"state": "closed"}
        made = await self._api.write(
            "close the pull request", "PATCH", "pulls", number, body=fields
        )
        return parse_pull_request(made)

    async def merge_pull_request(self, number: int, *, head_sha: str) -> str:
        """Merge a pull request if its head is still this one, and return the new commit."""
        path = ("pulls", number, "merge")
        made = await self._api.write(
            "merge the pull request", "PUT", *path, body={"sha": head_sha}, repeatable=False
        )
        return read_field(made, str, "sha")

    async def put_branch(self, change: Change) -> tuple[str, ProposalAction]:
        """Put a change on its branch, without a pull request."""
        proposal.refuse_unfit(change)
        return await proposal.put_branch(self.git, change)

    async def propose(self, change: Change, *, put: PutBranch | None = None) -> ProposalResult:
        """Put a change on its branch and open a pull request, or update both."""
        return await proposal.propose_on_github(self, change, put=put)

    async def default_branch(self) -> str:
        """Return the name of the default branch."""
        repository = await self._api.get("read the repository")
        return read_field(repository, str, "default_branch")

    async def protection(self, branch: str) -> BranchProtection:
        """Return the protection of a branch, as far as the token may read it."""
        return await branch_protection.read_protection(self._api, branch)

    async def dispatch_workflow(self, file: str, branch: str, inputs: Mapping[str, str]) -> None:
        """Start a workflow on a branch; not retried when the reply is lost."""
        path = ("actions", "workflows", file, "dispatches")
        body = {"ref": branch, "inputs": {**inputs}}
        what = f"start the workflow {file}"
        await self._api.write(what, "POST", *path, body=body, repeatable=False)

    async def changed_files(self, number: int) -> list[models.ChangedFile]:
        """Return the files that a pull request changes; raises ForgeError if the list is cut."""
        items = await self._api.pages("list the changed files", "pulls", number, "files")
        if len(items) >= MAX_FILES:
            raise ForgeError(
                f"the pull request changes {MAX_FILES:,} files or more, and GitHub lists only so "
                f"many",
                fault=ForgeFault.UNREADABLE,
                hint="compare with Git instead: check out with `fetch-depth: 2`",
            )
        return [parse_changed_file(item) for item in items]

    async def read_file(self, path: str, *, ref: str) -> bytes | None:
        """Return the content of a regular file in a commit or branch; None if it is missing."""
        try:
            item = await self._api.get("read a file", "contents", path, ref=ref)
        except ForgeError as error:
            if error.fault is ForgeFault.NOT_FOUND:
                return None
            raise
        if not isinstance(item, dict) or item.get("type") != "file":
            return None  # a folder, a link or a submodule
        content = read_field(item, str, "content")
        if content or not read_field(item, int, "size"):
            return decode_content(content, read_field(item, str, "encoding"))
        return await self.git.read_blob(read_field(item, str, "sha"))  # larger than a megabyte

    async def _delete(self, what: str, *path: str | int) -> None:
        try:
            await self._api.write(what, "DELETE", *path)
        except ForgeError as error:
            if error.fault is not ForgeFault.NOT_FOUND:
                raise


def _owner(pull: models.PullRequest) -> str:
    return (pull.head_repository or "").partition("/")[0]


# GitHub signs the commit as the owner of the token. No hook and no filter runs. A ref only moves
# forward: a branch with commits that were not read is not changed.
class GitData:
    """The object store and the refs of a repository on GitHub."""

    def __init__(self, api: github_api.Api) -> None:
        self._api = api

    async def create_blob(self, data: bytes) -> str:
        """Store the content of a file; the same content has the same id."""
        body = {"content": decoding.encode_base64(data), "encoding": "base64"}
        made = await self._api.write("store a file", "POST", "git", "blobs", body=body)
        return read_field(made, str, "sha")

    async def read_blob(self, sha: str) -> bytes:
        """Return the content of a file."""
        blob = await self._api.get("read a file", "git", "blobs", sha)
        return decode_content(read_field(blob, str, "content"), read_field(blob, str, "encoding"))

    async def create_tree(self, base_tree: str, blobs: Mapping[str, str]) -> str:
        """Create a tree from another one with some regular files replaced."""
        entries = [
            {"path": path, "mode": "100644", "type": "blob", "sha": sha}
            for path, sha in sorted(blobs.items())
        ]
        body = {"base_tree": base_tree, "tree": entries}
        made = await self._api.write("store a tree", "POST", "git", "trees", body=body)
        return read_field(made, str, "sha")

    async def create_commit(self, message: str, *, tree: str, parent: str) -> str:
        """Create a commit with one parent."""
        body = {"message": message, "tree": tree, "parents": [parent]}
        made = await self._api.write("make a commit", "POST", "git", "commits", body=body)
        return read_field(made, str, "sha")

    async def commit(self, sha: str) -> models.RemoteCommit:
        """Return a commit."""
        item = await self._api.get("read a commit", "git", "commits", sha)
        parents = tuple(
            read_field(parent, str, "sha") for parent in read_field(item, list, "parents")
        )
        tree, message = read_field(item, str, "tree", "sha"), read_field(item, str, "message")
        return models.RemoteCommit(read_field(item, str, "sha"), tree, message, parents)

    async def tip(self, branch: str) -> str | None:
        """Return the commit at the tip of a branch; None if there is no such branch."""
        try:
            reference = await self._api.get("read a branch", "git", "ref", "heads", branch)
        except ForgeError as error:
            if error.fault is ForgeFault.NOT_FOUND:
                return None
            raise
        return read_field(reference, str, "object", "sha")

    async def tips(self, prefix: str) -> dict[str, str]:
        """Return the tips of the branches whose names have a prefix, by name."""
        references = await self._api.get("list branches", "git", "matching-refs", "heads", prefix)
        if not isinstance(references, list):
            raise github_api.unreadable("list branches", "a list")
        return {
            read_field(item, str, "ref").removeprefix("refs/heads/"): read_field(
                item, str, "object", "sha"
            )
            for item in references
        }

    async def create_branch(self, branch: str, sha: str) -> None:
        """Create a branch; its name must be free."""
        body = {"ref": f"refs/heads/{branch}", "sha": sha}
        path = ("git", "refs")
        # Not retried: if the first request was carried out, a second one would be refused.
        await self._api.write("make a branch", "POST", *path, body=body, repeatable=False)

    async def advance_branch(self, branch: str, sha: str) -> None:
        """Move a branch to a descendant of its tip; GitHub refuses any other commit."""
        body = {"sha": sha, "force": False}
        await self._api.write("move a branch", "PATCH", "git", "refs", "heads", branch, body=body)


def decode_content(content: str, encoding: str) -> bytes:
    """Return the bytes of a content that GitHub encoded as text."""
    if encoding == "utf-8":
        return content.encode()
    try:
        if encoding == "base64":
            return decoding.decode_base64(content.replace("\n", ""))  # GitHub breaks it into lines
    except ValueError:
        pass
    raise github_api.unreadable("read a file", "base64")


_T = TypeVar("_T")


def read_field(value: Any, kind: type[_T], *path: str) -> _T:
    """Return the value at a path inside a reply; raises ForgeError unless it has this type."""
    field = _at(value, path)
    if not isinstance(field, kind) or (kind is int and isinstance(field, bool)):
        raise github_api.unreadable(f"read {'.'.join(path)}", kind.__name__)
    return field


def read_optional(value: Any, kind: type[_T], *path: str) -> _T | None:
    """Return the value at a path inside a reply; None if it is null or missing."""
    return None if _at(value, path) is None else read_field(value, kind, *path)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parse_account(value: Any) -> models.Account:
    """Return the author of a comment, review or pull request; a deleted account is `ghost`."""
    login = read_optional(value, str, "user", "login") or "ghost"
    return models.Account(login, is_bot=read_optional(value, str, "user", "type") == "Bot")


def parse_comment(value: Any) -> models.Comment:
    """Return an issue comment."""
    return models.Comment(
        read_field(value, int, "id"),
        read_optional(value, str, "body") or "",
        parse_account(value),
        read_field(value, str, "html_url"),
        read_optional(value, str, "created_at") or "",
        read_optional(value, str, "author_association") or "",
    )


def parse_issue(value: Any) -> models.Issue:
    """Return an issue from GitHub's JSON."""
    return models.Issue(
        number=read_field(value, int, "number"),
        url=read_field(value, str, "html_url"),
        body=read_optional(value, str, "body") or "",
        author=parse_account(_at(value, ("user",))),
        association=read_optional(value, str, "author_association") or "",
    )


def parse_changed_file(value: Any) -> models.ChangedFile:
    """Return a file of a pull request."""
    return models.ChangedFile(
        read_field(value, str, "filename"),
        read_field(value, str, "status"),
        read_optional(value, str, "previous_filename"),
        read_optional(value, str, "patch") or "",
    )


def parse_pull_request(value: Any) -> models.PullRequest:
    """Return a pull request, of a list or alone."""
    state: Literal["open", "closed"] = (
        "open" if read_field(value, str, "state") == "open" else "closed"
    )
    merged = read_optional(value, str, "merged_at") is not None
    return models.PullRequest(
        number=read_field(value, int, "number"),
        url=read_field(value, str, "html_url"),
        state=state,
        merged=merged,
        draft=read_optional(value, bool, "draft") or False,
        title=read_field(value, str, "title"),
        body=read_optional(value, str, "body") or "",
        head_ref=read_field(value, str, "head", "ref"),
        head_sha=read_field(value, str, "head", "sha"),
        head_repository=read_optional(value, str, "head", "repo", "full_name"),
        base_ref=read_field(value, str, "base", "ref"),
        base_sha=read_field(value, str, "base", "sha"),
        author=parse_account(value),
        # Before the merge, GitHub names its test merge here.
        merge_commit=read_optional(value, str, "merge_commit_sha") if merged else None,
        merged_by=read_optional(value, str, "merged_by", "login"),
    )


def parse_review(value: Any) -> models.Review:
    """Return a review."""
    return models.Review(
        read_field(value, int, "id"),
        parse_account(value),
        read_field(value, str, "state"),
        read_optional(value, str, "body") or "",
        read_field(value, str, "html_url"),
        read_optional(value, str, "commit_id"),
        read_optional(value, str, "submitted_at"),
    )


def parse_line_comment(value: Any) -> models.LineComment:
    """Return a comment on a line."""
    return models.LineComment(
        read_field(value, int, "id"),
        parse_account(value),
        read_field(value, str, "path"),
        read_optional(value, int, "line"),
        read_optional(value, str, "body") or "",
        read_field(value, str, "html_url"),
    )
