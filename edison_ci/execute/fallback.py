"""Fallback models of scheduled runs, which answer where a model of the experiment is not reached.

Their answers are no evidence of the model that was asked first. So its cell stays in error, which
gates, comparisons, trends and alerts know how to treat, and the answer is stored beside the cell.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.config.models import configure
from edison_ci.contracts import CallError
from edison_ci.errors import EdisonError, UsageError
from edison_ci.execute.runner import FallbackReply, request_for
from edison_ci.providers.resilience import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.runner import Task
    from edison_ci.providers.client import ModelClient
    from edison_ci.records import Side

logger = logging.getLogger(__name__)


class FallbackModels:
    """Asks the fallback models of a cell's model in turn, with their own limits and prices."""

    def __init__(
        self, project: Project, sides: Mapping[Side, Experiment], clients: ClientPool
    ) -> None:
        self._project, self._clients = project, clients
        self._params = {
            (side, name): params
            for side, experiment in sides.items()
            for name, _, params in experiment.models
        }
        self._told: set[tuple[str, str]] = set()

    async def answer(self, task: Task) -> FallbackReply | None:
        """Return the answer of the first one that is reached; None if there is none."""
        first = task.configuration
        for name in first.model.fallback:
            model = self._project.models.get(name)
            client = None if model is None else self._client(model)
            if model is None or client is None:
                continue
            params = self._params[task.side, first.name]
            configuration = configure(name, model, task.prompt, params)
            request = request_for(replace(task, configuration=configuration))
            try:
                stored = await client.answer(request)
            except (CallError, ClientClosed) as error:
                self._tell("the fallback model did not answer", name, error=str(error))
                continue
            self._tell("a fallback model answers", name, instead_of=first.model.name)
            return FallbackReply(model, request.request_hash, stored)
        return None

    def _client(self, model: Model) -> ModelClient | None:
        """Return the client of a model; None if it may not be called, or has no price."""
        try:
            if self._project.prices.price_of(model) is None:
                raise UsageError("its price is unknown", hint="add price to models.yaml")
            return self._clients.of(model, "generate")
        except EdisonError as error:  # such as a key that is not set, or may not go there
            self._tell("the fallback model cannot be asked", model.name, error=str(error))
            return None

    def _tell(self, message: str, model: str, **data: str) -> None:
        """Log it once, not for every cell."""
        key = (message, model)
        if key not in self._told:
            self._told.add(key)
            logger.warning(message, extra={"model": model, **data})
