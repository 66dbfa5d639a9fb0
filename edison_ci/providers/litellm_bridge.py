"""Models through litellm, for vendors without their own adapter.

litellm is imported with the first call, because that takes seconds, and its side effects are
disabled first: it fetches no price map, reads no `.env`, retries nothing, follows no redirect and
logs nothing. It finds no keys by itself: it gets those that the model names, and while it is in use
all variables that look like credentials or addresses of services are removed from the environment.
Its arguments come from closed lists (`config/model_entry.py`, the options of a model, `VENDORS`),
and a request to another host than that of the model is refused before it is sent.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import re
import threading
import time
from contextvars import ContextVar
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.trust import origin
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.secrets import HIDDEN
from edison_ci.errors import UsageError
from edison_ci.providers.failures import ErrorBody, Scrubber, classify, retry_after_s
from edison_ci.providers.openai_compatible import Dialect, read_completion, request_body
from edison_ci.providers.transport import Reach, refuse_unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.records import Completion, Request

NO_KEY = "no-key"
"""Passed if a model names no key, because litellm would search for one otherwise."""
_GUARDS = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_SENSITIVE = re.compile(
    r"(?:AWS|AZURE|GOOGLE|VERTEX|VERTEXAI|WATSONX|DATABRICKS|SAGEMAKER|OPENAI|ANTHROPIC)_.*|"
    r".*_(?:KEY|KEY_ID|TOKEN|SECRET|CREDENTIALS|PASSWORD|API_BASE|BASE_URL|ENDPOINT|URL)"
)
_TOKENIZERS = "TIKTOKEN_CACHE_DIR"
"""litellm sets this to its own folder."""
KINDS = {
    "AuthenticationError": ErrorKind.INVALID_KEY,
    "PermissionDeniedError": ErrorKind.INVALID_KEY,
    "NotFoundError": ErrorKind.MODEL_NOT_FOUND,
    "LiteLLMUnknownProvider": ErrorKind.MODEL_NOT_FOUND,
    "ContextWindowExceededError": ErrorKind.CONTEXT_LENGTH,
    "ContentPolicyViolationError": ErrorKind.CONTENT_FILTER,
    "RejectedRequestError": ErrorKind.CONTENT_FILTER,
    "GuardrailRaisedException": ErrorKind.CONTENT_FILTER,
    "BlockedPiiEntityError": ErrorKind.CONTENT_FILTER,
    "ModifyResponseException": ErrorKind.CONTENT_FILTER,
    "SensitiveDataRouteException": ErrorKind.CONTENT_FILTER,
    "PaymentRequiredError": ErrorKind.QUOTA,
    "BudgetExceededError": ErrorKind.QUOTA,
    "RateLimitError": ErrorKind.RATE_LIMIT,
    "RouterRateLimitError": ErrorKind.RATE_LIMIT,
    "BadRequestError": ErrorKind.BAD_REQUEST,
    "InvalidRequestError": ErrorKind.BAD_REQUEST,
    "UnprocessableEntityError": ErrorKind.BAD_REQUEST,
    "UnsupportedParamsError": ErrorKind.BAD_REQUEST,
    "ImageFetchError": ErrorKind.BAD_REQUEST,
    "VectorStoreSearchError": ErrorKind.BAD_REQUEST,
    "ModelNotMappedError": ErrorKind.BAD_REQUEST,
    "Timeout": ErrorKind.TIMEOUT,
    "ServiceUnavailableError": ErrorKind.PROVIDER_ERROR,
    "MidStreamFallbackError": ErrorKind.PROVIDER_ERROR,
    "BadGatewayError": ErrorKind.PROVIDER_ERROR,
    "InternalServerError": ErrorKind.PROVIDER_ERROR,
    "MockException": ErrorKind.PROVIDER_ERROR,
    "APIConnectionError": ErrorKind.NETWORK,
    "APIResponseValidationError": ErrorKind.BAD_RESPONSE,
    "JSONSchemaValidationError": ErrorKind.BAD_RESPONSE,
    "APIError": ErrorKind.PROVIDER_ERROR,
    "OpenAIError": ErrorKind.PROVIDER_ERROR,
}
"""Kinds of the exceptions of litellm; a subclass that is not listed has that of its parent."""
_NOT_SENT = frozenset(
    {"ConnectError", "ClientConnectorError", "ConnectTimeout", "NoCredentialsError"}
)


@dataclass(frozen=True, slots=True)
class Target:
    """The model that litellm calls, and its arguments."""

    model: str
    """With the vendor as prefix, such as `bedrock/...`."""
    address: str
    """The address of the model; nothing is sent to another host."""
    arguments: Mapping[str, Any] = field(repr=False)
    """Keys, region and others, by the names of litellm."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    timeout_s: float = 60.0
    reach: Reach = Reach.NEARBY


