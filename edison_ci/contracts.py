"""Interfaces of providers and judges, for plugins too, and the errors of calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import BaseModel

    from edison_ci.records import Case, Completion, Request


class ErrorKind(StrEnum):
    """Why a call failed, independent of the provider."""

    RATE_LIMIT = "RATE_LIMIT"
    INVALID_KEY = "INVALID_KEY"
    QUOTA = "QUOTA"
    CONTEXT_LENGTH = "CONTEXT_LENGTH"
    CONTENT_FILTER = "CONTENT_FILTER"
    BAD_REQUEST = "BAD_REQUEST"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    TIMEOUT = "TIMEOUT"
    PROVIDER_ERROR = "PROVIDER_ERROR"
    BAD_RESPONSE = "BAD_RESPONSE"
    NETWORK = "NETWORK"


RETRIED = frozenset(
    {ErrorKind.RATE_LIMIT, ErrorKind.PROVIDER_ERROR, ErrorKind.TIMEOUT, ErrorKind.NETWORK}
)
"""Failures of transport that are retried; an answer is never retried for its content."""
FATAL = frozenset({ErrorKind.INVALID_KEY, ErrorKind.QUOTA, ErrorKind.MODEL_NOT_FOUND})
"""Failures that every later call of the client would have too."""
REFUSED = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.CONTEXT_LENGTH, ErrorKind.CONTENT_FILTER})
"""Failures of a model that was reached and did not accept the request. After any other failure a
fallback model is asked, where there is one: in assistants and in scheduled runs."""
WHAT_TO_CHECK: dict[str, str] = {
    ErrorKind.INVALID_KEY: "the key was refused: check the variable in key_env",
    ErrorKind.QUOTA: "the account has no quota left: add credit, or use another key",
    ErrorKind.NETWORK: "the host was not reached: check that it runs, base_url, proxy and network",
    ErrorKind.TIMEOUT: "no answer in time: raise limits.timeout_s, or check the host",
    ErrorKind.MODEL_NOT_FOUND: "the provider does not know this model: check the key model, and "
    "the path in base_url",
    ErrorKind.RATE_LIMIT: "too many requests: lower limits.concurrency or set limits.rpm",
    ErrorKind.CONTEXT_LENGTH: "the prompt with its case is too long for the model: shorten it, or "
    "use a model with a larger context",
    ErrorKind.CONTENT_FILTER: "the provider refused the content: look at the prompt and the cases",
    ErrorKind.BAD_REQUEST: "the provider refused the request: compare params with what the model "
    "accepts (`edison models list --json`)",
    ErrorKind.PROVIDER_ERROR: "the service failed: see the status page of the provider",
    ErrorKind.BAD_RESPONSE: "the reply was not what the protocol says: check provider and base_url",
}
"""What a user should check after a failure, by its kind."""


class CallError(Exception):
    """A call without an answer."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        charged: bool = True,
    ) -> None:
        message = hidden(message)  # error messages about a key often repeat it
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.status = kind, message, status
        self.retry_after_s = retry_after_s
        self.charged = charged
        """False only if the provider certainly did not charge for it."""
        self.lost_worker = False
        """Whether the worker that made the call is gone, which says nothing about the model."""
        self.garbled = False
        """Whether a reply of success was damaged in transit, or is a page of a proxy: such a call
        is retried once."""
        self.loading = False
        """Whether the service says that the model is being loaded."""

    @property
    def asks_to_wait(self) -> bool:
        """Whether the service replied that the call is to be made later."""
        limited = self.kind is ErrorKind.RATE_LIMIT
        return limited or self.loading or bool(self.retry_after_s)

    @property
    def unreached(self) -> bool:
        """Whether the service was not reached, so that it cannot know of the call."""
        return self.kind in (ErrorKind.NETWORK, ErrorKind.TIMEOUT) and not self.charged

    def rewrite(self, redact: Callable[[str], str]) -> None:
        """Redact the message, which may repeat the request."""
        self.message = redact(self.message)
        self.args = (f"{self.kind}: {self.message}",)

    @property
    def retried(self) -> bool:
        """Whether the call may be retried."""
        return self.kind in RETRIED or self.garbled


