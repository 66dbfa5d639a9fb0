"""What GitHub really sends is understood, and nothing in it makes a job more trusted than it is."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.events import Event, Situation, find_base, parse_event, read_event
from edison_ci.errors import UsageError
from edison_ci.git.repository import Repository
from tests.conftest import ROOT, Folder
from tests.features.github.git_remote import GitRemote
from tests.git.test_repository import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.daily

RUNNER = {
    "GITHUB_REPOSITORY": "Codertocat/Hello-World",
    "GITHUB_SHA": "e" * 40,
    "GITHUB_RUN_ID": "1658821493",
    "GITHUB_RUN_ATTEMPT": "2",
}
_EXAMPLES = ROOT / ".tools/node/node_modules/@octokit/webhooks-examples/api.github.com/index.json"


@cache
def examples() -> dict[str, list[dict[str, Any]]]:
    """Return the payloads that GitHub's documentation shows, by event."""
    assert _EXAMPLES.exists(), "run `make node` first"
    return {each["name"]: each["examples"] for each in json.loads(_EXAMPLES.read_bytes())}


def example(name: str, number: int = 0) -> dict[str, Any]:
    return copy.deepcopy(examples()[name][number])


def parse(name: str, payload: dict[str, Any], **environment: str) -> Event:
    return parse_event(name, payload, {**RUNNER, **environment})


def test_every_pull_request_that_github_shows_is_understood(subtests: pytest.Subtests) -> None:
    payloads = examples()["pull_request"]
    assert payloads
    for number, payload in enumerate(payloads):
        with subtests.test(number=number, action=payload["action"]):
            pull = payload["pull_request"]
            event = parse("pull_request", payload)
            base = pull["base"]
            assert event.situation is Situation.PULL_REQUEST
            assert (event.number, event.draft) == (pull["number"], pull["draft"])
            assert (event.head_sha, event.head_branch) == (pull["head"]["sha"], pull["head"]["ref"])
            assert (event.base_sha, event.base_branch) == (base["sha"], base["ref"])
            assert (event.trusted, event.mode) == (True, "live")
            assert (event.run_id, event.attempt, event.sha) == (1658821493, 2, "e" * 40)


@pytest.mark.parametrize("fork", ["another", "gone"])
def test_a_fork_is_replayed(fork: str) -> None:
    payload = example("pull_request")
    head = payload["pull_request"]["head"]
    head["repo"] = {**head["repo"], "id": 1, "full_name": "eve/Hello-World"}
    if fork == "gone":
        head["repo"] = None
    event = parse("pull_request", payload)
    assert (event.situation, event.trusted, event.mode) == (Situation.FORK, False, "replay")
    assert "a maintainer who has read the change can start the workflow by hand" in event.why


def test_a_repository_that_is_itself_a_fork_is_no_stranger_to_itself() -> None:
    payload = example("pull_request")
    for side in ("head", "base"):
        payload["pull_request"][side]["repo"]["fork"] = True
    assert parse("pull_request", payload).trusted


def test_a_fork_that_renames_itself_is_still_a_fork() -> None:
    payload = example("pull_request")
    payload["pull_request"]["head"]["repo"] = {
        **payload["pull_request"]["head"]["repo"],
        "id": 1,  # the name is the same, the repository is not
    }
    assert not parse("pull_request", payload).trusted


@pytest.mark.parametrize("name", ["pull_request", "push"])
def test_dependabot_is_replayed(name: str) -> None:
    payload = example(name)
    event = parse(name, payload, GITHUB_ACTOR="dependabot[bot]")
    assert (event.situation, event.mode) == (Situation.DEPENDABOT, "replay")
    payload["sender"] = {"login": "dependabot[bot]"}
    assert parse(name, payload).mode == "replay"
    # A person who pushes to the same branch has the rights of that person.
    assert parse(name, payload, GITHUB_ACTOR="octocat").mode == "live"


def test_pull_request_target_is_refused_for_forks_only() -> None:
    payload = example("pull_request")
    assert parse("pull_request_target", payload).mode == "live"
    payload["pull_request"]["head"]["repo"]["id"] = 1
    with pytest.raises(UsageError, match="gives the code of a fork the keys") as caught:
        parse("pull_request_target", payload)
    assert "workflow_dispatch" in caught.value.hint


@pytest.mark.parametrize("number", [0, 1])
def test_a_merge_queue_runs_without_a_comment(number: int) -> None:
    payload = example("merge_group", number)
    event = parse("merge_group", payload)
    assert (event.situation, event.mode, event.number) == (Situation.MERGE_GROUP, "live", None)
    assert event.head_sha == payload["merge_group"]["head_sha"]
    assert event.base_sha == payload["merge_group"]["base_sha"]
    assert event.base_branch == payload["merge_group"]["base_ref"].removeprefix("refs/heads/")


