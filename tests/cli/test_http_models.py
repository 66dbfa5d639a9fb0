"""Which paths get a key, by an http model or a name of a model, and with which headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.access import github_api
from edison_ci.config.provider_options import OPTIONS
from edison_ci.config.trust import TrustFile
from tests.cli.test_trusting import KEY, commit, laid_out, proposal, rebased
from tests.config.said import said
from tests.loopback.fixture import loopback

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["loopback", "proposal"]

MODEL = """\
small:
  provider: http
  model: m
  base_url: {url}/v1/chat/completions
  key_env: VENDOR_KEY
  options:
    body: {{model: m, messages: [{{role: user, content: "{{{{ prompt }}}}"}}]}}
    text: choices.0.message.content
  price: {{call: 0.001}}
"""
PATH = "/v1/chat/completions"
ADMIN = "/admin/chat/completions"


@pytest.fixture
def service(repo: Folder, ours: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A repository whose default branch has an http model with a key."""
    monkeypatch.setenv("VENDOR_KEY", KEY)
    (repo.path / "rubrics/tone.yaml").unlink()
    laid_out(repo, ours.url)
    repo.write("models.yaml", MODEL.format(url=ours.url))
    commit(repo, "an http model")
    return repo


def arrived(server: LoopbackServer) -> dict[str, set[bool]]:
    """Return the paths that were asked, and whether a key arrived there."""
    paths: dict[str, set[bool]] = {}
    for request in server.requests:
        paths.setdefault(request.path, set()).add(KEY in str(request.headers))
    server.requests.clear()
    return paths


def run(edison: Edison, project: Folder) -> int:
    return edison(project, "run", "--yes", "--no-cache").code


def with_services(project: Folder, *entries: str) -> None:
    keys = project.read(".edison/trust.yaml").partition("services:")[0]
    project.write(".edison/trust.yaml", f"{keys}services: [{', '.join(entries)}]\n")


# --- paths ----------------------------------------------------------------------------------------


def test_a_key_goes_to_the_paths_of_the_default_branch(
    edison: Edison, service: Folder, ours: LoopbackServer
) -> None:
    assert run(edison, service) == 0
    assert arrived(ours) == {PATH: {True}}
    service.edit("models.yaml", PATH, ADMIN)
    for committed in (False, True):
        if committed:
            service.git("switch", "--quiet", "--create", "other")
            commit(service, "another path on a branch")
            service.git("tag", "main")  # Git prefers it to the branch of this name
        assert run(edison, service) == 2
    done = edison(service, "validate")
    assert (done.code, "models.yaml:1:1: " in done.all) == (2, True), done.all
    assert f'paths: ["{ADMIN}"]' in done.all
    assert edison(service, "trust", "check").code == 2
    blocker = f"model 'small' would send VENDOR_KEY to {ADMIN}"
    assert blocker in edison(service, "plan", "hello").out
    assert arrived(ours) == {}
    service.git("branch", "--force", "main", "other")
    assert run(edison, service) == 0
    assert arrived(ours) == {ADMIN: {True}}


def test_trust_names_the_paths_of_a_host(
    edison: Edison, service: Folder, ours: LoopbackServer
) -> None:
    with_services(service, f"{{host: '{ours.url}', paths: [/admin]}}")
    assert run(edison, service) == 2, "the default branch counts only where no path is named"
    service.edit("models.yaml", PATH, ADMIN)
    assert run(edison, service) == 0
    assert arrived(ours) == {ADMIN: {True}}
    assert edison(service, "trust", "check").code == 0
    for path in (
        "/administration",
        "/admin/../v1",
        "/admin/%2e%2e/v1",
        "/admin//v1",
        "/admin/./v1",
    ):
        service.write("models.yaml", MODEL.format(url=ours.url).replace("/v1", path))
        assert run(edison, service) == 2, path
    assert arrived(ours) == {}


