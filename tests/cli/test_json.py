"""The JSON documents: their keys are an interface, and stdout holds nothing else."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

SPAN = {"low", "high"}


def told(edison: Edison, folder: Folder, *args: str, code: int = 0) -> dict[str, Any]:
    done = edison(folder, *args, "--json")
    assert done.code == code, done.all
    document = json.loads(done.out)
    assert next(iter(document)) == "schema_version"
    assert document["schema_version"] == 1
    assert isinstance(document, dict)
    return document


def test_validate(edison: Edison, mini: Folder) -> None:
    assert told(edison, mini, "validate") == {"schema_version": 1, "ok": True, "problems": []}


def test_validate_with_problems(edison: Edison, mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "models: [small]", "models: [smal]")
    mini.edit("models.yaml", "small: {", "odd: {provider: ollama, model: x}\nsmall: {")
    document = told(edison, mini, "validate", code=2)
    assert set(document) == {"schema_version", "ok", "problems"}
    assert document["ok"] is False
    assert document["problems"][0] == {
        "file": "experiments/hello.yaml",
        "line": 4,
        "column": 10,
        "code": "unknown-model",
        "message": "unknown model 'smal'",
        "hint": "did you mean 'small'?",
        "severity": "error",
    }
    assert document["problems"][1]["severity"] == "warning"


def test_plan(edison: Edison, mini: Folder) -> None:
    document = told(edison, mini, "plan")
    assert set(document) == {"schema_version", "experiments"}
    (plan,) = document["experiments"]
    promised = {
        "experiment",
        "cases",
        "cells",
        "calls",
        "tokens",
        "cost_microusd",
        "seconds",
        "by_phase",
        "by_model",
        "different_inputs",
        "sd",
        "smallest_effect",
        "cases_for_margin",
        "reasons",
    }
    added = {
        "warnings",
        "simulated",
        "skipped",
        "holdout",
        "gating_cases",
        "plan_hash",
        "iterations",
        "margin",
        "blockers",
        "interim",
        "batch_saves_microusd",
    }
    assert set(plan) == promised | added
    assert set(plan["calls"]) == {"to_make", "reused"}
    for key in ("tokens", "cost_microusd", "seconds", "iterations"):
        assert set(plan[key]) == SPAN
        assert all(isinstance(end, int) for end in plan[key].values())
    assert set(plan["by_phase"]) == {"generate", "judge"}
    sums = {"calls", "tokens", "cost_microusd", "seconds"}
    assert all(set(phase) == sums for phase in plan["by_phase"].values())
    about = {"phase", "model", "provider", "simulated", "tokens_exact", "price"}
    assert all(set(model) == sums | about for model in plan["by_model"])
    assert plan["by_model"][0]["price"] == {"in": 0, "out": 0}
    assert len(plan["plan_hash"]) == 64


def test_plan_of_a_change(edison: Edison, mini: Folder) -> None:
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    document = told(edison, mini, "plan", "--changed-since", "main")
    assert document["experiments"] == []
    assert document["changed_since"] == {
        "ref": "main",
        "commit": mini.git("rev-parse", "HEAD"),
        "affected": [],
        "unaffected": ["hello"],
    }
    mini.edit("prompts/hello.md", "friendly", "kind")
    document = told(edison, mini, "plan", "--changed-since", "main")
    assert document["changed_since"]["affected"] == [
        {"experiment": "hello", "because": ["prompts/hello.md"]}
    ]
    assert [plan["experiment"] for plan in document["experiments"]] == ["hello"]


def test_plan_with_shards(edison: Edison, mini: Folder) -> None:
    document = told(edison, mini, "plan", "--shards", "2")
    assert set(document) == {"schema_version", "experiments", "matrix"}
    rows = document["matrix"]["include"]
    assert all(set(row) == {"experiment", "shard", "cases"} for row in rows)
    assert sum(row["cases"] for row in rows) == 2


def test_init(edison: Edison, folder: Folder) -> None:
    document = told(edison, folder, "init")
    assert set(document) == {"schema_version", "project", "template", "written", "kept"}
    assert document["project"] == str(folder.path.resolve())
    assert (document["template"], document["kept"]) == ("customer-support", [])
    again = told(edison, folder, "init")
    assert (again["written"], again["kept"]) == ([], document["written"])


def test_render(edison: Edison, mini: Folder) -> None:
    document = told(edison, mini, "try", "--dry-run", "hello")
    assert document == {
        "schema_version": 1,
        "prompt": {
            "id": "hello",
            "path": "prompts/hello.md",
            "hash": document["prompt"]["hash"],
            "label": "v1",
        },
        "case": "ada",
        "model": "small",
        "params": {"temperature": 1.0, "max_tokens": 4096},
        "expect": "none",
        "messages": [
            {
                "role": "user",
                "content": "Say hello to Ada in one friendly sentence, and nothing else.",
                "tokens": 15,
            }
        ],
        "tools": None,
        "tokens": {"total": 15, "method": "about 4 bytes a token", "exact": False},
        "warnings": [],
    }


def test_models(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "small: {", "mini: {provider: openai, model: gpt-4o-mini}\nsmall: {")
    document = told(edison, mini, "models", "list")
    first = document["models"][0]
    assert first == {
        "name": "mini",
        "provider": "openai",
        "model": "gpt-4o-mini",
        "simulated": False,
        "endpoint": "https://api.openai.com/v1",
        "keys": {"OPENAI_API_KEY": False},
        "params": {},
        "price": first["price"],
        "takes": {
            "protocol": "chat",
            "sampling": True,
            "system": True,
            "schema": True,
            "tools": True,
            "reasoning": [],
            "context": 128_000,
            "max_out": 16_384,
        },
        "retires": first["retires"],
        "limits": {
            "concurrency": 10,
            "rpm": None,
            "tpm": None,
            "timeout_s": 60,
            "attempts": 3,
            "give_up_s": 90.0,
        },
    }
    assert set(first["price"]) == {"in", "out", "cached_in", "cache_write", "batch"}


def test_prices(edison: Edison, mini: Folder) -> None:
    document = told(edison, mini, "admin", "prices", "show", "openai/gpt-4o-mini")
    assert set(document) == {"schema_version", "date", "source", "origin", "models"}
    assert "openai/gpt-4o-mini" in document["models"]
    assert len(told(edison, mini, "admin", "prices")["models"]) > 1000


def test_doctor(edison: Edison, mini: Folder) -> None:
    document = told(edison, mini, "doctor")
    assert set(document) == {"schema_version", "ok", "findings"}
    assert all(set(found) == {"verdict", "what", "detail"} for found in document["findings"])


def test_schema(edison: Edison, folder: Folder) -> None:
    document = told(edison, folder, "admin", "schema")
    assert document["kinds"][0] == "edison"
    assert (
        json.loads(edison(folder, "admin", "schema", "rubric", "--json").out)["title"]
        == "edison rubric"
    )


# --- failures -------------------------------------------------------------------------------------

FAILURES = {
    "no project": ["validate"],
    "unknown command": ["valdate"],
    "unknown option": ["validate", "--foo"],
    "bad value": ["plan", "--shards", "0"],
    "missing argument": ["explain"],
    "not a folder": ["-C", "nowhere", "validate"],
    "no such path": ["validate", "nowhere"],
    "no such model": ["admin", "prices", "show", "zzzzzz"],
}


def test_a_failure_is_a_document_wherever_json_is_asked_for(
    subtests: pytest.Subtests, edison: Edison, folder: Folder
) -> None:
    for before, args in product([True, False], FAILURES.values()):
        with subtests.test(args=args, before=before):
            done = edison(folder, *(["--json", *args] if before else [*args, "--json"]))
            document = json.loads(done.out)
            assert list(document) == ["schema_version", "error", "exit_code"]
            assert list(document["error"]) == ["code", "message", "file", "line", "column", "hint"]
            assert document["exit_code"] == done.code == 2
            assert document["error"]["message"]
            assert document["error"]["hint"], "an error says what to do next"
            assert done.err == ""


def test_a_failure_in_a_file_has_its_place_and_all_problems(edison: Edison, mini: Folder) -> None:
    mini.write("edison.yaml", "version: 2\nproject: mini\nprojekt: x\n")
    document = told(edison, mini, "plan", code=2)
    assert list(document) == ["schema_version", "error", "problems", "exit_code"]
    assert document["error"] == {
        "code": "invalid",
        "message": "version is 2 (and 1 more)",
        "file": "edison.yaml",
        "line": 1,
        "column": 10,
        "hint": document["error"]["hint"],
    }
    assert [problem["line"] for problem in document["problems"]] == [1, 3]


@pytest.mark.parametrize(
    "args",
    [
        ["plan", "nope"],
        ["try", "--dry-run", "nope"],
        ["try", "--dry-run", "hello", "--case", "nope"],
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_there_is_a_document(
    edison: Edison, mini: Folder, args: list[str]
) -> None:
    document = told(edison, mini, *args, code=2)
    assert document["error"]["code"] == "usage"
    assert document["error"]["file"] is None
    assert document["error"]["hint"]
