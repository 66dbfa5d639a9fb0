"""edison history and diff: versions from Git, their scores, and what changed between two."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.documents.yaml_edit import scalar
from edison_ci.records import SuggestionStatus
from edison_ci.results.rollups import rollups_of
from tests.opened import opened
from tests.planted import Planted, plant
from tests.suggested import keep, suggestion_for, version_of

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 30
LOW = [0.4 + 0.1 * (i % 3) for i in range(CASES)]
HIGH = [0.8 + 0.1 * (i % 2) for i in range(CASES)]


def commit(folder: Folder, message: str) -> None:
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", message)


def version_in_use(edison: Edison, folder: Folder) -> str:
    found = json.loads(edison(folder, "try", "--dry-run", "hello", "--json").out)["prompt"]["hash"]
    assert isinstance(found, str)
    return found


@pytest.fixture
def told(edison: Edison, mini: Folder) -> Folder:
    """Two merged versions and one that is not committed, the first two with results."""
    mini.write(".gitignore", ".edison/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini, "Say hello")
    first = version_in_use(edison, mini)
    mini.edit("prompts/hello.md", "friendly", "warm and friendly")
    commit(mini, "Say it warmly")
    second = version_in_use(edison, mini)
    mini.edit("prompts/hello.md", "one", "a single")
    plant(
        mini,
        Planted("r1", "2026-11-13T09:00:00Z", {"small": LOW}, version=first),
        Planted("r2", "2026-11-14T09:00:00Z", {"small": HIGH}, version=second, label="v2"),
    )
    return mini


def versions(edison: Edison, folder: Folder, prompt: str = "hello") -> list[dict[str, Any]]:
    done = edison(folder, "history", prompt, "--json")
    assert (done.code, done.err) == (0, ""), done.all
    found = json.loads(done.out)["versions"]
    assert isinstance(found, list)
    return found


def difference(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "diff", *args, "--json")
    assert (done.code, done.err) == (0, ""), done.all
    document = json.loads(done.out)
    assert isinstance(document, dict)
    return document


# --- history --------------------------------------------------------------------------------------


def test_versions_come_newest_first_with_author_and_score(edison: Edison, told: Folder) -> None:
    now, second, first = versions(edison, told)
    assert (now["label"], now["commit"], now["in_use"]) == (f"v2+{now['hash']}", None, True)
    assert now["composite"] is None
    assert (second["label"], second["subject"]) == ("v2", "Say it warmly")
    assert (second["author"], second["commit"]) == ("Test", told.git("rev-parse", "HEAD"))
    assert second["date"].startswith(told.git("log", "-1", "--format=%as"))
    assert second["composite"]["estimate"] == pytest.approx(0.85)
    assert second["composite"]["low"] < 0.85 < second["composite"]["high"]
    assert (second["run_id"], second["answer_cost_microusd"]) == ("r2", 88)
    assert (first["label"], first["run_id"]) == ("v1", "r1")


def test_the_table_says_what_is_not_committed(edison: Edison, told: Folder) -> None:
    done = edison(told, "history", "prompts/hello.md")
    lines = done.out.splitlines()
    assert lines[0] == "hello  prompts/hello.md"
    assert "not committed" in lines[2]
    assert lines[2].endswith("in use")
    assert "85.0 (83." in lines[3]
    assert "Say it warmly" in lines[3]
    assert lines[5].startswith("score, oldest to newest  ▁█")


def test_the_newest_complete_run_counts(edison: Edison, told: Folder) -> None:
    second = versions(edison, told)[1]["version"]
    plant(
        told,
        Planted("r3", "2026-11-15T09:00:00Z", {"small": LOW}, version=second, label="v2"),
        Planted("r4", "2026-11-15T10:00:00Z", {"small": LOW[:2]}, version=second, partial=True),
        Planted("r5", "2026-11-15T11:00:00Z", {"small": HIGH}, version=second, complete=False),
    )
    assert versions(edison, told)[1]["run_id"] == "r3"


def test_a_score_with_other_models_is_not_set_beside_the_newest(
    edison: Edison, told: Folder
) -> None:
    second = versions(edison, told)[1]["version"]
    plant(told, Planted("r3", "2026-11-15T09:00:00Z", {"large": HIGH}, version=second, label="v2"))
    _, newer, older = versions(edison, told)
    assert (newer["run_id"], newer["model_names"], newer["differs"]) == ("r3", ["large"], [])
    assert (older["run_id"], older["model_names"], older["differs"]) == (
        "r1",
        ["small"],
        ["models"],
    )
    done = edison(told, "history", "hello")
    assert done.out.splitlines()[4].endswith("other models")
    assert "score, oldest to newest" not in done.out
    assert "edison diff hello@A hello@B" in done.err
    first = older["version"]
    plant(told, Planted("r0", "2026-11-12T09:00:00Z", {"large": LOW}, version=first))
    older = versions(edison, told)[2]
    assert (older["run_id"], older["differs"]) == ("r0", [])
    done = edison(told, "history", "hello")
    assert "score, oldest to newest  ▁█" in done.out
    assert "say nothing" not in done.err


def test_other_cases_and_grading_are_told_too(edison: Edison, told: Folder) -> None:
    second = versions(edison, told)[1]["version"]
    other = Planted("r3", "2026-11-15T09:00:00Z", {"small": HIGH}, version=second, label="v2")
    plant(told, replace(other, content="another text", snapshot='{"datasets/x": {"a": 1}}'))
    assert versions(edison, told)[2]["differs"] == ["grading", "cases"]


def test_the_interval_of_a_version_allows_for_clusters(edison: Edison, told: Folder) -> None:
    before = versions(edison, told)[1]["composite"]
    with opened(told.path / ".edison/results.db") as connection:
        connection.execute("update cell set cluster = 'k' || (substr(case_id, 2) / 5)")
        rollups_of(connection, "r2")(connection)
    after = versions(edison, told)[1]["composite"]
    assert after["estimate"] == pytest.approx(before["estimate"])
    assert after["low"] != before["low"]
    (run,) = json.loads(edison(told, "status", "r2", "--json").out)["runs"]
    assert after == run["composite"]


def test_a_version_on_a_branch_has_its_author(edison: Edison, told: Folder) -> None:
    told.git("switch", "--quiet", "--create", "work")
    commit(told, "Only one")
    now = versions(edison, told)[0]
    assert (now["label"], now["subject"]) == (f"v2+{now['hash']}", "Only one")


def test_a_measured_version_that_git_does_not_know_is_listed(edison: Edison, told: Folder) -> None:
    plant(told, Planted("r3", "2026-11-15T09:00:00Z", {"small": LOW}, version="f" * 64))
    found = versions(edison, told)[-1]
    assert (found["label"], found["commit"], found["run_id"]) == ("?+ffffffff", None, "r3")
    assert "not in Git" in edison(told, "history", "hello").out


def test_a_changed_schema_makes_a_version(edison: Edison, mini: Folder) -> None:
    mini.write("schemas/out.json", '{"type": "object"}')
    mini.edit("prompts/hello.md", "id: hello\n", "id: hello\noutput: schemas/out.json\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini, "start")
    mini.write("schemas/out.json", '{"type": "array"}')
    commit(mini, "Ask for a list")
    found = versions(edison, mini)
    assert [version["subject"] for version in found] == ["Ask for a list", "start"]
    assert [version["label"] for version in found] == ["v2", "v1"]


def test_without_git_and_results_there_is_one_version(edison: Edison, mini: Folder) -> None:
    (only,) = versions(edison, mini)
    assert (only["label"], only["author"], only["composite"]) == ("v1", None, None)
    assert edison(mini, "history", "helo").code == 2


def test_authors_cannot_write_to_the_terminal(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Eve \x1b]0;x\x07")
    mini.git("init", "--quiet", "--initial-branch=main")
    commit(mini, "start \x1b[2J")
    assert "\x1b" not in edison(mini, "history", "hello").out


# --- other names, suggestions and production ------------------------------------------------------


@pytest.fixture
def renamed(edison: Edison, told: Folder) -> Folder:
    """The prompt under a new name, which was changed once more since."""
    told.git("checkout", "--quiet", "prompts/hello.md")
    told.git("mv", "prompts/hello.md", "prompts/greet.md")
    told.edit("prompts/greet.md", "id: hello", "id: greet")
    told.edit("experiments/hello.yaml", "prompts/hello.md", "prompts/greet.md")
    commit(told, "Call it greet")
    told.edit("prompts/greet.md", "one", "a single")
    commit(told, "A single one")
    return told


def test_a_renamed_prompt_starts_at_v1_and_its_history_shows_both_names(
    edison: Edison, renamed: Folder
) -> None:
    found = versions(edison, renamed, "greet")
    assert [(v["label"], v["prompt"], v["subject"]) for v in found] == [
        ("v2", "greet", "A single one"),
        ("v1", "greet", "Call it greet"),
        ("hello@v2", "hello", "Say it warmly"),
        ("hello@v1", "hello", "Say hello"),
    ]
    assert found[1]["version"] == found[2]["version"]
    assert [v["run_id"] for v in found] == [None, "r2", "r2", "r1"]
    assert [v["measured_as"] for v in found] == [None, "hello", "hello", "hello"]
    done = edison(renamed, "history", "greet")
    lines = done.out.splitlines()
    assert lines[3].endswith("measured as hello")
    assert lines[5].startswith("hello@v1  ")
    assert "score, oldest to newest  ▁██" in done.out


def test_a_rename_that_is_not_committed_is_known_by_what_was_measured(
    edison: Edison, told: Folder
) -> None:
    told.git("checkout", "--quiet", "prompts/hello.md")
    told.git("mv", "prompts/hello.md", "prompts/greet.md")
    told.edit("prompts/greet.md", "id: hello", "id: greet")
    told.edit("experiments/hello.yaml", "prompts/hello.md", "prompts/greet.md")
    (only,) = versions(edison, told, "greet")
    assert (only["run_id"], only["measured_as"]) == ("r2", "hello")


def test_versions_under_other_names_can_be_compared(edison: Edison, renamed: Folder) -> None:
    done = edison(renamed, "diff", "hello@v1", "v1", "--prompt", "greet")
    assert done.code == 0, done.all
    assert done.out.splitlines()[:2] == ["--- hello@v1", "+++ greet@v1"]
    assert "hello: v1 is better +35.0 points" in done.out


@pytest.mark.nightly
def test_suggestions_are_part_of_the_history(edison: Edison, told: Folder) -> None:
    second, first = versions(edison, told)[1:]
    told.git("checkout", "--quiet", "prompts/hello.md")
    made = keep(
        told,
        suggestion_for(
            told,
            status=SuggestionStatus.APPLIED,
            base_hash=first["version"],
            new_hash=second["version"],
        ),
    )
    waiting = keep(told, suggestion_for(told, "Smile while you write it.\n"))
    assert waiting.new_hash is not None
    plant(told, Planted("r9", "2026-11-16T09:00:00Z", {"small": HIGH}, version=waiting.new_hash))
    assert waiting.new_hash not in {v["version"] for v in versions(edison, told)}
    assert versions(edison, told)[0]["suggestion"] == made.id
    done = edison(told, "history", "hello")
    assert f"in use, suggestion {made.id}" in done.out
    assert (
        f"suggestion {waiting.id}  proposed, of {second['hash']} for Warmth  simulated" in done.out
    )
    document = json.loads(edison(told, "history", "hello", "--json").out)
    assert [one["id"] for one in document["suggestions"]] == [waiting.id]


@pytest.mark.parametrize("word", ["v1", "{hash}", "main~1"])
def test_a_version_is_promoted_by_a_line_of_front_matter(
    edison: Edison, told: Folder, word: str
) -> None:
    first = versions(edison, told)[2]
    before = told.read("prompts/hello.md")
    done = edison(told, "promote", "hello", word.format(hash=first["hash"]), "--json")
    assert done.code == 0, done.all
    said = json.loads(done.out)
    assert (said["label"], said["changed"], said["measured"]) == ("v1", True, True)
    after = told.read("prompts/hello.md")
    added = set(after.splitlines()) - set(before.splitlines())
    assert added == {f"production: {scalar(first['hash'])}"}
    found = versions(edison, told)
    assert [v["production"] for v in found] == [False, False, True]
    assert found[0]["version"] == version_of(before)  # the mark makes no version
    again = json.loads(edison(told, "promote", "hello", "v1", "--json").out)
    assert again["changed"] is False
    rows = json.loads(edison(told, "admin", "audit", "--json").out)["rows"]
    assert [(row["action"], row["entity"]) for row in rows] == [("promote", "hello")]
    plant(told, Planted("r6", "2026-11-16T09:00:00Z", {"small": HIGH}, version=found[0]["version"]))
    compared = edison(told, "compare", "production", "latest", "--experiment", "hello", "--json")
    assert json.loads(compared.out)["verdict"] == "b_better"


def test_the_mark_is_moved_and_comments_stay(edison: Edison, told: Folder) -> None:
    told.edit("prompts/hello.md", "id: hello\n", 'id: hello # mine\nproduction: "v1" # old\n')
    done = edison(told, "promote", "hello", "current")
    assert done.code == 0
    assert "not on the default branch yet" in done.err
    text = told.read("prompts/hello.md")
    assert text.startswith("---\nid: hello # mine\nproduction: ")
    assert text.count("production") == 1
    assert edison(told, "validate").code == 0


def test_a_version_that_is_not_there_is_not_promoted(edison: Edison, told: Folder) -> None:
    done = edison(told, "promote", "hello", "v9")
    assert (done.code, "hello has no version 'v9'" in done.err) == (2, True)
    told.edit("edison.yaml", "project: mini\n", "project: mini\nmembers:\n"
              "  - {email: bo@example.org, role: owner}\n")  # fmt: skip
    before = told.read("prompts/hello.md")
    refused = edison(told, "promote", "hello", "v1")
    assert (refused.code, "promote needs an editor" in refused.err) == (2, True)
    assert told.read("prompts/hello.md") == before


# --- diff -----------------------------------------------------------------------------------------


def test_a_diff_shows_the_text_and_what_it_did(edison: Edison, told: Folder) -> None:
    done = edison(told, "diff", "v1", "v2")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:2] == ["--- hello@v1", "+++ hello@v2"]
    assert "-Say hello to {{ name }} in one friendly sentence, and nothing else." in lines
    assert "+Say hello to {{ name }} in one warm and friendly sentence, and nothing else." in lines
    assert lines[-3].startswith("hello: v2 is better +35.0 points (likely +3")
    assert lines[-3].endswith("on 30 cases with small, two-sided p < 0.001 for any difference")
    assert lines[-2].startswith("  10 cases fixed: c0, c12, ")
    assert lines[-1].startswith("  15 cases scoring higher: c1, ")


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["v2", "v1"], ("v2", "v1")),
        (["main~1", "main"], ("v1", "v2")),
        (["hello@v1", "hello@HEAD"], ("v1", "v2")),
        (["v1", "main", "--prompt", "prompts/hello.md"], ("v1", "v2")),
    ],
)
def test_versions_go_by_label_and_ref(
    edison: Edison, told: Folder, words: list[str], labels: tuple[str, str]
) -> None:
    found = difference(edison, told, *words)
    assert (found["a"]["label"], found["b"]["label"]) == labels
    (scores,) = found["scores"]
    sign = 1 if labels == ("v1", "v2") else -1
    assert scores["difference"]["estimate"] == pytest.approx(sign * 0.35)
    assert (scores["n"], scores["shown"]) == (CASES, True)
    moved = ("fixed", "higher") if sign > 0 else ("newly_failing", "lower")
    assert [len(scores[move]) for move in moved] == [10, 15]


def test_fixed_and_broken_are_the_same_cases_in_diff_and_compare(
    edison: Edison, told: Folder
) -> None:
    _, second, first = versions(edison, told)
    plant(
        told,
        Planted("r3", "2026-11-15T09:00:00Z", {"small": [0.45] * CASES}, version=first["version"]),
        Planted("r4", "2026-11-15T10:00:00Z", {"small": [0.55] * CASES}, version=second["version"]),
    )
    (scores,) = difference(edison, told, "v1", "v2")["scores"]
    assert (len(scores["fixed"]), scores["newly_failing"]) == (CASES, [])
    names = f"hello@{first['hash']}", f"hello@{second['hash']}"
    compared = json.loads(edison(told, "compare", *names, "--json").out)
    assert [case["case"] for case in compared["fixed"]] == scores["fixed"]
    assert "30 fixed: c0 45 to 55, " in edison(told, "compare", *names).out
    back = edison(told, "compare", *reversed(names)).out
    assert "30 newly failing: c0 55 to 45, " in back


def test_versions_go_by_hash_file_and_id(edison: Edison, told: Folder) -> None:
    now, second, _ = versions(edison, told)
    by_id = difference(edison, told, second["hash"], "hello")
    by_path = difference(edison, told, second["version"], "prompts/hello.md")
    assert by_id["b"]["hash"] == by_path["b"]["hash"] == now["hash"]
    assert by_id["diff"] == by_path["diff"]
    assert by_id["scores"] == []
    done = edison(told, "diff", "v2", "hello")
    assert "no complete runs with both versions, graded alike, on the same cases" in done.err
    told.write("draft/hello.md", told.read("prompts/hello.md").replace("a single", "one"))
    assert difference(edison, told, "v2", "draft/hello.md")["same_version"]


def test_what_is_no_version_is_said(edison: Edison, told: Folder) -> None:
    done = edison(told, "diff", "v1", "v9")
    assert "hello has no version 'v9', and there is no such commit" in done.err
    assert "versions: v1, v2, v2+" in done.err
    assert "did you mean 'main'?" in edison(told, "diff", "v1", "mian").err
    told.write("notes.txt", "hello {{ nobody")
    assert "notes.txt is not a prompt" in edison(told, "diff", "v1", "notes.txt").err
    told.write("prompts/other.md", told.read("prompts/hello.md").replace("id: hello", "id: other"))
    done = edison(told, "diff", "v1", "v2")
    assert (done.code, "which prompt is 'v1' a version of?" in done.err) == (2, True)
    assert difference(edison, told, "hello@v1", "v2")["b"]["prompt"] == "hello"


def test_without_git_a_label_that_is_not_there_lists_the_others(
    edison: Edison, mini: Folder
) -> None:
    done = edison(mini, "diff", "v1", "v2")
    assert "hello has no version 'v2'" in done.err
    assert "there are: v1" in done.err


def test_a_prompt_cannot_write_to_the_terminal(edison: Edison, told: Folder) -> None:
    told.edit("prompts/hello.md", "nothing else", "nothing \u202e\x9b2J else")
    done = edison(told, "diff", "v2", "hello")
    assert not {"\u202e", "\x9b"} & set(done.all)
