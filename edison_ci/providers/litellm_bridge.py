"""Models reached through litellm, which speaks to vendors that we do not.

The one home of litellm. It is imported with the first call, because that takes seconds, and what it
does by itself is switched off first: it fetches no price map, reads no `.env`, retries nothing,
follows no redirect and logs nothing. It finds no key by itself either: it is handed the ones that
the model names, and while it is in use everything that looks like a credential, or like the address
of a service, is out of the environment. What it is told comes from closed lists
(`config/model_entry.py`, the options of a model, `VENDORS`), and whichever of its many ways it
takes: a request to another host than the model's is refused before it is sent.
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
from edison_ci.errors import UsageError
from edison_ci.providers.addresses import Reach, refuse_unreachable
from edison_ci.providers.failures import Said, Scrubber, kind_of
from edison_ci.providers.openai_compatible import Dialect, body_of, completion_of
from edison_ci.providers.retry_after import retry_after_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.records import Completion, Request

NO_KEY = "no-key"
"""Handed over where a model names no key, or litellm would look for one."""
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
"""litellm points this at its own folder."""
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
"""What each exception of litellm means; a subclass that is not listed is what its parent is."""
_NOT_SENT = frozenset(
    {"ConnectError", "ClientConnectorError", "ConnectTimeout", "NoCredentialsError"}
)


@dataclass(frozen=True, slots=True)
class Target:
    """Which model litellm calls, and with what."""

    model: str
    """With the vendor in front, such as `bedrock/...`."""
    address: str
    """Where the model is; nothing is sent to any other host."""
    arguments: Mapping[str, Any] = field(repr=False)
    """Keys, region and the like, under litellm's names."""
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
        litellm = await asyncio.to_thread(loaded)
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
            failure = self._translated(error)
        else:
            return completion_of(value, round((time.perf_counter() - start) * 1000))
        finally:
            _AT.reset(place)
        raise failure

    async def aclose(self) -> None:
        """Close litellm's connections, and put the environment back."""
        if not self._open:
            return
        self._open = False
        ENVIRONMENT.show()
        litellm = await asyncio.to_thread(loaded)
        await litellm.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()

    def _call(self, request: Request) -> dict[str, Any]:
        body = body_of(request, Dialect(names_model=False))
        return {
            **body,
            **self._target.arguments,
            "model": self._target.model,
            "timeout": self._target.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": False,
        }

    def _translated(self, error: Exception) -> CallError:
        if isinstance(error, TimeoutError):
            message = f"no whole reply in {self._target.timeout_s:g} s"
            return CallError(ErrorKind.TIMEOUT, message)
        message = self._scrub(str(getattr(error, "message", "") or error)) or type(error).__name__
        if elsewhere := next((e for e in _behind(error) if isinstance(e, Elsewhere)), None):
            return CallError(ErrorKind.BAD_REQUEST, str(elsewhere), charged=False)
        if _never_sent(error):
            return CallError(ErrorKind.NETWORK, message, charged=False)
        if status := _redirect(error):
            message = f"the service redirects, which is not followed (status {status})"
            return CallError(ErrorKind.BAD_RESPONSE, message, status=status, charged=False)
        status = getattr(error, "status_code", None)
        status = status if isinstance(status, int) else None
        kind = kind_of_exception(error, message)
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
"""Kinds whose status litellm may have made up, or that vendors bill."""


def kind_of_exception(error: BaseException, message: str) -> ErrorKind:
    """Return what an exception of litellm means."""
    names = (cls.__name__ for cls in type(error).__mro__)
    kind = next((KINDS[name] for name in names if name in KINDS), ErrorKind.BAD_RESPONSE)
    words = Said(message, message.lower())
    if kind is ErrorKind.RATE_LIMIT:
        return kind_of(429, words)
    return kind_of(400, words) if kind is ErrorKind.BAD_REQUEST else kind


def _headers_of(error: BaseException) -> dict[str, str]:
    """Return the headers of the reply behind an exception, names in lower case."""
    response = getattr(error, "response", None)
    found: dict[str, str] = {}
    for headers in (
        getattr(response, "headers", None),
        getattr(error, "litellm_response_headers", None),
    ):
        for name, value in (headers or {}).items():
            found[str(name).lower()] = str(value)
    return found


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__


def _never_sent(error: BaseException) -> bool:
    """Whether it all began with a connection that did not come about."""
    return any(cls.__name__ in _NOT_SENT for cause in _behind(error) for cls in type(cause).__mro__)


def _redirect(error: BaseException) -> int | None:
    """Return the status of the redirect that it all began with, if it did."""
    for cause in _behind(error):
        response = getattr(cause, "response", None)
        for holder in (cause, response):
            status = getattr(holder, "status_code", None)
            if isinstance(status, int) and 300 <= status < 400:
                return status
    return None


# --- keeping litellm to what it is asked for ------------------------------------------------------


class Environment:
    """Takes credentials out of the environment while somebody uses litellm."""

    def __init__(self) -> None:
        self._users = 0
        self._tokenizers: str | None = None
        self.hidden: dict[str, str] = {}
        """What is out of the environment now."""

    def hide(self) -> None:
        """Take out what looks like a credential or an address, for the first of its users."""
        self._users += 1
        if self._users == 1:
            names = [n for n in os.environ if _SENSITIVE.fullmatch(n) and n not in _GUARDS]
            self.hidden = {name: os.environ.pop(name) for name in names}
            self._tokenizers = os.environ.get(_TOKENIZERS)

    def show(self) -> None:
        """Put it back, after the last of its users."""
        self._users -= 1
        if self._users == 0:
            os.environ.update(self.hidden)
            self.hidden = {}
            if self._tokenizers is None:
                os.environ.pop(_TOKENIZERS, None)
            else:
                os.environ[_TOKENIZERS] = self._tokenizers


ENVIRONMENT = Environment()
"""The environment is one for the process, so this is too."""


_LOADING = threading.Lock()


def loaded() -> Any:
    """Return litellm without its side effects; it takes seconds, so call this in a thread."""
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
            f"litellm is installed but cannot be used: {type(error).__name__}: {error}",
            hint="install it again",
        ) from error
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.num_retries = 0
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True
    _keep_in_place(httpx.AsyncClient)
    _keep_in_place(httpx.Client)
    return litellm


# --- keeping it to one host -----------------------------------------------------------------------


class Elsewhere(Exception):
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
        if (found := origin(str(request.url))) != place:
            raise Elsewhere(f"litellm would call {found}, and the model is at {place}")
        return send(self, request, **{**options, "follow_redirects": False})

    client.send = placed
