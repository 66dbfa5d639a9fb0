"""Rules of the registry and the quarantine: trust, prices, files, dates."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import inspect_project
from edison_ci.documents.files import WorkingTree
from tests.config.broken import EXPERIMENT, add, said

if TYPE_CHECKING:
    from tests.conftest import Folder

# --- the registry ---------------------------------------------------------------------------------

GATEWAY = """gate:
  provider: openai_compatible
  model: m
  base_url: https://gate.example/v1
  key_env: GATE_KEY
  price: free
"""


def test_a_key_goes_to_trusted_hosts_only(mini: Folder) -> None:
    add(mini, "models.yaml", GATEWAY)
    message = (
        "models.yaml:3:1: model 'gate' would send GATE_KEY to https://gate.example:443 "
        "(edison trust add GATE_KEY https://gate.example:443)"
    )
    assert said(mini) == [message]
    mini.write(".edison/trust.yaml", 'keys: [{env: GATE_KEY, hosts: ["http://gate.example"]}]\n')
    assert said(mini) == [message], "another scheme is another host"
    mini.write(".edison/trust.yaml", 'keys: [{env: GATE_KEY, hosts: ["https://gate.example"]}]\n')
    assert said(mini) == []


def test_a_vendor_s_key_goes_to_the_vendor_unless_switched_off(mini: Folder) -> None:
    model = "big: {provider: openai, model: gpt-4o-mini, price: free}\n"
    add(mini, "models.yaml", model)
    assert said(mini) == []
    mini.write(".edison/trust.yaml", "builtin: false\n")
    (message,) = said(mini)
    assert message.startswith("models.yaml:3:1: model 'big' would send OPENAI_API_KEY to ")


def test_a_price_that_is_not_known_is_a_warning(mini: Folder) -> None:
    model = "big: {provider: openai, model: gpt-unheard-of}\n"
    add(mini, "models.yaml", model)
    (message,) = said(mini)
    assert message.startswith(
        "models.yaml:3:1: warning: the price of model 'big' is unknown; "
        "runs with a budget will refuse it (add price: {in: ..., out: ...} or price: free; table "
    )


def test_a_model_near_its_retirement_is_a_warning(mini: Folder) -> None:
    table = json.dumps(
        {
            "date": "2026-01-01",
            "models": {"openai/old-one": {"in": 1, "out": 2, "retires": "2026-06-30"}},
        }
    )
    mini.write(".edison/prices.json", table)
    mini.write(
        "models.yaml", mini.read("models.yaml") + "old: {provider: openai, model: old-one}\n"
    )
    assert said(mini, dt.date(2026, 4, 30)) == []
    assert said(mini, dt.date(2026, 5, 1)) == [
        "models.yaml:3:1: warning: model 'old' retires on 2026-06-30, according to the price table "
        "(choose a newer one)"
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "old: {provider: replay, store: recordings/a.jsonl}\n",
            "3:32: recordings/a.jsonl does not exist (create one with: edison run --record PATH)",
        ),
        (
            "old: {provider: sim, model: script, options: {file: answers.jsonl}}\n",
            "3:53: answers.jsonl does not exist (write it, or name another file)",
        ),
    ],
)
def test_the_file_a_model_answers_from_exists(mini: Folder, entry: str, message: str) -> None:
    add(mini, "models.yaml", entry)
    assert said(mini) == [f"models.yaml:{message}"]


# --- quarantine -----------------------------------------------------------------------------------

QUARANTINE = (
    "cases:\n  - experiment: hello\n    case: ada\n    reason: flaky\n"
    "    since: 2026-05-01\n    until: 2026-06-01\n    owner: ada\n"
)


def test_a_quarantine_lasts_through_its_last_day(mini: Folder) -> None:
    mini.write("quarantine.yaml", QUARANTINE)
    assert said(mini, dt.date(2026, 6, 1)) == []
    assert said(mini, dt.date(2026, 6, 2)) == [
        "quarantine.yaml:6:12: the quarantine of 'ada' ended on 2026-06-01 "
        "(fix the case and remove the entry, or set a new date)"
    ]


def test_a_quarantine_names_an_experiment(mini: Folder) -> None:
    mini.write("quarantine.yaml", QUARANTINE.replace("hello", "helo"))
    assert said(mini) == [
        "quarantine.yaml:2:17: there is no experiment 'helo' (did you mean 'hello'?)"
    ]


def test_an_experiment_with_problems_of_its_own_is_not_missed_as_well(mini: Folder) -> None:
    mini.write("quarantine.yaml", QUARANTINE)
    mini.edit(EXPERIMENT, "models: [small]", "models: [nobody]")
    assert said(mini) == [
        f"{EXPERIMENT}:4:10: unknown model 'nobody' (models.yaml has: judge, small)"
    ]


def test_all_problems_of_all_files_are_reported_together(mini: Folder) -> None:
    mini.edit(EXPERIMENT, "models: [small]", "models: [smal]")
    mini.edit("rubrics/tone.yaml", "weight: 0.5", "weight: 0.4")
    mini.edit("models.yaml", "judge}", "juge}")
    mini.edit("prompts/hello.md", "id: hello", "id: hullo")
    mini.write("quarantine.yaml", QUARANTINE.replace("2026-06-01", "2026-05-31"))
    mini.write(".edison/trust.yaml", "bultin: true\n")
    assert [message.partition(": ")[0] for message in said(mini)] == [
        ".edison/trust.yaml:1:1",
        f"{EXPERIMENT}:4:10",
        "models.yaml:2:31",
        "prompts/hello.md:2:5",
        "quarantine.yaml:6:12",
        "rubrics/tone.yaml:3:3",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "{provider: openai_compatible, model: x, price: free, key_env: GITHUB_TOKEN, "
        "base_url: 'https://api.openai.com'}",
        "{provider: litellm, model: groq/x, key_env: GITHUB_TOKEN, price: free}",
        "{provider: vertex, model: x, price: free, key_env: GITHUB_TOKEN, "
        "options: {project: p, location: europe-west1}}",
        "{provider: bedrock, model: x, price: free, options: {region: eu-west-1}, "
        "key_env: {access_key_id: GITHUB_TOKEN, secret_access_key: GITHUB_TOKEN}}",
    ],
)
def test_no_key_goes_where_trust_does_not_say(mini: Folder, entry: str) -> None:
    mini.write("models.yaml", mini.read("models.yaml") + f"thief: {entry}\n")
    _, problems = inspect_project(WorkingTree(mini.path), root=mini.path)
    assert {p.code for p in problems} == {"trust"}
    assert "GITHUB_TOKEN" in problems[0].message


@pytest.mark.parametrize(
    "entry",
    [
        "{provider: litellm, model: groq/x, key_env: GROQ_API_KEY, price: free}",
        "{provider: bedrock, model: x, price: free, options: {region: eu-west-1}, "
        "key_env: {access_key_id: AWS_ACCESS_KEY_ID, secret_access_key: AWS_SECRET_ACCESS_KEY}}",
        "{provider: vertex, model: x, price: free, key_env: GOOGLE_APPLICATION_CREDENTIALS, "
        "options: {project: p, location: global}}",
    ],
)
def test_vendors_own_keys_may_go_to_their_regions(mini: Folder, entry: str) -> None:
    mini.write("models.yaml", mini.read("models.yaml") + f"fine: {entry}\n")
    _, problems = inspect_project(WorkingTree(mini.path), root=mini.path)
    assert problems == []
