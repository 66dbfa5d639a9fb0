"""Beyond this machine nothing is served unless people can sign in; behind a proxy it is said."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.accounts import AUTH_FILE
from tests.conftest import MINIMAL, Folder
from tests.web.conftest import LINES, started
from tests.web.test_sign_in import MEMBERS, PASSWORD, House, prepared, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with people who can sign in."""
    return Folder(prepared(tmp_path_factory.mktemp("beyond") / "project"))


@pytest.mark.parametrize("option", [("--host", "0.0.0.0"), ("--sign-in",), ("--name", "x.org")])
def test_nobody_is_served_who_could_not_sign_in(mini: Folder, option: tuple[str, ...]) -> None:
    def told() -> str:
        done = mini.edison("serve", "--port", "0", *option)
        assert done.code == 2
        return done.err

    assert "edison.yaml has no members" in told()
    mini.write("edison.yaml", MEMBERS.replace("role: owner", "role: admin"))
    assert "no member is an owner" in told()
    mini.write("edison.yaml", MEMBERS)
    said = told()
    assert "no member has a password or a token" in said
    assert "edison roles passwd ada@example.com" in said
    assert "ssh -L" in said


@pytest.mark.parametrize("option", [("--host", "0.0.0.0"), ("--behind-tls",)])
def test_private_texts_stay_on_this_machine(mini: Folder, option: tuple[str, ...]) -> None:
    mini.write("edison.yaml", f"{MEMBERS}settings: {{private: true}}\n")
    done = mini.edison("serve", "--port", "0", *option)
    assert done.code == 2
    assert "settings.private is set" in done.err


def test_accounts_that_came_with_the_repository_are_refused(ready: Folder, tmp_path: Path) -> None:
    planted = Folder(tmp_path / "planted")
    prepared(planted.path)
    planted.git("add", "--force", AUTH_FILE)
    done = planted.edison("serve", "--sign-in")
    assert done.code == 2
    assert f"{AUTH_FILE} is in Git" in done.err


def test_accounts_in_a_folder_that_is_a_link_are_refused(ready: Folder, tmp_path: Path) -> None:
    planted = Folder(tmp_path / "planted")
    prepared(planted.path)
    (planted.path / ".edison").rename(planted.path / "kept")
    (planted.path / ".edison").symlink_to("kept")
    planted.git("add", "--force", "kept")
    for command in (("serve", "--sign-in"), ("roles", "list")):
        done = planted.edison(*command)
        assert (done.code, ".edison is a link" in done.err) == (2, True), done.all


@pytest.fixture(scope="module")
def proxied(ready: Folder) -> Iterator[House]:
    """A server beyond this machine, as behind a proxy that speaks HTTPS."""
    options = ("--host", "0.0.0.0", "--behind-tls", "--behind-proxy", "--name", "Edison.example")
    for server in started(ready.path, LINES[0], *options, "--rate-limit", "0"):
        yield House(ready.path, server)


HOST = {"host": "edison.example", "x-forwarded-for": "6.6.6.6, 192.0.2.7"}


def test_behind_https_cookies_and_links_are_for_https(proxied: House) -> None:
    proxied.calm()
    with proxied.browser(headers=HOST) as client:
        page = client.get("/-/edison/sign-in")
        assert page.headers["strict-transport-security"] == "max-age=31536000"
        form = {"name": "vi", "password": PASSWORD, **token_of(page.text)}
        plain = client.post(
            "/-/edison/sign-in", data=form, headers={"origin": "http://edison.example"}
        )
        assert plain.status_code == 403
        headers = {"origin": "https://edison.example"}
        answer = client.post("/-/edison/sign-in", data=form, headers=headers)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-edison_session=")
        for part in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
            assert part in cookie
        assert "Domain" not in cookie
        value = cookie.partition(";")[0]
        inside = client.get("/results/run.json", headers={"cookie": value})
        assert inside.status_code == 200
        link = client.get("/results/run.json?_size=1", headers={"cookie": value}).json()
        assert str(link.get("next_url") or "https://edison.example").startswith("https://")


@pytest.mark.nightly
def test_a_proxy_says_who_asks_in_the_last_place(proxied: House) -> None:
    proxied.calm()
    with proxied.browser(headers=HOST) as client:
        for number in range(5):
            client.headers["x-forwarded-for"] = f"10.0.0.{number}, 192.0.2.9"
            assert proxied.send(client, name=f"nobody{number}").status_code in (403,)
        assert proxied.send(client).status_code == 429
        client.headers["x-forwarded-for"] = "192.0.2.9, 192.0.2.10"
        assert proxied.send(client).status_code == 303
    assert json.loads(proxied.audit()[-1][4])["from"] == "192.0.2.10"


