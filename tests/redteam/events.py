"""Attacks by what starts the job: whatever it is, the head's trust counts for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.redteam.attack import Attack, Variant
from tests.redteam.keys import near, with_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redteam.bench import Scene

    Started = Callable[[Scene], tuple[str, dict[str, Any], str]]

NAMES = (
    "branch_protection_rule", "check_run", "check_suite", "create", "delete", "deployment",
    "deployment_status", "discussion", "discussion_comment", "fork", "gollum", "issue_comment",
    "issues", "label", "merge_group", "milestone", "page_build", "project", "public",
    "project_card", "pull_request", "pull_request_comment", "pull_request_review",
    "pull_request_review_comment", "pull_request_target", "push", "registry_package", "release",
    "repository_dispatch", "schedule", "status", "watch", "workflow_call", "workflow_dispatch",
    "workflow_run", "something_new", "PULL_REQUEST", "Push", " push",
)  # fmt: skip
REFS = (
    "refs/heads/main", "refs/heads/topic", "refs/tags/main", "refs/heads/x/main", "main",
    "refs/pull/1/merge", "refs/heads/Main", "refs/remotes/origin/main", "",
)  # fmt: skip
TRUSTED = ("push", "schedule", "workflow_dispatch")
"""What may be about the default branch itself."""


def _event(name: str, ref: str, **more: Any) -> Started:
    def started(scene: Scene) -> tuple[str, dict[str, Any], str]:
        head = scene.git("rev-parse", "HEAD")
        payload = {
            **scene.pull_request(),
            "ref": ref,
            "before": scene.base,
            "after": scene.base if ref == "refs/heads/main" else head,
            "schedule": "0 9 * * *",
            "issue": {"number": 1, "pull_request": {}},
            "merge_group": {
                "head_sha": head,
                "head_ref": "refs/heads/gh-readonly-queue/main/pr-1",
                "base_sha": scene.base,
                "base_ref": "refs/heads/main",
            },
            "workflow_run": {"head_sha": head, "head_branch": "main", "event": "push"},
            **more,
        }
        return name, payload, ref

    return started


def _events() -> Iterator[Variant]:
    for name in NAMES:
        for ref in REFS if name in TRUSTED else REFS[1:2]:
            # A job about the default branch has its commit: GITHUB_SHA of the base, or of the head.
            commands = [("run", "--yes"), *([("github", "run")] if ref == REFS[0] else [])]
            for command in commands:
                yield Variant(
                    f"{name} {ref} {command[0]}",
                    with_models(near("127.0.0.1")),
                    started=_event(name, ref),
                    command=command,
                    may_pass="--yes" in command,  # it measures the base's model
                    environ={"GITHUB_SHA": "{base}"},
                )


def _fork(scene: Scene) -> tuple[str, dict[str, Any], str]:
    return "pull_request", scene.pull_request(fork=True), "refs/pull/1/merge"


def _target(scene: Scene) -> tuple[str, dict[str, Any], str]:
    return "pull_request_target", scene.pull_request(fork=True), "refs/heads/main"


def _lax_base(scene: Scene) -> tuple[str, dict[str, Any], str]:
    """Propose to a branch of one's own, whose trust.yaml allows everything."""
    event = scene.pull_request()
    event["pull_request"]["base"] |= {"ref": "lax", "sha": scene.head}
    return "pull_request", event, "refs/pull/1/merge"


def _gone(scene: Scene) -> tuple[str, dict[str, Any], str]:
    event = scene.pull_request()
    event["pull_request"]["head"]["repo"] = None
    return "pull_request", event, "refs/pull/1/merge"


def _others() -> Iterator[Variant]:
    change = with_models(near("127.0.0.1"))
    for started in (_fork, _target, _lax_base, _gone):
        for command in (("github", "run"), ("run", "--yes")):
            name = f"{started.__name__[1:]} {command[0]}"
            may_pass = "--yes" in command  # it measures the base's model
            yield Variant(name, change, started=started, command=command, may_pass=may_pass)
    for actor in ("dependabot[bot]", "acme", "github-actions[bot]"):
        environ = {"GITHUB_ACTOR": actor}
        yield Variant(f"actor {actor}", change, environ=environ)
    for name in ("GITHUB_BASE_REF", "GITHUB_HEAD_REF"):
        yield Variant(f"{name}: main", change, environ={name: "main"})


def _all() -> Iterator[Variant]:
    yield from _events()
    yield from _others()


ATTACKS = (Attack("events", "the head's trust counts for nothing, whatever starts the job", _all),)
