"""edison import outputs: answers of elsewhere are graded, and never count as the model's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 12


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """The service of both models; as a judge it gives everything full marks."""
    said = {name: {"score": 4, "reason": "fine"} for name in ("Warmth", "Brevity")}
    script = [rule(model="judge", text=json.dumps({"scores": said, "flags": []}))]
    with LoopbackServer(script) as running:
        yield running


@pytest.fixture
def project(mini: Folder, server: LoopbackServer) -> Folder:
    """A project of 12 cases in a repository, with models that are not simulated."""
    models = (
        f"{name}: {{provider: openai_compatible, base_url: '{server.openai_url}', model: {name}, "
        f"price: {{in: 1, out: 2}}}}\n"
        for name in ("small", "judge")
    )
    mini.write("models.yaml", "".join(models))
    rows = ({"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}"} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write(".gitignore", ".edison/results.db*\n.edison/locks/\n.edison/snapshots/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    return mini


def answers(folder: Folder, count: int = CASES, **more: Any) -> str:
    rows = ({"case": f"c{i}", "text": f"Hello P{i}!", **more} for i in range(count))
    folder.write("answers.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return "answers.jsonl"


def imported(edison: Edison, folder: Folder, *args: str, code: int = 0) -> dict[str, Any]:
    done = edison(folder, "import", "outputs", *args, "--json")
    assert done.code == code, done.all
    (run,) = json.loads(done.out)["runs"]
    assert isinstance(run, dict)
    return run


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def asked(server: LoopbackServer, model: str) -> int:
    return sum(request.json["model"] == model for request in server.requests)


# --- a run ----------------------------------------------------------------------------------------


def test_answers_are_graded_as_a_run_and_no_model_is_asked_for_one(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    name = answers(project, usage={"in": 20, "out": 5}, latency_ms=250, cost_usd=0.001)
    run = imported(edison, project, name)
    assert (asked(server, "small"), asked(server, "judge")) == (0, CASES)
    assert (run["trigger"], run["status"], run["simulated"]) == ("outputs", "COMPLETED", False)
    assert (run["cells"]["ok"], run["pass_rate"]["estimate"]) == (CASES, 1.0)
    assert run["composite"]["n"] == CASES
    assert run["models"][0]["latency_ms"]["p50"] == 250
    assert {part["name"] for part in run["components"]} >= {
        "contains expected",
        "Warmth",
        "Brevity",
    }
    spent = ask(project, "select phase, sum(cost_microusd) > 0 from attempt group by 1 order by 1")
    assert spent == [("judge", 1), ("replay", 0)], "judges are paid, answers were elsewhere"
    costs = ask(project, "select distinct cost_kind, cost_microusd, tokens_in, tokens_out "
                         "from answer where cost_kind = 'imported'")  # fmt: skip
    assert costs == [("imported", 1000, 20, 5)]
    assert edison(project, "admin", "db", "check").code == 0


def test_the_same_texts_with_other_numbers_are_other_answers(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    imported(edison, project, answers(project, latency_ms=250))
    run = imported(edison, project, answers(project, latency_ms=300))
    assert run["models"][0]["latency_ms"]["p50"] == 300
    assert asked(server, "judge") == CASES, "judges see the texts only"
    assert imported(edison, project, "answers.jsonl")["cells"]["ok"] == CASES
    kept = "select count(*) from answer where cost_kind = 'imported'"
    assert ask(project, kept) == [(2 * CASES,)], "each is stored once"


def test_gates_decide_and_set_the_exit_code(edison: Edison, project: Folder) -> None:
    project.edit(
        "experiments/hello.yaml", "gates:\n", "gates:\n  - {metric: pass_rate, at_least: 90%}\n"
    )
    rows = ({"case": f"c{i}", "text": "Hi there!"} for i in range(CASES))
    project.write("bad.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert imported(edison, project, "bad.jsonl", code=1)["verdict"] == "fail"


def test_a_table_is_read_like_lines_of_json(edison: Edison, project: Folder) -> None:
    lines = [
        "case,repeat,text,tokens_in,tokens_out,latency_ms,time,tool_calls",
        'c0,0,"Hello, P0!\nWelcome",12,3,80,2026-01-02T03:04:05+01:00,',
        "c0,1,Hello P0,,,,,",
    ]
    project.write("answers.csv", "\ufeff" + "\r\n".join(lines) + "\r\n")
    run = imported(edison, project, "answers.csv")
    assert (run["cells"]["total"], run["cells"]["ok"]) == (2 * CASES, 2)
    rows = ask(project, "select text, tokens_in, latency_ms, created_at from answer join "
                        "answer_text using (request_hash, answer_no) where cost_kind = 'imported' "
                        "order by text")  # fmt: skip
    assert rows[1] == ("Hello, P0!\nWelcome", 12, 80, "2026-01-02T02:04:05.000Z")
    assert rows[0][:3] == ("Hello P0", None, 0)


def test_cases_without_an_answer_are_skipped_and_counted(edison: Edison, project: Folder) -> None:
    run = imported(edison, project, answers(project, 9))
    assert (run["cells"]["ok"], run["cells"]["skipped"]) == (9, 3)
    done = edison(project, "status", "latest")
    assert "skipped c9@small: no answer was imported for this cell" in done.out


def test_what_is_unknown_is_said_and_no_number_is_made_up(edison: Edison, project: Folder) -> None:
    run = imported(edison, project, answers(project))
    assert run["models"][0]["latency_ms"] == {"p50": None, "p95": None}
    report = edison(project, "report", "--format", "md").out
    assert "Imported without a cost: 12 answers; the cost counts as 0." in report
    assert "Imported without a latency: 12 answers; the latency is unknown." in report
    assert ask(project, "select latency_p50_ms from rollup_run") == [(None,)]


def test_a_check_or_gate_needs_its_numbers(edison: Edison, project: Folder) -> None:
    project.edit("experiments/hello.yaml", "checks:\n", "checks:\n  - latency: {max_ms: 2000}\n")
    project.edit(
        "experiments/hello.yaml", "gates:\n", "gates:\n  - {metric: cost_usd.mean, at_most: 0.1}\n"
    )
    done = edison(project, "import", "outputs", answers(project, 1))
    assert done.code == 2
    assert "latency_ms is missing, and the check latency of the experiment needs it" in done.err
    name = answers(project, latency_ms=1500, cost_usd=0.01)
    run = imported(edison, project, name)
    (gate,) = (gate for gate in run["gates"] if gate["metric"] == "cost_usd.mean")
    assert (gate["verdict"], gate["estimate"]) == ("pass", pytest.approx(0.01))
    (part,) = (part for part in run["components"] if part["name"].startswith("latency"))
    assert part["passed"] == CASES


def test_a_model_that_the_experiment_has_not_is_named_on_the_command_line(
    edison: Edison, project: Folder
) -> None:
    name = answers(project, 10, model="acme/writer:2")
    done = edison(project, "import", "outputs", name)
    assert done.code == 2
    assert "answers.jsonl:1:46: error: row 1: unknown model 'acme/writer:2'" in done.err
    assert "add --model acme/writer:2" in done.err
    run = imported(edison, project, name, "--model", "acme/writer:2")
    assert [one["model"] for one in run["models"]] == ["acme/writer:2"]
    assert run["cells"]["ok"] == 10
    run = imported(edison, project, answers(project, 9), "--model", "service")
    assert [one["model"] for one in run["models"]] == ["service"], "for rows without a model"
    assert edison(project, "import", "outputs", name, "--model", "a b").code == 2


def test_an_experiment_with_several_prompts_and_models_wants_their_names(
    edison: Edison, project: Folder
) -> None:
    project.write("prompts/hi.md", project.read("prompts/hello.md").replace("id: hello", "id: hi"))
    project.edit(
        "experiments/hello.yaml", "[prompts/hello.md]", "[prompts/hello.md, prompts/hi.md]"
    )
    project.edit("experiments/hello.yaml", "models: [small]", "models: [small, judge]")
    done = edison(project, "import", "outputs", answers(project, 1, model="small"))
    assert (done.code, "prompt is missing, and there are several" in done.err) == (2, True)
    done = edison(project, "import", "outputs", answers(project, 1, prompt="hi"))
    assert (done.code, "model is missing, and there are several" in done.err) == (2, True)
    run = imported(edison, project, answers(project, model="small", prompt="hi"))
    assert [(one["prompt"], one["model"]) for one in run["models"]] == [("hi", "small")]
    assert run["cells"]["total"] == CASES, "prompts and models without answers are left out"


def test_the_budget_holds_for_judges_and_the_file_is_imported_again(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    done = edison(project, "import", "outputs", answers(project), "--budget", "0.013")
    assert done.code == 4, done.all
    assert "Import the answers again to continue" in done.err
    assert edison(project, "resume").code == 2
    before = asked(server, "judge")
    assert 0 < before < CASES
    run = imported(edison, project, "answers.jsonl")
    assert (run["status"], asked(server, "judge")) == ("COMPLETED", CASES), "none is asked twice"


def test_code_of_a_check_runs_only_if_it_is_allowed(edison: Edison, project: Folder) -> None:
    project.write("checks/own.py", "def check(output, expected, case):\n    return True\n")
    project.edit(
        "experiments/hello.yaml", "checks:\n", "checks:\n  - python: checks/own.py:check\n"
    )
    done = edison(project, "import", "outputs", answers(project))
    assert (done.code, "pass --allow-code" in done.err) == (2, True)
    assert ask_nothing(project)


def ask_nothing(folder: Folder) -> bool:
    path = folder.path / ".edison/results.db"
    return not path.exists() or ask(folder, "select id from run") == []


# --- where they come from -------------------------------------------------------------------------


def test_the_origin_is_shown_everywhere(edison: Edison, project: Folder) -> None:
    imported(edison, project, answers(project))
    (run,) = json.loads(edison(project, "status", "latest", "--json").out)["runs"]
    assert run["trigger"] == "outputs"
    assert (run["origin"]["file"], run["origin"]["answers"]) == ("answers.jsonl", CASES)
    assert len(run["origin"]["sha256"]) == 64
    assert "hello  COMPLETED  imported answers" in edison(project, "status", "latest").out
    assert "outputs" in edison(project, "status").out
    report = json.loads(edison(project, "report", "--json").out)["runs"][0]
    assert report["labels"] == ["imported answers"]
    assert any("imported from answers.jsonl" in text for text in report["missing"])
    (row,) = json.loads(edison(project, "admin", "audit", "--json").out)["rows"]
    assert (row["action"], row["after"]["answers"]) == ("import outputs", CASES)


def test_they_are_never_reused_as_answers_of_the_model(
    edison: Edison, project: Folder, server: LoopbackServer
) -> None:
    imported(edison, project, answers(project))
    (run,) = json.loads(edison(project, "run", "--json").out)["runs"]
    assert asked(server, "small") == CASES
    assert run["origin"] is None
    kinds = "select distinct a.cost_kind from cell c join answer a using (request_hash, answer_no)"
    cells = ask(project, f"{kinds} where c.run_id = '{run['run_id']}'")
    assert cells == [("billed",)]


def test_they_are_never_the_base_of_a_run(edison: Edison, project: Folder) -> None:
    first = imported(edison, project, answers(project))["run_id"]
    project.git("checkout", "--quiet", "-b", "topic")
    project.edit("prompts/hello.md", "friendly", "warm")
    (run,) = json.loads(edison(project, "run", "--json").out)["runs"]
    (gate,) = run["gates"]
    assert gate["verdict"] == "skipped"
    assert f"run {first}, of main at" in gate["sentence"]
    assert "has imported answers" in gate["sentence"]
    done = edison(project, "compare", "main", run["run_id"])
    assert (done.code, "there is no complete run of hello at main" in done.err) == (2, True)
    told = json.loads(edison(project, "compare", first, run["run_id"], "--json").out)
    assert f"the answers of run {first} were imported" in told["notes"]


def test_they_are_no_evidence_about_prompts_and_models(edison: Edison, project: Folder) -> None:
    imported(edison, project, answers(project))
    assert "no complete run" in edison(project, "leaderboard").all
    assert '"experiments": []' in edison(project, "trends", "--json").out
    version = json.loads(edison(project, "status", "latest", "--json").out)["runs"][0]["prompts"]
    done = edison(project, "compare", f"hello@{version[0]['hash']}", "latest")
    assert (done.code, "no complete run has hello in version" in done.err) == (2, True)


def test_a_bundle_with_a_forged_origin_can_be_shown_and_graded(
    edison: Edison, project: Folder
) -> None:
    imported(edison, project, answers(project))
    for forged in ('"x"', '{"file": 5}', '{"models": [[1]]}'):
        path = '$."command line".outputs'
        with opened(project.path / ".edison/results.db") as connection:
            connection.execute(f"update run set snapshot = json_set(snapshot, '{path}', "
                               f"json('{forged}')), trigger = 'import'")  # fmt: skip
        (run,) = json.loads(edison(project, "status", "latest", "--json").out)["runs"]
        assert run["origin"] is None
        assert edison(project, "regrade", "latest").code == 0


def test_they_stay_imported_when_they_are_graded_again(edison: Edison, project: Folder) -> None:
    imported(edison, project, answers(project, 10), "--model", "service")
    project.edit("experiments/hello.yaml", "checks:\n", "checks:\n  - words: {max: 1}\n")
    (run,) = json.loads(edison(project, "regrade", "latest", "--json").out)["runs"]
    assert (run["trigger"], run["origin"]["file"]) == ("outputs", "answers.jsonl")
    assert (run["cells"]["ok"], run["pass_rate"]["estimate"]) == (10, 0.0)


def test_in_a_pull_request_they_prove_nothing(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.edit(
        "experiments/hello.yaml", "gates:\n", "gates:\n  - {metric: pass_rate, at_least: 20%}\n"
    )
    project.edit(
        "experiments/hello.yaml", "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge]}\n", ""
    )
    name = answers(project)
    assert imported(edison, project, name)["verdict"] == "pass"
    base = project.git("rev-parse", "HEAD")
    event = {
        "number": 1,
        "pull_request": {
            "number": 1,
            "base": {"sha": base, "ref": "main", "repo": {"full_name": "o/r"}},
            "head": {"sha": base, "ref": "topic", "repo": {"full_name": "o/r"}},
        },
        "repository": {"full_name": "o/r", "default_branch": "main"},
    }
    path = project.write("../event.json", json.dumps(event))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(path))
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_SHA", base)
    assert imported(edison, project, name)["verdict"] == "inconclusive"


# --- refused --------------------------------------------------------------------------------------


def test_all_problems_are_told_at_once_and_nothing_is_stored(
    edison: Edison, project: Folder
) -> None:
    rows = [
        '{"case": "c0", "text": "Hello P0"}',
        '{"case": "c0", "text": "Hello again"}',
        '{"case": "c99", "text": "Hello"}',
        '{"case": "c1"}',
        '{"case": "c2", "text": "x", "latency_ms": NaN}',
        '{"case": "c3", "text": "x", "cost_usd": -1}',
        '{"case": "c4", "text": "x", "usage": {"in": 1.5}}',
        '{"case": "c5", "text": "x", "latency": 12}',
        '{"case": "c6", "text": "x", "time": "yesterday"}',
        '{"case": "c7", "text": "x", "repeat": 100}',
        '{"case": "c8", "text": "x"',
        json.dumps({"case": "c9", "text": "y" * 1_000_001}),
    ]
    project.write("answers.jsonl", ("\n".join(rows) + "\n").encode() + b'{"case": "\xff"}\n')
    done = edison(project, "import", "outputs", "answers.jsonl", "--json")
    found = json.loads(done.out)
    assert done.code == 2
    told = {problem["line"]: problem for problem in found["problems"]}
    assert sorted(told) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert {problem["file"] for problem in found["problems"]} == {"answers.jsonl"}
    assert told[2]["message"] == (
        "row 2: a second answer of small to case 'c0', the first is in line 1"
    )
    for line, words in {
        3: "unknown case 'c99'", 4: "text is missing", 5: "NaN is not a JSON number",
        6: "cost_usd is '-1'; allowed: numbers from 0 to 10,000", 7: "tokens_in is '1.5'",
        8: "unknown key 'latency'", 9: "time is 'yesterday'", 10: "whole numbers from 0 to 99",
        11: "not valid JSON", 12: "longer than 1,000,000 bytes", 13: "is not UTF-8",
    }.items():  # fmt: skip
        assert words in told[line]["message"], told[line]
    assert all(told[line]["hint"] for line in (2, 3, 4, 8, 9, 11, 12, 13))
    assert ask_nothing(project)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "case;text\nc0;hi\n", "separate columns with commas"),
        ("a.csv", "case,text\nc0,hi,there\n", "3 fields, the header has 2"),
        ("a.csv", "case,text,latency_ms\nc0,hi,soon\n", "latency_ms is 'soon', not a number"),
        ("a.csv", "id,text\nc0,hi\n", "unknown key 'id'"),
        ("a.jsonl", "", "the file has no answers"),
        ("a.jsonl", '{"case": 5, "text": "x"}\n', "case is not a text"),
        ("a.jsonl", '{"text": "x"}\n', "case is missing"),
        ("a.jsonl", '{"case": "c0", "text": ["x"]}\n', "text is not a text"),
        ("a.jsonl", '{"case": "c0", "text": "x", "tool_calls": {}}\n', "tool_calls is not a list"),
        ("a.jsonl", '{"case": "c0", "text": "x", "finish_reason": "y"}\n', "unknown reason 'y'"),
        ("a.txt", "x", "is not a .jsonl or .csv file"),
        ("none.csv", None, "is not a file"),
    ],
)
def test_a_bad_file_is_refused_with_a_reason(
    edison: Edison, project: Folder, name: str, content: str | None, said: str
) -> None:
    if content is not None:
        project.write(name, content)
    done = edison(project, "import", "outputs", name)
    assert (done.code, said in done.err) == (2, True), done.err
    assert ask_nothing(project)


def test_an_answer_is_stored_without_secrets_and_shown_without_escapes(
    edison: Edison, project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_API_KEY", "kx-Secret-Value-1")
    project.write(
        "answers.jsonl",
        json.dumps({"case": "c0", "text": "P0 \x1b[2J kx-Secret-Value-1 \u202e"}) + "\n",
    )
    imported(edison, project, "answers.jsonl")
    ((text,),) = ask(project, "select text from answer_text where text like 'P0%'")
    assert "[key]" in text
    assert "Secret" not in text
    shown = edison(project, "explain", "c0").out
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_several_experiments_want_a_name(edison: Edison, project: Folder) -> None:
    text = project.read("experiments/hello.yaml").replace("experiment: hello", "experiment: other")
    project.write("experiments/other.yaml", text)
    done = edison(project, "import", "outputs", answers(project))
    assert (done.code, "add --experiment; there are: hello, other" in done.err) == (2, True)
    assert imported(edison, project, "answers.jsonl", "--experiment", "other")["cells"]["ok"] == 12


def test_a_viewer_may_not_import(edison: Edison, project: Folder) -> None:
    project.edit(
        "edison.yaml", "project: mini\n",
        "project: mini\nmembers:\n  - {github: owner, role: owner}\n",
    )  # fmt: skip
    assert edison(project, "import", "outputs", answers(project)).code == 2
    assert ask_nothing(project)