class NotAsked(CallError):
    """A request that no model gets: a recording without it, a program that may not run here.

    Its cell is skipped.
    """


class Provider(Protocol):
    """An adapter that answers requests."""

    async def complete(self, request: Request) -> Completion:
        """Return the answer; raises CallError."""
        ...


class WorkerState(NamedTuple):
    """A worker of a run at one moment."""

    name: str
    calls: int
    """Calls that it was given and has not answered."""
    answered: int
    leaving: bool
    """Whether it finishes what it has, and takes no more."""
    checked: int = 0
    """Checks that it has run."""
    unable: str = ""
    """A check of the run that it does not run, and why; empty if it runs all."""


class CheckOutcome(NamedTuple):
    """What the code of a check found."""

    score: float | None
    """None if it could not grade; `reason` says why."""
    reason: str
    passed: bool | None
    """The decision of the code; None lets the threshold decide."""


ModelOfRun = TypeVar("ModelOfRun", contravariant=True)


class Executor(Protocol[ModelOfRun]):
    """Makes the calls of a run and runs its code checks in other processes, here or elsewhere.

    Plans, results, budgets, rate limits and composites stay in the process of the run.
    """

    on_change: Callable[[], None]
    """Called when a worker comes or goes, before the calls of one that is gone fail."""

    def provider_for(self, model: ModelOfRun) -> Provider | None:
        """Return what calls a model; None if the process of the run calls it itself."""
        ...

    def workers(self, model: ModelOfRun) -> int:
        """Return how many workers can call a model."""
        ...

    async def check(self, program: str, request: str) -> CheckOutcome | None:
        """Return what the code of a check finds; None if no worker runs it."""
        ...

    def states(self) -> Sequence[WorkerState]:
        """Return the workers at this moment."""
        ...

    @property
    def stranded_s(self) -> float:
        """How long a model has had no worker, in seconds; 0 if each has one."""
        ...

    async def aclose(self) -> None:
        """Let the workers go."""
        ...


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of a model in models.yaml, for the plugin that serves it."""

    name: str
    """Its name in models.yaml."""
    model: str
    base_url: str | None = None
    """The address as written, or from the variable in `base_url_env`."""
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys by field; `api_key` when there is one. Each may go to the host of `base_url` only."""
    options: Any = None
    """An instance of the plugin's own `options`, or the mapping as written if it declares none."""
    timeout_s: float = 60.0


class ProviderPlugin(ABC):
    """Base class of provider plugins, in the entry-point group edison_ci.providers.

    `provider: NAME` in models.yaml names the entry point. One object is created for each model.
    Caching, retries, rate limits, budgets and prices are added around it.
    """

    options: ClassVar[type[BaseModel] | None] = None
    """Pydantic model of `options:` in models.yaml; without it, any mapping is accepted."""
    offline: ClassVar[bool] = False
    """Whether it answers without a network, so that `--offline` allows it."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings

    @abstractmethod
    async def complete(self, request: Request) -> Completion:
        """Return the answer; raises CallError."""

    async def aclose(self) -> None:  # noqa: B027  # most have nothing to close
        """Close connections; called once, at the end of a run."""


@dataclass(frozen=True, slots=True)
class ScoredCriterion:
    """A criterion of a rubric, for judge plugins."""

    name: str
    description: str
    min: float
    """Lowest score of its scale."""
    max: float
    """Highest score of its scale."""
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True)
class CriterionScore:
    """The score of a judge plugin for one criterion."""

    score: float
    """On the scale of the criterion."""
    reason: str = ""


class JudgePlugin(ABC):
    """Base class of judge plugins, in the entry-point group edison_ci.judges.

    `judges: {pointwise: [NAME]}` of an experiment names the entry point. One object is created
    for each run, when the first answer is judged.
    """

    @abstractmethod
    async def judge(
        self, case: Case, answer: str, criteria: Sequence[ScoredCriterion]
    ) -> Mapping[str, CriterionScore]:
        """Return the score of each criterion by its name.

        A criterion that is left out, or an exception, is an error of this judge on this answer.
        """
