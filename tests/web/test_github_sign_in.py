"""Sign-in with GitHub, and by the header of a proxy."""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.async_api import expect

from edison_ci import utc
from edison_ci.access.accounts import AUTH_FILE
from edison_ci.access.github_oauth import CLIENT_ID, CLIENT_SECRET, OAuthApp
from edison_ci.access.site import Identity
from edison_ci.cli.serve import ServeRequest, _access_rules
from edison_ci.errors import UsageError
from edison_ci.web.databases import Actions, ServerAccess, settings_of
from edison_ci.web.serving import Serving, application
from edison_ci.web.sign_in import _signature
from tests.features.github.fake_oauth import CALLBACK_PATH, CLIENT, SECRET, FakeOAuth
from tests.timing import PATIENCE_S
from tests.web.conftest import LINES, in_browser, started
from tests.web.test_acting_in_browser import check
from tests.web.test_browser import Watched
from tests.web.test_sign_in import MEMBERS, PASSWORD, prepared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.async_api import Browser

HOST = "127.0.0.1:8001"
HOME = "/-/edison"
HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("github") / "project")


@pytest.fixture(autouse=True)
def fresh(folder: Path) -> Iterator[None]:
    yield
    (folder / "edison.yaml").write_text(MEMBERS)
    with closing(sqlite3.connect(folder / AUTH_FILE)) as connection:
        for table in ("attempt", "account", "session"):
            connection.execute(f"delete from {table}")
        connection.commit()


@pytest.fixture
def fake() -> Iterator[FakeOAuth]:
    with FakeOAuth(f"http://{HOST}{CALLBACK_PATH}") as server:
        yield server


async def server(folder: Path, **access: Any) -> Any:
    """A server with this access."""
    results = folder / ".edison" / "results.db"
    rules = ServerAccess(sign_in=True, **access)
    acting: dict[str, Any] = {
        "person": Identity("git", email="ada@example.com"),
        "actions": Actions(True),
    }
    serving = Serving(results, folder, "notes", "127.0.0.1", 0, access=rules, **acting)
    datasette = application(serving)
    await datasette.invoke_startup()
    return datasette


async def browser(folder: Path, peer: str = "127.0.0.1", **access: Any) -> httpx.AsyncClient:
    """A browser at a server with this access."""
    return visit(await server(folder, **access), peer)


def visit(datasette: Any, peer: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(datasette.app(), client=(peer, 50_000))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=HTML)


async def start(client: httpx.AsyncClient, fake: FakeOAuth, wanted: str = "") -> str:
    """Click on the link; return where GitHub sends the browser."""
    page = await client.get(f"{HOME}/sign-in", params={"next": wanted} if wanted else {})
    assert 'href="/-/edison/sign-in/github' in page.text
    sent = await client.get(f"{HOME}/sign-in/github", params={"next": wanted})
    assert sent.status_code == 303
    return fake.consent(sent.headers["location"])


def audit(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / ".edison" / "results.db")) as connection:
        sql = "select actor, action, after from audit order by seq"
        return connection.execute(sql).fetchall()


async def test_a_member_signs_in_with_github_and_no_token_is_kept(
    folder: Path, fake: FakeOAuth
) -> None:
    fake.login = "ED"  # a login has no case
    async with await browser(folder, github=fake.app) as client:
        assert (await client.get(HOME)).headers["location"].startswith(f"{HOME}/sign-in")
        back = await start(client, fake, f"{HOME}/costs?by=day")
        done = await client.get(back)
        assert (done.status_code, done.headers["location"]) == (303, f"{HOME}/costs?by=day")
        assert "edison_github" not in client.cookies
        assert "ed" in (await client.get(f"{HOME}/you")).text
        assert (fake.given, fake.tokens) == (1, set()), "the token was revoked"
        again = await client.get(back)
        assert again.status_code == 403, "an answer counts once"
    actor, action, after = audit(folder)[-1]
    assert (actor, action) == ("ed", "sign in")
    assert '"by":"github"' in after.replace(" ", "")
    kept = (folder / AUTH_FILE).read_bytes() + (folder / ".edison" / "results.db").read_bytes()
    assert b"gho_" not in kept
    assert SECRET.encode() not in kept


