"""Asks again without a parameter that a model refuses.

The table of models knows most of what a model accepts (`config/capabilities.py`). A service behind
another address, or a model that is newer than the table, may refuse more. The refusal names the
parameter and costs nothing; the call is sent again without it, and so is every later call of the
run.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.contracts import CallError, ErrorKind

if TYPE_CHECKING:
    from edison_ci.contracts import Provider
    from edison_ci.providers.batches import BatchService
    from edison_ci.records import Completion, Request

logger = logging.getLogger(__name__)

_REFUSES = re.compile(
    r"unsupported|not support|deprecated|not permitted|unknown|unrecognized|unexpected|"
    r"cannot both|may only|only the default|not allowed|not available|do not support",
    re.IGNORECASE,
)
_KEPT = frozenset({"max_tokens", "extra"})
"""Parameters without which a call is not sent: the length bounds its cost."""
_FORM = "response_format"
_OTHER_NAMES = {
    "reasoning": ("reasoning_effort", "thinking", "output_config", "effort"),
    "stop": ("stop_sequences",),
}


class Adapting:
    """A provider that leaves out what the model has refused."""

    def __init__(self, inner: Provider, model: str) -> None:
        self._inner, self._model = inner, model
        self._refused: set[str] = set()

    async def complete(self, request: Request) -> Completion:
        """Return the answer, with the names of the parameters that were left out."""
        while True:
            sent = _without(request, self._refused) if self._refused else request
            try:
                completion = await self._inner.complete(sent)
            except CallError as error:
                name = refused_param(error, sent)
                if name is None:
                    raise
                self._refuse(name, error)
                continue
            if not self._refused and not request.left_out:
                return completion
            wanted = [*request.params, *([_FORM] if request.response_format is not None else [])]
            gone = [name for name in wanted if name in self._refused]
            return replace(completion, left_out=(*request.left_out, *gone))

    def _refuse(self, name: str, error: CallError) -> None:
        if name not in self._refused:
            self._refused.add(name)
            logger.warning(
                "the model refuses a parameter, which is left out from now on",
                extra={"model": self._model, "parameter": name, "reason": error.message[:200]},
            )

    @property
    def batches(self) -> BatchService | None:
        """The batches of the model, if it has some."""
        return getattr(self._inner, "batches", None)

    async def aclose(self) -> None:
        """Close the connections."""
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()


def refused_param(error: CallError, request: Request) -> str | None:
    """Return the parameter that an error names as refused; None if it is another error."""
    if error.kind is not ErrorKind.BAD_REQUEST or not _REFUSES.search(error.message):
        return None
    wanted = [name for name in request.params if name not in _KEPT]
    if request.response_format is not None:
        wanted.append(_FORM)
    places = {
        found.start(): name
        for name in wanted
        for spelling in (name, *_OTHER_NAMES.get(name, ()))
        if (found := re.search(rf"(?<![a-z_]){spelling}(?![a-z_])", error.message))
    }
    return places[min(places)] if places else None


def _without(request: Request, refused: set[str]) -> Request:
    params = {name: value for name, value in request.params.items() if name not in refused}
    form = None if _FORM in refused else request.response_format
    return replace(request, params=params, response_format=form)
