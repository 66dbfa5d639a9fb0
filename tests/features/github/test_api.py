"""Limits are waited for, failures are told apart, and the token stays where it belongs."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from edison_ci.access.github_api import PERMISSIONS_HEADER, Api
from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.features.github.forge import GitHub
from edison_ci.git.forge import Timing
from edison_ci.git.host import RepositoryAddress
from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_state import Grant
from tests.ports import held_port
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.features.github.conftest import Clock

pytestmark = pytest.mark.daily

HTML = b"<!DOCTYPE html><html><head><title>Unicorn! &middot; GitHub</title></head></html>"
SECONDARY = b'{"message": "You have exceeded a secondary rate limit. Please wait."}'


async def failure(github: GitHub) -> ForgeError:
    async with github:
        with pytest.raises(ForgeError) as caught:
            await github.comments(1)
    return caught.value


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 429])
async def test_a_wait_that_is_asked_for_is_waited(
    fake: FakeGitHub, github: GitHub, clock: Clock, status: int
) -> None:
    fake.faults.append(Fault(status, headers={"Retry-After": "17"}, body=SECONDARY, times=2))
    async with github:
        assert await github.comments(1) == []
    assert clock.waits == [17, 17]


async def test_a_spent_limit_is_waited_for_until_it_resets(
    fake: FakeGitHub, github: GitHub, clock: Clock
) -> None:
    reset = str(int(clock.now.timestamp()) + 120)
    spent = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
    fake.faults.append(Fault(403, headers=spent, body=b'{"message": "API rate limit exceeded"}'))
    async with github:
        await github.comments(1)
    assert len(clock.waits) == 1
    assert 119.9 < clock.waits[0] <= 121


async def test_a_secondary_limit_without_a_time_is_waited_for_longer_and_longer(
    fake: FakeGitHub, github: GitHub, clock: Clock
) -> None:
    fake.faults.append(Fault(403, body=SECONDARY, times=2))
    async with github:
        await github.comments(1)
    assert clock.waits == [60, 120]


async def test_a_limited_write_is_repeated_because_it_was_not_carried_out(
    fake: FakeGitHub, github: GitHub, clock: Clock
) -> None:
    fake.faults.append(Fault(429, "POST", headers={"Retry-After": "5"}))
    async with github:
        await github.create_comment(1, "hello")
    assert clock.waits == [5]
    assert len(fake.state.comments) == 1


async def test_waiting_has_an_end(fake: FakeGitHub, github: GitHub, clock: Clock) -> None:
    fake.faults.append(Fault(403, headers={"Retry-After": "3600"}, times=9))
    error = await failure(github)
    assert error.fault is ForgeFault.LIMITED
    assert clock.slept == []
    assert "3600 seconds more" in error.hint


async def test_all_waiting_together_has_an_end(
    fake: FakeGitHub, github: GitHub, clock: Clock
) -> None:
    fake.faults.append(Fault(429, headers={"Retry-After": "100"}, times=9))
    assert (await failure(github)).fault is ForgeFault.LIMITED
    assert clock.waits == [100, 100, 100]


async def test_writes_are_a_second_apart(fake: FakeGitHub, github: GitHub, clock: Clock) -> None:
    async with github:
        for number in range(3):
            await github.create_comment(1, str(number))
    assert clock.slept == [1.0, 1.0]


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_read_is_tried_again_when_github_is_down(
    fake: FakeGitHub, github: GitHub, clock: Clock, status: int
) -> None:
    fake.faults.append(Fault(status, body=HTML, times=3))
    async with github:
        await github.comments(1)
    assert clock.slept == [1, 2, 4]


async def test_an_outage_that_says_how_long_is_believed(
    fake: FakeGitHub, github: GitHub, clock: Clock
) -> None:
    fake.faults.append(Fault(503, headers={"Retry-After": "30"}))
    async with github:
        await github.comments(1)
    assert clock.slept == [30]


async def test_an_html_page_is_told_by_its_title(fake: FakeGitHub, github: GitHub) -> None:
    fake.faults.append(Fault(502, body=HTML, times=9))
    error = await failure(github)
    assert error.fault is ForgeFault.UNAVAILABLE
    assert error.message == (
        "GitHub failed to list the comments: Unicorn! &middot; GitHub (HTTP 502)"
    )


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (400, ForgeFault.INVALID),
        (401, ForgeFault.UNAUTHORIZED),
        (403, ForgeFault.FORBIDDEN),
        (404, ForgeFault.NOT_FOUND),
        (405, ForgeFault.CONFLICT),
        (409, ForgeFault.CONFLICT),
        (410, ForgeFault.NOT_FOUND),
        (418, ForgeFault.INVALID),
        (422, ForgeFault.INVALID),
        (451, ForgeFault.FORBIDDEN),
    ],
)
async def test_a_refusal_is_told_at_once(
    fake: FakeGitHub, github: GitHub, clock: Clock, status: int, fault: ForgeFault
) -> None:
    fake.faults.append(Fault(status, times=9))
    error = await failure(github)
    assert (error.fault, error.status, clock.slept) == (fault, status, [])
    assert error.message == f"GitHub refused to list the comments: scripted (HTTP {status})"


async def test_the_details_of_a_refusal_are_told(fake: FakeGitHub, github: GitHub) -> None:
    body = (
        b'{"message": "Validation Failed", "errors": [{"field": "title", "code": "missing_field"}, '
        b'"Could not resolve", {"message": "too long"}, 3]}'
    )
    fake.faults.append(Fault(422, body=body))
    error = await failure(github)
    assert "Validation Failed; title missing_field; Could not resolve; too long" in error.message


async def test_a_bad_token_and_a_missing_permission_are_told_apart(
    fake: FakeGitHub, clock: Clock
) -> None:
    wrong = GitHub(fake.address(token="ghs_wrongwrongwrong"), timing=clock.timing)
    assert (await failure(wrong)).fault is ForgeFault.UNAUTHORIZED
    fake.grants[TOKEN] = Grant(permissions={})
    error = await failure(GitHub(fake.address(), timing=clock.timing))
    assert (error.fault, error.hint) == (
        ForgeFault.FORBIDDEN,
        "the token needs these permissions: pull_requests=read",
    )


@pytest.mark.parametrize("token", [TOKEN, "plainWordOfNoKnownShape", "with/slash+plus=12345"])
@pytest.mark.parametrize("status", [302, 403, 422, 500])
async def test_no_error_repeats_the_token(
    fake: FakeGitHub, clock: Clock, token: str, status: int
) -> None:
    echo = f'{{"message": "{token}", "errors": [{{"message": "of {token}"}}]}}'.encode()
    told = {"Location": f"/?t={quote(token, safe='')}", PERMISSIONS_HEADER: f"x={token}"}
    fake.faults.append(Fault(status, body=echo, headers=told, times=9))
    error = await failure(GitHub(fake.address(token=token), timing=clock.timing))
    assert "[key]" in error.message
    assert token not in f"{error!r} {error} {error.hint} {vars(error)}"
    assert quote(token, safe="") not in str(error)


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"{}", b"[1]", b'[{"id": true}]', b"[" * 100_000, HTML]
)
async def test_a_success_that_makes_no_sense_is_an_error(
    fake: FakeGitHub, github: GitHub, body: bytes
) -> None:
    fake.faults.append(Fault(200, body=body))
    assert (await failure(github)).fault is ForgeFault.UNREADABLE


async def test_nobody_listening_is_told_after_some_tries(clock: Clock) -> None:
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        github = GitHub(RepositoryAddress("acme/prompts", TOKEN, url, url), timing=clock.timing)
        async with github:
            with pytest.raises(ForgeError, match="cannot connect") as caught:
                await github.create_comment(1, "x")  # nothing was sent, so even a write is retried
    assert caught.value.__context__ is None
    assert clock.waits == [2, 4]


async def test_a_connection_that_breaks_does_not_repeat_what_makes_things(clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        accepted = []

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                accepted.append(connection.recv(65536))
                connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        async with GitHub(
            RepositoryAddress("acme/prompts", TOKEN, url, url), timing=clock.timing
        ) as github:
            with pytest.raises(ForgeError, match="interrupted") as caught:
                await github.create_comment(1, "x")
            assert len(accepted) == 1
            with pytest.raises(ForgeError, match="interrupted"):
                await github.comments(1)
            assert len(accepted) == 5
        server.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)
    assert caught.value.fault is ForgeFault.UNAVAILABLE
    assert TOKEN not in repr(caught.value.__dict__)


# --- pages, caching, other hosts ------------------------------------------------------------------


async def test_pages_are_followed_to_the_end(fake: FakeGitHub, github: GitHub) -> None:
    for number in range(250):
        fake.state.add_comment(1, str(number), Grant())
    async with github:
        found = await github.comments(1)
    assert [comment.body for comment in found] == [str(number) for number in range(250)]
    assert len(fake.requests) == 3


async def test_what_did_not_change_is_not_sent_again(fake: FakeGitHub, github: GitHub) -> None:
    fake.state.add_comment(1, "hello", Grant())
    async with github:
        first = await github.comments(1)
        left = fake.remaining
        assert await github.comments(1) == first
        assert fake.remaining == left  # a 304 does not count against the limit
        fake.state.add_comment(1, "more", Grant())
        assert len(await github.comments(1)) == 2
    assert "if-none-match" in fake.requests[1].headers


@pytest.mark.parametrize(
    "link",
    [
        '<https://evil.example/page2>; rel="next"',
        '<http://127.0.0.1:1/page2>; rel="next"',
        '<//evil.example/>; rel="next"',
        '<file:///etc/passwd>; rel="next"',
    ],
)
async def test_the_next_page_on_another_host_is_refused(
    fake: FakeGitHub, github: GitHub, link: str
) -> None:
    fake.faults.append(Fault(200, headers={"Link": link}, body=b"[]"))
    assert (await failure(github)).fault is ForgeFault.MOVED


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(fake: FakeGitHub, github: GitHub, status: int) -> None:
    with FakeGitHub() as other:
        fake.faults.append(Fault(status, headers={"Location": f"{other.url}/repositories/1"}))
        error = await failure(github)
        assert other.requests == []
    assert error.fault is ForgeFault.MOVED
    assert "GITHUB_REPOSITORY" in error.hint


async def test_enterprise_has_its_own_path_and_description(clock: Clock) -> None:
    with FakeGitHub(name="ghes-3.17", prefix="/api/v3") as enterprise:
        open_pull(enterprise)
        for number in range(120):
            enterprise.state.add_comment(1, str(number), Grant())
        async with GitHub(enterprise.address(), timing=clock.timing) as github:
            await github.create_comment(1, "hello")
            assert len(await github.comments(1)) == 121
        assert all(r.path.startswith("/api/v3/repo") for r in enterprise.requests)


@pytest.mark.parametrize("path", ["..", "a/../b", "", "a//b", "."])
async def test_a_path_cannot_leave_the_repository(
    fake: FakeGitHub, clock: Clock, path: str
) -> None:
    async with Api(fake.address(), clock.timing) as api:
        with pytest.raises(ForgeError):
            await api.get("read a file", "contents", path)
    assert fake.requests == []


async def test_endless_pages_have_an_end(fake: FakeGitHub, github: GitHub) -> None:
    path = f"{fake.url}/repos/acme/prompts/issues/1/comments?per_page=100"
    more = {"Link": f'<{path}>; rel="next"'}
    fake.faults.append(Fault(200, headers=more, body=b"[]", times=1000))
    error = await failure(github)
    assert "more than 10,000 items" in error.message


def test_by_default_time_is_real() -> None:
    timing: Any = Timing()
    assert timing.sleep.__module__.startswith("asyncio")
    assert timing.clock().tzinfo is not None