@pytest.mark.nightly
@in_browser
async def test_a_person_signs_in_with_github_in_a_browser(
    folder: Path, fake: FakeOAuth, browser: Browser
) -> None:
    fake.url = fake.url.replace("127.0.0.1", "localhost")  # another site, for cookies
    app = {CLIENT_ID: CLIENT, CLIENT_SECRET: SECRET, "GITHUB_SERVER_URL": fake.url}
    for server in started(folder, LINES[0], "--sign-in", "--github-sign-in", environ=app):
        fake.callback = f"{server.address}{CALLBACK_PATH}"
        async with await browser.new_context(viewport={"width": 390, "height": 900}) as context:
            context.set_default_timeout(1000 * PATIENCE_S)
            page = await context.new_page()
            await page.goto(f"{server.address}{HOME}/costs?by=day")
            await check(Watched(server, page))
            await page.get_by_role("link", name="Sign in with GitHub").click()
            assert await page.title() == "Authorize"
            await page.get_by_role("link", name="Authorize").click()
            await page.wait_for_url(f"{server.address}{HOME}/costs?by=day")
            await page.goto(f"{server.address}{HOME}/you")
            await expect(page.locator("main")).to_contain_text("ed")
            await page.context.clear_cookies()
            fake.login = "mallory"
            await page.goto(f"{server.address}{HOME}/sign-in")
            await page.get_by_role("link", name="Sign in with GitHub").click()
            await page.get_by_role("link", name="Authorize").click()
            await expect(page.get_by_role("alert")).to_contain_text("mallory")
    assert (fake.given, fake.tokens) == (2, set())