class LitellmBridge:
    """A model behind litellm."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._scrub = Scrubber(target.secrets)
        self._open = False

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        if not self._open:
            self._open = True
            ENVIRONMENT.hide()
        litellm = await asyncio.to_thread(load_litellm)
        start = time.perf_counter()
        place = _AT.set(origin(self._target.address))
        try:
            async with asyncio.timeout(self._target.timeout_s):
                await refuse_unreachable(self._target.address, self._target.reach)
                reply = await litellm.acompletion(**self._call(request))
            value = reply.model_dump()
        except CallError:
            raise
        except Exception as error:
            failure = self._translate(error)
        else:
            return read_completion(value, round((time.perf_counter() - start) * 1000))
        finally:
            _AT.reset(place)
        raise failure

    async def aclose(self) -> None:
        """Close the connections of litellm, and restore the environment."""
        if not self._open:
            return
        self._open = False
        ENVIRONMENT.show()
        litellm = await asyncio.to_thread(load_litellm)
        await litellm.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()

    def _call(self, request: Request) -> dict[str, Any]:
        body = request_body(request, Dialect(names_model=False))
        return {
            **body,
            **self._target.arguments,
            "model": self._target.model,
            "timeout": self._target.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": False,
        }

    def _translate(self, error: Exception) -> CallError:
        if isinstance(error, TimeoutError):
            message = f"no complete reply within {self._target.timeout_s:g} s"
            return CallError(ErrorKind.TIMEOUT, message)
        message = self._scrub(str(getattr(error, "message", "") or error)) or type(error).__name__
        if elsewhere := next((e for e in _causes(error) if isinstance(e, HostMismatch)), None):
            return CallError(ErrorKind.BAD_REQUEST, str(elsewhere), charged=False)
        if _never_sent(error):
            return CallError(ErrorKind.NETWORK, message, charged=False)
        if status := _redirect(error):
            message = f"the service redirects; redirects are not followed (HTTP {status})"
            return CallError(ErrorKind.BAD_RESPONSE, message, status=status, charged=False)
        status = getattr(error, "status_code", None)
        status = status if isinstance(status, int) else None
        kind = classify_exception(error, message)
        refused = kind not in _UNCLEAR and status is not None and 400 <= status < 500
        return CallError(
            kind,
            message,
            status=status,
            retry_after_s=retry_after_s(_headers_of(error), dt.datetime.now(dt.UTC)),
            charged=not refused,
        )


_UNCLEAR = frozenset(
    {ErrorKind.TIMEOUT, ErrorKind.NETWORK, ErrorKind.CONTENT_FILTER, ErrorKind.PROVIDER_ERROR}
)
"""Kinds whose status may be invented by litellm, or that vendors bill."""


def classify_exception(error: BaseException, message: str) -> ErrorKind:
    """Return the kind of an exception of litellm."""
    names = (cls.__name__ for cls in type(error).__mro__)
    kind = next((KINDS[name] for name in names if name in KINDS), ErrorKind.BAD_RESPONSE)
    words = ErrorBody(message, message.lower())
    if kind is ErrorKind.RATE_LIMIT:
        return classify(429, words)
    return classify(400, words) if kind is ErrorKind.BAD_REQUEST else kind


def _headers_of(error: BaseException) -> dict[str, str]:
    """Return the headers of the reply behind an exception, names in lower case."""
    response = getattr(error, "response", None)
    by_name: dict[str, str] = {}
    for headers in (
        getattr(response, "headers", None),
        getattr(error, "litellm_response_headers", None),
    ):
        for name, value in (headers or {}).items():
            by_name[str(name).lower()] = str(value)
    return by_name


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _never_sent(error: BaseException) -> bool:
    """Whether the cause is a failed connection, so that nothing was sent."""
    return any(cls.__name__ in _NOT_SENT for cause in _causes(error) for cls in type(cause).__mro__)


def _redirect(error: BaseException) -> int | None:
    """Return the status of the redirect that caused the error; None if none did."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        for holder in (cause, response):
            status = getattr(holder, "status_code", None)
            if isinstance(status, int) and 300 <= status < 400:
                return status
    return None


class Environment:
    """Removes credentials from the environment while litellm is in use."""

    def __init__(self) -> None:
        self._users = 0
        self._tokenizers: str | None = None

    def hide(self) -> None:
        """Remove variables that look like credentials or addresses, for the first user."""
        self._users += 1
        if self._users == 1:
            names = [n for n in os.environ if _SENSITIVE.fullmatch(n) and n not in _GUARDS]
            HIDDEN.update({name: os.environ.pop(name) for name in names})
            self._tokenizers = os.environ.get(_TOKENIZERS)

    def show(self) -> None:
        """Restore the variables after the last user."""
        self._users -= 1
        if self._users == 0:
            os.environ.update(HIDDEN)
            HIDDEN.clear()
            if self._tokenizers is None:
                os.environ.pop(_TOKENIZERS, None)
            else:
                os.environ[_TOKENIZERS] = self._tokenizers


ENVIRONMENT = Environment()
"""One for the process, like its environment."""


_LOADING = threading.Lock()


def load_litellm() -> Any:
    """Return litellm without side effects; it takes seconds, so call this in a thread."""
    with _LOADING:
        return _load()


@cache
def _load() -> Any:
    os.environ.update(_GUARDS)
    try:
        import httpx
        import litellm
    except Exception as error:  # a broken library may raise anything
        raise UsageError(
            f"litellm is installed but broken: {type(error).__name__}: {error}",
            hint="reinstall it: pip install --force-reinstall litellm",
        ) from error
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.num_retries = 0
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True
    _keep_in_place(httpx.AsyncClient)
    _keep_in_place(httpx.Client)
    return litellm


class HostMismatch(Exception):
    """litellm was about to call a host that the model is not at; nothing was sent."""


_AT: ContextVar[str | None] = ContextVar("litellm_at", default=None)
"""Scheme, host and port that calls of now may go to; None outside of calls to litellm."""


def _keep_in_place(client: Any) -> None:
    """Have a class of clients refuse every other host, and follow no redirect to one."""
    send = client.send

    def placed(self: Any, request: Any, **options: Any) -> Any:
        place = _AT.get()
        if place is None:
            return send(self, request, **options)
        if (target := origin(str(request.url))) != place:
            raise HostMismatch(f"litellm would call {target}, and the model is at {place}")
        return send(self, request, **{**options, "follow_redirects": False})

    client.send = placed
