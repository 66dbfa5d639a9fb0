"""edison loop waits for people, goes on after them, and ends in a report of what is known."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import every
from tests.features.refine.workbench import project
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison, Kept
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

NAME = "support-reply"


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def shop(support: Folder) -> Folder:
    """The template in a repository, with half of the ordinary cases; 16 are held out."""
    every(2, support)
    support.edit(f"experiments/{NAME}.yaml", "holdout: 0.4", "holdout: 0.46")
    adversarial = "  - {path: datasets/adversarial.jsonl, kind: adversarial}\n"
    support.edit(f"experiments/{NAME}.yaml", adversarial, "")
    committed(support)
    return support


def committed(folder: Folder) -> None:
    folder.write(".gitignore", ".edison/\n")
    folder.git("init", "-q", "--initial-branch=main")
    folder.git("config", "user.name", "Ada")
    folder.git("config", "user.email", "ada@example.org")
    folder.git("add", "-A")
    folder.git("commit", "-qm", "start")


Waiting = tuple["Folder", dict[str, Any]]


def first_loop(edison: Edison, folder: Folder, kept: Kept, name: str) -> Waiting:
    """Return the project whose loop waits for a person, made once, and what the loop told."""

    def make() -> None:
        done = edison(folder, "loop", NAME, "--iterations", "2", "--json")
        assert done.code == 0, done.all
        folder.write(".edison/locks/told.json", done.out)

    kept.begin(name, folder, make)
    return folder, json.loads(folder.read(".edison/locks/told.json"))


@pytest.fixture
def waiting(edison: Edison, shop: Folder, kept: Kept) -> Waiting:
    return first_loop(edison, shop, kept, "waiting")


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def test_it_waits_for_a_person_and_goes_on_after_the_approval(
    waiting: Waiting, edison: Edison
) -> None:
    shop, told = waiting
    assert (told["status"], told["point"], told["mode"]) == ("waiting", "reviewing", "review")
    assert told["simulated"] is True
    assert ask(shop, "select status from run where trigger = 'loop'") == [("REVIEWING",)]
    assert "REVIEWING" in edison(shop, "status").out
    assert "edison loop" in edison(shop, "resume").err
    (attempts,) = ask(shop, "select count(*) from attempt")
    again = edison(shop, "loop", NAME)
    assert again.code == 0
    assert f"{told['waits_for']['id']} needs a decision" in again.out
    assert "simulated" in again.out
    assert ask(shop, "select count(*) from attempt") == [attempts], "waiting costs nothing"
    assert shop.git("status", "--porcelain") == ""

    assert edison(shop, "review", "approve", told["waits_for"]["id"]).code == 0
    done = edison(shop, "loop", NAME)
    assert done.code == 0, done.all
    assert (
        "Stopped after 2 iterations: the limit of 2 iterations is reached. On 16 held-out cases"
        in done.out
    )
    assert "simulated" in done.out
    assert ask(shop, "select distinct status from run where trigger = 'loop'") == [("COMPLETED",)]
    check_files(shop)
    assert shop.git("status", "--porcelain") == ""


def check_files(folder: Folder) -> None:
    (report,) = (folder.path / ".edison/loops").glob("*/report.md")
    said = report.read_text()
    for words in (
        "**Simulated.**", "Stopped after 2 iterations", "## First and best prompt", "## Iterations",
        "## Cost", "| judge |", "## Model recommendation", "## Remaining weaknesses",
        "## Next steps",
        "| held-out | 16 |", "```",
    ):  # fmt: skip
        assert words in said, words
    page = report.with_suffix(".html").read_text()
    assert "Simulated." in page
    assert "Stopped after 2 iterations" in page
    assert (report.parent / "prompt.md").read_text() == folder.read(f"prompts/{NAME}.md")
    assert "---" not in (report.parent / "prompt.txt").read_text().splitlines()
    with (report.parent / "results.csv").open(newline="") as stream:
        assert len([*csv.reader(stream)]) == 1 + 2 * 36


def test_a_rejection_is_told_to_the_refiner_who_is_asked_again(
    waiting: Waiting, edison: Edison
) -> None:
    shop, told = waiting
    one = told["waits_for"]["id"]
    assert edison(shop, "review", "reject", one, "--reason", "sounds like a form").code == 0
    again = edison(shop, "loop", NAME, "--json")
    assert again.code == 0, again.all
    after = json.loads(again.out)
    assert after["loop"] == told["loop"]
    assert after.get("waits_for", {}).get("id") != one
    (calls,) = ask(shop, "select count(*) from attempt where phase = 'refine'")
    assert calls[0] >= 2
    (runs,) = ask(shop, "select count(*) from run where trigger = 'loop'")
    assert runs == (1,), "the same iteration is refined again"


@pytest.mark.nightly
def test_a_loop_can_be_left_behind(waiting: Waiting, edison: Edison) -> None:
    shop, first = waiting
    wrong = edison(shop, "loop", NAME, "--auto-approve")
    assert wrong.code == 2
    assert "waits for a human decision" in wrong.err
    second = json.loads(edison(shop, "loop", NAME, "--restart", "--json").out)
    assert second["loop"] != first["loop"]
    rows = ask(shop, "select point, stopped_by from loop order by started_at")
    assert rows == [("done", "restarted"), ("reviewing", None)]
    runs = ask(shop, "select status from run where trigger = 'loop' order by created_at")
    assert runs == [("COMPLETED",), ("REVIEWING",)]
    assert edison(shop, "runs", "cancel", NAME).code == 0
    over = edison(shop, "loop", NAME)
    assert over.code == 0, over.all
    assert "its run was cancelled. No better prompt was found" in over.out


def test_somebody_without_the_role_is_refused(shop: Folder, edison: Edison) -> None:
    members = "members:\n  - {email: ada@example.org, role: reviewer}\n"
    members += "  - {email: boss@example.org, role: owner}\n"
    shop.write("edison.yaml", f"{shop.read('edison.yaml')}\n{members}")
    refused = edison(shop, "loop", NAME)
    assert refused.code == 2
    assert "loop" in refused.err
    assert not (shop.path / ".edison/results.db").exists()


def test_nothing_is_taken_without_a_person_where_that_is_not_allowed(
    shop: Folder, edison: Edison, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = edison(shop, "loop", NAME, "--auto-approve")
    assert refused.code == 2
    assert "require_review_approval: false" in refused.err
    shop.edit("edison.yaml", "version: 1", "version: 1\nsettings: {require_review_approval: false}")
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.setenv(name, "true")
        assert "not permitted in CI" in edison(shop, "loop", NAME, "--auto-approve").err
        monkeypatch.delenv(name)
    shop.edit(f"prompts/{NAME}.md", "Write a reply", "Please write a reply")
    assert "has uncommitted changes" in edison(shop, "loop", NAME, "--auto-approve").err
    shop.git("commit", "-qam", "mine")
    shop.git("branch", f"edison/loop/{NAME}")
    there = edison(shop, "loop", NAME, "--auto-approve")
    assert there.code == 2
    assert "of an earlier loop still exists" in there.err
    assert not ask(shop, "select 1 from loop")
    assert not ask(shop, "select 1 from attempt")


def test_a_budget_ends_it_with_exit_code_4_and_more_of_it_goes_on(
    folder: Folder, edison: Edison
) -> None:
    project(folder)
    stopped = edison(folder, "loop", "hello", "--budget", "0.001", "--json")
    assert stopped.code == 4, stopped.all
    assert "edison loop hello --budget USD" in json.loads(stopped.out)["error"]["hint"]
    done = edison(folder, "loop", "hello", "--budget", "5", "--json")
    assert done.code == 0, done.all
    told = json.loads(done.out)
    ((first,),) = ask(folder, "select count(distinct id) from loop")
    assert first == 1
    assert told["budget_microusd"] == 5_000_000
    ((booked,),) = ask(folder, "select sum(microusd) from booked where scope like 'loop:%'")
    ((paid,),) = ask(folder, "select sum(cost_microusd) from attempt where loop is not null")
    assert booked == paid > 0


@pytest.fixture
def two(edison: Edison, shop: Folder, kept: Kept) -> Waiting:
    """The template with a second prompt, whose loop waits for two decisions."""
    text = shop.read(f"prompts/{NAME}.md").replace(f"id: {NAME}", "id: warm")
    warm = text.replace("# user\n", "# user\nBe warm, and thank the customer.\n")
    shop.write("prompts/warm.md", warm)
    both = f"prompts: [prompts/{NAME}.md, prompts/warm.md]"
    shop.edit(f"experiments/{NAME}.yaml", f"prompts: [prompts/{NAME}.md]", both)
    shop.git("add", "-A")
    shop.git("commit", "-qm", "two prompts")
    return first_loop(edison, shop, kept, "two waiting")


@pytest.mark.nightly
def test_several_prompts_wait_for_all_their_decisions(two: Waiting, edison: Edison) -> None:
    shop, first = two
    waiting = {one["prompt"]: one["id"] for one in first["suggestions"]}
    assert list(waiting) == [NAME, "warm"]
    assert first["prompt"] == f"{NAME}, warm"
    assert [one["prompt"] for one in first["iterations"]] == [NAME, "warm"]
    shown = edison(shop, "loop", NAME)
    for one in waiting.values():
        assert f"{one} needs a decision" in shown.out
        assert f"edison review approve {one}" in shown.err
    alone = edison(shop, "loop", NAME, "--prompt", "warm")
    assert (alone.code, "leave out --prompt" in alone.err) == (2, True)

    assert edison(shop, "review", "approve", waiting[NAME]).code == 0
    again = json.loads(edison(shop, "loop", NAME, "--json").out)
    assert again["status"] == "waiting", "one of them is still open"
    assert len(again["iterations"]) == 2
    assert edison(shop, "review", "reject", waiting["warm"], "--reason", "too warm").code == 0
    done = edison(shop, "loop", NAME, "--json")
    assert done.code == 0, done.all
    told = json.loads(done.out)
    assert (told["status"], told["stopped_by"]) == ("done", "max_iterations")
    rows = [(one["number"], one["prompt"], one["suggestion"]) for one in told["iterations"]]
    assert rows == [(1, NAME, None), (1, "warm", None), (2, NAME, waiting[NAME]), (2, "warm", None)]
    versions = {one["version"] for one in told["iterations"] if one["prompt"] == "warm"}
    assert len(versions) == 1, "what was rejected is not measured"
    kept = {one["prompt"]: one for one in told["prompts"]}
    assert kept[NAME]["holdout"]["difference"]["estimate"] > 0
    assert kept["warm"]["holdout"] is None


@pytest.mark.nightly
def test_several_rejections_ask_the_refiner_again(two: Waiting, edison: Edison) -> None:
    shop, first = two
    before = {one["id"] for one in first["suggestions"]}
    for one in before:
        assert edison(shop, "review", "reject", one, "--reason", "sounds like a form").code == 0
    after = json.loads(edison(shop, "loop", NAME, "--json").out)
    assert not before & {one["id"] for one in after.get("suggestions", [])}
    assert ask(shop, "select count(*) from run where trigger = 'loop'") == [(1,)]
