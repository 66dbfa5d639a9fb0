"""A parameter that a model refuses after all is left out, once, for the run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.resilience import Adapting
from edison_ci.records import Completion
from tests.providers.kitchen import ask

if TYPE_CHECKING:
    from edison_ci.records import Request


class Strict:
    """A provider that refuses parameters in the words of a vendor."""

    def __init__(self, refuses: dict[str, str]) -> None:
        self.refuses, self.sent = refuses, list[dict[str, Any]]()

    async def complete(self, request: Request) -> Completion:
        self.sent.append(dict(request.params))
        wanted = {**request.params, "response_format": request.response_format}
        for name, words in self.refuses.items():
            if wanted.get(name) is not None:
                raise CallError(ErrorKind.BAD_REQUEST, words, status=400, charged=False)
        return Completion("fine")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("temperature", "`temperature` is deprecated for this model. (HTTP 400)"),
        ("temperature", "Unsupported value: 'temperature' does not support 0.3 with this model."),
        ("temperature", "Unsupported parameter: 'temperature' is not supported with this model."),
        ("top_p", "`temperature` and `top_p` cannot both be specified for this model."),
        ("seed", "seed: Extra inputs are not permitted"),
        ("stop", "Unrecognized request argument supplied: stop_sequences"),
        ("reasoning", "Unknown parameter: 'reasoning_effort'."),
        ("response_format", "'response_format' of type json_object is not supported"),
    ],
)
async def test_it_is_asked_again_without_it(
    name: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    params: dict[str, Any] = {"max_tokens": 9, name: 0.3}
    form = {"type": "json_object"} if name == "response_format" else None
    params.pop("response_format", None)
    request = ask(params=params, response_format=form, left_out=("top_k",))
    provider = Strict({name: words})
    adapting = Adapting(provider, "small")
    with caplog.at_level(logging.WARNING):
        first, second = [await adapting.complete(request) for _ in range(2)]
    assert first.left_out == second.left_out == ("top_k", name)
    assert len(provider.sent) == 3, "the second call leaves it out at once"
    assert provider.sent[1] == provider.sent[2] == {"max_tokens": 9}
    (record,) = caplog.records
    assert (record.model, record.parameter) == ("small", name)  # type: ignore[attr-defined]


async def test_the_length_is_never_left_out_because_it_bounds_the_cost() -> None:
    provider = Strict({"max_tokens": "Unsupported parameter: 'max_tokens'"})
    with pytest.raises(CallError, match="max_tokens"):
        await Adapting(provider, "small").complete(ask(params={"max_tokens": 9}))
    assert len(provider.sent) == 1


@pytest.mark.parametrize(
    "error",
    [
        CallError(ErrorKind.BAD_REQUEST, "temperature must be at most 1", status=400),
        CallError(ErrorKind.BAD_REQUEST, "messages: unknown role", status=400),
        CallError(ErrorKind.RATE_LIMIT, "temperature is not supported", status=429),
    ],
)
async def test_other_errors_are_not_hidden(error: CallError) -> None:
    class Failing:
        async def complete(self, request: Request) -> Completion:
            raise error

    with pytest.raises(CallError) as raised:
        await Adapting(Failing(), "small").complete(ask(params={"temperature": 2}))
    assert raised.value is error


async def test_an_answer_without_anything_left_out_is_passed_on() -> None:
    found = await Adapting(Strict({}), "small").complete(ask(params={"temperature": 1}))
    assert found.left_out == ()


async def test_a_call_that_did_not_want_it_has_not_left_it_out() -> None:
    provider = Strict({"response_format": "'response_format' is not supported"})
    adapting = Adapting(provider, "small")
    judged = await adapting.complete(ask(response_format={"type": "json_object"}))
    assert judged.left_out == ("response_format",)
    assert (await adapting.complete(ask())).left_out == ()
