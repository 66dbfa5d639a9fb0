"""edison models: the registry with prices, keys and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

REGISTRY = """\
mini: {provider: openai, model: gpt-4o-mini, limits: {concurrency: 3}}
old: {provider: openai, model: gpt-4o-mini-2024-07-18, price: {in: 1, out: 2.5}}
own: {provider: ollama, model: llama3.2}
aws:
  provider: bedrock
  model: x
  key_env: {access_key_id: MY_ID, secret_access_key: MY_SECRET}
  options: {region: eu-west-1}
  price: free
small: {provider: sim, model: small}
judge: {provider: sim, model: judge}
"""


def test_the_list_shows_price_key_and_limit(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_ID", "1")
    mini.write("models.yaml", REGISTRY)
    host = "https://bedrock-runtime.eu-west-1.amazonaws.com"
    keys = "".join(f"  - {{env: {env}, hosts: ['{host}']}}\n" for env in ("MY_ID", "MY_SECRET"))
    mini.write(".edison/trust.yaml", f"version: 1\nkeys:\n{keys}")
    done = edison(mini, "models", "list")
    assert done.code == 0
    lines = [line.split("  ") for line in done.out.splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert rows[0] == ["name", "provider", "model", "in/out per M", "key", "concurrency", "retires"]
    assert rows[1] == [
        *("mini", "openai", "gpt-4o-mini", "$0.15/0.6", "OPENAI_API_KEY (not set)", "3"),
    ]
    assert rows[2][3] == "$1/2.5"
    assert rows[2][-1] == "2027-01-14"
    assert rows[3][3:5] == ["unknown", "none needed"]
    assert rows[4][3:5] == ["free", "MY_ID, MY_SECRET (not set)"]
    assert rows[5] == ["small", "sim (simulated)", "small", "free", "none needed", "10"]
    assert done.err.startswith("prices of ")


def test_without_a_word_the_models_are_listed(edison: Edison, mini: Folder) -> None:
    assert edison(mini, "models") == edison(mini, "models", "list")


def test_a_column_nobody_needs_is_left_out(edison: Edison, mini: Folder) -> None:
    assert "retires" not in edison(mini, "models").out


def test_without_a_project_it_says_how_to_make_one(edison: Edison, folder: Folder) -> None:
    done = edison(folder, "models", "list")
    assert done.code == 2
    assert "there is no edison.yaml" in done.err
    assert "create a project with: edison init" in done.err
