"""The models that a key can reach, as the service of a vendor lists them.

OpenAI and the services with its protocol reply `{data: [{id}, ...]}`, Anthropic the same in pages,
Together a bare list. OpenRouter and Together add prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from edison_ci._dataclass import dataclass
from edison_ci.config.prices import MAX_PRICE
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.providers.anthropic import VERSION
from edison_ci.providers.model_access import open_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from edison_ci.config.models import Model
    from edison_ci.config.trust import TrustFile
    from edison_ci.providers.transport import Transport

HAVE_LISTS = frozenset({"openai", "anthropic", "openai_compatible", "ollama"})
"""Providers whose lists of models a key alone can read."""
_PAGE = "?limit=1000"
"""The query of a first page, where a service has pages."""
_MOST_PAGES = 20
_LONGEST_NAME = 200


class ListedModel(NamedTuple):
    """A model that a service lists."""

    id: str
    price: tuple[float, float] | None = None
    """Dollars per million tokens of input and output, where the service says it."""


@dataclass(frozen=True, slots=True)
class ModelLister:
    """Reads the list of models of one service."""

    transport: Callable[[str], Transport]
    """Returns the transport to the list with a query."""
    query: str

    async def models(self) -> list[ListedModel]:
        """Return all models by name; raises CallError."""
        models: dict[str, ListedModel] = {}
        query = self.query
        for _ in range(_MOST_PAGES):
            value = await self._read(query)
            for model in _listed(value):
                models.setdefault(model.id, model)
            last = value.get("last_id") if isinstance(value, dict) else None
            if not (isinstance(value, dict) and value.get("has_more") is True and last):
                break
            query = f"{self.query}&after_id={quote(str(last), safe='')}"
        return sorted(models.values())

    async def _read(self, query: str) -> Any:
        transport = self.transport(query)
        try:
            reply = await transport.send("GET")
        finally:
            await transport.aclose()
        try:
            return parse_json(reply.body.decode("utf-8"))
        except (UnicodeDecodeError, Fault):
            raise _no_list() from None


def lister_for(
    model: Model, *, environ: Mapping[str, str], offline: bool, trust: TrustFile | None
) -> ModelLister:
    """Return what lists the models at the address of a model, with its key; raises UsageError."""
    if model.provider not in HAVE_LISTS:
        raise UsageError(
            f"{model.provider} has no list of models that a key alone can read",
            hint="see the vendor's console, or list known models: edison admin prices show",
        )
    access = open_access(model, environ, trust, offline=offline)
    root = access.address.rstrip("/")
    if model.provider == "anthropic":
        path = "/models" if root.endswith("/v1") else "/v1/models"
        headers = {"anthropic-version": VERSION} | ({"x-api-key": access.key} if access.key else {})
        return ModelLister(lambda query: access.transport(f"{path}{query}", headers), _PAGE)
    bearer = {"Authorization": f"Bearer {access.key}"} if access.key else {}
    return ModelLister(lambda query: access.transport(f"/models{query}", bearer), "")


def _listed(value: Any) -> Iterator[ListedModel]:
    rows = value.get("data") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise _no_list()
    for row in rows:
        name = row.get("id") if isinstance(row, dict) else None
        if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable():
            yield ListedModel(name.removeprefix("models/"), _price(row.get("pricing")))


def _price(pricing: Any) -> tuple[float, float] | None:
    """Return a price: OpenRouter says dollars per token, Together per million tokens."""
    if not isinstance(pricing, dict):
        return None
    for keys, factor in ((("prompt", "completion"), 1e6), (("input", "output"), 1.0)):
        try:
            rates = [factor * float(pricing[key]) for key in keys]
        except (KeyError, TypeError, ValueError):
            continue
        if all(0 <= rate <= MAX_PRICE for rate in rates):
            return rates[0], rates[1]
    return None


def _no_list() -> CallError:
    message = "the reply is not a list of models: check the path in base_url"
    return CallError(ErrorKind.BAD_RESPONSE, message, charged=False)
