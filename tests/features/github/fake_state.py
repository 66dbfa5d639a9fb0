"""What GitHub keeps of one repository, and the rules by which it changes.

Every rule here is one that a lenient stand-in would not enforce and our code relies on.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.features.github.trim_openapi import PATHS

if TYPE_CHECKING:
    from tests.features.github.openapi import Description

REPOSITORY = "acme/prompts"
OWNER = "acme"
BODY_LIMIT = 65_536
BOT = "github-actions[bot]"

(
    ISSUE_COMMENTS, COMMENT, PULLS, PULL, FILES, MERGE, REVIEWS, LINE_COMMENTS,
    BLOBS, BLOB, TREES, COMMITS, COMMIT, REFS, REF_CHANGE, REF, MATCHING_REFS, CONTENTS,
    APPROVALS, ISSUES, ISSUE, REPO, DISPATCHES, RULES, PROTECTION,
) = PATHS  # fmt: skip


class RefusedError(Exception):
    """GitHub says no."""

    def __init__(self, status: int, message: str, *errors: Any, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, list(errors)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class Grant:
    """Who a token belongs to, and what it may do; unnamed permissions are refused."""

    login: str = BOT
    is_bot: bool = True
    association: str = "MEMBER"
    permissions: dict[str, str] = field(
        default_factory=lambda: {"contents": "write", "pull_requests": "write"}
    )


@dataclass
class Pull:
    """A pull request."""

    number: int
    title: str
    body: str
    head: str
    base: str
    head_sha: str
    author: Grant
    head_owner: str = OWNER
    state: str = "open"
    merged: bool = False
    merged_by: str | None = None
    draft: bool = False
    files: list[dict[str, Any]] = field(default_factory=list)
    diff_lines: dict[str, set[int]] = field(default_factory=dict)
    """Lines of each file that the diff shows, which are the ones that can be commented on."""


class State:
    """The repository."""

    def __init__(self, github: Description, server: str) -> None:
        self.github, self.server = github, server
        self.may_open_pull_requests = True
        self.locked = False
        self.approvals_needed = 0
        self.approved: dict[str, str] = {}
        """Environments that were reviewed for the workflow run, and how."""
        self.default_branch = "main"
        self.rules: list[dict[str, Any]] = []
        """Rules of the default branch: type and parameters."""
        self.classic: dict[str, Any] | None = None
        """Classic protection of the default branch."""
        self.workflows: dict[str, dict[str, Any]] = {}
        """Workflows of the default branch that take a dispatch: their inputs, by file."""
        self.dispatched: list[dict[str, Any]] = []
        """What workflows were started with: file, ref and inputs."""
        self.comments: dict[int, dict[str, Any]] = {}
        self.pulls: dict[int, Pull] = {}
        self.issues: dict[int, dict[str, Any]] = {}
        self.blobs: dict[str, bytes] = {}
        self.trees: dict[str, dict[str, str]] = {}
        self.commits: dict[str, dict[str, Any]] = {}
        self.refs: dict[str, str] = {}
        self.reviews: dict[int, list[dict[str, Any]]] = {}
        self.line_comments: dict[int, list[dict[str, Any]]] = {}
        self._last_id = 1000
        tree = self.put_tree({"README.md": self.put_blob(b"# prompts\n")})
        self.refs["heads/main"] = self.put_commit("start", tree, [])

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # --- comments ---------------------------------------------------------------------------------

    def add_comment(self, number: int, body: str, who: Grant) -> dict[str, Any]:
        self._refuse_long(body)
        if self.locked:
            raise RefusedError(403, "Unable to create comment because issue is locked.")
        made: dict[str, Any] = self.github.example("POST", ISSUE_COMMENTS, 201)
        made["id"] = self.next_id()
        made["html_url"] = f"{self.server}/{REPOSITORY}/pull/{number}#issuecomment-{made['id']}"
        made["issue_url"] = f"{self.server}/repos/{REPOSITORY}/issues/{number}"
        made["body"] = body
        made["user"] = _user(made["user"], who)
        made["author_association"] = who.association
        made["performed_via_github_app"] = None
        self.comments[made["id"]] = made
        return made

    def comments_of(self, number: int) -> list[dict[str, Any]]:
        return [c for c in self.comments.values() if c["issue_url"].endswith(f"/{number}")]

    def change_comment(self, comment_id: int, body: str) -> dict[str, Any]:
        self._refuse_long(body)
        self.comments[comment_id]["body"] = body
        return self.comments[comment_id]

    def _refuse_long(self, body: str) -> None:
        if len(body) > BODY_LIMIT or len(body.encode()) > 4 * BODY_LIMIT:
            problem = {"resource": "IssueComment", "code": "unprocessable", "field": "data"}
            said = {**problem, "message": "Body is too long (maximum is 65536 characters)"}
            raise RefusedError(422, "Validation Failed", said)

    # --- issues -----------------------------------------------------------------------------------

    def open_issue(self, title: str, body: str, who: Grant) -> dict[str, Any]:
        self._refuse_long(body)
        made: dict[str, Any] = self.github.example("POST", ISSUES, 201)
        number = self.next_id()
        made |= {"number": number, "title": title, "body": body, "state": "open"}
        made["html_url"] = f"{self.server}/{REPOSITORY}/issues/{number}"
        made["user"] = _user(made["user"], who)
        made["author_association"] = who.association
        made.pop("pull_request", None)
        self.issues[number] = made
        return made

    def close_issue(self, number: int, fields: dict[str, Any]) -> dict[str, Any]:
        self.issues[number] |= fields
        return self.issues[number]

    # --- workflows --------------------------------------------------------------------------------

    def dispatch(self, file: str, ref: str, inputs: dict[str, Any]) -> None:
        if file not in self.workflows:
            raise RefusedError(404, "Not Found")
        if f"heads/{ref}" not in self.refs:
            raise RefusedError(422, f"No ref found for: {ref}")
        declared = self.workflows[file]
        unknown = sorted(set(inputs) - set(declared))
        if unknown:
            raise RefusedError(422, f"Unexpected inputs provided: {unknown}")
        for name, about in declared.items():
            if about.get("required") and "default" not in about and not inputs.get(name):
                raise RefusedError(422, f"Required input '{name}' not provided")
        # Inputs are texts, whatever the type that the workflow declares.
        if not all(isinstance(value, str) for value in inputs.values()):
            raise RefusedError(422, "For 'properties/inputs', a value is not a string.")
        self.dispatched.append({"file": file, "ref": ref, "inputs": inputs})

    # --- objects and refs -------------------------------------------------------------------------

    def put_blob(self, data: bytes) -> str:
        sha = _sha("blob", data)
        self.blobs[sha] = data
        return sha

    def put_tree(self, files: dict[str, str]) -> str:
        sha = _sha("tree", repr(sorted(files.items())).encode())
        self.trees[sha] = dict(files)
        return sha

    def put_commit(self, message: str, tree: str, parents: list[str]) -> str:
        if tree not in self.trees or any(parent not in self.commits for parent in parents):
            raise RefusedError(422, "Tree SHA or parent does not exist")
        about = repr((message, tree, parents, len(self.commits))).encode()
        sha = _sha("commit", about)
        self.commits[sha] = {"message": message, "tree": tree, "parents": parents}
        return sha

    def create_ref(self, ref: str, sha: str) -> None:
        if not ref.startswith("refs/heads/") or sha not in self.commits:
            raise RefusedError(422, "Object does not exist")
        if ref.removeprefix("refs/") in self.refs:
            raise RefusedError(422, "Reference already exists")
        self.refs[ref.removeprefix("refs/")] = sha

    def move_ref(self, ref: str, sha: str, *, force: bool) -> None:
        if ref not in self.refs:
            raise RefusedError(422, "Reference does not exist")
        if sha not in self.commits:
            raise RefusedError(422, "Object does not exist")
        if not force and not self.is_ancestor(self.refs[ref], sha):
            raise RefusedError(422, "Update is not a fast forward")
        self.refs[ref] = sha
        for pull in self.pulls.values():
            if f"heads/{pull.head}" == ref and pull.state == "open":
                pull.head_sha = sha

    def is_ancestor(self, older: str, newer: str) -> bool:
        waiting = [newer]
        while waiting:
            sha = waiting.pop()
            if sha == older:
                return True
            waiting += self.commits[sha]["parents"]
        return False

    def file_at(self, ref: str, path: str) -> bytes:
        sha = self.refs.get(f"heads/{ref}", ref)
        tree = self.trees[self.commits[sha]["tree"]] if sha in self.commits else {}
        if path not in tree:
            raise RefusedError(404, "Not Found")
        return self.blobs[tree[path]]

    # --- pull requests ----------------------------------------------------------------------------

    def open_pull(self, fields: dict[str, Any], who: Grant) -> Pull:
        if not self.may_open_pull_requests and who.login == BOT:
            message = "GitHub Actions is not permitted to create or approve pull requests."
            raise RefusedError(403, message)
        if len(fields.get("body") or "") > BODY_LIMIT:
            raise RefusedError(
                422, "Validation Failed", {"message": "body is too long", "code": "x"}
            )
        for name in (fields["head"], fields["base"]):
            if f"heads/{name}" not in self.refs:
                problem = {"resource": "PullRequest", "field": "head", "code": "invalid"}
                raise RefusedError(422, "Validation Failed", problem)
        ours = [p for p in self.pulls.values() if p.head_owner == OWNER and p.state == "open"]
        if any(pull.head == fields["head"] for pull in ours):
            said = f"A pull request already exists for {OWNER}:{fields['head']}."
            problem = {"resource": "PullRequest", "code": "custom", "message": said}
            raise RefusedError(422, "Validation Failed", problem)
        number = len(self.pulls) + 1
        sha = self.refs[f"heads/{fields['head']}"]
        body = fields.get("body") or ""
        pull = Pull(number, fields["title"], body, fields["head"], fields["base"], sha, who)
        pull.draft = fields.get("draft", False)
        self.pulls[number] = pull
        return pull

    def pull_reply(self, pull: Pull, method: str = "GET", status: int = 200) -> dict[str, Any]:
        made = self.github.example(method, PULL if method != "POST" else PULLS, status)
        assert isinstance(made, dict)
        return self._filled(made, pull)

    def pull_listed(self, pull: Pull) -> dict[str, Any]:
        return self._filled(self.github.example("GET", PULLS, 200)[0], pull)

    def _filled(self, made: dict[str, Any], pull: Pull) -> dict[str, Any]:
        made |= {
            "number": pull.number,
            "title": pull.title,
            "body": pull.body,
            "state": pull.state,
            "draft": pull.draft,
            "html_url": f"{self.server}/{REPOSITORY}/pull/{pull.number}",
            "merged_at": "2026-01-01T00:00:00Z" if pull.merged else None,
            "merge_commit_sha": pull.head_sha,
            "requested_teams": [],
            "user": _user(made["user"], pull.author),
        }
        if "merged_by" in made:  # a list does not say it
            who = Grant(pull.merged_by or "", is_bot=False)
            made["merged_by"] = _user(made["user"], who) if pull.merged_by else None
        for side, ref, sha in (
            ("head", pull.head, pull.head_sha),
            ("base", pull.base, self.refs.get(f"heads/{pull.base}", "0" * 40)),
        ):
            made[side] |= {"ref": ref, "sha": sha, "label": f"{OWNER}:{ref}"}
            owner = pull.head_owner if side == "head" else OWNER
            made[side]["repo"]["full_name"] = f"{owner}/prompts"
        return made

    def merge(self, pull: Pull, sha: str | None, who: Grant) -> str:
        if pull.state != "open":
            raise RefusedError(405, "Pull Request is not mergeable")
        if self.approvals_needed > self.approvals(pull):
            said = "At least 1 approving review is required by reviewers with write access."
            raise RefusedError(405, said)
        if sha is not None and sha != pull.head_sha:
            raise RefusedError(409, "Head branch was modified. Review and try the merge again.")
        pull.state, pull.merged, pull.merged_by = "closed", True, who.login
        self.refs[f"heads/{pull.base}"] = pull.head_sha
        return pull.head_sha

    def approvals(self, pull: Pull) -> int:
        given = self.reviews.get(pull.number, [])
        return len({one["user"]["login"] for one in given if one["state"] == "APPROVED"})

    def add_review(self, pull: Pull, fields: dict[str, Any], who: Grant) -> dict[str, Any]:
        event = fields.get("event", "PENDING")
        if event == "APPROVE" and who.login == BOT and not self.may_open_pull_requests:
            message = "GitHub Actions is not permitted to create or approve pull requests."
            raise RefusedError(422, "Unprocessable Entity", message)
        if event == "APPROVE" and who.login == pull.author.login:
            raise RefusedError(422, "Unprocessable Entity", "Can not approve your own pull request")
        if event != "APPROVE" and not fields.get("body") and not fields.get("comments"):
            raise RefusedError(422, "Unprocessable Entity", "Body is missing")
        for comment in fields.get("comments", ()):
            shown = pull.diff_lines.get(comment["path"], set())
            if not {comment["line"], comment.get("start_line", comment["line"])} <= shown:
                raise RefusedError(422, "Unprocessable Entity", "Line must be part of the diff")
        made: dict[str, Any] = self.github.example("POST", REVIEWS, 200)
        made["id"] = self.next_id()
        made["body"] = fields.get("body", "")
        made["commit_id"] = fields.get("commit_id", pull.head_sha)
        made["state"] = {"APPROVE": "APPROVED", "COMMENT": "COMMENTED",
                         "REQUEST_CHANGES": "CHANGES_REQUESTED"}[event]  # fmt: skip
        made["user"] = _user(made["user"], who)
        self.reviews.setdefault(pull.number, []).append(made)
        for comment in fields.get("comments", ()):
            line: dict[str, Any] = self.github.example("POST", LINE_COMMENTS, 201)
            line |= {"id": self.next_id(), **comment, "user": _user(line["user"], who)}
            self.line_comments.setdefault(pull.number, []).append(line)
        return made


def _user(example: dict[str, Any], who: Grant) -> dict[str, Any]:
    return {**example, "login": who.login, "type": "Bot" if who.is_bot else "User"}


def _sha(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def decoded(fields: dict[str, Any]) -> bytes:
    """Return the content of a blob that somebody sends."""
    if fields.get("encoding") == "base64":
        return base64.b64decode(fields["content"], validate=True)
    return str(fields["content"]).encode()