def test_zeros_in_a_push_stand_for_no_commit() -> None:
    events = [parse("push", payload) for payload in examples()["push"]]
    assert {event.situation for event in events} == {Situation.PUSH}
    new = [event for event in events if event.base_sha is None]
    deleted = [event for event in events if event.head_sha is None]
    assert new
    assert deleted
    assert all(event.head_sha for event in new)
    assert {event.head_branch for event in new} == {None, "master"}  # a tag is no branch
    assert {event.default_branch for event in events} == {"master"}


@pytest.mark.parametrize(
    ("name", "situation", "mode"),
    [
        ("schedule", Situation.SCHEDULE, "live"),
        ("workflow_dispatch", Situation.DISPATCH, "live"),
        ("repository_dispatch", Situation.OTHER, "replay"),
        ("issue_comment", Situation.OTHER, "replay"),
    ],
)
def test_other_events_are_trusted_only_when_whoever_caused_them_is(
    name: str, situation: Situation, mode: str
) -> None:
    payload = examples()[name][0] if name in examples() else {"schedule": "0 9 * * 1-5"}
    event = parse(name, payload)
    assert (event.situation, event.mode) == (situation, mode)
    assert (event.number, event.head_sha) == (None, "e" * 40)


@pytest.mark.parametrize("number", range(5))
def test_a_job_after_another_workflow_knows_whose_commit_it_was(number: int) -> None:
    payload = examples()["workflow_run"][number]
    event = parse("workflow_run", payload)
    assert event.situation is Situation.AFTER_WORKFLOW
    assert event.head_sha == payload["workflow_run"]["head_sha"]
    assert event.head_branch == payload["workflow_run"]["head_branch"]
    assert event.head_owner == payload["workflow_run"]["head_repository"]["owner"]["login"]
    assert not event.trusted


def test_no_event_of_github_breaks_the_reader() -> None:
    for name, payloads in examples().items():
        for payload in payloads:
            event = parse(name, payload)
            assert event.why


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pull_request.head.sha", "--upload-pack=x"),
        ("pull_request.head.sha", "HEAD"),
        ("pull_request.head.sha", None),
        ("pull_request.base.sha", "A" * 40),
        ("pull_request.base.sha", "a" * 41),
        ("pull_request.number", "1"),
        ("pull_request.number", True),
        ("pull_request", "text"),
        ("pull_request", None),
    ],
)
def test_what_is_no_commit_or_number_is_refused(path: str, value: Any) -> None:
    payload = example("pull_request")
    *parents, last = path.split(".")
    place: Any = payload
    for key in parents:
        place = place[key]
    place[last] = value
    with pytest.raises(UsageError, match="no valid pull_request"):
        parse("pull_request", payload)


def test_the_file_of_the_runner_is_read(tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(example("pull_request")))
    found = read_event(
        {**RUNNER, "GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(file)}
    )
    assert found.situation is Situation.PULL_REQUEST
    assert read_event({"GITHUB_EVENT_NAME": "schedule"}).mode == "live"


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_event_is_told(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "event.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match="the event in"):
        read_event({"GITHUB_EVENT_NAME": "push", "GITHUB_EVENT_PATH": str(file)})


def test_outside_of_actions_there_is_no_event() -> None:
    with pytest.raises(UsageError, match="not a job of GitHub Actions"):
        read_event({})


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 30, "²"])
def test_an_odd_run_id_counts_as_none(text: str) -> None:
    assert parse("schedule", {}, GITHUB_RUN_ID=text).run_id == 0


GONE = "c0ffee" * 6 + "c0ff"


