"""Where people sign in, nobody else sees anything, and each does what the role allows."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from docs.sample import build
from edison_ci.access.accounts import AUTH_FILE, Accounts
from edison_ci.access.site import open_site
from edison_ci.web.databases import ServerAccess
from edison_ci.web.serving import Serving, application
from edison_ci.web.sign_in import safe_next
from tests.timing import PATIENCE_S
from tests.web.conftest import IN_TURN, LINES, in_browser, started
from tests.web.test_browser import axe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.async_api import Browser

    from tests.web.conftest import Server

PASSWORD = "correct horse battery staple"
CHEAP = (2, 8, 1)
"""The cost is kept with each password, so that those of the tests are looked at fast."""
MEMBERS = """version: 1
project: notes
members:
  - {email: ada@example.com, role: owner}
  - {github: ed, role: editor}
  - {github: rex, role: reviewer}
  - {github: vi, email: vi@example.com, role: viewer}
"""
BROWSER = {"accept": "text/html,application/xhtml+xml"}
SECRETS = ("late-parcel", "Your refund", "support-reply", "rollup_run", "datasette_version")
"""What only those may read who signed in."""


class House:
    """A project with people, and a server that asks who they are."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server

    @property
    def accounts(self) -> Accounts:
        return Accounts(open_site(self.folder), cost=CHEAP)

    def browser(self, **more: Any) -> httpx.Client:
        """A browser without cookies."""
        headers = {**BROWSER, **more.pop("headers", {})}
        return httpx.Client(
            base_url=self.server.address,
            timeout=PATIENCE_S,
            trust_env=False,
            headers=headers,
            **more,
        )

    def send(self, client: httpx.Client, **fields: str) -> httpx.Response:
        """Fill the form in and send it."""
        page = client.get("/-/edison/sign-in").text
        form = {"name": "vi", "password": PASSWORD, **token_of(page), **fields}
        return client.post("/-/edison/sign-in", data=form)

    @contextmanager
    def as_(self, name: str) -> Iterator[httpx.Client]:
        """A browser of somebody who signed in."""
        with self.browser() as client:
            assert self.send(client, name=name).status_code == 303
            yield client

    def audit(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / ".edison" / "results.db")) as connection:
            sql = "select actor, known_by, action, entity, after from audit order by seq"
            return connection.execute(sql).fetchall()

    def calm(self) -> None:
        """Forget who tried what."""
        with closing(sqlite3.connect(self.folder / AUTH_FILE)) as connection:
            connection.execute("delete from attempt")
            connection.commit()


def token_of(page: str) -> dict[str, str]:
    before = page.partition('name="csrftoken" value="')[2]
    return {"csrftoken": before.partition('"')[0]} if before else {}


