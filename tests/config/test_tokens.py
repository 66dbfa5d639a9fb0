"""Tokens are counted with the model's own vocabulary, or estimated and marked as such."""

from __future__ import annotations

import os
import socket
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken

from edison_ci.config import tokens
from edison_ci.config.models import Model, RegistryReader
from edison_ci.config.tokens import ESTIMATE, counter_for, estimate_tokens
from edison_ci.documents.yaml_text import read_yaml

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = {
    "": (0, 0),
    "tiktoken is great!": (6, 6),
    "antidisestablishmentarianism": (6, 6),
    "2 + 2 = 4": (7, 7),
    "お誕生日おめでとう": (9, 8),
    "hello world": (2, 2),
    "<|endoftext|>": (7, 7),
}
"""Counts with cl100k_base and o200k_base; the first four are in OpenAI's cookbook."""


@pytest.fixture(autouse=True)
def afresh() -> None:
    tokens._counter.cache_clear()
    tokens._tiktoken.cache_clear()


def model(name: str, provider: str = "openai") -> Model:
    entry = f"provider: {provider}, model: '{name}'"
    if provider == "azure":
        entry += ", base_url: 'https://x', options: {deployment: d, api_version: '2024-10-21'}"
    reader = RegistryReader(read_yaml(f"m: {{{entry}}}\n", "models.yaml"))
    return reader.read()["m"]


@pytest.mark.parametrize("text", KNOWN)
def test_known_counts_are_exact(text: str) -> None:
    old, new = KNOWN[text]
    for name, expected in (("gpt-3.5-turbo", old), ("gpt-4", old), ("gpt-4o", new), ("o3", new)):
        counter = counter_for(model(name))
        assert counter.exact
        assert counter.count(text) == expected, name


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("ft:gpt-3.5-turbo:acme::1", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("ft:gpt-4o:acme::1", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("GPT-4o", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("o4-mini", "o200k_base"),
    ],
)
def test_each_family_has_its_vocabulary(name: str, encoding: str) -> None:
    for provider in ("openai", "azure"):
        counter = counter_for(model(name, provider))
        assert (counter.method, counter.exact) == (f"tiktoken {encoding}", True)


def test_a_model_nobody_knows_is_counted_with_the_newest_and_marked() -> None:
    counter = counter_for(model("gpt-99"))
    assert (counter.method, counter.exact) == ("tiktoken o200k_base, of another model", False)
    assert counter.count("hello world") == 2


def test_a_vocabulary_that_is_not_at_hand_is_an_estimate() -> None:
    assert counter_for(model("text-davinci-003")) is ESTIMATE


@pytest.mark.parametrize("provider", ["anthropic", "ollama", "sim"])
def test_other_providers_are_estimated_and_marked(provider: str) -> None:
    counter = counter_for(model("small", provider))
    assert counter is ESTIMATE
    assert not counter.exact
    assert counter.method == "about 4 bytes a token"


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2), ("x" * 400, 100)]
)
def test_the_estimate_is_a_token_per_four_bytes(text: str, count: int) -> None:
    assert estimate_tokens(text) == ESTIMATE.count(text) == count


def test_a_chat_costs_more_than_its_texts() -> None:
    texts = ["You are brief.", "hello world"]
    counter = counter_for(model("gpt-4o"))
    # OpenAI: 3 tokens and the role around each message, 3 to open the answer.
    assert counter.of_messages(texts) == (4 + 4) + (2 + 4) + 3
    assert ESTIMATE.of_messages(texts) == (4 + 4) + (3 + 4)


@pytest.mark.parametrize("before", [None, "/somewhere"])
def test_the_environment_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    else:
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", before)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    assert counter_for(model("gpt-4o")).exact
    assert os.environ.get("TIKTOKEN_CACHE_DIR") == before


def no_network(*_: Any, **__: Any) -> None:
    raise AssertionError("something was looked up in the network")


def test_nothing_is_downloaded_when_the_vocabulary_is_missing_or_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    package = tmp_path / "litellm"
    folder = package / "litellm_core_utils" / "tokenizers"
    folder.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('litellm was imported')\n")

    def found(name: str) -> Any:
        spec = find_spec(name)
        if name == "litellm" and spec is not None:
            spec.origin = str(package / "__init__.py")
        return spec

    monkeypatch.setattr(tokens, "find_spec", found)
    assert counter_for(model("gpt-4o")) is ESTIMATE
    name = "fb374d419588a4632f3f557e76b4b70aebbca790"
    (folder / name).write_bytes(b"IQ== 0\n")
    tokens._tiktoken.cache_clear()
    assert counter_for(model("gpt-4o-mini")) is ESTIMATE
    assert (folder / name).read_bytes() == b"IQ== 0\n", "tiktoken would have removed it"


def test_without_tiktoken_everything_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)
    assert counter_for(model("gpt-4o")) is ESTIMATE


@pytest.mark.parametrize("character", [" ", "a", "^", "\n", "é"])
def test_a_long_run_of_one_character_is_counted_in_time(character: str) -> None:
    text = "start" + character * 300_000 + "end"
    for name in ("gpt-4o", "gpt-4"):
        counter = counter_for(model(name))
        started = time.process_time()
        assert 300_000 / 130 < counter.count(text) <= 600_002
        assert time.process_time() - started < 5
