"""A site of many projects: what is served where, and for whom."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httpx
import pytest

from edison_ci.access.accounts import Accounts
from edison_ci.access.site import open_site
from edison_ci.features.site.projects import Projects, is_project_name
from edison_ci.store.database import open_database
from tests.timing import PATIENCE_S
from tests.web.conftest import IN_TURN, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOME = """\
version: 1
project: Team place
members:
  - {github: ann, email: ann@example.org, role: owner}
  - {github: eve, role: editor}
  - {github: vic, role: viewer}
"""


def add_project(site: Path, folder: str, more: str = "", name: str = "") -> Path:
    """Write a project of the site; return its folder."""
    root = site / "projects" / folder
    root.mkdir(parents=True)
    (root / "edison.yaml").write_text(f"version: 1\nproject: {name or folder}\n{more}")
    return root


@dataclass(frozen=True)
class Place:
    """A served site, and the tokens of its members."""

    root: Path
    address: str
    tokens: dict[str, str]

    def get(
        self, path: str, who: str = "", *, follow: bool = False, **headers: str
    ) -> httpx.Response:
        if who:
            headers["authorization"] = f"Bearer {self.tokens[who]}"
        with httpx.Client(base_url=self.address, timeout=PATIENCE_S, trust_env=False) as client:
            return client.get(path, headers=headers, follow_redirects=follow)


@pytest.fixture(scope="module", params=IN_TURN)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, project: Path
) -> Iterator[Place]:
    """A site with a project that has results, and with projects for some members only."""
    root = tmp_path_factory.mktemp("site")
    (root / "edison.yaml").write_text(HOME)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "config", "user.email", "ann@example.org"], check=True)
    full = add_project(root, "shop-support", "description: Answers of the shop.\n", "Shop support")
    (full / ".edison").mkdir()
    shutil.copy(project / ".edison" / "results.db", full / ".edison" / "results.db")
    add_project(root, "secret", "members:\n  - {github: eve, role: viewer}\n")
    add_project(root, "kept-here", "settings: {private: true}\n")
    add_project(root, "other", name="Renamed")
    for number in range(25):
        add_project(root, f"plain-{number:02}", "team: tools\ndescription: One & <all>\n")
    (root / "projects" / "..odd").mkdir()
    open_database(root / ".edison" / "results.db").close()
    accounts = Accounts(open_site(root))
    tokens = {
        name: accounts.new_token(name, label="t", days=1)[1] for name in ("ann", "eve", "vic")
    }
    options = ("--projects", "projects", "--sign-in", "--name", "127.0.0.1", "--rate-limit", "0")
    for server in started(root, request.param, *options):
        yield Place(root, server.address, tokens)


@pytest.mark.nightly
def test_each_project_has_its_pages_below_its_name(place: Place) -> None:
    found = place.get("/projects/shop-support/", "vic", accept="text/html")
    assert (found.status_code, found.headers["location"]) == (
        302,
        "/projects/shop-support/-/edison",
    )
    page = place.get("/projects/shop-support/-/edison", "vic").text
    assert 'href="/projects/shop-support/-/edison/costs"' in page
    # every link stays in the project, but the one to the list of all projects
    assert re.findall(r'href="(/-/edison[^"]*)"', page) == ["/-/edison/projects"]
    assert 'edison · <span class="name">shop-support</span>' in page
    assert "support-reply" in page
    assert "support-reply" not in place.get("/-/edison", "vic").text
    table = place.get("/projects/shop-support/results/run.json?_shape=array", "vic")
    assert len(table.json()) > 3
    assert place.get("/results/run.json?_shape=array", "vic").json() == []


@pytest.mark.nightly
def test_a_project_is_for_its_members_and_for_owners_of_the_site(place: Place) -> None:
    ends = ("-/edison", "results/run.json", "-/edison/health", "-/edison/api/v1/runs/x")
    pages = [f"/projects/secret/{end}" for end in ends]
    for page in pages:
        missing = page.replace("secret", "nothing")
        for who in ("vic", ""):  # no way to tell it from a project that does not exist
            hidden, none = place.get(page, who), place.get(missing, who)
            assert hidden.status_code == none.status_code in (401, 404)
            texts = [
                re.sub(r"\b[0-9a-f]{32}\b|\d\d:\d\d(:\d\d)?", "", reply.text)
                for reply in (hidden, none)
            ]  # each error has its time and trace id
            assert texts[0].replace("secret", "nothing") == texts[1]
    for who in ("ann", "eve"):
        assert place.get(pages[0], who).status_code == 200
    # The role is that of the project: an editor of the site only looks at this one.
    sql = "/projects/{}/results.json?sql=select+1"
    assert place.get(sql.format("secret"), "eve", follow=True).status_code == 403
    assert place.get(sql.format("shop-support"), "eve", follow=True).status_code == 200


@pytest.mark.nightly
def test_the_home_of_a_site_lists_the_projects_that_a_visitor_may_see(place: Place) -> None:
    assert place.get("/", "vic").headers["location"] == "/-/edison/projects"
    first = place.get("/-/edison/projects", "vic").text
    names = re.findall(r'<th scope="row"><a class="name" href="/projects/([a-z0-9-]+)/">', first)
    assert names[0] == "shop-support", "it changed last"
    assert names[1:] == [f"plain-{number:02}" for number in range(19)]
    row = re.findall(r"<td[^>]*>(.*?)</td>", first.partition("Shop support")[2], re.DOTALL)[:6]
    assert row[1] == "Answers of the shop."
    assert row[3:] == ["2", "3", "viewer"]
    assert "One &amp; &lt;all&gt;" in first
    assert 'href="/-/edison/projects?page=2"' in first
    rest = place.get("/-/edison/projects?page=2", "vic").text
    assert "plain-24" in rest
    assert "plain-18" not in rest
    # Neither its name nor the number of projects tells of one that is for others.
    assert "secret" not in first + rest
    assert "26" in rest
    told = place.get("/-/edison/projects?q=SECRET", "vic").text
    assert "No project matches" in told
    for who, role in (("eve", "viewer"), ("ann", "owner")):
        found = place.get("/-/edison/projects?q=secret", who).text
        assert 'href="/projects/secret/"' in found
        assert f"<td>{role}</td>" in found
        assert "plain-" not in found
    assert place.get("/-/edison/projects?q=tools&page=99", "vic").text.count("plain-") >= 5
    assert place.get("/-/edison/projects").status_code == 401
    inside = place.get("/projects/shop-support/-/edison/projects", "vic")
    assert inside.status_code == 404


def test_people_sign_in_at_the_site(place: Place) -> None:
    found = place.get("/projects/shop-support/-/edison/costs?days=7", accept="text/html")
    assert found.status_code == 303
    where, _, wanted = found.headers["location"].partition("?next=")
    assert where == "/projects/shop-support/-/edison/sign-in"
    assert unquote(wanted) == "/projects/shop-support/-/edison/costs?days=7"
    form = place.get(found.headers["location"], accept="text/html")
    assert form.status_code == 200
    assert 'value="/projects/shop-support/-/edison/costs?days=7"' in form.text


def test_what_is_not_served_is_told_at_the_start(place: Place) -> None:
    log = (place.root / "serve.log").read_text()
    assert "kept-here is not served: settings.private is set" in log
    assert "other is not served: its edison.yaml is of the project 'Renamed'" in log
    for name in ("kept-here", "other", "..odd"):
        assert place.get(f"/projects/{name}/-/edison", "ann").status_code == 404


def test_a_new_project_is_served_at_once(place: Place) -> None:
    assert place.get("/projects/later/-/edison", "ann").status_code == 404
    root = add_project(place.root, "later")
    assert place.get("/projects/later/-/edison", "ann").status_code == 200
    shutil.rmtree(root)
    assert place.get("/projects/later/-/edison", "ann").status_code == 404


def test_the_registry_reads_a_changed_file_again(tmp_path: Path) -> None:
    root = add_project(tmp_path, "one", "description: First.\n")
    projects = Projects(tmp_path, tmp_path / "projects")
    (found,) = projects.listing().projects
    assert (found.name, found.title, found.description, found.changed_at) == (
        "one", "one", "First.", None
    )  # fmt: skip
    open_database(found.site.results).close()
    (root / "edison.yaml").write_text("version: 1\nproject: ONE\ndescription: Second.\n")
    again = projects.find("one")
    assert again is not None
    assert (again.title, again.description) == ("ONE", "Second.")
    assert again.changed_at is not None
    (root / "edison.yaml").write_text("version: 1\n")
    assert projects.find("one") is None
    assert [each.name for each in projects.listing().unreadable] == ["one"]
    assert Projects(tmp_path, tmp_path / "nowhere").listing().projects == ()


def test_names_of_projects_are_safe_as_file_names() -> None:
    assert all(map(is_project_name, ("a", "shop-2", "0")))
    odd = ("", ".", "..", "a/b", "a b", "A", "-a", "a-", "a--b", "é", "a" * 51, "a\n", "con.txt")
    assert not any(map(is_project_name, odd))