async def test_what_this_server_did_not_begin_signs_nobody_in(
    folder: Path, fake: FakeOAuth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cookies that another site planted, with an answer of GitHub that fits them."""
    async with await browser(folder, github=fake.app) as other:
        await start(other, fake)
        of_another_server = other.cookies["edison_github"]
    async with await browser(folder, github=fake.app) as client:
        back = await start(client, fake, f"{HOME}/costs")
        whole = client.cookies["edison_github"]
        state, verifier, page, began, signature = whole.split("~")
        query = dict(httpx.URL(back).params)
        client.cookies.clear()

        async def status(cookie: str, answer: dict[str, str]) -> int:
            headers = {"cookie": cookie}
            return (await client.get(CALLBACK_PATH, params=answer, headers=headers)).status_code

        empty = {**query, "state": ""}
        planted = [
            "", "~", "~~", "~~~", "~~~~", "~~~~~", f"~~~{began}~", "~~~~" + "0" * 64,
            f"~{verifier}~{page}~{began}~{signature}",
            f"{state}~~{page}~{began}~{signature}",
            f"{state}~{verifier}~{page}",  # as it was without a signature
            f"{state}~{verifier}~{page}~{began}~",
            f"{state}~{verifier}~{page}~{int(began) + 60}~{signature}",
            f"{state}~{verifier}~L3g~{began}~{signature}",
            f"{whole}~{signature}", whole.upper(), whole[:-1], f"{whole}!",
            of_another_server,
        ]  # fmt: skip
        for value in planted:
            for answer in (query, empty, {"code": query["code"]}, {**query, "state": "~"}):
                assert await status(f"edison_github={value}", answer) == 403, value
        twice = f"edison_github={whole}"
        assert await status(f"edison_github=x; {twice}", query) == 403
        assert await status(f"{twice}; {twice}", query) == 403, "another site set it as well"
        for answer in (empty, {**query, "state": state[:-1]}, {**query, "state": "é"}):
            assert await status(twice, answer) == 403
        began_at = utc.now()
        for minutes in (-1, 11, 60 * 24 * 365):
            later = began_at + dt.timedelta(minutes=minutes)
            monkeypatch.setattr(utc, "now", lambda later=later: later)
            assert await status(twice, query) == 403, "it is not valid then"
        monkeypatch.setattr(utc, "now", lambda: began_at)
        assert fake.given == 0, "GitHub was not asked"
        assert await status(twice, query) == 303, "the one that was begun here"
        assert fake.given == 1


async def test_an_attempt_with_empty_parts_is_refused_also_if_it_is_signed(
    folder: Path, fake: FakeOAuth
) -> None:
    datasette = await server(folder, github=fake.app)
    settings = settings_of(datasette)
    assert settings is not None
    async with visit(datasette) as client:
        for state, verifier in (("", ""), ("", "v"), ("s", "")):
            kept = f"{state}~{verifier}~~{int(utc.now().timestamp())}"
            cookie = f"edison_github={kept}~{_signature(settings, kept)}"
            answer = {"code": "c", "state": state}
            done = await client.get(CALLBACK_PATH, params=answer, headers={"cookie": cookie})
            assert done.status_code == 403
    assert fake.given == 0


async def test_an_answer_counts_once_whoever_sends_it_again(folder: Path, fake: FakeOAuth) -> None:
    """Also with the cookie of the attempt, and with a code that GitHub would still take."""
    async with await browser(folder, github=fake.app) as client:
        back = await start(client, fake)
        cookie = {"cookie": f"edison_github={client.cookies['edison_github']}"}
        client.cookies.clear()
        codes = dict(fake.codes)
        assert (await client.get(back, headers=cookie)).status_code == 303
        client.cookies.clear()
        for address in (back, back.replace("code=", "code=x&code="), f"{back}&error=denied"):
            fake.codes.update(codes)
            assert (await client.get(address, headers=cookie)).status_code == 403
        assert fake.given == 1
        begun = await start(client, fake)
        cookie = {"cookie": f"edison_github={client.cookies['edison_github']}"}
        client.cookies.clear()
        assert (await client.get(f"{begun}&error=x", headers=cookie)).status_code == 403
        assert (await client.get(begun, headers=cookie)).status_code == 403, "it was ended"
    assert fake.given == 1


async def test_a_session_that_was_there_before_is_not_the_one_after_sign_in(
    folder: Path, fake: FakeOAuth
) -> None:
    """What another site plants as session is never raised to the rights of who signs in."""
    async with await browser(folder, github=fake.app) as mallory:
        fake.login, fake.id = "vi", 9
        assert (await mallory.get(await start(mallory, fake))).status_code == 303
        planted = mallory.cookies["edison_session"]
        fake.login, fake.id = "ed", 7
        async with await browser(folder, github=fake.app) as victim:

            async def page(cookie: str) -> httpx.Response:
                victim.cookies.clear()
                return await victim.get(f"{HOME}/you", headers={"cookie": cookie})

            for value in (planted, "x", planted[:-1], "", "a" * 43, planted + planted):
                victim.cookies.clear()
                back = await start(victim, fake)
                kept = f"edison_github={victim.cookies['edison_github']}"
                victim.cookies.clear()
                headers = {"cookie": f"{kept}; edison_session={value}"}
                assert (await victim.get(back, headers=headers)).status_code == 303
                own, before = (
                    f"edison_session={each}" for each in (victim.cookies["edison_session"], value)
                )
                assert ">ed</a>" in (await page(own)).text
                for cookies in (before, f"{before}; {own}", f"{own}; {before}", f"{own}; {own}"):
                    assert (await page(cookies)).status_code == 303, "of two cookies none counts"


async def test_an_account_that_is_no_member_is_refused(folder: Path, fake: FakeOAuth) -> None:
    # Only the login counts: an e-mail address of an account need not be verified.
    fake.login = "mallory"
    async with await browser(folder, github=fake.app) as client:
        done = await client.get(await start(client, fake))
        assert done.status_code == 403
        assert "The GitHub account mallory is not a member." in done.text
        assert (await client.get(HOME)).status_code == 303
    assert audit(folder)[-1][:2] == ("somebody", "refused: sign in")


async def test_a_login_that_changed_hands_is_another_person(folder: Path, fake: FakeOAuth) -> None:
    async with await browser(folder, github=fake.app) as client:
        assert (await client.get(await start(client, fake))).status_code == 303
    fake.id = 8
    async with await browser(folder, github=fake.app) as client:
        done = await client.get(await start(client, fake))
        assert done.status_code == 403
        assert "another account than before" in done.text


async def test_a_member_who_is_removed_is_out_at_once(folder: Path, fake: FakeOAuth) -> None:
    async with await browser(folder, github=fake.app) as client:
        assert (await client.get(await start(client, fake))).status_code == 303
        assert (await client.get(HOME)).status_code == 200
        (folder / "edison.yaml").write_text(MEMBERS.replace("github: ed", "github: edna"))
        assert (await client.get(HOME)).status_code == 303


async def test_an_answer_for_another_browser_is_refused(folder: Path, fake: FakeOAuth) -> None:
    async with await browser(folder, github=fake.app) as mallory:
        back = await start(mallory, fake)
    async with await browser(folder, github=fake.app) as victim:
        assert (await victim.get(back)).status_code == 403
        await start(victim, fake)
        assert (await victim.get(back)).status_code == 403, "the state of another attempt"
        assert (await victim.get(f"{CALLBACK_PATH}?code=x")).status_code == 403
        assert (await victim.get(f"{CALLBACK_PATH}?code=x&state=")).status_code == 403
    assert fake.given == 0, "GitHub was not asked"


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "bad_verification_code", "error_description": "<script>x</script>"},
        {"access_token": "gho_x", "token_type": "mac"},
        {"access_token": 7, "token_type": "bearer"},
        {},
    ],
)
async def test_an_odd_answer_signs_nobody_in(
    folder: Path, fake: FakeOAuth, answer: dict[str, Any]
) -> None:
    fake.answer = answer
    async with await browser(folder, github=fake.app) as client:
        done = await client.get(await start(client, fake))
        assert done.status_code == 403
        assert "<script>" not in done.text
        assert (await client.get(HOME)).status_code == 303


async def test_bots_and_failures_of_github_sign_nobody_in(folder: Path, fake: FakeOAuth) -> None:
    fake.type = "Bot"
    async with await browser(folder, github=fake.app) as client:
        assert (await client.get(await start(client, fake))).status_code == 403
        fake.type, fake.revocation = "User", 404
        assert (await client.get(await start(client, fake))).status_code == 303
    gone = OAuthApp(CLIENT, SECRET, "http://127.0.0.1:9", "http://127.0.0.1:9/api/v3")
    async with await browser(folder, github=gone) as client:
        sent = await client.get(f"{HOME}/sign-in/github")
        state = httpx.URL(sent.headers["location"]).params["state"]
        done = await client.get(CALLBACK_PATH, params={"code": "c", "state": state})
        assert done.status_code == 403
        assert "cannot connect to GitHub" in done.text


async def test_attempts_are_limited(folder: Path, fake: FakeOAuth) -> None:
    fake.login = "mallory"
    async with await browser(folder, github=fake.app) as client:
        codes = [(await client.get(await start(client, fake))).status_code for _ in range(6)]
    assert codes == [403] * 5 + [429]
    assert fake.given == 5


async def test_a_sign_in_that_works_is_no_attempt_that_failed(
    folder: Path, fake: FakeOAuth
) -> None:
    """Else the sixth person of an office would have to wait."""
    for _ in range(6):
        async with await browser(folder, github=fake.app) as client:
            assert (await client.get(await start(client, fake))).status_code == 303


async def test_without_the_option_there_is_no_such_page(folder: Path) -> None:
    async with await browser(folder) as client:
        page = await client.get(f"{HOME}/sign-in")
        assert "GitHub" not in page.text
        assert (await client.get(f"{HOME}/sign-in/github")).status_code in (403, 404)


# --- the header of a proxy ------------------------------------------------------------------------

PROXY = {"user_header": "remote-user", "user_header_from": (ip_network("10.1.0.0/16"),)}


def sign_ins(folder: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(folder / ".edison" / "results.db")) as connection:
        sql = "select actor, known_by, action from audit where action like '%sign in' order by seq"
        return connection.execute(sql).fetchall()


async def test_a_proxy_names_the_visitor_and_nobody_else_can(folder: Path) -> None:
    before = len(sign_ins(folder))
    async with await browser(folder, "10.1.2.3", **PROXY) as client:
        for name, status in (("vi", 200), ("VI@example.com", 200), ("mallory", 303), ("", 303)):
            got = await client.get(HOME, headers={"Remote-User": name})
            assert got.status_code == status, name
        twice = [("Remote-User", "vi"), ("Remote-User", "ed")]
        assert (await client.get(HOME, headers=twice)).status_code == 303
        you = await client.get(f"{HOME}/you", headers={"Remote-User": "vi"})
        assert "viewer" in you.text
        api = await client.get(f"{HOME}/api/v1/openapi.json", headers={"Remote-User": "vi"})
        assert api.status_code == 401, "programs need a token"
    assert sign_ins(folder)[before:] == [
        ("vi", "proxy", "sign in"),
        ("somebody", "nobody", "refused: sign in"),  # mallory
        ("somebody", "nobody", "refused: sign in"),  # two names
    ]
    for peer in ("10.2.0.1", "127.0.0.1", "::1", "", "unix"):
        async with await browser(folder, peer, **PROXY) as client:
            sent = {"Remote-User": "ed", "X-Forwarded-For": "10.1.2.3"}
            assert (await client.get(HOME, headers=sent)).status_code == 303, peer
    async with await browser(folder, "::ffff:10.1.2.3", **PROXY) as client:
        assert (await client.get(HOME, headers={"Remote-User": "ed"})).status_code == 200
    async with await browser(folder, "10.1.2.3") as client:  # not configured
        assert (await client.get(HOME, headers={"Remote-User": "ed"})).status_code == 303


# --- options --------------------------------------------------------------------------------------


def rules(host: str = "127.0.0.1", **options: Any) -> ServerAccess:
    usual = {"sign_in": False, "rate_limit": None, "behind_tls": False, "behind_proxy": False,
             "names": (), "github_sign_in": False, "user_header": None,
             "user_header_from": (), "accept_push": False, "push_limit": 1}  # fmt: skip
    request = ServeRequest(port=0, host=host, open_=False, folder=None, **{**usual, **options})
    return _access_rules(request)


def test_what_is_configured_has_to_be_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="EDISON_GITHUB_CLIENT_ID is not set"):
        rules(github_sign_in=True)
    monkeypatch.setenv("EDISON_GITHUB_CLIENT_ID", CLIENT)
    monkeypatch.setenv("EDISON_GITHUB_CLIENT_SECRET", SECRET)
    found = rules(github_sign_in=True)
    assert found.sign_in
    assert found.github is not None
    assert found.github.api_url == "https://api.github.com"
    assert SECRET not in repr(found)
    with pytest.raises(UsageError, match="needs the name of this server"):
        rules("0.0.0.0", github_sign_in=True)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.com/")
    found = rules("0.0.0.0", github_sign_in=True, names=("edison.example.com",))
    assert found.github is not None
    assert found.github.api_url == "https://git.example.com/api/v3"
    monkeypatch.setenv("GITHUB_SERVER_URL", "http://git.example.com")
    with pytest.raises(UsageError, match="may not be sent"):
        rules(github_sign_in=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"user_header": "Remote-User"}, "--user-header needs --user-header-from"),
        ({"user_header_from": ("10.0.0.1",)}, "--user-header-from needs --user-header"),
        ({"user_header": "Cookie", "user_header_from": ("10.0.0.1",)}, "cannot name a visitor"),
        ({"user_header": "a b", "user_header_from": ("10.0.0.1",)}, "cannot name a visitor"),
        ({"user_header": "Remote-User", "user_header_from": ("10.0.0.1/8",)}, "has host bits set"),
    ],
)
def test_a_header_that_anyone_could_send_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        rules(**options)


def test_with_a_proxy_others_can_reach_it() -> None:
    found = rules(user_header="Remote-User", user_header_from=("10.0.0.0/8", "::1"))
    assert (found.sign_in, found.user_header, len(found.user_header_from)) == (
        True, "remote-user", 2)  # fmt: skip
    assert PASSWORD not in repr(found)
