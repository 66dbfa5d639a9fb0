"""How a run is summed up: which words, which marks, and what to type next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"


@pytest.fixture
def one(mini: Folder) -> Folder:
    """A project of one case that one check grades, answered by its own words."""
    mini.write("models.yaml", "small: {provider: sim, model: echo}\n")
    mini.write("datasets/names.jsonl", '{"id": "ada", "input": {"name": "Ada"}}\n')
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    mini.edit("experiments/hello.yaml", '- contains: "{{ expected }}"', "- contains: Ada")
    return mini


def told(text: str) -> dict[str, Any]:
    (run,) = json.loads(text)["runs"]
    assert isinstance(run, dict)
    return run


def change(folder: Folder, sql: str) -> None:
    with opened(folder.path / ".edison/results.db") as connection:
        connection.execute(sql)


def test_one_of_anything_is_said_in_the_singular(edison: Edison, one: Folder) -> None:
    done = edison(one, "run")
    assert "  1 cell: 1 ok" in done.out
    assert "  1 call made, 0 reused" in done.out
    assert "1 of 1 cell" in done.err
    assert "hello: 1 case, 1 cell" in done.err
    assert "1 call is answered by stored answers" in edison(one, "plan").out


def test_errors_are_counted_in_cells(edison: Edison, one: Folder) -> None:
    one.edit(
        "experiments/hello.yaml",
        "{metric: composite, no_worse_than: base, margin: 10pp}",
        "{metric: errors, at_most: 5%}",
    )
    assert "errors: 0 of 1 cell ended in an error (0%)" in edison(one, "run").out


def test_what_a_screen_kept_back_is_called_blocked(edison: Edison, one: Folder) -> None:
    rows = (
        {"id": "key", "input": {"name": KEY}},
        {"id": "mail", "input": {"name": "ada@corp.com"}},
        {"id": "both", "input": {"name": f"bo@corp.com {KEY}"}},
    )
    one.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    one.edit("experiments/hello.yaml", "checks:", "safety: {secrets: block, pii: flag}\nchecks:")
    done = edison(one, "run")
    lines = {
        line.split("  ")[2].strip(): line for line in done.out.splitlines() if "safety" in line
    }
    assert lines["safety secrets"].endswith("2 blocked")
    assert lines["safety pii"].endswith("2 flagged")
    parts = told(edison(one, "status", "latest", "--json").out)["components"]
    assert {p["name"]: p["blocked"] for p in parts if p["kind"] == "safety"} == {
        "pii": 0,
        "secrets": 2,
    }


def test_what_a_run_bought_itself_is_not_reused_when_it_goes_on(
    edison: Edison, mini: Folder
) -> None:
    assert told(edison(mini, "run", "--json").out)["calls"]["made"] == 4
    # As a process leaves it that was killed between an answer and its grade.
    for table, column in (("component", "cell_id"), ("judgment", "cell_id"), ("cell", "id")):
        change(
            mini,
            f"delete from {table} where {column} in (select id from cell where case_id = 'ada')",
        )
    change(mini, "update run set status = 'PAUSED', complete = 0")
    change(
        mini,
        "insert into attempt (request_hash, run_id, model, phase, state, est_microusd, est_tokens, "
        "owner, sent_at) select request_hash, run_id, model, phase, 'unknown', est_microusd, "
        "est_tokens, 'another process', sent_at from attempt where id = 1",
    )
    calls = told(edison(mini, "resume", "--json").out)["calls"]
    assert calls == {
        "made": 4,
        "reused": 0,
        "shared": 0,
        "retried": 0,
        "unknown": 1,
        "estimated": 0,
    }
    assert told(edison(mini, "run", "--json").out)["calls"]["reused"] == 4


def test_a_limit_that_leaves_nothing_out_makes_no_part(edison: Edison, mini: Folder) -> None:
    assert told(edison(mini, "run", "--limit", "9999", "--json").out)["partial"] is False
    assert told(edison(mini, "run", "--limit", "2", "--json").out)["partial"] is False
    assert told(edison(mini, "run", "--limit", "1", "--json").out)["partial"] is True
    assert told(edison(mini, "run", "--case", "ada", "--json").out)["partial"] is True


def test_a_cost_that_is_not_known_for_sure_is_marked_everywhere(
    edison: Edison, mini: Folder
) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small, price: {in: 100, out: 200}}\n"
        "large: {provider: sim, model: large, price: {in: 100, out: 200}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    mini.edit("experiments/hello.yaml", "[small]", "[small, large]")
    sure = edison(mini, "run").out
    assert "~" not in sure
    assert "~" not in edison(mini, "status").out
    change(mini, "update attempt set state = 'unknown' where id = 1")
    (row,) = (s for s in edison(mini, "status", "latest").out.splitlines() if s[2:5] == "all")
    assert "  ~$0." in row
    assert "~$0." in edison(mini, "status").out
    change(mini, "update attempt set state = 'settled'")
    change(mini, "drop trigger answer_is_kept")
    change(mini, "update answer set cost_kind = 'estimated' where attempt = 1")
    change(mini, "delete from rollup_calls")  # they were added up before
    assert "~$0." in edison(mini, "status").out
    assert told(edison(mini, "status", "latest", "--json").out)["calls"]["estimated"] == 1


def test_a_wrong_case_or_tag_is_refused_with_the_nearest(edison: Edison, mini: Folder) -> None:
    row = {"id": "ada", "input": {"name": "Ada"}, "expected": "Ada", "tags": ["short"]}
    mini.write("datasets/names.jsonl", json.dumps(row) + "\n")
    for flags, said, hint in (
        (("--case", "adda"), "hello has no case 'adda'", "did you mean 'ada'?"),
        (("--case", "ada", "--case", "xyz"), "hello has no case 'xyz'", "cases: ada"),
        (("--tag", "shrt"), "hello has no tag 'shrt'", "did you mean 'short'?"),
    ):
        done = edison(mini, "run", *flags)
        assert (done.code, said in done.err, hint in done.err) == (2, True, True), done.err
    assert edison(mini, "run", "--case", "ada", "--tag", "short").code == 0


def test_what_judging_costs_has_a_row_of_its_own(edison: Edison, mini: Folder) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small}\n"
        "judge: {provider: sim, model: judge, price: {in: 100, out: 200}}\n",
    )
    lines = edison(mini, "run").out.splitlines()
    names = {line.split()[0]: line.split() for line in lines[2:6]}
    assert names["judging"][1:] == [names["all"][-3]] == [told_cost(edison, mini)]
    assert "$0 " in " ".join(names["small"]) + " "


def told_cost(edison: Edison, folder: Folder) -> str:
    cost = told(edison(folder, "status", "latest", "--json").out)["cost_microusd"]
    return f"${cost / 1e6:,.2f}" if cost >= 100_000 else f"${cost / 1e6:.4f}"


def test_a_version_is_named_once(edison: Edison, one: Folder) -> None:
    one.git("init", "--quiet", "--initial-branch=main")
    one.write(".gitignore", ".edison/\n")
    one.git("add", "--all")
    one.git("commit", "--quiet", "--message", "start")
    one.edit("prompts/hello.md", "one friendly", "a friendly")
    (line,) = (s for s in edison(one, "run").out.splitlines() if s.startswith("  hello v1+"))
    assert "(" not in line


def test_a_budget_of_nothing_is_not_said_to_be_booked(edison: Edison, one: Folder) -> None:
    one.edit("models.yaml", "model: echo}", "model: echo, price: {in: 1, out: 1}}")
    done = edison(one, "run", "--budget", "0")
    assert done.code == 4
    assert "is used\n" not in done.err