@pytest.mark.nightly
def test_a_second_line_of_the_header_does_not_hide_who_asks(proxied: House) -> None:
    """A proxy may add a line of its own below the one that came, instead of to its end."""
    proxied.calm()
    with proxied.browser(headers={"host": "edison.example"}) as client:
        form = {**token_of(client.get("/-/edison/sign-in").text), "password": "wrong"}
        for number in range(6):
            lines = [("x-forwarded-for", f"10.9.0.{number}"), ("x-forwarded-for", "192.0.2.50")]
            answer = client.post(
                "/-/edison/sign-in", data={**form, "name": f"none{number}"}, headers=lines
            )
            assert answer.status_code == (403 if number < 5 else 429)
    assert json.loads(proxied.audit()[-1][4])["from"] == "192.0.2.50"


def test_a_header_that_is_given_twice_is_none_of_those_that_are_allowed(proxied: House) -> None:
    twice = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]
    form = {"name": "vi", "password": PASSWORD}
    with proxied.browser(headers={"host": "edison.example"}) as client:
        assert client.post("/-/edison/sign-in", data=form, headers=twice).status_code == 403


@pytest.fixture(scope="module")
def limited(ready: Folder) -> Iterator[House]:
    """A server that every address may ask five times in a minute."""
    options = ("--sign-in", "--behind-proxy", "--rate-limit", "5")
    for server in started(ready.path, LINES[-1], *options):
        yield House(ready.path, server)


def test_an_address_that_asks_too_often_is_told_when_to_come_back(limited: House) -> None:
    def asked(address: str, path: str = "/-/edison/health") -> httpx.Response:
        return limited.server.get(path, headers={"x-forwarded-for": address})

    codes = [asked("192.0.2.1").status_code for _ in range(7)]
    assert codes == [200] * 5 + [429] * 2
    refused = asked("6.6.6.6, 192.0.2.1")
    assert 1 <= int(refused.headers["retry-after"]) <= 12
    assert refused.text.startswith("More than 5 requests per minute. Retry in ")
    assert asked("192.0.2.1", "/-/edison/static/edison.css").status_code == 200
    assert asked("192.0.2.2").status_code == 200
    household = [asked(f"2001:db8::{number}").status_code for number in range(7)]
    assert household == [200] * 5 + [429] * 2, "one household has many addresses"


def test_only_the_names_of_the_server_are_answered(proxied: House) -> None:
    for host in ("evil.example", "edison.example.evil.example", "", "edison.example@evil"):
        assert proxied.server.get("/-/edison/health", headers={"host": host}).status_code == 421
    for host in ("edison.example", "EDISON.example:8443", "127.0.0.1"):
        assert proxied.server.get("/-/edison/health", headers={"host": host}).status_code == 200


@pytest.mark.nightly
def test_secrets_of_people_are_in_nothing_that_leaves(ready: Folder, proxied: House) -> None:
    _, token = proxied.accounts.new_token("vi", label="ci", days=1)
    proxied.calm()
    with proxied.browser(headers={**HOST, "authorization": f"Bearer {token}"}) as client:
        assert client.get("/-/edison/audit").status_code == 200
        assert client.get("/results/run.json?_sort=nonsense").status_code >= 400
    with proxied.browser(headers=HOST) as client:
        proxied.send(client, password=f"{PASSWORD}!")
    assert ready.edison("admin", "db", "backup").code == 0
    for name, text in MINIMAL.items():
        if name != "edison.yaml":
            ready.write(name, text)
    assert ready.edison("run", "hello").code == 0
    bundle = ready.edison("report", "hello", "--format", "bundle", "--out", "run.zip")
    assert bundle.code == 0, bundle.err
    with zipfile.ZipFile(ready.path / "run.zip") as archive:
        assert not [name for name in archive.namelist() if "auth" in name]
        texts = [archive.read(name) for name in archive.namelist()]
    kept = [path for path in ready.path.rglob("*") if path.is_file() and path.suffix != ".zip"]
    assert ready.path / "serve.log" in kept
    texts += [path.read_bytes() for path in kept]
    stored = proxied.accounts.file.password(["vi"])
    assert stored is not None
    for content in texts:
        assert PASSWORD.encode() not in content
        assert token.encode() not in content
    outside = [path.read_bytes() for path in kept if path.name != "auth.db"]
    assert all(stored.hash not in text for text in outside)
    assert ready.git("status", "--short", "--ignored", "--", AUTH_FILE)  # is not committed
