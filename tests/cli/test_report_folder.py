"""edison report --out FOLDER/: the pages as files that need no server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from edison_ci.web import static_pages
from tests.conftest import MINIMAL, Folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison

pytestmark = pytest.mark.daily


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with two runs, and a folder with the pages of the first."""
    folder = Folder(tmp_path_factory.mktemp("written"))
    for name, text in MINIMAL.items():
        folder.write(name, text)
    assert folder.edison("run", "-q").code == 0
    assert folder.edison("report", "--out", "public/").code == 0
    return folder


def pages(folder: Folder) -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in (folder.path / "public").glob("*.html")}


@pytest.mark.nightly
def test_every_link_leads_to_a_file(written: Folder) -> None:
    found = pages(written)
    names = {path.name for path in (written.path / "public").iterdir()}
    assert {"index.html", "edison.css", ".edison-report"} <= names
    links = {
        address.partition("#")[0]
        for text in found.values()
        for address in re.findall(r'(?:href|src|action)="([^"]*)"', text)
        if not address.startswith(("#", "data:"))
    }
    assert links <= names
    assert not [name for name, text in found.items() if "/-/edison" in text]


def test_it_needs_no_server_and_runs_nothing(written: Folder) -> None:
    for text in pages(written).values():
        assert "<script" not in text
        assert "<form" not in text
        assert "default-src 'none'" in text


def test_it_shows_the_run_its_cases_and_its_answers(written: Folder) -> None:
    found = pages(written)
    kinds = {name.partition("-")[0] for name in found}
    assert {"index.html", "run", "cell", "experiment", "leaderboard", "costs"} <= kinds
    everything = "".join(found.values())
    assert "simulated" in everything
    assert "Ada" in everything


def test_a_folder_of_ours_is_replaced_and_no_other(edison: Edison, written: Folder) -> None:
    public = written.path / "public"
    (public / "left.html").write_text("older", encoding="utf-8")
    assert edison(written, "report", "--out", "public/").code == 0
    assert not (public / "left.html").exists()
    assert [p.name for p in written.path.iterdir() if p.name.startswith(".public")] == []
    (written.path / "mine").mkdir()
    (written.path / "mine" / "thesis.txt").write_text("x", encoding="utf-8")
    refused = edison(written, "report", "--out", "mine/")
    assert (refused.code, "files that are not a report" in refused.err) == (2, True)
    assert (written.path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--out", "nowhere/public/"), "cannot be created"),
        (("--format", "csv", "--out", "public/"), "only HTML can be written to a folder"),
        (("--out", "edison.yaml/"), "cannot be created"),
    ],
)
def test_a_place_that_cannot_be_is_refused(
    edison: Edison, written: Folder, args: tuple[str, ...], said: str
) -> None:
    done = edison(written, "report", *args)
    assert (done.code, said in done.err) == (2, True)


def test_a_private_project_has_no_pages_elsewhere(
    edison: Edison, written: Folder, tmp_path: Path
) -> None:
    before = written.read("edison.yaml")
    written.write("edison.yaml", f"{before}settings: {{private: true}}\n")
    try:
        done = edison(written, "report", "--out", f"{tmp_path}/x/")
        assert (done.code, "pages show texts" in done.err) == (2, True)
    finally:
        written.write("edison.yaml", before)


def test_too_many_pages_are_refused_before_any_is_made(
    edison: Edison, written: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_pages, "MOST_PAGES", 1)
    monkeypatch.setattr(static_pages, "application", None)  # would be asked for the first page
    done = edison(written, "report", "--out", "other/")
    assert done.code == 2
    assert "more than 1 pages" in done.all
    assert not (written.path / "other").exists()