def prepared(folder: Path) -> Path:
    """Make a project with people and results."""
    (folder / ".edison").mkdir(parents=True)
    (folder / "edison.yaml").write_text(MEMBERS)
    build(folder / ".edison" / "results.db")
    for words in (["init", "-q"], ["config", "user.email", "ada@example.com"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    # Whoever runs the tests sets the passwords, as `edison roles passwd` does.
    accounts = Accounts(open_site(folder), cost=CHEAP)
    for name in ("ada@example.com", "ed", "rex", "vi"):
        accounts.set_password(name, PASSWORD)
    return folder


@pytest.fixture(scope="module", params=IN_TURN)
def one_house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    folder = prepared(tmp_path_factory.mktemp("house") / "project")
    for server in started(folder, request.param, "--sign-in", "--rate-limit", "0"):
        yield House(folder, server)


@pytest.fixture
def house(one_house: House) -> House:
    (one_house.folder / "edison.yaml").write_text(MEMBERS)
    one_house.calm()
    return one_house


PATHS = [
    "/", "/-/edison", "/-/edison/", "/-/edison/audit", "/-/edison/metrics", "/-/edison/help",
    "/-/edison/run/latest", "/-/edison/run/latest/events", "/-/edison/you", "/-/edison/nothing",
    "/-/edison/run/latest/export?format=csv", "/-/edison/search?q=a", "/-/edison/models",
    "/-/edison/static/../audit", "/-/edison/sign-in/../audit", "/-/edison/static/%2e%2e/audit",
    "/-/edison/%73ign-in", "/-%2Fedison%2Fhealth", "//-/edison/audit", "/-/edison/health/",
    "/-/edison/sign-in.json", "/-/edison/sign-in;/x", "/-/EDISON/sign-in",
    "/results", "/results.json", "/results.db", "/results/run", "/results/run.json",
    "/results/run.csv?_stream=on", "/results?sql=select+*+from+run",
    "/results.json?sql=select+*+from+run", "/results/-/query.json?sql=select+*+from+run",
    "/results/text/1.json", "/_memory.json?sql=select+1", "/_internal.json", "/__internal__.json",
    "/-/databases", "/-/databases.json", "/-/plugins", "/-/plugins.json", "/-/versions.json",
    "/-/settings.json", "/-/config.json", "/-/metadata.json", "/-/threads.json", "/-/actor.json",
    "/-/permissions", "/-/allow-debug", "/-/messages", "/-/logout", "/-/static/app.css",
    "/-/jump.json", "/-/tables.json", "/-/schema.json", "/-/create-token", "/-/api", "/-/actions",
    "/-/auth-token", "/-/patterns", "/-/nothing", "/favicon.ico", "/results/run?_shape=array",
]  # fmt: skip


def test_nobody_sees_anything_without_signing_in(house: House) -> None:
    for path in PATHS:
        # httpx would tidy the path up.
        url = httpx.URL(house.server.address).copy_with(raw_path=path.encode())
        answer = house.server.client.get(url)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        shown = house.server.client.get(url, headers=BROWSER)
        assert shown.status_code == 303, path
        assert shown.headers["location"].startswith("/-/edison/sign-in"), path
        assert not any(secret in answer.text + shown.text for secret in SECRETS), path
    for method in ("HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "NONSENSE"):
        for path in ("/", "/-/edison", "/results/run"):
            answer = house.server.client.request(method, path, headers={"content-length": "0"})
            assert answer.status_code == 401, (method, path)


def test_what_is_there_for_everybody_says_little(house: House) -> None:
    health = house.server.get("/-/edison/health")
    assert (health.status_code, health.json()) == (200, {"ok": True})
    page = house.server.get("/-/edison/sign-in")
    assert page.status_code == 200
    assert not any(secret in page.text for secret in SECRETS)
    assert house.server.get("/-/edison/static/edison.css").status_code == 200
    assert house.server.get("/-/edison/static/nothing.css").status_code == 404
    with house.as_("vi") as client:
        assert "schema" in client.get("/-/edison/health").json()["checks"]


def test_signing_in_leads_to_the_page_that_was_wanted(house: House) -> None:
    with house.browser(follow_redirects=True) as client:
        page = client.get("/-/edison/costs?by=day&days=7")
        assert page.url.path == "/-/edison/sign-in"
        hidden = page.text.partition('name="next" value="')[2].partition('"')[0]
        assert hidden == "/-/edison/costs?by=day&amp;days=7"
        after = house.send(client, next="/-/edison/costs?by=day&days=7", name="vi@EXAMPLE.com")
        assert str(after.url) == f"{house.server.address}/-/edison/costs?by=day&days=7"
        assert after.status_code == 200
        you = client.get("/-/edison/you")
        assert ">vi</a>" in you.text
        assert "viewer" in you.text
        again = client.get("/-/edison/sign-in")
        assert again.url.path == "/-/edison"  # nothing to do there any more


def test_the_cookie_is_for_us_alone_and_new_each_time(house: House) -> None:
    with house.browser() as client:
        first = house.send(client).headers["set-cookie"]
        for part in ("HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=604800"):
            assert part in first
        assert "Secure" not in first  # there is no HTTPS here
        before = client.cookies["edison_session"]
        assert client.get("/-/edison").status_code == 200
        page = client.get("/-/edison/you").text
        form = {"name": "vi", "password": PASSWORD, "remember": "1", **token_of(page)}
        second = client.post("/-/edison/sign-in", data=form)
        assert "Max-Age=2592000" in second.headers["set-cookie"]
        assert client.cookies["edison_session"] != before
        with house.browser(cookies={"edison_session": before}) as other:
            assert other.get("/-/edison").status_code == 303


@pytest.mark.parametrize("fields", [{"password": "wrong"}, {"name": "nobody"}, {"name": ""}])
def test_what_does_not_fit_says_nothing_of_the_account(
    house: House, fields: dict[str, str]
) -> None:
    with house.browser() as client:
        answer = house.send(client, **fields)
    assert answer.status_code == 403
    assert "Wrong name or password." in answer.text
    assert "edison_session" not in answer.headers.get("set-cookie", "")
    assert PASSWORD not in answer.text
    assert house.audit()[-1][2] == "refused: sign in"


def test_too_many_attempts_are_told_when_to_come_back(house: House) -> None:
    rows = len(house.audit())
    with house.browser() as client:
        for number in range(5):
            # What a browser says of its own address does not count.
            client.headers["x-forwarded-for"] = f"192.0.2.{number}"
            assert house.send(client, password="wrong").status_code == 403
        blocked = house.send(client)
    assert blocked.status_code == 429
    assert 1 <= int(blocked.headers["retry-after"]) <= 900
    assert "Too many attempts" in blocked.text
    told = [json.loads(row[4]) for row in house.audit()[rows:]]
    assert {each["from"] for each in told} == {"127.0.0.1"}
    assert told[-1]["why"] == "too many attempts"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_no_other_site_signs_anybody_in_or_out(house: House, headers: dict[str, str]) -> None:
    with house.browser() as client:
        form = {"name": "vi", "password": PASSWORD}
        answer = client.post("/-/edison/sign-in", data=form, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    with house.as_("vi") as client:
        form = token_of(client.get("/-/edison/you").text)
        answer = client.post("/-/edison/sign-out", data=form, headers=headers)
        assert answer.status_code == 403
        assert client.get("/-/edison").status_code == 200


def test_signing_out_ends_the_session_for_good(house: House) -> None:
    with house.as_("vi") as client, house.as_("vi") as other:
        cookie = client.cookies["edison_session"]
        assert client.get("/-/edison/sign-out").status_code == 405
        form = token_of(client.get("/-/edison/you").text)
        answer = client.post("/-/edison/sign-out", data=form)
        assert answer.status_code == 303
        assert "Max-Age=0" in answer.headers["set-cookie"]
        with house.browser(cookies={"edison_session": cookie}) as thief:
            assert thief.get("/-/edison").status_code == 303
        assert other.get("/-/edison").status_code == 200
        form = {**token_of(other.get("/-/edison/you").text), "everywhere": "1"}
        with house.as_("vi") as third:
            assert other.post("/-/edison/sign-out", data=form).status_code == 303
            assert third.get("/-/edison").status_code == 303
    assert [row[2] for row in house.audit()[-5:]] == [
        "sign in", "sign in", "sign out", "sign in", "sign out"]  # fmt: skip


def test_a_token_is_for_programs(house: House) -> None:
    token, secret = house.accounts.new_token("vi", label="ci", days=1)
    headers = {"authorization": f"Bearer {secret}"}
    client = house.server.client
    assert "edison_runs" in client.get("/-/edison/metrics", headers=headers).text
    for path in ("/results/run.json", "/results/run.json?_size=1", "/results/run"):
        assert client.get(path, headers=headers).status_code == 200
    exports = [row[:4] for row in house.audit() if row[2] == "export"]
    assert exports == [("vi", "token", "export", "/results/run.json to a browser")]
    for wrong in ("Bearer nonsense", f"Basic {secret}", secret, "Bearer", f"Bearer {secret}x"):
        answer = client.get("/-/edison/metrics", headers={"authorization": wrong})
        assert answer.status_code == 401, wrong
    with house.as_("vi") as signed:  # a cookie does not make up for a wrong token
        wrong_one = signed.get("/-/edison", headers={"authorization": "Bearer nonsense"})
        assert wrong_one.status_code == 401
    house.accounts.revoke(token.id)
    assert client.get("/-/edison/metrics", headers=headers).status_code == 401


READ = ["/-/edison", "/results", "/results/run", "/results/run.json", "/results/run.csv",
        "/results/results.csv", "/-/edison/audit"]  # fmt: skip
SQL = ["/results?sql=select+1", "/results.json?sql=select+1&_shape=array",
       "/results/-/query.json?sql=select+1", "/results/run.json?_where=1%3D1"]  # fmt: skip


def test_everybody_reads_and_exports_and_editors_ask_in_sql(house: House) -> None:
    with house.as_("vi") as viewer, house.as_("rex") as reviewer, house.as_("ed") as editor:
        for client in (viewer, reviewer, editor):
            for path in READ:
                assert client.get(path, follow_redirects=True).status_code == 200, path
        rows = len(house.audit())
        for path in SQL:
            for client in (viewer, reviewer):
                assert client.get(path, follow_redirects=True).status_code >= 400, path
        told = {row[:3] for row in house.audit()[rows:]}
        assert ("vi", "web", "refused: execute-sql") in told
        assert "needs the role editor" in viewer.get(SQL[0], follow_redirects=True).text
        assert editor.get(SQL[0], follow_redirects=True).status_code == 200
        assert editor.get(SQL[1], follow_redirects=True).status_code == 200


ABOUT_ITSELF = [
    f"/-/{name}{ending}"
    for name in ("threads", "versions", "plugins", "settings", "databases", "metadata", "config",
                 "permissions", "allow-debug", "messages", "patterns", "api", "actions", "rules",
                 "schema", "create-token", "nothing")
    for ending in ("", ".json")
]  # fmt: skip


@pytest.mark.nightly
def test_only_owners_ask_datasette_about_itself(house: House) -> None:
    with house.as_("ada@example.com") as owner, house.as_("vi") as viewer, house.as_("ed") as ed:
        for path in ABOUT_ITSELF:
            for client in (viewer, ed):
                answer = client.get(path)
                assert (answer.status_code, "need the role owner" in answer.text) == (403, True), (
                    path
                )
        for path in ("/-/actor.json", "/-/edison/you", "/-/edison/metrics"):
            assert viewer.get(path).status_code == 200, path
        assert owner.get("/-/versions.json").status_code == 200
    assert any(row[2] == "refused: look at Datasette itself" for row in house.audit())


GREEDY = [
    "/results/run?" + "&".join(["_facet=status"] * 300),
    "/results/run?" + "&".join(f"_facet_array=x{n}" for n in range(6)),
    "/results/run.json?" + "&".join(f"a{n}=1" for n in range(101)),
    "/results/run.json?" + "&".join(["_col=id"] * 26),
    "/results/run.json?x=" + "y" * 8_000,
]


def test_an_address_that_asks_for_too_much_is_refused(house: House) -> None:
    with house.as_("vi") as viewer:
        for path in GREEDY:
            answer = viewer.get(path)
            assert answer.status_code == 400, path[:60]
            assert len(answer.content) < 1_000
        most = viewer.get("/results/run?" + "&".join(["_facet=status"] * 5 + ["_size=max"]))
        assert most.status_code == 200
        assert len(most.content) < 5_000_000


@pytest.mark.nightly
def test_a_value_that_fills_the_memory_is_not_made(house: House) -> None:
    with house.as_("ed") as editor:
        for sql in ("select hex(zeroblob(90000000))", "select printf('%.*c', 90000000, 'x')"):
            for path in ("/results.json", "/results/-/query.json"):
                answer = editor.get(path, params={"sql": sql}, follow_redirects=True)
                assert len(answer.content) < 100_000


CELL, SUGGESTION = f"/-/edison/cell/{'a' * 12}", "/-/edison/suggestion/s1"
FORMS = [f"{CELL}/grade", f"{CELL}/flag"]
FORMS += [f"{SUGGESTION}/{what}" for what in ("approve", "reject", "comment")]


def test_forms_are_for_reviewers(house: House) -> None:
    with house.browser() as client:
        assert {client.post(path, data={"a": "b"}).status_code for path in FORMS} == {401}
    with house.as_("vi") as viewer, house.as_("rex") as reviewer:
        token, rows = token_of(viewer.get("/-/edison/you").text), len(house.audit())
        for path in FORMS:
            refused = viewer.post(path, data=token)
            assert refused.status_code == 403
            assert "needs a reviewer; vi is a viewer" in refused.text
        told = {row[:3] for row in house.audit()[rows:]}
        assert told >= {("vi", "web", "refused: grade"), ("vi", "web", "refused: review approve")}
        token = token_of(reviewer.get("/-/edison/you").text)
        # They may; there is no such cell or suggestion.
        assert {reviewer.post(path, data=token).status_code for path in FORMS} <= {400, 404, 422}


def test_nobody_changes_anything_through_datasette(house: House) -> None:
    with house.as_("ada@example.com") as owner:
        # The file may be written to meanwhile: copies are made by edison admin db backup.
        assert owner.get("/results.db").status_code in (403, 404)
        token = token_of(owner.get("/-/edison/you").text)
        for path in ("/results/-/create", "/results/run/-/insert", "/results/run/-/drop",
                     "/results/-/execute-write", "/-/permissions", "/-/create-token"):  # fmt: skip
            answer = owner.post(path, data={**token, "sql": "drop table run", "confirm": "1"})
            assert answer.status_code >= 400, path
        for path in ("/-/permissions", "/-/create-token", "/-/debug/perms"):
            assert owner.get(path).status_code in (403, 404), path
        assert owner.get("/results/run.json").json()["rows"]


def test_whoever_is_taken_out_of_the_file_is_out(house: House) -> None:
    with house.as_("vi") as client:
        (house.folder / "edison.yaml").write_text(MEMBERS.replace("role: viewer", "role: editor"))
        assert client.get(SQL[0], follow_redirects=True).status_code == 200
        (house.folder / "edison.yaml").write_text(MEMBERS.rpartition("  - {github: vi")[0])
        assert client.get("/-/edison").status_code == 303


def test_every_answer_carries_the_headers(house: House) -> None:
    with house.as_("vi") as client:
        for path in ("/-/edison", "/results", "/-/edison/you", "/-/edison/nothing", SQL[0]):
            answer = client.get(path, follow_redirects=True)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] in ("same-origin", "no-referrer")
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "no-store" in answer.headers["cache-control"], path
            assert "strict-transport-security" not in answer.headers
    with house.browser() as stranger:
        refused = stranger.get("/-/edison")
    assert "default-src 'none'" in refused.headers["content-security-policy"]
    assert refused.headers["cache-control"] == "private, no-store"


@pytest.mark.nightly
@in_browser
async def test_people_sign_in_with_a_browser(house: House, browser: Browser) -> None:
    scripts = house.server.line == LINES[0]  # and without them
    async with await browser.new_context(
        base_url=house.server.address, java_script_enabled=scripts
    ) as context:
        context.set_default_timeout(1000 * PATIENCE_S)
        page, wrong = await context.new_page(), list[str]()
        page.on("console", lambda said: wrong.append(said.text))
        await page.goto("/-/edison/costs")
        assert await page.title() == "Sign in · edison"
        await page.keyboard.type("vi")
        await page.keyboard.press("Tab")
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for()
        if scripts:
            assert await axe(page) == []
        wrong.clear()  # a browser notes the 403
        assert await page.get_by_label("Login").input_value() == "vi"
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/-/edison/costs")
        await page.get_by_role("link", name="vi", exact=True).click()
        await page.wait_for_url("**/-/edison/you")
        if scripts:
            assert await axe(page) == []
        await page.get_by_role("button", name="Sign out", exact=True).click()
        await page.wait_for_url("**/-/edison/sign-in")
        assert wrong == []


# --- without a browser in between -----------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example", "https://evil.example", "/\\evil.example", "\\/evil.example", "evil",
        "javascript:alert(1)", "/\t/evil.example", " //evil.example", "/%0a/x\n", "http:/x", "",
        "/-/edison/sign-in?next=/-/edison/sign-in", "/-/edison/sign-out", "/-/edison/ü",
        "/" + "x" * 1_000, "///evil.example", "/./\\evil.example",
    ],
)  # fmt: skip
def test_only_pages_of_ours_are_gone_to(wanted: str) -> None:
    assert safe_next(wanted, "/") == ""


@pytest.mark.parametrize("wanted", ["/", "/-/edison/costs?by=day#x", "/results/run?_where=a//b"])
def test_pages_of_ours_are_gone_to(wanted: str) -> None:
    assert safe_next(wanted, "/") == wanted


async def test_datasette_itself_says_no_too(tmp_path: Path) -> None:
    """If a request ever got past the guard, what Datasette is asked for would still be refused."""
    folder = prepared(tmp_path / "project")
    results = folder / ".edison" / "results.db"
    datasette = application(
        Serving(results, folder, "notes", "127.0.0.1", 0, access=ServerAccess(sign_in=True))
    )
    await datasette.invoke_startup()
    for actor in (None, {"id": "root"}, {"id": "vi"}, {"edison_role": "nonsense"}):
        for action in ("view-instance", "execute-sql", "permissions-debug", "debug-menu"):
            assert await datasette.permission_allowed(actor, action, default=True) is False
        for action, resource in (("view-database", "results"), ("view-table", ("results", "run"))):
            assert not await datasette.permission_allowed(actor, action, resource, default=True)
    viewer = {"id": "vi", "edison_role": "viewer"}
    assert await datasette.permission_allowed(viewer, "view-instance") is True
    assert await datasette.permission_allowed(viewer, "view-database-download", "results") is False


def test_an_invited_person_sets_a_password_and_signs_in(house: House) -> None:
    accounts = house.accounts
    _, key = accounts.invite(accounts.member("rex"), days=7)
    address = "/-/edison/sign-in/invitation"
    with house.browser() as client:
        assert client.get(f"{address}?key=wrong").status_code == 400
        page = client.get(f"{address}?key={key}")
        assert page.status_code == 200
        assert "You are invited as reviewer." in page.text
        assert not any(secret in page.text for secret in SECRETS)
        form = {"key": key, **token_of(page.text)}
        differ = client.post(address, data={**form, "password": "one two three four", "again": "x"})
        assert (differ.status_code, "The two passwords differ." in differ.text) == (403, True)
        weak = client.post(address, data={**form, "password": "short", "again": "short"})
        assert "A password needs at least 12 characters" in weak.text
        new = "another correct horse battery"
        done = client.post(address, data={**form, "password": new, "again": new})
        assert (done.status_code, done.headers["location"]) == (303, "/-/edison/sign-in")
        assert house.send(client, name="rex", password=new).status_code == 303
        again = client.post(address, data={**form, "password": new, "again": new})
        assert (again.status_code, "was used" in again.text) == (400, True)
    accounts.set_password("rex", PASSWORD)
    assert ("rex", "web", "accept invitation", "rex") in [row[:4] for row in house.audit()]