def test_a_path_in_a_variable_is_checked_too(
    edison: Edison, service: Folder, ours: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.edit("models.yaml", f"base_url: {ours.url}{PATH}", "base_url_env: SERVICE_URL")
    monkeypatch.setenv("SERVICE_URL", f"{ours.url}{PATH}")
    assert run(edison, service) == 0
    monkeypatch.setenv("SERVICE_URL", f"{ours.url}{ADMIN}")
    assert run(edison, service) == 2
    assert arrived(ours) == {PATH: {True}}
    service.git("checkout", "--quiet", ".")
    monkeypatch.setenv("SERVICE_URL", f"{ours.url}{PATH}")
    service.edit("models.yaml", f"base_url: {ours.url}{PATH}", "base_url_env: SERVICE_URL")
    commit(service, "an address in a variable")
    monkeypatch.setenv("SERVICE_URL", f"{ours.url}{ADMIN}")
    assert run(edison, service) == 0, "whoever sets the variable says where it leads"
    assert arrived(ours) == {ADMIN: {True}}


def test_without_a_key_or_a_repository_the_address_is_that_of_the_file(
    edison: Edison, service: Folder, ours: LoopbackServer, mini: Folder
) -> None:
    service.edit("models.yaml", PATH, ADMIN)
    service.edit("models.yaml", "  key_env: VENDOR_KEY\n", "")
    assert run(edison, service) == 0
    assert arrived(ours) == {ADMIN: {False}}
    service.write("models.yaml", MODEL.format(url=ours.url))
    (mini.path / ".git").rename(mini.path.parent / "git")
    assert run(edison, service) == 0
    assert arrived(ours) == {PATH: {True}}


def test_a_proposal_sends_a_key_to_no_other_path_and_with_no_other_header(
    edison: Edison,
    proposal: Folder,
    ours: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    proposal.write("models.yaml", MODEL.format(url=ours.url))
    trust = proposal.read(".edison/trust.yaml") + "environment: approved\n"
    proposal.write(".edison/trust.yaml", trust)
    rebased(proposal, tmp_path)
    proposal.write("models.yaml", MODEL.format(url=ours.url).replace("/v1", "/admin"))
    with_services(proposal, f"{{host: '{ours.url}', paths: [/], headers: [X-Role]}}")
    commit(proposal, "another path")
    assert run(edison, proposal) == 0
    assert arrived(ours) == {PATH: {True}}, "the entry of the base"
    with_header(proposal, ours.url, "{X-Role: admin}")
    commit(proposal, "a header")
    assert run(edison, proposal) == 0
    assert not any("x-role" in request.headers for request in ours.requests)
    assert arrived(ours) == {PATH: {True}}
    monkeypatch.setattr(github_api, "is_approved", lambda *_: True)
    assert run(edison, proposal) == 2
    proposal.write("models.yaml", MODEL.format(url=ours.url).replace("/v1", "/admin"))
    commit(proposal, "another path")
    assert run(edison, proposal) == 2
    assert arrived(ours) == {}


def test_a_proposal_leads_to_no_other_path_by_the_name_of_a_model(
    edison: Edison, proposal: Folder, ours: LoopbackServer, tmp_path: Path
) -> None:
    entry = (
        "small: {{provider: litellm, model: '{}', base_url: {}, key_env: VENDOR_KEY, "
        "price: {{in: 1, out: 2}}}}\n"
    )
    proposal.write("models.yaml", entry.format("gemini/gemini-2.5-flash", ours.url))
    rebased(proposal, tmp_path)
    proposal.write("models.yaml", entry.format("gemini/../../upload?x=", ours.url))
    commit(proposal, "another model")
    assert run(edison, proposal) == 2
    assert arrived(ours) == {}


# --- headers --------------------------------------------------------------------------------------


def with_header(project: Folder, url: str, header: str) -> None:
    text = MODEL.format(url=url)
    project.write(
        "models.yaml", text.replace("  options:\n", f"  options:\n    headers: {header}\n")
    )


def test_a_header_of_no_list_is_refused_unless_trust_names_it_for_the_host(
    edison: Edison, service: Folder, ours: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_header(service, ours.url, "{Accept-Language: de, x-api-key: 'k {{ key }}'}")
    assert run(edison, service) == 0
    assert {request.headers["x-api-key"] for request in ours.requests} == {f"k {KEY}"}
    assert {request.headers["accept-language"] for request in ours.requests} == {"de"}
    arrived(ours)
    with_header(service, ours.url, "{X-Role: admin}")
    with_services(service, "{host: 'https://other.example', headers: [X-Role]}")
    done = edison(service, "run", "--yes", "--no-cache")
    assert (done.code, "models.yaml:7:23: " in done.all) == (2, True), done.all
    hint = f'services: [{{host: "{ours.url}", headers: [X-Role]}}]'
    assert hint in done.all
    assert arrived(ours) == {}
    with_services(service, f"{{host: '{ours.url}', headers: [x-role]}}")
    assert run(edison, service) == 0
    assert {request.headers["x-role"] for request in ours.requests} == {"admin"}
    arrived(ours)
    service.edit("models.yaml", f"base_url: {ours.url}{PATH}", "base_url_env: SERVICE_URL")
    with_services(service, f"{{host: '{ours.url}', paths: [/]}}")
    monkeypatch.setenv("SERVICE_URL", f"{ours.url}{PATH}")
    assert run(edison, service) == 2
    assert arrived(ours) == {}


NEVER = (
    "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "TE",
    "Trailer", "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Anything",
    "X-Forwarded", "Cookie", "Cookie2", "Proxy-Authorization", "Proxy-Connection", "Proxy",
    "Expect",
)  # fmt: skip


def test_no_file_sets_a_header_of_the_connection(
    edison: Edison, service: Folder, ours: LoopbackServer, subtests: pytest.Subtests
) -> None:
    host = "host: 'https://h.example', headers"
    for name in NEVER:
        for spelling in (name, name.lower(), name.upper(), name.swapcase()):
            with subtests.test(spelling):
                told = f"the header {spelling} belongs to the connection or to proxies"
                (message,) = said(OPTIONS["http"], f"body: {{}}\nheaders: {{{spelling}: x}}\n")
                assert told in message
                (message,) = said(TrustFile, f"services: [{{{host}: [{spelling}]}}]\n")
                assert told in message
    with_services(service, f"{{host: '{ours.url}', headers: [X-Forwarded-Host]}}")
    with_header(service, ours.url, "{x-forwarded-host: evil.example}")
    done = edison(service, "run", "--yes", "--no-cache")
    assert (done.code, "models.yaml:7:" in done.all) == (2, True), done.all
    assert ".edison/trust.yaml:4:" in done.all
    assert arrived(ours) == {}


@pytest.mark.parametrize(
    "header",
    [
        r'{X-Key: "a\r\nHost: evil.example"}', r'{X-Key: "a\tb"}', r'{X-Key: "a\0b"}',
        r'{X-Key: "a\x7fb"}', '{X-Key: "a\N{LATIN CAPITAL LETTER C WITH DOT ABOVE}b"}',
        r'{"X-Key\r\nHost": a}', '{"X-Key ": a}', '{"X-Key:": a}', '{X_Forwarded_For: a}',
        '{"": a}', "{X-Key: a, x-key: b}",
    ],
)  # fmt: skip
def test_a_header_cannot_become_two(
    edison: Edison, service: Folder, ours: LoopbackServer, header: str
) -> None:
    with_header(service, ours.url, header)
    done = edison(service, "run", "--yes", "--no-cache")
    assert (done.code, "models.yaml:7:" in done.all) == (2, True), done.all
    assert arrived(ours) == {}