@dataclass(frozen=True)
class Origin:
    """main: 40 commits; topic: leaves it at the 10th, adds 12 and renames a prompt."""

    tree: Tree
    url: str
    base: str
    head: str
    merge: str
    fork_point: str

    def checkout(self, path: Path, commit: str, *, depth: int) -> Repository:
        """Check out as `actions/checkout` does: one commit by its id, no branch, a cut history."""
        path.mkdir()
        clone = Folder(path)
        clone.git("init", "--quiet", "--initial-branch=main")
        clone.git("remote", "add", "origin", self.url)
        options = ("--quiet", "--no-tags", *((f"--depth={depth}",) if depth else ()))
        clone.git("fetch", *options, "origin", commit)
        clone.git("checkout", "--quiet", "--detach", commit)
        found = Repository.find(path)
        assert found is not None
        return found

    def event(self, name: str = "pull_request", **more: str | None) -> Event:
        situation = Situation.PUSH if name == "push" else Situation.PULL_REQUEST
        fields: dict[str, Any] = {
            "sha": self.merge,
            "head_sha": self.head,
            "base_sha": self.base,
            **more,
        }
        return replace(Event(name, situation, "acme/prompts", default_branch="main"), **fields)


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Origin]:
    served = tmp_path / "served"
    tree = Tree.create(served / "prompts.git")
    tree.git("config", "uploadpack.allowAnySHA1InWant", "true")
    tree.commit(**{"prompts/old.md": "the same words\n" * 20})
    tree.grow("main", commits=39, start="refs/heads/main^0")
    tree.grow("topic", commits=12, start="refs/heads/main~30")
    fork_point = tree.git("rev-parse", "main~30")
    tree.git("checkout", "--quiet", "--force", "topic")
    tree.git("mv", "prompts/old.md", "prompts/süß new.md")
    tree.git("commit", "--quiet", "--message", "rename")
    head, base = tree.git("rev-parse", "topic"), tree.git("rev-parse", "main")
    tree.git("checkout", "--quiet", "--detach", "main")
    tree.git("merge", "--quiet", "--no-ff", "--message", "merge", "topic")
    merge = tree.git("rev-parse", "HEAD")
    tree.git("update-ref", "refs/pull/1/merge", merge)
    tree.git("update-ref", "refs/pull/1/head", head)
    tree.git("checkout", "--quiet", "main")
    with GitRemote(served) as server:
        yield Origin(tree, f"{server.url}/prompts.git/.git", base, head, merge, fork_point)


CHANGED = frozenset({"topic.txt", "prompts/old.md", "prompts/süß new.md"})


@pytest.mark.parametrize("depth", [0, 1, 2, 50])
def test_of_the_merge_commit_the_first_parent_is_the_base(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=depth)
    base = find_base(origin.event(), repository).commit
    assert base == origin.base
    assert repository.changed_paths(base) == CHANGED


@pytest.mark.parametrize("named", ["main", "main~5", "main~30"])
def test_the_base_is_exact_whatever_base_the_event_names(
    origin: Origin, tmp_path: Path, named: str
) -> None:
    """The event names the base of the last push to the branch, the merge commit the one of now."""
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=2)
    event = origin.event(base_sha=origin.tree.git("rev-parse", named))
    origin.tree.commit(**{"main.txt": "later"})
    base = find_base(event, repository).commit
    assert base == origin.base
    assert repository.changed_paths(base) == CHANGED


def test_a_merge_commit_newer_than_the_event_is_still_the_one_of_the_job(
    origin: Origin, tmp_path: Path
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=1)
    event = origin.event(head_sha=origin.tree.git("rev-parse", "topic~1"))
    assert find_base(event, repository).commit == origin.base


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_of_the_head_itself_history_is_deepened_to_what_both_share(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=depth)
    if not depth:
        Folder(repository.root).git("fetch", "--quiet", "origin", "main")
    base = find_base(origin.event(), repository).commit
    assert base == origin.fork_point
    assert repository.changed_paths(base) == CHANGED


@pytest.mark.parametrize("depth", [1, 2])
def test_a_merge_queue_is_measured_against_what_it_merges_into(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.merge, depth=depth)
    event = replace(
        origin.event("merge_group", head_sha=origin.merge), situation=Situation.MERGE_GROUP
    )
    base = find_base(event, repository).commit
    assert base == origin.base
    assert repository.changed_paths(base) == CHANGED


@pytest.mark.parametrize("depth", [1, 2])
def test_a_push_is_measured_against_what_was_there_before(
    origin: Origin, tmp_path: Path, depth: int
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=depth)
    before = origin.tree.git("rev-parse", "topic~3")
    event = replace(origin.event("push", base_sha=before), head_branch="topic")
    base = find_base(event, repository).commit
    assert base == before
    assert repository.changed_paths(base) == CHANGED


@pytest.mark.parametrize(("before", "why"), [(None, "is new"), (GONE, "force-pushed")])
def test_a_branch_without_a_past_is_measured_against_the_default_branch(
    origin: Origin, tmp_path: Path, before: str | None, why: str
) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=1)
    event = replace(origin.event("push", base_sha=before), head_branch="topic")
    found = find_base(event, repository)
    assert found.commit == origin.fork_point
    assert why in found.why
    on_main = replace(event, head_branch="main")
    assert find_base(on_main, repository).commit is None


def test_other_events_count_everything_as_changed(origin: Origin, tmp_path: Path) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=1)
    event = Event("schedule", Situation.SCHEDULE, "acme/prompts")
    assert find_base(event, repository).commit is None


def test_a_remote_that_is_gone_is_told(origin: Origin, tmp_path: Path) -> None:
    repository = origin.checkout(tmp_path / "clone", origin.head, depth=1)
    Folder(repository.root).git("remote", "set-url", "origin", f"{origin.url}/nowhere")
    with pytest.raises(UsageError, match="is not in this clone"):
        find_base(origin.event(), repository)
