"""What each path of the fake does, and which permission it needs."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.features.github.fake_state import (
    APPROVALS,
    BLOB,
    BLOBS,
    COMMENT,
    COMMIT,
    COMMITS,
    CONTENTS,
    DISPATCHES,
    FILES,
    ISSUE,
    ISSUE_COMMENTS,
    ISSUES,
    LINE_COMMENTS,
    MATCHING_REFS,
    MERGE,
    PROTECTION,
    PULL,
    PULLS,
    REF,
    REF_CHANGE,
    REFS,
    REPO,
    REVIEWS,
    RULES,
    TREES,
    Grant,
    Pull,
    RefusedError,
    State,
    decoded,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Call:
    """A request that is allowed."""

    state: State
    who: Grant
    found: dict[str, str]
    query: dict[str, str]
    body: Any

    @property
    def pull(self) -> Pull:
        number = int(self.found.get("pull_number") or self.found["issue_number"])
        if number not in self.state.pulls:
            raise RefusedError(404, "Not Found")
        return self.state.pulls[number]

    @property
    def talk(self) -> int:
        """The number of an issue or a pull request: both have comments."""
        number = int(self.found["issue_number"])
        return number if number in self.state.issues else self.pull.number

    @property
    def comment(self) -> dict[str, Any]:
        found = self.state.comments.get(int(self.found["comment_id"]))
        if found is None:
            raise RefusedError(404, "Not Found")
        return found

    def need(self, kind: dict[str, Any], key: str) -> Any:
        if self.found[key] not in kind:
            raise RefusedError(404, "Not Found")
        return kind[self.found[key]]


Result = tuple[int, Any]


def arguments(template: str, path: str) -> dict[str, str]:
    """Return the parts of a path that its template names."""
    greedy = re.sub(r"\{(path|ref)\}", r"(?P<\1>.+)", template)
    found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", greedy), path)
    assert found is not None
    return found.groupdict()


def refuse_below(who: Grant, method: str, template: str) -> None:
    """Refuse a token whose permissions are not enough, as GitHub does."""
    about = "pull_requests" if "/pulls" in template or "/issues" in template else "contents"
    about = "issues" if template in (ISSUES, ISSUE) else about
    about = "actions" if "/actions" in template else about
    about = "metadata" if template in (REPO, RULES) else about
    about = "administration" if template == PROTECTION else about
    needed = "read" if method == "GET" else "write"
    # Every token may read what a repository is called.
    have = "read" if about == "metadata" else who.permissions.get(about, "none")
    if have == "none" or (needed == "write" and have != "write"):
        accepted = {"x_accepted_github_permissions": f"{about}={needed}"}
        raise RefusedError(403, "Resource not accessible by integration", **accepted)


# --- comments -------------------------------------------------------------------------------------


def _list_comments(call: Call) -> Result:
    return 200, call.state.comments_of(call.talk)


def _add_comment(call: Call) -> Result:
    return 201, call.state.add_comment(call.talk, call.body["body"], call.who)


def _change_comment(call: Call) -> Result:
    return 200, call.state.change_comment(call.comment["id"], call.body["body"])


def _delete_comment(call: Call) -> Result:
    del call.state.comments[call.comment["id"]]
    return 204, None


# --- issues ---------------------------------------------------------------------------------------


def _list_issues(call: Call) -> Result:
    listed = [
        i for i in call.state.issues.values() if i["state"] == call.query.get("state", "open")
    ]
    pulls = [pull for pull in call.state.pulls.values() if pull.state == "open"]
    as_issues = [_as_issue(call, pull) for pull in pulls]
    return 200, [*as_issues, *sorted(listed, key=lambda issue: -issue["number"])]


def _as_issue(call: Call, pull: Pull) -> dict[str, Any]:
    """Return a pull request as GitHub lists it among the issues."""
    made: dict[str, Any] = call.state.github.example("POST", ISSUES, 201)
    url = f"{call.state.server}/pulls/{pull.number}"
    links = dict.fromkeys(("url", "html_url", "diff_url", "patch_url"), url)
    return {**made, "number": pull.number, "body": pull.body, "pull_request": links}


def _open_issue(call: Call) -> Result:
    return 201, call.state.open_issue(call.body["title"], call.body["body"], call.who)


def _change_issue(call: Call) -> Result:
    number = int(call.found["issue_number"])
    if number not in call.state.issues:
        raise RefusedError(404, "Not Found")
    return 200, call.state.close_issue(number, call.body)


# --- pull requests --------------------------------------------------------------------------------


def _list_pulls(call: Call) -> Result:
    pulls = list(call.state.pulls.values())
    state, head = call.query.get("state", "open"), call.query.get("head")
    if state != "all":
        pulls = [pull for pull in pulls if pull.state == state]
    if head:  # GitHub ignores a head without an owner
        pulls = [p for p in pulls if ":" not in head or f"{p.head_owner}:{p.head}" == head]
    return 200, [call.state.pull_listed(pull) for pull in pulls]


def _open_pull(call: Call) -> Result:
    pull = call.state.open_pull(call.body, call.who)
    return 201, call.state.pull_reply(pull, "POST", 201)


def _change_pull(call: Call) -> Result:
    pull = call.pull
    for name in ("title", "body", "state"):
        setattr(pull, name, call.body.get(name, getattr(pull, name)))
    return 200, call.state.pull_reply(pull, "PATCH")


def _merge(call: Call) -> Result:
    sha = call.state.merge(call.pull, call.body.get("sha"), call.who)
    return 200, {"sha": sha, "merged": True, "message": "Pull Request successfully merged"}


def _files(call: Call) -> Result:
    example = call.state.github.example("GET", FILES, 200)[0]
    return 200, [{**example, **file} for file in call.pull.files]


def _list_reviews(call: Call) -> Result:
    return 200, call.state.reviews.get(call.pull.number, [])


def _add_review(call: Call) -> Result:
    return 200, call.state.add_review(call.pull, call.body, call.who)


def _line_comments(call: Call) -> Result:
    return 200, call.state.line_comments.get(call.pull.number, [])


# --- git data -------------------------------------------------------------------------------------


def _add_blob(call: Call) -> Result:
    sha = call.state.put_blob(decoded(call.body))
    return 201, {"url": f"{call.state.server}/blob", "sha": sha}


def _blob(call: Call) -> Result:
    data = call.need(call.state.blobs, "file_sha")
    made = call.state.github.example("GET", BLOB, 200)
    content = base64.encodebytes(data).decode()
    return 200, {**made, "sha": call.found["file_sha"], "content": content, "encoding": "base64"}


def _add_tree(call: Call) -> Result:
    base = call.state.trees.get(call.body.get("base_tree", ""))
    if base is None:
        raise RefusedError(404, "Not Found")
    files = dict(base)
    for entry in call.body["tree"]:
        if entry["sha"] not in call.state.blobs:
            raise RefusedError(422, "tree.sha is not a valid blob")
        files[entry["path"]] = entry["sha"]
    made = call.state.github.example("POST", TREES, 201)
    return 201, {**made, "sha": call.state.put_tree(files)}


def _add_commit(call: Call) -> Result:
    sha = call.state.put_commit(call.body["message"], call.body["tree"], call.body["parents"])
    return 201, _commit_reply(call, sha, "POST", COMMITS, 201)


def _commit(call: Call) -> Result:
    call.need(call.state.commits, "commit_sha")
    return 200, _commit_reply(call, call.found["commit_sha"], "GET", COMMIT, 200)


def _commit_reply(call: Call, sha: str, method: str, template: str, status: int) -> Any:
    made = call.state.github.example(method, template, status)
    kept = call.state.commits[sha]
    parent = made["parents"][0]
    made |= {"sha": sha, "message": kept["message"]}
    made["tree"]["sha"] = kept["tree"]
    made["parents"] = [{**parent, "sha": each} for each in kept["parents"]]
    return made


def _ref(call: Call) -> Result:
    return 200, _ref_reply(call, call.found["ref"], call.need(call.state.refs, "ref"))


def _matching_refs(call: Call) -> Result:
    start = call.found["ref"]
    found = {ref: sha for ref, sha in call.state.refs.items() if ref.startswith(start)}
    return 200, [_ref_reply(call, ref, sha) for ref, sha in sorted(found.items())]


def _add_ref(call: Call) -> Result:
    call.state.create_ref(call.body["ref"], call.body["sha"])
    return 201, _ref_reply(call, call.body["ref"].removeprefix("refs/"), call.body["sha"])


def _move_ref(call: Call) -> Result:
    force = call.body.get("force", False)
    call.state.move_ref(call.found["ref"], call.body["sha"], force=force)
    return 200, _ref_reply(call, call.found["ref"], call.body["sha"])


def _ref_reply(call: Call, ref: str, sha: str) -> Any:
    made = call.state.github.example("GET", REF, 200)
    made["ref"] = f"refs/{ref}"
    made["object"]["sha"] = sha
    return made


def _contents(call: Call) -> Result:
    data = call.state.file_at(call.query.get("ref", "main"), call.found["path"])
    made = call.state.github.example("GET", CONTENTS, 200)
    large = len(data) > 1_000_000
    made |= {
        "path": call.found["path"],
        "size": len(data),
        "sha": call.state.put_blob(data),
        "content": "" if large else base64.encodebytes(data).decode(),
        "encoding": "none" if large else "base64",
    }
    return 200, made


def _approvals(call: Call) -> Result:
    (made,) = call.state.github.example("GET", APPROVALS, 200)
    environment = made["environments"][0]
    return 200, [
        {**made, "state": state, "environments": [{**environment, "name": name}]}
        for name, state in call.state.approved.items()
    ]


def _repository(call: Call) -> Result:
    made = call.state.github.example("GET", REPO, 200)
    for origin in ("source", "parent", "template_repository"):
        made.pop(origin, None)
    # GitHub's own example lacks a key that GitHub's own schema requires.
    return 200, {"language": None, **made, "default_branch": call.state.default_branch}


def _rules(call: Call) -> Result:
    (made, *_) = call.state.github.example("GET", RULES, 200)
    if call.found["branch"] != call.state.default_branch:
        return 200, []
    made.pop("parameters")
    return 200, [{**made, **rule} for rule in call.state.rules]


def _protection(call: Call) -> Result:
    if call.found["branch"] != call.state.default_branch or call.state.classic is None:
        raise RefusedError(404, "Branch not protected")
    made = call.state.github.example("GET", PROTECTION, 200)
    for key in ("required_status_checks", "required_pull_request_reviews", "restrictions"):
        made.pop(key)
    return 200, {**made, **call.state.classic}


def _dispatch(call: Call) -> Result:
    inputs = call.body.get("inputs", {})
    call.state.dispatch(call.found["workflow_id"], call.body["ref"], inputs)
    return 204, None


ROUTES: dict[tuple[str, str], Callable[[Call], Result]] = {
    ("GET", ISSUE_COMMENTS): _list_comments,
    ("POST", ISSUE_COMMENTS): _add_comment,
    ("PATCH", COMMENT): _change_comment,
    ("DELETE", COMMENT): _delete_comment,
    ("GET", ISSUES): _list_issues,
    ("POST", ISSUES): _open_issue,
    ("PATCH", ISSUE): _change_issue,
    ("GET", PULLS): _list_pulls,
    ("POST", PULLS): _open_pull,
    ("GET", PULL): lambda call: (200, call.state.pull_reply(call.pull)),
    ("PATCH", PULL): _change_pull,
    ("PUT", MERGE): _merge,
    ("GET", FILES): _files,
    ("GET", REVIEWS): _list_reviews,
    ("POST", REVIEWS): _add_review,
    ("GET", LINE_COMMENTS): _line_comments,
    ("POST", BLOBS): _add_blob,
    ("GET", BLOB): _blob,
    ("POST", TREES): _add_tree,
    ("POST", COMMITS): _add_commit,
    ("GET", COMMIT): _commit,
    ("GET", REF): _ref,
    ("GET", MATCHING_REFS): _matching_refs,
    ("POST", REFS): _add_ref,
    ("PATCH", REF_CHANGE): _move_ref,
    ("GET", CONTENTS): _contents,
    ("GET", APPROVALS): _approvals,
    ("GET", REPO): _repository,
    ("POST", DISPATCHES): _dispatch,
    ("GET", RULES): _rules,
    ("GET", PROTECTION): _protection,
}
