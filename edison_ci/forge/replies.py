"""Replies of GitHub as our values; what is not as promised is an error."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from edison_ci.forge.api import unreadable
from edison_ci.forge.models import Account, ChangedFile, Comment, LineComment, PullRequest, Review

_T = TypeVar("_T")


def take(value: Any, kind: type[_T], *path: str) -> _T:
    """Return what is at a path inside a reply; it must be there and of this kind."""
    found = _at(value, path)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise unreadable(f"read {'.'.join(path)}", kind.__name__)
    return found


def take_or_none(value: Any, kind: type[_T], *path: str) -> _T | None:
    """Return what is at a path inside a reply; null and absent are both None."""
    return None if _at(value, path) is None else take(value, kind, *path)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def account(value: Any) -> Account:
    """Return who wrote a comment, review or pull request; a deleted account is `ghost`."""
    login = take_or_none(value, str, "user", "login") or "ghost"
    return Account(login, is_bot=take_or_none(value, str, "user", "type") == "Bot")


def comment(value: Any) -> Comment:
    """Return an issue comment."""
    return Comment(
        take(value, int, "id"),
        take_or_none(value, str, "body") or "",
        account(value),
        take(value, str, "html_url"),
        take_or_none(value, str, "created_at") or "",
        take_or_none(value, str, "author_association") or "",
    )


def changed_file(value: Any) -> ChangedFile:
    """Return a file of a pull request."""
    return ChangedFile(
        take(value, str, "filename"),
        take(value, str, "status"),
        take_or_none(value, str, "previous_filename"),
        take_or_none(value, str, "patch") or "",
    )


def pull_request(value: Any) -> PullRequest:
    """Return a pull request, of a list or alone."""
    state: Literal["open", "closed"] = "open" if take(value, str, "state") == "open" else "closed"
    merged = take_or_none(value, str, "merged_at") is not None
    return PullRequest(
        number=take(value, int, "number"),
        url=take(value, str, "html_url"),
        state=state,
        merged=merged,
        draft=take_or_none(value, bool, "draft") or False,
        title=take(value, str, "title"),
        body=take_or_none(value, str, "body") or "",
        head_ref=take(value, str, "head", "ref"),
        head_sha=take(value, str, "head", "sha"),
        head_repository=take_or_none(value, str, "head", "repo", "full_name"),
        base_ref=take(value, str, "base", "ref"),
        base_sha=take(value, str, "base", "sha"),
        author=account(value),
        # Before the merge this is the commit that tries it out.
        merge_commit=take_or_none(value, str, "merge_commit_sha") if merged else None,
        merged_by=take_or_none(value, str, "merged_by", "login"),
    )


def review(value: Any) -> Review:
    """Return a review."""
    return Review(
        take(value, int, "id"),
        account(value),
        take(value, str, "state"),
        take_or_none(value, str, "body") or "",
        take(value, str, "html_url"),
        take_or_none(value, str, "commit_id"),
        take_or_none(value, str, "submitted_at"),
    )


def line_comment(value: Any) -> LineComment:
    """Return a comment on a line."""
    return LineComment(
        take(value, int, "id"),
        account(value),
        take(value, str, "path"),
        take_or_none(value, int, "line"),
        take_or_none(value, str, "body") or "",
        take(value, str, "html_url"),
    )
