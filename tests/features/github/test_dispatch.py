"""A dispatch is sent once: what GitHub refuses is said, and what is not known is said to be so."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from edison_ci.api.run_start import CannotStart, DispatchUnknown
from edison_ci.features.github.dispatch import dispatch
from edison_ci.git.host import RUN_WORKFLOW, RepositoryAddress
from tests.conftest import EXAMPLES
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_state import REPOSITORY, Grant
from tests.features.github.trim_openapi import NAMES
from tests.ports import held_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.daily

DISPATCHES = f"/actions/workflows/{RUN_WORKFLOW}/dispatches"
INPUTS = {"experiment": "hello", "plan": "0" * 64, "request": "20261117T120000-abcdef"}


def declared_inputs() -> dict[str, Any]:
    """Return the inputs of the workflow that `edison init --github --workflow run` writes."""
    text = (EXAMPLES / "workflows" / RUN_WORKFLOW).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)[True]["workflow_dispatch"]["inputs"]
    return found


def with_workflow(server: FakeGitHub) -> FakeGitHub:
    """Give a GitHub the workflow, and a token that may start it."""
    server.state.workflows[RUN_WORKFLOW] = declared_inputs()
    server.grants[TOKEN] = Grant(permissions={"actions": "write"})
    return server


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as server:
        yield with_workflow(server)


def posts(github: FakeGitHub) -> int:
    return len(github.sent("POST", DISPATCHES))


@pytest.mark.parametrize("name", NAMES)
def test_the_workflow_is_started_on_the_default_branch(name: str) -> None:
    with FakeGitHub(name=name) as github:
        with_workflow(github)
        state = github.state
        state.default_branch = "trunk"
        state.refs["heads/trunk"] = state.refs["heads/main"]
        dispatch(github.address(), {**INPUTS, "budget": "0.010000"})
        given = {**INPUTS, "budget": "0.010000"}
        assert state.dispatched == [{"file": RUN_WORKFLOW, "ref": "trunk", "inputs": given}]


def test_a_token_without_the_permission_is_told_which_it_needs(github: FakeGitHub) -> None:
    github.grants[TOKEN] = Grant(permissions={"actions": "read", "contents": "write"})
    with pytest.raises(CannotStart, match=r"Resource not accessible.*HTTP 403") as refused:
        dispatch(github.address(), INPUTS)
    assert refused.value.hint == "the token needs these permissions: actions=write"
    assert (posts(github), github.state.dispatched) == (1, [])


def test_a_workflow_that_is_not_there_is_told_with_how_to_write_it(github: FakeGitHub) -> None:
    github.state.workflows.clear()
    with pytest.raises(
        CannotStart, match=f"start the workflow {RUN_WORKFLOW}: Not Found"
    ) as refused:
        dispatch(github.address(), INPUTS)
    assert "edison init --github --workflow run" in refused.value.hint
    assert f"or give the token access to {REPOSITORY}" in refused.value.hint
    assert posts(github) == 1


def test_a_workflow_with_other_inputs_is_told(github: FakeGitHub) -> None:
    del github.state.workflows[RUN_WORKFLOW]["plan"]
    with pytest.raises(CannotStart, match="Unexpected inputs provided") as refused:
        dispatch(github.address(), INPUTS)
    assert "the workflow on main is switched off, or not ours" in refused.value.hint
    assert posts(github) == 1


@pytest.mark.parametrize(("token", "repository"), [("ghs_other", REPOSITORY), (TOKEN, "a/b")])
def test_a_wrong_token_or_repository_is_told_before_anything_is_started(
    github: FakeGitHub, token: str, repository: str
) -> None:
    with pytest.raises(CannotStart, match="GitHub refused to read the repository") as refused:
        dispatch(github.address(token, repository), INPUTS)
    assert refused.value.hint
    assert token not in f"{refused.value.message} {refused.value.hint}"
    assert posts(github) == 0


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_error_leaves_it_unknown_and_is_not_repeated(
    github: FakeGitHub, status: int, after: bool
) -> None:
    github.faults.append(Fault(status, "POST", DISPATCHES, after=after, times=9))
    with pytest.raises(DispatchUnknown, match=f"HTTP {status}"):
        dispatch(github.address(), INPUTS)
    assert (posts(github), len(github.state.dispatched)) == (1, int(after))


def test_a_page_of_a_proxy_instead_of_an_answer_leaves_it_unknown(github: FakeGitHub) -> None:
    github.faults.append(Fault(200, "POST", DISPATCHES, body=b"<html>signed out</html>"))
    with pytest.raises(DispatchUnknown, match="is not JSON"):
        dispatch(github.address(), INPUTS)
    assert posts(github) == 1


def test_an_outage_before_anything_is_started_is_no_doubt(github: FakeGitHub) -> None:
    github.faults.append(Fault(503, "GET", headers={"retry-after": "60"}, times=9))
    with pytest.raises(CannotStart, match="HTTP 503"):
        dispatch(github.address(), INPUTS)
    assert posts(github) == 0


def test_a_rate_limit_is_no_doubt(github: FakeGitHub) -> None:
    github.faults.append(Fault(403, "POST", DISPATCHES, {"retry-after": "600"}, times=9))
    with pytest.raises(CannotStart) as refused:
        dispatch(github.address(), INPUTS)
    assert "wait 600 seconds" in refused.value.hint
    assert posts(github) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_github_that_hangs_is_not_waited_for(github: FakeGitHub, method: str) -> None:
    released = threading.Event()
    github.faults.append(Fault(500, method, until=released, after=True))
    expected = CannotStart if method == "GET" else DispatchUnknown
    try:
        with pytest.raises(expected, match="GitHub did not answer in time"):
            dispatch(github.address(), INPUTS, limit_s=2.0)
    finally:
        released.set()
    assert posts(github) == int(method == "POST")


def test_a_github_that_cannot_be_reached_starts_nothing() -> None:
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        address = RepositoryAddress(REPOSITORY, TOKEN, url, url)
        with pytest.raises(CannotStart, match="cannot connect to GitHub"):
            dispatch(address, INPUTS)
