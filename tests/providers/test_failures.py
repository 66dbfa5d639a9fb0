"""What the vendors' errors mean, by their status and their words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.contracts import ErrorKind
from edison_ci.providers.failures import LONGEST_MESSAGE, Scrubber, status_error

SCRUB = Scrubber(["sk-canary-0123456789abcdef"])


def openai(message: str, *, code: str | None = None, type: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def anthropic(message: str, type: str) -> Any:
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}


CASES: list[tuple[int, Any, ErrorKind, bool, bool]] = [
    # status, body, kind, retried, charged
    (401, openai("Incorrect API key", code="invalid_api_key"), ErrorKind.INVALID_KEY, False, False),
    (401, anthropic("invalid x-api-key", "authentication_error"),
     ErrorKind.INVALID_KEY, False, False),
    (403, anthropic("no permission", "permission_error"), ErrorKind.INVALID_KEY, False, False),
    (403, openai("Input was flagged by moderation"), ErrorKind.CONTENT_FILTER, False, True),
    (402, openai("Insufficient Balance"), ErrorKind.QUOTA, False, False),
    (404, openai("The model `gpt-9` does not exist", code="model_not_found"),
     ErrorKind.MODEL_NOT_FOUND, False, False),
    (404, anthropic("model: claude-0", "not_found_error"), ErrorKind.MODEL_NOT_FOUND, False, False),
    (404, {"error": {"code": "DeploymentNotFound", "message": "no such deployment"}},
     ErrorKind.MODEL_NOT_FOUND, False, False),
    (404, {"error": "model 'llama9' not found"}, ErrorKind.MODEL_NOT_FOUND, False, False),
    (429, openai("Rate limit reached for gpt-4o", code="rate_limit_exceeded", type="tokens"),
     ErrorKind.RATE_LIMIT, True, False),
    (429, openai("You exceeded your current quota", code="insufficient_quota",
                 type="insufficient_quota"), ErrorKind.QUOTA, False, False),
    (429, anthropic("too many requests", "rate_limit_error"), ErrorKind.RATE_LIMIT, True, False),
    (400, anthropic("Your credit balance is too low to access", "invalid_request_error"),
     ErrorKind.QUOTA, False, False),
    (400, openai("This model's maximum context length is 8192 tokens",
                 code="context_length_exceeded"), ErrorKind.CONTEXT_LENGTH, False, False),
    (400, anthropic("prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error"),
     ErrorKind.CONTEXT_LENGTH, False, False),
    (400, {"object": "error", "message": "This model's maximum context length is 10 tokens",
           "type": "BadRequestError", "code": 400}, ErrorKind.CONTEXT_LENGTH, False, False),
    (400, {"error": {"code": "content_filter", "message": "The response was filtered",
                     "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
     ErrorKind.CONTENT_FILTER, False, True),
    (400, anthropic("Output blocked by content filtering policy", "invalid_request_error"),
     ErrorKind.CONTENT_FILTER, False, True),
    (400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
                      "status": "INVALID_ARGUMENT"}}], ErrorKind.INVALID_KEY, False, False),
    (400, openai("Unsupported parameter: 'temperature'"), ErrorKind.BAD_REQUEST, False, False),
    (413, anthropic("Request exceeds the maximum size", "request_too_large"),
     ErrorKind.BAD_REQUEST, False, False),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]},
     ErrorKind.BAD_REQUEST, False, False),
    (405, "", ErrorKind.BAD_REQUEST, False, False),
    (408, openai("timed out"), ErrorKind.PROVIDER_ERROR, True, True),
    (409, openai("locked"), ErrorKind.PROVIDER_ERROR, True, False),
    (425, openai("too early"), ErrorKind.PROVIDER_ERROR, True, False),
    # The vendor itself says that there is no answer; a server before it cannot know.
    (500, openai("The server had an error"), ErrorKind.PROVIDER_ERROR, True, False),
    (500, {"object": "error", "message": "CUDA error"}, ErrorKind.PROVIDER_ERROR, True, False),
    (500, {"error": "llama runner has terminated"}, ErrorKind.PROVIDER_ERROR, True, False),
    (500, "Internal Server Error", ErrorKind.PROVIDER_ERROR, True, True),
    (500, {"message": "Internal server error"}, ErrorKind.PROVIDER_ERROR, True, True),
    (500, {"error": {}}, ErrorKind.PROVIDER_ERROR, True, True),
    (500, {"error": None, "id": "x", "choices": []}, ErrorKind.PROVIDER_ERROR, True, True),
    (502, "<html>Bad Gateway</html>", ErrorKind.PROVIDER_ERROR, True, True),
    (502, openai("bad gateway"), ErrorKind.PROVIDER_ERROR, True, True),
    (503, openai("overloaded"), ErrorKind.PROVIDER_ERROR, True, False),
    (503, [{"error": {"code": 503, "message": "The model is overloaded.",
                      "status": "UNAVAILABLE"}}], ErrorKind.PROVIDER_ERROR, True, False),
    (503, "<html>Service Unavailable</html>", ErrorKind.PROVIDER_ERROR, True, True),
    (503, "", ErrorKind.PROVIDER_ERROR, True, True),
    (504, "", ErrorKind.PROVIDER_ERROR, True, True),
    (504, openai("timed out"), ErrorKind.PROVIDER_ERROR, True, True),
    (529, anthropic("Overloaded", "overloaded_error"), ErrorKind.PROVIDER_ERROR, True, False),
    (529, "", ErrorKind.PROVIDER_ERROR, True, True),
    (101, "", ErrorKind.BAD_RESPONSE, False, True),
]  # fmt: skip


def test_the_vendors_are_understood(subtests: pytest.Subtests) -> None:
    for status, body, kind, retried, charged in CASES:
        with subtests.test(status=status, body=body):
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            error = status_error(status, raw, SCRUB)
            assert (error.kind, error.retried, error.charged) == (kind, retried, charged)
            assert error.status == status


@pytest.mark.parametrize(
    "body",
    [
        openai("No such thing"),
        anthropic("No such thing", "api_error"),
        {"error": "No such thing"},
        {"message": "No such thing"},
        {"detail": "No such thing"},
        {"object": "error", "message": "No such thing", "code": 400},
        [{"error": {"message": "No such thing"}}],
    ],
)
def test_the_providers_message_is_told(body: Any) -> None:
    error = status_error(400, json.dumps(body).encode(), SCRUB)
    assert error.message == "No such thing (HTTP 400)"


def test_a_key_that_is_echoed_is_not_told() -> None:
    said = (
        "Incorrect API key provided: sk-canary-0123456789abcdef. Also sk-ant-abcdefghijklmnopqrst"
    )
    error = status_error(401, json.dumps(openai(said)).encode(), SCRUB)
    assert "canary" not in str(error)
    assert "abcdefghijklmnop" not in str(error)
    assert "[key]" in str(error)


def test_a_key_in_another_form_is_not_told() -> None:
    scrub = Scrubber(["p@ss/word+with=signs"])
    assert "word" not in scrub("at ?key=p%40ss%2Fword%2Bwith%3Dsigns")
    assert "word" not in repr(scrub)


def test_messages_are_short_and_on_one_line() -> None:
    error = status_error(500, json.dumps(openai("a\r\n\x1b[31mb" + "x" * 50_000)).encode(), SCRUB)
    assert len(error.message) <= LONGEST_MESSAGE + 20
    assert error.message.isprintable()
    assert error.message.startswith("a [31mb")


def test_a_web_page_is_not_told() -> None:
    assert "web page" in status_error(502, b"<html><body>nginx</body></html>", SCRUB).message


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_body_makes_it_fail(status: int, body: bytes) -> None:
    status_error(status, body, SCRUB)


@pytest.mark.parametrize(
    ("status", "message", "loading"),
    [
        (503, "Loading model", True),
        (503, "Model org/name is currently loading", True),
        (503, "the endpoint is scaling up from zero", True),
        (503, "The model is overloaded", False),
        (503, "uploading is disabled", False),
        (500, "Loading model", False),
    ],
)
def test_a_service_that_loads_its_model_asks_to_wait(
    status: int, message: str, loading: bool
) -> None:
    error = status_error(status, json.dumps(openai(message)).encode(), SCRUB)
    assert (error.loading, error.asks_to_wait) == (loading, loading)


@pytest.mark.parametrize(
    "body", [b"[" * 15_000, b'{"error":' * 2_000, b'{"error": {"message": 7}}']
)
def test_odd_bodies_are_survived(body: bytes) -> None:
    assert status_error(500, body, SCRUB).kind is ErrorKind.PROVIDER_ERROR
