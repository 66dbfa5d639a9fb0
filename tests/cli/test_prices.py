"""edison admin prices: the table, a part of it, and a new one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

LITELLM = {
    "sample_spec": {"mode": "chat"},
    "gpt-4o-mini": {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 2e-7,
        "output_cost_per_token": 8e-7,
        "max_input_tokens": 128000,
    },
    "gpt-brand-new": {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 4e-6,
    },
}


def test_the_summary_says_how_many_and_of_which_day(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "admin", "prices")
    assert done.code == 0
    assert " models, prices of 20" in done.out
    assert "(bundled)" in done.out
    assert "source: litellm" in done.out
    assert done.err == "show some with: edison admin prices show PATTERN\n"


def test_a_part_of_a_name_is_enough(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "admin", "prices", "show", "openai/gpt-4o-mini-2024")
    head, row = done.out.splitlines()
    assert head.split("  ")[0] == "model"
    assert head.endswith("cached in  cache write  larger calls  batch      retires")
    told = ["openai/gpt-4o-mini-2024-07-18", "0.15", "0.6", "0.075", "0.075/0.3", "2027-01-14"]
    assert row.split() == told
    assert "dollars per million tokens" in done.err


def test_many_rows_are_cut_and_counted(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "admin", "prices", "show", "openai/")
    assert len(done.out.splitlines()) == 41
    assert "more; list all with --json" in done.err


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("openai/gpt-4o-mni", "did you mean 'openai/gpt-4o-mini'?"),
        ("§§§", "edison admin prices show /"),
    ],
)
def test_a_name_that_is_not_there_gets_a_hint(
    edison: Edison, folder: Folder, pattern: str, hint: str
) -> None:
    done = edison(folder, "admin", "prices", "show", pattern)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err


def test_an_update_is_written_to_the_project(edison: Edison, mini: Folder) -> None:
    mini.write("litellm.json", json.dumps(LITELLM))
    done = edison(mini, "admin", "prices", "update", "--from", "litellm.json")
    assert done.code == 0
    assert done.out.startswith("wrote .edison/prices.json: 1 added, 1 changed, ")
    assert "git diff .edison/prices.json" in done.err
    shown = json.loads(edison(mini, "admin", "prices", "show", "openai/gpt-", "--json").out)
    assert shown["origin"] == ".edison/prices.json"
    assert shown["models"]["openai/gpt-4o-mini"] == {"context": 128000, "in": 0.2, "out": 0.8}
    assert shown["models"]["openai/gpt-brand-new"] == {"in": 1.0, "out": 4.0}
    assert shown["models"]["openai/gpt-4o"]["retires"], "no longer listed"
    assert not list(mini.path.glob(".edison/*.tmp"))


def test_an_update_changes_the_cost_of_a_plan(edison: Edison, mini: Folder) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: openai, model: gpt-brand-new}\njudge: {provider: sim, model: judge}\n",
    )
    before = json.loads(edison(mini, "plan", "--json").out)["experiments"][0]
    assert before["cost_microusd"] is None
    mini.write("litellm.json", json.dumps(LITELLM))
    assert edison(mini, "admin", "prices", "update", "--from", "litellm.json").code == 0
    after = json.loads(edison(mini, "plan", "--json").out)["experiments"][0]
    assert after["cost_microusd"]["low"] > 0


def test_an_update_from_our_own_table_gives_the_same_table(edison: Edison, mini: Folder) -> None:
    mini.write("litellm.json", json.dumps(LITELLM))
    edison(mini, "admin", "prices", "update", "--from", "litellm.json")
    mini.write("copy.json", mini.read(".edison/prices.json"))
    told = json.loads(
        edison(mini, "admin", "prices", "update", "--from", "copy.json", "--json").out
    )
    assert told == {
        "schema_version": 1,
        "written": ".edison/prices.json",
        "added": [],
        "changed": [],
        "kept_retired": [],
    }
    assert mini.read(".edison/prices.json") == mini.read("copy.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "prices.json: not valid JSON"),
        ("[]", "is not a price table"),
        ("{}", "lists no model with a price"),
        ('{"models": {"a": {"in": -1, "out": 1}}}', "has no valid price in"),
        ("not json", "prices.json: not valid JSON"),
    ],
)
def test_a_file_that_is_no_table_is_refused_and_nothing_changes(
    edison: Edison, mini: Folder, text: str, said: str
) -> None:
    mini.write("prices.json", text)
    done = edison(mini, "admin", "prices", "update", "--from", "prices.json")
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 2, "what, and what to do next"
    assert not (mini.path / ".edison").exists()


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "does not exist"), ("prompts", "is not a file")]
)
def test_a_source_that_cannot_be_read_is_refused(
    edison: Edison, mini: Folder, name: str, said: str
) -> None:
    done = edison(mini, "admin", "prices", "update", "--from", name)
    assert done.code == 2
    assert said in done.err


def test_a_pipe_without_a_writer_is_not_waited_for(edison: Edison, mini: Folder) -> None:
    os.mkfifo(mini.path / "fifo")
    done = edison(mini, "admin", "prices", "update", "--from", "fifo")
    assert (done.code, "is not a file" in done.err) == (2, True)


def test_a_table_that_cannot_be_written_is_an_error(edison: Edison, mini: Folder) -> None:
    mini.write("litellm.json", json.dumps(LITELLM))
    mini.write(".edison", "a file where a folder should be")
    done = edison(mini, "admin", "prices", "update", "--from", "litellm.json")
    assert done.code == 2
    assert "cannot be" in done.err


@pytest.mark.parametrize(
    "words", [["admin", "prices"], ["admin", "prices", "show", "gpt"]], ids=" ".join
)
def test_a_broken_table_of_the_project_is_said(
    edison: Edison, mini: Folder, words: list[str]
) -> None:
    mini.write(".edison/prices.json", "{}")
    done = edison(mini, *words)
    assert done.code == 2
    assert ".edison/prices.json is not a price table" in done.err
